// SPDX-License-Identifier: Apache-2.0
#pragma once
// Finds libcupti at run time. Header only, because the library that is loaded into other programs uses it and
// links nothing else of cgp.
#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "cgp/profile/cupti/cupti_abi.h"

namespace cgp::measure::cupti {

/// A copy that the process has already (PyTorch brings one) before any other: two copies in one process
/// disturb each other. Then $CGP_CUPTI, the loader's path, the toolkit's folders. Empty text: loaded.
inline std::string load(Functions& f) {
  void* library = nullptr;
  for (const char* name : {"libcupti.so.13", "libcupti.so.12"})
    if (!library) library = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
  std::vector<std::string> names;
  if (const char* given = std::getenv("CGP_CUPTI"); given && *given) {
    names.emplace_back(given);
  } else {
    names = {"libcupti.so.13", "libcupti.so.12", "libcupti.so"};
    for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
      if (const char* home = std::getenv(variable)) {
        names.push_back(std::string(home) + "/lib64/libcupti.so");
        names.push_back(std::string(home) + "/extras/CUPTI/lib64/libcupti.so");
      }
    names.emplace_back("/usr/local/cuda/lib64/libcupti.so");
    names.emplace_back("/usr/local/cuda/extras/CUPTI/lib64/libcupti.so");
  }
  std::string why;
  for (const auto& name : names) {
    if (library) break;
    library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library && why.empty()) why = dlerror();
  }
  if (!library) return why;
#define CGP_CUPTI_BIND(name, parameters) f.name = reinterpret_cast<int(*) parameters>(dlsym(library, #name));
  CGP_CUPTI_FUNCTIONS(CGP_CUPTI_BIND)
#undef CGP_CUPTI_BIND
  return f.cuptiSubscribe && f.cuptiGetResultString ? "" : "it lacks cuptiSubscribe";
}

inline std::string result_text(const Functions& f, int code) {
  const char* s = nullptr;
  if (f.cuptiGetResultString) f.cuptiGetResultString(code, &s);
  return s ? s : "CUPTI error " + std::to_string(code);
}

}  // namespace cgp::measure::cupti
