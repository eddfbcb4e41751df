// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <atomic>
#include <cstdio>
#include <thread>

#include "cgp/base/error.h"
#include "cgp/kernels/gemm/api/gemm.h"

namespace cgp::kernels {

/// Compiles what is not compiled yet, on all cores, and says what cannot be.
inline void load_all(const runtime::Device& d, const std::vector<GemmChoice>& choices) {
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i)
    threads.emplace_back([&] {
      for (std::size_t c; (c = next++) < choices.size();) try {
          load(d, choices[c].variant);
        } catch (const Error& e) {
          std::printf("%s: %s\n", choices[c].variant.name.c_str(), e.what());
        }
    });
  for (auto& t : threads) t.join();
}

}  // namespace cgp::kernels
