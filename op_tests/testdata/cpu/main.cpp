// Compares the CPU kernels with the formulas in double. The program needs neither Go nor Python, so
// that it can run under an emulator and under sanitizers. Each tensor borders an inaccessible page:
// in some problems the page is after the tensor, in the others before it.

#include <aiter/cpu_settings.h>

#include "memory.h"
#include "reference.h"

#define OP(name) extern "C" int32_t __tvm_ffi_##name(void*, const TVMFFIAny*, int32_t, TVMFFIAny*) noexcept
OP(causal_conv1d_fwd);
OP(causal_conv1d_bwd);
OP(causal_conv1d_update);
OP(causal_conv1d_varlen_fwd);
OP(causal_conv1d_varlen_states);

static uint32_t seed = 1;
static float random_value() { return float((seed = seed * 1664525u + 1013904223u) >> 8) / float(1 << 23) - 1.0f; }

// Problem is one call of each operator.
struct Problem {
  DType type;
  int64_t batch, dim, seqlen, width, gap;
  bool last, silu, states, numbers;
  Side side;
  char special;  // the tensor that has a special value: x, w, g (dout), or 0
  double value;
};

// groups_of returns the number of filters: in some problems neighbouring channels share one.
static int64_t groups_of(const Problem& p) { return p.dim % 3 == 0 && p.width % 2 ? p.dim / 3 : p.dim == 4 ? 2 : p.dim; }
static int64_t group_of(const Problem& p, int64_t d) { return d / (p.dim / groups_of(p)); }

static int failures, checks;

static void near(const Problem& p, const char* what, DType type, double got, double want) {
  const double rel = type == DType::F32 ? 1e-4 : type == DType::F16 ? 4e-3 : 1.6e-2;
  checks++;
  if (got == want || (isnan(got) && isnan(want)) || (isfinite(want) && fabs(got - want) <= rel * fabs(want) + rel)) return;
  if (failures++ < 20)
    printf("%s %s b%d d%d l%d w%d %s silu %d states %d numbers %d gap %d side %d special %c %g: got %g, want %g\n", what, dtype_name(p.type),
           int(p.batch), int(p.dim), int(p.seqlen), int(p.width), p.last ? "last" : "first", p.silu, p.states, p.numbers, int(p.gap),
           int(p.side), p.special ? p.special : '-', p.value, got, want);
}

static void succeeded(const char* op, int32_t status) {
  if (status && failures++ < 20) printf("%s failed\n", op);
}

static void untouched(const Problem& p, const char* what, Array* a) {
  if (const int64_t n = a->strays()) near(p, what, DType::F32, double(n), 0);
}

static void draw(Array* a) {
  a->each([&](int64_t i, int64_t j, int64_t k) { a->set(i, j, k, random_value()); });
}

static Array x, dout, weight, bias, initial, dfinal, seq, out, final, dx, dweight, dbias, dinitial, state, starts;

// spot returns the position of the special value in row d: near an end of the row, of a vector or of a tile.
static int64_t spot(const Problem& p, int64_t d) {
  const int64_t near_ends[] = {0, p.seqlen - 1, p.width - 1, p.seqlen - p.width, 63, 64, 511, 512};
  const int64_t t = near_ends[d % 8];
  return t < 0 || t >= p.seqlen ? p.seqlen / 2 : t;
}

static void input(const Problem& p, Array* a, Array::Shape shape) {
  a->make(p.type, shape, p.last, p.gap, p.side, false);
  draw(a);
}

