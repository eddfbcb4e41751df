// SPDX-License-Identifier: Apache-2.0
#pragma once
// The recorder. A Kernel turns calls into ptx::Inst; everything typed (val.h, ptr.h, ...) is a thin shell
// over the untyped part declared here. Library authors record through op(), effect() and inst(); kernels use
// the typed language and see only if_, loop, while_, the special registers, shared memory and the launch
// shape.
#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "cgp/base/error.h"
#include "cgp/dsl/core/types.h"
#include "cgp/dsl/mma/tensor_schema.h"
#include "cgp/ptx/module.h"

namespace cgp::dsl {

class Kernel;
template <class T>
class Val;

/// Over which threads a value is known to be the same. A collective of a scope may stand only under branches
/// that are at least that uniform. `thread` means: may differ between any two threads.
enum class Uniform : std::uint8_t { thread, warp, warpgroup, cta, cluster, grid };
std::string_view name(Uniform u);
constexpr Uniform min_of(Uniform a, Uniform b) { return a < b ? a : b; }

/// A register or a literal, without its C++ type: 24 bytes, immutable, freely copied.
class Value {
 public:
  Value(Kernel* k, ptx::RegId r, ptx::Mod type, Uniform u) : k_(k), bits_(r), type_(type), uniform_(u) {}
  static Value literal(std::uint64_t bits, ptx::Mod type) {
    Value v(nullptr, 0, type, Uniform::grid);
    v.bits_ = bits;
    v.literal_ = true;
    return v;
  }
  Value(const Value&) = default;
  Value& operator=(const Value&) = delete;

  Kernel* kernel() const { return k_; }  ///< null for a literal
  bool is_literal() const { return literal_; }
  ptx::RegId reg() const { return ptx::RegId(bits_); }
  std::uint64_t bits() const { return bits_; }  ///< of a literal: its bit pattern in `type()`
  ptx::Mod type() const { return type_; }
  Uniform uniform() const { return uniform_; }
  bool is_kept_uniform() const { return kept_; }
  Value with(Uniform u, bool kept = false) const {
    Value v(*this);
    v.uniform_ = u;
    v.kept_ = kept;
    return v;
  }
  Value as(ptx::Mod type) const {
    Value v(*this);
    v.type_ = type;
    return v;
  }

 private:
  Kernel* k_;
  std::uint64_t bits_;
  ptx::Mod type_;
  Uniform uniform_;
  bool literal_ = false, kept_ = false;
};
using Values = std::initializer_list<Value>;

/// An open k.if_ / k.loop / role, or the reason why later instructions of one are divergent.
struct Region {
  const char* kind;
  Uniform uniform;
  Here at;
  std::uint32_t serial;
};

/// How one kernel parameter crosses the launch: what the runtime checks its arguments against.
struct ParamInfo {
  enum class Kind : std::uint8_t { scalar, pointer, structure, tensor_map };
  std::string name;
  Kind kind = Kind::scalar;
  ptx::Mod type = ptx::Mod::u32;      ///< of the scalar, of the pointed-to elements, of the tensor's elements
  std::uint32_t size = 0, align = 0;  ///< bytes in the parameter block
  bool reads = false, writes = false;  ///< pointers: what the kernel may do through it
  std::string detail;                  ///< tensor maps: the box ("128x64 b128"); structures: the fields
  std::optional<TensorMapSchema> tensor_map;  ///< of Kind::tensor_map
};

template <class S>
class Role;
class Warp;
class Warpgroup;
class Cta;
class NamedBarrier;
template <class Space, class T>
class Ptr;
template <class T, int N>
class RegGroup;
template <class I>
class ThreadIndexOf;
using ThreadIndex = ThreadIndexOf<mod::u32>;
/// A half-open interval for k.loop: from, from + step, ... below to. Made by range().
template <class I>
struct Range;

class Kernel {
 public:
  Kernel(ptx::Module& module, std::string name, Here at = Here::now());
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  // ------------------------------------------------------------ run-time control flow (flow.h)
  // C++ if/for run while the kernel is recorded; these run on the GPU.
  template <class Body>
  void if_(Val<pred> p, Body&& body, Here at = Here::now());
  /// Both arms return the same Carry-able type (a Val, a tuple, a struct with `carried`, a typestate).
  template <class Then, class Else>
  auto if_(Val<pred> p, Then&& then, Else&& otherwise, Here at = Here::now());
  /// body(Val<I> i) for i = 0 .. n-1; n is a Val of u32/s32/u64/s64 or a C++ integer. Also n = range(a, b,
  /// step).
  template <class N, class Body>
  void loop(const N& n, Body&& body, Here at = Here::now());
  /// body(i, state) returns the next state, of the same type; the result is the last state.
  template <class N, class S, class Body>
  S loop(const N& n, S init, Body&& body, Here at = Here::now());
  /// while (cond(state)) state = body(state).
  template <class S, class Cond, class Body>
  S while_(S init, Cond&& cond, Body&& body, Here at = Here::now());
  /// The next loop is not unrolled by ptxas.
  void nounroll() { nounroll_ = true; }
  /// body(ThreadIndex) for each i < n, spread over all threads of the grid; n is Val<u32> or Val<u64>.
  template <class I, class Body>
  void grid_stride(Val<I> n, Body&& body, Here at = Here::now());
  /// body(ThreadIndex) once per thread whose global index is below n. Launch at least n threads, fewer than
  /// 2^32.
  template <class Body>
  void each_thread(Val<u32> n, Body&& body, Here at = Here::now());
  void exit(Here at = Here::now());
  void exit_if(const Val<pred>& p, Here at = Here::now());
  void trap(Here at = Here::now());
  void trap_if(const Val<pred>& p, Here at = Here::now());  ///< a run-time assertion

