// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/counters/system_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>

#include "cgp/base/error.h"

using namespace cgp;
using namespace cgp::measure;
using testing::ElementsAre;

namespace {

SystemCallTrace traced(const std::string& script, double timeout = 0) {
  return trace_system_calls({"/bin/sh", "-c", script}, {true, timeout});
}

const TracedTask* task(const SystemCallTrace& t, const std::string& id) {
  for (const auto& x : t.tasks)
    if (x.id == id) return &x;
  return nullptr;
}

/// Calls that name this file, as "name error".
std::vector<std::string> calls_on(const TracedTask& t, const std::string& file) {
  std::vector<std::string> out;
  for (const auto& c : t.calls)
    if (std::find(c.files.begin(), c.files.end(), file) != c.files.end())
      out.push_back(system_call_name(c.number) + (c.result < 0 ? " " + error_name(int(-c.result)) : ""));
  return out;
}

}  // namespace

#define CGP_NEEDS_PTRACE(command)  \
  try {                            \
    command;                       \
  } catch (const Unsupported& e) { \
    GTEST_SKIP() << e.what();      \
  }

TEST(system_calls, the_program_is_the_first_call_and_its_exit_the_last) {
  SystemCallTrace t;
  CGP_NEEDS_PTRACE(t = traced("cd /nonexistent-folder; exit 3"))
  ASSERT_EQ(t.tasks.size(), 1u);
  const auto& calls = t.tasks[0].calls;
  ASSERT_GT(calls.size(), 5u);
  EXPECT_EQ(system_call_name(calls.front().number), "execve");
  EXPECT_THAT(calls.front().files, ElementsAre("/bin/sh"));
  EXPECT_EQ(calls.front().result, 0);
  EXPECT_EQ(system_call_name(calls.back().number), "exit_group");
  EXPECT_FALSE(calls.back().returned);
  EXPECT_THAT(calls_on(t.tasks[0], "/nonexistent-folder"), ElementsAre("chdir ENOENT"));
  EXPECT_EQ(t.process.exit_code, 3);
  for (std::size_t i = 0; i + 1 < calls.size(); ++i) EXPECT_TRUE(calls[i].returned) << i;
}

TEST(system_calls, two_runs_make_the_same_calls) {
  // No children: when a signal tells of their end is chance.
  const std::vector<std::string> command = {"/bin/sh", "-c",
                                            "read x </dev/null; cd /; cd /not-there; exit 2"};
  SystemCallTrace a, b;
  CGP_NEEDS_PTRACE(a = trace_system_calls(command, {true}))
  b = trace_system_calls(command, {true});
  ASSERT_EQ(a.tasks.size(), 1u);
  ASSERT_EQ(b.tasks.size(), 1u);
  ASSERT_EQ(a.tasks[0].calls.size(), b.tasks[0].calls.size());
  for (std::size_t i = 0; i < a.tasks[0].calls.size(); ++i) {
    EXPECT_EQ(a.tasks[0].calls[i].number, b.tasks[0].calls[i].number) << i;
    EXPECT_EQ(a.tasks[0].calls[i].files, b.tasks[0].calls[i].files) << i;
  }
}

TEST(system_calls, processes_are_followed_and_named_by_who_began_them) {
  SystemCallTrace t;
  CGP_NEEDS_PTRACE(
      t = traced("(cd /one-that-is-not; (cd /two-that-is-not; true); true); (cd /three; true); true"))
  ASSERT_TRUE(task(t, "0.1") && task(t, "0.1.1") && task(t, "0.2"));
  EXPECT_EQ(t.tasks.size(), 4u);
  EXPECT_THAT(calls_on(*task(t, "0.1"), "/one-that-is-not"), ElementsAre("chdir ENOENT"));
  EXPECT_THAT(calls_on(*task(t, "0.1.1"), "/two-that-is-not"), ElementsAre("chdir ENOENT"));
  EXPECT_THAT(calls_on(*task(t, "0.2"), "/three"), ElementsAre("chdir ENOENT"));
}

TEST(system_calls, signals_reach_the_program) {
  SystemCallTrace t;
  CGP_NEEDS_PTRACE(t = traced("trap 'exit 7' USR1; kill -USR1 $$; exit 1"))
  EXPECT_EQ(t.process.exit_code, 7);
  t = traced("kill -TERM $$");
  EXPECT_EQ(t.process.describe(), "SIGTERM");
  // Stopped as by job control, and continued by its child, which ends when there is nothing left to continue.
  t = traced("(while kill -CONT $$ 2>/dev/null; do :; done) & kill -STOP $$; exit 5");
  EXPECT_EQ(t.process.exit_code, 5);
}

TEST(system_calls, what_takes_too_long_is_ended_with_all_it_began) {
  SystemCallTrace t;
  CGP_NEEDS_PTRACE(t = traced("sleep 1000 & sleep 1000", 0.2))
  EXPECT_TRUE(t.process.timed_out);
  EXPECT_EQ(t.process.signal, 9);
}

TEST(system_calls, what_cannot_be_run_is_an_error) {
  EXPECT_THROW(trace_system_calls({}), ArgumentError);
  EXPECT_THROW(trace_system_calls({"/nonexistent/program"}), Error);
  EXPECT_THROW(trace_system_calls({"/etc/passwd"}), Error);
}

TEST(system_calls, the_table_is_that_of_the_system) {
#if defined(__x86_64__)
  EXPECT_EQ(system_call_name(SYS_read), "read");
  EXPECT_EQ(system_call_name(SYS_openat), "openat");
  EXPECT_EQ(system_call_name(SYS_clone3), "clone3");
  EXPECT_EQ(system_call_name(SYS_exit_group), "exit_group");
  EXPECT_EQ(system_call_name(SYS_pwritev2), "pwritev2");
  EXPECT_EQ(system_call_moves(SYS_pread64), Moves::reads);
  EXPECT_EQ(system_call_moves(SYS_writev), Moves::writes);
  EXPECT_EQ(system_call_moves(SYS_mmap), Moves::nothing);
#endif
  EXPECT_EQ(system_call_name(9999), "call 9999");
  EXPECT_EQ(system_call_name(-1 - 4), "i386 call 4");
  EXPECT_EQ(error_name(EACCES), "EACCES");
  EXPECT_EQ(error_name(9999), "errno 9999");
}
