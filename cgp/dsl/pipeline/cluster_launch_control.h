// SPDX-License-Identifier: Apache-2.0
#pragma once
// Work stealing between blocks (sm_100): the grid has one cluster per piece of work; a cluster that is done
// takes over pieces whose clusters have not been launched yet.
//   WorkQueue queue(k, load, mma, drain);       who takes part: the first asks, all follow
//   load.one_thread([&](Thread& t) { queue.lead(t, [&](Val<u32> piece) { ... }); });
//   mma.one_thread([&](Thread& t) { queue.follow(t, [&](Val<u32> piece) { ... }); });
//   drain.run([&](Warpgroup& wg) { queue.follow(wg, [&](Val<u32> piece) { ... }); });
// Every participant sees the same pieces in the same order; the first is the cluster's own. The next piece is
// asked for while one is worked on. `piece` counts clusters along x; the grid is one-dimensional.
// PTX ISA, "clusterlaunchcontrol".
#include "cgp/dsl/mma/tmem.h"

namespace cgp::dsl {

/// A role that takes part in even blocks of the cluster only (one_leader).
template <class S>
struct Leaders {
  const Role<S>& role;
};
template <class S>
Leaders<S> leaders(const Role<S>& r) {
  return {r};
}

namespace record {
/// Answers, their barriers and cursors, without the roles' types.
class QueueCore {
 public:
  /// Arrivals on an answer's empty barrier: of every block, and besides of every even block.
  QueueCore(Kernel& k, int arrivals, int leader_arrivals, Here at);
  ~QueueCore();
  void ask(Here at);
  struct Answer {
    Val<pred> more;  ///< false: nothing is left
    Val<u32> piece;  ///< 0 when nothing is left
  };
  /// The next answer; `warps` warps take part, 0 = one thread.
  Answer answer(int warps, Here at);
  Val<u32> first(Here at);
  void note(int arrivals, bool leader) { (leader ? leader_seen_ : seen_) += arrivals; }

 private:
  Kernel& k_;
  int arrivals_, leader_arrivals_, seen_ = 0, leader_seen_ = 0, blocks_, data_, bars_;
  Here at_;
  std::optional<Value> asks_, empty_base_;
  std::optional<PhaseCursor> ask_, read_;
};
template <class S>
constexpr int queue_arrivals(const Role<S>& r) {
  return r.count() * S::warps;
}
template <class S>
constexpr int queue_arrivals(const Leaders<S>&) {
  return 0;
}
template <class S>
constexpr int queue_leaders(const Role<S>&) {
  return 0;
}
template <class S>
constexpr int queue_leaders(const Leaders<S>& l) {
  return l.role.count() * S::warps;
}
template <class S>
struct QueueScope {  // Warp, Warpgroup
  static constexpr int warps = S::warps, arrivals = S::warps;
  static constexpr bool leader = false;
  static constexpr Uniform over = std::is_same_v<S, Warp> ? Uniform::warp : Uniform::warpgroup;
};
template <>
struct QueueScope<Thread> {
  static constexpr int warps = 0, arrivals = 1;
  static constexpr bool leader = false;
  static constexpr Uniform over = Uniform::thread;
};
template <>
struct QueueScope<PairLeader> : QueueScope<Thread> {
  static constexpr bool leader = true;
};
}  // namespace record

class WorkQueue {
 public:
  /// `lead` asks (one thread of it); a Warp role follows with a thread or a warp of each member, a Warpgroup
  /// role with whole warpgroups; leaders(role) takes part in even blocks only.
  template <class L, class... Followers>
  WorkQueue(Kernel& k, const Role<L>& lead, const Followers&... followers)
      : k_(k),
        core_(k, 1 + (0 + ... + record::queue_arrivals(followers)),
              (0 + ... + record::queue_leaders(followers)), k.here()) {
    (void)lead;
  }
  WorkQueue(const WorkQueue&) = delete;

  /// body(piece) for every piece, asking for the next one first. body(piece, state) returns the next state.
  template <class Body>
  void lead(Thread& t, Body&& body, Here at = Here::now()) {
    run<true>(t, std::tuple<>{}, stateless(body), at);
  }
  template <class S, class Body>
  void follow(S& scope, Body&& body, Here at = Here::now()) {
    run<false>(scope, std::tuple<>{}, stateless(body), at);
  }
  template <class S, class State, class Body>
  State follow(S& scope, State init, Body&& body, Here at = Here::now()) {
    return run<false>(scope, std::move(init), body, at);
  }

 private:
  template <class Body>
  static auto stateless(Body& body) {
    return [&body](const Val<u32>& piece, std::tuple<>) {
      body(piece);
      return std::tuple<>{};
    };
  }
  template <bool Asks, class S, class State, class Body>
  State run(S& scope, State init, Body&& body, Here at) {
    using Info = record::QueueScope<S>;
    static_assert(std::is_same_v<std::invoke_result_t<Body, Val<u32>, State>, State>,
                  "the body must hand back the state it received (same type)");
    scope.converged("the work queue", at);
    core_.note(Info::arrivals, Info::leader);
    // The first piece is the block's own: the test stands at the bottom.
    const auto uniform = [](const Val<u32>& v) { return keep_uniform(assume_uniform(v, Info::over)); };
    using Turn = std::tuple<Val<u32>, State>;
    Turn home = Carry<Turn>::home(k_, Turn(uniform(core_.first(at)), std::move(init)));
    const auto top = k_.new_label();
    k_.place(top);
    k_.push_region("work queue loop", Info::over, at);
    if (Asks) core_.ask(at);
    Turn turn = Carry<Turn>::view(home);
    State next = body(std::get<0>(turn), std::move(std::get<1>(turn)));
    const auto a = core_.answer(Info::warps, at);
    Turn out = Carry<Turn>::settle(k_, home, Turn(uniform(a.piece), std::move(next)));
    k_.flush_moves();
    k_.at(at);
    k_.bra_if(a.more, true, top);
    k_.pop_region();
    return std::move(std::get<1>(out));
  }
  Kernel& k_;
  record::QueueCore core_;
};

}  // namespace cgp::dsl