static void inputs(const Problem& p) {
  const Array::Shape whole = {p.batch, p.dim, p.seqlen}, ends = {p.batch, p.dim, p.width - 1};
  input(p, &x, whole), input(p, &dout, whole), input(p, &initial, ends), input(p, &dfinal, ends);
  weight.make(DType::F32, {groups_of(p), p.width, -1}, false, 0, p.side, false), draw(&weight);
  bias.make(DType::F32, {p.dim, -1, -1}, false, 0, p.side, false), draw(&bias);
  seq.make(DType::I32, {p.batch, p.seqlen, -1}, false, p.gap, p.side, false);
  seq.each([&](int64_t b, int64_t t, int64_t) { seq.set(b, t, 0, t / 7 % 4 == 3 ? -1 : double(t / 7 + b)); });
  for (int64_t d = 0; d < p.dim; d += 2) {
    if (p.special == 'x') x.set(p.batch - 1, d, spot(p, d), p.value);
    if (p.special == 'g') dout.set(p.batch - 1, d, spot(p, d), p.value);
    if (p.special == 'w') weight.set(group_of(p, d), d / 2 % p.width, 0, p.value);
  }
}

static void output(const Problem& p, Array* a, DType type, Array::Shape shape) { a->make(type, shape, p.last, p.gap, p.side, true); }

static Row row(const Problem& p, int64_t b, int64_t d) {
  Row r;
  for (int64_t j = 0; j < p.width - 1; j++) r.x.push_back(p.states ? initial.at(b, d, j) : 0.0);
  for (int64_t t = 0; t < p.seqlen; t++) r.x.push_back(x.at(b, d, t)), r.dout.push_back(dout.at(b, d, t));
  for (int64_t k = 0; k < p.width; k++) r.weight.push_back(weight.at(group_of(p, d), k));
  for (int64_t t = 0; p.numbers && t < p.seqlen; t++) r.seq.push_back(int(seq.at(b, t)));
  for (int64_t j = 0; p.states && j < p.width - 1; j++) r.dfinal.push_back(dfinal.at(b, d, j));
  r.bias = bias.at(d), r.silu = p.silu;
  return r;
}

static void forward(const Problem& p) {
  output(p, &out, p.type, {p.batch, p.dim, p.seqlen}), output(p, &final, p.type, {p.batch, p.dim, p.width - 1});
  const TVMFFIAny args[] = {out.any(), x.any(), weight.any(), bias.any(), flag(p.silu), p.numbers ? seq.any() : none(),
                            p.states ? initial.any() : none(), p.states ? final.any() : none()};
  succeeded("fwd", __tvm_ffi_causal_conv1d_fwd(nullptr, args, 8, nullptr));
  for (int64_t b = 0; b < p.batch; b++)
    for (int64_t d = 0; d < p.dim; d++) {
      const Row r = row(p, b, d);
      for (int64_t t = 0; t < p.seqlen; t++) near(p, "out", p.type, out.at(b, d, t), r.out(int(t)));
      for (int64_t j = 0; p.states && j < p.width - 1; j++) near(p, "final", p.type, final.at(b, d, j), r.final(int(j)));
    }
  untouched(p, "beside out", &out), untouched(p, "beside final", &final);
}

static void backward(const Problem& p) {
  output(p, &dx, p.type, {p.batch, p.dim, p.seqlen}), output(p, &dinitial, p.type, {p.batch, p.dim, p.width - 1});
  output(p, &dweight, DType::F32, {groups_of(p), p.width, -1}), output(p, &dbias, DType::F32, {p.dim, -1, -1});
  const TVMFFIAny args[] = {dx.any(), dweight.any(), dbias.any(), x.any(), weight.any(), bias.any(), dout.any(), flag(p.silu),
                            p.numbers ? seq.any() : none(), p.states ? initial.any() : none(), p.states ? dfinal.any() : none(),
                            p.states ? dinitial.any() : none()};
  succeeded("bwd", __tvm_ffi_causal_conv1d_bwd(nullptr, args, 12, nullptr));
  std::vector<double> dw(groups_of(p) * p.width);
  for (int64_t d = 0; d < p.dim; d++) {
    std::vector<double> channel(p.width);
    double db = 0;
    for (int64_t b = 0; b < p.batch; b++) {
      const Row r = row(p, b, d);
      const std::vector<double> g = r.gradients();
      r.add_weight_gradients(g, &channel, &db);
      for (int64_t t = 0; t < p.seqlen; t++) near(p, "dx", p.type, dx.at(b, d, t), r.input_gradient(g, int(t)));
      for (int64_t j = 0; p.states && j < p.width - 1; j++)
        near(p, "dinitial", p.type, dinitial.at(b, d, j), r.input_gradient(g, int(j - (p.width - 1))));
    }
    near(p, "dbias", DType::F32, dbias.at(d), db);
    for (int64_t k = 0; k < p.width; k++) dw[group_of(p, d) * p.width + k] += channel[k];
  }
  for (int64_t i = 0; i < groups_of(p) * p.width; i++)
    near(p, "dweight", DType::F32, dweight.at(i / p.width, i % p.width), dw[i]);
  untouched(p, "beside dx", &dx), untouched(p, "beside dinitial", &dinitial), untouched(p, "beside dweight", &dweight);
}

