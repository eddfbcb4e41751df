// SPDX-License-Identifier: Apache-2.0
#include "cgp/web/web_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace cgp::web {
using nlohmann::ordered_json;
using runtime::Recording;

std::string base64(const void* data, std::size_t n) {
  constexpr const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto* p = static_cast<const unsigned char*>(data);
  std::string out;
  for (std::size_t i = 0; i < n; i += 3) {
    const unsigned have = unsigned(std::min<std::size_t>(3, n - i));
    unsigned v = 0;
    for (unsigned k = 0; k < 3; ++k) v = v << 8 | (k < have ? p[i + k] : 0u);
    for (unsigned k = 0; k < 4; ++k) out.push_back(k <= have ? kDigits[v >> (18 - 6 * k) & 63] : '=');
  }
  return out;
}

std::string base64(const std::vector<std::byte>& v) { return base64(v.data(), v.size()); }

ordered_json json_of(const Recording::Command& c) {
  using Kind = Recording::Command::Kind;
  if (c.kind == Kind::write) return {{"write", c.to}, {"offset", c.to_offset}, {"data", base64(c.block)}};
  if (c.kind == Kind::copy)
    return {{"copy", c.to},
            {"offset", c.to_offset},
            {"from", c.from},
            {"from_offset", c.from_offset},
            {"bytes", c.bytes}};
  ordered_json bindings = ordered_json::array();
  for (const auto& b : c.bindings) bindings.push_back({b.binding, b.memory});
  return {{"shader", c.shader}, {"grid", c.grid}, {"block", base64(c.block)}, {"bindings", bindings}};
}

ordered_json json_of(const std::vector<Recording::Memory>& memory) {
  ordered_json j = ordered_json::array();
  for (const auto& m : memory) j.push_back({{"bytes", m.bytes}, {"start", base64(m.start)}});
  return j;
}

ordered_json json_of(const std::vector<shader::Shader>& shaders) {
  ordered_json j = ordered_json::array();
  for (const auto& s : shaders) j.push_back({{"entry", s.entry}, {"wgsl", s.wgsl}});
  return j;
}

ordered_json needs_of(const std::vector<shader::Shader>& shaders) {
  shader::Requirements needs;
  for (const auto& s : shaders) {
    needs.threads = std::max(needs.threads, s.needs.threads);
    needs.shared_bytes = std::max(needs.shared_bytes, s.needs.shared_bytes);
    needs.storage_buffers = std::max(needs.storage_buffers, s.needs.storage_buffers);
  }
  return {{"threads", needs.threads},
          {"shared_bytes", needs.shared_bytes},
          {"storage_buffers", needs.storage_buffers}};
}

std::string with_data(std::string_view page, const ordered_json& data) {
  std::string text = data.dump();
  for (std::size_t at = 0; (at = text.find("</", at)) != text.npos; at += 3) text.replace(at, 2, "<\\/");
  std::string out(page);
  constexpr std::string_view kMark = "@DATA@";
  out.replace(out.find(kMark), kMark.size(), text);
  return out;
}

}  // namespace cgp::web
