// The TVM FFI calling convention: from packed arguments to a C++ function.
//
//   static Status scale(TensorView out, TensorView x, double by, Optional<TensorView> bias);
//   AITER_EXPORT(scale, scale, arg("out"), arg("x"), arg("by"), none("bias"))
//
// exports __tvm_ffi_scale, and __aiter_signature_scale, which a build compares with the operator's
// schema. A function that returns Result<int64_t>, Result<bool> or Result<double> has a result: int, bool or float in the schema.
// Trailing arguments that have a default (none, flag, integer, real, text) may be left
// out. A Status that failed becomes the thread's raised error, prefixed with the
// operator's name; so does an exception that leaves the function. Nothing here throws or allocates.
#pragma once

#ifdef __cpp_exceptions
#include <stdlib.h>  // <new> of hipcc -nogpuinc needs it first
#include <exception>
#endif
#include <utility>

#include "tensor.h"

namespace aiter {

struct TVMFFIAny {
  int32_t type_index;
  uint32_t small_str_len;  // of a kSmallStr, else 0
  union {
    int64_t v_int64;
    double v_float64;
    void* v_ptr;
    char v_bytes[8];
  };
};
static_assert(sizeof(TVMFFIAny) == 16, "TVM FFI's layout");

enum TypeIndex : int32_t {
  kNone = 0, kInt = 1, kBool = 2, kFloat = 3, kOpaquePtr = 4, kDataType = 5, kDevice = 6, kDLTensorPtr = 7,
  kRawStr = 8, kSmallStr = 11, kStr = 65, kError = 67, kFunction = 68, kShape = 69, kTensor = 70, kArray = 71,
  kList = 75,
};

constexpr size_t kObjectHeader = 24;  // a heap object's reference count, type and deleter

}  // namespace aiter

// The process has these functions from libtvm_ffi or from the support library.
extern "C" {
void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message);
void* TVMFFIEnvGetStream(int32_t device_type, int32_t device_id);
}

namespace aiter {

// StringView borrows a str argument, size bytes of UTF-8, for the length of a call. data[size] need not be 0.
struct StringView {
  const char* data = "";
  size_t size = 0;
};

// IntListView borrows an int[] argument for the length of a call: int64 numbers, or every second word of an array of TVMFFIAny.
class IntListView {
 public:
  IntListView() = default;
  IntListView(const int64_t* data, size_t size, size_t step) : data_(data), size_(size), step_(step) {}

  size_t size() const { return size_; }
  int64_t operator[](size_t i) const { return data_[i * step_]; }

