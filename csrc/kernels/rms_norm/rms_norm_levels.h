// rms_norm of rows with adjacent elements, at one level (aiter/cpu_each.h includes this file once a level).

namespace aiter::AITER_LEVEL::rms_norm {

template <class T> float square_sum(const void* row, int64_t n) {
  const T* x = static_cast<const T*>(row);
  F sums[4] = {};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    for (int k = 0; k < 4; k++) {
      const F v = load(x + i + k * kLanes);
      sums[k] = v * v + sums[k];
    }
  }
  for (; i < n; i += kLanes) {
    const F v = i + kLanes <= n ? load(x + i) : load_some(x + i, n - i);
    sums[0] = v * v + sums[0];
  }
  return sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

template <class T, class W> void scale(const void* row, float factor, const void* weight, void* to, int64_t n, bool streams) {
  const T* x = static_cast<const T*>(row);
  const W* w = static_cast<const W*>(weight);
  T* out = static_cast<T*>(to);
  const bool direct = streams && streamable(out);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const F y = load(x + i) * factor * load(w + i);
    if (direct) stream(out + i, y);
    else store(out + i, y);
  }
  if (i < n) store_some(out + i, load_some(x + i, n - i) * factor * load_some(w + i, n - i), n - i);
}

template <class T> aiter::rms_norm::Kernels kernels_of(DType weight) {
  return {square_sum<T>, weight == kDType<T> ? scale<T, T> : scale<T, float>};
}

inline aiter::rms_norm::Kernels kernels(DType dtype, DType weight) {
  return dtype == DType::F32 ? kernels_of<float>(weight) : dtype == DType::F16 ? kernels_of<half_t>(weight) : kernels_of<bf16_t>(weight);
}

}  // namespace aiter::AITER_LEVEL::rms_norm
