// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/sampling/flame_graph.h"

#include <fmt/core.h>

#include <algorithm>

#include "cgp/base/markup.h"
#include "cgp/base/text.h"
#include "cgp/profile/view/document.h"
#include "cgp/profile/view/table.h"

namespace cgp::profile {
namespace {

using fmt::format;

constexpr double kWidth = 1180, kRow = 18, kThin = 0.4;
constexpr std::size_t kDepth = 120;

std::string by_name(const std::string& name) {
  unsigned h = 2166136261u;
  for (char c : name) h = (h ^ static_cast<unsigned char>(c)) * 16777619u;
  return format("hsl({},{}%,{}%)", h % 55, 65 + h / 64 % 20, 66 + h / 4096 % 12);
}

std::size_t depth_of(const FlameNode& node) {
  std::size_t most = 0;
  for (const auto& [name, called] : node.called) most = std::max(most, depth_of(called));
  return most + 1;
}

struct Drawing {
  const FlameStyle& style;
  double scale = 0, height = 0, all = 0;
  std::string out;

  void draw(const std::string& name, const FlameNode& node, const FlameNode* before, double x,
            std::size_t depth) {
    const double w = node.samples * scale;
    if (w < kThin || depth >= kDepth) return;
    const double y = height - kRow * double(depth + 1);
    const auto [fill, more] =
        style.box ? style.box(name, node, before) : std::pair{by_name(name), std::string()};
    out += format(
        "<g tabindex='0' role='button'><title>{}: {:.0f} {}, {:.2f} %{}</title><rect x='{:.1f}' y='{:.0f}' "
        "width='{:.1f}' height='{:.0f}' fill='{}' rx='1'/>",
        text::escape_markup(name), node.samples, style.unit, 100 * node.samples / all, more, 10 + x, y,
        std::max(0.3, w - 0.4), kRow - 1, fill);
    if (w > 40)
      out += format("<text x='{:.1f}' y='{:.0f}' fill='#1b1b1b'>{}</text>", 13 + x, y + 13,
                    text::escape_markup(fitted(name, std::size_t((w - 6) / 6.6))));
    out += "</g>\n";
    for (const auto& [called, child] : node.called) {
      const FlameNode* other = nullptr;
      if (before)
        if (const auto at = before->called.find(called); at != before->called.end()) other = &at->second;
      draw(called, child, other, x, depth + 1);
      x += child.samples * scale;
    }
  }
};

}  // namespace

FlameNode flame_tree(const nlohmann::ordered_json& section) {
  FlameNode root;
  for (const auto& row : rows_in(section, "folded")) {
    const double samples = number_in(row, "samples");
    if (!(samples > 0) || !row.contains("stack") || !row["stack"].is_string()) continue;
    FlameNode* at = &root;
    at->samples += samples;
    std::size_t depth = 0;
    const std::string stack = row["stack"].get<std::string>();
    for (const auto name : text::split(stack, ';')) {
      if (++depth > kDepth) break;
      at = &at->called[std::string(name)];
      at->samples += samples;
    }
  }
  return root;
}

std::string flame_svg(const FlameNode& root, const FlameStyle& style) {
  if (root.samples <= 0) return {};
  Drawing d{
      style, kWidth / root.samples, kRow * double(std::min(depth_of(root), kDepth)) + 34, root.samples, {}};
  d.draw(format("all: {:.0f} {}", root.samples, style.unit), root, style.before, 0, 0);
  return format(
      "<svg xmlns='http://www.w3.org/2000/svg' class='flame' viewBox='0 0 1200 {:.0f}' "
      "font-family='ui-monospace,monospace' font-size='11' role='img'>\n<text x='10' y='18' "
      "font-size='13' fill='currentColor'>{}</text>\n{}</svg>\n",
      d.height + 4, text::escape_markup(style.title), d.out);
}

}  // namespace cgp::profile
