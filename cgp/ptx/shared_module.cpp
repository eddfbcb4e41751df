// SPDX-License-Identifier: Apache-2.0
#include "cgp/ptx/shared_module.h"

#include <mutex>

#include "cgp/ptx/parse.h"

namespace cgp::ptx {
namespace {

struct Parsed {
  std::string text;
  Module module;
};

std::mutex mutex;
std::weak_ptr<const Parsed> last;

std::shared_ptr<const Parsed> shared_of(std::string_view text) {
  const std::lock_guard lock(mutex);
  auto parsed = last.lock();
  return parsed && parsed->text == text ? parsed : nullptr;
}

}  // namespace

std::shared_ptr<const Module> share_module(std::string_view text) {
  auto parsed = shared_of(text);
  if (!parsed) {
    parsed = std::make_shared<const Parsed>(Parsed{std::string(text), parse(text)});
    const std::lock_guard lock(mutex);
    last = parsed;
  }
  return {parsed, &parsed->module};
}

Module module_of(std::string_view text) {
  const auto parsed = shared_of(text);
  return parsed ? parsed->module : parse(text);
}

}  // namespace cgp::ptx
