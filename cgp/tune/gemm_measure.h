// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs gemm problems on a GPU: against the best of cuBLASLt (`cgp bench gemm`), and candidate against
// candidate
// (`cgp tune gemm`). Interleaved rounds in one process, cold L2, random operands.
#include <memory>
#include <string>
#include <vector>

#include "cgp/kernels/bench/operands.h"
#include "cgp/kernels/gemm/select/gemm_table.h"
#include "cgp/profile/counters/nvml.h"
#include "cgp/profile/peers/peer_cublaslt.h"
#include "cgp/tune/gemm_problems.h"
#include "cgp/tune/gemm_report.h"

namespace cgp::tune {

class GemmMeasure {
 public:
  /// Unsupported on the emulator. Without cuBLASLt, or with `peer` false, there is no peer, and no_peer()
  /// says why.
  GemmMeasure(const runtime::Device& device, bool peer);
  const std::string& no_peer() const { return no_peer_; }
  std::string peer_version() const;

  /// One row; `rounds` 0: 40, and 20 for long problems.
  GemmRow row(const GemmTask& task, const kernels::GemmTable& table, int rounds);

  struct Timed {
    kernels::GemmChoice choice;
    measure::Timing timing;
    std::string failure;  ///< why it has no time
  };
  /// Every candidate, fastest first; the first three with `rounds` rounds against each other. The candidate
  /// that select_gemm takes by itself is marked by `selected`.
  std::vector<Timed> candidates(const kernels::GemmProblem& p, int rounds, std::string& selected);

 private:
  struct Operands {
    runtime::Buffer<std::uint8_t> a, b, c, bias, factors;
    kernels::GemmAddresses at() const {
      return {a.address(), b.address(), c.address(), factors.address(), factors.address()};
    }
  };
  Operands operands(const kernels::GemmProblem& p);
  runtime::Device device_;
  kernels::RandomOperands random_;
  std::unique_ptr<measure::CublasLt> peer_;
  std::string no_peer_;
  measure::GpuSampler sampler_;
};

/// The largest error of a product (factors 1) at a few places, over what its precision and one rounding
/// allow: up to 1 is right. Buffers as bytes; `bias` has the type of C, and counts where the epilogue has
/// one.
double gemm_error_at_places(const GemmTask& task, const runtime::Buffer<std::uint8_t>& a,
                            const runtime::Buffer<std::uint8_t>& b, const runtime::Buffer<std::uint8_t>& c,
                            const runtime::Buffer<std::uint8_t>& bias, int places = 8);

}  // namespace cgp::tune
