// SPDX-License-Identifier: Apache-2.0
#pragma once
// Stop strings in text that comes in parts: a stop may begin in one token and end in another.
#include <string>
#include <string_view>
#include <vector>

namespace cgp::model {

class StopStrings {
 public:
  /// ArgumentError for an empty one.
  explicit StopStrings(std::vector<std::string> stops);

  /// The text that is now certain to be before any stop. What may still become a stop is held back. After a stop was
  /// found nothing is given any more; of several the one that begins first counts, of these the longest.
  std::string push(std::string_view text);
  /// What was held back, when no more text comes.
  std::string finish();
  /// The stop that was found; empty: none yet.
  const std::string& found() const { return found_; }

 private:
  std::vector<std::string> stops_;  // longest first
  std::string held_, found_;
};

}  // namespace cgp::model
