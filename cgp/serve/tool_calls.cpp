// SPDX-License-Identifier: Apache-2.0
#include "cgp/serve/tool_calls.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

namespace cgp::serve {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kMarkers[] = {"<tool_call>", "<function=", "[TOOL_CALLS]", "<|python_tag|>"};
constexpr std::string_view kSpace = " \t\r\n";

/// Where a marker begins, or what may become one; npos: nowhere.
std::size_t marker_in(std::string_view text) {
  std::size_t first = std::string_view::npos;
  for (const std::string_view marker : kMarkers) {
    first = std::min(first, text.find(marker));
    for (std::size_t n = std::min(marker.size() - 1, text.size()); n > 0; --n)
      if (text.substr(text.size() - n) == marker.substr(0, n)) {
        first = std::min(first, text.size() - n);
        break;
      }
  }
  return first;
}

std::string_view trimmed(std::string_view s) {
  const std::size_t first = s.find_first_not_of(kSpace);
  return first == s.npos ? std::string_view() : s.substr(first, s.find_last_not_of(kSpace) - first + 1);
}

}  // namespace

std::string ToolCallReader::push(std::string_view text) {
  held_ += text;
  if (!names_.empty() && !begun_) {
    // An answer that begins as JSON may be calls as a whole.
    const std::size_t first = held_.find_first_not_of(kSpace);
    if (first == held_.npos || held_[first] == '{' || held_[first] == '[') return {};
  }
  const std::size_t marker = names_.empty() ? held_.npos : marker_in(held_);
  std::string out = held_.substr(0, marker);
  held_.erase(0, out.size());
  if (!out.empty()) begun_ = true;
  return out;
}

ToolCallReader::Rest ToolCallReader::finish() {
  Rest rest;
  const auto take = [&](std::string_view name, const ordered_json& arguments) {
    if (std::find(names_.begin(), names_.end(), name) == names_.end()) return false;
    rest.calls.push_back(
        {std::string(name), arguments.is_string() ? arguments.get<std::string>() : arguments.dump()});
    return true;
  };
  const auto take_object = [&](const ordered_json& j) {
    if (!j.is_object() || !j.contains("name") || !j["name"].is_string()) return false;
    for (const char* key : {"arguments", "parameters"})
      if (j.contains(key)) return take(j["name"].get<std::string>(), j[key]);
    return take(j["name"].get<std::string>(), ordered_json::object());
  };
  const auto parsed = [](std::string_view text) { return ordered_json::parse(text, nullptr, false); };
  std::string_view left = held_;
  bool sound = !names_.empty();
  while (sound && !(left = trimmed(left)).empty()) {
    std::string_view inside;
    const auto between = [&](std::string_view open, std::string_view close) {
      if (!left.starts_with(open)) return false;
      const std::size_t end = std::min(left.find(close), left.size());  // the end of generation closes, too
      inside = left.substr(open.size(), end - open.size());
      left.remove_prefix(std::min(end + close.size(), left.size()));
      return true;
    };
    if (between("<tool_call>", "</tool_call>")) {
      sound = take_object(parsed(inside));
    } else if (between("<function=", "</function>")) {
      const std::size_t name = std::min(inside.find('>'), inside.size());
      const auto arguments = parsed(inside.substr(std::min(name + 1, inside.size())));
      sound = arguments.is_object() && take(inside.substr(0, name), arguments);
    } else {
      for (const std::string_view marker : {kMarkers[2], kMarkers[3]})
        if (left.starts_with(marker)) left.remove_prefix(marker.size());
      ordered_json j = parsed(left);
      if (j.is_object()) j = ordered_json::array({j});
      sound = j.is_array() && !j.empty() && std::all_of(j.begin(), j.end(), take_object);
      left = {};
    }
  }
  if (!sound) rest.calls.clear(), rest.text = std::move(held_);
  held_.clear();
  return rest;
}

}  // namespace cgp::serve
