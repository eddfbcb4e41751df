// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tuning at first use. CGP_TUNE says what gemm() does with a product that no table knows:
//   off      takes the model's choice, and of tables only the one that ships
//   cached   takes winners of the user's file too (`cgp tune gemm` and full write it); the default
//   full     measures at the first call, and adds the winner to that file for all processes
#include <functional>
#include <optional>
#include <span>

#include "cgp/kernels/gemm/select/gemm_planner.h"

namespace cgp::kernels {

/// What measures a choice: replaced in tests.
struct GemmTimer {
  std::function<double(const GemmChoice&)> microseconds;  ///< of one run; the first one compiles
  std::function<double()> seconds;                        ///< a clock
};

/// The fastest of `candidates`, the first of which is the model's own: that one stays unless another is 1 % faster. Each is
/// run four times (one more to compile it), the three fastest up to 15 times in turns. After 60 % of `budget` seconds no
/// further candidate begins, after all of it nothing does. Candidates that throw an Error are left out; empty where all do.
std::optional<GemmMeasured> fastest_gemm(std::span<const GemmChoice> candidates, const GemmTimer& timer,
                                         double budget);

/// Measures the candidates of a product at its first call and tells the planner the winner. Does nothing where there is
/// nothing to choose: products with an epilogue, factors or beta, operands that are not dense or not at multiples of 16
/// bytes, and where the planner's table or the user's file has a winner. Nothing is measured while the stream is captured or
/// another thread measures: the model's choice is taken until a later call. C is overwritten.
void tune_gemm(runtime::Stream& s, GemmPlanner& planner, const GemmProblem& p, const GemmAddresses& at,
               const GemmTimer& timer);
/// The same with the device's own clock: between events of a stream of its own that follows `s`, with cold L2.
void tune_gemm(runtime::Stream& s, GemmPlanner& planner, const GemmProblem& p, const GemmAddresses& at);

}  // namespace cgp::kernels
