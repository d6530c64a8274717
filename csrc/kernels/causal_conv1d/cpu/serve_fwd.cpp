// causal_conv1d_serve_fwd and causal_conv1d_fwd_split_qkv on the CPU.
//
// Tiling: cpu/state.h has that of the positions that do not depend on states. Of the others, and of states, a part is 256 channels of one
// sequence.
// Bytes: x and out once, the first positions of a sequence twice; states once. out = x: x is copied first.
// Reduction: over the width, in fp32.

#include <aiter/ffi.h>

#include "exponential.h"
#include "groups.h"
#include "state.h"
#include "../common/prefill_check.h"

namespace aiter::conv1d::serve {

// Memory is memory of one call.
class Memory {
 public:
  Memory() = default;
  Memory(const Memory&) = delete;
  ~Memory() { free(data_); }

  // take allocates bytes.
  Status take(int64_t bytes) {
    data_ = static_cast<char*>(malloc(bytes > 0 ? bytes : 1));
    return data_ ? Status() : runtime_error("out of memory for %lld bytes", static_cast<long long>(bytes));
  }
  char* data() const { return data_; }

 private:
  char* data_ = nullptr;
};

// copy_x makes p read a copy of x.
static Status copy_x(Prefill* p, Memory* memory) {
  const int64_t size = dtype_size(p->element), outer = p->channel_last ? p->seqlen : p->dim, inner = p->channel_last ? p->dim : p->seqlen;
  const int64_t row = (p->channel_last ? p->x.last : p->x.dim) * size, step = (p->channel_last ? p->x.dim : p->x.last) * size;
  AITER_TRY(memory->take(outer * inner * size));
  const char* from = static_cast<const char*>(p->x.data);
  char* to = memory->data();
  for (int64_t i = 0; i < outer; i++, to += inner * size) {
    if (step == size) memcpy(to, from + i * row, inner * size);
    else for (int64_t j = 0; j < inner; j++) memcpy(to + j * size, from + i * row + j * step, size);
  }
  p->x = {memory->data(), 0, p->channel_last ? 1 : inner, p->channel_last ? inner : 1};
  return Status();
}

static Status run_rows(const Prefill& p, int parts) {
  Memory memory;
  AITER_TRY(memory.take((2 * p.batch + 1) * int64_t(sizeof(int32_t))));
  int32_t *starts = reinterpret_cast<int32_t*>(memory.data()), *slots = starts + p.batch + 1;
  for (int64_t i = 0; i <= p.batch; i++) starts[i] = row_start(p, i);
  for (int64_t b = 0; b < p.batch; b++) slots[b] = row_slot(p, b);
  PrefillRows rows(p);
  rows.take(starts, slots);
  rows.has_state = false;  // states are not those of cpu/state.h
  for (int i = 0; i < parts; i++) AITER_TRY(state::run(rows.part(p, parts == 1 ? 0 : i), p.element));
  return Status();
}

template <class T> static void run_heads(const Prefill& p) {
  constexpr int64_t kPartChannels = 256;
  const int64_t parts = (p.dim + kPartChannels - 1) / kPartChannels;
  const auto act = [&](float y) { return p.silu ? y / (1.0f + exponential(-y)) : y; };
  cpu::parallel(p.batch * parts, [&](int64_t part) {
    const int64_t b = part / parts, first = part % parts * kPartChannels;
    const ServedSequence r = p.sequence(b);
    if (!r.live) return;
    for (int64_t d = first; d < first + kPartChannels && d < p.dim; d++) {
      if (p.has_initial(b)) run_head<T>(p, r, b, d, act);
      p.store_state<T>(r, b, d);
    }
  }, tuned("threads", cpu::kMostThreads));
}

static Status run(const PrefillArguments& a, Prefill p, int parts, bool in_place, const char*) {
  AITER_TRY(cpu::check_settings());
  ChannelFilters filters;
  Memory copy;
  AITER_TRY(filters.expand(a.weight, &p));
  if (in_place) AITER_TRY(copy_x(&p, &copy));
  AITER_TRY(run_rows(p, parts));
  if (p.element == DType::F32) run_heads<float>(p);
  else if (p.element == DType::F16) run_heads<half_t>(p);
  else run_heads<bf16_t>(p);
  return Status();
}

}  // namespace aiter::conv1d::serve

#include "../common/prefill_exports.h"
