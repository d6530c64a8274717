// The Fourier transform of a power of two of complex doubles at one level (included once a level, behind cpu_vector.h), and the
// product of two transforms, transformed back, which is a cyclic convolution.
//
// Spectra are in the order in which the steps leave them, which serves products of spectra: no step reorders. Each step splits a
// transform into two or four of every second or fourth frequency (decimation in frequency), and the way back joins these.
// Transforms of kLeaf values are done in registers: by columns, transposed, and by columns again.
// Twiddle factors are computed once in a process for each size.

namespace aiter::AITER_LEVEL::fft {

constexpr int kHalf = kLanes / 2;         // doubles in a vector
constexpr int64_t kLeaf = kHalf * kHalf;  // values of the smallest transform
typedef double D __attribute__((vector_size(AITER_LANES * 4)));
typedef float S __attribute__((vector_size(AITER_LANES * 2)));  // as many floats

struct Complex {
  D re, im;
};

AITER_HOT Complex operator+(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
AITER_HOT Complex operator-(Complex a, Complex b) { return {a.re - b.re, a.im - b.im}; }
AITER_HOT Complex times(Complex a, Complex b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }
AITER_HOT Complex times_conjugate(Complex a, Complex b) { return {a.re * b.re + a.im * b.im, a.im * b.re - a.re * b.im}; }
AITER_HOT Complex times_i(Complex a) { return {-a.im, a.re}; }
AITER_HOT Complex over_i(Complex a) { return {a.im, -a.re}; }

// rotated is a times e^(-2 pi i e/8), rotated_back a times e^(2 pi i e/8), 0 <= e < 4.
template <int e> AITER_HOT Complex rotated(Complex a) {
  constexpr double c = 0.70710678118654752440;
  if constexpr (e == 0) return a;
  else if constexpr (e == 2) return over_i(a);
  else if constexpr (e == 1) return {(a.re + a.im) * c, (a.im - a.re) * c};
  else return {(a.im - a.re) * c, (a.re + a.im) * -c};
}
template <int e> AITER_HOT Complex rotated_back(Complex a) {
  constexpr double c = 0.70710678118654752440;
  if constexpr (e == 0) return a;
  else if constexpr (e == 2) return times_i(a);
  else if constexpr (e == 1) return {(a.re - a.im) * c, (a.im + a.re) * c};
  else return {(a.re + a.im) * -c, (a.re - a.im) * c};
}

// columns is the transform over n vectors, which leaves frequency k at the place of k's reversed bits; columns_back is the way
// back. They are recursive templates, so that all vectors are in registers.
template <int n, int j = 0> AITER_HOT void columns_step(Complex* v) {
  if constexpr (j < n / 2) {
    const Complex a = v[j], b = v[j + n / 2];
    v[j] = a + b, v[j + n / 2] = rotated<j * 8 / n>(a - b);
    columns_step<n, j + 1>(v);
  }
}
template <int n> AITER_HOT void columns(Complex* v) {
  if constexpr (n > 1) columns_step<n>(v), columns<n / 2>(v), columns<n / 2>(v + n / 2);
}
template <int n, int j = 0> AITER_HOT void columns_back_step(Complex* v) {
  if constexpr (j < n / 2) {
    const Complex a = v[j], b = rotated_back<j * 8 / n>(v[j + n / 2]);
    v[j] = a + b, v[j + n / 2] = a - b;
    columns_back_step<n, j + 1>(v);
  }
}
template <int n> AITER_HOT void columns_back(Complex* v) {
  if constexpr (n > 1) columns_back<n / 2>(v), columns_back<n / 2>(v + n / 2), columns_back_step<n>(v);
}

// Root is a root of unity.
struct Root {
  double re, im;
  Root operator*(Root b) const { return {re * b.re - im * b.im, re * b.im + im * b.re}; }
};

// square_root returns the square root of v from 1/2 to 1, by Newton's method: the C++ function may call libm, which is not linked.
inline double square_root(double v) {
  double r = (1 + v) / 2;
  for (int i = 0; i < 5; i++) r = (r + v / r) / 2;
  return r;
}

// Roots are the roots e^(-2 pi i/2^b), by halving the angle.
struct Roots {
  Root of[64];

  Roots() {
    of[0] = {1, 0}, of[1] = {-1, 0}, of[2] = {0, -1};
    for (int b = 3; b < 64; b++) {
      const double c = square_root((1 + of[b - 1].re) / 2);
      of[b] = {c, of[b - 1].im / (2 * c)};
    }
  }
  // power is e^(-2 pi i k/2^b), a product of a root for each bit of k.
  Root power(int b, int64_t k) const {
    Root r = {1, 0};
    for (; k; k >>= 1, b--)
      if (k & 1) r = r * of[b < 0 ? 0 : b];
    return r;
  }
};

constexpr int logarithm(int64_t n) { return 63 - __builtin_clzll(n); }
constexpr bool halves(int64_t n) { return logarithm(n / kLeaf) % 2 != 0; }  // the step of n values splits it in two, not in four

// twiddles are the factors of a step of n values: for each vector of a quarter those of frequencies 1, 2 and 3; for each vector
// of a half that of 1; of a leaf for each column. By the logarithm of n; atomic.
inline Complex* twiddles[64];

inline Complex* twiddles_of(int64_t n) { return __atomic_load_n(&twiddles[logarithm(n)], __ATOMIC_ACQUIRE); }

AITER_ONCE Complex* make_twiddles(int64_t n) {
  const int64_t kinds = n == kLeaf || halves(n) ? 1 : 3, vectors = n == kLeaf ? kHalf : n / (kinds + 1) / kHalf;
  Complex* all = static_cast<Complex*>(aligned_alloc(64, (vectors * kinds * int64_t(sizeof(Complex)) + 63) / 64 * 64));
  const Roots roots;
  for (int64_t i = 0; all && i < vectors * kinds; i++) {
    int64_t column = 0;
    for (int bit = 1; bit < kHalf; bit *= 2) column = 2 * column + (i & bit ? 1 : 0);
    for (int l = 0; l < kHalf; l++) {
      const Root r = roots.power(logarithm(n), n == kLeaf ? column * l : (i / kinds * kHalf + l) * (i % kinds + 1));
      all[i].re[l] = r.re, all[i].im[l] = r.im;
    }
  }
  return all;
}

// prepare makes the factors for transforms of n = 2^b values, kLeaf or more. It returns false if memory runs out.
inline bool prepare(int64_t n) {
  for (;; n = halves(n) ? n / 2 : n / 4) {
    Complex *made = twiddles_of(n), *none = nullptr;
    if (!made && !(made = make_twiddles(n))) return false;
    if (made != twiddles_of(n) &&
        !__atomic_compare_exchange_n(&twiddles[logarithm(n)], &none, made, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
      free(made);
    }
    if (n == kLeaf) return true;
  }
}

// The steps: q vectors are half or a quarter of the values.
AITER_ONCE void split2(Complex* x, int64_t q, const Complex* w) {
  for (int64_t j = 0; j < q; j++) {
    const Complex a = x[j], b = x[j + q];
    x[j] = a + b, x[j + q] = times(a - b, w[j]);
  }
}
AITER_ONCE void join2(Complex* x, int64_t q, const Complex* w) {
  for (int64_t j = 0; j < q; j++) {
    const Complex a = x[j], b = times_conjugate(x[j + q], w[j]);
    x[j] = a + b, x[j + q] = a - b;
  }
}
AITER_ONCE void split4(Complex* x, int64_t q, const Complex* w) {
  for (int64_t j = 0; j < q; j++, w += 3) {
    const Complex a = x[j] + x[j + 2 * q], b = x[j + q] + x[j + 3 * q];
    const Complex c = x[j] - x[j + 2 * q], d = over_i(x[j + q] - x[j + 3 * q]);
    x[j] = a + b, x[j + q] = times(c + d, w[0]), x[j + 2 * q] = times(a - b, w[1]), x[j + 3 * q] = times(c - d, w[2]);
  }
}
AITER_ONCE void join4(Complex* x, int64_t q, const Complex* w) {
  for (int64_t j = 0; j < q; j++, w += 3) {
    const Complex e = times_conjugate(x[j + q], w[0]), f = times_conjugate(x[j + 2 * q], w[1]), g = times_conjugate(x[j + 3 * q], w[2]);
    const Complex a = x[j] + f, b = e + g, c = x[j] - f, d = times_i(e - g);
    x[j] = a + b, x[j + q] = c + d, x[j + 2 * q] = a - b, x[j + 3 * q] = c - d;
  }
}

// Use is the use of a spectrum.
enum class Use {
  kKeep,      // it replaces the values
  kBack,      // the values are one, which is transformed back
  kConvolve,  // it is multiplied by another one and transformed back
};

template <int i = 1> AITER_HOT void twiddle(Complex* v, const Complex* w) {
  if constexpr (i < kHalf) v[i] = times(v[i], w[i]), twiddle<i + 1>(v, w);
}
template <int i = 1> AITER_HOT void twiddle_back(Complex* v, const Complex* w) {
  if constexpr (i < kHalf) v[i] = times_conjugate(v[i], w[i]), twiddle_back<i + 1>(v, w);
}
template <int i = 0> AITER_HOT void copy(Complex* to, const Complex* from) {
  if constexpr (i < kHalf) to[i] = from[i], copy<i + 1>(to, from);
}
template <int i = 0> AITER_HOT void multiply(Complex* v, const Complex* h) {
  if constexpr (i < kHalf) v[i] = times(v[i], h[i]), multiply<i + 1>(v, h);
}

template <int i = 0> AITER_HOT void split(const Complex* v, D* re, D* im) {
  if constexpr (i < kHalf) re[i] = v[i].re, im[i] = v[i].im, split<i + 1>(v, re, im);
}
template <int i = 0> AITER_HOT void unite(const D* re, const D* im, Complex* v) {
  if constexpr (i < kHalf) v[i] = {re[i], im[i]}, unite<i + 1>(re, im, v);
}

// transpose_complex exchanges lanes and vectors.
AITER_HOT void transpose_complex(Complex* v) {
  D re[kHalf], im[kHalf];
  split(v, re, im), transpose<kHalf>(re), transpose<kHalf>(im), unite(re, im, v);
}

template <Use use> AITER_HOT void leaf(Complex* x, const Complex* h, const Complex* w) {
  Complex v[kHalf];
  copy(v, x);
  if (use != Use::kBack) columns<kHalf>(v), twiddle(v, w), transpose_complex(v), columns<kHalf>(v);
  if (use == Use::kConvolve) multiply(v, h);
  if (use != Use::kKeep) columns_back<kHalf>(v), transpose_complex(v), twiddle_back(v, w), columns_back<kHalf>(v);
  copy(x, v);
}

// transform transforms n values, for which prepare was called. It goes down one branch after another, so that most steps find
// their values in the L1 cache. h is for kConvolve: a spectrum.
template <Use use> AITER_ONCE void transform(Complex* x, int64_t n, const Complex* h) {
  if (n == kLeaf) return leaf<use>(x, h, twiddles_of(kLeaf));
  const int64_t parts = halves(n) ? 2 : 4, q = n / parts / kHalf;
  if (use != Use::kBack) parts == 2 ? split2(x, q, twiddles_of(n)) : split4(x, q, twiddles_of(n));
  for (int64_t i = 0; i < parts; i++) transform<use>(x + i * q, n / parts, h + i * q);
  if (use != Use::kKeep) parts == 2 ? join2(x, q, twiddles_of(n)) : join4(x, q, twiddles_of(n));
}

}  // namespace aiter::AITER_LEVEL::fft
