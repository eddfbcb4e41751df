// SPDX-License-Identifier: Apache-2.0
#pragma once
// What C++20 coroutines do with their resumptions: how many a task needs, how many of them only wait again,
// and how long a task that may go on lies in a queue. A promise type derives from ProfiledPromise; that is
// all, except that only who queues the handle knows when it may go on, and says so (ready()).
//
//   struct Task {
//     struct promise_type : cgp::measure::ProfiledPromise { ... };
//   };
//   queue.push(handle), handle.promise().ready();
//   ...
//   cgp::measure::TaskProfile::of_program().add_to(metrics, "coroutines");
#include <atomic>
#include <coroutine>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "cgp/profile/measure/metric.h"

namespace cgp::measure {

struct TaskCounts {
  std::uint64_t tasks = 0, ended = 0;
  std::uint64_t resumptions = 0;  ///< the start of a task is its first
  std::uint64_t yields = 0;       ///< resumptions that came to another wait
  std::uint64_t timed = 0;        ///< resumptions after a ready()
  double latency_seconds = 0;     ///< of these, together: from ready() to running
};

/// Counts of many tasks, from any thread.
class TaskProfile {
 public:
  TaskCounts counts() const;
  /// poll_count, poll_efficiency, yield_ratio, avg_poll_latency_us; absent where nothing was seen.
  void add_to(MetricSet& into, const std::string& from) const;
  /// That of promises which name no other.
  static TaskProfile& of_program();

 private:
  friend class ProfiledPromise;
  std::atomic<std::uint64_t> tasks_{0}, ended_{0}, resumptions_{0}, yields_{0}, timed_{0}, latency_ns_{0};
};

class ProfiledPromise {
 public:
  explicit ProfiledPromise(TaskProfile& profile = TaskProfile::of_program());
  ~ProfiledPromise();
  ProfiledPromise(const ProfiledPromise&) = delete;
  ProfiledPromise& operator=(const ProfiledPromise&) = delete;

  /// The task may go on now; called by who queues it, from any thread.
  void ready();

  template <class Awaitable>
  auto await_transform(Awaitable&& awaitable);

 private:
  template <class Awaiter>
  class Observed;
  void yielded() { profile_.yields_.fetch_add(1, std::memory_order_relaxed); }
  void went_on() { profile_.yields_.fetch_sub(1, std::memory_order_relaxed); }
  void resumed();

  TaskProfile& profile_;
  std::atomic<std::int64_t> ready_ns_{0};
};

/// Stands between a task and what it waits for. `Awaiter` is a reference where the expression was an lvalue.
template <class Awaiter>
class ProfiledPromise::Observed {
 public:
  Observed(ProfiledPromise& promise, Awaiter&& awaiter)
      : promise_(promise), awaiter_(std::forward<Awaiter>(awaiter)) {}
  bool await_ready() { return awaiter_.await_ready(); }
  template <class Promise>
  auto await_suspend(std::coroutine_handle<Promise> handle) {
    // Before the handle is given away: the task may run on another thread, or be gone, when the call returns.
    waited_ = true;
    promise_.yielded();
    using Result = decltype(awaiter_.await_suspend(handle));
    if constexpr (std::is_same_v<Result, bool>) {
      const bool waits = awaiter_.await_suspend(handle);
      if (!waits) waited_ = false, promise_.went_on();  // then nobody else has the handle
      return waits;
    } else {
      return awaiter_.await_suspend(handle);
    }
  }
  decltype(auto) await_resume() {
    if (waited_) promise_.resumed();
    return awaiter_.await_resume();
  }

 private:
  ProfiledPromise& promise_;
  Awaiter awaiter_;
  bool waited_ = false;
};

template <class Awaitable>
auto ProfiledPromise::await_transform(Awaitable&& awaitable) {
  if constexpr (requires { std::forward<Awaitable>(awaitable).operator co_await(); }) {
    using Awaiter = decltype(std::forward<Awaitable>(awaitable).operator co_await());
    return Observed<Awaiter>(*this, std::forward<Awaitable>(awaitable).operator co_await());
  } else if constexpr (requires { operator co_await(std::forward<Awaitable>(awaitable)); }) {
    using Awaiter = decltype(operator co_await(std::forward<Awaitable>(awaitable)));
    return Observed<Awaiter>(*this, operator co_await(std::forward<Awaitable>(awaitable)));
  } else {
    return Observed<Awaitable>(*this, std::forward<Awaitable>(awaitable));
  }
}

}  // namespace cgp::measure
