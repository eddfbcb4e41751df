// SPDX-License-Identifier: Apache-2.0
#pragma once
// A kernel stage by stage: what its function recorded, what passes did, PTX, machine code.
#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cgp/profile/collect/cubin.h"
#include "cgp/profile/collect/disassemble.h"
#include "cgp/runtime/kernel_image.h"

namespace cgp::explain {

/// One module on its s.
struct Stages {
  std::string variant, entry;
  std::size_t instructions = 0, blocks = 0, loops = 0;
  int live = 0;        ///< 32-bit registers at the worst point, as recorded
  std::string graph;   ///< blocks, their instructions and successors
  std::string passes;  ///< what they did; empty: none ran
  std::string ptx, version, target;
  std::string cubin_from;   ///< ptxas, or the pack of this program
  std::string sass_absent;  ///< why there is no machine code, or no text of it
  profile::Cubin cubin;
  profile::Listing listing;
};

/// `passes`: ptx::parse_passes; empty: none. Machine code is the image's cubin for `arch` where it has one and
/// no pass ran, else what ptxas makes of the text.
Stages stages_of(const runtime::KernelImage& image, const std::string& arch, const std::string& passes);

std::string stages_text(const Stages& s);
nlohmann::ordered_json stages_json(const Stages& s);

}  // namespace cgp::explain
