// SPDX-License-Identifier: Apache-2.0
#pragma once
// Machine code by NVIDIA's programs: there is neither an assembler nor a disassembler of our own.
#include <string>
#include <string_view>

namespace cgp::profile {

struct Listing {
  std::string text;  ///< empty: `absent` says why
  std::string tool, absent;
};
/// nvdisasm, else cuobjdump.
Listing disassemble(const std::string& file);

struct Assembled {
  std::string cubin;  ///< the file's bytes; empty: `absent` says why
  std::string tool, absent;
};
/// $CGP_PTXAS, ptxas on PATH, or that of /usr/local/cuda.
Assembled assemble(std::string_view ptx, const std::string& arch);

/// What disassemble() says of bytes that are in no file yet.
Listing disassemble_bytes(std::string_view cubin);

}  // namespace cgp::profile
