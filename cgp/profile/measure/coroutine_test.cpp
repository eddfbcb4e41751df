// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/measure/coroutine.h"

#include <gtest/gtest.h>

#include <deque>
#include <exception>
#include <thread>

using namespace cgp::measure;

namespace {

struct Task {
  struct promise_type : ProfiledPromise {
    // The coroutine's parameters come here: each test has its own profile.
    template <class... More>
    explicit promise_type(TaskProfile& p, More&...) : ProfiledPromise(p) {}
    Task get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_never initial_suspend() { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
  std::coroutine_handle<promise_type> handle;
};

struct Queue {
  std::deque<std::coroutine_handle<Task::promise_type>> waiting;
  struct Awaiter {
    Queue& queue;
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<Task::promise_type> h) { queue.waiting.push_back(h); }
    int await_resume() const { return 7; }
  };
  Awaiter operator co_await() { return {*this}; }
  void run(bool tell) {
    while (!waiting.empty()) {
      const auto h = waiting.front();
      waiting.pop_front();
      if (tell) h.promise().ready();
      h.resume();
    }
  }
};

struct Never {  // is asked to wait and does not
  bool await_ready() const { return false; }
  bool await_suspend(std::coroutine_handle<>) const { return false; }
  void await_resume() const {}
};

Task waits(TaskProfile&, Queue& queue, int times, int& sum) {
  for (int i = 0; i < times; ++i) sum += co_await queue;
}
Task waits_for_nothing(TaskProfile&) {
  co_await std::suspend_never{};
  co_await Never{};
}

}  // namespace

TEST(coroutine, resumptions_and_yields_are_counted_exactly) {
  TaskProfile profile;
  Queue queue;
  int sum = 0;
  const Task a = waits(profile, queue, 3, sum), b = waits(profile, queue, 0, sum),
             c = waits(profile, queue, 1, sum);
  queue.run(false);
  EXPECT_TRUE(a.handle.done() && b.handle.done() && c.handle.done());
  EXPECT_EQ(sum, 4 * 7) << "what is waited for arrives";
  TaskCounts n = profile.counts();
  EXPECT_EQ(n.tasks, 3u);
  EXPECT_EQ(n.ended, 0u);
  EXPECT_EQ(n.resumptions, 3u + 4u);
  EXPECT_EQ(n.yields, 4u);
  EXPECT_EQ(n.timed, 0u);
  for (const Task& t : {a, b, c}) t.handle.destroy();
  EXPECT_EQ(profile.counts().ended, 3u);
  MetricSet m;
  profile.add_to(m, "test");
  EXPECT_EQ(m[Metric::poll_count].number(), 7.0);
  EXPECT_EQ(m[Metric::poll_efficiency].number(), 3.0 / 7);
  EXPECT_EQ(m[Metric::yield_ratio].number(), 4.0 / 7);
  EXPECT_FALSE(m[Metric::avg_poll_latency_us].present()) << "absent, not 0";
}

TEST(coroutine, what_does_not_wait_is_no_yield) {
  TaskProfile profile;
  const Task t = waits_for_nothing(profile);
  EXPECT_TRUE(t.handle.done());
  EXPECT_EQ(profile.counts().yields, 0u);
  EXPECT_EQ(profile.counts().resumptions, 1u);
  t.handle.destroy();
}

TEST(coroutine, latency_is_from_ready_to_running) {
  TaskProfile profile;
  Queue queue;
  int sum = 0;
  const Task t = waits(profile, queue, 2, sum);
  const auto h = queue.waiting.front();
  queue.waiting.pop_front();
  h.promise().ready();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  h.resume();
  const TaskCounts n = profile.counts();
  EXPECT_EQ(n.timed, 1u);
  EXPECT_GE(n.latency_seconds, 0.02);
  queue.run(true);
  EXPECT_EQ(profile.counts().timed, 2u);
  MetricSet m;
  profile.add_to(m, "test");
  EXPECT_GE(m[Metric::avg_poll_latency_us].number(), 10000);
  t.handle.destroy();
}

TEST(coroutine, many_threads_may_run_tasks) {
  TaskProfile profile;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int k = 0; k < 100; ++k) {
        Queue queue;
        int sum = 0;
        const Task t = waits(profile, queue, 5, sum);
        queue.run(true);
        t.handle.destroy();
      }
    });
  for (auto& t : threads) t.join();
  const TaskCounts n = profile.counts();
  EXPECT_EQ(n.tasks, 400u);
  EXPECT_EQ(n.ended, 400u);
  EXPECT_EQ(n.resumptions, 400u * 6);
  EXPECT_EQ(n.yields, 400u * 5);
  EXPECT_EQ(n.timed, 400u * 5);
}
