// SPDX-License-Identifier: Apache-2.0
#pragma once
// Two profiles of processor time side by side: which functions take more of it, and which less.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace cgp::profile {

struct FunctionChange {
  std::string name, module;
  double before_s = 0, after_s = 0;  ///< in the function itself
  /// Three standard errors of the difference: samples are counted, each a draw (Poisson), which is more than the clock's
  /// samples of a busy function vary by.
  double error_s = 0;
  double change_s() const { return after_s - before_s; }
  bool certain() const { return change_s() > error_s || -change_s() > error_s; }
};
/// Of two sections "cpu_samples" (docs/profiler.md), functions of Python where both have them; by the size of the change, the certain
/// ones first. Empty without samples on a side.
std::vector<FunctionChange> function_changes(const nlohmann::ordered_json& before,
                                             const nlohmann::ordered_json& after);

/// The rows of `cgp diff`: name, module, before_s, after_s, error_s, certain.
nlohmann::ordered_json to_json(const std::vector<FunctionChange>& changes);
/// The first of them as a table; empty without any.
std::string changes_text(const std::vector<FunctionChange>& changes, int width);
/// As a table for a report, and the flame graph of `after`, whose boxes are red where they take more time than before, blue
/// where they take less, and grey where that is within three standard errors. Empty without samples on a side.
std::string changes_html(const nlohmann::ordered_json& before, const nlohmann::ordered_json& after,
                         const std::string& before_name, const std::string& after_name);

}  // namespace cgp::profile
