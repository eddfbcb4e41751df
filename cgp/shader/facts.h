// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a translation must know of a kernel before it writes: which bits of each register matter, which pointer an
// address starts from, what type a register has, and where variables lie.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cgp/ptx/cfg.h"
#include "cgp/ptx/module.h"
#include "cgp/shader/builder.h"

namespace cgp::shader {

/// What an address starts from: a pointer among the parameters, or a table that the module initialises.
struct Root {
  ptx::SymbolId parameter = ptx::kNone;  ///< kNone: a table
  std::uint64_t offset = 0;              ///< in the parameter block, or among the constants
  std::string name;
};

inline constexpr std::int32_t kNumber = -1;  ///< Facts::root: not an address

struct Facts {
  std::vector<std::uint64_t> demanded;  ///< per register: the bits that change what the kernel does
  std::vector<std::int32_t> root;       ///< per register: index into `roots`, or kNumber
  std::vector<std::uint8_t> live;       ///< per instruction: it has an effect
  std::vector<Type> type;               ///< per register
  std::vector<Root> roots;
  std::map<ptx::SymbolId, std::uint64_t>
      address;  ///< of variables in their space's memory; of parameters in the block
  std::uint64_t block_bytes = 0;
  std::uint64_t shared_bytes = 0;  ///< static, then dynamic at the end
  std::uint64_t local_bytes = 0;
  std::vector<std::uint8_t> constants;
};

/// The space that a memory instruction names; Space::generic if none.
ptx::Space space_of(const ptx::Inst& i);
bool is_store(const ptx::Inst& i);
/// Width of the accessed element in bits, and how many.
int access_bits(const ptx::Inst& i);
int access_count(const ptx::Inst& i);
/// The compiler's own instructions that a shader leaves out: prefetches and hints.
bool is_hint(const ptx::Inst& i);
bool has_effect(const ptx::Inst& i);
/// The address in global memory of a load, store, atomic operation or asynchronous copy; null if there is none.
const ptx::Operand* global_address(const ptx::Inst& i);
/// cp.async; the instructions that order such copies do nothing where a copy is done at once.
bool is_copy(const ptx::Inst& i);
bool orders_copies(const ptx::Inst& i);

/// `narrow`: addresses are 32-bit offsets from one pointer (WGSL). Throws BuildError where they are not.
Facts find_facts(const ptx::Module& m, const ptx::Function& f, const ptx::Cfg& c,
                 std::uint32_t dynamic_shared, bool narrow);

}  // namespace cgp::shader
