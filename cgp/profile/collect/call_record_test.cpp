// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/collect/call_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "cgp/base/error.h"

using namespace cgp;
using namespace cgp::profile;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

measure::SystemCall call(int number, std::vector<std::string> files = {}, std::int64_t result = 0) {
  return {number, std::move(files), result, true};
}

measure::SystemCallTrace trace_of(std::vector<measure::SystemCall> calls) {
  measure::SystemCallTrace t;
  t.tasks.push_back({"0", std::move(calls)});
  return t;
}

CallRecord record_of(std::vector<measure::SystemCall> calls, const CallRules& rules = {}) {
  return make_record(trace_of(std::move(calls)), {"./p"}, rules);
}

/// A record of one task with one line for each letter.
CallRecord letters(const std::string& s) {
  CallRecord r;
  CallTask t{"0", {}};
  for (char c : s) t.lines.push_back({std::string(1, c)});
  r.tasks.push_back(t);
  return r;
}

std::vector<std::string> lines_of(const CallTask& t) {
  std::vector<std::string> out;
  for (const auto& l : t.lines) out.push_back(l.text + (l.times > 1 ? " x" + std::to_string(l.times) : ""));
  return out;
}

}  // namespace

#if defined(__x86_64__)
TEST(call_record, chance_is_taken_out_and_equal_calls_are_joined) {
  CallRules rules;
  rules.folder = "/home/a";
  rules.masks.push_back("tmp[0-9a-f]+");
  const auto r = record_of(
      {call(SYS_execve, {"/home/a/p"}), call(SYS_read, {}, 7), call(SYS_futex), call(SYS_read, {}, 9),
       call(SYS_openat, {"/proc/123/maps"}, 3), call(SYS_openat, {"/var/tmp12ab"}, -ENOENT),
       call(SYS_openat, {"/home/abc/x"}, -EACCES), call(SYS_rename, {"/home/a", "/home/a/b"})},
      rules);
  EXPECT_THAT(lines_of(r.tasks[0]),
              ElementsAre("execve \"$PWD/p\"", "read x2", "openat \"*/maps\"", "openat \"/var/*\" = ENOENT",
                          "openat \"/home/abc/x\" = EACCES", "rename \"$PWD\" \"$PWD/b\""));
  rules.masks = {"("};
  EXPECT_THROW(record_of({}, rules), ArgumentError);
}

TEST(call_record, another_file_another_outcome_and_one_call_more_are_differences) {
  const auto golden = record_of({call(SYS_openat, {"/a"}, 3), call(SYS_read, {}, 1), call(SYS_close)});
  EXPECT_TRUE(compare_records(golden, golden, CallOrder::order).empty());
  // What descriptors and sizes a call gives is none.
  EXPECT_TRUE(compare_records(
                  golden, record_of({call(SYS_openat, {"/a"}, 5), call(SYS_read, {}, 2), call(SYS_close)}),
                  CallOrder::order)
                  .empty());
  auto d = compare_records(golden, record_of({call(SYS_openat, {"/b"}, 3), call(SYS_read), call(SYS_close)}),
                           CallOrder::order);
  ASSERT_EQ(d.size(), 1u);
  EXPECT_EQ(d[0].where, "task 0, after 0 calls");
  EXPECT_THAT(d[0].lines, ElementsAre("- openat \"/a\"", "+ openat \"/b\"", "  read", "  close"));
  d = compare_records(golden, record_of({call(SYS_openat, {"/a"}, -ENOENT), call(SYS_read), call(SYS_close)}),
                      CallOrder::order);
  ASSERT_EQ(d.size(), 1u);
  EXPECT_EQ(d[0].lines[1], "+ openat \"/a\" = ENOENT");
  const auto more = record_of({call(SYS_openat, {"/a"}), call(SYS_read), call(SYS_read), call(SYS_close)});
  d = compare_records(golden, more, CallOrder::order);
  ASSERT_EQ(d.size(), 1u);
  EXPECT_EQ(d[0].where, "task 0, after 1 call");
  EXPECT_THAT(d[0].lines, ElementsAre("  openat \"/a\"", "- read", "+ read (2 times)", "  close"));
  d = compare_records(golden, more, CallOrder::counts);
  ASSERT_EQ(d.size(), 1u);
  EXPECT_THAT(d[0].lines, ElementsAre("! read: 1 times, now 2"));
  EXPECT_TRUE(compare_records(golden, more, CallOrder::names).empty());
}

TEST(call_record, the_order_of_calls_counts_only_by_order) {
  const auto a = record_of({call(SYS_getpid), call(SYS_getuid)}),
             b = record_of({call(SYS_getuid), call(SYS_getpid)});
  EXPECT_EQ(compare_records(a, b, CallOrder::order).size(), 1u);
  EXPECT_TRUE(compare_records(a, b, CallOrder::counts).empty());
  const auto c = record_of({call(SYS_getuid), call(SYS_getgid)});
  const auto d = compare_records(a, c, CallOrder::names);
  ASSERT_EQ(d.size(), 1u);
  EXPECT_THAT(d[0].lines, ElementsAre("- getpid", "+ getgid"));
}

TEST(call_record, rules_of_either_side_hold_for_both) {
  CallRules strict, loose;
  loose.ignored.insert("getpid");
  loose.masks.push_back("[0-9]+");
  const auto golden = record_of({call(SYS_getpid), call(SYS_openat, {"/a7"})}, strict);
  const auto now = record_of({call(SYS_openat, {"/a8"})}, loose);
  EXPECT_TRUE(compare_records(golden, now, CallOrder::order).empty());
  EXPECT_TRUE(compare_records(now, golden, CallOrder::order).empty());
}

