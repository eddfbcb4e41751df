// SPDX-License-Identifier: Apache-2.0
#pragma once
// Who runs this code. Thread, Warp, Warpgroup and Cta are proofs: they cannot be copied, only the scoping
// functions make them, and collective instructions are reachable through them alone. Each use checks that no
// open branch could split the scope. Roles split a block into groups of warps with different jobs; block
// size, setmaxnreg and arrival counts follow from them.
//   scope      made by                              threads that must all be there
//   Thread     one_thread()                         the one elected thread
//   Warp       k.warp(), role<Warp>.run()           32
//   Warpgroup  k.warpgroup(), role<Warpgroup>.run() 128, aligned
//   Cta        k.cta()                              the block
#include "cgp/dsl/core/flow.h"
#include "cgp/dsl/core/special.h"

namespace cgp::dsl {

class Scope {
 public:
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  /// BuildError when some thread of the scope might not get here; `what` is the collective's name.
  void converged(std::string_view what, Here at) const { k.collective(what, over, at); }

  Kernel& k;
  const Uniform over;
  const Val<u32> index;  ///< of this scope among its siblings in the role or block

 protected:
  friend class Kernel;
  Scope(Kernel& k, Uniform over, const Val<u32>& index) : k(k), over(over), index(index) {}
};

/// One thread. Single-thread instructions (TMA issue, tcgen05.mma, mbarrier.init) ask for it.
class Thread : public Scope {
  friend class Warp;
  friend class Cta;
  friend class Kernel;
  explicit Thread(Kernel& k) : Scope(k, Uniform::thread, Val<u32>(0)) {}
};

class Warp : public Scope {
 public:
  static constexpr int warps = 1;
  Val<u32> lane() const { return k.laneid(); }
  /// body(Thread&) on one thread of the warp.
  template <class Body>
  void one_thread(Body&& body, Here at = Here::now()) {
    converged("one_thread", at);
    k.at(at);
    k.if_(
        elected(),
        [&] {
          Thread t(k);
          body(t);
        },
        at);
  }
  void sync(Here at = Here::now()) {
    converged("bar.warp.sync", at);
    k.at(at);
    k.inst(ptx::Op::bar_warp_sync, {}, {ptx::Operand::integer(-1)});
  }

 private:
  friend class Kernel;
  friend class Warpgroup;
  template <class S>
  friend class Role;
  Warp(Kernel& k, const Val<u32>& index) : Scope(k, Uniform::warp, index) {}
  Val<pred> elected() {  // before sm_90 lane 0 is as good as any
    if (k.sm() < 90) return k.laneid() == 0;
    const auto p = k.fresh<pred>(Uniform::thread);
    k.inst(ptx::Op::elect_sync, {}, {ptx::Operand::dual(ptx::kNone, p.reg()), ptx::Operand::integer(-1)});
    return p;
  }
};

class Warpgroup : public Scope {
 public:
  static constexpr int warps = 4;
  /// body(Warp&) on the group's first warp.
  template <class Body>
  void one_warp(Body&& body, Here at = Here::now()) {
    converged("one_warp", at);
    k.at(at);
    k.if_((k.warp_index() & 3) == 0,
          [&] {
            Warp w(k, Val<u32>(0));
            body(w);
          },
          at);
  }
  template <class Body>
  void one_thread(Body&& body, Here at = Here::now()) {
    one_warp([&](Warp& w) { w.one_thread(body, at); }, at);
  }
  /// This warp of the group; every warp of the group is one.
  Warp warp() { return Warp(k, k.warp_index() & 3); }

 private:
  friend class Kernel;
  template <class S>
  friend class Role;
  Warpgroup(Kernel& k, const Val<u32>& index) : Scope(k, Uniform::warpgroup, index) {}
};

class Cta : public Scope {
 public:
  void sync(Here at = Here::now()) { k.sync(at); }
  /// body(Thread&) on the thread with index 0 in every dimension used (tid.x only: the block is taken as
  /// 1-D).
  template <class Body>
  void one_thread(Body&& body, Here at = Here::now()) {
    k.at(at);
    k.if_(
        k.tid() == 0,
        [&] {
          Thread t(k);
          body(t);
        },
        at);
  }
  /// body(Warp&) on warp 0.
  template <class Body>
  void one_warp(Body&& body, Here at = Here::now()) {
    k.at(at);
    k.if_(
        k.warp_index() == 0,
        [&] {
          Warp w = k.warp(at);
          body(w);
        },
        at);
  }

 private:
  friend class Kernel;
  explicit Cta(Kernel& k) : Scope(k, Uniform::cta, Val<u32>(0)) {}
};

/// Hardware barrier `id` for a fixed number of threads; made by k.named_barrier().
class NamedBarrier {
 public:
  NamedBarrier(Kernel& k, int id, int threads) : k_(&k), id_(id), threads_(threads) {}
  int id() const { return id_; }
  int threads() const { return threads_; }
  /// Waits for all threads; called by whole warps.
  void sync(Here at = Here::now()) const { emit(ptx::Op::bar_sync, "bar.sync", at); }
  /// Arrives without waiting; the waiting warps call sync().
  void arrive(Here at = Here::now()) const { emit(ptx::Op::bar_arrive, "bar.arrive", at); }

