// Errors as values: a kind that names a Python exception, and a message.
#pragma once

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include "platform.h"

namespace aiter {

// Status is an error, or none. It owns no memory and is never thrown.
struct Status {
  const char* kind;  // nullptr: no error. "TypeError", "ValueError" or "RuntimeError"
  char message[480];

  Status() : kind(nullptr) { message[0] = 0; }
  bool failed() const { return kind != nullptr; }
};

#define AITER_PRINTF(at, first) __attribute__((format(printf, at, first)))

inline void vformat(Status* s, const char* format, va_list list) { vsnprintf(s->message, sizeof s->message, format, list); }

// A value has the wrong type: of an argument, of an element, or their number.
AITER_COLD AITER_PRINTF(1, 2) inline Status type_error(const char* format, ...) {
  Status s;
  s.kind = "TypeError";
  va_list list;
  va_start(list, format);
  vformat(&s, format, list);
  va_end(list);
  return s;
}

// A value has the right type but cannot be worked with.
AITER_COLD AITER_PRINTF(1, 2) inline Status value_error(const char* format, ...) {
  Status s;
  s.kind = "ValueError";
  va_list list;
  va_start(list, format);
  vformat(&s, format, list);
  va_end(list);
  return s;
}

// The device or the system failed.
AITER_COLD AITER_PRINTF(1, 2) inline Status runtime_error(const char* format, ...) {
  Status s;
  s.kind = "RuntimeError";
  va_list list;
  va_start(list, format);
  vformat(&s, format, list);
  va_end(list);
  return s;
}

// Result is what a function with a result returns: an int, bool or float, or an error.
template <class T> struct Result {
  Status status;
  T value{};

  Result(T v) : value(v) {}
  Result(const Status& s) : status(s) {}
};

inline const Status& status_of(const Status& s) { return s; }
template <class T> const Status& status_of(const Result<T>& r) { return r.status; }

// AITER_TRY returns from the calling function when expr failed.
#define AITER_TRY(expr)                                        \
  do {                                                         \
    if (::aiter::Status status_ = (expr); status_.failed()) return status_; \
  } while (0)

// Text is a short string built in place, truncated when it is full.
struct Text {
  char data[120];
  int len = 0;

  Text() { data[0] = 0; }
  AITER_PRINTF(2, 3) void add(const char* format, ...) {
    va_list list;
    va_start(list, format);
    const int room = int(sizeof data) - len, n = vsnprintf(data + len, room, format, list);
    va_end(list);
    len += n < room ? n : room - 1;
  }
};

}  // namespace aiter
