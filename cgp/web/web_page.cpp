// SPDX-License-Identifier: Apache-2.0
#include "cgp/web/web_page.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/catalog/catalog.h"
#include "cgp/kernels/common/comparisons.h"
#include "cgp/runtime/shader/recording.h"
#include "cgp/web/kernels_page.h"
#include "cgp/web/web_json.h"

namespace cgp::web {
namespace {
using nlohmann::ordered_json;
using runtime::Recording;

constexpr std::string_view kProblems[] = {
    "vecadd dtype=f32 n=20003",
    "activation f=silu dtype=f32 rows=16 cols=1000",
    "activation_backward f=silu dtype=f32 rows=16 cols=1000",
    "softmax dtype=f32 rows=16 cols=1000",
    "softmax_backward dtype=f32 rows=16 cols=1000",
    "rms_norm dtype=f32 rows=16 cols=1000",
    "rms_norm_backward dtype=f32 rows=16 cols=500",
    "layer_norm dtype=f32 rows=16 cols=1000",
    "rope dtype=f32 tokens=33 heads=4 dim=64",
    "attention dtype=f16 heads=2 n=100 d=64 causal=1",
    "gemm dtype=f32 layout=nt m=100 n=130 k=70",
    "gemm dtype=f16 layout=nn m=84 n=90 k=130",
    "quantized_matmul format=q4_k m=1 n=65 k=512 dtype=f16",
    "dequantize format=q4_k dtype=f32 rows=9 cols=1024",
    "dequantize format=bnb_nf4 dtype=f32 rows=9 cols=1024",
    "cross_entropy dtype=f32 rows=9 cols=1000",
    "reduce op=sum dtype=f32 shape=33x500 dim=1",
    "argmax dtype=f32 rows=33 cols=333",
    "cumsum dtype=f32 rows=9 cols=1000",
    "transpose dtype=f32 rows=100 cols=130",
    "adamw n=5003 step=3",
};

/// As 32-bit floats; what their rounding can move is allowed.
ordered_json expected(const kernels::Comparisons::Comparison& c, int memory) {
  std::vector<float> want, tolerance;
  for (std::size_t i = 0; i < c.want.size(); ++i) {
    want.push_back(float(c.want[i]));
    const bool exact = double(want.back()) == c.want[i] || !std::isfinite(c.want[i]);
    tolerance.push_back(float(c.tolerance[i]) + (exact ? 0.f : std::fabs(want.back()) * 0x1p-23f));
  }
  return {{"memory", memory},
          {"dtype", name(c.got.dtype)},
          {"want", base64(want.data(), 4 * want.size())},
          {"tolerance", base64(tolerance.data(), 4 * tolerance.size())}};
}

}  // namespace

std::span<const std::string_view> default_problems() { return kProblems; }

ordered_json kernel_data(const std::string& problem) {
  const auto words = text::split(problem, ' ');
  const auto& kernel = kernels::find_kernel(words.at(0));
  kernels::Options options(kernel.name, kernel.options);
  for (std::size_t i = 1; i < words.size(); ++i) {
    const auto equals = words[i].find('=');
    if (equals == words[i].npos)
      throw ArgumentError(
          {"options of a kernel are NAME=VALUE", problem, text::cat("\"", words[i], "\" is none"), {}});
    options.set(words[i].substr(0, equals), words[i].substr(equals + 1));
  }
  runtime::Recorder recorder;
  const auto prepared = kernel.prepare(recorder.device(), options, {}, 1);
  recorder.begin();
  prepared->launch(recorder.device().stream());
  recorder.device().stream().wait();
  const Recording r = recorder.end();
  kernels::Comparisons comparisons;
  if (const auto check = prepared->verify(); !check.pass)
    throw Error(
        {text::cat("the emulator's result of ", problem, " must be right"), {}, check.describe(), {}});

  if (comparisons.all.empty())
    throw Unsupported({text::cat("a page checks element by element; ", kernel.name, " has another check"),
                       problem,
                       {},
                       {}});

  ordered_json j = {{"problem", problem},
                    {"summary", kernel.summary},
                    {"variant", prepared->variant},
                    {"flops", prepared->flops},
                    {"bytes", prepared->bytes}};
  j["shaders"] = json_of(r.shaders), j["needs"] = needs_of(r.shaders);
  for (const auto& c : r.commands) j["commands"].push_back(json_of(c));
  j["memory"] = json_of(r.memory);
  std::vector<bool> taken(r.memory.size());
  for (const auto& c : comparisons.all) {
    std::size_t m = 0;
    while (m < r.memory.size() && (taken[m] || r.memory[m].end != c.got.bytes)) ++m;
    if (m == r.memory.size())
      throw Unsupported(
          {text::cat("a page checks whole outputs, each once; ", kernel.name, " compares parts"),
           problem,
           {},
           "choose other options"});
    taken[m] = true;
    j["outputs"].push_back(expected(c, int(m)));
  }
  return j;
}

std::string page(const std::vector<ordered_json>& kernels) { return with_data(kKernelsPage, kernels); }

}  // namespace cgp::web