// For update and varlen, x has the new positions after initial, which fill_state copies into the state.
static void fill_state(const Problem& p) {
  output(p, &state, p.type, {p.batch, p.dim, p.width - 1});
  state.each([&](int64_t b, int64_t d, int64_t j) { state.set(b, d, j, initial.at(b, d, j)); });
}

static void check_continued(const Problem& p, const char* what, bool packed) {
  Problem q = p;
  q.states = true, q.numbers = false;
  for (int64_t b = 0; b < p.batch; b++)
    for (int64_t d = 0; d < p.dim; d++) {
      const Row r = row(q, b, d);
      for (int64_t t = 0; t < p.seqlen; t++)
        near(p, what, p.type, packed ? out.at(d, b * p.seqlen + t) : out.at(b, d, t), r.out(int(t)));
      for (int64_t j = 0; j < p.width - 1; j++) near(p, "state", p.type, state.at(b, d, j), r.final(int(j)));
    }
  untouched(p, what, &out), untouched(p, "beside the state", &state);
}

static void update(const Problem& p) {
  fill_state(p), output(p, &out, p.type, {p.batch, p.dim, p.seqlen});
  const TVMFFIAny args[] = {out.any(), x.any(), state.any(), weight.any(), bias.any(), flag(p.silu)};
  succeeded("update", __tvm_ffi_causal_conv1d_update(nullptr, args, 6, nullptr));
  check_continued(p, "update", false);
}

static void varlen(const Problem& p) {
  static Array packed, has_initial_state;
  const int64_t tokens = p.batch * p.seqlen;
  fill_state(p);
  packed.make(p.type, {p.dim, tokens, -1}, false, p.gap, p.side, false);
  output(p, &out, p.type, {p.dim, tokens, -1});
  packed.each([&](int64_t d, int64_t t, int64_t) { packed.set(d, t, 0, x.at(t / p.seqlen, d, t % p.seqlen)); });
  starts.make(DType::I32, {p.batch + 1, -1, -1}, false, 0, p.side, false);
  starts.each([&](int64_t b, int64_t, int64_t) { starts.set(b, 0, 0, double(b * p.seqlen)); });
  has_initial_state.make(DType::Bool, {p.batch, -1, -1}, false, 0, p.side, false);
  has_initial_state.all_true();
  const TVMFFIAny args[] = {out.any(), packed.any(), weight.any(), bias.any(), flag(p.silu),
                             starts.any(), state.any(), none(), has_initial_state.any()};
  succeeded("varlen_fwd", __tvm_ffi_causal_conv1d_varlen_fwd(nullptr, args, 9, nullptr));
  check_continued(p, "varlen", true);
}

