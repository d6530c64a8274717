// module_custom_all_reduce of AIter: sums and gathers of tensors over the GPUs of one machine.
#include "check.h"

#include <mutex>
#include <unordered_map>

#include "kernels/custom_all_reduce.cu"

namespace aiter::upstream {

using Tensor = aiter_tensor_t;
using Group = ::aiter::CustomAllreduce;
using List = std::vector<int64_t>;

static_assert(sizeof(::aiter::Signal) <= 8192, "the size that opt_compiler.toml describes");

// AIter's functions take groups and buffers as addresses, and a wrong address ends the process. Known has those that exist.
struct Known {
  struct Buffer {
    int device;
    int64_t bytes;
  };
  struct Member {
    int device;
    int64_t meta, rank_data;  // buffers that the group uses
    int64_t bytes;            // of the temporary memory behind the signals
  };
  std::mutex mutex;
  std::unordered_map<int64_t, Buffer> buffers;
  std::unordered_map<int64_t, Member> groups;
};

static Known& known() {
  static Known all;
  return all;
}

static Known::Buffer buffer_of(const char* name, int64_t address, int64_t bytes) {
  std::lock_guard lock(known().mutex);
  const auto at = known().buffers.find(address);
  AITER_CHECK(at != known().buffers.end(), name, ": expected the address of a buffer of aiter_allocate_meta_buffer or _data_buffer, got ",
              address);
  AITER_CHECK(at->second.bytes >= bytes, name, ": expected a buffer of ", bytes, " bytes or more, got ", at->second.bytes);
  return at->second;
}

static Known::Member group_of(int64_t fa) {
  std::lock_guard lock(known().mutex);
  const auto at = known().groups.find(fa);
  AITER_CHECK(at != known().groups.end(), "_fa: expected a result of aiter_init_custom_ar, got ", fa);
  return at->second;
}

static Group& group(int64_t fa) { return *reinterpret_cast<Group*>(fa); }

// expect_addresses checks a list with one address or offset for each GPU.
static void expect_addresses(const char* name, const List& list, size_t count, bool zero) {
  AITER_CHECK(list.size() == count, name, ": expected ", count, " integers, one for each GPU, got ", list.size());
  for (int64_t v : list)
    AITER_CHECK(v > 0 || zero && v == 0, name, ": expected no ", zero ? "negative offset" : "null address", ", got ", v);
}

// AIter has a process for each GPU, which is its first device.
template <bool meta> static int64_t allocate(int64_t size) {
  constexpr int device = 0;
  AITER_CHECK(size > 0 && size <= int64_t(1) << 40, "size: expected 1 to 2^40 bytes, got ", size);
  const OnDevice on(device);
  ::aiter::setCurrentHIPStream(static_cast<hipStream_t>(TVMFFIEnvGetStream(kROCM, device)));
  const int64_t address = meta ? ::aiter::allocate_meta_buffer(size) : ::aiter::allocate_data_buffer(size);
  std::lock_guard lock(known().mutex);
  known().buffers[address] = {device, size};
  return address;
}

static void free_buffer(int64_t ptr) {
  const Known::Buffer b = buffer_of("ptr", ptr, 0);
  {
    std::lock_guard lock(known().mutex);
    for (const auto& [fa, m] : known().groups)
      AITER_CHECK(m.meta != ptr && m.rank_data != ptr, "ptr: expected a buffer that no group uses, got one of group ", fa);
    AITER_CHECK(known().buffers.erase(ptr) == 1, "ptr: expected a buffer, got the address of one that was freed");
  }
  const OnDevice on(b.device);
  ::aiter::free_meta_buffer(ptr);
}

static void ipc_handle(int64_t inp_ptr, int64_t out_handle_ptr) {
  const Known::Buffer b = buffer_of("inp_ptr", inp_ptr, 0);
  AITER_CHECK(out_handle_ptr > 0, "out_handle_ptr: expected the address of 64 bytes on the host, got ", out_handle_ptr);
  const OnDevice on(b.device);
  ::aiter::get_meta_buffer_ipc_handle(inp_ptr, out_handle_ptr);
}

static int64_t init(int64_t meta_ptr, int64_t rank_data_ptr, int64_t rank_data_sz, const List& handles, const List& offsets, int64_t rank,
                    bool fully_connected) {
  const size_t world = offsets.size();
  AITER_CHECK(world == 2 || world == 4 || world == 6 || world == 8, "offsets: expected 2, 4, 6 or 8 GPUs, got ", world);
  expect_addresses("offsets", offsets, world, true), expect_addresses("ipc_handle_ptrs", handles, world, false);
  AITER_CHECK(rank >= 0 && rank < int64_t(world), "rank: expected 0 to ", world - 1, ", got ", rank);
  // Without a full connection AIter launches nothing for more than 2 GPUs.
  AITER_CHECK(fully_connected || world == 2, "fully_connected: expected true for more than 2 GPUs");
  AITER_CHECK(rank_data_sz >= int64_t(sizeof(RankData)), "rank_data_sz: expected ", sizeof(RankData), " bytes or more, got ", rank_data_sz);
  const Known::Buffer meta = buffer_of("meta_ptr", meta_ptr, sizeof(Signal));
  const Known::Buffer data = buffer_of("rank_data_ptr", rank_data_ptr, rank_data_sz);
  AITER_CHECK(meta.device == data.device, "meta_ptr and rank_data_ptr: expected buffers of one device, got ", meta.device, " and ",
              data.device);
  const OnDevice on(meta.device);
  const int64_t fa = ::aiter::init_custom_ar(meta_ptr, rank_data_ptr, rank_data_sz, handles, offsets, rank, fully_connected);
  std::lock_guard lock(known().mutex);
  known().groups[fa] = {meta.device, meta_ptr, rank_data_ptr, meta.bytes - int64_t(sizeof(Signal))};
  return fa;
}

// dispose closes the memory of other GPUs itself: an error in AIter's destructor would end the process.
static void dispose(int64_t fa) {
  const Known::Member m = group_of(fa);
  {
    std::lock_guard lock(known().mutex);
    AITER_CHECK(known().groups.erase(fa) == 1, "_fa: expected a group, got one that another thread disposed of");
  }
  const OnDevice on(m.device);
  hipError_t failed = hipSuccess;
  for (const auto& [_, address] : group(fa).ipc_handles_)
    if (const hipError_t e = hipIpcCloseMemHandle(address); e != hipSuccess) failed = e;
  group(fa).ipc_handles_.clear();
  ::aiter::dispose(fa);
  if (failed != hipSuccess) fail_hip("hipIpcCloseMemHandle", hipGetErrorString(failed), __FILE__, __LINE__);
}

template <bool input> static void register_buffer(int64_t fa, int64_t self_ptr, const List& handles, const List& offsets) {
  const Known::Member m = group_of(fa);
  expect_addresses("ipc_handle_ptrs", handles, size_t(group(fa).world_size_), false);
  expect_addresses("offsets", offsets, size_t(group(fa).world_size_), true);
  AITER_CHECK(self_ptr > 0, "self_ptr: expected an address of the device, got ", self_ptr);
  const OnDevice on(m.device);
  input ? ::aiter::register_input_buffer(fa, self_ptr, handles, offsets) : ::aiter::register_output_buffer(fa, self_ptr, handles, offsets);
}

static int64_t graph_buffers(int64_t fa) {
  (void)group_of(fa);
  return ::aiter::get_graph_buffer_count(fa);
}

static void graph_meta(int64_t fa, int64_t handle_out, int64_t offset_out) {
  const int64_t count = graph_buffers(fa);
  AITER_CHECK(count == 0 || handle_out > 0, "handle_out: expected the address of ", count * 64, " bytes on the host, got ", handle_out);
  AITER_CHECK(count == 0 || offset_out > 0, "offset_out: expected the address of ", count * 8, " bytes on the host, got ", offset_out);
  if (count == 0) return;
  const OnDevice on(group_of(fa).device);
  ::aiter::get_graph_buffer_ipc_meta(fa, handle_out, offset_out);
}

static void register_graph(int64_t fa, const List& handle_ptrs, const List& offset_ptrs) {
  const Known::Member m = group_of(fa);
  expect_addresses("handle_ptrs", handle_ptrs, size_t(group(fa).world_size_), false);
  expect_addresses("offset_ptrs", offset_ptrs, size_t(group(fa).world_size_), false);
  const OnDevice on(m.device);
  ::aiter::register_graph_buffers(fa, handle_ptrs, offset_ptrs);
}

// check_tensors checks what all operators need, and reports whether there is anything to do.
static bool check_tensors(int64_t fa, const Tensor& inp, const Tensor& out, int64_t reg_ptr, int64_t reg_bytes) {
  const Known::Member m = group_of(fa);
  AITER_CHECK(inp.device_id == m.device, "inp: expected a tensor of device ", m.device, ", that of the group");
  AITER_CHECK(is_float(inp.dtype()), "inp: expected float32, float16 or bfloat16");
  AITER_CHECK(out.dtype() == inp.dtype(), "out: expected the element type of inp, ", type_name(inp.dtype()));
  expect_packed("inp", inp), expect_packed("out", out);
  const int64_t size = inp.element_size();
  expect_aligned("inp", inp, 16, 16), expect_aligned("out", out, 16, 16);
  AITER_CHECK(inp.numel() <= INT32_MAX / 8 && out.numel() <= INT32_MAX / 8, "inp and out: expected less than 2^28 elements");
  AITER_CHECK(reg_ptr >= 0, "the registered buffer: expected an address or 0, got ", reg_ptr);
  AITER_CHECK(reg_ptr == 0 || int64_t(inp.numel()) * size <= reg_bytes, "inp: expected at most the ", reg_bytes,
              " bytes of the registered buffer");
  return inp.numel() > 0;
}

// expect_temporary checks the memory behind the signals: kernels keep two copies of the input there.
static void expect_temporary(int64_t fa, const Tensor& inp) {
  const int64_t most = group_of(fa).bytes / 2;
  AITER_CHECK(int64_t(inp.numel()) * inp.element_size() <= most, "inp: expected at most ", most,
              " bytes, half of the buffer of meta_ptr without its signals");
}

static void reduce(int64_t fa, const Tensor& inp, const Tensor& out, bool use_new, bool open_fp8_quant, int64_t reg_inp_ptr,
                   int64_t reg_inp_bytes) {
  if (!check_tensors(fa, inp, out, reg_inp_ptr, reg_inp_bytes)) return;
  expect_same("out", out, "inp", inp), expect_temporary(fa, inp);
  AITER_CHECK(inp.numel() * inp.element_size() % 16 == 0, "inp: expected a multiple of 16 bytes");
  ::aiter::all_reduce(fa, inp, out, use_new, open_fp8_quant, reg_inp_ptr, reg_inp_bytes);
  HIP_CALL(hipGetLastError());
}

// expect_scattered checks the number of GPUs and of the elements of the smaller tensor.
static int64_t expect_scattered(int64_t fa, const char* small_name, const Tensor& small, const char* name, const Tensor& large) {
  const int64_t world = group(fa).world_size_;
  AITER_CHECK(world != 6, "_fa: expected a group of 2, 4 or 8 GPUs, got 6");
  AITER_CHECK(int64_t(small.numel()) * world == int64_t(large.numel()), name, ": expected ", world, " times the elements of ", small_name);
  return world;
}

static void scatter(int64_t fa, const Tensor& inp, const Tensor& out, int64_t m, int64_t n, int64_t k, int64_t split_dim, int64_t reg_ptr,
                    int64_t reg_bytes) {
  if (!check_tensors(fa, inp, out, reg_ptr, reg_bytes)) return;
  const int64_t world = expect_scattered(fa, "out", out, "inp", inp), count = inp.numel(), vector = 16 / inp.element_size();
  AITER_CHECK(split_dim >= 0 && split_dim <= 2, "split_dim: expected 0, 1 or 2, got ", split_dim);
  AITER_CHECK(k > 0 && k <= count && count % k == 0, "k: expected a divisor of the ", count, " elements of inp, got ", k);
  if (split_dim == 0)
    AITER_CHECK(k == count && k % (world * vector) == 0, "k: expected ", count, ", a multiple of ", world * vector, ", got ", k);
  if (split_dim == 1) AITER_CHECK(n == count / k && k % world == 0, "n and k: expected n * k elements in inp, k a multiple of ", world);
  if (split_dim == 2)
    AITER_CHECK(n > 0 && m == count / k / n && m * n * k == count && n % world == 0,
                "m, n and k: expected m * n * k elements in inp, n a multiple of ", world);
  ::aiter::reduce_scatter(fa, inp, out, m, n, k, split_dim, reg_ptr, reg_bytes);
  HIP_CALL(hipGetLastError());
}

// check_gather reports whether there is anything to do.
static bool check_gather(int64_t fa, const Tensor& inp, const Tensor& out, int64_t reg_buffer, int64_t reg_bytes, int64_t dim) {
  if (!check_tensors(fa, inp, out, reg_buffer, reg_bytes)) return false;
  expect_scattered(fa, "inp", inp, "out", out);
  AITER_CHECK(inp.dim() > 0, "inp: expected a dimension or more");
  AITER_CHECK(dim == 0 || dim == -1 || dim == inp.dim() - 1, "dim: expected the first or the last dimension, got ", dim);
  AITER_CHECK(dim == 0 || inp.size(-1) * inp.element_size() % 16 == 0, "inp: expected rows of a multiple of 16 bytes");
  return true;
}

static void gather(int64_t fa, const Tensor& inp, const Tensor& out, int64_t dim) {
  if (!check_gather(fa, inp, out, 0, 0, dim)) return;
  ::aiter::all_gather_reg(fa, inp, out, dim);
  HIP_CALL(hipGetLastError());
}

static void gather_copied(int64_t fa, const Tensor& inp, int64_t reg_buffer, const Tensor& out, int64_t reg_bytes, int64_t dim) {
  AITER_CHECK(reg_buffer > 0, "reg_buffer: expected the address of a registered buffer, got ", reg_buffer);
  if (!check_gather(fa, inp, out, reg_buffer, reg_bytes, dim)) return;
  ::aiter::all_gather_unreg(fa, inp, reg_buffer, out, reg_bytes, dim);
  HIP_CALL(hipGetLastError());
}

static void reduce_norm(int64_t fa, const Tensor& inp, const Tensor& res_inp, const Tensor& res_out, const Tensor& out, const Tensor& w,
                        double eps, int64_t reg_ptr, int64_t reg_bytes, bool use_1stage, bool gemma_norm) {
  const bool work = check_tensors(fa, inp, out, reg_ptr, reg_bytes);
  const int64_t world = group(fa).world_size_, vector = 16 / inp.element_size();
  AITER_CHECK(world != 6, "_fa: expected a group of 2, 4 or 8 GPUs, got 6");
  AITER_CHECK(inp.dim() == 2, "inp: expected shape (rows, elements)");
  const int64_t n = inp.size(1);
  expect_same("out", out, "inp", inp), expect_same("res_inp", res_inp, "inp", inp), expect_same("res_out", res_out, "inp", inp);
  expect_packed("res_inp", res_inp), expect_packed("res_out", res_out), expect_packed("w", w);
  expect_aligned("res_inp", res_inp, 16, 16), expect_aligned("res_out", res_out, 16, 16), expect_aligned("w", w, 16, 16);
  expect_type("w", w, inp.dtype()), expect_sizes("w", w, {n});
  const bool one = use_1stage && n / vector <= 1024;
  AITER_CHECK(n > 0 && n % vector == 0 && (one || n / vector >= 64 && n / vector <= 2048), "inp: expected rows of a multiple of ", vector,
              " elements, ", one ? 1 : 64 * vector, " to ", one ? 1024 * vector : 2048 * vector, ", got ", n);
  expect_temporary(fa, inp);
  if (!work) return;
  ::aiter::fused_allreduce_rmsnorm(fa, inp, res_inp, res_out, out, w, eps, reg_ptr, reg_bytes, use_1stage, gemma_norm);
  HIP_CALL(hipGetLastError());
}

}  // namespace aiter::upstream

