// SPDX-License-Identifier: Apache-2.0
#pragma once
// What takes registers in a function as a compiler for a GPU sees it, for the register estimate: copies,
// constants and parameters are not values of their own, uniform integers have registers of another kind,
// short branches become guarded instructions and short counted loops are unrolled.
#include <map>
#include <set>

#include "cgp/ptx/analysis/schedule.h"
#include "cgp/ptx/analysis/ssa.h"

namespace cgp::ptx {

class RegisterValues {
 public:
  explicit RegisterValues(const Function& f);

  struct Part {
    BlockId block;
    bool guarded;  ///< one side of a short branch: its instructions get guards
  };
  using Chain = std::vector<Part>;

  const Cfg& cfg() const { return cfg_; }
  /// Blocks that are scheduled as one: those that follow each other without a choice, and short branches.
  std::vector<Chain> chains() const;
  /// How often the chain is unrolled: 1, unless it is a counted loop without synchronisation or atomics.
  int rounds(const Chain& chain) const;
  /// The operations of a chain, several rounds of a loop in a row: what one round leaves to no other is a new
  /// value in each.
  std::pair<std::vector<Operation>, BlockValues> operations(const Chain& chain, int times);

 private:
  /// Constants and parameters that instructions of a chain take from a register, by value and number.
  using Made = std::map<std::pair<ValueId, std::uint64_t>, LiveId>;

  ValueId root(ValueId v);
  /// A copy, and base + number where only an address reads it, are the value that they are made of.
  void merge_copies();
  /// A phi and its inputs share a register, as they did in the text.
  void merge_phis();
  void find_sizes();
  /// Integers of 32 bits that depend on nothing but parameters, numbers and the block's place lie in uniform
  /// registers.
  void find_uniform();
  bool stays_uniform(ValueId v, const std::vector<std::uint8_t>& uniform) const;
  /// Liveness of the roots.
  void spread();
  bool step(BlockId b, const std::vector<std::set<ValueId>>& use, const std::vector<std::set<ValueId>>& def);
  bool is_short(BlockId b) const;
  /// Some register goes up by a number in each round.
  bool counts(BlockId b) const;

  /// Memory instructions take addresses and what they store from registers, also what needs none elsewhere:
  /// adds the operations that put it there.
  void materialise(std::uint32_t i, Operation& o, std::vector<Operation>& out, BlockValues& values,
                   Made& made);
  LiveId make(ValueId v, std::uint64_t number, int size, std::vector<Operation>& out, BlockValues& values,
              Made& made) const;
  ValueId free_value(std::uint32_t i, RegId r);  ///< what `r` holds, if that takes no register; else kNone
  bool is_zero(ValueId v) const;                 ///< there is a register of zeros

  const Function& f_;
  Cfg cfg_;
  Ssa ssa_;
  std::vector<ValueId> root_;
  std::vector<std::uint8_t> merged_;  ///< the instruction makes no value of its own
  std::vector<int> size_;             ///< of roots, in 32-bit registers
  std::vector<std::set<ValueId>> in_, out_;
};

}  // namespace cgp::ptx
