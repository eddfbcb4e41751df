// SPDX-License-Identifier: Apache-2.0
// gemm of mixed types, with scales and epilogues: which kernel, what is rearranged before and after, and the
// launches.
#include <algorithm>
#include <cmath>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/gemm/api/gemm.h"
#include "cgp/kernels/gemm/api/gemm_tuning.h"
#include "cgp/kernels/gemm/epilogue/gemm_direct_store.h"
#include "cgp/kernels/gemm/select/gemm_calibration.h"
#include "cgp/kernels/gemm/sm90/gemm_mixed_sm90.h"
#include "cgp/kernels/gemm/workspace/gemm_arrange.h"

namespace cgp::kernels {
namespace {

using runtime::Arg;

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }
bool is_fp8(DType t) { return t == DType::e4m3 || t == DType::e5m2; }
bool pairs(const GemmProblem& p) { return p.epilogue.pairing() != Pairing::none; }

// ---------------------------------------------------------------- any
void launch_generic(runtime::Stream& s, const Variant& v, const GemmProblem& p, const GemmAddresses& o,
                    const Epilogue& whole) {
  const auto fn = load(s.device(), v);
  const auto tn = ceil_div(p.columns(), 16);
  auto grid = runtime::grid_for(ceil_div(p.m, 16) * tn, 1);
  for (std::uint64_t first = 0; first < p.batch; first += 65535) {
    grid.z = std::uint32_t(std::min<std::uint64_t>(65535, p.batch - first));
    std::vector<Arg> args{runtime::arg(p.m),
                          runtime::arg(p.n),
                          runtime::arg(p.k),
                          runtime::arg(p.trans_a ? 1 : p.lda),
                          runtime::arg(p.trans_a ? p.lda : 1),
                          runtime::arg(p.trans_b ? 1 : p.ldb),
                          runtime::arg(p.trans_b ? p.ldb : 1),
                          runtime::arg(p.ldc),
                          runtime::arg(p.stride_a),
                          runtime::arg(p.stride_b),
                          runtime::arg(p.stride_c),
                          runtime::arg(std::uint32_t(tn)),
                          runtime::arg(first),
                          Arg::address(o.a),
                          Arg::address(o.b),
                          Arg::address(o.c)};
    if (p.scaling == GemmScaling::block)
      args.insert(args.end(), {Arg::address(o.scale_a), Arg::address(o.scale_b)});
    for (const auto& a : whole.arguments(p)) args.push_back(a);
    fn.launch(s, runtime::Launch{.grid = grid}, args);
  }
}

// ---------------------------------------------------------------- Hopper
// Where an operand lies when the kernel reads it.
struct Operand {
  GemmMatrix at;            ///< rows of op(A), or columns of op(B), by K
  bool rearranged = false;  ///< in scratch memory, K contiguous
};

bool reachable(const GemmMatrix& m, std::uint64_t element, std::uint64_t batch) {
  return m.address % 16 == 0 && m.ld * element % 16 == 0 && (batch == 1 || m.stride * element % 16 == 0);
}

// Rows at multiples of 128 bytes.
GemmMatrix in_scratch(std::uint64_t rows, std::uint64_t cols, std::uint64_t element) {
  GemmMatrix m{0, rows, cols, ceil_div(cols * element, 128) * 128 / element, 0, false};
  m.stride = m.ld * rows;
  return m;
}

struct Forms {
  bool split;  ///< f32 as three bf16
  Operand a, b;
  GemmMatrix from_a, from_b, c, to_c;
  bool scratch_c = false;
  std::uint64_t element, element_c, bytes = 0;  ///< bytes of scratch memory
};

// hopper: pairs come from one box of a tensor map; else from neighbours.
Forms forms_of(const GemmProblem& p, const GemmAddresses& at, bool hopper = true) {
  Forms f;
  const auto stored = std::uint64_t(bytes(p.type));
  f.split = p.type == DType::f32 && p.precision != GemmPrecision::fast;
  f.element = f.split ? 2 : stored, f.element_c = std::uint64_t(bytes(*p.type_c));
  f.from_a = {at.a, p.m, p.k, p.lda, p.stride_a, p.trans_a};
  f.from_b = {at.b, p.n, p.k, p.ldb, p.stride_b, !p.trans_b};
  const auto place = [&](const GemmMatrix& from, bool k_contiguous, bool always = false) {
    Operand o{from};
    o.rearranged =
        always || f.split || !reachable(from, stored, p.batch) || (k_contiguous && from.transposed);
    if (o.rearranged) {
      o.at = in_scratch(from.rows, from.cols, f.element);
      o.at.address = f.bytes;
      f.bytes += ceil_div(p.batch * o.at.stride * f.element * (f.split ? 3 : 1), 256) * 256;
    }
    return o;
  };
  f.a = place(f.from_a, stored != 2);
  f.b = place(f.from_b, stored != 2 || (pairs(p) && hopper),
              !hopper && p.epilogue.pairing() == Pairing::halves);
  f.c = f.to_c = {at.c, p.m, p.columns(), p.ldc, p.stride_c, false};
  // TMA writes whole groups of 16 bytes, also behind the last column.
  if (!reachable(f.c, f.element_c, p.batch) || (!at.padded_ldc && p.columns() * f.element_c % 16)) {
    f.scratch_c = true;
    f.c = in_scratch(p.m, p.columns(), f.element_c);
    f.c.address = f.bytes;
    f.bytes += ceil_div(p.batch * f.c.stride * f.element_c, 256) * 256;
  }
  return f;
}

constexpr std::uint64_t kMax32 = 0x7fffffffull;

bool halved(const GemmProblem& p) { return p.epilogue.pairing() == Pairing::halves; }
// The columns of op(B) of an epilogue over halves, interleaved: what mma.sync kernels expect.
void arrange_operand(runtime::Stream& s, const GemmMatrix& from, const GemmMatrix& to, const GemmProblem& p,
                     bool is_b) {
  if (!is_b || !halved(p)) return run_gemm_arrange(s, from, to, bytes(p.type), false, p.batch);
  GemmMatrix half = from, place = to;
  half.rows = from.rows / 2, place.ld = 2 * to.ld;
  run_gemm_arrange(s, half, place, bytes(p.type), false, p.batch);
  const auto element = std::uint64_t(bytes(p.type));
  half.address += half.rows * (from.transposed ? 1 : from.ld) * element, place.address += to.ld * element;
  run_gemm_arrange(s, half, place, bytes(p.type), false, p.batch);
}

// Why the Hopper kernels cannot run it; empty: they can.
std::string not_hopper(const GemmProblem& p, const runtime::DeviceInfo& d) {
  if (d.arch != "sm_90a") return text::cat("wgmma is sm_90a's alone, this is ", d.arch);
  if (p.k == 0) return "k = 0: there is no product to compute";
  if (p.m > kMax32 || p.n > kMax32 || p.k > kMax32 || p.lda > kMax32 || p.ldb > kMax32)
    return "a size or leading dimension is 2^31 or more";
  if (!stages_results(*p.type_c)) return text::cat("results of type ", name(*p.type_c));
  if (p.type == DType::f32 && p.precision == GemmPrecision::strict) return "strict: no tensor cores";
  return {};
}

bool promoted(const GemmProblem& p) {
  return (is_fp8(p.type) && (p.precision != GemmPrecision::fast || p.scaling == GemmScaling::block)) ||
         (p.type == DType::f32 && p.precision == GemmPrecision::standard);
}

// Tiles that one warpgroup has for itself: gemm_mixed_sm90.h; others are shared.
bool alone(const GemmProblem& p, const GemmMixedTuning& t) {
  return !promoted(p) && t.bm == 128 && (t.bn == 128 || t.bn == 176 || t.bn == 192);
}
// Columns of C that are stored at once: an epilogue subtile.
int subtile_columns(const GemmProblem& p) { return 128 / bytes(*p.type_c); }
// What a warpgroup stores of a tile, in subtiles of 64 rows.
int subtiles(const GemmProblem& p, const GemmMixedTuning& t) {
  const int rows = alone(p, t) || t.bm == 256 ? 2 : 1, columns = pairs(p) ? t.bn / 2 : t.bn;
  return rows * ((columns + subtile_columns(p) - 1) / subtile_columns(p));
}
// Why there is no tile of 176 columns, which are no whole subtiles of 128 bytes.
std::string reject_176(const GemmProblem& p) {
  const auto whole = epilogue::of_problem(p, {});
  if (!whole.empty() && (!whole.pointwise() || bytes(*p.type_c) != 2))
    return "an epilogue of tiles of 176 columns tells elements of 16 bits one by one";
  const bool one = *p.type_b == p.type, wide = bytes(p.type) == 2;
  if (!one || !(wide || p.type == DType::e4m3 || p.type == DType::s8))
    return text::cat("tiles of 176 columns are for two operands of f16, bf16, e4m3 or s8, not ", name(p.type),
                     " and ", name(*p.type_b));
  if (wide && (p.trans_a || !p.trans_b)) return "tiles of 176 columns are for layout nt";
  return {};
}

GemmChoice hopper_choice(const GemmProblem& p, const GemmAddresses& at, const GemmMixedTuning& t) {
  const bool promotes = promoted(p), blocks = p.scaling == GemmScaling::block;
  const auto forms = forms_of(p, at);
  const auto whole = epilogue::of_problem(p, at).in_words(p);
  const GemmConfig config{.family = promotes      ? GemmFamily::sm90_promoted
                                    : alone(p, t) ? GemmFamily::sm90_pingpong
                                                  : GemmFamily::sm90_cooperative,
                          .a = p.type,
                          .b = *p.type_b,
                          .c = *p.type_c,
                          .layout = gemm_layout(forms.a.at.transposed, !forms.b.at.transposed),
                          .tile_m = t.bm,
                          .tile_n = t.bn,
                          .tile_k = 128 / bytes(p.type),
                          .stages = t.stages,
                          .cluster_m = t.cluster,
                          .cluster_n = 1,
                          .group = t.group,
                          .store_buffers = t.buffers,
                          .promote = promotes ? t.promote : 0,
                          .overlap = promotes && t.overlapped,
                          .block_scales = blocks,
                          .epilogue = whole.name()};
  auto name = print(config);
  GemmProblem as = p;
  as.trans_a = forms.a.at.transposed, as.trans_b = !forms.b.at.transposed;
  const MixedTuning tuning{t, *p.type_c, whole, blocks};
  GemmChoice c;
  c.kind = promotes ? GemmFamily::sm90_promoted : GemmFamily::sm90_pingpong;
  c.variant = {promotes             ? gemm_promoted_dynamic(as, std::move(name), tuning)
               : !alone(p, t)       ? gemm_mixed_dynamic(as, std::move(name), tuning)
               : bytes(p.type) == 2 ? gemm_pingpong_16(as, std::move(name), tuning)
                                    : gemm_pingpong_k(as, std::move(name), tuning),
               config};
  c.tile_m = std::uint32_t(t.bm), c.tile_n = std::uint32_t(t.bn), c.cluster = t.cluster;
  c.pack_a = forms.a.rearranged, c.pack_b = forms.b.rearranged, c.pack_c = forms.scratch_c;
  return c;
}

runtime::TensorMap map_of(runtime::Stream& s, const runtime::LoadedKernel& fn, std::size_t param,
                          const GemmMatrix& m, std::uint64_t element, std::uint64_t batch) {
  auto spec = tensor_map_spec(fn.image(), param);
  spec.dims = {m.transposed ? m.rows : m.cols, m.transposed ? m.cols : m.rows, batch};
  spec.strides = {m.ld * element, m.stride * element};
  spec.l2 = runtime::L2Promotion::b128;
  return s.device().tensor_map(spec, m.address);
}
// Columns of op(B) as [batch][half][n / 2][k].
runtime::TensorMap paired_map(runtime::Stream& s, const runtime::LoadedKernel& fn, std::size_t param,
                              const GemmMatrix& m, std::uint64_t element, std::uint64_t batch, Pairing how) {
  auto spec = tensor_map_spec(fn.image(), param);
  const bool halves = how == Pairing::halves;
  spec.dims = {m.cols, m.rows / 2, 2, batch};
  spec.strides = {m.ld * element * (halves ? 1 : 2), m.ld * element * (halves ? m.rows / 2 : 1),
                  m.stride * element};
  spec.l2 = runtime::L2Promotion::b128;
  return s.device().tensor_map(spec, m.address);
}

// ---------------------------------------------------------------- mma.sync and simt
// What both need: sizes and forms of 32 bits, rows that cp.async reaches.
std::string not_mma(const GemmProblem& p, const runtime::DeviceInfo& d) {
  if (d.cc() < 80) return text::cat("cp.async needs sm_80 or later, this is ", d.arch);
  if (is_fp8(p.type) && d.cc() < 89) return text::cat("8-bit floats need sm_89 or later, this is ", d.arch);
  if (p.scaling == GemmScaling::block) return "scales of blocks";
  if (is_fp8(p.type) && d.cc() == 90 && p.precision != GemmPrecision::fast)
    return "accumulators of some 14 bits";
  if (p.k == 0) return "k = 0: there is no product to compute";
  if (p.m > kMax32 || p.n > kMax32 || p.k > kMax32 || p.lda > kMax32 || p.ldb > kMax32)
    return "a size or leading dimension is 2^31 or more";
  if (p.type == DType::f32 && p.precision != GemmPrecision::fast) return "f32 without rounding to tf32";
  return {};
}
bool is_integer(const GemmProblem& p, const Epilogue& whole) {
  return p.type == DType::s8 && p.type_c == DType::s32 && whole.empty();
}

GemmChoice direct_choice(const GemmProblem& p, const GemmAddresses& at, bool simt, bool guarded) {
  const auto whole = epilogue::of_problem(p, at);
  const DirectTuning t{*p.type_c, whole, is_integer(p, whole), guarded};
  GemmConfig config{.a = p.type, .b = *p.type_b, .c = *p.type_c, .epilogue = whole.name()};
  GemmChoice c;
  if (simt) {
    config.family = guarded ? GemmFamily::guarded_simt : GemmFamily::mixed_simt;
    config.layout = gemm_layout(p.trans_a, p.trans_b);
    c.kind = GemmFamily::mixed_simt;
    c.variant = {gemm_mixed_simt(p.trans_a, p.trans_b, print(config), t), config};
  } else {
    const auto f = forms_of(p, at, false);
    config.family = c.kind = GemmFamily::mixed_mma;
    config.layout = gemm_layout(f.a.at.transposed, !f.b.at.transposed);
    c.variant = {gemm_mixed_mma(p.type, *p.type_b, f.a.at.transposed, !f.b.at.transposed, print(config), t),
                 config};
    c.pack_a = f.a.rearranged, c.pack_b = f.b.rearranged;
  }
  return c;
}

void launch_direct(runtime::Stream& s, const GemmChoice& choice, const GemmProblem& p,
                   const GemmAddresses& at, const Epilogue& whole, std::uint64_t guard) {
  const bool simt = choice.kind == GemmFamily::mixed_simt;
  GemmMatrix a{at.a, p.m, p.k, p.lda, p.stride_a, p.trans_a},
      b{at.b, p.n, p.k, p.ldb, p.stride_b, !p.trans_b};
  if (!simt) {
    Forms f = forms_of(p, at, false);
    const std::uint64_t scratch = f.bytes ? s.scratch(f.bytes) : 0;
    for (auto [o, from] : {std::pair{&f.a, &f.from_a}, {&f.b, &f.from_b}}) {
      if (!o->rearranged) continue;
      o->at.address += scratch;
      arrange_operand(s, *from, o->at, p, o == &f.b);
    }
    a = f.a.at, b = f.b.at;
  }
  const auto fn = load(s.device(), choice.variant);
  const std::uint64_t tm = ceil_div(p.m, 128), tn = ceil_div(p.n, 128);
  auto grid = runtime::grid_for(tm * tn, 1);
  if (p.batch > 65535)
    throw Unsupported(text::cat("gemm: ", p.batch, " batches with an epilogue; at most 65535"));
  grid.z = std::uint32_t(p.batch);
  const auto word = [](std::uint64_t v) { return runtime::arg(std::uint32_t(v)); };
  std::vector<Arg> args{Arg::address(a.address), Arg::address(b.address)};
  if (simt)
    args.insert(args.end(), {runtime::arg(p.m), runtime::arg(p.n), runtime::arg(p.k), runtime::arg(a.ld),
                             runtime::arg(b.ld), runtime::arg(a.stride), runtime::arg(b.stride), word(tn)});
  else
    args.insert(args.end(), {word(p.m), word(p.n), word(p.k), word(a.ld), word(b.ld), runtime::arg(a.stride),
                             runtime::arg(b.stride), word(tm), word(tn)});
  args.insert(args.end(), {Arg::address(at.c), runtime::arg(p.ldc), runtime::arg(p.stride_c)});
  for (const auto& x : whole.arguments(p)) args.push_back(x);
  if (guard) args.push_back(Arg::address(guard));
  fn.launch(s, runtime::Launch{.grid = grid}, args);
}

void launch_hopper(runtime::Stream& s, const GemmChoice& choice, const GemmProblem& p,
                   const GemmAddresses& at) {
  const bool promotes = choice.kind == GemmFamily::sm90_promoted;
  Forms f = forms_of(p, at);
  const std::uint64_t scratch = f.bytes ? s.scratch(f.bytes + 256) : 0, unfit = scratch + f.bytes;
  const int stored = bytes(p.type);
  if (f.split) s.fill({s.device().backend().get(), unfit, 4}, 0);
  if (f.a.rearranged) {
    f.a.at.address += scratch;
    run_gemm_arrange(s, f.from_a, f.a.at, stored, f.split, p.batch, unfit);
  }
  if (f.b.rearranged) {
    f.b.at.address += scratch;
    run_gemm_arrange(s, f.from_b, f.b.at, stored, f.split, p.batch, unfit);
  }
  if (f.scratch_c) f.c.address += scratch;

  const auto fn = load(s.device(), choice.variant);
  const auto whole = epilogue::of_problem(p, at).in_words(p);
  const auto pairing = p.epilogue.pairing();
  const auto cluster = std::uint64_t(choice.cluster);
  const std::uint64_t rows = ceil_div(p.m, choice.tile_m * cluster), cols = ceil_div(p.n, choice.tile_n),
                      tiles = rows * cols * p.batch;
  if (tiles * cluster > kMax32)
    throw Unsupported(text::cat("gemm: ", tiles, " tiles are more than one launch counts"));
  const auto concurrent = std::uint64_t(std::max(1, s.device().info().sm_count / choice.cluster));
  const runtime::Dim3 grid{std::uint32_t(std::min(tiles, concurrent) * cluster), 1, 1};
  const auto word = [](std::uint64_t v) { return runtime::arg(std::uint32_t(v)); };
  const std::uint64_t terms = f.split ? 3 : 1, k_tiles = ceil_div(p.k * f.element, 128);
  const std::size_t b_at = promotes ? 1 : 7, c_at = promotes ? (p.scaling == GemmScaling::block ? 11
                                                                : f.split                       ? 10
                                                                                                : 9)
                                                             : 8;
  const auto a = map_of(s, fn, 0, f.a.at, f.element, p.batch * terms);
  const auto b = pairing == Pairing::none
                     ? map_of(s, fn, b_at, f.b.at, f.element, p.batch * terms)
                     : paired_map(s, fn, b_at, f.b.at, f.element, p.batch * terms, pairing);
  const auto c = map_of(s, fn, c_at, f.c, f.element_c, p.batch);
  std::vector<Arg> args{Arg::tensor_map(a)};
  if (promotes)
    args.insert(args.end(), {Arg::tensor_map(b), word(p.m), word(p.n), word(k_tiles), word(p.batch),
                             word(rows), word(cols), word(tiles)});
  else
    args.insert(args.end(), {word(p.m), word(p.n), word(k_tiles), word(rows), word(cols), word(tiles),
                             Arg::tensor_map(b)});
  if (p.scaling == GemmScaling::block)
    args.insert(args.end(), {Arg::address(at.scale_a), Arg::address(at.scale_b)});
  if (f.split) args.push_back(Arg::address(unfit));
  args.push_back(Arg::tensor_map(c));
  for (const auto& x : whole.arguments(p)) args.push_back(x);
  fn.launch(s, runtime::Launch{.grid = grid}, args);
  // Operands with infinities or NaN: what the kernel above left undone.
  if (f.split) {
    GemmAddresses into = at;
    GemmProblem q = p;
    if (f.scratch_c) into.c = f.c.address, q.ldc = f.c.ld, q.stride_c = f.c.stride;
    launch_direct(s, direct_choice(p, at, true, true), q, into, whole, unfit);
  }
  if (f.scratch_c) run_gemm_arrange(s, f.c, f.to_c, bytes(*p.type_c), false, p.batch);
}

int stage_bytes(const GemmProblem& p, int bm, int bn) {
  const bool terms = p.type == DType::f32 && p.precision != GemmPrecision::fast;
  // Columns of B that are contiguous come in boxes of 64.
  const bool boxes = !p.trans_b && bytes(p.type) == 2;
  return (bm + (boxes ? (bn + 63) / 64 * 64 : bn)) * 128 * (terms ? 3 : 1);
}

GemmMixedTuning tuning_for(const GemmProblem& p, int bm, int bn) {
  GemmMixedTuning t{.bm = bm, .bn = bn};
  const int n = subtiles(p, t);
  t.buffers = n % 2 == 0 && (bytes(*p.type_c) > 1 || !alone(p, t)) ? 2 : n % 3 == 0 ? 3 : 1;
  t.stages = std::min(8, (225 * 1024 - bm / 64 * t.buffers * 8192) / stage_bytes(p, bm, bn));
  if (alone(p, t)) t.stages = bn == 128 ? 6 : 4;
  // Measured: a stage more for one buffer, and groups about as wide as high.
  if (alone(p, t) && bn >= 176 && (bn == 176 || (bytes(p.type) == 1 && epilogue::of_problem(p, {}).empty())))
    t.stages = 5, t.buffers = 1, t.group = 16;
  // Sums and those of 128 columns that are added to them: what 240 registers hold.
  t.promote = std::max(1, bn / 128);
  if (halved(p) && p.scaling == GemmScaling::block) t.promote = std::max(2, t.promote);
  // Of 128 columns one stage is added up while the next is multiplied; three warpgroups lack the registers.
  t.overlapped = promoted(p) && is_fp8(p.type) && t.promote == 1 && bn == 128 && bm <= 128;
  return t;
}

// Of 128 x 256 accumulators that are promoted, by 128 bytes of K. Products of 10^12 operations heat the GPU up to its
// power limit, where tiles of 256 columns lose most.
double promoted_step(const GemmProblem& p, const GemmMixedTuning& t, const GemmCalibration::Mixed& m) {
  const bool blocks = p.scaling == GemmScaling::block;
  const double narrow = t.bn == 64 ? (blocks ? m.blocks_narrow : m.narrow) : t.bm == 64 ? m.low : 1;
  if (blocks)
    return m.blocks * narrow *
           (t.bm == 192               ? m.blocks_tall
            : t.bn < 256              ? 1
            : p.flops() < m.hot_flops ? m.blocks_wide
                                      : m.blocks_hot);
  return m.promoted * narrow * (t.bm == 192 ? m.promoted_tall : t.bn == 256 ? m.promoted_wide : 1);
}

// Microseconds: waves of tiles; a tile that a warpgroup has for itself is stored while the other
// multiplies.
double mixed_time(const GemmProblem& p, const GemmMixedTuning& t, const GemmCalibration& c) {
  const auto& m = c.mixed;
  const double area = t.bm * t.bn / 32768.0,
               steps = double(ceil_div(p.k * std::uint64_t(bytes(p.type)), 128));
  const double tiles =
      double(ceil_div(p.m, std::uint64_t(t.bm)) * ceil_div(p.n, std::uint64_t(t.bn)) * p.batch);
  const double rows = (t.bm + t.bn) / 384.0;
  const bool hidden = alone(p, t);
  const double store = m.store * area * bytes(*p.type_c) / 2 * (p.epilogue.empty() ? 1 : m.epilogue),
               step = promoted(p) ? promoted_step(p, t, m) * area : m.multiply * area + m.rows * rows;
  return std::ceil(tiles / c.sms) * (steps * step + (hidden ? m.pingpong : store)) + (hidden ? store : 0) +
         m.launch;
}

GemmMixedTuning default_tuning(const GemmProblem& p, const GemmCalibration& c) {
  const bool narrow_c = bytes(*p.type_c) == 1;
  if (promoted(p) && p.type == DType::f32) {
    // Three bf16 terms of each operand: tiles of 64 columns where those of 128 are few.
    const bool few = ceil_div(p.m, 128) * ceil_div(p.n, 128) * p.batch <= 66;
    return tuning_for(p, 128, few && !narrow_c && !(pairs(p) && bytes(*p.type_c) < 4) ? 64 : 128);
  }
  // Pairs make half as many columns of C.
  if (pairs(p) && narrow_c)
    return tuning_for(p, ceil_div(p.m, 128) * ceil_div(p.n, 256) < 66 ? 64 : 128, 256);
  if (pairs(p)) return tuning_for(p, 128, 128);
  // Elements of a matrix wait in registers, with the accumulators: those of 192 columns leave too few.
  bool matrix = p.beta != 0;
  for (const auto& stage : p.epilogue.stages()) matrix = matrix || stage->name.rfind("residual", 0) == 0;
  const bool wide = !matrix && !narrow_c;
  std::vector<GemmMixedTuning> all;
  for (const auto& [bm, bn] : {std::pair{128, 192},
                               {128, 176},
                               {128, 128},
                               {128, 256},
                               {192, 128},
                               {64, 128},
                               {128, 64},
                               {64, 64},
                               {128, 96},
                               {128, 224}})
    if ((bn % subtile_columns(p) == 0 || (bn == 176 && reject_176(p).empty())) &&
        (wide || (bn <= 128 && bm <= 128)) && (promoted(p) || bm <= 128) &&
        (!promoted(p) || bn == 64 || bn == 128 || bn == 256))
      all.push_back(tuning_for(p, bm, bn));
  // A residual alone has room with 192 columns where results have one buffer.
  if (p.epilogue.stages().size() == 1 && matrix && p.beta == 0 && p.scaling == GemmScaling::none &&
      !promoted(p) && bytes(p.type) == 2 && bytes(*p.type_c) == 2) {
    all.push_back(tuning_for(p, 128, 192));
    all.back().stages = 5, all.back().buffers = 1;
  }
  return *std::min_element(all.begin(), all.end(), [&](const auto& x, const auto& y) {
    return mixed_time(p, x, c) < mixed_time(p, y, c);
  });
}

}  // namespace