 private:
  const int64_t* data_ = nullptr;
  size_t size_ = 0, step_ = 1;
};

// ArgSpec names an argument and gives its default, in the field of its type.
struct ArgSpec {
  const char* name;
  int32_t default_type;  // -1: must be given
  int64_t integer;       // of kInt and kBool
  double real;           // of kFloat
  const char* text;      // of kRawStr
};

constexpr ArgSpec arg(const char* name) { return {name, -1, 0, 0, ""}; }
constexpr ArgSpec none(const char* name) { return {name, kNone, 0, 0, ""}; }
constexpr ArgSpec flag(const char* name, bool value) { return {name, kBool, value, 0, ""}; }
constexpr ArgSpec integer(const char* name, int64_t value) { return {name, kInt, value, 0, ""}; }
constexpr ArgSpec real(const char* name, double value) { return {name, kFloat, 0, value, ""}; }
constexpr ArgSpec text(const char* name, const char* value) { return {name, kRawStr, 0, 0, value}; }

// ArgType is the TypeIndex of an argument's C++ type, and whether it may be None.
template <class T> struct ArgType;
template <int32_t I, bool None = false> struct ArgTypeIs {
  static constexpr int32_t index = I;
  static constexpr bool optional = None;
};
template <> struct ArgType<TensorView> : ArgTypeIs<kDLTensorPtr> {};
template <> struct ArgType<int64_t> : ArgTypeIs<kInt> {};
template <> struct ArgType<bool> : ArgTypeIs<kBool> {};
template <> struct ArgType<double> : ArgTypeIs<kFloat> {};
template <> struct ArgType<StringView> : ArgTypeIs<kRawStr> {};
template <> struct ArgType<IntListView> : ArgTypeIs<kShape> {};
template <class T> struct ArgType<Optional<T>> : ArgTypeIs<ArgType<T>::index, true> {};

constexpr size_t kSignatureText = 64;  // bytes of a name or a default text, its 0 included

// SignatureArg is an argument in a library's data, without pointers. jit/signature.go reads it.
struct SignatureArg {
  char name[kSignatureText];
  char text[kSignatureText];
  int32_t type, optional, default_type, reserved;
  int64_t integer;
  double real;
};
static_assert(sizeof(SignatureArg) == 160, "layout of jit/signature.go");

template <size_t N> struct Signature {
  int32_t format, count;  // format: 1
  SignatureArg args[N];
};

// SignatureWithResult is the signature of a function with a result.
template <size_t N> struct SignatureWithResult {
  int32_t format, count;  // format: 2; count: of args
  SignatureArg args[N];
  SignatureArg result;  // its type
};

// copy_text copies a text of less than kSignatureText bytes. A longer one is not a constant expression and does not compile.
constexpr void copy_text(char* to, const char* from) {
  for (size_t i = 0; from[i]; i++) {
    if (i + 1 == kSignatureText) __builtin_trap();
    to[i] = from[i];
  }
}

constexpr SignatureArg signature_arg(const ArgSpec& spec, int32_t type, bool optional) {
  SignatureArg a{};
  copy_text(a.name, spec.name);
  copy_text(a.text, spec.text);
  a.type = type, a.optional = optional, a.default_type = spec.default_type, a.integer = spec.integer, a.real = spec.real;
  return a;
}

// signature_of describes a function's parameters with their ArgSpecs.
template <size_t N, class... A> constexpr Signature<N> signature_of(Status (*)(A...), const ArgSpec (&specs)[N]) {
  static_assert(N == sizeof...(A), "one ArgSpec for each argument");
  size_t i = 0;
  return {1, int32_t(N), {signature_arg(specs[i++], ArgType<A>::index, ArgType<A>::optional)...}};
}

template <size_t N, class T, class... A>
constexpr SignatureWithResult<N> signature_of(Result<T> (*)(A...), const ArgSpec (&specs)[N]) {
  static_assert(N == sizeof...(A), "one ArgSpec for each argument");
  size_t i = 0;
  return {2, int32_t(N), {signature_arg(specs[i++], ArgType<A>::index, ArgType<A>::optional)...},
          signature_arg(arg(""), ArgType<T>::index, false)};
}

AITER_COLD inline const char* type_index_name(int32_t i) {
  switch (i) {
    case kNone: return "None";
    case kInt: return "int";
    case kBool: return "bool";
    case kFloat: return "float";
    case kOpaquePtr: return "a pointer";
    case kDataType: return "a dtype";
    case kDevice: return "a device";
    case kDLTensorPtr: case kTensor: return "Tensor";
    case kRawStr: case kSmallStr: case kStr: return "str";
    case kFunction: return "a function";
    case kShape: return "a shape";
    case kArray: case kList: return "a list";
    default: return "an object";
  }
}

AITER_COLD inline Status wrong_type(const char* name, const char* expected, const TVMFFIAny& got) {
  return type_error("argument '%s': expected %s, got %s (type index %d)", name, expected,
                    type_index_name(got.type_index), int(got.type_index));
}

// decode makes the conversions that tvm-ffi makes, no others.
inline Status decode(const TVMFFIAny& a, const char* name, TensorView* out) {
  if (a.type_index != kDLTensorPtr && a.type_index != kTensor) return wrong_type(name, "Tensor", a);
  if (!a.v_ptr) return value_error("argument '%s': expected Tensor, got a null pointer", name);
  const char* p = static_cast<const char*>(a.v_ptr) + (a.type_index == kTensor ? kObjectHeader : 0);
  *out = TensorView(reinterpret_cast<const DLTensor*>(p), name);
  return Status();
}

inline Status decode(const TVMFFIAny& a, const char* name, int64_t* out) {
  if (a.type_index == kBool) { *out = a.v_int64 != 0; return Status(); }
  if (a.type_index != kInt) return wrong_type(name, "int", a);
  *out = a.v_int64;
  return Status();
}

inline Status decode(const TVMFFIAny& a, const char* name, bool* out) {
  if (a.type_index != kInt && a.type_index != kBool) return wrong_type(name, "bool", a);
  *out = a.v_int64 != 0;
  return Status();
}

inline Status decode(const TVMFFIAny& a, const char* name, double* out) {
  if (a.type_index == kInt || a.type_index == kBool) { *out = double(a.v_int64); return Status(); }
  if (a.type_index != kFloat) return wrong_type(name, "float", a);
  *out = a.v_float64;
  return Status();
}

inline Status decode(const TVMFFIAny& a, const char* name, StringView* out) {
  switch (a.type_index) {
    case kSmallStr:
      *out = StringView{a.v_bytes, a.small_str_len};
      return Status();
    case kRawStr:
      if (!a.v_ptr) return value_error("argument '%s': expected str, got a null pointer", name);
      *out = StringView{static_cast<const char*>(a.v_ptr), __builtin_strlen(static_cast<const char*>(a.v_ptr))};
      return Status();
    case kStr:
      *out = *reinterpret_cast<const StringView*>(static_cast<const char*>(a.v_ptr) + kObjectHeader);
      return Status();
  }
  return wrong_type(name, "str", a);
}

inline Status decode(const TVMFFIAny& a, const char* name, IntListView* out) {
  if (a.type_index != kShape && a.type_index != kArray && a.type_index != kList) return wrong_type(name, "int[]", a);
  struct Cell {  // how a Shape, an Array and a List begin behind the header
    const void* data;
    size_t size;
  };
  const auto& cell = *reinterpret_cast<const Cell*>(static_cast<const char*>(a.v_ptr) + kObjectHeader);
  if (a.type_index == kShape) {
    *out = IntListView(static_cast<const int64_t*>(cell.data), cell.size, 1);
    return Status();
  }
  const auto* items = static_cast<const TVMFFIAny*>(cell.data);
  for (size_t i = 0; i < cell.size; i++)
    if (items[i].type_index != kInt && items[i].type_index != kBool)
      return type_error("argument '%s': expected int[], got %s as element %zu", name, type_index_name(items[i].type_index), i);
  *out = IntListView(cell.size ? &items->v_int64 : nullptr, cell.size, sizeof(TVMFFIAny) / sizeof(int64_t));
  return Status();
}

template <class T> Status decode(const TVMFFIAny& a, const char* name, Optional<T>* out) {
  out->given = a.type_index != kNone;
  return out->given ? decode(a, name, &out->value) : Status();
}

// decode_at decodes argument i, or its default if the caller passed fewer.
template <class T> Status decode_at(const ArgSpec* specs, const TVMFFIAny* args, int n, int i, T* out) {
  if (i < n) return decode(args[i], specs[i].name, out);
  TVMFFIAny a{};
  a.type_index = specs[i].default_type;
  switch (a.type_index) {
    case kFloat: a.v_float64 = specs[i].real; break;
    case kRawStr: a.v_ptr = const_cast<char*>(specs[i].text); break;
    default: a.v_int64 = specs[i].integer;
  }
  return decode(a, specs[i].name, out);
}

// good reports whether s is free of errors, and otherwise copies it to *kept. A Status is long: most are not copied.
inline bool good(const Status& s, Status* kept) {
  if (s.failed()) *kept = s;
  return !s.failed();
}

inline Status check_count(const ArgSpec* specs, int total, int n) {
  int required = total;
  while (required > 0 && specs[required - 1].default_type >= 0) required--;
  if (n < required)
    return type_error("expected at least %d arguments, got %d: '%s' is missing", required, n, specs[n < 0 ? 0 : n].name);
  if (n > total) return type_error("expected at most %d arguments, got %d", total, n);
  return Status();
}

// Values is a call's arguments, the I-th an A: std::tuple takes several times as long to compile.
template <size_t I, class A> struct Value {
  A value{};
};
template <class Indices, class... A> struct Values;
template <size_t... I, class... A> struct Values<std::index_sequence<I...>, A...> : Value<I, A>... {
  // pass calls fn with the arguments, or returns the first argument's error.
  template <class R> R pass(R (*fn)(A...), const ArgSpec* specs, const TVMFFIAny* args, int n) {
    AITER_TRY(check_count(specs, int(sizeof...(A)), n));
    Status s;
    (void)(good(decode_at(specs, args, n, int(I), &this->Value<I, A>::value), &s) && ...);
    return s.failed() ? R(s) : fn(this->Value<I, A>::value...);
  }
};

inline int32_t raise(const char* op, const Status& s) {
  char text[sizeof s.message + 80];
  snprintf(text, sizeof text, "%s: %s", op, s.message);
  TVMFFIErrorSetRaisedFromCStr(s.kind, text);
  return -1;
}

// caught returns what f returns, or its exception as an error: an exception would end the process of a caller without C++.
template <class F> auto caught(const F& f) -> decltype(f()) {
#ifdef __cpp_exceptions
  try {
    return f();
  } catch (const std::exception& e) {
    return runtime_error("exception: %s", e.what());
  } catch (...) {
    return runtime_error("an exception that is not a std::exception");
  }
#else
  return f();
#endif
}

inline TVMFFIAny encode(const Status&) { return TVMFFIAny{}; }

template <class T> TVMFFIAny encode(const Result<T>& r) {
  TVMFFIAny a{};
  a.type_index = ArgType<T>::index;
  static_assert(ArgType<T>::index >= kInt && ArgType<T>::index <= kFloat, "a result is an int64_t, bool or double");
  if constexpr (ArgType<T>::index == kFloat) a.v_float64 = r.value;
  else a.v_int64 = r.value;
  return a;
}

template <class R, size_t N, class... A>
int32_t call_as(const char* op, R (*fn)(A...), const ArgSpec (&specs)[N], const TVMFFIAny* args, int32_t n,
                TVMFFIAny* result) noexcept {
  static_assert(N == sizeof...(A), "one ArgSpec for each argument");
  const R r = caught([&] { return Values<std::index_sequence_for<A...>, A...>().pass(fn, specs, args, n); });
  if (status_of(r).failed()) return raise(op, status_of(r));
  if (result) *result = encode(r);
  return 0;
}

// Two functions call, so that fn may have the name of another function: one of them fits its result.
template <size_t N, class... A>
int32_t call(const char* op, Status (*fn)(A...), const ArgSpec (&specs)[N], const TVMFFIAny* args, int32_t n,
             TVMFFIAny* result) noexcept {
  return call_as(op, fn, specs, args, n, result);
}

template <size_t N, class T, class... A>
int32_t call(const char* op, Result<T> (*fn)(A...), const ArgSpec (&specs)[N], const TVMFFIAny* args, int32_t n,
             TVMFFIAny* result) noexcept {
  return call_as(op, fn, specs, args, n, result);
}

}  // namespace aiter

