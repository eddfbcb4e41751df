// SPDX-License-Identifier: Apache-2.0
// gemm on the host: checks, and the case that tools and tests drive.
#include "cgp/kernels/gemm/api/gemm.h"

#include <algorithm>
#include <array>
#include <set>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/gemm/api/gemm_autotune.h"
#include "cgp/kernels/gemm/api/gemm_check.h"
#include "cgp/kernels/gemm/api/gemm_launch.h"
#include "cgp/kernels/gemm/api/gemm_tuning.h"
#include "cgp/kernels/gemm/select/gemm_planner.h"
#include "cgp/kernels/gemm/simt/gemm_f32_rows.h"
#include "cgp/kernels/gemm/sm80/gemm_sm80.h"
#include "cgp/kernels/gemm/sm90/gemm_params_sm90.h"
#include "cgp/kernels/gemm/workspace/gemm_split_k_f32.h"

namespace cgp::kernels {
namespace {

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

// Elements from the first of batch 0 to the last of the last batch.
std::uint64_t extent(std::uint64_t batch, std::uint64_t stride, std::uint64_t rows, std::uint64_t cols,
                     std::uint64_t ld) {
  return batch && rows && cols ? (batch - 1) * stride + (rows - 1) * ld + cols : 0;
}

}  // namespace

GemmProblem GemmProblem::dense() const {
  GemmProblem p = *this;
  const auto or_else = [](std::uint64_t& v, std::uint64_t other) { v = v ? v : other; };
  or_else(p.lda, trans_a ? m : k);
  or_else(p.ldb, trans_b ? k : n);
  or_else(p.ldc, columns());
  or_else(p.stride_a, p.lda * (trans_a ? k : m));
  or_else(p.stride_b, p.ldb * (trans_b ? n : k));
  or_else(p.stride_c, p.ldc * m);
  if (!p.type_b) p.type_b = type;
  const bool small = type == DType::e4m3 || type == DType::e5m2;
  if (!p.type_c) p.type_c = small ? DType::bf16 : type == DType::s8 ? DType::s32 : type;
  return p;
}
bool GemmProblem::plain() const {
  const bool one = type_b.value_or(type) == type && type_c.value_or(type) == type;
  return one && (type == DType::f32 || type == DType::f16 || type == DType::bf16) &&
         !(type == DType::f32 && precision == GemmPrecision::fast) && scaling == GemmScaling::none &&
         epilogue.empty();
}
std::string_view name(GemmPrecision p) {
  constexpr std::string_view names[] = {"standard", "fast", "strict"};
  return names[int(p)];
}
std::string_view name(GemmScaling s) {
  constexpr std::string_view names[] = {"none", "tensor", "channel", "block"};
  return names[int(s)];
}
std::uint64_t GemmProblem::a_elements() const {
  return extent(batch, stride_a, trans_a ? k : m, trans_a ? m : k, lda);
}
std::uint64_t GemmProblem::b_elements() const {
  return extent(batch, stride_b, trans_b ? n : k, trans_b ? k : n, ldb);
}
std::uint64_t GemmProblem::c_elements() const { return extent(batch, stride_c, m, columns(), ldc); }

namespace {

bool is_fp8(DType t) { return t == DType::e4m3 || t == DType::e5m2; }

std::string reject_types(const GemmProblem& p) {
  const bool wide = p.type == DType::f32 || p.type == DType::f16 || p.type == DType::bf16;
  if (!wide && !is_fp8(p.type) && p.type != DType::s8)
    return text::cat("type must be f32, f16, bf16, e4m3, e5m2 or s8, not ", name(p.type));
  const DType b = *p.type_b, c = *p.type_c;
  if (b != p.type && !(is_fp8(p.type) && is_fp8(b)))
    return text::cat("type_b must be a's, ", name(p.type), is_fp8(p.type) ? " or the other 8-bit float" : "",
                     ", not ", name(b));
  if (c != DType::f32 && c != DType::f16 && c != DType::bf16 && !(p.type == DType::s8 && c == DType::s32) &&
      !(p.type == DType::s8 ? c == DType::s8 : is_fp8(c)))
    return text::cat("type_c must be f32, f16, bf16 or ", p.type == DType::s8 ? "s32, s8" : "e4m3, e5m2",
                     ", not ", name(c));
  if (p.scaling == GemmScaling::block && !is_fp8(p.type)) return "scaling = block is for 8-bit floats";
  return {};
}

}  // namespace

std::string reject(const GemmProblem& q) {
  const GemmProblem p = q.dense();
  if (auto why = reject_types(p); !why.empty()) return why;
  if (p.epilogue.pairing() != Pairing::none && p.n % 2)
    return text::cat("n = ", p.n, " is odd: the epilogue makes one column of c from two");
  if (auto why = p.epilogue.reject(p); !why.empty()) return why;
  const auto ld = [](const char* what, std::uint64_t have, std::uint64_t need, const char* of) {
    return have < need ? text::cat(what, " = ", have, " is less than the ", need,
                                   " elements of a stored row (", of, ")")
                       : std::string();
  };
  if (auto why = ld("lda", p.lda, p.trans_a ? p.m : p.k, p.trans_a ? "m, since trans_a" : "k"); !why.empty())
    return why;
  if (auto why = ld("ldb", p.ldb, p.trans_b ? p.k : p.n, p.trans_b ? "k, since trans_b" : "n"); !why.empty())
    return why;
  if (auto why = ld("ldc", p.ldc, p.columns(), "columns of c"); !why.empty()) return why;
  for (const auto& [what, rows, ld, stride] : {std::tuple{"a", p.trans_a ? p.k : p.m, p.lda, p.stride_a},
                                               {"b", p.trans_b ? p.n : p.k, p.ldb, p.stride_b},
                                               {"c", p.m, p.ldc, p.stride_c}})
    if (double(rows) * double(ld) + double(p.batch) * double(stride) > 0x1p60)
      return text::cat(what, " spans more than 2^60 elements: its sizes, leading dimension or stride");
  if (p.batch > 1 && p.stride_c < extent(1, 0, p.m, p.columns(), p.ldc))
    return text::cat("stride_c = ", p.stride_c, " lets the batches of c overlap");
  return {};
}

namespace {

// Factors of op(A) and op(B) that a scaled problem reads.
std::pair<std::uint64_t, std::uint64_t> scale_sizes(const GemmProblem& p) {
  switch (p.scaling) {
    case GemmScaling::none:
      return {0, 0};
    case GemmScaling::tensor:
      return {1, 1};
    case GemmScaling::channel:
      return {p.m, p.n};
    default:
      return {p.batch * p.m * ceil_div(p.k, 128), p.batch * ceil_div(p.n, 128) * ceil_div(p.k, 128)};
  }
}

}  // namespace

void gemm(runtime::Stream& s, const GemmProblem& q, const DeviceArray& a, const DeviceArray& b,
          const DeviceArray& c, const GemmScales& f, bool padded_ldc) {
  if (auto why = reject(q); !why.empty()) throw ArgumentError(text::cat("gemm: ", why));
  const GemmProblem p = q.dense();
  const auto check = [](const char* what, const DeviceArray& have, DType type, std::uint64_t need) {
    if (have.type != type)
      throw ArgumentError({text::cat("gemm: ", what, " must have the problem's type"),
                           {},
                           text::cat("it holds ", name(have.type), ", the problem says ", name(type)),
                           {}});
    if (have.size < need)
      throw ArgumentError({text::cat("gemm: ", what, " is too short for the problem"),
                           {},
                           text::cat("it has ", have.size, " elements, sizes and strides need ", need),
                           {}});
  };
  check("a", a, p.type, p.a_elements());
  check("b", b, *p.type_b, p.b_elements());
  check("c", c, *p.type_c, p.c_elements() + (padded_ldc && p.c_elements() ? c_padding(p) : 0));
  const auto [for_a, for_b] = scale_sizes(p);
  if (for_a || for_b) {
    check("factors.a", f.a, DType::f32, for_a);
    check("factors.b", f.b, DType::f32, for_b);
  }
  const GemmAddresses at{a.address, b.address, c.address, f.a.address, f.b.address, padded_ldc};
  auto& planner = GemmPlanner::of(s.device());
  if (planner.may_tune(p, at)) tune_gemm(s, planner, p, at);
  run_gemm(s, *planner.choose(p, at), p, at);
}

template <class T>
void gemm(runtime::Stream& s, const GemmProblem& p, const runtime::Slice<const T>& a,
          const runtime::Slice<const T>& b, const runtime::Slice<T>& c) {
  gemm(s, p, DeviceArray(a), DeviceArray(b), DeviceArray(c));
}
template void gemm(runtime::Stream&, const GemmProblem&, const runtime::Slice<const float>&,
                   const runtime::Slice<const float>&, const runtime::Slice<float>&);
template void gemm(runtime::Stream&, const GemmProblem&, const runtime::Slice<const half>&,
                   const runtime::Slice<const half>&, const runtime::Slice<half>&);
template void gemm(runtime::Stream&, const GemmProblem&, const runtime::Slice<const bfloat16>&,
                   const runtime::Slice<const bfloat16>&, const runtime::Slice<bfloat16>&);

// ---------------------------------------------------------------- the case
namespace {

class GemmCase : public Case {
 public:
  GemmCase(const runtime::Device& d, const GemmProblem& q, const std::string& kind, std::uint32_t columns,
           HostArray a, HostArray b, HostArray c)
      : p_(q.dense()),
        host_a_(std::move(a)),
        host_b_(std::move(b)),
        host_c_(std::move(c)),
        a_(d.alloc<std::byte>(host_a_.bytes.size(), "a")),
        b_(d.alloc<std::byte>(host_b_.bytes.size(), "b")),
        c_(d.alloc<std::byte>(host_c_.bytes.size(), "c")) {
    if (auto wrong = reject(q); !wrong.empty()) throw ArgumentError(text::cat("gemm: ", wrong));
    a_.upload(host_a_.bytes);
    b_.upload(host_b_.bytes);
    c_.upload(host_c_.bytes);
    choice_ = choose_gemm(kind, p_, addresses(), d.info(), columns);
    variant = choice_.variant.name, why = choice_.why;
    images = {image(choice_.variant, d.info().arch)};
    flops = p_.flops();
    bytes = double(host_a_.bytes.size() + host_b_.bytes.size() + host_c_.bytes.size()) * 1.0 +
            (p_.beta != 0 ? double(host_c_.bytes.size()) : 0);
  }
  void launch(runtime::Stream& s) override {
    if (p_.beta != 0) s.upload(c_, host_c_.bytes);  // so that every launch starts from the same c
    run_gemm(s, choice_, p_, addresses());
  }
  std::vector<NamedArray> outputs() override {
    HostArray c(host_c_.dtype, host_c_.shape);
    c_.download(c.bytes);
    return {{"c", std::move(c)}};
  }
  Check verify() override { return check_gemm(p_, host_a_, host_b_, host_c_, outputs()[0].array); }

