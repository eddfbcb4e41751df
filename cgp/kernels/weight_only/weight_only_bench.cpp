// SPDX-License-Identifier: Apache-2.0
// Measures products of quantised weights on a GPU beside the driver's copy of as many bytes as the weights have in the
// file, cold L2, medians; from 16 rows on also the kernel on wgmma, beside the bf16 product of gemm and, of int4, beside
// dequantising to bf16 and that product.
#include <algorithm>
#include <numeric>
#include <random>

#include "cgp/base/text.h"
#include "cgp/kernels/bench/operands.h"
#include "cgp/kernels/bench/table_bench.h"
#include "cgp/kernels/dequantize/dequantize.h"
#include "cgp/kernels/gemm/api/gemm.h"
#include "cgp/kernels/grouped_gemm/grouped_gemm.h"
#include "cgp/kernels/quantized_matmul/gather_columns.h"
#include "cgp/kernels/weight_only/weight_only.h"
#include "cgp/kernels/weight_only/weight_only_wgmma.h"

namespace cgp::kernels {
namespace {

using Bytes = runtime::Buffer<std::uint8_t>;

// Of the weight in its file or checkpoint.
double stored_bytes(WeightFormat f, std::uint64_t n, std::uint64_t k) {
  const auto& l = layout(f);
  const double size = double(n) * double(k);
  return l.file_bytes ? size / l.file_block * l.file_bytes : size / 2 + size / l.group * 2.5;
}

/// Any bytes of a checkpoint's size, as GPTQ has them.
Dequantize int4_weight(WeightFormat f, std::uint64_t n, std::uint64_t k, std::uint64_t at,
                       const runtime::Backend* backend) {
  Dequantize d;
  auto& w = d.weight;
  w.format = QuantizedFormat::gptq, w.rows = d.rows = n, w.cols = k, w.group = std::uint64_t(layout(f).group);
  const std::uint64_t codes = n * k / 2, scales = n * k / w.group * 2;
  w.codes = View(at, codes / 4, DType::u32, false, backend);
  w.scales = View(at + codes, scales / 2, DType::f16, false, backend);
  w.zeros = View(at + codes + scales, scales / 16, DType::u32, false, backend);
  return d;
}

void run_all(BenchTable& b) {
  struct Shape {
    std::uint64_t n, k;
  };
  RandomOperands random(b.device());
  for (const Shape& s : {Shape{4096, 4096},
                         {6144, 4096},
                         {14336, 4096},
                         {28672, 4096},
                         {4096, 14336},
                         {28672, 8192},
                         {8192, 28672},
                         {128256, 4096}})
    for (int i = 0; i < int(std::size(kWeightFormatNames)); ++i) {
      const auto f = WeightFormat(i);
      const auto& l = layout(f);
      const double bytes = stored_bytes(f, s.n, s.k);
      Bytes w = random(DType::bf16, packed_bytes(f, s.n, s.k) / 2 + 8, 1);
      CopyPeer copy(b.device(), bytes);
      for (std::uint64_t m : {1, 8, 16, 32, 64, 128, 256, 512, 4096}) {
        Bytes x = random(DType::bf16, m * s.k, 2), y(b.device(), m * s.n * 2);
        WeightOnlyProblem p{f, DType::bf16, m, s.n, s.k, x.address(), 0, w.address(), y.address(), 0};
        const auto name = text::cat("weight_only/", l.name, "/", m, "x", s.n, "x", s.k);
        const auto on_wgmma = text::cat("weight_wgmma/", l.name, "/", m, "x", s.n, "x", s.k);
        if (m >= 16 && b.wanted(on_wgmma)) {
          GemmProblem g{.type = DType::bf16, .trans_b = true, .m = m, .n = s.n, .k = s.k};
          Bytes dense = random(DType::bf16, s.n * s.k, 3);
          const auto multiply = [&](runtime::Stream& st) {
            gemm(st, g, {x.address(), m * s.k, DType::bf16}, {dense.address(), s.n * s.k, DType::bf16},
                 {y.address(), m * s.n, DType::bf16});
          };
          std::vector<measure::Contender> contenders{
              {"cgp", [&](runtime::Stream& st) { weight_wgmma_gemm(st, p); }}, {"gemm", multiply}};
          Dequantize d = int4_weight(f, s.n, s.k, w.address(), b.device().backend().get());
          d.out = View(dense.address(), s.n * s.k, DType::bf16, true, b.device().backend().get());
          if (l.has_zeros)
            contenders.push_back(
                {"dequantised", [&](runtime::Stream& st) { dequantize(st, d), multiply(st); }});
          b.run(on_wgmma, weight_wgmma_variant(weight_wgmma_config(p, b.device().info().sm_count)).name,
                2 * double(m) * double(s.n) * double(s.k), bytes, contenders);
        }
        if (!b.wanted(name) || !reject(p).empty()) continue;
        b.run(name, weight_only_variant(weight_only_config(p, b.device().info().sm_count)).name, bytes,
              {{"cgp", [&](runtime::Stream& st) { weight_only_gemm(st, p); }}, copy.contender()});
      }
    }
}

// int4 with act-order: columns of x by index, beside columns gathered by a launch
// before, and the same weights in order.
void run_gather(BenchTable& b) {
  struct Shape {
    std::uint64_t n, k;
  };
  RandomOperands random(b.device());
  const auto f = WeightFormat::int4_g128;
  for (const Shape& s : {Shape{4096, 4096}, {14336, 4096}, {4096, 14336}, {28672, 8192}})
    for (std::uint64_t m : {1, 2, 4, 8, 16}) {
      const auto name = text::cat("weight_gather/", layout(f).name, "/", m, "x", s.n, "x", s.k);
      if (!b.wanted(name)) continue;
      std::vector<std::uint32_t> order(s.k);
      std::iota(order.begin(), order.end(), 0u);
      std::shuffle(order.begin(), order.end(), std::mt19937(1));
      auto indices = b.device().upload<std::uint32_t>(order);
      Bytes w = random(DType::bf16, packed_bytes(f, s.n, s.k) / 2 + 8, 1),
            x = random(DType::bf16, m * s.k, 2), y(b.device(), m * s.n * 2);
      const WeightOnlyProblem in_order{f,           DType::bf16, m,           s.n,         s.k,
                                       x.address(), 0,           w.address(), y.address(), 0};
      WeightOnlyProblem p = in_order;
      p.gather = indices.address();
      Bytes gathered(b.device(), m * s.k * 2);
      WeightOnlyProblem from_gathered = in_order;
      from_gathered.x = gathered.address();
      b.run(name, weight_only_variant(weight_only_config(p, b.device().info().sm_count)).name,
            stored_bytes(f, s.n, s.k),
            {{"cgp", [&](runtime::Stream& st) { weight_only_gemm(st, p); }},
             {"gathered",
              [&](runtime::Stream& st) {
                gather_columns(st, {x.address(), 0, indices.address(), gathered.address(), m, s.k});
                weight_only_gemm(st, from_gathered);
              }},
             {"in_order", [&](runtime::Stream& st) { weight_only_gemm(st, in_order); }}});
    }
}

// Experts of a mixture, ragged rows, beside grouped_gemm with their weights in bf16.
void run_groups(BenchTable& b) {
  struct Shape {
    std::uint64_t groups, n, k;
  };
  RandomOperands random(b.device());
  for (const Shape& s : {Shape{8, 14336, 4096}, {64, 2816, 2048}, {128, 1536, 2048}})
    for (WeightFormat f : {WeightFormat::q4_0, WeightFormat::q4_k, WeightFormat::int4_g128})
      for (std::uint64_t m : {64, 512, 4096}) {
        const auto name =
            text::cat("weight_grouped/", layout(f).name, "/", s.groups, "x", m, "x", s.n, "x", s.k);
        if (!b.wanted(name)) continue;
        const auto ends_host = ragged_ends(s.groups, m, "ragged", 1);
        auto ends = b.device().upload<std::uint64_t>(ends_host);
        Bytes w = random(DType::bf16, s.groups * packed_bytes(f, s.n, s.k) / 2 + 8, 1),
              dense = random(DType::bf16, s.groups * s.n * s.k, 3), x = random(DType::bf16, m * s.k, 2),
              y(b.device(), m * s.n * 2);
        WeightOnlyProblem p{f, DType::bf16, m, s.n, s.k, x.address(), 0, w.address(), y.address(), 0};
        p.groups = s.groups, p.ends = ends.address(), p.wide_ends = true;
        const GroupedProblem g{
            .trans_b = true, .groups = s.groups, .rows = m, .n = s.n, .k = s.k, .wide_ends = true};
        b.run(name, weight_wgmma_variant(weight_wgmma_config(p, b.device().info().sm_count)).name,
              2 * double(m) * double(s.n) * double(s.k), double(s.groups) * stored_bytes(f, s.n, s.k),
              {{"cgp", [&](runtime::Stream& st) { weight_wgmma_gemm(st, p); }},
               {"grouped_gemm", [&](runtime::Stream& st) {
                  grouped_gemm(st, g, {x.address(), dense.address(), y.address(), ends.address()});
                }}});
      }
}

// Configs of the kernel on wgmma that are worth a measurement.
std::vector<WeightWgmmaConfig> wgmma_configs(const WeightOnlyProblem& p) {
  std::vector<WeightWgmmaConfig> out;
  WeightWgmmaConfig c{p.type, p.format};
  const auto ceil_div = [](std::uint64_t a, int b) { return (a + std::uint64_t(b) - 1) / std::uint64_t(b); };
  int most = 16;
  while (most < 256 && std::uint64_t(most) < p.m) most *= 2;
  for (c.rows = p.m > 128 ? most / 2 : most; c.rows <= most; c.rows *= 2)
    for (c.warpgroups = 1; c.warpgroups <= 4; ++c.warpgroups)
      for (const bool persistent : {false, true})
        for (c.split = 1; c.split <= (persistent ? 1 : 2); ++c.split)
          for (c.scale_terms = 1; c.scale_terms <= 2; ++c.scale_terms) {
            const auto blocks = ceil_div(p.n, c.columns()) * std::uint64_t(c.split) * ceil_div(p.m, c.rows);
            c.persistent = persistent, c.reread = p.m > std::uint64_t(c.rows);
            if ((c.warpgroups > 2 && c.rows > (c.warpgroups > 3 ? 64 : 128)) || blocks < 60 ||
                (c.split > 1 && blocks > 264) || (persistent && c.rows < 64))
              continue;
            if (weight_wgmma_fit(c)) out.push_back(c);
          }
  return out;
}
// Configs of the kernel for few rows, beside the copy. Slow to build all: a prefix "few_sweep/" asks for it.
void run_few_sweep(BenchTable& b) {
  if (!b.asked("few_sweep")) return;
  struct Shape {
    std::uint64_t n, k;
  };
  RandomOperands random(b.device());
  const int sms = b.device().info().sm_count;
  for (const Shape& s :
       {Shape{4096, 4096}, {6144, 4096}, {14336, 4096}, {28672, 4096}, {4096, 14336}, {28672, 8192}})
    for (int i = 0; i < int(std::size(kWeightFormatNames)); ++i)
      for (std::uint64_t m : {1, 2, 4, 8, 16, 32}) {
        const auto f = WeightFormat(i);
        const double bytes = stored_bytes(f, s.n, s.k);
        WeightOnlyProblem p{f, DType::bf16, m, s.n, s.k};
        for (const int cluster : {1, 2, 4, 8})
          for (const int warps : {8, 12, 16, 24})
            for (int share = 1; share <= warps; share *= 2) {
              WeightOnlyConfig c = weight_only_config(p, sms);
              c.cluster = cluster, c.warps = warps, c.share = share;
              if (warps % share || !weight_only_fit(c, s.n, sms)) continue;
              const auto variant = weight_only_variant(c).name;
              const auto name = text::cat("few_sweep/", layout(f).name, "/", m, "x", s.n, "x", s.k,
                                          "/cluster", cluster, "_warps", warps, "_share", share, "_");
              if (!b.wanted(name)) continue;
              CopyPeer copy(b.device(), bytes);
              Bytes w = random(DType::bf16, packed_bytes(f, s.n, s.k) / 2 + 8, 1),
                    x = random(DType::bf16, m * s.k, 2), y(b.device(), m * s.n * 2);
              p.x = x.address(), p.w = w.address(), p.y = y.address();
              b.run(name, variant, bytes,
                    {{"cgp", [&](runtime::Stream& st) { weight_only_gemm(st, p, c); }}, copy.contender()});
            }
      }
}
// Slow to build all: a prefix "sweep/" asks for it.
void run_sweep(BenchTable& b) {
  if (!b.asked("sweep")) return;
  struct Shape {
    std::uint64_t n, k;
  };
  RandomOperands random(b.device());
  for (const Shape& s : {Shape{4096, 4096}, {14336, 4096}, {4096, 14336}, {28672, 8192}})
    for (WeightFormat f : kWeightFormats) {
      const auto& l = layout(f);
      const double bytes = double(s.n) * double(s.k) / l.file_block * l.file_bytes;
      for (std::uint64_t m : {16, 32, 64, 128, 256, 512, 4096}) {
        WeightOnlyProblem p{f, DType::bf16, m, s.n, s.k};
        for (const auto& c : wgmma_configs(p)) {
          const auto variant = weight_wgmma_variant(c).name;
          const auto name = text::cat("sweep/", l.name, "/", m, "x", s.n, "x", s.k, "/", variant);
          if (!b.wanted(name)) continue;
          Bytes w = random(DType::bf16, packed_bytes(f, s.n, s.k) / 2 + 8, 1),
                x = random(DType::bf16, m * s.k, 2), y(b.device(), m * s.n * 2);
          p.x = x.address(), p.w = w.address(), p.y = y.address();
          b.run(name, variant, 2 * double(m) * double(s.n) * double(s.k), bytes,
                {{"cgp", [&](runtime::Stream& st) { weight_wgmma_gemm(st, p, c); }}});
        }
      }
    }
}

}  // namespace
}  // namespace cgp::kernels

int main(int argc, char** argv) {
  return cgp::kernels::bench_main("cgp_weight_only_bench", argc, argv, 15, [](cgp::kernels::BenchTable& b) {
    cgp::kernels::run_all(b), cgp::kernels::run_gather(b), cgp::kernels::run_groups(b),
        cgp::kernels::run_sweep(b), cgp::kernels::run_few_sweep(b);
  });
}
