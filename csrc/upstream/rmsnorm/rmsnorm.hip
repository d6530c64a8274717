// module_rmsnorm of AIter, whose functions take addresses: the checks that its Python makes.
#include <aiter/upstream.h>

extern "C" {
void rms_norm_opus(size_t out, size_t in, size_t weight, float epsilon, int rows, int hidden, int in_stride, int dtype,
                   int model_sensitive, int gemma, size_t stream);
void fused_add_rms_norm_opus(size_t inout, size_t residual, size_t weight, float epsilon, int rows, int hidden, int dtype,
                             int model_sensitive, int gemma, size_t stream);
void add_rms_norm_opus(size_t out, size_t in, size_t residual_in, size_t residual_out, size_t weight, float epsilon, int rows,
                       int hidden, int in_stride, int dtype, int model_sensitive, int gemma, size_t stream);
}

namespace aiter::upstream {

// Rows are the sizes that the functions take.
struct Rows {
  int count, hidden, type;
  size_t stream;
};

// Named is another tensor of the shape of the input.
struct Named {
  const char* name;
  const aiter_tensor_t& t;
};

static Rows check(const aiter_tensor_t& x, const aiter_tensor_t& weight, std::initializer_list<Named> others) {
  const int type = x.dtype() == AITER_DTYPE_fp16 ? 0 : x.dtype() == AITER_DTYPE_bf16 ? 1 : x.dtype() == AITER_DTYPE_fp32 ? 2 : -1;
  AITER_CHECK(type >= 0, "input: expected float16, bfloat16 or float32");
  AITER_CHECK(x.dim() >= 1 && packed(x), "input: expected one or more dimensions, row-major");
  const int64_t hidden = x.size(-1), rows = hidden ? int64_t(x.numel()) / hidden : 0;
  AITER_CHECK(hidden <= INT32_MAX && rows <= INT32_MAX, "input: expected less than 2^31 rows of less than 2^31 elements");
  AITER_CHECK(weight.dim() == 1 && weight.size(0) == hidden && packed(weight) && weight.dtype() == x.dtype(), "weight: expected (", hidden,
              ",) of the element type of input");
  for (const Named& o : others) {
    bool same = o.t.dtype() == x.dtype() && o.t.dim() == x.dim() && packed(o.t);
    for (int i = 0; same && i < x.dim(); i++) same = o.t.size(i) == x.size(i);
    AITER_CHECK(same, o.name, ": expected the type and shape of input, ", given(x), ", row-major");
  }
  return {int(rows), int(hidden), type, reinterpret_cast<size_t>(getCurrentHIPStream())};
}

static size_t address(const aiter_tensor_t& t) { return reinterpret_cast<size_t>(t.data_ptr()); }

static void norm(aiter_tensor_t& out, aiter_tensor_t& input, aiter_tensor_t& weight, float epsilon, bool model_sensitive, bool gemma_norm) {
  const Rows r = check(input, weight, {{"out", out}});
  rms_norm_opus(address(out), address(input), address(weight), epsilon, r.count, r.hidden, r.hidden, r.type, model_sensitive, gemma_norm,
                r.stream);
  HIP_CALL(hipGetLastError());
}

static void fused_add(aiter_tensor_t& input, aiter_tensor_t& residual, aiter_tensor_t& weight, float epsilon, bool model_sensitive,
                      bool gemma_norm) {
  const Rows r = check(input, weight, {{"residual", residual}});
  fused_add_rms_norm_opus(address(input), address(residual), address(weight), epsilon, r.count, r.hidden, r.type, model_sensitive,
                          gemma_norm, r.stream);
  HIP_CALL(hipGetLastError());
}

static void add(aiter_tensor_t& out, aiter_tensor_t& input, aiter_tensor_t& residual_in, aiter_tensor_t& residual_out,
                aiter_tensor_t& weight, float epsilon, bool model_sensitive, bool gemma_norm) {
  const Rows r = check(input, weight, {{"out", out}, {"residual_in", residual_in}, {"residual_out", residual_out}});
  add_rms_norm_opus(address(out), address(input), address(residual_in), address(residual_out), address(weight), epsilon, r.count, r.hidden,
                    r.hidden, r.type, model_sensitive, gemma_norm, r.stream);
  HIP_CALL(hipGetLastError());
}

}  // namespace aiter::upstream

AITER_UPSTREAM(aiter_rms_norm, aiter::upstream::norm, arg("out"), arg("input"), arg("weight"), arg("epsilon"),
               flag("model_sensitive", false), flag("gemma_norm", false))
AITER_UPSTREAM(aiter_fused_add_rms_norm, aiter::upstream::fused_add, arg("input"), arg("residual"), arg("weight"), arg("epsilon"),
               flag("model_sensitive", false), flag("gemma_norm", false))
AITER_UPSTREAM(aiter_add_rms_norm, aiter::upstream::add, arg("out"), arg("input"), arg("residual_in"), arg("residual_out"),
               arg("weight"), arg("epsilon"), flag("model_sensitive", false), flag("gemma_norm", false))
