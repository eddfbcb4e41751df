// SPDX-License-Identifier: Apache-2.0
// Measures dequantisation to bf16 on a GPU beside the driver's copy of as many bytes, cold L2, medians.
#include "cgp/base/text.h"
#include "cgp/kernels/bench/operands.h"
#include "cgp/kernels/bench/table_bench.h"
#include "cgp/kernels/dequantize/dequantize.h"
#include "cgp/kernels/dequantize/dequantize_ref.h"

namespace cgp::kernels {
namespace {

using Memory = runtime::Buffer<std::uint8_t>;

void run_one(BenchTable& b, QuantizedFormat f, std::uint64_t rows, std::uint64_t cols) {
  const auto title = text::cat("dequantize/", name(f), "/", rows, "x", cols);
  if (!b.wanted(title)) return;
  const auto& device = b.device();
  QuantizedWeight w;
  w.format = f, w.rows = rows, w.cols = cols;
  if (f == QuantizedFormat::bnb_nf4) w.group = 64;
  const auto host = random_weight(w, false, f == QuantizedFormat::bnb_nf4, 1);
  std::vector<Memory> memory;
  const auto give = [&](const HostArray& a) {
    if (a.shape.empty()) return View{};
    memory.push_back(device.upload<std::uint8_t>(typed<std::uint8_t>(a)));
    return View(memory.back().address(), a.size(), a.dtype, false, device.backend().get());
  };
  Dequantize d;
  d.weight = host.shape, d.rows = rows;
  d.weight.codes = give(host.codes), d.weight.scales = give(host.scales), d.weight.zeros = give(host.zeros);
  d.weight.absmax_table = give(host.absmax_table), d.weight.absmax_scales = give(host.absmax_scales);
  Memory out(device, rows * cols * 2);
  d.out = View(out.address(), rows * cols, DType::bf16, true, device.backend().get());
  const double bytes = double(stored_bytes(d.weight)) + 2 * double(rows * cols);
  CopyPeer copy(device, bytes);
  b.run(title, dequantize_variant(dequantize_config(d)).name, bytes,
        {{"cgp", [&](runtime::Stream& s) { dequantize(s, d); }}, copy.contender()});
}

void run_all(BenchTable& b) {
  for (std::size_t f = 0; f <= std::size_t(QuantizedFormat::fp8_e5m2); ++f)
    run_one(b, QuantizedFormat(f), 14336, 4096);
}

}  // namespace
}  // namespace cgp::kernels

int main(int argc, char** argv) {
  return cgp::kernels::bench_main("cgp_dequantize_bench", argc, argv, 15, cgp::kernels::run_all);
}