  // ------------------------------------------------------------ special registers (special.h)
  Val<u32> tid(), tid_x(), tid_y(), tid_z(), ntid(), ntid_x(), ntid_y(), ntid_z();
  Val<u32> ctaid(), ctaid_x(), ctaid_y(), ctaid_z(), nctaid(), nctaid_x(), nctaid_y(), nctaid_z();
  Val<u32> laneid(), warpid(), nwarpid(), smid(), nsmid();
  Val<u32> lanemask_eq(), lanemask_lt(), lanemask_le(), lanemask_gt(), lanemask_ge();
  Val<u32> clusterid_x(), clusterid_y(), clusterid_z(), nclusterid_x(), nclusterid_y(), nclusterid_z();
  Val<u32> cluster_ctaid_x(), cluster_ctaid_y(), cluster_ctaid_z(), cluster_ctarank(), cluster_nctarank();
  Val<u32> cluster_nctaid_x(), cluster_nctaid_y(), cluster_nctaid_z();
  Val<u32> dynamic_smem_size(), total_smem_size(), clock();
  Val<u64> clock64(), globaltimer();
  /// tid.x / 32, the same for all threads of a warp by construction (read once through shfl.sync.idx).
  Val<u32> warp_index();

  // ------------------------------------------------------------ scopes and roles (scope.h)
  Warp warp(Here at = Here::now());            ///< every warp of the block: proof for warp collectives
  Warpgroup warpgroup(Here at = Here::now());  ///< every four aligned warps
  Cta cta(Here at = Here::now());
  /// A group of consecutive warps with one job; `registers` per thread sets setmaxnreg (0 = leave alone).
  template <class S>
  Role<S> role(int count, int registers = 0, Here at = Here::now());
  void sync(Here at = Here::now());  ///< bar.sync 0: every thread of the block
  /// Barrier 1..15 for `threads` threads (a multiple of 32), allocated here.
  NamedBarrier named_barrier(int threads, Here at = Here::now());

  // ------------------------------------------------------------ shared and local memory (ptr.h)
  template <class T>
  Ptr<mod::shared, T> shared(int count, int align = 0, Here at = Here::now());
  template <class T>
  Ptr<mod::local, T> local_array(int count, Here at = Here::now());
  /// Read-only data in the module's constant bank, given as host values.
  template <class T, class H>
  Ptr<mod::const_, const T> constant(const std::vector<H>& values, Here at = Here::now());
  /// Untyped: byte offset of `bytes` bytes in the block's shared memory. Layout order is declaration order.
  int smem(int bytes, int align, Here at = Here::now());
  /// The 32-bit shared address of a smem() offset.
  Val<u32> smem_addr(int offset, Here at = Here::now());

  // ------------------------------------------------------------ launch shape
  Kernel& block(int x, int y = 1, int z = 1, Here at = Here::now());  ///< exact block size (.reqntid)
  template <int X, int Y = 1, int Z = 1>
  Kernel& block() {  ///< the same, checked by the compiler
    static_assert(X >= 1 && Y >= 1 && Z >= 1 && X * Y * Z <= 1024 && Z <= 64,
                  "a block has 1 to 1024 threads");
    return block(X, Y, Z);
  }
  Kernel& max_threads(int threads, Here at = Here::now());  ///< upper bound (.maxntid)
  Kernel& min_blocks(int per_sm) {
    min_blocks_ = per_sm;
    return *this;
  }
  Kernel& max_registers(int per_thread) {
    max_registers_ = per_thread;
    return *this;
  }
  Kernel& cluster(int x, int y = 1, int z = 1, Here at = Here::now());
  /// A build-time condition on the kernel's choices: BuildError with `rule` when it does not hold.
  void require(bool holds, std::string rule, std::string why = {}, Here at = Here::now()) const;

