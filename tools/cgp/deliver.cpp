// SPDX-License-Identifier: Apache-2.0
#include "tools/cgp/deliver.h"

#include <nlohmann/json.hpp>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/spec/report/json_text.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {

bool LateFailure::write(const std::string& path, const std::string& content) {
  try {
    write_file(path, content);
    return true;
  } catch (const Error&) {
    if (!failure_) failure_ = std::current_exception();
    return false;
  }
}

void LateFailure::rethrow() const {
  if (failure_) std::rethrow_exception(failure_);
}

void deliver(const Context& context, const profile::Document& d, const std::string& save,
             const std::string& text, const nlohmann::ordered_json& json) {
  LateFailure files;
  if (!save.empty()) files.write(save, spec::dumped(profile::to_json(d), 1) + "\n");
  write_out(context.json ? spec::dumped(json, 2) + "\n" : text);
  files.rethrow();
  if (!save.empty() && !context.json) write_out("saved " + save + "\n");
}

void deliver(const Context& context, const profile::Document& d, const std::string& save,
             const std::string& text) {
  deliver(context, d, save, text, profile::to_json(d));
}

}  // namespace cgp::cli
