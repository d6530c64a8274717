// Vectors of AITER_LANES floats at one level (cpu_each.h includes this file once a level), with the arithmetic of the compilers'
// vector types. Other instructions are assembly: the headers of intrinsics take half a second to compile, and differ. A
// product and a sum in one expression become one FMA where the level has it.

#define AITER_HOT inline __attribute__((always_inline))
#define AITER_ONCE inline __attribute__((noinline))  // long, and called from several places

namespace aiter::AITER_LEVEL {

constexpr int kLanes = AITER_LANES;
typedef float F __attribute__((vector_size(AITER_LANES * 4)));
typedef int32_t I __attribute__((vector_size(AITER_LANES * 4)));
typedef uint32_t U __attribute__((vector_size(AITER_LANES * 4)));
typedef uint16_t H __attribute__((vector_size(AITER_LANES * 2)));  // bits of 16-bit floats

AITER_HOT F set(float f) { return f - F{}; }

// zeros is not a constant for compilers, which would clear several vectors with an instruction that starts slowly.
AITER_HOT F zeros() {
  F v = {};
#if AITER_ISA >= 2
  asm("" : "+v"(v));
#endif
  return v;
}

AITER_HOT U bits(F v) { return reinterpret_cast<U>(v); }
AITER_HOT F floats(U v) { return reinterpret_cast<F>(v); }

template <class V, class T> AITER_HOT V take(const T* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
template <class T, class V> AITER_HOT void give(T* p, V v) { __builtin_memcpy(p, &v, sizeof v); }

// shuffle takes lane i from lane at(i) of a, or of b where that is kLanes and more.
// at is a constexpr function.
template <class V, class At, int... i> AITER_HOT V shuffle(V a, V b, At at, Lanes<i...>) {
#if defined(__clang__)
  return __builtin_shufflevector(a, b, at(i)...);
#else
  typedef decltype(a < a) Mask;
  return __builtin_shuffle(a, b, Mask{at(i)...});
#endif
}
template <class V, class At> AITER_HOT V shuffle(V a, V b, At at) { return shuffle(a, b, at, MakeLanes<kLanes>()); }

// transpose exchanges lanes and vectors: n vectors of n lanes, blocks of h by h for h = 1, 2, 4... A recursive template, so that all
// of them are in registers.
template <int n, int h, class V> AITER_HOT void exchange(V& a, V& b) {
  const V low = shuffle(a, b, [](int m) constexpr { return m & h ? n + m - h : m; }, MakeLanes<n>());
  b = shuffle(a, b, [](int m) constexpr { return m & h ? n + m : m + h; }, MakeLanes<n>());
  a = low;
}
template <int n, int h = 1, int i = 0, class V> AITER_HOT void transpose(V* v) {
  if constexpr (h < n) {
    if constexpr (!(i & h)) exchange<n, h>(v[i], v[i + h]);
    if constexpr (i + 1 < n) transpose<n, h, i + 1>(v);
    else transpose<n, 2 * h, 0>(v);
  }
}

// at_most and at_least keep a NaN in v.
AITER_HOT F at_most(F v, F limit) {
#if AITER_ISA >= 2
  F r;
  asm("vminps %1, %2, %0" : "=v"(r) : "v"(v), "v"(limit));
  return r;
#else
  return v > limit ? limit : v;
#endif
}
AITER_HOT F at_least(F v, F limit) {
#if AITER_ISA >= 2
  F r;
  asm("vmaxps %1, %2, %0" : "=v"(r) : "v"(v), "v"(limit));
  return r;
#else
  return v < limit ? limit : v;
#endif
}

AITER_HOT U widen(H h) {
#if AITER_ISA >= 2
  U u;
  asm("vpmovzxwd %1, %0" : "=v"(u) : "v"(h));
  return u;
#else
  return __builtin_convertvector(h, U);
#endif
}

// narrow takes values below 2^16.
AITER_HOT H narrow(U u) {
#if AITER_ISA == 3
  H h;
  asm("vpmovdw %1, %0" : "=v"(h) : "v"(u));
  return h;
#elif AITER_ISA == 2
  H h;
  asm("vextracti128 $1, %1, %0\n\tvpackusdw %0, %x1, %0" : "=&x"(h) : "x"(u));
  return h;
#else
  return __builtin_convertvector(u, H);
#endif
}

// The conversions are those of dtype.h, bit for bit, except for the bits of NaN.
AITER_HOT F from_half(H h) {
#if AITER_ISA >= 2
  F f;
  asm("vcvtph2ps %1, %0" : "=v"(f) : "v"(h));
  return f;
#elif AITER_ISA == 1
  F f;
  asm("fcvtl %0.4s, %1.4h" : "=w"(f) : "w"(h));
  return f;
#else
  const U u = widen(h), sign = (u & 0x8000) << 16, rest = u & 0x7fff;
  const F small = floats(rest | 0x3f000000) - 0.5f;
  const U other = rest < 0x7c00 ? (rest << 13) + 0x38000000 : (rest << 13) | 0x7f800000;
  return floats((rest < 0x0400 ? bits(small) : other) | sign);
#endif
}

AITER_HOT H to_half(F f) {
#if AITER_ISA >= 2
  H h;
  asm("vcvtps2ph $0, %1, %0" : "=v"(h) : "v"(f));
  return h;
#elif AITER_ISA == 1
  H h;
  asm("fcvtn %0.4h, %1.4s" : "=w"(h) : "w"(f));
  return h;
#else
  const U u = bits(f), sign = (u >> 16) & 0x8000, a = u & 0x7fffffff;
  const U small = bits(floats(a) + 0.5f) - 0x3f000000, rest = (a - 0x38000000 + 0xfff + ((a >> 13) & 1)) >> 13;
  const U large = a > 0x7f800000 ? U{} + 0x7e00 : U{} + 0x7c00;
  return narrow((a >= 0x477ff000 ? large : a < 0x38800000 ? small : rest) | sign);
#endif
}

AITER_HOT H to_bf16(F f) {
  const U u = bits(f), rounded = u + 0x7fff + ((u >> 16) & 1);
  return narrow((rounded | reinterpret_cast<U>(f != f)) >> 16);
}

// A word holds two adjacent values of bfloat16.
AITER_HOT F even_bf16(U words) { return floats(words << 16); }
AITER_HOT F odd_bf16(U words) { return floats(words & 0xffff0000); }
AITER_HOT U words(H even, H odd) { return widen(even) | widen(odd) << 16; }

#if AITER_ISA == 3
// native_bf16_t is bf16_t, rounded by the processor where it can (cpu::kAvx512Bf16). Its instruction flushes subnormals: a
// vector with a subnormal is rounded with integers.
struct native_bf16_t : bf16_t {};
AITER_HOT H rounded(F v, native_bf16_t) {
  H h;
  uint16_t subnormal;  // a bit a lane
  asm("vfpclassps $0x20, %1, %0" : "=k"(subnormal) : "v"(v));
  if (__builtin_expect(subnormal != 0, 0)) return to_bf16(v);
  asm("vcvtneps2bf16 %1, %0" : "=v"(h) : "v"(v));
  return h;
}
#endif

// Elements are the bits of kLanes elements.
AITER_HOT F rounded(F v, float) { return v; }
AITER_HOT H rounded(F v, half_t) { return to_half(v); }
AITER_HOT H rounded(F v, bf16_t) { return to_bf16(v); }
AITER_HOT F widened(F v, float) { return v; }
AITER_HOT F widened(H h, half_t) { return from_half(h); }
AITER_HOT F widened(H h, bf16_t) { return floats(widen(h) << 16); }
template <class T> using Elements = decltype(rounded(F(), T()));

// load reads kLanes elements as floats, store rounds kLanes floats to elements.
template <class T> AITER_HOT F load(const T* p) { return widened(take<Elements<T>>(p), T()); }
template <class T> AITER_HOT void store(T* p, F v) { give(p, rounded(v, T())); }

// stream stores past the caches; p is aligned to the stored vector, and cpu::drain ends a series of such stores.
template <class T> AITER_HOT void stream(T* p, F v) {
  const auto r = rounded(v, T());
#if AITER_ISA >= 2
  typedef decltype(rounded(v, T())) V;
  asm volatile("vmovntps %1, %0" : "=m"(*reinterpret_cast<V*>(p)) : "v"(r));
#else
  give(p, r);
#endif
}
template <class T> AITER_HOT bool streamable(const T* p) {
  return AITER_ISA >= 2 && reinterpret_cast<uintptr_t>(p) % (kLanes * sizeof(T)) == 0;
}

// load_some reads the first n < kLanes elements, the others are 0.
template <class T> AITER_HOT F load_some(const T* p, int64_t n) {
  T some[kLanes] = {};
  __builtin_memcpy(some, p, n * sizeof(T));
  return load(some);
}
template <class T> AITER_HOT void store_some(T* p, F v, int64_t n) {
  T some[kLanes];
  store(some, v);
  __builtin_memcpy(p, some, n * sizeof(T));
}

// sum adds the lanes, always in the same order.
AITER_HOT float sum(F v) {
  float lane[kLanes];
  give(lane, v);
  for (int half = kLanes / 2; half; half /= 2)
    for (int i = 0; i < half; i++) lane[i] += lane[i + half];
  return lane[0];
}

// These functions take kCount vectors step by step: one vector alone is a long chain of dependent instructions.

// kShift is added to the exponent of e^-p where the exponent is added as an integer, which would
// not overflow to infinity: e^-p / 4 is a float for every bounded p, and one_plus_exp multiplies
// by 4.
#if AITER_ISA == 3
constexpr float kShift = 0.0f;
#else
constexpr float kShift = -2.0f;
#endif
constexpr float kRounds = 12582912.0f + kShift;  // 1.5*2^23: a sum with it is rounded to an integer

// bounded keeps p where the polynomials hold. Outside, 1 + e^-p is 1 or infinity.
AITER_HOT F bounded(F p) { return at_most(at_least(p, set(-89.0f)), set(80.0f)); }

// exp_exact is e^-p * 2^kShift within 2 ulp, p bounded.
// e^-p = 2^n e^-r with |r| <= ln2/2, e^-r a polynomial.
template <int kCount> AITER_HOT void exp_exact(const F* p, F* e) {
  F shifted[kCount], r[kCount];
  for (int i = 0; i < kCount; i++) r[i] = bounded(p[i]);
  for (int i = 0; i < kCount; i++) shifted[i] = r[i] * -1.44269504f + kRounds;
  for (int i = 0; i < kCount; i++) {
    const F n = shifted[i] - kRounds;
    r[i] = (r[i] + n * 0.693359375f) + n * -2.12194440e-4f;
  }
  for (int i = 0; i < kCount; i++) e[i] = r[i] * -8.28982703e-3f + 4.18982506e-2f;
  const float rest[] = {-1.66676477e-1f, 4.99991477e-1f, -9.99999702e-1f, 1.0f};
  for (float c : rest)
    for (int i = 0; i < kCount; i++) e[i] = e[i] * r[i] + c;
  for (int i = 0; i < kCount; i++) {
#if AITER_ISA == 3
    const F n = shifted[i] - kRounds;
    asm("vscalefps %1, %0, %0" : "+v"(e[i]) : "v"(n));
#else
    e[i] = floats(bits(e[i]) + (bits(shifted[i]) << 23));  // the low bits of kRounds are kShift
#endif
  }
}

// exp_brief is e^-p * 2^kShift, with a relative error of 3e-6 for kTerms = 5 (for results that are rounded to float16) and of 8e-5 for
// kTerms = 4 (bfloat16). e^-p = 2^t = 2^n 2^r, 2^r a polynomial. vreduceps and vscalefps take every t.
template <int kTerms, int kCount> AITER_HOT void exp_brief(const F* p, F* e) {
  static_assert(kTerms == 4 || kTerms == 5, "a polynomial that is listed");
  F t[kCount], r[kCount];
#if AITER_ISA == 3
  const float c5[] = {1.35341678e-2f, 5.20114601e-2f, 2.41442755e-1f, 6.93003833e-1f, 1.00000262f};  // 0 <= r <= 1
  const float c4[] = {7.80245215e-2f, 2.26067156e-1f, 6.95833564e-1f, 9.99925196e-1f};
  for (int i = 0; i < kCount; i++) t[i] = p[i] * -1.44269504f;
  for (int i = 0; i < kCount; i++) asm("vreduceps $9, %1, %0" : "=v"(r[i]) : "v"(t[i]));
#else
  const float c5[] = {9.57010221e-3f, 5.59178628e-2f, 2.40247443e-1f, 6.93121791e-1f, 9.99999285e-1f};  // |r| <= 1/2
  const float c4[] = {5.51716685e-2f, 2.42611125e-1f, 6.93260968e-1f, 9.99928057e-1f};
  for (int i = 0; i < kCount; i++) r[i] = bounded(p[i]);
  for (int i = 0; i < kCount; i++) t[i] = r[i] * -1.44269504f + kRounds;
  for (int i = 0; i < kCount; i++) r[i] = r[i] * -1.44269504f - (t[i] - kRounds);
#endif
  const float* c = kTerms == 5 ? c5 : c4;
  for (int i = 0; i < kCount; i++) e[i] = r[i] * c[0] + c[1];
  for (int j = 2; j < kTerms; j++)
    for (int i = 0; i < kCount; i++) e[i] = e[i] * r[i] + c[j];
  for (int i = 0; i < kCount; i++) {
#if AITER_ISA == 3
    asm("vscalefps %1, %0, %0" : "+v"(e[i]) : "v"(t[i]));  // rounds t down
#else
    e[i] = floats(bits(e[i]) + (bits(t[i]) << 23));
#endif
  }
}

// one_plus_exp is 1 + e^-p, and infinity where e^-p exceeds float (p below -88.7), for results that are rounded to dtype.
template <int kCount> AITER_HOT void one_plus_exp(const F* p, F* e, DType dtype) {
  if (dtype == DType::F32) exp_exact<kCount>(p, e);
  else if (dtype == DType::F16) exp_brief<5, kCount>(p, e);
  else exp_brief<4, kCount>(p, e);
#if AITER_ISA == 3
  for (int i = 0; i < kCount; i++) e[i] = e[i] + 1.0f;
#else
  for (int i = 0; i < kCount; i++) e[i] = e[i] * 4.0f + 1.0f;
#endif
}

#if AITER_ISA == 3
// estimate is 1/b with a relative error of 2^-14, 0 for an infinite b.
AITER_HOT F estimate(F b) {
  F r;
  asm("vrcp14ps %1, %0" : "=v"(r) : "v"(b));
  return r;
}
#endif

// over is a/b within 2 ulp, b at least 1. The division of AVX-512 takes 16 cycles on Intel's
// processors; the correction of its estimate 1/b is 0 for an infinite b, as the estimate is.
AITER_HOT F over(F a, F b) {
#if AITER_ISA == 3
  const F r = estimate(b);
  return a * ((1.0f - at_most(b, set(3.4e38f)) * r) * r + r);
#else
  return a / b;
#endif
}

// silu is for results that are rounded to dtype. That of infinities is PyTorch's: infinity for infinity, and NaN (-inf * 0) for
// minus infinity. Registers suffice for four vectors.
template <int kCount> AITER_HOT void silu(F* p, DType dtype) {
  if constexpr (kCount > 4) return silu<4>(p, dtype), silu<kCount - 4>(p + 4, dtype);
  F e[kCount];
  one_plus_exp<kCount>(p, e, dtype);
#if AITER_ISA == 3
  if (dtype == DType::BF16) {
    for (int i = 0; i < kCount; i++) p[i] = p[i] * estimate(e[i]);
    return;
  }
#endif
  for (int i = 0; i < kCount; i++) p[i] = over(p[i], e[i]);
}

}  // namespace aiter::AITER_LEVEL
