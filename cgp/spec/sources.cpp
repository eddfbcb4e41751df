// SPDX-License-Identifier: Apache-2.0
#include "cgp/spec/sources.h"

#include <filesystem>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"

namespace cgp::spec {
namespace fs = std::filesystem;
namespace {

constexpr std::uintmax_t kLargest = 32u << 20;  // nobody's source; a wrong .loc must not fill memory

std::vector<std::string> split_lines(std::string_view all) {
  std::vector<std::string> out;
  for (std::string_view line : text::split(all, '\n')) {
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    out.emplace_back(line);
  }
  if (!out.empty() && out.back().empty()) out.pop_back();
  return out;
}

bool readable(const fs::path& p) {
  std::error_code failed;
  return fs::is_regular_file(p, failed) && fs::file_size(p, failed) <= kLargest && !failed;
}

}  // namespace

Sources::Sources(std::vector<std::string> folders) : folders_(std::move(folders)) {}

void Sources::add(const std::string& name, std::string all) { texts_[name] = {true, name, split_lines(all)}; }

const Sources::Text& Sources::text(const std::string& name) {
  const auto known = texts_.find(name);
  if (known != texts_.end()) return known->second;
  Text& t = texts_[name];
  t.path = name;
  if (name.empty()) return t;
  std::vector<fs::path> candidates{name};
  for (const auto& folder : folders_) {
    if (fs::path(name).is_relative()) candidates.push_back(fs::path(folder) / name);
    candidates.push_back(fs::path(folder) / fs::path(name).filename());
  }
  for (const auto& path : candidates) {
    if (!readable(path)) continue;
    try {
      t.lines = split_lines(read_file(path.string()));
      t.there = true;
      t.path = path.lexically_normal().string();
      break;
    } catch (const Error&) {
      // another folder may have one that can be read
    }
  }
  return t;
}

const std::vector<std::string>* Sources::lines(const std::string& name) {
  const Text& t = text(name);
  return t.there ? &t.lines : nullptr;
}

std::optional<std::string> Sources::line(const std::string& name, int number) {
  const Text& t = text(name);
  if (number < 1 || std::size_t(number) > t.lines.size()) return std::nullopt;
  return t.lines[std::size_t(number - 1)];
}

std::string Sources::path(const std::string& name) { return text(name).path; }

}  // namespace cgp::spec
