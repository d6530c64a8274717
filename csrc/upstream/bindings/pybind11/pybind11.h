// A stand-in for pybind11 that reads signatures: m.def(name, function, arg...) adds a record to a table. The compiler evaluates the
// body of PYBIND11_MODULE, and the object has the table in the section aiter_bindings: nothing is executed.
//
// A record is a line: name, type of the function, for each argument a letter (e: an enum), and for each py::arg its name and default,
// separated by bytes below 0x20.
#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace pybind11 {

constexpr char kField = 0x1f, kDefault = 0x1e;

// Text is bounded; size counts the bytes that did not fit too.
template <size_t most> struct Text {
  uint64_t size = 0;
  char data[most] = {};

  constexpr void add(char c) {
    if (size < most) data[size] = c;
    size++;
  }
  constexpr void add(std::string_view s) {
    for (char c : s) add(c < ' ' && c >= 0 ? '?' : c);
  }
  constexpr void number(int64_t v) {
    uint64_t n = v < 0 ? 0 - uint64_t(v) : uint64_t(v);
    if (v < 0) add('-');
    char digits[20] = {};
    int k = 0;
    do digits[k++] = char('0' + n % 10);
    while (n /= 10);
    while (k) add(digits[--k]);
  }
  constexpr void hex(uint64_t v, int digits) {
    while (digits--) add("0123456789abcdef"[v >> 4 * digits & 15]);
  }
};

struct none {};

// A default is a letter for its type, and its value: integers decimal, floats as bits.
struct arg {
  const char* name;
  Text<256> value;

  explicit constexpr arg(const char* n) : name(n) {}
  constexpr arg& noconvert(bool = true) { return *this; }
  constexpr arg& none(bool = true) { return *this; }
  template <class T> constexpr arg operator=(const T& v) const {
    arg a(name);
    if constexpr (std::is_same_v<T, bool>) {
      a.value.add('b'), a.value.number(v);
    } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
      a.value.add('i'), a.value.number(int64_t(v));
    } else if constexpr (std::is_same_v<T, float>) {
      a.value.add('f'), a.value.hex(std::bit_cast<uint32_t>(v), 8);
    } else if constexpr (std::is_same_v<T, double>) {
      a.value.add('d'), a.value.hex(std::bit_cast<uint64_t>(v), 16);
    } else if constexpr (std::is_convertible_v<T, std::string_view>) {
      a.value.add('s'), a.value.add(std::string_view(v));
    } else if constexpr (std::is_same_v<T, std::nullopt_t> || std::is_same_v<T, ::pybind11::none> || std::is_same_v<T, std::nullptr_t>) {
      a.value.add('n');
    } else {
      a.value.add('?');
    }
    return a;
  }
};

template <class F> constexpr std::string_view type_name() { return __PRETTY_FUNCTION__; }

template <class F> struct Kinds;
template <class R, class... A> struct Kinds<R (*)(A...)> {
  template <class T> static constexpr void add(T& text) { (text.add(std::is_enum_v<std::decay_t<A>> ? 'e' : '-'), ...); }
};

struct attribute {
  template <class T> constexpr const attribute& operator=(const T&) const { return *this; }
};

struct module_ {
  Text<1 << 16> table;

  template <class F, class... X> constexpr module_& def(const char* name, F, const X&... extra) {
    table.add(std::string_view(name));
    table.add(kField);
    using Pointer = decltype(+std::declval<F>());  // also of a lambda without captures
    table.add(type_name<Pointer>());
    table.add(kField);
    Kinds<Pointer>::add(table);
    (describe(extra), ...);
    table.add('\n');
    return *this;
  }
  constexpr attribute attr(const char*) const { return {}; }
  constexpr attribute doc() const { return {}; }

 private:
  template <class T> constexpr void describe(const T& extra) {
    if constexpr (std::is_same_v<T, arg>) {
      table.add(kField);
      table.add(std::string_view(extra.name));
      if (extra.value.size == 0) return;
      table.add(kDefault);
      table.add(std::string_view(extra.value.data, extra.value.size < 256 ? extra.value.size : 256));
    }
  }
};

template <class T> struct enum_ {
  constexpr enum_(module_&, const char*) {}
  constexpr enum_& value(const char*, T) { return *this; }
  constexpr enum_& export_values() { return *this; }
};

struct constructor {};
template <class... A> constexpr constructor init() { return {}; }
template <class F> constexpr constructor init(F) { return {}; }

template <class T> struct class_ {
  constexpr class_(module_&, const char*) {}
  template <class... X> constexpr class_& def(const X&...) { return *this; }
  template <class... X> constexpr class_& def_readwrite(const X&...) { return *this; }
  template <class... X> constexpr class_& def_readonly(const X&...) { return *this; }
};
template <class A, class B> constexpr void implicitly_convertible() {}

constexpr auto table_of(void (*fill)(module_&)) {
  module_ m;
  fill(m);
  return m.table;
}

}  // namespace pybind11

namespace py = pybind11;

#define PYBIND11_MODULE(name, m) static constexpr void aiter_bindings(::pybind11::module_& m)
#define AITER_BINDINGS_TABLE                                     \
  __attribute__((section("aiter_bindings"), used)) static constexpr auto aiter_table = ::pybind11::table_of(aiter_bindings);
