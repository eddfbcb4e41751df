// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the passes share: which instructions may be touched (facts), where a register's value comes from
// (Values), how a body is edited (Edit).
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "cgp/ptx/cfg.h"
#include "cgp/ptx/liveness.h"
#include "cgp/ptx/module.h"
#include "cgp/ptx/passes/passes.h"
#include "cgp/ptx/verify/verify_impl.h"

namespace cgp::ptx::passes {

// ---------------------------------------------------------------- facts of single instructions
/// The result depends on nothing but the operands, and there is no other effect: may be computed again,
/// earlier, or not at all. Reads of special registers that change are not pure.
bool is_pure(const Inst& i);
/// Reads a parameter of the kernel itself, which never changes: pure in all but name.
bool is_parameter_load(const Module& m, const Function& f, const Inst& i);
/// A load of memory that nobody writes while the kernel runs (.const, .nc).
bool is_constant_load(const Inst& i);
/// A weak load or store of one operand pair: no volatile, no order, no cache policy operand.
bool is_weak_access(const Inst& i);
bool is_stable(Sreg s);
/// The first operand, when it is one plain register that the instruction writes, and the only one it writes.
RegId only_destination(const Inst& i);
bool is_move_of_register(const Inst& i);
/// Bits of a plain integer or float literal, sign-extended as written.
bool is_literal(const Operand& o);

/// Calls `f` for each register operand that is read, with the operand (vector elements one by one).
void for_each_read(Inst& i, const std::function<void(Operand&)>& f);

// ---------------------------------------------------------------- one function under optimisation
class Unit {
 public:
  Unit(Module& module, Function& function, const PassOptions& o);

  Module& m;
  Function& f;
  const PassOptions& options;

  RegId new_register(Mod type);
  LabelId new_label();
  /// Does the ISA allow it? Types and kinds of operands, with the registers as they are declared.
  bool legal(const Inst& i);
  /// Registers that asynchronous instructions (wgmma, tcgen05) write or read after they were issued, and
  /// those of .reg parameters: never renamed, moved or replaced.
  bool pinned(RegId r) const { return r < pinned_.size() && pinned_[r]; }
  bool touches_pinned(const Inst& i) const;
  /// dst = the constant, in the register's own type.
  Inst constant(RegId dst, std::uint64_t bits, const Inst& instead_of);
  Inst copy(RegId dst, RegId src, const Inst& instead_of);

 private:
  CheckOptions foreign_;
  InstVerifier verifier_;
  std::vector<bool> pinned_;
  std::unordered_map<std::string, std::uint32_t> next_number_;
  std::unordered_set<std::string> names_, label_names_;
  std::uint32_t labels_made_ = 0;
};

/// Def-use facts at one moment. A register is `single` when one unguarded instruction defines it and that
/// definition dominates every read: then it has one value wherever it is read (as in SSA form).
class Values {
 public:
  explicit Values(const Unit& u);
  Cfg cfg;
  bool single(RegId r) const { return single_[r]; }
  /// Position of the definition of a single register.
  std::uint32_t definition(RegId r) const { return def_[r]; }
  const Inst& definer(RegId r) const { return (*body_)[def_[r]]; }
  /// The definition when it is pure (its value can be reasoned about), else null.
  const Inst* pure(RegId r) const;
  std::uint32_t definitions(RegId r) const { return count_[r]; }
  std::uint32_t reads(RegId r) const { return reads_[r]; }  ///< operands that read it, guards included
  bool dominates(BlockId a, BlockId b) const { return enter_[a] <= enter_[b] && leave_[b] <= leave_[a]; }
  /// Does position a come before b on every path to b?
  bool precedes(std::uint32_t a, std::uint32_t b) const;

 private:
  const std::vector<Inst>* body_;
  std::vector<bool> single_;
  std::vector<std::uint32_t> def_, count_, reads_, enter_, leave_;
};

/// Collects changes to a body, then makes them at once; labels, pragmas and .loc lines follow.
class Edit {
 public:
  explicit Edit(Unit& u);
  void erase(std::uint32_t i);
  bool erased(std::uint32_t i) const { return gone_[i]; }
  /// Before instruction i, and after the labels there: who jumps to i runs it.
  void insert(std::uint32_t i, Inst n);
  /// Before the labels at i: only who falls into i runs it, and who jumps to label_above(i).
  void insert_above(std::uint32_t i, Inst n);
  LabelId label_above(std::uint32_t i);
  bool empty() const { return !changed_; }
  void apply();

 private:
  struct At {
    std::vector<Inst> above, inside;
    LabelId label = kNone;
  };
  Unit& u_;
  std::vector<bool> gone_;
  std::unordered_map<std::uint32_t, At> at_;
  bool changed_ = false;
};

/// Gives every instruction the .loc that holds for it, so that instructions can move and go.
void spread_locs(Function& f);

// ---------------------------------------------------------------- the passes: how much each changed
std::uint64_t split(Unit& u);
std::uint64_t fold(Unit& u);
std::uint64_t copy_propagation(Unit& u);
std::uint64_t common_subexpressions(Unit& u);
std::uint64_t strength(Unit& u);
std::uint64_t multiply_add(Unit& u);
std::uint64_t fuse(Unit& u);
std::uint64_t convert_branches(Unit& u);
std::uint64_t unroll(Unit& u);
std::uint64_t hoist(Unit& u);
std::uint64_t incremental_addresses(Unit& u);
std::uint64_t vectorise(Unit& u);
std::uint64_t dead_code(Unit& u);

}  // namespace cgp::ptx::passes
