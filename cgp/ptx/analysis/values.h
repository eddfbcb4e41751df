// SPDX-License-Identifier: Apache-2.0
#pragma once
// What every register of a function holds, as a linear form over the threads of one block (form.h), and
// which threads run every block of instructions. From this follow the lattice uniform / affine / divergent,
// divergent branches, barrier safety (barriers.h), coalescing and bank conflicts (memory.h).
//
// The analysis assumes the shape of the block, that 32-bit index arithmetic does not wrap, that diverged
// threads meet again where their paths join, and that a value read by all threads from one address of global,
// shared or constant memory with a weak load is one value (the program has no race there). Whatever it cannot
// follow counts as different in every thread.
#include <array>
#include <map>
#include <optional>
#include <string>

#include "cgp/ptx/analysis/form.h"

namespace cgp::ptx {

struct LaunchAssumptions {
  std::array<std::uint32_t, 3> block{256, 1, 1};
  std::optional<std::array<std::uint32_t, 3>> grid, cluster;
  std::uint32_t pointer_alignment = 256;           ///< bytes, of 64-bit parameters that are used as addresses
  std::map<std::string, std::int64_t> parameters;  ///< values of integer parameters that are known
  Scope entry = Scope::grid;                       ///< a .func: over which threads its call is uniform
  std::size_t threads() const { return std::size_t(block[0]) * block[1] * block[2]; }
};

struct SymbolInfo {
  enum class Kind : std::uint8_t { parameter, special, variable, result, merge, undefined };
  Kind kind = Kind::result;
  Scope scope = Scope::thread;
  BlockId block = kNone;        ///< where its value may change from one execution to the next; kNone: never
  std::uint32_t inst = kNone;   ///< result: the instruction
  SymbolId symbol = kNone;      ///< parameter or variable
  std::uint64_t offset = 0;     ///< parameter: bytes
  Sreg sreg = Sreg::kCount;     ///< special
  std::uint64_t alignment = 1;  ///< it is a multiple of this, if it is used as an address
};

/// Who runs a block of instructions.
struct Control {
  Scope scope = Scope::grid;      ///< all of them or none over this scope
  Scope together = Scope::grid;   ///< the same, apart from conditions that are known for every thread
  std::vector<std::uint8_t> may;  ///< per thread: not excluded by a known condition
  std::uint32_t branch = kNone;   ///< the instruction whose condition limits `scope`; kNone: none does
  bool after_exit = false;        ///< that instruction lets threads leave the function
  /// Behind a loop that waits for other threads (locks, flags): its lanes leave one after the other, and need
  /// not be together here.
  bool may_part = false;
  std::size_t count() const;  ///< threads that may come
};

class ThreadValues {
 public:
  /// Keeps references to all four.
  ThreadValues(const Module& m, const Function& f, const Cfg& c, const Ssa& s, const LaunchAssumptions& a);

  const LinearForm& of(ValueId v) const { return forms_[v]; }
  /// The operand of an instruction (a register, number, special register or address with its offset).
  LinearForm operand(std::uint32_t inst, const Operand& o, int bits = 64) const;
  Scope scope(const LinearForm& f) const;
  const SymbolInfo& symbol(SymbolIndex s) const { return symbols_[s]; }
  std::string text(SymbolIndex s) const;
  const Control& control(BlockId b) const { return control_[b]; }
  /// The condition of a guarded or indexed jump: 1 where it is taken. Absent for other instructions.
  std::optional<LinearForm> condition(std::uint32_t inst) const;
  Scope condition_scope(std::uint32_t inst) const;
  std::size_t threads() const { return threads_; }
  const LaunchAssumptions& assumptions() const { return a_; }
  const Module& module() const { return m_; }
  const Function& function() const { return f_; }
  const Cfg& cfg() const { return c_; }
  const Ssa& ssa() const { return s_; }

 private:
  struct Merge {  // what is known of a phi: first input + divisor * symbol
    std::uint64_t divisor = 0;
    Scope scope = Scope::grid;
    bool opaque = false;
    SymbolIndex symbol = kNone;
  };
  struct Reach {  // of a branch: where its sides meet, and the blocks that it may run again
    std::vector<std::uint8_t> joins, cycle;
    bool loops = false;
  };

  void run();
  bool sweep();
  bool visit_phi(ValueId v);
  bool visit_inst(std::uint32_t i);
  bool update(ValueId v, LinearForm f);
  const Reach& reach(BlockId b);
  void find_joins(BlockId b, Reach& r) const;
  void limit_joins();
  LinearForm read_at(ValueId v, BlockId at) const;

  void find_control();
  void spread_masks();
  void find_parted();
  std::optional<Lanes> edge(BlockId from, BlockId to) const;

  // evaluate.cpp: what an instruction writes
  LinearForm evaluate(std::uint32_t i, ValueId v);
  std::optional<LinearForm> exact(std::uint32_t i, ValueId v);
  std::optional<LinearForm> arithmetic(std::uint32_t i);
  std::optional<LinearForm> bits_of(std::uint32_t i);
  std::optional<LinearForm> convert(std::uint32_t i);
  std::optional<LinearForm> pack(std::uint32_t i, ValueId v);
  std::optional<LinearForm> compare(std::uint32_t i, ValueId v);
  std::optional<LinearForm> on_numbers(std::uint32_t i);
  std::optional<LinearForm> warp_value(std::uint32_t i, ValueId v);
  LinearForm product(ValueId v, std::uint32_t i, const LinearForm& a, const LinearForm& b);
  LinearForm chosen(ValueId v, std::uint32_t i, const LinearForm& condition, const LinearForm& yes,
                    const LinearForm& no);
  LinearForm load(std::uint32_t i, ValueId v);
  Scope result_scope(std::uint32_t i) const;
  LinearForm special(Sreg s) const;
  int known_bits(const LinearForm& f) const;
  LinearForm named(SymbolInfo info) const;  ///< the symbol of a parameter, variable or special register
  LinearForm opaque(ValueId v, std::uint32_t inst, Scope scope, std::uint64_t divisor = 1, int slot = 0);

  const Module& m_;
  const Function& f_;
  const Cfg& c_;
  const Ssa& s_;
  LaunchAssumptions a_;
  std::size_t threads_;
  std::vector<LinearForm> forms_;
  std::vector<std::uint8_t> seen_;
  std::vector<Merge> merges_;
  std::vector<Scope> join_limit_;    ///< per block
  std::vector<Scope> branch_scope_;  ///< per block, of its last instruction
  std::map<BlockId, Reach> reach_;
  std::vector<BlockId> divergent_loops_;  ///< blocks whose branch some threads leave a cycle by earlier
  std::vector<Control> control_;
  // Symbols are found by what they stand for; reading an operand may name a new one.
  mutable std::vector<SymbolInfo> symbols_;
  mutable std::map<std::array<std::uint64_t, 4>, SymbolIndex> index_;
  SymbolIndex intern(const std::array<std::uint64_t, 4>& key, const SymbolInfo& info) const;
};

/// uniform over a scope, an affine function of the thread's position, another known function of it, or
/// divergent.
struct Shape {
  enum class Kind : std::uint8_t { uniform, affine, function, divergent };
  Kind kind = Kind::divergent;
  Scope scope = Scope::thread;  ///< uniform: over what
  std::string text;             ///< "4*tid.x + 128*tid.y + %ctaid.x*1024", "uniform (block)"
};
Shape shape(const ThreadValues& v, const LinearForm& f);

}  // namespace cgp::ptx
