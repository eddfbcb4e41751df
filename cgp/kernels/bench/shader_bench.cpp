// SPDX-License-Identifier: Apache-2.0
// Times the catalogue's kernels as shaders beside the CUDA kernels of the same problems on one GPU:
//   cgp_shader_bench [--json FILE] [--problem "KERNEL NAME=VALUE ..."]... [DEVICE]
// DEVICE: vulkan:0 (the default), wgpu:0. Without --problem: one of each kind.
// Each is timed by its own API's timestamps around one launch, cold L2, in turns of seven. The shader's result is
// checked by the kernel's oracle first.
#include <cstdio>
#include <cstring>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/bench/table_bench.h"
#include "cgp/kernels/catalog/catalog.h"

namespace cgp::kernels {
namespace {

constexpr std::string_view kProblems[] = {
    "vecadd dtype=f32 n=33554432",
    "softmax dtype=f32 rows=8192 cols=4096",
    "rms_norm dtype=f32 rows=8192 cols=4096",
    "layer_norm dtype=f32 rows=8192 cols=4096",
    "activation f=silu dtype=f32 rows=8192 cols=4096",
    "softmax_backward dtype=f32 rows=8192 cols=4096",
    "rms_norm_backward dtype=f32 rows=8192 cols=4096",
    "rope dtype=f32 tokens=8192 heads=32 dim=128",
    "dequantize format=q4_k dtype=f32 rows=8192 cols=4096",
    "dequantize format=bnb_nf4 dtype=f32 rows=8192 cols=4096",
    "gemm variant=simt dtype=f32 layout=nn m=4096 n=4096 k=4096",
    "gemm variant=simt dtype=f32 layout=nt m=2048 n=2048 k=2048",
    "gemm variant=simt dtype=f16 layout=nt m=4096 n=4096 k=4096",
    "quantized_matmul format=q4_k m=1 n=14336 k=4096 dtype=f16",
    "quantized_matmul format=q8_0 m=1 n=14336 k=4096 dtype=f16",
    "quantized_matmul format=bnb_nf4 m=1 n=14336 k=4096 dtype=f16",
    "attention dtype=f16 batch=1 heads=16 n=2048 n_kv=2048 d=64 causal=1",
    "cross_entropy dtype=f32 rows=4096 cols=8192",
    "reduce op=sum dtype=f32 shape=8192x4096 dim=1",
    "argmax dtype=f32 rows=4096 cols=8192",
    "transpose dtype=f32 rows=8192 cols=4096",
    "softmax dtype=f16 rows=8192 cols=4096",
    "rms_norm dtype=f16 rows=8192 cols=4096",
    "adamw n=33554432",
    "cumsum dtype=f32 rows=8192 cols=4096",
};

std::unique_ptr<Case> prepared(const runtime::Device& d, std::string_view problem) {
  const auto words = text::split(problem, ' ');
  const auto& kernel = find_kernel(words.at(0));
  Options options(kernel.name, kernel.options);
  for (std::size_t i = 1; i < words.size(); ++i) {
    const auto equals = words[i].find('=');
    options.set(words[i].substr(0, equals), words[i].substr(equals + 1));
  }
  return kernel.prepare(d, options, {}, 1);
}

/// Appends to what was measured before.
void measure_more(measure::Timing& t, const runtime::Device& d, Case& c) {
  const measure::Contender contender{t.name, [&](runtime::Stream& s) { c.launch(s); }};
  for (const auto& more : measure::compare(d, {&contender, 1}, {.warmup = 1, .rounds = 7}))
    t.milliseconds.insert(t.milliseconds.end(), more.milliseconds.begin(), more.milliseconds.end());
  t.summary = measure::summarise(t.milliseconds);
}

void run_one(std::vector<BenchRow>& rows, const runtime::Device& shader, const runtime::Device& cuda,
             std::string_view problem) try {
  const auto a = prepared(shader, problem), b = prepared(cuda, problem);
  a->launch(shader.stream());
  shader.sync();
  const Check c = a->verify();
  if (!c.pass) {
    std::printf("%s: WRONG, %s\n", std::string(problem).c_str(), c.describe().c_str());
    return;
  }
  BenchRow row{std::string(problem),
               text::cat(a->variant, " | ", b->variant),
               a->flops,
               a->bytes,
               {{"cgp", {}, {}}, {"cuda", {}, {}}}};
  for (int i = 0; i < 3; ++i) {
    measure_more(row.timings[0], shader, *a);
    measure_more(row.timings[1], cuda, *b);
  }
  if (row.flops < 100 * row.bytes) row.flops = 0;  // its rate is one of memory
  print_row(row);
  rows.push_back(std::move(row));
} catch (const Error& e) {
  std::printf("%s: %s\n", std::string(problem).c_str(), e.what());
}

}  // namespace
}  // namespace cgp::kernels

int main(int argc, char** argv) {
  using namespace cgp;
  return kernels::guarded([&] {
    std::string json, device = "vulkan:0";
    std::vector<std::string> problems;
    std::vector<std::string> words{"cgp_shader_bench"};
    words.insert(words.end(), argv + 1, argv + argc);
    for (std::size_t i = 1; i < words.size(); ++i)
      if (words[i] == "--json" && i + 1 < words.size())
        json = words[++i];
      else if (words[i] == "--problem" && i + 1 < words.size())
        problems.push_back(words[++i]);
      else
        device = words[i];
    const auto shader = runtime::Device::open(device), cuda = runtime::Device::open("cuda:0");
    std::printf("%s, %s\n", device.c_str(), shader.info().name.c_str());
    std::vector<kernels::BenchRow> rows;
    if (problems.empty()) problems.assign(std::begin(kernels::kProblems), std::end(kernels::kProblems));
    for (const auto& problem : problems) {
      kernels::run_one(rows, shader, cuda, problem);
      if (!json.empty())
        kernels::write_results(json, cuda.info(), words, rows,
                               text::cat(device, " and CUDA in turns, cold L2, random data, timestamps"));
    }
  });
}
