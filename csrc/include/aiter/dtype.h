// Element types and their conversions. All arithmetic is in float; a result is
// rounded to its type once, to the nearest, ties to even. NaN stays NaN.
#pragma once

#include "platform.h"

namespace aiter {

// Storage only: bits of a 16-bit float.
struct half_t {
  uint16_t bits;
};
struct bf16_t {
  uint16_t bits;
};

enum class DType : uint8_t { F32, F16, BF16, I32, Bool, Other };

constexpr const char* dtype_name(DType t) {
  return t == DType::F32 ? "float32" : t == DType::F16 ? "float16" : t == DType::BF16 ? "bfloat16"
                                   : t == DType::Bool  ? "bool" : "int32";
}

template <class T> constexpr DType dtype_of();
template <> constexpr DType dtype_of<float>() { return DType::F32; }
template <> constexpr DType dtype_of<half_t>() { return DType::F16; }
template <> constexpr DType dtype_of<bf16_t>() { return DType::BF16; }
template <> constexpr DType dtype_of<int32_t>() { return DType::I32; }
template <class T> constexpr DType kDType = dtype_of<T>();  // for the GPU too

// dtype_size returns the bytes of an element, 0 for Other: TensorView::element_size has them.
AITER_SHARED constexpr int64_t dtype_size(DType t) {
  return t == DType::F32 || t == DType::I32 ? 4 : t == DType::F16 || t == DType::BF16 ? 2 : t == DType::Bool ? 1 : 0;
}

AITER_SHARED float bits_to_float(uint32_t u) {
  float f;
  __builtin_memcpy(&f, &u, sizeof f);
  return f;
}

AITER_SHARED uint32_t float_to_bits(float f) {
  uint32_t u;
  __builtin_memcpy(&u, &f, sizeof u);
  return u;
}

AITER_SHARED float to_float(float v) { return v; }
AITER_SHARED float to_float(bf16_t v) { return bits_to_float(uint32_t(v.bits) << 16); }

#if defined(__HIP_DEVICE_COMPILE__) || defined(__CUDA_ARCH__)

AITER_DEVICE float to_float(half_t v) {
#if AITER_HIP
  _Float16 h;
  __builtin_memcpy(&h, &v, sizeof h);
  return float(h);
#else
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(v.bits));
  return f;
#endif
}

AITER_DEVICE half_t to_half(float f) {
  half_t v;
#if AITER_HIP
  _Float16 h = _Float16(f);
  __builtin_memcpy(&v, &h, sizeof v);
#else
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(v.bits) : "f"(f));
#endif
  return v;
}

#else

// Half's subnormals are normal floats. Adding and subtracting 0.5, whose last bit has the weight of half's smallest subnormal,
// converts them both ways exactly, also if the processor flushes float subnormals to zero.
AITER_SHARED float to_float(half_t v) {
  const uint32_t sign = uint32_t(v.bits & 0x8000) << 16, rest = v.bits & 0x7fff;
  const float magnitude = rest < 0x0400   ? bits_to_float(rest | 0x3f000000) - 0.5f
                          : rest < 0x7c00 ? bits_to_float((rest << 13) + 0x38000000)
                                          : bits_to_float((rest << 13) | 0x7f800000);
  return bits_to_float(float_to_bits(magnitude) | sign);
}

AITER_SHARED half_t to_half(float f) {
  const uint32_t u = float_to_bits(f), sign = (u >> 16) & 0x8000, a = u & 0x7fffffff;
  uint32_t r;
  if (a > 0x7f800000) {
    r = 0x7e00;  // NaN
  } else if (a >= 0x477ff000) {
    r = 0x7c00;  // 65520 and more round to infinity
  } else if (a < 0x38800000) {
    r = float_to_bits(bits_to_float(a) + 0.5f) - 0x3f000000;  // subnormal: the adder rounds
  } else {
    r = (a - 0x38000000 + 0xfff + ((a >> 13) & 1)) >> 13;
  }
  return half_t{uint16_t(r | sign)};
}

#endif

AITER_SHARED bf16_t to_bf16(float f) {
  const uint32_t u = float_to_bits(f);
  if ((u & 0x7fffffff) > 0x7f800000) return bf16_t{uint16_t((u >> 16) | 0x40)};
  return bf16_t{uint16_t((u + 0x7fff + ((u >> 16) & 1)) >> 16)};
}

template <class T> struct Round;
template <> struct Round<float> {
  static AITER_SHARED float from(float f) { return f; }
};
template <> struct Round<half_t> {
  static AITER_SHARED half_t from(float f) { return to_half(f); }
};
template <> struct Round<bf16_t> {
  static AITER_SHARED bf16_t from(float f) { return to_bf16(f); }
};

// round_to<T>(f) is f in type T.
template <class T> AITER_SHARED T round_to(float f) { return Round<T>::from(f); }

// PackedPair converts two 16-bit elements in a word, the first in the low half. Of NaNs, pack takes only those whose
// low 16 bits are 0: arithmetic makes such NaNs of 16-bit operands and of results of canonical_nan.
template <class T> struct PackedPair;

template <> struct PackedPair<bf16_t> {
  static AITER_DEVICE void unpack(uint32_t word, float* v) {
    v[0] = bits_to_float(word << 16);
    v[1] = bits_to_float(word & 0xffff0000u);
  }
  static AITER_DEVICE uint32_t pack(float a, float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(b), "f"(a));
    return word;
#elif defined(__gfx950__)
    typedef __bf16 native __attribute__((ext_vector_type(2)));
    typedef float floats __attribute__((ext_vector_type(2)));
    const native n = __builtin_convertvector((floats{a, b}), native);
    uint32_t word;
    __builtin_memcpy(&word, &n, sizeof word);
    return word;
#else
    const uint32_t u = float_to_bits(a), w = float_to_bits(b);
    const uint32_t low = u + 0x7fff + ((u >> 16) & 1), high = w + 0x7fff + ((w >> 16) & 1);
#if defined(__HIP_DEVICE_COMPILE__)
    return __builtin_amdgcn_perm(high, low, 0x07060302);
#else
    return low >> 16 | (high & 0xffff0000u);
#endif
#endif
  }
};

template <> struct PackedPair<half_t> {
  static AITER_DEVICE void unpack(uint32_t word, float* v) {
    v[0] = to_float(half_t{uint16_t(word)});
    v[1] = to_float(half_t{uint16_t(word >> 16)});
  }
  static AITER_DEVICE uint32_t pack(float a, float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint32_t word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(b), "f"(a));
    return word;
#else
    return uint32_t(to_half(a).bits) | uint32_t(to_half(b).bits) << 16;
#endif
  }
};

// canonical_nan returns f, and for any NaN the one whose low 16 bits are 0.
AITER_DEVICE float canonical_nan(float f) { return f != f ? bits_to_float(0x7fc00000) : f; }

// load and store access element i of memory whose type is known at run time. They belong outside inner loops.
AITER_SHARED float load(const void* p, DType t, int64_t i) {
  switch (t) {
    case DType::F16: return to_float(static_cast<const half_t*>(p)[i]);
    case DType::BF16: return to_float(static_cast<const bf16_t*>(p)[i]);
    default: return static_cast<const float*>(p)[i];
  }
}

AITER_SHARED void store(void* p, DType t, int64_t i, float f) {
  switch (t) {
    case DType::F16: static_cast<half_t*>(p)[i] = to_half(f); break;
    case DType::BF16: static_cast<bf16_t*>(p)[i] = to_bf16(f); break;
    default: static_cast<float*>(p)[i] = f;
  }
}

}  // namespace aiter
