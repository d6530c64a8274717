// Operators of an AIter checkout as operators of this project.
//
//   #include <aiter/upstream.h>
//   #include "kernels/pos_encoding_kernels.cu"  // of the checkout
//   AITER_UPSTREAM(aiter_rotary_embedding_fwd, rotary_embedding, arg("positions"), arg("query"), ...)
//
// exports a C++ function with AIter's argument types: aiter_tensor_t from DLPack, numbers with a check of their range. The
// function runs on the call's stream and device. AITER_CHECK and HIP_CALL, which end the process in AIter, throw, and the call
// returns the error. So do those in aiter_hip_common.h (aiter/assembly.h), except in the destructor of its HipDeviceGuard, which
// selects the device that was selected here.
#pragma once

#include <hip/hip_runtime.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <limits>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

// AIter has types and functions of these names in the same namespace.
#define bf16_t ffi_bf16_t
#define half_t ffi_half_t
#define load ffi_load
#define store ffi_store
#include "ffi.h"
#include "upstream_float8.h"
#undef bf16_t
#undef half_t
#undef load
#undef store

#define AITER_EMBEDDED_HSA_HEADER <aiter/assembly.h>
#include "aiter_hip_common.h"  // of the checkout, as the next two
#undef cerr
#undef abort
#undef getenv

