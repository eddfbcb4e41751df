// SPDX-License-Identifier: Apache-2.0
#pragma once
// From PTX to the operations of a shader language, once for all languages. The order of the files: lower.cpp walks the
// statements, lower_scalar.cpp has arithmetic, lower_convert.cpp conversions, lower_memory.cpp memory, lower_warp.cpp
// what threads do together.
//
// Barriers, and shuffles where subgroups cannot do them, need all threads of the workgroup. Where they stand under a
// condition that differs between threads, the statements around them run in lockstep: all threads go through them,
// each with a mask of whether it is there, and loops go on while any thread is in them.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cgp/ptx/cfg.h"
#include "cgp/ptx/module.h"
#include "cgp/shader/builder.h"
#include "cgp/shader/facts.h"
#include "cgp/shader/structure.h"

namespace cgp::shader {

/// What a kernel is before a language is chosen.
struct Kernel {
  const ptx::Module* module = nullptr;
  const ptx::Function* function = nullptr;
  ptx::Cfg cfg;
  Facts facts;
  Structure structure;
  Layout layout;
  std::vector<std::int32_t> binding;    ///< per root: index into Layout::buffers, or -1
  std::vector<std::uint8_t> divergent;  ///< per register: may differ between the threads of a workgroup
  std::vector<std::uint8_t> divergent_flag;
  std::vector<std::uint8_t>
      of_warp;  ///< per register: the index of the warp in the block, the same in its threads
  bool static_uniformity = false;  ///< WGSL: a barrier's control flow must be provably uniform
  bool subgroups = false;          ///< shuffles and votes are subgroup operations
};

/// Throws BuildError for what cannot be translated, ArgumentError for options that do not fit.
Kernel prepare(const ptx::Module& m, std::string_view entry, const ShaderOptions& o, bool wgsl);

/// Whether all threads of the workgroup must run the instruction together.
bool needs_workgroup(const Kernel& k, const ptx::Inst& i);
/// A shuffle of a value that the threads of a warp share gives that value.
bool shuffles_one_value(const Kernel& k, const ptx::Inst& i);
/// Whether an mma.sync is a product of cooperative matrices.
bool native_product(const Kernel& k, const ptx::Inst& i);
/// Fills Kernel::divergent.
void find_divergence(Kernel& k);

class Lowering {
 public:
  Lowering(const Kernel& k, Builder& b);
  void run();

 private:
  using List = std::vector<Statement>;
  struct Lane {  ///< of a loop in lockstep: whether the thread is still in it, and in this iteration
    Variable live, run;
  };
  using Mask = std::vector<Variable>;

  // lower.cpp
  void find_names();
  void find_lets();
  void scan(const List& list, std::uint32_t parent, bool locked);
  bool collective(const Statement& s) const;
  bool forces(const Statement& s) const;
  Variable temporary(Type t, std::string_view name);
  bool lockstep(const Statement& s) const;
  bool rolled(const List& body) const;
  void plain(const List& list, bool body_of_loop = false);
  void locked(const List& list, const Mask& mask, const Lane* lane);
  void locked_code(ptx::BlockId block, const Mask& mask);
  void leave(const Mask& mask, const Lane& lane, bool loop, std::optional<Value> also);
  Value current(const Mask& mask);
  Value none_of(const std::vector<std::uint32_t>& flags);
  Value condition(const Statement& s);
  void instruction(std::uint32_t index, const Mask* mask);
  void effect(const ptx::Inst& i);
  [[noreturn]] void no(std::string rule, std::string hint = {}) const;

  // registers and operands
  Value read(ptx::RegId r);
  Value read(const ptx::Operand& o, Type t);
  Value predicate(const ptx::Operand& o);
  void write(ptx::RegId r, Value v);
  void write(const ptx::Operand& o, Value v);
  Value as(Type t, Value v);
  Type type_of(const ptx::Operand& o) const;
  Value special(ptx::Sreg s);
  Value u(std::uint32_t v) { return b_.word(v); }
  Value bin(Binary op, Value a, Value b) { return b_.binary(op, a, b); }