GemmChoice choose_mixed_sm90(const GemmProblem& q, const GemmAddresses& at, const runtime::DeviceInfo& d,
                             const GemmMixedTuning& t) {
  const GemmProblem p = q.dense();
  if (auto why = not_hopper(p, d); !why.empty()) throw Unsupported(std::move(why));
  if (p.scaling == GemmScaling::block && (t.bn % t.promote || 128 % (t.bn / t.promote)))
    throw Unsupported(text::cat("tiles of ", t.bn, " columns in ", t.promote,
                                " slices: each slice must lie inside a block of 128 columns"));
  if (alone(p, t) && t.bn == 176)
    if (auto why = reject_176(p); !why.empty()) throw Unsupported(std::move(why));
  if (t.promote < 1 || t.bn % (8 * t.promote) || (t.overlapped && t.promote > 1 && t.promote % 2))
    throw Unsupported(text::cat("tiles of ", t.bn, " columns in ", t.promote, " slices"));
  return hopper_choice(p, at, t);
}

bool prefers_mixed_gemm(const GemmProblem& q, const runtime::DeviceInfo& d) {
  const GemmProblem p = q.dense();
  return p.type == DType::f32 && p.precision == GemmPrecision::standard && p.m >= 32 && p.n >= 32 &&
         p.k >= 64 && p.flops() >= 3e7 && p.batch <= 65535 && not_hopper(p, d).empty();
}