#define AITER_EXPORT(name, fn, ...)                                                                       \
  AITER_SIGNATURE(name, fn, __VA_ARGS__)                                                                  \
  extern "C" __attribute__((visibility("default"))) int32_t __tvm_ffi_##name(                             \
      void*, const ::aiter::TVMFFIAny* args, int32_t n, ::aiter::TVMFFIAny* result) noexcept {            \
    using namespace ::aiter;                                                                              \
    static constexpr ArgSpec specs[] = {__VA_ARGS__};                                                     \
    return call(#name, fn, specs, args, n, result);                                                       \
  }

#if defined(__HIP_DEVICE_COMPILE__) || defined(__CUDA_ARCH__)
#define AITER_SIGNATURE(name, fn, ...)  // the compilers would put the constant into the device code too
#else
#define AITER_SIGNATURE(name, fn, ...)                                                                    \
  static constexpr auto aiter_signature_of_##name() {                                                     \
    using namespace ::aiter;                                                                              \
    constexpr ArgSpec specs[] = {__VA_ARGS__};                                                            \
    return signature_of(fn, specs);                                                                       \
  }                                                                                                       \
  extern "C" __attribute__((visibility("default"))) const decltype(aiter_signature_of_##name())           \
      __aiter_signature_##name;                                                                           \
  constexpr decltype(aiter_signature_of_##name()) __aiter_signature_##name = aiter_signature_of_##name();
#endif
