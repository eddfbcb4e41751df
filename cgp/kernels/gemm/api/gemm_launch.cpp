// SPDX-License-Identifier: Apache-2.0
// How each family of gemm is launched, and the steps that run a choice.
#include "cgp/kernels/gemm/api/gemm_launch.h"

#include <algorithm>
#include <array>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/gemm/api/gemm_tuning.h"
#include "cgp/kernels/gemm/simt/gemm_f32_rows.h"
#include "cgp/kernels/gemm/simt/gemm_params_simt.h"
#include "cgp/kernels/gemm/sm80/gemm_sm80.h"
#include "cgp/kernels/gemm/sm90/gemm_params_sm90.h"
#include "cgp/kernels/gemm/workspace/gemm_split_k_f32.h"

namespace cgp::kernels {
namespace {

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

runtime::Arg address(std::uint64_t a) { return runtime::Arg::address(a); }

// op(X)[row, k] lies at row * row_stride + k * k_stride.
void launch_naive(runtime::Stream& s, const runtime::LoadedKernel& fn, const GemmProblem& p,
                  const GemmAddresses& o, const GemmChoice&) {
  const auto tn = ceil_div(p.n, 16);
  auto grid = runtime::grid_for(ceil_div(p.m, 16) * tn, 1);
  grid.z = std::uint32_t(p.batch);
  GemmNaiveParams<OnHost> args;
  args.a = o.a, args.b = o.b, args.c = o.c, args.m = p.m, args.n = p.n, args.k = p.k;
  args.a_row = p.trans_a ? 1 : p.lda, args.a_col = p.trans_a ? p.lda : 1;
  args.b_row = p.trans_b ? 1 : p.ldb, args.b_col = p.trans_b ? p.ldb : 1;
  args.ldc = p.ldc, args.stride_a = p.stride_a, args.stride_b = p.stride_b, args.stride_c = p.stride_c;
  args.alpha = p.alpha, args.beta = p.beta, args.tiles_n = std::uint32_t(tn);
  launch(s, fn, grid, args);
}

// All but sizes.
template <class Size>
GemmPointerParams<OnHost, Size> pointer_args(const GemmProblem& p, const GemmAddresses& o) {
  GemmPointerParams<OnHost, Size> args;
  args.a = o.a, args.b = o.b, args.c = o.c, args.lda = p.lda, args.ldb = p.ldb, args.ldc = p.ldc;
  args.stride_a = p.stride_a, args.stride_b = p.stride_b, args.stride_c = p.stride_c;
  args.alpha = p.alpha, args.beta = p.beta;
  return args;
}

void launch_simt(runtime::Stream& s, const runtime::LoadedKernel& fn, const GemmProblem& p,
                 const GemmAddresses& o, const GemmChoice&) {
  const auto tn = ceil_div(p.n, 128);
  auto grid = runtime::grid_for(ceil_div(p.m, 128) * tn, 1);
  grid.z = std::uint32_t(p.batch);
  auto args = pointer_args<dsl::u64>(p, o);
  args.m = p.m, args.n = p.n, args.k = p.k, args.tiles_n = std::uint32_t(tn);
  launch(s, fn, grid, args);
}

// Whether two neighbours of a row of c are always one aligned word.
std::uint32_t paired(const GemmProblem& p, const GemmAddresses& o) {
  return p.n % 2 == 0 && p.ldc % 2 == 0 && (p.batch == 1 || p.stride_c % 2 == 0) && o.c % 4 == 0;
}

void launch_sm80(runtime::Stream& s, const runtime::LoadedKernel& fn, const GemmProblem& p,
                 const GemmAddresses& o, const GemmChoice& choice) {
  const std::uint64_t tm = ceil_div(p.m, choice.tile_m), tn = ceil_div(p.n, choice.tile_n);
  auto grid = runtime::grid_for(tm * tn, 1);
  grid.z = std::uint32_t(p.batch);
  const auto word = [](std::uint64_t v) { return std::uint32_t(v); };
  sm80::Params<OnHost> args;
  args.a = o.a, args.b = o.b, args.c = o.c;
  args.m = word(p.m), args.n = word(p.n), args.k = word(p.k), args.lda = word(p.lda), args.ldb = word(p.ldb);
  args.ldc = p.ldc, args.stride_a = p.stride_a, args.stride_b = p.stride_b, args.stride_c = p.stride_c;
  args.alpha = p.alpha, args.beta = p.beta;
  args.tiles_m = word(tm), args.tiles_n = word(tn), args.paired = paired(p, o);
  launch(s, fn, grid, args);
}

// The tensor [batch, rows, cols] behind an operand.
runtime::TensorMap operand_map(runtime::Stream& s, const runtime::LoadedKernel& fn, std::size_t param,
                               std::uint64_t address, std::uint64_t rows, std::uint64_t cols,
                               std::uint64_t ld, std::uint64_t batch, std::uint64_t stride,
                               std::uint64_t element) {
  auto spec = tensor_map_spec(fn.image(), param);
  spec.dims = {cols, rows, batch};
  spec.strides = {ld * element, (batch > 1 ? stride : ld) * element};  // of one batch nothing depends on it
  spec.l2 = runtime::L2Promotion::b128;  // none and 64: the same; 256: 0.8 where rows cross lines
  return s.device().tensor_map(spec, address);
}

struct OperandMaps {
  runtime::TensorMap a, b;
};
OperandMaps operand_maps(runtime::Stream& s, const runtime::LoadedKernel& fn, const GemmProblem& p,
                         const GemmAddresses& o) {
  const auto element = std::uint64_t(cgp::bytes(p.type));
  const auto map = [&](std::size_t param, std::uint64_t address, bool k_first, std::uint64_t rows,
                       std::uint64_t ld, std::uint64_t stride) {
    return operand_map(s, fn, param, address, k_first ? p.k : rows, k_first ? rows : p.k, ld, p.batch, stride,
                       element);
  };
  return {map(0, o.a, p.trans_a, p.m, p.lda, p.stride_a), map(1, o.b, !p.trans_b, p.n, p.ldb, p.stride_b)};
}

// All but what tells whether blocks walk over the tiles.
GemmDirectParams<OnHost> direct_args(runtime::Stream& s, const runtime::LoadedKernel& fn,
                                     const GemmProblem& p, const GemmAddresses& o, std::uint64_t tile_k,
                                     std::uint64_t tiles_m, std::uint64_t tiles_n) {
  const auto word = [](std::uint64_t v) { return std::uint32_t(v); };
  const auto maps = operand_maps(s, fn, p, o);
  GemmDirectParams<OnHost> args;
  args.a = maps.a, args.b = maps.b, args.c = o.c;
  args.m = word(p.m), args.n = word(p.n), args.ldc = p.ldc, args.stride_c = p.stride_c;
  args.k_tiles = word(ceil_div(p.k, tile_k)), args.alpha = p.alpha, args.beta = p.beta;
  args.tiles_m = word(tiles_m), args.tiles_n = word(tiles_n);
  return args;
}

void launch_sm90(runtime::Stream& s, const runtime::LoadedKernel& fn, const GemmProblem& p,
                 const GemmAddresses& o, const GemmChoice& choice) {
  const std::uint64_t tm = ceil_div(p.m, 128), tn = ceil_div(p.n, choice.tile_n);
  auto grid = runtime::grid_for(tm * tn, 1);
  grid.z = std::uint32_t(p.batch);
  auto args = direct_args(s, fn, p, o, 64, tm, tn);
  args.paired = paired(p, o);
  launch(s, fn, grid, args, /*persistent=*/false);
}

void launch_skinny(runtime::Stream& s, const runtime::LoadedKernel& fn, const GemmProblem& p,
                   const GemmAddresses& o, const GemmChoice& choice) {
  auto grid = runtime::grid_for(ceil_div(p.n, choice.tile_n), 1);
  grid.y = std::uint32_t(ceil_div(p.m, choice.tile_m));
  grid.z = std::uint32_t(p.batch);
  auto args = pointer_args<dsl::u32>(p, o);
  args.m = std::uint32_t(p.m), args.n = std::uint32_t(p.n);
  args.k = std::uint32_t(p.k * std::uint64_t(cgp::bytes(p.type)) / 16);
  launch(s, fn, grid, args);
}

void launch_cluster_split_k(runtime::Stream& s, const runtime::LoadedKernel& fn, const GemmProblem& p,
                            const GemmAddresses& o, const GemmChoice& choice) {
  const std::uint64_t tm = ceil_div(p.m, choice.tile_m), tn = ceil_div(p.n, choice.tile_n);
  auto grid = runtime::grid_for(tm * tn * std::uint64_t(choice.cluster), 1);
  if (choice.by_grid) grid.x = std::uint32_t(tm * std::uint64_t(choice.cluster)), grid.y = std::uint32_t(tn);
  grid.z = std::uint32_t(p.batch);
  auto args = direct_args(s, fn, p, o, 64, tm, tn);
  args.paired = paired(p, o);
  launch(s, fn, grid, args, /*persistent=*/false);
}

void launch_persistent(runtime::Stream& s, const runtime::LoadedKernel& fn, const GemmProblem& p,
                       const GemmAddresses& o, const GemmChoice& choice) {
  if (bool(choice.variant.config.source_c) != (p.beta != 0))
    throw Unsupported(text::cat("gemm: beta = ", p.beta, ", and ", choice.variant.name,
                                p.beta != 0 ? " does not read c" : " reads it"));
  const auto maps = operand_maps(s, fn, p, o);
  const auto element = std::uint64_t(cgp::bytes(*p.type_c));
  const auto c = operand_map(s, fn, 2, o.c, p.m, p.n, p.ldc, p.batch, p.stride_c, element);
  const std::uint64_t rows = ceil_div(p.m, choice.tile_m), cols = ceil_div(p.n, choice.tile_n),
                      tiles = rows * cols * p.batch;
  if (tiles > 0x7fffffffull)
    throw Unsupported(text::cat("gemm: ", tiles, " tiles are more than one launch counts"));
  const auto k_tiles = std::uint32_t(ceil_div(p.k * std::uint64_t(cgp::bytes(p.type)), 128));
  const auto cluster = std::uint64_t(choice.cluster);
  GemmPersistentParams<OnHost> args;
  args.a = maps.a, args.b = maps.b, args.c = c, args.k_tiles = k_tiles, args.alpha = p.alpha;
  if (p.beta != 0) {
    args.source = operand_map(s, fn, 3, o.c, p.m, p.n, p.ldc, p.batch, p.stride_c, element);
    args.beta = p.beta;
  }
  const GemmPersistentForm form{p.beta != 0, !choice.by_grid};
  if (choice.by_grid) {  // a block for each tile
    const auto size = fn.image().cluster;
    if (cols * size.y > 65535)
      throw Unsupported(text::cat("gemm: ", cols, " columns of tiles are more than a grid has along y"));
    const runtime::Dim3 blocks{std::uint32_t(rows * size.x), std::uint32_t(cols * size.y),
                               std::uint32_t(p.batch)};
    return launch(s, fn, blocks, args, form);
  }
  const auto concurrent =
      std::uint64_t(std::max(1, usable_sms(s.device().info().sm_count, choice.cluster) / choice.cluster));
  const runtime::Dim3 grid{std::uint32_t(std::min(tiles, concurrent) * cluster), 1, 1};
  args.rows = std::uint32_t(rows), args.cols = std::uint32_t(cols), args.tiles = std::uint32_t(tiles);
  launch(s, fn, grid, args, form);
}

// Whole tiles first, as many as blocks, again and again; what is left goes to clusters, a tile each, if that
// is fewer.
void launch_stream_k(runtime::Stream& s, const runtime::LoadedKernel& fn, const GemmProblem& p,
                     const GemmAddresses& o, const GemmChoice& choice) {
  const auto maps = operand_maps(s, fn, p, o);
  const auto element = std::uint64_t(cgp::bytes(p.type));
  const auto c = operand_map(s, fn, 2, o.c, p.m, p.n, p.ldc, p.batch, p.stride_c, element);
  const std::uint64_t rows = ceil_div(p.m, choice.tile_m), cols = ceil_div(p.n, choice.tile_n),
                      tiles = rows * cols * p.batch, split = std::uint64_t(choice.cluster),
                      k_tiles = ceil_div(p.k, 64);
  if (tiles > 0x7fffffffull)
    throw Unsupported(text::cat("gemm: ", tiles, " tiles are more than one launch counts"));
  const auto clusters = std::uint64_t(std::max(1, s.device().info().sm_count / choice.cluster));
  const std::uint64_t blocks = clusters * split, left = tiles % blocks;
  const bool shared = split > 1 && left > 0 && left <= clusters && k_tiles >= split;
  const std::uint64_t whole = shared ? tiles - left : tiles,
                      grid = whole == 0 ? left * split : ceil_div(std::min(whole, blocks), split) * split;
  GemmStreamKParams<OnHost> args;
  args.a = maps.a, args.b = maps.b, args.c = c, args.k_tiles = std::uint32_t(k_tiles), args.alpha = p.alpha;
  args.rows = std::uint32_t(rows), args.cols = std::uint32_t(cols);
  args.whole = std::uint32_t(whole), args.tiles = std::uint32_t(tiles);
  launch(s, fn, runtime::Dim3{std::uint32_t(grid), 1, 1}, args);
}

void launch_small_m(runtime::Stream& s, const runtime::LoadedKernel& fn, const GemmProblem& p,
                    const GemmAddresses& o, const GemmChoice& choice) {
  const std::uint64_t tm = ceil_div(p.m, choice.tile_m), tn = ceil_div(p.n, choice.tile_n),
                      tiles = tm * tn * p.batch;
  if (tiles > 0x7fffffffull)
    throw Unsupported(text::cat("gemm: ", tiles, " tiles are more than one launch counts"));
  const auto concurrent = std::uint64_t(std::max(1, s.device().info().sm_count * choice.min_blocks));
  auto args = direct_args(s, fn, p, o, choice.tile_k, tm, tn);
  args.tiles = std::uint32_t(tiles);
  launch(s, fn, runtime::Dim3{std::uint32_t(std::min(tiles, concurrent)), 1, 1}, args, /*persistent=*/true);
}

void launch_sm100(runtime::Stream& s, const runtime::LoadedKernel& fn, const GemmProblem& p,
                  const GemmAddresses& o, const GemmChoice& choice) {
  const auto maps = operand_maps(s, fn, p, o);
  const auto cluster = std::uint64_t(choice.cluster);
  const std::uint64_t rows = ceil_div(p.m, 128 * cluster), cols = ceil_div(p.n, choice.tile_n),
                      tiles = rows * cols * p.batch;
  if (tiles * cluster > 0x7fffffffull)
    throw Unsupported(text::cat("gemm: ", tiles, " tiles are more than one launch counts"));
  // With work stealing the grid has every tile; blocks that run take over the ones that wait.
  std::uint64_t launched = tiles;
  if (choice.kind == GemmFamily::sm100_persistent)
    launched = std::min(tiles, std::uint64_t(std::max(1, s.device().info().sm_count)));
  const runtime::Dim3 grid{std::uint32_t(launched * cluster), 1, 1};
  const auto k_tiles = std::uint32_t(ceil_div(p.k, 64)), r = std::uint32_t(rows), c = std::uint32_t(cols),
             t = std::uint32_t(tiles);
  if (choice.staged) {
    const auto out =
        operand_map(s, fn, 2, o.c, p.m, p.n, p.ldc, p.batch, p.stride_c, std::uint64_t(cgp::bytes(p.type)));
    fn(s, grid, maps.a, maps.b, out, k_tiles, p.alpha, r, c, t);
  } else {
    fn(s, grid, maps.a, maps.b, address(o.c), std::uint32_t(p.m), std::uint32_t(p.n), p.ldc, p.stride_c,
       k_tiles, p.alpha, p.beta, paired(p, o), r, c, t);
  }
}

// The batches that the z dimension of a grid holds, as often as it takes.
template <auto launch>
void in_batches(runtime::Stream& s, const GemmChoice& choice, const GemmProblem& p, const GemmAddresses& at) {
  if (auto why = reject(choice.kind, p, at, s.device().info()); !why.empty())
    throw Unsupported(std::move(why));
  const auto fn = load(s.device(), choice.variant);
  const auto element = std::uint64_t(cgp::bytes(p.type));
  for (std::uint64_t from = 0; from < p.batch; from += 65535) {
    GemmProblem part = p;
    part.batch = std::min<std::uint64_t>(65535, p.batch - from);
    const GemmAddresses o{at.a + from * p.stride_a * element, at.b + from * p.stride_b * element,
                          at.c + from * p.stride_c * element};
    launch(s, fn, part, o, choice);
  }
}
void launch_misaligned(runtime::Stream& s, const runtime::LoadedKernel&, const GemmProblem& p,
                       const GemmAddresses& o, const GemmChoice& choice) {
  run_gemm_misaligned(s, choice, p, o);
}
void run_split_k(runtime::Stream& s, const GemmChoice& choice, const GemmProblem& p,
                 const GemmAddresses& at) {
  if (auto why = reject(choice.kind, p, at, s.device().info()); !why.empty())
    throw Unsupported(std::move(why));
  run_gemm_split_k(s, choice, p, at);
}

constexpr GemmRun kRuns[] = {
#define GEMM_FAMILY(name, min_sm, only, needs, operands, layouts, result, one_batch, for_mixed, run, forced) \
  run,
#include "cgp/kernels/gemm/select/gemm_families.def"
#undef GEMM_FAMILY
};

// Slices of K of any family, reduced in f32 by a kernel of their own.
bool sliced_in_f32(const GemmChoice& c) {
  return c.split_k > 1 && c.kind != GemmFamily::sm90_split_k && c.kind != GemmFamily::misaligned;
}

}  // namespace

std::uint64_t c_padding(const GemmProblem& p) {
  const auto group = 16 / std::uint64_t(cgp::bytes(*p.type_c));
  return (group - p.columns() % group) % group;
}

GemmRun gemm_run(const GemmChoice& c) {
  return sliced_in_f32(c) ? run_f32_split_k : kRuns[std::size_t(c.kind)];
}

GemmSteps gemm_steps(const GemmChoice& c) {
  // Mixed precision and f32 slices arrange their operands themselves.
  const bool packs = (c.pack_a || c.pack_b || c.pack_c) && gemm_run(c) != run_mixed_gemm && !sliced_in_f32(c);
  GemmSteps out;
  if (c.canonicalized) out.add(GemmStep::canonicalize);
  if (packs) out.add(GemmStep::pack);
  out.add(GemmStep::product);
  if (c.split_k > 1) out.add(GemmStep::reduce);
  if (packs && c.pack_c) out.add(GemmStep::unpack);
  return out;
}

std::string_view name(GemmStep s) {
  constexpr std::string_view names[] = {"canonicalize", "pack", "product", "reduce", "unpack"};
  return names[int(s)];
}

namespace {

// Scratch memory in which the product leaves the partial sums of its slices of K, from the first byte on.
std::uint64_t scratch_of_slices(const GemmChoice& c, const GemmProblem& p, const GemmAddresses& at,
                                const runtime::DeviceInfo& d) {
  return sliced_in_f32(c) ? f32_split_k_scratch(c, p, at, d) : split_k_partial_bytes(p, c.split_k);
}

}  // namespace

void run_gemm(runtime::Stream& s, const GemmChoice& choice, const GemmProblem& q,
              const GemmAddresses& given) {
  GemmProblem p = q.dense(), stored = p;  // as the next step sees it, and as C was given
  GemmAddresses at = given, to = given;
  if (p.m == 0 || p.n == 0 || p.batch == 0) return;
  for (const GemmStep step : gemm_steps(choice)) switch (step) {
      case GemmStep::canonicalize: {
        const auto other = canonicalize_gemm(p);
        p = stored = other.problem.dense(), at = to = other.at(at);
        break;
      }
      case GemmStep::pack:
        pack_gemm_operands(s, choice, p, at);
        break;
      case GemmStep::product:
        if (choice.split_k > 1)
          at.c = s.scratch(scratch_of_slices(choice, p, at, s.device().info())), at.padded_ldc = true;
        gemm_run(choice)(s, choice, p, at);
        break;
      case GemmStep::reduce:
        if (sliced_in_f32(choice))
          run_gemm_split_k_reduce_f32(s, p, to.c, at.c, choice.split_k);
        else
          run_gemm_split_k_reduce(s, p, to.c, at.c, choice.split_k);
        break;
      case GemmStep::unpack: {
        const GemmCopy back{{at.c, p.ldc, p.stride_c}, {to.c, stored.ldc, stored.stride_c}, p.m, p.n};
        run_gemm_pack(s, {&back, 1}, p.batch);
        break;
      }
    }
}

}  // namespace cgp::kernels