GemmVariant gemm_guarded_simt(const GemmProblem& p) {
  return direct_choice(p.dense(), {}, true, true).variant;
}

namespace {

// Large products of 8-bit floats whose accumulators all stay in the tensor cores, where tiles of 200 x 256 fill their
// waves: fewer bytes from L2 for each product than pingpong tiles.
std::optional<GemmChoice> large_tiles(const GemmProblem& p, const GemmAddresses& at,
                                      const runtime::DeviceInfo& d) {
  const bool plain = p.type == DType::e4m3 && *p.type_b == DType::e4m3 && *p.type_c == DType::bf16 &&
                     p.precision == GemmPrecision::fast && p.scaling == GemmScaling::none &&
                     p.epilogue.empty() && p.beta == 0 && p.batch == 1 && !p.trans_a && p.trans_b;
  if (!plain || p.flops() < 8e11 || !reject(GemmFamily::sm90_persistent, p, at, d).empty()) return {};
  const int sms = gemm_sms(d);
  const double waves = double(ceil_div(p.m, 200) * ceil_div(p.n, 256)) / sms;
  if (double(p.m) * double(p.n) < 0.96 * std::ceil(waves) * sms * 200 * 256) return {};
  auto c = choose_persistent_sm90(p.type, false, true, {.rows = 256, .cols = 200, .swap_ab = true});
  c.why = "wgmma, tiles of 200 x 256 in whole waves";
  return c;
}

}  // namespace

