// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/contract/contract.h"

#include <gtest/gtest.h>

#include "cgp/base/error.h"
#include "cgp/profile/contract/expression.h"

using namespace cgp;
using namespace cgp::profile;
using measure::Metric;
using measure::Source;

namespace {

std::optional<Known> values(const std::string& name) {
  if (name == "a") return Known{3.0, {}};
  if (name == "b") return Known{4.5, {}};
  if (name == "yes") return Known{true, {}};
  if (name == "word") return Known{std::string("compute"), {}};
  if (name == "gone") return Known{std::monostate{}, "it is absent"};
  if (name == "ridge_point") return Known{200.0, {}};
  return std::nullopt;
}

/// "true", "false", "?", or the number.
std::string result(const std::string& text) {
  const Known k = Expression(text).evaluate(values);
  if (!k.known()) return "?";
  if (const bool* b = std::get_if<bool>(&k.value)) return *b ? "true" : "false";
  if (const double* d = std::get_if<double>(&k.value)) return std::to_string(*d).substr(0, 5);
  return std::get<std::string>(k.value);
}

Document measured() {
  Document d = new_document("kernel", "softmax", {"rows=8"});
  d.machine["device"] = {{"spec", "cuda:0"}, {"name", "NVIDIA H200"}, {"arch", "sm_90a"}};
  d.metrics.set(Metric::wall_clock_time_us, 40.0, Source::measured, "events");
  d.metrics.set(Metric::global_load_efficiency_pct, 100.0, Source::counted, "counters");
  d.metrics.set(Metric::shared_bank_conflicts, 12.0, Source::counted, "counters");
  return d;
}

std::string outcomes(const std::string& yaml, const Document& d) {
  std::string out;
  for (const auto& c : check(parse_contract(yaml, "c.yaml"), d)) out += std::string(name(c.outcome)) + " ";
  return out;
}

const char* kHead = "name: n\nkernel: softmax\n";

}  // namespace

TEST(expression, arithmetic_and_order) {
  EXPECT_EQ(result("1 + 2 * 3"), "7.000");
  EXPECT_EQ(result("(1 + 2) * 3"), "9.000");
  EXPECT_EQ(result("-a + 5"), "2.000");
  EXPECT_EQ(result("abs(a - b)"), "1.500");
  EXPECT_EQ(result("max(a, b) / 2"), "2.250");
  EXPECT_EQ(result("10%"), "10.00");
  EXPECT_EQ(result("1e3 - 1"), "999.0");
}

TEST(expression, comparisons_and_logic) {
  EXPECT_EQ(result("a < b"), "true");
  EXPECT_EQ(result("a >= 3"), "true");
  EXPECT_EQ(result("0.1 + 0.2 == 0.3"), "true");
  EXPECT_EQ(result("a > 1 and b > 5"), "false");
  EXPECT_EQ(result("a > 1 or b > 5"), "true");
  EXPECT_EQ(result("not a == 3"), "false");
  EXPECT_EQ(result("word == \"compute\" && yes"), "true");
  EXPECT_EQ(result("classify(8) == 'memory'"), "true");
  EXPECT_EQ(result("classify(500) == 'compute'"), "true");
}

TEST(expression, what_is_absent_is_unknown_and_never_true) {
  EXPECT_EQ(result("gone > 1"), "?");
  EXPECT_EQ(result("not gone > 1"), "?");
  EXPECT_EQ(result("gone > 1 and a == 3"), "?");
  EXPECT_EQ(result("gone > 1 and a == 4"), "false");
  EXPECT_EQ(result("gone > 1 or a == 3"), "true");
  EXPECT_EQ(result("gone > 1 or a == 4"), "?");
  EXPECT_EQ(result("a == 3 when gone > 1"), "?");
  EXPECT_EQ(result("a == 4 when b > 100"), "?") << "a condition that does not hold checks nothing";
  EXPECT_EQ(result("a == 4 when b < 100"), "false");
  EXPECT_EQ(result("a / 0"), "?");
  EXPECT_EQ(result("log2(0 - 1) < 3"), "?");
}

TEST(expression, mistakes_are_errors) {
  for (const char* text : {"a +", "(a", "a b", "a = 3", "\"open", "abs(a", "", "a >", "1 ~ 2"})
    EXPECT_THROW(Expression e(text), ParseError) << text;
  EXPECT_THROW(result("nothing > 1"), ArgumentError) << "an unknown name is not false";
  EXPECT_THROW(result("word > 1"), ArgumentError);
  EXPECT_THROW(result("a and b"), ArgumentError);
  EXPECT_THROW(result("sqrt(a)"), ArgumentError);
  EXPECT_THROW(result("abs(a, b)"), ArgumentError);
  EXPECT_THROW(Expression(std::string(100000, '(') + "1"), ParseError) << "the stack has an end";
  EXPECT_EQ(Expression("a > a * b").names(), (std::vector<std::string>{"a", "b"}));
}

TEST(contract, promises_pass_fail_and_are_skipped) {
  const std::string yaml =
      std::string(kHead) +
      "metrics:\n  global_load_efficiency_pct: {min: 95}\n  shared_bank_conflicts: {max: 0}\n"
      "  cycles: {max: 100}\nbounds: {max_time_us: 50}\nchecks:\n  - {name: c, check: wall_clock_time_us < "
      "30}\n";
  EXPECT_EQ(outcomes(yaml, measured()), "PASS FAIL SKIP PASS FAIL ");
}