  // ------------------------------------------------------------ what is being built
  const std::string& name() const { return name_; }
  const std::string& target() const { return module_.target; }
  int sm() const { return sm_; }                         ///< 90 for sm_90a
  bool arch_specific() const { return arch_specific_; }  ///< the 'a' or 'f' targets
  /// BuildError unless the target is at least sm_<sm>; `what` names the instruction.
  void needs_sm(int sm, std::string_view what, Here at) const;
  ptx::Module& module() { return module_; }
  ptx::Function& function() { return f_; }

  // ------------------------------------------------------------ any row of opcodes.def (sync.h)
  /// One instruction with a result: k.ptx<f32>(ptx::Op::tanh, {ptx::Mod::approx, ptx::Mod::f32}, x). Operands
  /// are Vals, C++ integers, Ptrs (as [address]) and RegGroups (as {a, b}). Verified like everything else.
  template <class R, class... A>
  Val<R> ptx(ptx::Op op, ptx::Mods mods, const A&... in);
  template <class R, int N, class... A>  ///< with a vector result {d0, d1, ...}
  RegGroup<R, N> ptx(ptx::Op op, ptx::Mods mods, const A&... in);
  template <class... A>  ///< without a result
  void ptx(ptx::Op op, ptx::Mods mods, const A&... in);

  // ------------------------------------------------------------ recording, untyped (for the library)
  /// d = op.mods in...: one instruction with one result of `type`; uniform as the least uniform operand.
  Value op(ptx::Op op, ptx::Mods mods, ptx::Mod type, Values in);
  Value op(ptx::Op op, ptx::Mods mods, ptx::Mod type, Values in, Here at) {
    here_ = at;
    return this->op(op, mods, type, in);
  }
  /// An instruction without result; operands are registers or literals.
  void effect(ptx::Op op, ptx::Mods mods, Values in);
  /// Any instruction. `reads` are checked for owner and region by operand(); writes by fresh().
  ptx::Inst& inst(ptx::Op op, ptx::Mods mods, std::vector<ptx::Operand> operands);
  /// The operand for a value: a register, or an immediate where PTX has one for the type.
  ptx::Operand operand(const Value& v);
  /// The same, never an immediate.
  ptx::Operand in_register(const Value& v);
  ptx::RegId register_of(const Value& v) { return in_register(v).reg; }
  Value fresh(ptx::Mod type, Uniform u);
  template <class T>
  Val<T> fresh(Uniform u);
  Value copy(const Value& v);                   ///< mov into a new register
  void mov(const Value& home, const Value& v);  ///< overwrite a register the library owns
  /// home = op.mods in...: the same, computed.
  void mov_op(const Value& home, ptx::Op op, ptx::Mods mods, Values in);
  Value special(ptx::Sreg s, Uniform u);
  ptx::LabelId new_label();
  void place(ptx::LabelId l);
  void bra(ptx::LabelId l);
  void bra_if(const Value& p, bool sense, ptx::LabelId l);
  /// Records `body` with every instruction predicated by p (loads, stores, single instructions; no branches).
  template <class F>
  void guarded(const Value& p, F&& body) {
    const ptx::RegId before = std::exchange(guard_, register_of(p));
    body();
    guard_ = before;
  }
  void at(Here h) { here_ = h; }
  Here here() const { return here_; }

  // ------------------------------------------------------------ regions and collectives (for the library)
  std::uint32_t region_serial() const { return regions_.back().serial; }  ///< of the innermost open region
  bool region_is_open(std::uint32_t serial) const { return region_open_[serial]; }
  std::size_t region_depth() const { return regions_.size() - 1; }
  void push_region(const char* kind, Uniform u, Here at);
  void pop_region();
  void set_region_uniform(Uniform u) { regions_.back().uniform = u; }
  Uniform region_uniform() const;  ///< the least uniform open region
  /// BuildError unless every open region is uniform over `scope`; `what` is the collective's name.
  void collective(std::string_view what, Uniform scope, Here at) const;
  /// A broken rule found where throwing is impossible (destructors); finish() throws the first.
  void problem(std::string rule, Here at, std::string hint = {});
  void needs_full_warps(int multiple, Here at);  ///< the block size must be a multiple of this many threads

