// Tensors of adjacent channels for the backward kernel of wide filters, whose rows have adjacent positions: a workspace holds the rows
// of some channels at a time, a chunk. The kernel's results go to the same place as x, and from there to dx.
#pragma once

#include <aiter/gpu/transpose.h>
#include <aiter/workspace.h>

#include "../common/problem.h"

namespace aiter::conv1d::bwd {

template <class T> class TransposedRows {
 public:
  static constexpr int kSize = sizeof(T), kVec = kVecElems<T>;

  explicit TransposedRows(const Backward& p)
      : p_(p), pitch_((p.seqlen + kVec - 1) / kVec * kVec), x_(transposes(p.x)), dout_(transposes(p.dout)), dx_(transposes(p.dx)) {}

  // x, dout and dx report whether that tensor is transposed: neighbouring channels are nearer than neighbouring positions.
  bool x() const { return x_; }
  bool dout() const { return dout_; }
  bool dx() const { return dx_; }
  bool any() const { return x_ || dout_ || dx_; }

  // channel_bytes returns the bytes of a channel's rows of one tensor.
  int64_t channel_bytes() const { return p_.batch * pitch_ * kSize; }

  // allocate takes memory for chunks of `channels` channels. in_place: each row of dx may take the place of that of x, as no warp reads x
  // of positions whose dx another one writes.
  Status allocate(int64_t channels, bool in_place, int device, const OpStream& stream) {
    channels_ = channels, in_place_ = in_place && x_;
    const int64_t tensors = x_ + dout_ + (dx_ && !in_place_);
    return memory_.take(size_t(tensors * channels * channel_bytes()), device, stream);
  }

  // take transposes x and dout of channels d to d+n-1, and sets the tensors of p to the chunk's rows: those of its channels alone exist.
  Status take(int64_t d, int64_t n, const OpStream& stream, Backward* p) const {
    TransposeParams a = sizes(p_.seqlen, n, pitch_);
    int count = 0, slot = 0;
    const auto take = [&](const Array3& t, Array3* rows) {
      *rows = chunk(slot++, d);
      a.matrix[count++] = {t.row<T>(0, d), rows->row<T>(0, d), t.batch, t.last, t.dim, rows->batch, 1, rows->dim, false, false};
    };
    if (x_) take(p_.x, &p->x);
    if (dout_) take(p_.dout, &p->dout);
    if (dx_) p->dx = in_place_ ? p->x : chunk(slot, d);
    return count ? launch_transpose<kSize>(a, count, stream) : Status();
  }
  // give transposes dx of the chunk, which is in p, back.
  Status give(int64_t d, int64_t n, const OpStream& stream, const Backward& p) const {
    if (!dx_) return Status();
    TransposeParams a = sizes(n, p_.seqlen, n);
    a.along_rows = true;
    a.matrix[0] = {p.dx.row<T>(0, d), p_.dx.row<T>(0, d), p.dx.batch, p.dx.dim, 1, p_.dx.batch, p_.dx.dim, p_.dx.last, false, false};
    return launch_transpose<kSize>(a, 1, stream);
  }

 private:
  static int64_t distance(int64_t stride) { return stride < 0 ? -stride : stride; }
  bool transposes(const Array3& t) const { return p_.dim > 1 && p_.seqlen > 1 && distance(t.dim) < distance(t.last); }

  // chunk returns tensor `slot` of the workspace, whose first channel is d.
  Array3 chunk(int slot, int64_t d) const {
    const int64_t bytes = slot * channels_ * channel_bytes() - d * pitch_ * kSize;
    return {reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(memory_.data()) + uintptr_t(bytes)), channels_ * pitch_, pitch_, 1};
  }
  TransposeParams sizes(int64_t rows, int64_t columns, int64_t padded) const {
    TransposeParams a{};
    a.rows = rows, a.columns = columns, a.padded = padded, a.batch = p_.batch;
    return a;
  }

  const Backward& p_;
  int64_t pitch_, channels_ = 0;
  bool x_, dout_, dx_, in_place_ = false;
  Workspace memory_;
};

}  // namespace aiter::conv1d::bwd
