// SPDX-License-Identifier: Apache-2.0
#pragma once
// Shared by verify.cpp (modules, functions), verify_inst.cpp (instructions) and verify_operand.cpp.
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "cgp/ptx/verify/verify.h"

namespace cgp::ptx {

std::string version_text(Version v);
/// "PTX 8.0 and sm_90a"; `own` leaves out what a module of these already has.
std::string requirement_text(const Requirement& r);
void raise(Requirement& to, const Requirement& by);

/// What a form wants of an instruction with these modifiers, its modifiers' needs included.
Requirement requirement_of(const Form& f, const Mods& mods);
std::optional<Requirement> requirement_of(Sreg s);

/// The state space that the instruction's modifiers name; generic without.
Space named_space(const Inst& i);

/// Checks single instructions of one function; keeps what it learned about spellings between calls.
class InstVerifier {
 public:
  InstVerifier(const Module& m, const CheckOptions& options);
  void enter(const Function& f);
  /// The problem with the instruction, or nothing. `need` becomes what it asks for when it is legal.
  std::optional<Problem> check(const Inst& i, Requirement* need = nullptr);
  /// The highest .version that an instruction checked so far asks for.
  Version newest() const { return newest_; }
  /// "add.rn.f32": how an instruction is spelled without operands.
  static std::string spelling(const Inst& i);

 private:
  struct Fitting {  // a form whose modifiers fit
    const Form* form;
    Requirement need;
    bool on_target;
  };
  struct Spelling {
    Op op;
    Mods mods;
    friend bool operator==(const Spelling&, const Spelling&) = default;
  };
  struct SpellingHash {
    std::size_t operator()(const Spelling& s) const {
      std::size_t h = std::size_t(s.op);
      for (Mod m : s.mods) h = h * 1000003 + std::size_t(m);
      return h;
    }
  };
  struct Attempt {  // how far a form's operands fitted
    std::size_t at = 0;
    std::string why, hint;
  };
  const std::vector<Fitting>& fitting_forms(const Inst& i);
  bool on_target(const Requirement& r) const;
  Problem modifier_problem(const Inst& i) const;
  std::optional<Problem> constant_problem(const Inst& i) const;
  std::optional<Problem> conversion_problem(const Inst& i) const;
  Problem operand_problem(const Inst& i, const Attempt& best) const;
  bool operands_fit(const Form& f, const Inst& i, std::size_t pattern, std::size_t at, Attempt& best) const;
  bool operand_fits(const Form& f, const OperandPattern& p, const Inst& i, const Operand& o,
                    Attempt& a) const;
  bool vector_fits(const OperandPattern& p, const Inst& i, const Operand& o, int count, Attempt& a) const;
  bool value_fits(const OperandPattern& p, const Operand& o, Mod type, Attempt& a) const;
  bool register_fits(RegId r, Mod type, bool wider, Attempt& a) const;
  bool predicate_fits(const OperandPattern& p, const Operand& o, Attempt& a) const;
  bool address_fits(const OperandPattern& p, const Inst& i, const Operand& o, Attempt& a) const;
  bool base_fits(Space space, bool tensor_memory, const Operand& o, Attempt& a) const;
  bool pack_fits(const Operand& o, Mod type, bool destination, Attempt& a) const;
  bool call_fits(const Inst& i, Attempt& a) const;
  bool argument_fits(const Operand& o, const Var& v, Attempt& a) const;
  const Var* variable(SymbolId s) const;
  const Function* callee(SymbolId s) const;
  std::string describe(const Operand& o) const;

  const Module& m_;
  const CheckOptions& options_;
  const Function* f_ = nullptr;
  std::optional<Target> target_;
  Version newest_{1, 0};
  std::unordered_map<Spelling, std::vector<Fitting>, SpellingHash> spellings_;
  std::unordered_map<SymbolId, const Var*> variables_, locals_;
  std::unordered_map<SymbolId, const Function*> functions_;
};

}  // namespace cgp::ptx