AITER_UPSTREAM(aiter_allocate_meta_buffer, aiter::upstream::allocate<true>, arg("size"))
AITER_UPSTREAM(aiter_allocate_data_buffer, aiter::upstream::allocate<false>, arg("size"))
AITER_UPSTREAM(aiter_free_meta_buffer, aiter::upstream::free_buffer, arg("ptr"))
AITER_UPSTREAM(aiter_get_meta_buffer_ipc_handle, aiter::upstream::ipc_handle, arg("inp_ptr"), arg("out_handle_ptr"))
AITER_UPSTREAM(aiter_init_custom_ar, aiter::upstream::init, arg("meta_ptr"), arg("rank_data_ptr"), arg("rank_data_sz"),
               arg("ipc_handle_ptrs"), arg("offsets"), arg("rank"), arg("fully_connected"))
AITER_UPSTREAM(aiter_dispose, aiter::upstream::dispose, arg("_fa"))
AITER_UPSTREAM(aiter_register_input_buffer, aiter::upstream::register_buffer<true>, arg("_fa"), arg("self_ptr"), arg("ipc_handle_ptrs"),
               arg("offsets"))
AITER_UPSTREAM(aiter_register_output_buffer, aiter::upstream::register_buffer<false>, arg("_fa"), arg("self_ptr"), arg("ipc_handle_ptrs"),
               arg("offsets"))
