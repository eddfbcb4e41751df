// SPDX-License-Identifier: Apache-2.0
// Which config a problem gets on wgmma, and its launch.
#include <algorithm>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/core/kernel_params.h"
#include "cgp/kernels/weight_only/weight_only_wgmma.h"
#include "cgp/kernels/weight_only/weight_only_wgmma_params.h"

namespace cgp::kernels {
namespace {

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

}  // namespace

int WeightWgmmaConfig::smem_bytes() const {
  return w_stages * (4 * warpgroups * layout(format).tile_bytes() + 16) + x_stages * (128 * rows + 16) +
         staging_bytes() + (pairs ? 256 * 128 : 0) + 1280;
}

std::string reject_wgmma(const WeightOnlyProblem& p) {
  if (p.type != DType::f16 && p.type != DType::bf16)
    return text::cat("type = ", name(p.type), ": x and y are f16 or bf16");
  if (!p.k || p.k % 32 || p.k > 1u << 24)
    return text::cat("k = ", p.k, " is no multiple of 32 from 32 to 2^24");
  if (p.gather) return "gather: columns of x are gathered before a product on wgmma";
  if (auto why = reject_group(p); !why.empty()) return why;
  if (p.n > 0x7ffffe00 || p.n > 64u * 65535)
    return text::cat("n = ", p.n, ": at most ", 64 * 65535, " rows of weights are possible");
  if (p.m > 16u * 65535) return text::cat("m = ", p.m, ": at most ", 16 * 65535, " rows of x are possible");
  if (p.x % 16 || p.ldx % 8) return "x and its rows must lie at multiples of 16 bytes";
  if (p.w % 16) return "packed weights must lie at a multiple of 16 bytes";
  if (p.groups && (!p.ends || p.ends % (p.wide_ends ? 8 : 4)))
    return "ends of groups must be given and lie at multiples of their size";
  if (p.groups > 16384) return text::cat("groups = ", p.groups, ": at most 16384 are possible");
  return reject_end(p);
}

bool weight_wgmma_fit(WeightWgmmaConfig& c) {
  // The sums take the memory of the ring of x.
  const int least = c.persistent ? 2 : std::max(2, (4 * (c.columns() + 4) + 127) / 128),
            room = 227 * 1024 / c.min_blocks - 1024;
  for (c.w_stages = 4; c.w_stages > 1; --c.w_stages)
    for (c.x_stages = 16; c.x_stages >= std::max(least, c.w_stages > 2 ? 6 : 0); --c.x_stages)
      if (c.smem_bytes() <= room) return true;
  return false;
}

// Microseconds that a config is expected to take beyond its launch, fitted to 400 measurements of Q4_0 on an H200.
static double expected_us(const WeightWgmmaConfig& c, const WeightOnlyProblem& p, int sms) {
  // Groups are taken to have the same rows.
  const auto groups = std::max<std::uint64_t>(p.groups, 1);
  const auto blocks = ceil_div(p.n, std::uint64_t(c.columns())) * groups *
                      ceil_div(ceil_div(p.m, groups), std::uint64_t(c.rows)) * std::uint64_t(c.split);
  // 256 of K: decoding hides products, or they it.
  const double tile = 0.34 + c.warpgroups * std::max(0.28 + 0.0019 * c.rows, 0.0047 * c.rows);
  const double tiles = double(ceil_div(ceil_div(p.k, 256), std::uint64_t(c.split)));
  const double add = c.split == 1 ? 0 : 3 + 0.02 * c.rows;
  return double(ceil_div(blocks, std::uint64_t(sms))) * (tile * tiles + add);
}

WeightWgmmaConfig weight_wgmma_config(const WeightOnlyProblem& p, int sms) {
  WeightWgmmaConfig c{p.type, p.format};
  c.pdl = p.pdl, c.end = p.end, c.activation = p.activation, c.grouped = p.groups != 0;
  if (p.pdl) c.order = p.order;
  WeightWgmmaConfig best = c;
  double least = 0;
  for (c.rows = 16; c.rows <= 256; c.rows *= 2) {
    for (c.warpgroups = 1; c.warpgroups <= 4; c.warpgroups *= 2)
      for (c.split = 1; c.split <= 2; ++c.split) {  // clusters of 4 fit 30 times on 132 SMs
        if (c.warpgroups == 4 && c.rows > (layout(p.format).bits == 8 ? 32 : 64)) continue;  // registers
        if (std::uint64_t(c.split) > ceil_div(p.k, 256) || !weight_wgmma_fit(c)) continue;
        const double us = expected_us(c, p, sms);
        if (least && us > least) continue;
        best = c, least = us;
      }
    if (std::uint64_t(c.rows) * std::max<std::uint64_t>(p.groups, 1) >= p.m) break;
  }
  best.scale_terms = best.rows == 256 ? 2 : 1;  // there products hide what decoding takes
  const auto groups = std::max<std::uint64_t>(p.groups, 1);
  best.reread = ceil_div(p.m, groups) > std::uint64_t(best.rows);
  const auto tiles = ceil_div(p.n, std::uint64_t(best.columns())) * groups *
                     ceil_div(ceil_div(p.m, groups), std::uint64_t(best.rows));
  c = best;
  c.persistent = c.split * c.share == 1 && c.rows >= 128 && tiles > std::uint64_t(sms);
  for (c.pairs = layout(p.format).looked_up();; c.pairs = false) {
    if (weight_wgmma_fit(c)) return c;
    if (!c.pairs) return best;
  }
}

bool weight_wgmma_serves(const WeightOnlyProblem& p) {
  return reject_wgmma(p).empty() && (p.m > 16 || !reject(p).empty());
}

void weight_wgmma_gemm(runtime::Stream& s, const WeightOnlyProblem& p) {
  if (auto why = reject_wgmma(p); !why.empty()) throw Unsupported(text::cat("weight_wgmma: ", why));
  if (!p.m || !p.n) return;
  weight_wgmma_gemm(s, p, weight_wgmma_config(p, std::max(1, s.device().info().sm_count)));
}

void weight_wgmma_gemm(runtime::Stream& s, const WeightOnlyProblem& p, const WeightWgmmaConfig& c) {
  const auto kernel = load(s.device(), weight_wgmma_variant(c));
  auto spec = tensor_map_spec(kernel.image(), 0);
  spec.dims = {p.k, p.m};
  spec.strides = {(p.ldx ? p.ldx : p.k) * 2};
  spec.l2 = runtime::L2Promotion::b128;
  const auto ldy = p.ldy ? p.ldy : p.columns();
  const bool f32 = p.end == WeightOnlyEnd::store_f32 || p.end == WeightOnlyEnd::add_f32;
  const auto blocks = ceil_div(p.n, std::uint64_t(c.columns()));
  // A group may end with a tile that is not full.
  const auto rows = std::uint64_t(c.rows),
             row_tiles = p.groups ? p.m / rows + std::min(p.groups, p.m) : ceil_div(p.m, rows);
  const WeightWgmmaParams<dsl::HostValue> n{.w = p.w,
                                            .y = p.y,
                                            .ldy = ldy,
                                            .ends = p.ends,
                                            .w_bytes = packed_bytes(p.format, p.n, p.k),
                                            .groups = std::uint32_t(p.groups),
                                            .wide_ends = p.wide_ends,
                                            .m = std::uint32_t(p.m),
                                            .n = std::uint32_t(p.n),
                                            .k_tiles = std::uint32_t(ceil_div(p.k, 256)),
                                            .w_tiles = std::uint32_t(ceil_div(p.n, 32) * 2),
                                            .tiles = std::uint32_t(blocks * row_tiles),
                                            .wide = p.y % 16 == 0 && ldy % (f32 ? 4 : 8) == 0};
  runtime::Launch launch;
  launch.programmatic = c.pdl;
  launch.grid = {std::uint32_t(c.split),
                 std::uint32_t(ceil_div(blocks, std::uint64_t(c.share))) * std::uint32_t(c.share),
                 std::uint32_t(row_tiles)};
  if (c.persistent) {
    const int device = std::max(1, s.device().info().sm_count) * c.min_blocks;
    const auto most = std::uint64_t(c.blocks ? c.blocks : device);
    launch.grid = {std::uint32_t(std::min(blocks * row_tiles, most))};
  }
  kernel(s, launch, s.device().tensor_map(spec, p.x), n);
}

}  // namespace cgp::kernels
