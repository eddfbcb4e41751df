// SPDX-License-Identifier: Apache-2.0
#pragma once
// Flame graphs: stacks as boxes, each as wide as its samples, what was called above its caller.
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace cgp::profile {

/// A caller and what it called, by name.
struct FlameNode {
  double samples = 0;
  std::map<std::string, FlameNode> called;
};
/// Of the rows `folded` of a section.
FlameNode flame_tree(const nlohmann::ordered_json& section);

struct FlameStyle {
  std::string title, unit = "samples";
  /// The colour of a box, and what its tooltip says besides. `before` is what stands there in another tree, null: nothing.
  std::function<std::pair<std::string, std::string>(const std::string& name, const FlameNode& node,
                                                    const FlameNode* before)>
      box = {};
  const FlameNode* before = nullptr;  ///< that other tree
};
/// Empty without samples.
std::string flame_svg(const FlameNode& root, const FlameStyle& style);

}  // namespace cgp::profile