TEST(call_record, totals_have_errors_and_bytes) {
  auto t = trace_of({call(SYS_read, {}, 700), call(SYS_read, {}, 324), call(SYS_read, {}, -EAGAIN),
                     call(SYS_write, {}, 5), call(SYS_openat, {"/x"}, -ENOENT)});
  t.tasks.push_back({"0:1", {}});
  t.tasks.push_back({"0:1.1", {}});
  const auto j = totals_json(t);
  EXPECT_EQ(j["read"]["calls"], 3);
  EXPECT_EQ(j["read"]["read_bytes"], 1024);
  EXPECT_EQ(j["read"]["errors"]["EAGAIN"], 1);
  EXPECT_EQ(j["write"]["written_bytes"], 5);
  const std::string table = call_table(t);
  EXPECT_THAT(table, HasSubstr("5 system calls of 2 processes and 1 more thread\n"));
  EXPECT_THAT(table, HasSubstr("  1 KiB "));
}
#endif

TEST(call_record, a_record_is_read_as_it_was_written) {
  CallRecord r = letters("aab");
  r.tasks[0].lines[0].times = 3;
  r.tasks.push_back({"0:1", {{"getpid", 1}}});
  r.command = {"./p", "x y"};
  r.rules.masks.push_back("q+");
  const CallRecord back = read_record(to_json(r).dump(), "f");
  EXPECT_EQ(back.command, r.command);
  EXPECT_EQ(back.rules.masks, r.rules.masks);
  EXPECT_EQ(back.rules.ignored, r.rules.ignored);
  ASSERT_EQ(back.tasks.size(), 2u);
  EXPECT_EQ(back.tasks[0].lines, r.tasks[0].lines);
  EXPECT_EQ(back.tasks[1].lines, r.tasks[1].lines);
  EXPECT_THROW(read_record("[", "f"), ParseError);
  EXPECT_THROW(read_record("[]", "f"), ParseError);
  EXPECT_THROW(read_record("{\"schema\": \"other\"}", "f"), ParseError);
  EXPECT_THROW(read_record("{\"schema\": \"cgp.syscalls/1\"}", "f"), ParseError);
}

TEST(call_record, a_task_that_is_missing_or_new_is_a_difference) {
  CallRecord a = letters("ab"), b = letters("ab");
  b.tasks.push_back({"0.1", {{"c", 1}}});
  auto d = compare_records(a, b, CallOrder::order);
  ASSERT_EQ(d.size(), 1u);
  EXPECT_EQ(d[0].where, "task 0.1, after 0 calls");
  EXPECT_THAT(d[0].lines, ElementsAre("+ c"));
  d = compare_records(b, a, CallOrder::order);
  ASSERT_EQ(d.size(), 1u);
  EXPECT_THAT(d[0].lines, ElementsAre("- c"));
}

TEST(call_record, an_edit_takes_one_side_to_the_other_and_is_shortest) {
  // Against the quadratic table of longest common subsequences.
  const char* words[] = {"",    "a",    "abcabba", "cbabac",   "xaxbxcx",
                         "abc", "aaaa", "bbab",    "abcdefgh", "hgfedcba"};
  for (const std::string a : words)
    for (const std::string b : words) {
      // Neighbours that are equal are one line in a record; letters alternate here as far as that matters.
      CallRecord ra = letters(a), rb = letters(b);
      const auto joined = [](const CallRecord& r) {
        std::vector<CallLine> out;
        for (const auto& l : r.tasks[0].lines)
          if (!out.empty() && out.back().text == l.text)
            ++out.back().times;
          else
            out.push_back(l);
        return out;
      };
      const auto la = joined(ra), lb = joined(rb);
      std::vector<std::vector<int>> common(la.size() + 1, std::vector<int>(lb.size() + 1, 0));
      for (std::size_t i = 1; i <= la.size(); ++i)
        for (std::size_t k = 1; k <= lb.size(); ++k)
          common[i][k] = la[i - 1] == lb[k - 1] ? common[i - 1][k - 1] + 1
                                                : std::max(common[i - 1][k], common[i][k - 1]);
      const int shortest = int(la.size() + lb.size()) - 2 * common[la.size()][lb.size()];
      const auto d = compare_records(ra, rb, CallOrder::order);
      ASSERT_EQ(d.empty(), shortest == 0) << a << " " << b;
      if (d.empty()) continue;
      int out = 0, in = 0;
      std::size_t next_a = 0, next_b = 0;
      for (const auto& l : d[0].lines) {
        if (l[0] == '-') {
          ++out;
          while (next_a < la.size() && l[2] != la[next_a].text[0]) ++next_a;
          EXPECT_LT(next_a++, la.size()) << a << " " << b;
        } else if (l[0] == '+') {
          ++in;
          while (next_b < lb.size() && l[2] != lb[next_b].text[0]) ++next_b;
          EXPECT_LT(next_b++, lb.size()) << a << " " << b;
        }
      }
      EXPECT_EQ(out + in, shortest) << a << " " << b;
      EXPECT_EQ(int(la.size()) - out, int(lb.size()) - in) << a << " " << b;
    }
}

TEST(call_record, records_that_have_little_in_common_say_where_they_part) {
  std::string a = "s", b = "s";
  for (int i = 0; i < 600; ++i) a += char('a' + i % 7), b += char('n' + i % 7);
  const auto d = compare_records(letters(a), letters(b), CallOrder::order);
  ASSERT_EQ(d.size(), 1u);
  EXPECT_THAT(d[0].lines, ElementsAre("  s", "- a", "+ n", "  and more than 400 differences behind it"));
}
