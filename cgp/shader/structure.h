// SPDX-License-Identifier: Apache-2.0
#pragma once
// The control flow of a function as nested statements: WGSL and SPIR-V have no jumps. The basic blocks are nested by
// their dominator tree (Ramsey, "Beyond Relooper: recursive translation of unstructured control flow to structured
// control flow", ICFP 2022), except that what a loop exits to stands behind the loop. A jump that is neither the end
// of its list, nor a break or continue of the innermost loop, sets a flag that what lies between asks for.
#include <cstdint>
#include <vector>

#include "cgp/ptx/cfg.h"
#include "cgp/ptx/module.h"

namespace cgp::shader {

struct Statement {
  enum class Kind : std::uint8_t {
    code,      ///< the instructions of `block`, its jump left out
    branch,    ///< if `condition` holds (`negated`: does not): body, else otherwise
    loop,      ///< body, until a leave
    leave,     ///< break of the innermost loop
    next,      ///< continue of the innermost loop
    set,       ///< flags[0] = true
    clear,     ///< flags[0] = false
    unless,    ///< body, if none of `flags` is set
    if_leave,  ///< break if flags[0] is set
  };
  Kind kind = Kind::code;
  ptx::BlockId block = ptx::kNone;
  ptx::RegId condition = ptx::kNone;
  bool negated = false;
  std::vector<std::uint32_t> flags;
  std::vector<Statement> body, otherwise;
};

struct Structure {
  std::vector<Statement> statements;
  std::uint32_t flags = 0;  ///< how many there are
};

/// The error of an instruction that a shader cannot have: rule, source line, instruction, why.
[[noreturn]] void refuse(const ptx::Module& m, const ptx::Function& f, std::uint32_t inst, std::string rule,
                         std::string hint = {});

/// Throws BuildError for a cycle with two entries, and an indexed branch, naming the instruction.
Structure structured(const ptx::Module& m, const ptx::Function& f, const ptx::Cfg& c);

}  // namespace cgp::shader