static void varlen_states(const Problem& p) {
  static Array tokens;
  tokens.make(p.type, {p.batch * p.seqlen, p.dim, -1}, false, p.gap, p.side, false);
  tokens.each([&](int64_t t, int64_t d, int64_t) { tokens.set(t, d, 0, x.at(t / p.seqlen, d, t % p.seqlen)); });
  output(p, &state, p.type, {p.batch, p.dim, p.width - 1});
  const TVMFFIAny args[] = {state.any(), tokens.any(), starts.any()};
  succeeded("varlen_states", __tvm_ffi_causal_conv1d_varlen_states(nullptr, args, 3, nullptr));
  state.each([&](int64_t b, int64_t d, int64_t j) {
    const int64_t t = p.seqlen - (p.width - 1) + j;
    near(p, "states", p.type, state.at(b, d, j), t < 0 ? 0 : x.at(b, d, t));
  });
  untouched(p, "beside states", &state);
}

static void everything(const Problem& p) {
  inputs(p);
  forward(p), backward(p), update(p), varlen(p), varlen_states(p);
}

// subnormals checks that sums of subnormal numbers are exact to the last bit.
static void subnormals(DType type, Side side, bool last) {
  const double unit = type == DType::F32 ? 0x1p-149 : type == DType::F16 ? 0x1p-24 : 0x1p-133;
  const Problem p = {type, 1, 33, 67, 3, 0, last, false, false, false, side, 0, 0};
  inputs(p);
  x.each([&](int64_t b, int64_t d, int64_t t) { x.set(b, d, t, unit * double((d + t) % 101 - 50)); });
  weight.each([&](int64_t d, int64_t k, int64_t) { weight.set(d, k, 0, k == 2); });
  output(p, &out, type, {p.batch, p.dim, p.seqlen});
  const TVMFFIAny args[] = {out.any(), x.any(), weight.any()};
  succeeded("fwd", __tvm_ffi_causal_conv1d_fwd(nullptr, args, 3, nullptr));
  out.each([&](int64_t b, int64_t d, int64_t t) { near(p, "subnormal / unit", type, out.at(b, d, t) / unit, x.at(b, d, t) / unit); });
}

// main runs all problems, or with an argument N every N-th.
int main(int argc, char** argv) {
  const int every = argc > 1 ? atoi(argv[1]) : 1;
  if (const Status s = cpu::check_settings(); s.failed()) return printf("%s\n", s.message), 2;
  const DType types[] = {DType::F32, DType::F16, DType::BF16};
  const int64_t lengths[] = {1, 3, 4, 7, 8, 16, 17, 31, 33, 63, 64, 65, 129, 511, 513, 543}, dims[] = {1, 3, 4, 17, 33};
  const double values[] = {INFINITY, -INFINITY, NAN};
  for (int n = 0, w = 1; w <= 50; w++)
    for (int i = 0; i < 8; i++, n++) {
      if (n % every) continue;
      const int64_t wide[] = {63, 64, 65, 100, 128, 129, 200, 257, 513, 1025}, width = w <= 40 ? w : wide[w - 41];
      const int64_t length = i == 0 ? 1 : i == 1 ? 543 : lengths[n * 7 % 16];
      const bool last = i % 2 == (n / 8) % 2;
      Problem p = {types[n / 2 % 3], 1 + n % 2, dims[n % 5], length, width, n % 3 == 1 ? 5 : 0, last, i % 4 > 1,
                   n % 5 > 2, n % 7 == 3, n % 2 ? Side::kBefore : Side::kAfter, 0, 0};
      if (length > 200 && p.dim > 4) p.dim = 4 + (last ? 14 : 0);
      everything(p);
      p.side = p.side == Side::kBefore ? Side::kAfter : Side::kBefore;
      p.special = "xwg"[n % 3], p.value = values[n / 3 % 3];
      everything(p);
    }
  for (DType type : types)
    for (int last = 0; last < 2; last++) subnormals(type, last ? Side::kBefore : Side::kAfter, last);
  printf("%d values, %d failures\n", checks, failures);
  return failures != 0;
}