  // lower_scalar.cpp
  bool scalar(const ptx::Inst& i);
  void integer(const ptx::Inst& i);
  void floating(const ptx::Inst& i);
  void halves(const ptx::Inst& i);
  void compare(const ptx::Inst& i);
  Value compared(const ptx::Inst& i, ptx::Mod type, Value x, Value y);
  Value small(Value v, ptx::Mod type, bool sign);
  Value shifted(Binary op, Value v, Value amount, int bits);
  Value permuted(const Value (&from)[2], const std::optional<std::uint32_t> (&known)[2], std::uint32_t which);
  Value flushed(Value v);
  Value saturated(Value v);
  Value divided(const ptx::Inst& i, Binary op, Value x, Value y);
  bool bits(const ptx::Inst& i);

  // lower_convert.cpp
  void convert(const ptx::Inst& i);
  void move(const ptx::Inst& i);
  Value half_to_float(ptx::Mod type, Value v);
  Value float_to_half(ptx::Mod type, ptx::Mod rounding, Value v);
  Value rounded(const ptx::Inst& i, Value v);

  // lower_memory.cpp
  void load(const ptx::Inst& i);
  void store(const ptx::Inst& i);
  void atomic(const ptx::Inst& i);
  Place place(const ptx::Inst& i, const ptx::Operand& address);
  Place place_in(ptx::Space space, const ptx::Inst& i, const ptx::Operand& address);

  // lower_warp.cpp
  void together(const ptx::Inst& i, const Mask* mask);
  void shuffle(const ptx::Inst& i, const Mask* mask);
  void vote(const ptx::Inst& i, const Mask* mask);
  void reduce_block(const ptx::Inst& i, const Mask* mask);
  void reduce_warp(const ptx::Inst& i, const Mask* mask);
  /// A word of the lane of this warp, which all its threads ask for together.
  Value of_lane(Value own, Value lane);
  Value lane();
  Value group();
  Value ballot(Value p, const Mask* mask);
  Value gathered(Value own, Value first, std::uint32_t count, Binary op, Value start);
  void assign(const ptx::Inst& i, const Mask* mask, const std::function<void()>& writes);

  // lower_matrix.cpp
  void product(const ptx::Inst& i, const Mask* mask);
  const ptx::Inst* twin(const ptx::Inst& i) const;
  void load_matrices(const ptx::Inst& i, const Mask* mask);
  void copy(const ptx::Inst& i);
  void finish_copies();
  struct Copy {  ///< of cp.async: loaded, and not yet stored
    Place to;
    std::optional<Variable> offset;  ///< of `to`
    std::vector<Variable> words;
  };
  struct Copies {
    Variable made;  ///< they are to be stored
    int depth;      ///< of the statement that they are in
    ptx::BlockId block;
    bool guarded;
    std::vector<Copy> copies;
  };

  const Kernel& k_;
  const ptx::Module& m_;
  const ptx::Function& f_;
  const Facts& facts_;
  Builder& b_;
  std::vector<std::string> names_;             ///< per register
  std::vector<std::optional<Value>> lets_;     ///< per register that is written once: its value
  std::vector<std::optional<Variable>> vars_;  ///< per other register
  std::vector<std::uint8_t> is_let_;
  std::vector<Variable> flags_;
  std::vector<std::uint32_t> scope_of_block_, scope_parent_;
  std::vector<std::uint8_t> scope_locked_;
  std::uint32_t index_ = 0;          ///< of the instruction that is being translated
  std::uint32_t skip_ = ptx::kNone;  ///< an instruction that was translated with the one before it
  std::uint32_t line_ = ptx::kNone;
  std::uint32_t temporaries_ = 0;
  std::vector<Copies> copies_;
  int depth_ = 0;         ///< of statements
  bool at_once_ = false;  ///< copies are stored where they stand
};

}  // namespace cgp::shader
