// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which registers hold a value that will still be read: per block, and per register as ranges of
// instructions.
#include <cstdint>
#include <functional>
#include <vector>

#include "cgp/ptx/cfg.h"
#include "cgp/ptx/module.h"

namespace cgp::ptx {

/// One register of one instruction. A destination that wgmma accumulates into is read and written.
struct RegisterUse {
  RegId reg;
  bool read, written;
};
/// The registers of an instruction, the guard included, in the order of the text.
void for_each_register(const Inst& i, const std::function<void(RegisterUse)>& visit);
/// The same as a list; `out` is cleared first.
void registers_of(const Inst& i, std::vector<RegisterUse>& out);

/// Whether operand k of the instruction is a destination.
bool writes_operand(const Inst& i, std::size_t k);

/// A set of registers, one bit each.
class RegisterSet {
 public:
  explicit RegisterSet(std::size_t registers = 0) : words_((registers + 63) / 64) {}
  bool has(RegId r) const { return words_[r / 64] >> (r % 64) & 1; }
  void add(RegId r) { words_[r / 64] |= 1ull << (r % 64); }
  void remove(RegId r) { words_[r / 64] &= ~(1ull << (r % 64)); }
  void unite(const RegisterSet& from) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] |= from.words_[i];
  }
  std::vector<RegId> list() const;
  friend bool operator==(const RegisterSet&, const RegisterSet&) = default;

 private:
  friend struct Dataflow;
  std::vector<std::uint64_t> words_;
};

struct Liveness {
  std::vector<RegisterSet> in, out;  ///< per block: live before its first and after its last instruction
};
/// Backward dataflow. A guarded write keeps the old value alive: threads without the guard still hold it.
Liveness liveness(const Function& f, const Cfg& c);

/// A register is live before the instructions [first, last] (positions in the body).
struct LiveRange {
  std::uint32_t first, last;
};
/// Per register its ranges in program order, with holes between them; a value never read has none.
std::vector<std::vector<LiveRange>> live_ranges(const Function& f, const Cfg& c, const Liveness& l);

}  // namespace cgp::ptx
