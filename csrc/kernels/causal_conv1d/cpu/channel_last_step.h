// One position of adjacent channels, each behind the three adjacent values of its slot (width 4). Included once a level
// (aiter/cpu_each.h).
//
// Tiling: a vector of channels by three vectors of the slot. Value j of channel l lies at 3l+j; these are in different lanes for
// all l, so that two blends and one permutation collect them. The slot moves by one element, and x goes to each third place.
// Bytes: x and out once, the slot twice.
// Reduction: over the width, in fp32, from the oldest value on.

namespace aiter::AITER_LEVEL::conv1d {

// place returns the place of lane m of value j in three vectors: j, j+3, j+6...
constexpr int place(int m, int j) {
  int i = 0;
  while ((i * kLanes + m) % 3 != j) i++;
  return i;
}

// each_third returns the elements j, j+3, j+6... of three vectors.
template <int j, class V> AITER_HOT V each_third(const V* v) {
  const V ab = shuffle(v[0], v[1], [](int m) constexpr { return m + (place(m, j) == 1 ? kLanes : 0); });
  const V abc = shuffle(ab, v[2], [](int m) constexpr { return m + (place(m, j) == 2 ? kLanes : 0); });
  return shuffle(abc, abc, [](int l) constexpr { return (3 * l + j) % kLanes; });
}

// moved returns part i of three of the slot behind the new x; next is its elements one place further.
template <int i, class V> AITER_HOT V moved(V next, V x) {
  return shuffle(next, x, [](int l) constexpr { return (i * kLanes + l) % 3 == 2 ? kLanes + (i * kLanes + l) / 3 : l; });
}

// step computes kCount vectors of channels from c on.
template <int kCount, class T>
AITER_HOT void step(int64_t c, T* slot, const T* x, T* out, const ChannelLastFilter& taps) {
  typedef Elements<T> V;
  F y[kCount];
  for (int i = 0; i < kCount; i++, slot += 3 * kLanes, c += kLanes) {
    const V v[] = {take<V>(slot), take<V>(slot + kLanes), take<V>(slot + 2 * kLanes)}, latest = take<V>(x + i * kLanes);
    const V next = shuffle(v[2], v[2], [](int l) constexpr { return l + 1 < kLanes ? l + 1 : l; });
    const F past[] = {widened(each_third<0>(v), T()), widened(each_third<1>(v), T()), widened(each_third<2>(v), T()), widened(latest, T())};
    y[i] = load(taps.bias + c);
    for (int k = 0; k < 4; k++) y[i] = past[k] * load(taps.weight + k * taps.channels + c) + y[i];
    const V a = moved<0>(take<V>(slot + 1), latest), b = moved<1>(take<V>(slot + kLanes + 1), latest);
    give(slot, a), give(slot + kLanes, b), give(slot + 2 * kLanes, moved<2>(next, latest));
  }
  if (taps.silu) silu<kCount>(y, kDType<T>);
  for (int i = 0; i < kCount; i++) store(out + i * kLanes, y[i]);
}

template <class T> void step(void* slots, const void* inputs, void* outputs, const ChannelLastFilter& taps) {
  T *slot = static_cast<T*>(slots), *out = static_cast<T*>(outputs);
  const T* x = static_cast<const T*>(inputs);
  const int64_t n = taps.channels;
  int64_t c = 0;
  for (; c + 2 * kLanes <= n; c += 2 * kLanes) step<2>(c, slot + 3 * c, x + c, out + c, taps);
  for (; c + kLanes <= n; c += kLanes) step<1>(c, slot + 3 * c, x + c, out + c, taps);
  if (c == n) return;
  T s[3 * kLanes] = {}, last[kLanes] = {};
  memcpy(s, slot + 3 * c, 3 * (n - c) * sizeof(T)), memcpy(last, x + c, (n - c) * sizeof(T));
  step<1>(c, s, last, last, taps);
  memcpy(slot + 3 * c, s, 3 * (n - c) * sizeof(T)), memcpy(out + c, last, (n - c) * sizeof(T));
}

}  // namespace aiter::AITER_LEVEL::conv1d
