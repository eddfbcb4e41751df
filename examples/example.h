// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the rungs share so that each can be about one idea: a main(), the GEMM problem with its oracle, and a
// line of the emulator's counters.
#include <cinttypes>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "cgp/base/error.h"
#include "cgp/base/random.h"
#include "cgp/dsl/kernel.h"
#include "cgp/emu/emu.h"
#include "cgp/launch/image.h"
#include "cgp/runtime/device.h"
#include "cgp/runtime/launcher.h"

namespace example {

using namespace cgp;

/// Runs body(device) on argv[1] (by default an emulator). Exit status: 0 right, 1 wrong, 77 not on this
/// device.
template <class Body>
int main_on_device(int argc, char** argv, Body&& body, const char* otherwise = "emu") {
  try {
    auto device = runtime::Device::open(argc > 1 ? argv[1] : otherwise);
    const bool right = body(device);
    std::printf("%s on %s\n", right ? "right" : "WRONG", device.info().spec.c_str());
    return right ? 0 : 1;
  } catch (const Unsupported& e) {
    std::printf("skipped: %s\n", e.what());
    return 77;
  } catch (const Error& e) {
    std::printf("%s\n", e.what());
    return 1;
  }
}

/// Throws Unsupported unless the device's architecture is `min_cc` or later, and (if given) exactly `only`.
inline void needs(const runtime::Device& d, int min_cc, std::string_view only = {}) {
  const auto& arch = d.info().arch;
  if (!only.empty() && arch != only)
    throw Unsupported("this rung is for " + std::string(only) + " alone, this is " + arch);
  if (d.info().cc() < min_cc)
    throw Unsupported("this rung needs sm_" + std::to_string(min_cc) + " or later, this is " + arch);
}

/// Whole numbers in [-4, 4]: sums of their products are exact in f32, so results must be equal to the
/// oracle's.
template <class T>
std::vector<T> small_integers(std::size_t n, std::uint64_t seed) {
  SplitMix64 random(seed);
  std::vector<T> v;
  v.reserve(n);
  for (std::size_t i = 0; i < n; ++i) v.push_back(T(float(int(random.next() % 9) - 4)));
  return v;
}

/// C[m, n] = sum over k of A[m, k] * B[n, k]: bf16 in, f32 out; both operands have K contiguous.
struct Gemm {
  static constexpr std::uint32_t m = 256, n = 256, k = 256;
  std::vector<bfloat16> host_a = small_integers<bfloat16>(m * k, 1),
                        host_b = small_integers<bfloat16>(n * k, 2);
  runtime::Buffer<bfloat16> a, b;
  runtime::Buffer<float> c;

  explicit Gemm(const runtime::Device& d)
      : a(d.upload<bfloat16>(host_a)), b(d.upload<bfloat16>(host_b)), c(d.zeros<float>(m * n)) {}

  /// Compares C with plain loops, then clears it for the next kernel.
  bool check() {
    const auto got = c.to_vector();
    const std::vector<float> fa(host_a.begin(), host_a.end()), fb(host_b.begin(), host_b.end());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        double want = 0;
        for (std::size_t p = 0; p < k; ++p) want += double(fa[i * k + p]) * double(fb[j * k + p]);
        if (got[i * n + j] != want && wrong++ == 0)
          std::printf("C[%zu, %zu] is %g, should be %g\n", i, j, double(got[i * n + j]), want);
      }
    c.zero();
    return wrong == 0;
  }
};

/// A tensor map of a row-major matrix for parameter `param`: box, type and swizzle come from the kernel.
template <class T>
runtime::TensorMap matrix_map(const runtime::Device& d, const runtime::LoadedKernel& fn, std::size_t param,
                              const runtime::Buffer<T>& data, std::uint64_t rows, std::uint64_t cols) {
  auto spec = launch::tensor_map_spec(fn.image(), param);
  spec.dims = {cols, rows};
  return d.tensor_map(spec, data);
}

/// Waits, then prints what the emulator counted in the last launch (on a GPU: only the name).
inline void show(const runtime::Device& d, const char* name) {
  d.sync();
  if (!d.is_emulator()) {
    std::printf("%s\n", name);
    return;
  }
  const auto& c = d.last_result().result->counters;
  std::printf("%-24s %9" PRIu64 " warp instructions %8" PRIu64 " global sectors %8" PRIu64
              " shared bank conflicts\n",
              name, c.warp_instructions, c.global_load_sectors + c.global_store_sectors,
              c.shared_load_conflicts + c.shared_store_conflicts);
}

}  // namespace example