#undef AITER_CHECK
#undef HIP_CALL
#undef HIP_CALL_LAUNCH
#define AITER_CHECK(x, ...)                                                                                  \
  do {                                                                                                       \
    if (!(x)) [[unlikely]] ::aiter::upstream::fail(#x, __FILE__, __LINE__ __VA_OPT__(, ) __VA_ARGS__);       \
  } while (0)
#define HIP_CALL(call)                                                                                       \
  do {                                                                                                       \
    if (const hipError_t e = (call); e != hipSuccess) [[unlikely]]                                           \
      ::aiter::upstream::fail_hip(#call, hipGetErrorString(e), __FILE__, __LINE__);                          \
  } while (0)
#define HIP_CALL_LAUNCH(call) HIP_CALL(call)

#ifndef __HIP_DEVICE_COMPILE__
// The libstdc++ that is linked into a library may be of a newer system and call this function of glibc 2.38. With a definition
// here the library also loads on older systems.
extern "C" {
unsigned long aiter_upstream_strtoul(const char*, char**, int) __asm__("strtoul");
__attribute__((weak, visibility("hidden"))) unsigned long __isoc23_strtoul(const char* text, char** end, int base) {
  return aiter_upstream_strtoul(text, end, base);
}
}
#endif

namespace aiter::upstream {

// CheckError is a failed AITER_CHECK. HIP's failures are std::runtime_error.
struct CheckError : std::runtime_error {
  std::string where;
  CheckError(const std::string& text, std::string where) : std::runtime_error(text), where(std::move(where)) {}
};

// place names a line without the folders of the machine.
inline std::string place(const char* file, int line) {
  const char* slash = __builtin_strrchr(file, '/');
  return std::string(slash ? slash + 1 : file) + ":" + std::to_string(line);
}

template <class... A> [[noreturn]] inline void fail(const char* condition, const char* file, int line, A&&... parts) {
  std::ostringstream text;
  if constexpr (sizeof...(A) > 0) {
    (text << ... << std::forward<A>(parts));
  } else {
    text << "expected " << condition;
  }
  throw CheckError(text.str(), place(file, line));
}

[[noreturn]] inline void fail_hip(const char* call, const char* reason, const char* file, int line) {
  throw std::runtime_error(std::string(call) + ": " + reason + " (" + place(file, line) + ")");
}

}  // namespace aiter::upstream

#include "aiter_stream.h"
#include "aiter_tensor.h"

namespace aiter::upstream {

// Call collects what the arguments of a call determine.
struct Call {
  const ArgSpec* spec;    // of the argument that is converted
  bool on_device = false; // a tensor was seen
  DLDevice device{};      // of the first tensor
};

constexpr uint8_t kE4M3FN = 10, kE4M3FNUZ = 11, kE2M1FN = 17;  // DLPack's codes of floats of 8 and 4 bits

// element_type returns an AiterDtype, -1 if AIter has none for the type.
inline int element_type(const DLDataType& d) {
  if (d.bits == 4 && d.lanes == 2) return d.code == kE2M1FN ? AITER_DTYPE_fp4x2 : d.code == 0 ? AITER_DTYPE_i4x2 : -1;
  if (d.lanes != 1) return -1;
  switch (uint32_t(d.bits) << 8 | d.code) {
    case 16 << 8 | 2: return AITER_DTYPE_fp16;
    case 32 << 8 | 2: return AITER_DTYPE_fp32;
    case 16 << 8 | 4: return AITER_DTYPE_bf16;
    case 8 << 8 | 0: return AITER_DTYPE_i8;
    case 16 << 8 | 0: return AITER_DTYPE_i16;
    case 32 << 8 | 0: return AITER_DTYPE_i32;
    case 64 << 8 | 0: return AITER_DTYPE_i64;
    case 8 << 8 | 1: case 8 << 8 | 6: return AITER_DTYPE_u8;
    case 8 << 8 | kE4M3FN: case 8 << 8 | kE4M3FNUZ: return AITER_DTYPE_fp8;
    case 8 << 8 | 14: return AITER_DTYPE_fp8_e8m0;
    case 32 << 8 | 1: return AITER_DTYPE_u32;
    case 64 << 8 | 1: return AITER_DTYPE_u64;
    default: return -1;
  }
}

// convert makes AIter's value of a decoded argument.
inline Status convert(const TensorView& t, aiter_tensor_t* to, Call* call) {
  constexpr int most = int(sizeof to->shape / sizeof to->shape[0]);
  if (t.rank() < 0 || t.rank() > most) return value_error("argument '%s': expected 0 to %d dimensions, got %d", t.name(), most, t.rank());
  const DLDevice d = t.device();
  if (d.type != kROCM)
    return value_error("argument '%s': expected a tensor in the memory of a ROCm device, got device type %d", t.name(), int(d.type));
  if (call->on_device && d.id != call->device.id)
    return value_error("argument '%s': expected device %d as the tensors before it, got %d", t.name(), int(call->device.id), int(d.id));
  const DLDataType e = t.raw_dtype();
  const int type = element_type(e);
  if (type < 0)
    return type_error("argument '%s': AIter has no element type with DLPack's code %d, %d bits and %d lanes", t.name(), int(e.code),
                      int(e.bits), int(e.lanes));
  if (type == AITER_DTYPE_fp8 && float8_of(d.id) == Float8::kNone)
    return type_error("argument '%s': expected a type that the device converts, got float8_e4m3%s; gfx942, gfx950 and gfx12 "
                      "convert 8-bit floats", t.name(), e.code == kE4M3FNUZ ? "fnuz" : "fn");
  if (type == AITER_DTYPE_fp8 && (e.code == kE4M3FNUZ) != (float8_of(d.id) == Float8::kFNUZ))
    return type_error("argument '%s': expected dtype float8_e4m3%s, the 8-bit float of the device, got float8_e4m3%s", t.name(),
                      e.code == kE4M3FNUZ ? "fn" : "fnuz", e.code == kE4M3FNUZ ? "fnuz" : "fn");
  *to = aiter_tensor_t{};
  to->ptr = t.data(), to->ndim = t.rank(), to->numel_ = 1, to->dtype_ = AiterDtype(type), to->device_id = d.id;
  for (int i = 0; i < t.rank(); i++) {
    to->shape[i] = t.size(i), to->strides[i] = t.stride(i);
    if (t.size(i) < 0 || __builtin_mul_overflow(to->numel_, size_t(t.size(i)), &to->numel_) || to->numel_ > size_t(INT64_MAX) / 16)
      return value_error("argument '%s': expected sizes from 0 on and less than 2^59 elements, got %lld in dimension %d", t.name(),
                         static_cast<long long>(t.size(i)), i);
  }
  if (to->numel_ > 0 && !to->ptr) return value_error("argument '%s': expected memory, got a null pointer", t.name());
  call->on_device = true, call->device = d;
  return Status();
}

// A tensor that is not given is empty.
inline Status convert(const Optional<TensorView>& t, std::optional<aiter_tensor_t>* to, Call* call) {
  if (!t) return Status();
  return convert(t.value, &to->emplace(), call);
}

inline Status convert(bool v, bool* to, Call*) {
  *to = v;
  return Status();
}

template <class T> std::enable_if_t<std::is_integral_v<T> || std::is_enum_v<T>, Status> convert(int64_t v, T* to, Call* call) {
  *to = T(v);
  if (int64_t(*to) != v)
    return value_error("argument '%s': expected an integer of %d bytes, got %lld", call->spec->name, int(sizeof(T)), (long long)v);
  return Status();
}

template <class T> std::enable_if_t<std::is_floating_point_v<T>, Status> convert(double v, T* to, Call* call) {
  *to = T(v);
  uint64_t bits;  // AIter compiles modules with -ffast-math, where std::isinf is false
  memcpy(&bits, &v, sizeof bits);
  constexpr uint64_t exponent = uint64_t(0x7ff) << 52;
  constexpr double most = std::numeric_limits<T>::max();
  if ((bits & exponent) != exponent && (v > most || v < -most))
    return value_error("argument '%s': expected a number of %d bytes, got %g", call->spec->name, int(sizeof(T)), v);
  return Status();
}

template <class T>
std::enable_if_t<std::is_floating_point_v<T>, Status> convert(const Optional<double>& v, std::optional<T>* to, Call* call) {
  if (!v) return Status();
  return convert(v.value, &to->emplace(), call);
}

inline Status convert(const StringView& v, std::string* to, Call*) {
  to->assign(v.data, v.size);
  return Status();
}

inline Status convert(const IntListView& v, std::vector<int64_t>* to, Call*) {
  for (size_t i = 0; i < v.size(); i++) to->push_back(v[i]);
  return Status();
}

// Decoded<T> is the type that ffi.h decodes for an AIter argument T.
template <class T, class = void> struct DecodedAs { using type = int64_t; };  // integers and enums
template <> struct DecodedAs<bool> { using type = bool; };
template <> struct DecodedAs<std::string> { using type = StringView; };
template <> struct DecodedAs<std::vector<int64_t>> { using type = IntListView; };
template <> struct DecodedAs<aiter_tensor_t> { using type = TensorView; };
template <> struct DecodedAs<std::optional<aiter_tensor_t>> { using type = Optional<TensorView>; };
template <class T> struct DecodedAs<T, std::enable_if_t<std::is_floating_point_v<T>>> { using type = double; };
template <class T> struct DecodedAs<std::optional<T>, std::enable_if_t<std::is_floating_point_v<T>>> { using type = Optional<double>; };
template <class T> using Decoded = typename DecodedAs<std::decay_t<T>>::type;

// OnDevice selects the device of a call, and restores the one before it.
class OnDevice {
 public:
  explicit OnDevice(int id) {
    HIP_CALL(hipGetDevice(&before_));
    HIP_CALL(hipSetDevice(id));
  }
  ~OnDevice() { (void)hipSetDevice(before_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
};

// Throwing makes checks in AIter's own headers throw.
class Throwing {
 public:
  Throwing() : before_(std::exchange(aiter_detail::g_aiter_can_throw, true)) {}
  ~Throwing() { aiter_detail::g_aiter_can_throw = before_; }

 private:
  bool before_;
};

// Returned<R> is the type that a function with AIter's result R has here: integers are int64_t.
template <class R, class = void> struct ReturnedAs { using type = Result<int64_t>; };
template <> struct ReturnedAs<void> { using type = Status; };
template <> struct ReturnedAs<bool> { using type = Result<bool>; };
template <class R> struct ReturnedAs<R, std::enable_if_t<std::is_floating_point_v<R>>> { using type = Result<double>; };
template <class R> using Returned = typename ReturnedAs<R>::type;

inline const char* type_name(AiterDtype t) {
  switch (t) {
    case AITER_DTYPE_fp8: return "float8_e4m3";
    case AITER_DTYPE_fp8_e8m0: return "float8_e8m0fnu";
    case AITER_DTYPE_fp4x2: return "float4_e2m1fn_x2";
    case AITER_DTYPE_i4x2: return "int4x2";
    case AITER_DTYPE_fp16: return "float16";
    case AITER_DTYPE_fp32: return "float32";
    case AITER_DTYPE_bf16: return "bfloat16";
    case AITER_DTYPE_i8: return "int8";
    case AITER_DTYPE_i16: return "int16";
    case AITER_DTYPE_i32: return "int32";
    case AITER_DTYPE_i64: return "int64";
    case AITER_DTYPE_u8: return "uint8";
    case AITER_DTYPE_u32: return "uint32";
    case AITER_DTYPE_u64: return "uint64";
    default: return "another type";
  }
}

// given describes an argument.
inline std::string given(const aiter_tensor_t& t) {
  std::ostringstream o;
  o << type_name(t.dtype()) << " (";
  for (int i = 0; i < t.dim(); i++) o << (i ? ", " : "") << t.size(i);
  o << ")";
  for (int i = 0; !t.is_contiguous() && i < t.dim(); i++) o << (i ? ", " : " with strides [") << t.stride(i);
  if (!t.is_contiguous()) o << "]";
  if (const auto rest = reinterpret_cast<uintptr_t>(t.ptr) % 16) o << " at " << rest << " bytes behind a multiple of 16";
  return o.str();
}
inline std::string given(const std::optional<aiter_tensor_t>& t) { return t ? given(*t) : "none"; }
inline std::string given(const std::string& v) { return '"' + v + '"'; }
inline std::string given(const std::vector<int64_t>& v) { return std::to_string(v.size()) + " integers"; }
inline std::string given(bool v) { return v ? "true" : "false"; }
template <class T> std::enable_if_t<std::is_arithmetic_v<T> || std::is_enum_v<T>, std::string> given(const T& v) {
  std::ostringstream o;
  if constexpr (std::is_floating_point_v<T>) o << v;
  else o << int64_t(v);
  return o.str();
}

template <class T> std::enable_if_t<std::is_floating_point_v<T>, std::string> given(const std::optional<T>& v) {
  return v ? given(*v) : "none";
}

// explained completes the text of a failed check. "x: expected ..." becomes "argument 'x': expected ...". Texts of AIter are kept. A text
// without what was given gets it, for the arguments that it names, else for all.
inline std::string explained(const CheckError& e, const ArgSpec* specs, const std::string* values, size_t n) {
  std::string text = e.what();
  const size_t colon = text.find(": ");
  const auto in_word = [&](size_t at) { return at < text.size() && (isalnum((unsigned char)text[at]) || text[at] == '_'); };
  const auto named = [&](std::string_view name, size_t end) {
    for (size_t at = text.find(name); at < end; at = text.find(name, at + 1))
      if ((at == 0 || !in_word(at - 1)) && !in_word(at + name.size())) return at;
    return std::string::npos;
  };
  // The names before the colon, which only ", " and " and " separate.
  size_t count = 0, length = 0;
  std::vector<bool> listed(n);
  for (size_t i = 0; colon != std::string::npos && i < n; i++)
    if (named(specs[i].name, colon) != std::string::npos) listed[i] = true, count++, length += std::string_view(specs[i].name).size();
  const bool ours = count > 0 && colon == length + (count > 1 ? 5 + 2 * (count - 2) : 0);
  if (!ours)
    for (size_t i = 0; i < n; i++) {
      const std::string_view name = specs[i].name;
      listed[i] = name.size() > 1 && named(name, text.size()) != std::string::npos;  // shorter names are words
      count += listed[i];
    }
  if (text.find("got ") == std::string::npos) {
    const size_t all = std::count(listed.begin(), listed.end(), true);
    const char* separator = ours ? ", got " : "; got ";
    for (size_t i = 0; i < n; i++) {
      if (all > 0 && !listed[i]) continue;
      text += separator;
      if (!ours || all > 1) text += std::string(specs[i].name) + " ";
      text += values[i], separator = ", ";
    }
  }
  if (ours) {
    for (size_t i = 0; i < n; i++)
      if (listed[i]) {
        const size_t size = std::string_view(specs[i].name).size(), at = named(specs[i].name, text.find(": "));
        text.insert(at + size, "'"), text.insert(at, "'");
      }
    text.insert(0, count > 1 ? "arguments " : "argument ");
  }
  return text + " (" + e.where + ")";
}

template <auto fn, auto specs, class F = decltype(fn)> struct Adapted;
template <auto fn, auto specs, class R, class... A> struct Adapted<fn, specs, R (*)(A...)> {
  // A function without tensors runs on the thread's device.
  static constexpr bool kTensors = (std::is_same_v<std::decay_t<A>, aiter_tensor_t> || ...);

  static Returned<R> run(Decoded<A>... decoded) {
    std::tuple<std::decay_t<A>...> values{};
    Call call{specs()};
    Status s;
    std::apply([&](auto&... to) { (void)((good(convert(decoded, &to, &call), &s) && call.spec++) && ...); }, values);
    if (s.failed()) return s;
    if (kTensors && !call.on_device) return value_error("expected a tensor in the memory of a ROCm device, got none");
    try {
      std::optional<OnDevice> device;
      if (call.on_device) {
        device.emplace(call.device.id);
        ::aiter::setCurrentHIPStream(static_cast<hipStream_t>(TVMFFIEnvGetStream(call.device.type, call.device.id)));
      }
      const Throwing throwing;
      const auto invoke = [](auto&... v) { return fn(static_cast<A>(v)...); };
      if constexpr (std::is_void_v<R>) std::apply(invoke, values);
      else return std::apply(invoke, values);
    } catch (const CheckError& e) {
      const auto texts = std::apply([](auto&... v) { return std::array<std::string, sizeof...(A)>{given(v)...}; }, values);
      return value_error("%s", explained(e, specs(), texts.data(), texts.size()).c_str());
    } catch (const std::exception& e) {
      failure().str("");
      return runtime_error("%s", message(e.what()).c_str());
    }
    return Status();
  }
};

// packed reports whether the elements are adjacent in row-major order.
inline bool packed(const aiter_tensor_t& t) { return t.is_contiguous(); }

}  // namespace aiter::upstream

#define AITER_UPSTREAM(name, fn, ...)                                                                                       \
  static inline const ::aiter::ArgSpec* aiter_specs_of_##name() {                                                          \
    using namespace ::aiter;                                                                                               \
    static constexpr ArgSpec specs[] = {__VA_ARGS__};                                                                      \
    return specs;                                                                                                          \
  }                                                                                                                        \
  AITER_EXPORT(name, (::aiter::upstream::Adapted<&fn, &aiter_specs_of_##name>::run), __VA_ARGS__)
