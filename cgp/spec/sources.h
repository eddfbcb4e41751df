// SPDX-License-Identifier: Apache-2.0
#pragma once
// The texts that reports quote: PTX that ran, and C++ sources that .loc lines name, where they can be read.
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cgp::spec {

class Sources {
 public:
  /// Relative names are looked up in the current folder, then in `folders`.
  explicit Sources(std::vector<std::string> folders = {});
  /// A text that is not, or need not be, a file.
  void add(const std::string& name, std::string text);
  /// Lines of a file; nullptr if it is nowhere to be read.
  const std::vector<std::string>* lines(const std::string& name);
  /// Line `number` (from 1); nothing if there is none.
  std::optional<std::string> line(const std::string& name, int number);
  /// Where the text of `name` was found; `name` itself if it was added or not found.
  std::string path(const std::string& name);

 private:
  struct Text {
    bool there = false;
    std::string path;
    std::vector<std::string> lines;
  };
  const Text& text(const std::string& name);
  std::vector<std::string> folders_;
  std::map<std::string, Text> texts_;
};

}  // namespace cgp::spec