  // Carried state: home() at the top, settle() at the bottom, flush_moves() once all are settled (carry.h).
  Value carry_home(const Value& v);
  Value carry_settle(const Value& home, const Value& next);
  void flush_moves();
  /// Register defined in the arm of an if_ that lives on after it (for Carry specialisations).
  void adopt(const Value& v);

  // ------------------------------------------------------------ parameters (build.h)
  /// Declares a parameter; returns its symbol.
  ptx::SymbolId param(ParamInfo info, bool is_ptr = false);
  Value load_param(ptx::SymbolId p, ptx::Mod type, int offset = 0);
  const std::vector<ParamInfo>& params() const { return params_; }
  ParamInfo& param_info(ptx::SymbolId p);

  /// Recorded by finish() where all threads have come together again, before `ret`.
  void at_end(std::function<void()> record) { at_end_.push_back(std::move(record)); }
  /// Checks, removes dead code and moves the function into the module.
  void finish();

  std::array<int, 3> block_size() const { return block_; }  ///< zeros: free
  std::array<int, 3> cluster_size() const { return cluster_; }
  int static_smem() const { return static_smem_; }
  int dynamic_smem() const { return dynamic_smem_; }
  int warps = 0;                            ///< taken by roles so far
  bool cluster_exit_barrier = false;        ///< at_end() already brings the cluster together
  std::vector<std::uint32_t> wgmma_groups;  ///< the region of every wgmma group committed so far
  void note_role(int first_warp, int threads, int registers, std::shared_ptr<bool> ran, Here at);

 private:
  struct RoleNote {
    int first_warp, threads, registers;
    std::shared_ptr<bool> ran;
    Here at;
  };
  struct Problem {
    std::string rule;
    Here at;
    std::string hint;
  };
  struct Move {
    ptx::RegId to;
    ptx::RegId from;
    bool literal;
    std::uint64_t bits;
    ptx::Mod type;
  };
  friend class HomeMode;
  std::uint32_t line();
  [[noreturn]] void escaped(ptx::RegId r) const;
  ptx::Operand materialise(const Value& v);
  void emit_move(const Move& m);
  void check_roles();
  void check_register_budget(int threads);
  void finish_shared();
  void finish_shape();
  void simplify();

  ptx::Module& module_;
  ptx::Function f_;
  std::string name_;
  int sm_ = 0;
  bool arch_specific_ = false;
  Here born_, here_;
  // per register
  std::vector<std::uint32_t> reg_region_;
  // regions
  std::vector<Region> regions_;
  std::vector<Region> all_regions_;  ///< by serial
  std::vector<bool> region_open_;
  std::uint32_t home_region_ = ptx::kNone;  ///< where carried registers belong while an if_ merges
  bool merging_ = false;
  std::vector<Move> moves_;
  ptx::RegId guard_ = ptx::kNone;
  bool nounroll_ = false;
  // lines
  std::uint32_t loc_ = ptx::kNone;
  Here loc_at_;
  const char *last_file_ = nullptr, *own_file_ = nullptr;
  std::uint32_t last_file_number_ = 0;
  // launch shape and memory
  std::array<int, 3> block_{}, cluster_{};
  int max_threads_ = 0, min_blocks_ = 0, max_registers_ = 0;
  int smem_bytes_ = 0, smem_align_ = 16, static_smem_ = 0, dynamic_smem_ = 0, next_barrier_ = 1;
  int warp_multiple_ = 1;
  Here warp_multiple_at_;
  ptx::SymbolId smem_symbol_ = ptx::kNone;
  ptx::RegId smem_reg_ = ptx::kNone, warp_index_reg_ = ptx::kNone;
  std::vector<ParamInfo> params_;
  std::vector<RoleNote> roles_;
  std::vector<std::function<void()>> at_end_;
  std::vector<Problem> problems_;
  bool finished_ = false;
  template <class T>
  friend struct Carry;
};

/// While an if_ merges its arms, carried registers belong to the region around it.
class HomeMode {
 public:
  explicit HomeMode(Kernel& k);  ///< call before the arm's region opens
  ~HomeMode();
  HomeMode(const HomeMode&) = delete;
  void merge(bool on);
  std::uint32_t outer() const { return outer_; }

 private:
  Kernel& k_;
  std::uint32_t outer_;
};

}  // namespace cgp::dsl