AITER_UPSTREAM(aiter_get_graph_buffer_count, aiter::upstream::graph_buffers, arg("_fa"))
AITER_UPSTREAM(aiter_get_graph_buffer_ipc_meta, aiter::upstream::graph_meta, arg("_fa"), arg("handle_out"), arg("offset_out"))
AITER_UPSTREAM(aiter_register_graph_buffers, aiter::upstream::register_graph, arg("_fa"), arg("handle_ptrs"), arg("offset_ptrs"))
AITER_UPSTREAM(aiter_all_reduce, aiter::upstream::reduce, arg("_fa"), arg("inp"), arg("out"), arg("use_new"), arg("open_fp8_quant"),
               arg("reg_inp_ptr"), arg("reg_inp_bytes"))
AITER_UPSTREAM(aiter_reduce_scatter, aiter::upstream::scatter, arg("_fa"), arg("inp"), arg("out"), arg("m"), arg("n"), arg("k"),
               arg("split_dim"), arg("reg_ptr"), arg("reg_bytes"))
AITER_UPSTREAM(aiter_all_gather_reg, aiter::upstream::gather, arg("_fa"), arg("inp"), arg("out"), arg("dim"))
AITER_UPSTREAM(aiter_all_gather_unreg, aiter::upstream::gather_copied, arg("_fa"), arg("inp"), arg("reg_buffer"), arg("out"),
               arg("reg_bytes"), arg("dim"))
AITER_UPSTREAM(aiter_fused_allreduce_rmsnorm, aiter::upstream::reduce_norm, arg("_fa"), arg("inp"), arg("res_inp"), arg("res_out"),
               arg("out"), arg("w"), arg("eps"), arg("reg_ptr"), arg("reg_bytes"), arg("use_1stage"), flag("gemma_norm", false))
