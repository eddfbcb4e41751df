// SPDX-License-Identifier: Apache-2.0
#pragma once
// What this processor can do at most, measured: multiply-adds by vector width, and reads, copies and triads
// from each level of memory. And the small loops of profile simd, scalar, parallel and scaling.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cgp/cpu/dispatch.h"
#include "cgp/profile/measure/measure.h"

namespace cgp::profile {

struct CpuCeiling {
  std::string name;  ///< "AVX-512 fp32 FMA", "L1 read"
  bool bandwidth = false;
  double value = 0;  ///< GFLOP/s or GB/s of one core
  std::string how;
};
/// Within about `seconds`. Widths that the processor lacks are left out.
std::vector<CpuCeiling> cpu_ceilings(double seconds);

/// Reads `bytes` (a multiple of 512, aligned to 64) with the widest loads of `isa`, two of which a core may
/// start in a cycle. The exclusive or of all 64-bit words, so that nothing can be left out.
std::uint64_t read_all(cpu::Isa isa, const void* data, std::size_t bytes);

/// The best rate of several blocks within about `seconds`: a ceiling is a maximum. `work` returns its amount.
double best_rate(double seconds, const std::function<double()>& work,
                 const std::function<double()>& clock = measure::now);
/// `rounds` steps of independent chains of multiply-adds, a dozen with vectors of `isa`; how many operations.
double multiply_adds(cpu::Isa isa, std::size_t rounds);
/// Multiply-adds of one core, with the widest vectors of `isa`; GFLOP/s.
double fma_peak_gflops(cpu::Isa isa, double seconds, const std::function<double()>& clock = measure::now);
/// An array of so many bytes read again and again: from the level of memory that it fits into.
double read_bandwidth_gbps(std::size_t bytes, int threads, double seconds,
                           const std::function<double()>& clock = measure::now);

/// Names of cpu::Isa; throws ArgumentError for others.
bool has_isa(const std::string& isa);
/// axpy, dot, ...: names of the loops (cgp/cpu/loops) that can be profiled.
std::vector<std::string> cpu_functions();
/// Runs a loop once over `n` floats; the result depends on all of the work. Throws Unsupported when the
/// processor lacks the ISA, ArgumentError for unknown names.
float run_cpu_function(const std::string& function, const std::string& isa, const float* a, float* b,
                       std::size_t n);
/// Operations and bytes of one call.
double cpu_flops(const std::string& function, std::size_t n);
double cpu_bytes(const std::string& function, std::size_t n);

}  // namespace cgp::profile
