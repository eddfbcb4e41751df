// SPDX-License-Identifier: Apache-2.0
#pragma once
// Kernels of the catalogue as one HTML file that runs them on WebGPU in a browser: WGSL from the kernels' own sources, their inputs, and
// the results of their oracles with the tolerances that hold for PTX. The page checks, times and draws.
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

namespace cgp::web {

/// "softmax dtype=f32 rows=16 cols=1000": one for every kind of kernel.
std::span<const std::string_view> default_problems();

/// What the page is made of: `problem`, `summary`, `variant`, `flops`, `bytes`, `needs` (`threads`, `shared_bytes`,
/// `storage_buffers`), `memory` (`bytes`, `start`), `shaders` (`entry`, `wgsl`), `commands`, `outputs` (`memory`, `dtype`, `want`,
/// `tolerance`); bytes are base64. Throws ArgumentError for a problem that is none, Unsupported for a kernel that is no WGSL shader or
/// whose check is not by element.
nlohmann::ordered_json kernel_data(const std::string& problem);
std::string page(const std::vector<nlohmann::ordered_json>& kernels);

}  // namespace cgp::web