GemmChoice select_mixed_gemm(const GemmProblem& q, const GemmAddresses& at, const runtime::DeviceInfo& d) {
  const GemmProblem p = q.dense();
  auto why = not_hopper(p, d);
  const auto whole = epilogue::of_problem(p, at);
  if (why.empty() && p.type == DType::f32 && p.batch > 65535 && p.precision != GemmPrecision::fast)
    why = "more than 65535 batches";
  if (why.empty() && p.scaling == GemmScaling::block && halved(p) && p.n / 2 % 128)
    why = "halves that end inside a block of 128 columns";
  if (why.empty() && p.type == DType::f32 && promoted(p) && pairs(p) && bytes(*p.type_c) == 1)
    why = "pairs of f32 as three bf16 to 8-bit results";
  if (why.empty()) {
    if (auto large = large_tiles(p, at, d)) return std::move(*large);
    auto c = hopper_choice(p, at, default_tuning(p, gemm_calibration(d)));
    c.why = promoted(p) ? "wgmma, accumulators promoted to fp32 registers" : "wgmma, pingpong warpgroups";
    return c;
  }
  const auto direct = [&](bool simt) {
    auto c = direct_choice(p, at, simt, false);
    c.why = text::cat(simt ? "fp32 fused multiply-adds" : "mma.sync", "; not wgmma: ", why);
    return c;
  };
  const bool few = p.batch <= 65535;
  if (few && not_mma(p, d).empty()) return direct(false);
  // Pairs over halves are not neighbours in simt's registers.
  if (few && p.type == DType::f32 && !halved(p) && p.k > 0 && (p.type_c != DType::bf16 || d.cc() >= 80) &&
      bytes(*p.type_c) > 1)
    return direct(true);
  return {GemmFamily::generic, gemm_generic(p, whole),
          text::cat("one thread an element: ", why,
                    "; not mma.sync: ", few ? not_mma(p, d) : "too many batches")};
}

void run_mixed_gemm(runtime::Stream& s, const GemmChoice& choice, const GemmProblem& q,
                    const GemmAddresses& at) {
  const GemmProblem p = q.dense();
  p.epilogue.before(s, p);
  if (choice.kind == GemmFamily::generic)
    launch_generic(s, choice.variant, p, at, epilogue::of_problem(p, at));
  else if (choice.kind == GemmFamily::mixed_mma || choice.kind == GemmFamily::mixed_simt)
    launch_direct(s, choice, p, at, epilogue::of_problem(p, at), 0);
  else
    launch_hopper(s, choice, p, at);
}

}  // namespace cgp::kernels
