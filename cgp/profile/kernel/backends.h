// SPDX-License-Identifier: Apache-2.0
#pragma once
// The same problem of a kernel on several back ends: emulator, GPU, cuBLASLt, instruction sets of the processor.
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cgp/profile/view/document.h"

namespace cgp::profile {

struct BackendRow {
  std::string name;   ///< emu, emu:ARCH, cuda, cuda:N; for gemm also cublas, scalar, sse2, avx2, avx512
  std::string why;    ///< why there is no profile; empty: there is one
  Document document;  ///< times of a GPU or processor, exact counters of the emulator
};
/// Back ends that are not here are rows with the reason; wrong settings throw ArgumentError.
BackendRow run_on_backend(const std::string& backend, const std::string& kernel,
                          const std::vector<std::string>& settings, int repeat);

struct BackendComparison {
  std::string kernel;
  std::vector<std::string> settings;
  std::vector<BackendRow> rows;
  bool allow_estimates = false;  ///< for GPUs that are not here, the least that a data sheet allows
};
std::string comparison_text(const BackendComparison& c);
/// cgp.compare/1.
nlohmann::ordered_json comparison_json(const BackendComparison& c);

/// One kernel's profile in lines; `only`: these metrics, with the reason for absent ones. Empty: all that are
/// present.
std::string kernel_text(const Document& d, int width, const std::vector<std::string>& only);

}  // namespace cgp::profile
