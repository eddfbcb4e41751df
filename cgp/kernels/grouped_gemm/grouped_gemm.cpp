// SPDX-License-Identifier: Apache-2.0
// grouped_gemm on the host: checks, selection and launches.
#include "cgp/kernels/grouped_gemm/grouped_gemm.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/gemm/workspace/gemm_arrange.h"
#include "cgp/kernels/schedule/grouped_tiles.h"

namespace cgp::kernels {
namespace {

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }
runtime::Arg address(std::uint64_t a) { return runtime::Arg::address(a); }
constexpr std::uint64_t kMax32 = 0x7fffffffull;

std::uint64_t element(const GroupedProblem& p) { return std::uint64_t(cgp::bytes(p.type)); }
bool pairs(const GroupedProblem& p) { return p.epilogue.pairing() != Pairing::none; }

// What epilogues and gemm's own checks are told: all rows as one product.
GemmProblem one_product(const GroupedProblem& p) {
  GemmProblem g;
  g.type = p.type, g.trans_b = p.trans_b, g.m = p.form == GroupedForm::rows ? p.rows : p.m;
  g.n = p.n, g.k = p.k, g.alpha = p.alpha, g.beta = p.beta, g.type_b = p.type_b, g.type_c = p.type_c;
  g.precision = p.precision, g.epilogue = p.epilogue;
  return g.dense();
}

}  // namespace

std::string_view name(GroupedForm f) {
  constexpr std::string_view names[] = {"rows", "depth", "problems"};
  return names[int(f)];
}
std::string_view name(GroupedKind k) {
  constexpr std::string_view names[kGroupedKinds] = {"simt", "sm80", "sm90", "mixed_sm90"};
  return names[int(k)];
}

double GroupedProblem::flops() const {
  return 2.0 * double(rows) * double(n) * double(form == GroupedForm::depth ? m : k);
}

GroupedProblem GroupedProblem::whole() const {
  GroupedProblem p = *this;
  const auto g = GemmProblem{.type = type, .type_b = type_b, .type_c = type_c}.dense();
  p.type_b = g.type_b, p.type_c = g.type_c;
  return p;
}
bool GroupedProblem::plain() const {
  return GemmProblem{
             .type = type, .type_b = type_b, .type_c = type_c, .scaling = scaling, .epilogue = epilogue}
             .plain() &&
         beta == 0 && !trans_a;
}
Epilogue grouped_epilogue(const GroupedProblem& p, const GroupedAddresses& at) {
  return epilogue::of_problem(one_product(p), {0, 0, at.c});
}

std::string reject(const GroupedProblem& p) {
  GemmProblem types = one_product(p);
  types.scaling = p.scaling;
  if (types.m && types.n)  // sizes of items are not known here
    if (auto why = reject(types); !why.empty()) return why;
  if (p.scaling != GemmScaling::none && p.scaling != GemmScaling::tensor && p.form != GroupedForm::rows)
    return text::cat("scaling = ", name(p.scaling), ": the form ", name(p.form),
                     " takes scales of whole operands");
  if (p.trans_a && p.form != GroupedForm::problems) return "trans_a is for the form problems";
  for (const auto& s : p.epilogue.stages())
    if (s->name == "amax") return "epilogue: blocks of rows of a group are not blocks of C: no amax";
  const std::pair<const char*, std::uint64_t> sizes[] = {
      {"groups", p.groups}, {"rows", p.rows}, {"m", p.m}, {"n", p.n}, {"k", p.k}, {"a_rows", p.a_rows}};
  for (const auto& [what, size] : sizes)
    if (size > kMax32)
      return text::cat(what, " = ", size, ": one operand has at most 2^31 - 1 rows or columns");
  return {};
}