 private:
  void emit(ptx::Op op, std::string_view what, Here at) const {
    k_->collective(what, Uniform::warp, at);
    k_->at(at);
    k_->inst(op, {}, {ptx::Operand::integer(id_), ptx::Operand::integer(threads_)});
  }
  Kernel* k_;
  int id_, threads_;
};

/// `count` warps or warpgroups with one job.
template <class S>
class Role {
 public:
  Role(Kernel& k, int first_warp, int count, int registers, std::shared_ptr<bool> ran)
      : k_(k), first_(first_warp), count_(count), registers_(registers), ran_(std::move(ran)) {}
  /// body(S&) on every member; S::index counts them from 0.
  template <class Body>
  void run(Body&& body, Here at = Here::now()) const {
    const bool first_run = !std::exchange(*ran_, true);
    k_.at(at);
    constexpr bool group = std::is_same_v<S, Warpgroup>;
    const auto rel = k_.warp_index() - std::uint32_t(first_);
    // Uniform over the member by construction: members are whole, aligned groups of warps.
    const auto mine =
        assume_uniform(rel < std::uint32_t(S::warps * count_), group ? Uniform::warpgroup : Uniform::warp);
    k_.if_(
        mine,
        [&] {
          if (registers_ && first_run)
            k_.inst(ptx::Op::setmaxnreg, {ptx::Mod::inc, ptx::Mod::sync, ptx::Mod::aligned, ptx::Mod::u32},
                    {ptx::Operand::integer(registers_)});
          S s(k_, assume_uniform(group ? rel >> 2 : rel, group ? Uniform::warpgroup : Uniform::warp));
          body(s);
        },
        at);
  }
  /// body(Thread&) on one thread of the role.
  template <class Body>
  void one_thread(Body&& body, Here at = Here::now()) const {
    run(
        [&](S& s) {
          if (count_ == 1) {
            s.one_thread(body, at);
          } else {
            k_.if_(
                s.index == 0, [&] { s.one_thread(body, at); }, at);
          }
        },
        at);
  }
  int count() const { return count_; }  ///< warps or warpgroups
  int threads() const { return count_ * S::warps * 32; }
  int first_warp() const { return first_; }
  int registers() const { return registers_; }
  Kernel& kernel() const { return k_; }

 private:
  Kernel& k_;
  int first_, count_, registers_;
  std::shared_ptr<bool> ran_;
};

template <class S>
Role<S> Kernel::role(int count, int registers, Here at) {
  static_assert(std::is_same_v<S, Warp> || std::is_same_v<S, Warpgroup>,
                "a role is made of Warps or Warpgroups");
  if (count < 1) throw BuildError("a role has at least one member", at, text::cat("count = ", count));
  if (warps % S::warps)
    throw BuildError("a Warpgroup role starts at a multiple of four warps", at,
                     text::cat(warps, " warps are taken by the roles before it"),
                     "declare warpgroup roles before warp roles");
  if (registers) {
    if (registers < 24 || registers > 256 || registers % 8)
      throw BuildError("setmaxnreg takes 24 to 256 registers in steps of 8", at,
                       text::cat("got ", registers));
    if (!std::is_same_v<S, Warpgroup>)
      throw BuildError("setmaxnreg is executed by whole warpgroups", at, {}, "make it a role<Warpgroup>");
    needs_sm(90, "setmaxnreg", at);
  }
  auto ran = std::make_shared<bool>(false);
  note_role(warps, count * S::warps * 32, registers, ran, at);
  Role<S> r(*this, warps, count, registers, std::move(ran));
  warps += S::warps * count;
  return r;
}

inline Warp Kernel::warp(Here at) {
  collective("k.warp()", Uniform::warp, at);
  needs_full_warps(32, at);
  return Warp(*this, warp_index());
}
inline Warpgroup Kernel::warpgroup(Here at) {
  collective("k.warpgroup()", Uniform::warpgroup, at);
  needs_full_warps(128, at);
  return Warpgroup(*this, assume_uniform(warp_index() >> 2, Uniform::warpgroup));
}
inline Cta Kernel::cta(Here at) {
  collective("k.cta()", Uniform::cta, at);
  return Cta(*this);
}
inline void Kernel::sync(Here at) {
  collective("k.sync()", Uniform::cta, at);
  here_ = at;
  inst(ptx::Op::bar_sync, {}, {ptx::Operand::integer(0)});
}
inline NamedBarrier Kernel::named_barrier(int threads, Here at) {
  if (threads < 32 || threads > 1024 || threads % 32)
    throw BuildError("a named barrier counts whole warps: 32 to 1024 threads in steps of 32", at,
                     text::cat("got ", threads));
  if (next_barrier_ > 15)
    throw BuildError("a block has 16 hardware barriers: 0 is k.sync(), 1 to 15 are named", at,
                     "all 15 are taken");
  return NamedBarrier(*this, next_barrier_++, threads);
}

}  // namespace cgp::dsl
