// SPDX-License-Identifier: Apache-2.0
#pragma once
// Saved profiles by name, their history, and how much identical runs differ on this machine.
#include <optional>
#include <string>
#include <vector>

#include "cgp/profile/view/document.h"

namespace cgp::profile {

class BaselineStore {
 public:
  /// `folder`, else $CGP_BASELINES, else .cgp below the current folder. Nothing is created before the first
  /// write.
  explicit BaselineStore(std::string folder = {});
  const std::string& folder() const { return folder_; }
  std::vector<std::string> names() const;
  /// Throws ArgumentError with the names there are.
  Document load(const std::string& name) const;
  /// Throws ArgumentError when it exists and `force` is not given. The history keeps all that were ever
  /// saved.
  void save(const std::string& name, const Document& d, bool force) const;
  std::vector<Document> history(const std::string& name) const;
  /// Share by which medians of identical runs differed (99th percentile), by machine key; absent when it was
  /// never calibrated here.
  std::optional<double> noise_floor(const std::string& machine_key) const;
  void set_noise_floor(const std::string& machine_key, double share) const;

 private:
  std::string path(const std::string& name) const;
  std::string folder_;
};

/// Two saved profiles: what can be said without running anything.
struct FileDiff {
  std::string name, unit, verdict, why;
  double before = 0, after = 0, change = 0, floor = 0, effect = 0;
};
/// By name of sample series, and of metrics that are exact counts. Verdicts: REGRESSION (exact counts alone),
/// SUSPECT (times that got worse: only pairs measured side by side make that a regression), IMPROVED, NO_CHANGE,
/// INCONCLUSIVE, INCOMPARABLE.
std::vector<FileDiff> diff_documents(const Document& before, const Document& after, double floor,
                                     double equivalence);

}  // namespace cgp::profile