std::string reject(GroupedKind kind, const GroupedProblem& p, const GroupedAddresses& at,
                   const runtime::DeviceInfo& d) {
  const auto q = p.whole();
  if (kind == GroupedKind::mixed_sm90) {
    if (d.arch != "sm_90a") return text::cat("wgmma is sm_90a's alone, this is ", d.arch);
    if (p.form != GroupedForm::rows) return text::cat("mixed_sm90 has the form rows, not ", name(p.form));
    if (p.type == DType::f32 && p.precision != GemmPrecision::fast) return "f32 without rounding to tf32";
    if (p.k == 0) return "k = 0: there is no product to compute";
    if (at.index && (p.k * element(p) % 16 || at.a % 16))
      return text::cat("k = ", p.k, ": rows named by an index are gathered 16 bytes at a time");
    if (at.c % 16 || p.columns() * std::uint64_t(cgp::bytes(*q.type_c)) % 16)
      return "c or its rows do not lie at multiples of 16 bytes";
    if (p.scaling == GemmScaling::block && p.epilogue.pairing() == Pairing::halves && p.n / 2 % 128)
      return "halves that end inside a block of 128 columns";
    return {};
  }
  if (kind != GroupedKind::simt && !p.plain()) return text::cat(name(kind), " multiplies plain problems");
  if ((p.type == DType::bf16 || q.type_c == DType::bf16) && d.cc() < 80)
    return text::cat("bf16 needs sm_80 or later, this is ", d.arch);
  if (kind == GroupedKind::simt) return {};
  if (p.type == DType::f32) return text::cat(name(kind), " multiplies 16-bit types, not f32");
  if (d.cc() < 80) return text::cat("cp.async and bf16 mma need sm_80 or later, this is ", d.arch);
  if (kind == GroupedKind::sm80 && p.form == GroupedForm::problems)
    return "sm80 does not take items with addresses of their own";
  if (kind == GroupedKind::sm90 && d.arch != "sm_90a")
    return text::cat("wgmma is sm_90a's alone, this is ", d.arch);
  if (p.form == GroupedForm::problems) return {};  // item by item, on the device
  const bool depth = p.form == GroupedForm::depth;
  if (!depth && p.k == 0) return "k = 0: there is no product to compute";
  const auto row = [&](const char* what, std::uint64_t n) {
    return n * element(p) % 16 ? text::cat(what, " = ", n, ": rows are not multiples of 16 bytes apart")
                               : std::string();
  };
  if (auto why = row("n", p.n); !why.empty()) return why;
  if (auto why = depth ? row("m", p.m) : row("k", p.k); !why.empty()) return why;
  if ((at.a | at.b | at.c) % 16) return "a, b or c does not start at a multiple of 16 bytes";
  if (at.index) return text::cat(name(kind), " reads rows of a behind each other, not by an index");
  return {};
}

GroupedChoice select_grouped_gemm(const GroupedProblem& p, const GroupedAddresses& at,
                                  const runtime::DeviceInfo& d) {
  const auto typed = [&](const char* why) {
    const auto t = grouped_mixed_tuning(p);
    return GroupedChoice{GroupedKind::mixed_sm90,
                         grouped_mixed_sm90(p, t),
                         why,
                         {t.bn, t.stages, t.buffers, t.band},
                         at.index != 0};
  };
  const auto not_mixed = reject(GroupedKind::mixed_sm90, p, at, d);
  if (!p.plain()) {
    if (not_mixed.empty()) return typed("TMA and wgmma, any types");
    return {GroupedKind::simt, grouped_simt(p), text::cat("no tensor cores: ", not_mixed)};
  }
  // Copying the rows that an index names, 16 bytes at a time, costs reading and writing A once.
  if (at.index && p.form == GroupedForm::rows && p.k * element(p) % 16 == 0 && at.a % 16 == 0) {
    GroupedAddresses gathered = at;
    gathered.index = 0;
    auto c = select_grouped_gemm(p, gathered, d);
    if (c.kind != GroupedKind::simt) {
      c.gather = true;
      c.why = text::cat("rows of a are gathered first; ", c.why);
      return c;
    }
  }
  if (auto why = reject(GroupedKind::sm90, p, at, d); !why.empty()) {
    if (not_mixed.empty() && p.type != DType::f32 && p.form == GroupedForm::rows)
      return typed("TMA and wgmma; misaligned rows go through scratch memory");
    if (auto not_sm80 = reject(GroupedKind::sm80, p, at, d); !not_sm80.empty())
      return {GroupedKind::simt, grouped_simt(p), text::cat("no tensor cores: ", not_sm80)};
    return {GroupedKind::sm80, grouped_sm80(p.type, p.form, p.trans_b),
            text::cat("mma.sync; not sm90: ", why)};
  }
  GroupedTuning t;
  if (p.form == GroupedForm::problems)
    return {GroupedKind::sm90, grouped_problems_sm90(p.type, p.trans_b, t).products,
            "TMA and wgmma; items with misaligned rows without tensor cores", t};
  if (p.n <= 128) t = {128, 6, 2, 8};
  return {
      GroupedKind::sm90,
      p.form == GroupedForm::depth ? grouped_depth_sm90(p.type, t) : grouped_rows_sm90(p.type, p.trans_b, t),
      "TMA and wgmma", t};
}

