// SPDX-License-Identifier: Apache-2.0
#pragma once
// The builder behind Decoder: register rows, the constant pool, layout of locals, code of all functions.
#include "cgp/emu/core/machine_impl.h"

namespace cgp::emu {

class ProgramBuilder {
 public:
  ProgramBuilder(ptx::Module module, bool avx512);
  std::unique_ptr<ProgramImpl> build();

  Loc constant(std::uint64_t value, int bits);
  Loc relocated(PoolRelocation r);
  Loc register_loc(ptx::RegId r);
  Loc new_row(int bits);
  Loc new_pred();
  Loc symbol(ptx::SymbolId s, std::int64_t addend, int bits, bool* frame_local, std::int64_t* frame_offset);
  const ptx::Var* find_var(ptx::SymbolId s, bool* module_scope) const;

 private:
  friend class Decoder;
  void declare_functions();
  void decode_function(Function& f);
  void layout_locals(Function& f);
  void layout_params(Function& f);
  void bind_register_params(Function& f);
  void link_branches(Function& f, const std::vector<std::uint32_t>& op_at);
  void make_entry(const Function& f);
  std::uint32_t shared_index(ptx::SymbolId s, bool module_scope, const ptx::Var& v);

  std::unique_ptr<ProgramImpl> p_;
  Decoder decoder_;
  Function* f_ = nullptr;
  std::vector<Loc> reg_loc_;
  Loc pred_row_ = kNoLoc;
  int preds_ = 0;
  std::uint32_t row_top_ = 0;
  std::map<std::pair<std::uint64_t, int>, Loc> constants_;
  std::vector<Op> prelude_;
  DataFlow flow_;
  void mark_async_rows(Function& f);
};

// exec_special.cpp
void exec_read_sreg(Warp& w, const Op& op);    ///< op.kind: the register, op.bytes: 4 or 8 byte cells
void exec_frame_local(Warp& w, const Op& op);  ///< d = local_base + imm, op.bytes as above
void exec_return(Warp& w, const Op& op);       ///< end of a body without ret

}  // namespace cgp::emu
