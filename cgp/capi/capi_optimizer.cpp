// SPDX-License-Identifier: Apache-2.0
// Steps of optimizers over tables of tensors.
#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/capi/handles.h"
#include "cgp/capi/tensor.h"
#include "cgp/kernels/optimizer/optimizer.h"

namespace cgp::capi {
namespace {

using namespace kernels;
static_assert(int(CGP_DESCENT) == int(OptimizerRule::descent) && int(CGP_LION) == int(OptimizerRule::lion));
static_assert(sizeof(cgp_optimizer_row) == sizeof(OptimizerRow) &&
              sizeof(cgp_optimizer_group) == 8 * kOptimizerGroupWords &&
              sizeof(cgp_optimizer_counts) == 4 * kOptimizerControlWords);

constexpr const char* kOp = "optimizer";

/// Words of `type`, or of the signed one of its size; NULL: not given.
View words(const cgp_stream& s, const cgp_tensor* given, const char* name, DType type, bool out = false) {
  if (!given) return {};
  const Tensor t(given, kOp, name);
  t.expect(type == DType::u64   ? std::initializer_list<DType>{DType::u64, DType::s64}
           : type == DType::u32 ? std::initializer_list<DType>{DType::u32, DType::s32}
                                : std::initializer_list<DType>{type});
  t.expect_contiguous();
  View v = t.view(s, out);
  v.dtype = type;
  return v;
}
OptimizerRule rule(int32_t r) {
  if (r < CGP_ADAMW || r > CGP_DESCENT)
    throw ArgumentError(
        {"optimizer: there is no such rule", {}, text::cat("rule = ", r), "take a cgp_optimizer_rule"});
  return OptimizerRule(r);
}
DType type(int32_t t, const char* name) {
  if (t != CGP_F32 && t != CGP_F16 && t != CGP_BF16)
    throw ArgumentError(
        {text::cat("optimizer: ", name, " must be f32, f16 or bf16"), {}, text::cat("it is ", t), {}});
  return DType(t);
}

}  // namespace
}  // namespace cgp::capi

using namespace cgp;
using capi::guarded;
using capi::require;
using capi::words;

cgp_status cgp_optimizer_chunks(const uint64_t* elements, uint64_t tensors, uint32_t* chunks,
                                uint64_t* count) {
  return guarded([&] {
    require(count, "count");
    if (tensors) require(elements, "elements");
    const auto all = kernels::optimizer_chunks({elements, std::size_t(tensors)});
    *count = all.size() / 2;
    if (chunks) std::copy(all.begin(), all.end(), chunks);
  });
}
cgp_status cgp_optimizer_norm(cgp_stream* s, int32_t gradient, const cgp_tensor* table,
                              const cgp_tensor* chunks, const cgp_tensor* partial) {
  return guarded([&] {
    require(s, "s");
    kernels::optimizer_norm(s->stream, capi::type(gradient, "gradient"),
                            words(*s, table, "table", DType::u64), words(*s, chunks, "chunks", DType::u32),
                            words(*s, partial, "partial", DType::f32, true));
  });
}
cgp_status cgp_optimizer_control(cgp_stream* s, const cgp_optimizer_options* options, const cgp_tensor* table,
                                 const cgp_tensor* groups, const cgp_tensor* control, const cgp_tensor* rates,
                                 const cgp_tensor* partial) {
  return guarded([&] {
    require(s, "s"), require(options, "options");
    const auto o = capi::known(options, cgp_optimizer_options{}, "optimizer_control");
    if (!(o.max_norm >= 0))
      throw ArgumentError(
          {"optimizer: max_norm must be at least 0", {}, text::cat("it is ", o.max_norm), {}});
    kernels::optimizer_control(
        s->stream,
        {.rule = capi::rule(o.rule),
         .max_norm = o.max_norm,
         .growth = o.growth,
         .backoff = o.backoff,
         .growth_interval = o.growth_interval,
         .use_found = o.use_found != 0,
         .steps = o.clip_only == 0},
        {words(*s, table, "table", DType::u64), words(*s, groups, "groups", DType::f64),
         words(*s, control, "control", DType::u32, true), words(*s, rates, "rates", DType::f32, true)},
        words(*s, partial, "partial", DType::f32));
  });
}
cgp_status cgp_optimizer_update(cgp_stream* s, const cgp_optimizer_types* types, const cgp_tensor* table,
                                const cgp_tensor* chunks, const cgp_tensor* rates,
                                const cgp_tensor* control) {
  return guarded([&] {
    require(s, "s"), require(types, "types");
    const auto t = capi::known(types, cgp_optimizer_types{}, "optimizer_update");
    using kernels::OptimizerRounding;
    kernels::optimizer_update(
        s->stream,
        {.rule = capi::rule(t.rule),
         .weight = capi::type(t.weight, "weight"),
         .gradient = capi::type(t.gradient, "gradient"),
         .master = t.master != 0,
         .rounding = t.stochastic ? OptimizerRounding::stochastic : OptimizerRounding::nearest,
         .states8 = t.states8 != 0},
        {words(*s, table, "table", DType::u64),
         {},
         words(*s, control, "control", DType::u32),
         words(*s, rates, "rates", DType::f32)},
        words(*s, chunks, "chunks", DType::u32), t.seed);
  });
}
cgp_status cgp_optimizer_clip(cgp_stream* s, int32_t gradient, const cgp_tensor* table,
                              const cgp_tensor* chunks, const cgp_tensor* control) {
  return guarded([&] {
    require(s, "s");
    kernels::optimizer_clip(s->stream, capi::type(gradient, "gradient"),
                            words(*s, table, "table", DType::u64), words(*s, chunks, "chunks", DType::u32),
                            words(*s, control, "control", DType::u32));
  });
}