// ---------------------------------------------------------------- launches
namespace {

// [batches, rows, cols], rows of `ld` elements.
runtime::TensorMap map_of(runtime::Stream& s, const runtime::LoadedKernel& fn, std::size_t param,
                          std::uint64_t at, std::uint64_t batches, std::uint64_t rows, std::uint64_t cols,
                          std::uint64_t plane_bytes, std::uint64_t row_bytes) {
  auto spec = tensor_map_spec(fn.image(), param);
  spec.dims = {cols, rows, batches};
  spec.strides = {row_bytes, plane_bytes};
  spec.l2 = runtime::L2Promotion::b128;
  return s.device().tensor_map(spec, at);
}
// Rows that end where a group ends: grouped_tiles.h.
runtime::TensorMap clipped_map(runtime::Stream& s, const runtime::LoadedKernel& fn, std::size_t param,
                               std::uint64_t at, std::uint64_t rows, std::uint64_t cols,
                               std::uint64_t row_bytes) {
  auto spec = tensor_map_spec(fn.image(), param);
  spec.dims = {cols, kClipWrap, rows + 1, kClipWrap + 1};
  spec.strides = {row_bytes, row_bytes, (std::uint64_t(1) << 34) - row_bytes};
  spec.l2 = runtime::L2Promotion::b128;
  return s.device().tensor_map(spec, at);
}

// Where blocks take their tiles from, set to 0 before the kernel.
constexpr std::uint64_t kCounterBytes = 256;
std::uint64_t zero_counter(runtime::Stream& s) {
  const std::uint64_t at = s.scratch(kCounterBytes);
  s.fill({s.device().backend().get(), at, 4}, 0);
  return at;
}

// As many blocks as run at the same time, `min_blocks` of them on an SM; none without a tile.
runtime::Dim3 grid_of(runtime::Stream& s, std::uint64_t most, std::uint64_t min_blocks = 1) {
  const auto sms = std::uint64_t(std::max(1, s.device().info().sm_count));
  return {std::uint32_t(std::min(std::max<std::uint64_t>(most, 1), sms * min_blocks)), 1, 1};
}
void check_tiles(std::uint64_t tiles) {
  if (tiles > kMax32)
    throw Unsupported(text::cat("grouped_gemm: ", tiles, " tiles are more than one launch counts"));
}

void launch_rows_sm90(runtime::Stream& s, const runtime::LoadedKernel& fn, const GroupedProblem& p,
                      const GroupedAddresses& at, const GroupedTuning& tune) {
  const auto e = element(p);
  const auto a = map_of(s, fn, 0, at.a, 1, p.rows, p.k, p.rows * p.k * e, p.k * e);
  const std::uint64_t b_rows = p.trans_b ? p.n : p.k, b_cols = p.trans_b ? p.k : p.n;
  const auto b = map_of(s, fn, 1, at.b, p.groups, b_rows, b_cols, b_rows * b_cols * e, b_cols * e);
  const auto c = clipped_map(s, fn, 2, at.c, p.rows, p.n, p.n * e);
  const std::uint64_t cols = ceil_div(p.n, std::uint64_t(tune.bn));
  // At most one partly filled tile a group.
  const std::uint64_t most = (p.rows / 128 + std::min(p.groups, p.rows)) * cols;
  check_tiles(most);
  fn(s, grid_of(s, most), a, b, c, address(at.ends), std::uint32_t(p.wide_ends), std::uint32_t(p.groups),
     std::uint32_t(p.rows), std::uint32_t(cols), std::uint32_t(ceil_div(p.k, 64)), address(zero_counter(s)),
     p.alpha);
}

void launch_depth_sm90(runtime::Stream& s, const runtime::LoadedKernel& fn, const GroupedProblem& p,
                       const GroupedAddresses& at, const GroupedTuning& tune) {
  const auto e = element(p);
  const auto a = clipped_map(s, fn, 0, at.a, p.rows, p.m, p.m * e);
  const auto b = clipped_map(s, fn, 1, at.b, p.rows, p.n, p.n * e);
  const auto c = map_of(s, fn, 2, at.c, p.groups, p.m, p.n, p.m * p.n * e, p.n * e);
  const std::uint64_t tm = ceil_div(p.m, 128), tn = ceil_div(p.n, std::uint64_t(tune.bn));
  check_tiles(p.groups * tm * tn);
  fn(s, grid_of(s, p.groups * tm * tn), a, b, c, address(at.ends), std::uint32_t(p.wide_ends),
     std::uint32_t(p.groups), std::uint32_t(p.rows), std::uint32_t(tm), std::uint32_t(tn),
     std::uint32_t(p.groups * tm * tn), address(zero_counter(s)), p.alpha);
}

// Items with k > 0 and aligned rows by TMA, then the rest.
void launch_problems_sm90(runtime::Stream& s, const GroupedProblem& p, const GroupedAddresses& at,
                          const GroupedTuning& tune) {
  const auto v = grouped_problems_sm90(p.type, p.trans_b, tune);
  const auto maker = load(s.device(), v.maps), fn = load(s.device(), v.products);
  const std::uint64_t maps = s.scratch(kCounterBytes + p.groups * 3 * kGroupedMapBytes) + kCounterBytes,
                      e = element(p);
  // Patterns: the device replaces address, extents and strides.
  const auto pattern = [&](std::size_t param) {
    return map_of(s, maker, param, maps, 1, 64, 64, 64 * 64 * e, 64 * e);
  };
  const auto a = pattern(0), b = pattern(1), c = pattern(2);
  const auto count = std::uint32_t(p.groups);
  maker(s, runtime::Dim3{count, 1, 1}, a, b, c, address(at.items), count, address(maps));
  fn(s, grid_of(s, kMax32), a, b, c, address(at.items), count, address(maps), address(zero_counter(s)),
     p.alpha);
}
// Behind the parameters of a form: those that all simt kernels have.
std::vector<runtime::Arg> with_tail(std::vector<runtime::Arg> args, const GroupedProblem& p,
                                    const GroupedAddresses& at) {
  args.insert(args.end(),
              {runtime::arg(p.alpha), runtime::arg(p.beta), address(at.scale_a), address(at.scale_b)});
  for (const auto& x : p.epilogue.arguments(one_product(p))) args.push_back(x);
  return args;
}
runtime::Arg word(std::uint64_t v) { return runtime::arg(std::uint32_t(v)); }

void launch_problems_simt(runtime::Stream& s, const GroupedProblem& p, const GroupedAddresses& at,
                          bool every) {
  const auto fn = load(s.device(), grouped_simt(p));
  fn.launch(s, runtime::Launch{.grid = grid_of(s, kMax32, 4)},
            with_tail({address(at.items), word(p.groups), word(every)}, p, at));
}

// A's rows behind each other.
std::uint64_t gathered_bytes(const GroupedProblem& p) {
  return ceil_div(p.rows * p.k * element(p), 256) * 256;
}
void gather(runtime::Stream& s, const GroupedProblem& p, const GroupedAddresses& at, std::uint64_t to) {
  load(s.device(), grouped_gather())(s, runtime::grid_for(p.rows, 1), address(at.a), address(to),
                                     address(at.index), std::uint32_t(p.a_rows ? p.a_rows : p.rows),
                                     std::uint32_t(p.k * element(p) / 16));
}

// Rows at multiples of 128 bytes with K contiguous, in scratch memory where they are not.
struct Arranged {
  GemmMatrix from, at;
  std::uint64_t batches, bytes = 0;
  Arranged(const GemmMatrix& m, DType t, std::uint64_t batches) : from(m), at(m), batches(batches) {
    const auto e = std::uint64_t(cgp::bytes(t));
    if (!m.transposed && m.address % 16 == 0 && m.ld * e % 16 == 0) return;
    at.ld = ceil_div(m.cols * e, 128) * 128 / e, at.stride = at.ld * m.rows, at.transposed = false;
    bytes = ceil_div(at.stride * batches * e, 256) * 256;
  }
  void move(runtime::Stream& s, DType t, std::uint64_t& scratch) {
    if (!bytes) return;
    at.address = scratch, scratch += bytes;
    run_gemm_arrange(s, from, at, cgp::bytes(t), false, batches);
  }
};

void launch_mixed_sm90(runtime::Stream& s, const GroupedChoice& choice, const GroupedProblem& q,
                       const GroupedAddresses& at) {
  const auto p = q.whole();
  const bool indexed = at.index != 0;
  const auto t = grouped_mixed_tuning(p);
  Arranged a({at.a, p.rows, p.k, p.k, p.rows * p.k, false}, p.type, 1),
      b({at.b, p.n, p.k, p.trans_b ? p.k : p.n, p.n * p.k, !p.trans_b}, *p.type_b, p.groups);
  std::uint64_t scratch = s.scratch(kCounterBytes + a.bytes + b.bytes + (indexed ? gathered_bytes(p) : 0));
  const auto counter = scratch;
  s.fill({s.device().backend().get(), counter, 4}, 0);
  scratch += kCounterBytes;
  if (indexed) {  // their rows are multiples of 16 bytes: reject()
    gather(s, p, at, scratch);
    a.at.address = a.from.address = scratch;
    scratch += gathered_bytes(p);
  }
  a.move(s, p.type, scratch), b.move(s, *p.type_b, scratch);
  const auto fn = load(s.device(), choice.variant);
  const auto e = element(p), ec = std::uint64_t(cgp::bytes(*p.type_c));
  const auto map_a = map_of(s, fn, 0, a.at.address, 1, p.rows, p.k, p.rows * a.at.ld * e, a.at.ld * e);
  auto spec = tensor_map_spec(fn.image(), 1);
  const std::uint64_t row = b.at.ld * e, plane = b.at.stride * e;
  const bool halves = p.epilogue.pairing() == Pairing::halves;
  if (pairs(p))
    spec.dims = {p.k, p.n / 2, 2, p.groups},
    spec.strides = {row * (halves ? 1 : 2), row * (halves ? p.n / 2 : 1), plane};
  else
    spec.dims = {p.k, p.n, p.groups}, spec.strides = {row, plane};
  spec.l2 = runtime::L2Promotion::b128;
  const auto map_b = s.device().tensor_map(spec, b.at.address);
  const bool scaled = p.scaling != GemmScaling::none;
  const auto map_c = clipped_map(s, fn, scaled ? 15 : 10, at.c, p.rows, p.columns(), p.columns() * ec);
  const std::uint64_t cols = ceil_div(p.n, std::uint64_t(t.bn)),
                      most = (p.rows / std::uint64_t(t.bm) + std::min(p.groups, p.rows)) * cols;
  check_tiles(most);
  std::vector<runtime::Arg> args{runtime::Arg::tensor_map(map_a),
                                 runtime::Arg::tensor_map(map_b),
                                 address(at.ends),
                                 word(p.wide_ends),
                                 word(p.groups),
                                 word(p.rows),
                                 word(p.n),
                                 word(cols),
                                 word(ceil_div(p.k * e, 128)),
                                 address(counter)};
  if (scaled)
    args.insert(args.end(), {address(at.scale_a), address(at.scale_b), address(at.index), word(indexed),
                             word(p.a_rows ? p.a_rows : p.rows)});
  args.push_back(runtime::Arg::tensor_map(map_c));
  for (const auto& x : grouped_epilogue(p, at).arguments(one_product(p))) args.push_back(x);
  fn.launch(s, runtime::Launch{.grid = grid_of(s, most)}, args);
}

void launch_simt(runtime::Stream& s, const runtime::LoadedKernel& fn, const GroupedProblem& p,
                 const GroupedAddresses& at) {
  const std::uint64_t tn = ceil_div(p.n, 64);
  if (p.form == GroupedForm::depth) {
    const std::uint64_t tm = ceil_div(p.m, 64), tiles = tm * tn * p.groups;
    check_tiles(tiles);
    fn.launch(
        s, runtime::Launch{.grid = grid_of(s, tiles, 4)},
        with_tail({address(at.ends), word(p.wide_ends), word(p.groups), word(p.rows), word(p.m), word(p.n),
                   word(tm), word(tn), word(tiles), address(at.a), address(at.b), address(at.c)},
                  p, at));
    return;
  }
  const std::uint64_t most = (p.rows / 64 + std::min(p.groups, p.rows)) * tn;
  check_tiles(most);
  fn.launch(s, runtime::Launch{.grid = grid_of(s, most, 4)},
            with_tail({address(at.ends), address(at.index), word(at.index != 0), word(p.wide_ends),
                       word(p.groups), word(p.rows), word(p.a_rows ? p.a_rows : p.rows), word(p.n), word(p.k),
                       word(tn), address(at.a), address(at.b), address(at.c)},
                      p, at));
}

void launch_sm80(runtime::Stream& s, const runtime::LoadedKernel& fn, const GroupedProblem& p,
                 const GroupedAddresses& at) {
  const std::uint64_t tn = ceil_div(p.n, 128);
  const auto wide = std::uint32_t(p.wide_ends), groups = std::uint32_t(p.groups),
             rows = std::uint32_t(p.rows);
  const auto paired = std::uint32_t(p.n % 2 == 0 && at.c % 4 == 0), n = std::uint32_t(p.n);
  if (p.form == GroupedForm::depth) {
    const std::uint64_t tm = ceil_div(p.m, 128), tiles = tm * tn * p.groups;
    check_tiles(tiles);
    fn(s, grid_of(s, tiles, 2), address(at.a), address(at.b), address(at.c), address(at.ends), wide, groups,
       rows, std::uint32_t(p.m), n, std::uint32_t(tm), std::uint32_t(tn), std::uint32_t(tiles), paired,
       p.alpha);
    return;
  }
  const std::uint64_t most = (p.rows / 128 + std::min(p.groups, p.rows)) * tn;
  check_tiles(most);
  fn(s, grid_of(s, most, 2), address(at.a), address(at.b), address(at.c), address(at.ends), wide, groups,
     rows, n, std::uint32_t(p.k), std::uint32_t(tn), paired, p.alpha);
}

}  // namespace