TEST(contract, a_bound_holds_for_its_size_alone) {
  const std::string yaml = std::string(kHead) +
                           "bounds:\n  - {size: 4096, max_time_us: 1}\n  - {size: 512x1024, max_time_us: 1}\n"
                           "  - {size: [8, 8], max_time_us: 1}\n  - {max_time_us: 1000}\n";
  Document d = measured();
  EXPECT_EQ(outcomes(yaml, d), "SKIP SKIP SKIP PASS ") << "the profile does not say its size";
  d.more["settings"] = {{"rows", "512"}, {"cols", "1024"}};
  EXPECT_EQ(outcomes(yaml, d), "SKIP FAIL SKIP PASS ");
  d.more["settings"] = {{"m", "4096"}, {"n", "4096"}, {"k", "4096"}};
  EXPECT_EQ(outcomes(yaml, d), "FAIL SKIP SKIP PASS ");
}

TEST(contract, a_metric_without_data_is_skipped_with_the_reason) {
  Document d = measured();
  d.metrics.absent(Metric::cycles, "no counters on this machine");
  const auto all = check(parse_contract(std::string(kHead) + "metrics: {cycles: {max: 1}}", "c.yaml"), d);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].outcome, Outcome::skip);
  EXPECT_NE(all[0].why.find("no counters on this machine"), std::string::npos);
}

TEST(contract, other_hardware_skips) {
  const std::string yaml =
      std::string(kHead) + "hardware: {gpu: B200}\nmetrics: {wall_clock_time_us: {max: 1}}\n";
  EXPECT_EQ(outcomes(yaml, measured()), "SKIP ");
  EXPECT_EQ(outcomes(std::string(kHead) + "hardware: {gpu: H200}\nmetrics: {wall_clock_time_us: {max: 1}}\n",
                     measured()),
            "FAIL ");
}

TEST(contract, a_profile_of_something_else_skips) {
  const std::string promise = "metrics: {global_load_efficiency_pct: {min: 95}}\n";
  EXPECT_EQ(outcomes("name: n\nkernel: gemm\n" + promise, measured()), "SKIP ");
  EXPECT_EQ(outcomes(kHead + ("settings: [rows=9]\n" + promise), measured()), "SKIP ");
  EXPECT_EQ(outcomes(kHead + ("settings: [rows=8]\n" + promise), measured()), "PASS ");
}

TEST(contract, mistakes_say_where) {
  const auto message = [](const std::string& yaml) -> std::string {
    try {
      parse_contract(yaml, "c.yaml");
    } catch (const ParseError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(message("name: [").find("c.yaml:"), std::string::npos);
  EXPECT_NE(message(std::string(kHead) + "metrics: {tflopz: {min: 1}}").find("tflops"), std::string::npos);
  EXPECT_NE(message(std::string(kHead) + "metrics: {tflops: {min: fast}}").find("number"), std::string::npos);
  EXPECT_NE(message(std::string(kHead) + "metrics: {tflops: {least: 1}}").find("min, max"),
            std::string::npos);
  EXPECT_NE(message(std::string(kHead) + "checks:\n  - {name: x, check: tflops >}").find("c.yaml:4"),
            std::string::npos);
  EXPECT_NE(message(kHead).find("promises something"), std::string::npos);
  EXPECT_NE(message("- a\n- b\n").find("map"), std::string::npos);
  for (const char* no_number : {".nan", ".inf"})
    EXPECT_NE(message(kHead + ("metrics: {tflops: {min: " + std::string(no_number) + "}}")).find("finite"),
              std::string::npos);
  EXPECT_NE(message("name: n\nkernel: a\ncommand: b\nmetrics: {tflops: {min: 1}}").find("both"),
            std::string::npos);
}

TEST(contract, unknown_keys_warn) {
  const auto c = parse_contract(std::string(kHead) + "metric: {}\nmetrics: {tflops: {min: 1}}\n", "c.yaml");
  ASSERT_EQ(c.warnings.size(), 1u);
  EXPECT_NE(c.warnings[0].find("c.yaml:3"), std::string::npos);
}

TEST(contract, what_is_generated_is_kept_by_its_profile_and_broken_by_a_slower_one) {
  Document d = measured();
  const std::string yaml = generate_contract(d, "made", 0.1);
  const auto c = parse_contract(yaml, "c.yaml");
  EXPECT_EQ(c.kernel, "softmax");
  EXPECT_EQ(c.gpu, "NVIDIA H200");
  ASSERT_GE(c.promises.size(), 3u);
  for (const auto& one : check(c, d))
    EXPECT_EQ(one.outcome, Outcome::pass) << one.promise.check << " " << one.why;
  d.metrics.set(Metric::wall_clock_time_us, 45.0, Source::measured, "events");
  int failed = 0;
  for (const auto& one : check(c, d)) failed += one.outcome == Outcome::fail;
  EXPECT_EQ(failed, 1);
  EXPECT_THROW(generate_contract(new_document("kernel", "x"), "x", 0.1), Unsupported)
      << "no numbers are made up";
}

TEST(contract, reports_for_other_programs) {
  ContractResult r{
      parse_contract(std::string(kHead) + "metrics:\n  wall_clock_time_us: {max: 1}\n  cycles: {max: 1}\n",
                     "c.yaml"),
      {}};
  r.checks = check(r.contract, measured());
  const std::string xml = junit_xml({r});
  EXPECT_NE(xml.find("tests=\"2\" failures=\"1\" skipped=\"1\""), std::string::npos);
  EXPECT_NE(xml.find("wall_clock_time_us &lt;= 1"), std::string::npos);
  const std::string lines = github_lines({r});
  EXPECT_NE(lines.find("::error file=c.yaml,line=4"), std::string::npos) << lines;
  EXPECT_NE(lines.find("::warning file=c.yaml,line=5"), std::string::npos);
}
