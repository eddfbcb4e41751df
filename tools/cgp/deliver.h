// SPDX-License-Identifier: Apache-2.0
#pragma once
// How a command that measured ends: its text or JSON on standard output, its profile in a file.
#include <exception>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cgp/profile/view/document.h"
#include "tools/cgp/commands.h"

namespace cgp::cli {

/// `text` (with --json: `json`) on standard output, and `d` in the file `save` if one is named. What was
/// measured may have taken long: a file that cannot be written does not cost the text, nor a closed pipe the
/// file.
void deliver(const Context& context, const profile::Document& d, const std::string& save,
             const std::string& text, const nlohmann::ordered_json& json);
/// With the profile itself as JSON.
void deliver(const Context& context, const profile::Document& d, const std::string& save,
             const std::string& text);

/// A file beside the text of a command that has no profile: written first, and its failure said last.
class LateFailure {
 public:
  bool write(const std::string& path, const std::string& content);
  /// Throws what the first file that could not be written said.
  void rethrow() const;

 private:
  std::exception_ptr failure_;
};

}  // namespace cgp::cli