void run_grouped_gemm(runtime::Stream& s, const GroupedChoice& choice, const GroupedProblem& p,
                      const GroupedAddresses& given) {
  const bool depth = p.form == GroupedForm::depth, problems = p.form == GroupedForm::problems;
  if (p.groups == 0 || (!problems && (p.n == 0 || (depth ? p.m == 0 : p.rows == 0)))) return;
  GroupedAddresses at = given;
  if (choice.gather) at.index = 0;
  p.epilogue.before(s, one_product(p));
  if (auto why = reject(choice.kind, p, at, s.device().info()); !why.empty())
    throw Unsupported(std::move(why));
  if (choice.gather && choice.kind != GroupedKind::mixed_sm90) {
    at.a = s.scratch(kCounterBytes + gathered_bytes(p)) + kCounterBytes;
    gather(s, p, given, at.a);
  }
  if (problems) {
    if (choice.kind == GroupedKind::sm90) launch_problems_sm90(s, p, at, choice.tune);
    return launch_problems_simt(s, p, at, choice.kind == GroupedKind::simt);
  }
  if (choice.kind == GroupedKind::mixed_sm90) {
    at.index = given.index;  // scales belong to rows as they were
    return launch_mixed_sm90(s, choice, p, at);
  }
  const auto fn = load(s.device(), choice.variant);
  if (choice.kind == GroupedKind::simt)
    launch_simt(s, fn, p, at);
  else if (choice.kind == GroupedKind::sm80)
    launch_sm80(s, fn, p, at);
  else if (depth)
    launch_depth_sm90(s, fn, p, at, choice.tune);
  else
    launch_rows_sm90(s, fn, p, at, choice.tune);
}

void run_grouped_items(runtime::Stream& s, std::uint64_t items, std::uint64_t count, std::uint64_t a,
                       std::uint64_t b, std::uint64_t c, const GroupedItem& common) {
  if (count == 0) return;
  load(s.device(), grouped_items())(s, runtime::grid_for(count, 128), address(a), address(b), address(c),
                                    address(items), std::uint32_t(count), common.m, common.n, common.k,
                                    common.lda, common.ldb, common.ldc);
}

void grouped_gemm(runtime::Stream& s, const GroupedProblem& p, const GroupedAddresses& at) {
  if (auto why = reject(p); !why.empty()) throw ArgumentError(text::cat("grouped_gemm: ", why));
  run_grouped_gemm(s, select_grouped_gemm(p, at, s.device().info()), p, at);
}

}  // namespace cgp::kernels