 private:
  GemmAddresses addresses() const { return {a_.address(), b_.address(), c_.address()}; }
  GemmProblem p_;
  HostArray host_a_, host_b_, host_c_;
  runtime::Buffer<std::byte> a_, b_, c_;
  GemmChoice choice_;
};

std::vector<std::uint64_t> stored(std::uint64_t batch, bool trans, std::uint64_t rows, std::uint64_t cols) {
  return {batch, trans ? cols : rows, trans ? rows : cols};
}

// Sizes that given matrices imply; the last two dimensions count, one before them is the batch.
void take_sizes(GemmProblem& p, const HostArray* a, const HostArray* b) {
  const auto dims = [](const HostArray& h, const char* what) {
    if (h.shape.size() != 2 && h.shape.size() != 3)
      throw ArgumentError(
          {text::cat("gemm: ", what, " must have 2 or 3 dimensions"), {}, describe_shape(h.shape), {}});
    return std::pair(h.shape[h.shape.size() - 2], h.shape.back());
  };
  if (a) {
    const auto [r, c] = dims(*a, "a");
    p.type = a->dtype, p.m = p.trans_a ? c : r, p.k = p.trans_a ? r : c;
    p.batch = a->shape.size() == 3 ? a->shape[0] : 1;
  }
  if (b) {
    const auto [r, c] = dims(*b, "b");
    const std::uint64_t k = p.trans_b ? c : r;
    if (a && k != p.k)
      throw ArgumentError(
          {"gemm: a and b must agree on k", {}, text::cat("a has k = ", p.k, ", b has k = ", k), {}});
    p.type = b->dtype, p.n = p.trans_b ? r : c, p.k = k;
    if (!a) p.batch = b->shape.size() == 3 ? b->shape[0] : 1;
  }
}

// A given matrix may leave out a batch of one.
HostArray operand(const std::vector<NamedArray>& given, std::string_view name, DType t,
                  std::vector<std::uint64_t> shape, std::uint64_t seed) {
  if (const HostArray* h = find_input(given, name); h && h->shape.size() == 2 && shape[0] == 1)
    shape.erase(shape.begin());
  return input_or_random(given, name, t, shape, seed);
}

std::unique_ptr<Case> prepare(const runtime::Device& d, const Options& o,
                              const std::vector<NamedArray>& given, std::uint64_t seed) {
  const DType legal[] = {DType::f32, DType::f16, DType::bf16};
  const std::string_view layouts[] = {"nn", "nt", "tn", "tt"};
  std::vector<std::string_view> kinds{"auto", "packed"};
  for (const auto& f : gemm_families()) kinds.push_back(f.name);
  GemmProblem p;
  const auto layout = o.choice("layout", layouts);
  p.trans_a = layout[0] == 't', p.trans_b = layout[1] == 't';
  p.type = o.dtype("dtype", legal);
  p.m = o.size("m"), p.n = o.size("n"), p.k = o.size("k"), p.batch = o.size("batch");
  p.alpha = float(o.real("alpha")), p.beta = float(o.real("beta"));
  take_sizes(p, find_input(given, "a"), find_input(given, "b"));
  if (const HostArray* a = find_input(given, "a"))
    o.agree("a", *a, {{"m", p.m}, {"k", p.k}, {"batch", p.batch}});
  if (const HostArray* b = find_input(given, "b"))
    o.agree("b", *b, {{"k", p.k}, {"n", p.n}, {"batch", p.batch}});
  if (auto why = reject(p); !why.empty()) throw ArgumentError(text::cat("gemm: ", why));
  auto a = operand(given, "a", p.type, stored(p.batch, p.trans_a, p.m, p.k), seed);
  auto b = operand(given, "b", p.type, stored(p.batch, p.trans_b, p.k, p.n), seed + 1);
  auto c = operand(given, "c", p.type, {p.batch, p.m, p.n}, seed + 2);
  const auto columns = o.size("columns");
  if (columns != 0 && (columns < 96 || columns > 256 || columns % 16))
    throw ArgumentError(text::cat("gemm: columns = ", columns, "; tiles have 96 to 256 in steps of 16"));
  return std::make_unique<GemmCase>(d, p, o.choice("variant", kinds), std::uint32_t(columns), std::move(a),
                                    std::move(b), std::move(c));
}

}  // namespace

namespace {
// Without the order of tiles, the number of stages and the eviction policies: two configs that differ there
// alone have the same registers.
GemmConfig form_of(GemmConfig c) {
  c.stages = c.group = c.evict_a = c.evict_b = c.evict_c = 0, c.raster_grid = false;
  return c;
}
}  // namespace

KernelEntry gemm_entry() {
  KernelEntry e;
  e.name = "gemm";
  e.summary = "c = alpha * op(a) * op(b) + beta * c, fp32 sums";
  e.options = {{"dtype", "bf16", "f32, f16 or bf16"},
               {"layout", "nt", "of a and b: n as multiplied, t transposed"},
               {"m", "1024", "rows of c"},
               {"n", "1024", "columns of c"},
               {"k", "1024", "length of the sums"},
               {"batch", "1", "independent products"},
               {"alpha", "1", "scale of the product"},
               {"beta", "0", "scale of the old c"},
               {"columns", "0",
                "of a tile of the sm100 kinds, 128 or 256, or of sm90_stream_k, 112 to 256; "
                "0: chosen"},
               {"variant", "auto",
                "auto, packed, naive, simt, misaligned, sm80, skinny, sm90, sm90_cluster_split_k, "
                "sm90_persistent, sm90_stream_k, sm90_small_m, sm90_split_k, sm90_pingpong, or a "
                "step of sm100: sm100_tiled, "
                "_swizzled, _pipelined, _specialised, _persistent, _stealing, _multicast or _pair"}};
  e.inputs = {"a", "b", "c"};
  e.images = [](std::string_view arch) {
    std::vector<Variant> all;
    std::set<std::string> forms;
    for (DType t : {DType::f32, DType::f16, DType::bf16}) {
      all.push_back(gemm_naive(t));
      for (auto& v : gemm_sm100_variants(t)) all.push_back(std::move(v));
      for (bool ta : {false, true})
        for (bool tb : {false, true}) {
          all.push_back(gemm_simt(t, ta, tb));
          if (t == DType::f32) continue;
          if (t == DType::bf16) {
            runtime::DeviceInfo any;
            any.arch = "sm_80", any.cc_major = 8;
            all.push_back(
                gemm_misaligned_candidates(
                    {.type = t, .trans_a = ta, .trans_b = tb, .m = 1, .n = 33, .k = 77, .lda = 99, .ldb = 99},
                    {}, any)[0]
                    .variant);
          }
          if (t == DType::bf16 && ta != tb)
            for (int tile = 0; tile < 4; ++tile)
              all.push_back(gemm_misaligned(t, ta, tb, tile, 1, tile % 2 ? 8 : 1, 1 + tile % 2));
          for (auto [bm, bn] : {std::pair{128, 128}, {64, 128}, {64, 64}})
            if (bm == 128 || (t == DType::bf16 && ta != tb)) all.push_back(gemm_sm80(t, ta, tb, bm, bn));
          for (int bn : {128, 256}) all.push_back(gemm_sm90(t, ta, tb, bn));
          // What the selector takes differs only in numbers: all tilings of one type and layout, few of the
          // others.
          runtime::DeviceInfo h;
          h.arch = "sm_90a", h.cc_major = 9, h.sm_count = 132;
          const bool every = t == DType::bf16 && !ta && tb;
          std::size_t i = 0, j = 0;
          for (const auto& [m, n, k] :
               {std::array<std::uint64_t, 3>{4096, 4096, 4096}, {768, 768, 768}, {96, 96, 16384}}) {
            const GemmProblem p{.type = t, .trans_a = ta, .trans_b = tb, .m = m, .n = n, .k = k};
            if (every || m == 4096)
              for (auto& c : gemm_candidates_sm90(p, {}, h)) {
                // Those of sm90_persistent are one function: a few, and its largest below.
                const bool persistent = c.kind == GemmFamily::sm90_persistent;
                if (forms.insert(print(form_of(c.variant.config))).second &&
                    (persistent ? j++ % 12 == 0 : every || i++ % 5 == 0))
                  all.push_back(std::move(c.variant));
              }
          }
          // The most registers that tiles of sm90_persistent take.
          using S = GemmPersistentShape;
          if (every)
            for (const S& s :
                 {S{.rows = 256, .cols = 192, .cluster = 2},
                  {.rows = 256, .cols = 208, .swap_ab = true},
                  {.rows = 192, .cols = 192},
                  {.rows = 192, .cols = 192, .swap_ab = true},
                  {.rows = 128, .cols = 384, .swap_ab = true},
                  {.rows = 128, .cols = 384},
                  {.rows = 256,
                  .cols = 192,
                  .cluster = 4,
                  .shared = GemmShared::both,
                  .non_persistent = true},
                  {.rows = 192, .cols = 192, .swap_ab = true, .cluster = 2, .non_persistent = true},
                  {.rows = 128, .cols = 320, .swap_ab = true, .non_persistent = true},
                  {.rows = 256, .cols = 192, .source_c = true},
                  {.rows = 256, .cols = 192, .swap_ab = true, .source_c = true, .non_persistent = true},
                  {.rows = 192, .cols = 192, .swap_ab = true, .source_c = true}})
              all.push_back(gemm_persistent_sm90(t, ta, tb, s));
          else if (t == DType::bf16 && !ta)
            all.push_back(gemm_persistent_sm90(t, ta, tb, {.rows = 256, .cols = 192, .swap_ab = true}));
          if (!ta && tb)
            for (std::uint64_t m : {1, 16})
              all.push_back(
                  select_gemm({.type = t, .trans_b = true, .m = m, .n = 4096, .k = 4096}, {}, h).variant);
        }
      for (int matrices : {1, 2, 3}) all.push_back(gemm_pack(matrices));
      all.push_back(gemm_split_k_reduce_f32(t));
      if (t == DType::f32)
        for (auto& v : gemm_f32_rows_variants()) all.push_back(std::move(v));
      if (t != DType::f32) all.push_back(gemm_split_k_reduce(t, 16));
    }
    return images(all, arch);
  };
  e.prepare = prepare;
  return e;
}

}  // namespace cgp::kernels
