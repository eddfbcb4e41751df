// SPDX-License-Identifier: Apache-2.0
// A libcupti that refuses what CGP_FAKE_CUPTI says, for tests of libcgp_inject: "cuptiSubscribe=39" fails
// with that code, "cuptiSubscribe:2=39" from the second call on.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "cgp/profile/cupti/cupti_abi.h"

#pragma GCC visibility push(default)

namespace {

using cgp::measure::cupti::CallbackData;

void (*subscribed)(void*, std::uint32_t, std::uint32_t, const void*) = nullptr;

int code_of(const char* function) {
  static auto& calls = *new std::map<std::string, int>;  // used while the process ends
  const int call = ++calls[function];
  const char* wanted = std::getenv("CGP_FAKE_CUPTI");
  const std::string all = wanted ? wanted : "", name = function;
  for (std::size_t at = all.find(name); at != std::string::npos; at = all.find(name, at + 1)) {
    int first = 1, code = 0;
    const char* rest = all.c_str() + at + name.size();
    if (std::sscanf(rest, "=%d", &code) == 1 || std::sscanf(rest, ":%d=%d", &first, &code) == 2)
      return call >= first ? code : 0;
  }
  return 0;
}

}  // namespace

extern "C" {
int cuptiSubscribe(void** subscriber, void (*callback)(void*, std::uint32_t, std::uint32_t, const void*),
                   void*) {
  *subscriber = &subscribed;
  subscribed = callback;
  return code_of("cuptiSubscribe");
}
int cuptiGetResultString(int code, const char** text) {
  static auto& said = *new std::string;
  said = "refused " + std::to_string(code);
  *text = said.c_str();
  return 0;
}
int cuptiGetTimestamp(std::uint64_t* t) {
  static std::uint64_t now = 0;
  *t = now += 1000;
  return 0;
}
int cuptiActivityRegisterCallbacks(void*, void*) { return code_of("cuptiActivityRegisterCallbacks"); }
int cuptiActivityEnable(std::uint32_t) { return code_of("cuptiActivityEnable"); }
int cuptiActivityEnableDriverApi(std::uint32_t, std::uint8_t) {
  return code_of("cuptiActivityEnableDriverApi");
}
int cuptiActivityEnableRuntimeApi(std::uint32_t, std::uint8_t) {
  return code_of("cuptiActivityEnableRuntimeApi");
}
int cuptiActivityFlushAll(std::uint32_t) { return code_of("cuptiActivityFlushAll"); }
int cuptiActivityGetNextRecord(std::uint8_t*, std::size_t, void**) { return 1; }
int cuptiEnableCallback(std::uint32_t, void*, std::uint32_t, std::uint32_t) {
  return code_of("cuptiEnableCallback");
}
int cuptiFinalize() { return code_of("cuptiFinalize"); }
/// The program launches a kernel: the driver's call begins and ends.
void fake_cupti_launch() {
  static std::uint32_t launches = 0;
  ++launches;
  for (const std::uint32_t site : {0u, 1u}) {
    const CallbackData call{site, "cuLaunchKernel", nullptr, nullptr, "k", nullptr, 0, nullptr, launches};
    if (subscribed)
      subscribed(nullptr, cgp::measure::cupti::kDriverDomain, cgp::measure::cupti::kLaunchKernel[0], &call);
  }
}
}
