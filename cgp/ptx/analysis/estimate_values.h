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
  /// `folds`: instructions that the machine has as parts of others (a scaled index in an addition or in an
  /// address of shared memory, two additions, two logical operations) make no values; `sm` says which.
  explicit RegisterValues(const Function& f, bool folds = false, int sm = 80);

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
  /// The address is a variable of shared memory and a register, which may be scaled, and used as nothing
  /// else.
  bool merge_shared_address(std::uint32_t i, const std::vector<std::vector<std::uint32_t>>& uses);
  void find_folded();
  bool folds_into_all(ValueId v, const std::vector<std::uint32_t>& users) const;
  /// What the instruction reads, with that of the instructions that are folded into it.
  template <typename F>
  void each_read(std::uint32_t i, F&& use, int depth = 0) const {
    for (const Ssa::Read& r : ssa_.reads[i])
      if (depth < 3 && folded_[r.value])
        each_read(ssa_.values[r.value].inst, use, depth + 1);
      else
        use(r.value);
  }
  bool is_folded(std::uint32_t i) const;
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
  /// A number in a product of 64 bits with an addend takes a register below sm_90; from there on the addend
  /// does, where it is a parameter.
  void materialise_product(std::uint32_t i, Operation& o, std::vector<Operation>& out, BlockValues& values,
                           Made& made);
  LiveId make(ValueId v, std::uint64_t number, int size, std::vector<Operation>& out, BlockValues& values,
              Made& made) const;
  ValueId free_value(std::uint32_t i, RegId r);  ///< what `r` holds, if that takes no register; else kNone
  bool is_zero(ValueId v) const;                 ///< there is a register of zeros

  const Function& f_;
  bool folds_;
  int sm_;
  Cfg cfg_;
  Ssa ssa_;
  std::vector<ValueId> root_;
  std::vector<std::uint8_t> merged_;  ///< the instruction makes no value of its own
  std::vector<std::uint8_t> in_phi_;
  std::vector<std::uint8_t> folded_;  ///< the instruction is part of those that read its value
  std::vector<int> size_;             ///< of roots, in 32-bit registers
  std::vector<std::set<ValueId>> in_, out_;
};

}  // namespace cgp::ptx
