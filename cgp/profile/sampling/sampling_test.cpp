// SPDX-License-Identifier: Apache-2.0
// Samples of a program whose shares are known, names of code that a JIT wrote, damaged tables, and the views.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "cgp/base/file.h"
#include "cgp/base/random.h"
#include "cgp/base/text.h"
#include "cgp/profile/measure/process.h"
#include "cgp/profile/sampling/annotate.h"
#include "cgp/profile/sampling/cpu_compare.h"
#include "cgp/profile/sampling/cpu_profile.h"
#include "cgp/profile/sampling/unwind.h"
#include "cgp/profile/timeline/launched.h"
#include "cgp/profile/view/document.h"
#include "cgp/profile/view/report_html.h"
#include "cgp/profile/view/screen.h"

using namespace cgp;
using namespace cgp::profile;
using nlohmann::ordered_json;
using testing::HasSubstr;

namespace {

#ifdef CGP_PLANTED_LOOP
CpuProfile sampled(const std::vector<std::string>& arguments, const char* program = CGP_PLANTED_LOOP,
                   const SamplerOptions& options = {.rate = 999}) {
  CpuSampler sampler(options);
  std::vector<std::string> command{program};
  command.insert(command.end(), arguments.begin(), arguments.end());
  measure::ProcessOptions p;
  p.environment = sampler.environment();
  const auto run = measure::run_process(command, p);
  EXPECT_TRUE(run.ok()) << run.describe();
  return analyse(sampler.stop());
}

const HotFunction* find(const CpuProfile& p, const std::string& name) {
  for (const auto& f : p.functions)
    if (f.name == name) return &f;
  return nullptr;
}

TEST(sampling, functions_have_their_shares_and_lines) {
  const CpuProfile p = sampled({"1200000"});
  if (!p.absent.empty()) GTEST_SKIP() << p.absent;
  ASSERT_GT(p.samples, 100u);
  EXPECT_EQ(p.lost, 0u);
  const auto *hot = find(p, "planted::hot_loop"), *turn = find(p, "planted::turn"), *main = find(p, "main");
  ASSERT_TRUE(hot && turn && main) << cpu_text(to_json(p), 120);
  EXPECT_EQ(p.functions[0].name, "planted::hot_loop");
  const double both = double(hot->self + turn->self);
  EXPECT_NEAR(double(hot->self) / both, 0.75, 0.07);
  EXPECT_GT(both / double(p.samples), 0.9);
  EXPECT_GT(double(main->total) / double(p.samples), 0.9) << "callers are found";
  ASSERT_FALSE(hot->lines.empty());
  EXPECT_THAT(hot->lines[0].at.file, HasSubstr("planted_loop.cpp"));
  const std::string source = read_file(hot->lines[0].at.file);
  const auto marked = source.find("// hot");
  EXPECT_EQ(hot->lines[0].at.line,
            1 + std::count(source.begin(), source.begin() + std::ptrdiff_t(marked), '\n'));
  const std::string seconds = to_json(p)["clock"];
  EXPECT_THAT(seconds, HasSubstr("cpu-clock"));
}

TEST(sampling, waits_have_the_function_that_waited) {
  CpuSampler sampler({.rate = 999, .waits = true});
  const auto run = measure::run_process({CGP_PLANTED_LOOP, "100000", "sleep"});
  EXPECT_TRUE(run.ok()) << run.describe();
  const CpuProfile p = analyse(sampler.stop());
  if (!p.absent.empty() || !p.waits_watched) GTEST_SKIP() << p.absent << p.waits_absent;
  std::uint64_t slept = 0, all = 0;
  for (const auto& [stack, ns] : p.waits) {
    all += ns;
    if (stack.find(";planted::wait;") != stack.npos) slept += ns;
  }
  EXPECT_GT(double(slept) * 1e-9, 0.099) << "it sleeps 20 times for 5 ms";
  EXPECT_LT(double(slept) * 1e-9, 0.25);
  const auto j = to_json(p);
  EXPECT_THAT(cpu_text(j, 120), HasSubstr("planted::wait < main"));
  EXPECT_THAT(cpu_flamegraph_svg(j["waits"], "t"), HasSubstr(": waiting"));
  std::uint64_t working = 0;
  for (const auto& [stack, samples] : p.folded) working += samples;
  EXPECT_EQ(working, p.samples) << "waits are no samples of work";
}

#if defined(__x86_64__)
TEST(sampling, callers_of_code_without_frame_pointers_are_found) {
  const CpuProfile p = sampled({"600000"}, CGP_PLANTED_LOOP_TABLES);
  if (!p.absent.empty()) GTEST_SKIP() << p.absent;
  const auto *main = find(p, "main"), *work = find(p, "planted::work");
  ASSERT_TRUE(main && work) << cpu_text(to_json(p), 120);
  EXPECT_GT(double(main->total) / double(p.samples), 0.9);
  EXPECT_GT(double(work->total) / double(p.samples), 0.9);
  EXPECT_EQ(p.cut, 0u);
  std::uint64_t whole = 0;
  for (const auto& [stack, samples] : p.folded)
    if (stack.find(";main;planted::work;planted::") != stack.npos) whole += samples;
  EXPECT_GT(double(whole) / double(p.samples), 0.9);
}
#endif

#if defined(__x86_64__)
/// A kernel that took so many milliseconds.
std::string kernel_event(int name, int correlation, int ms) {
  return text::cat("{\"ev\":\"kernel\",\"n\":", name, ",\"t0\":0,\"t1\":", ms,
                   "000000,\"corr\":", correlation, ",\"grid\":[1,1,1],\"block\":[32,1,1]}\n");
}

/// As where perf_event_open is refused.
struct ByTimer {
  ByTimer() { setenv("CGP_SAMPLER", "timer", 1); }
  ~ByTimer() { unsetenv("CGP_SAMPLER"); }
};

TEST(sampling, without_the_kernels_clock_a_program_samples_itself) {
  const ByTimer forced;
  const SamplerOptions options{.rate = 999, .library = CGP_SAMPLE_LIBRARY};
  const CpuProfile p = sampled({"700000", "two"}, CGP_PLANTED_LOOP_TABLES, options);
  ASSERT_EQ(p.absent, "");
  EXPECT_EQ(p.timer, "CGP_SAMPLER is timer");
  const auto *hot = find(p, "planted::hot_loop"), *turn = find(p, "planted::turn");
  ASSERT_TRUE(hot && turn) << cpu_text(to_json(p), 120);
  EXPECT_NEAR(double(hot->self) / double(hot->self + turn->self), 0.75, 0.12);
  std::uint64_t whole = 0;
  for (const auto& [stack, samples] : p.folded)
    if (stack.find(";planted::work;planted::") != stack.npos) whole += samples;
  EXPECT_GT(double(whole) / double(p.samples), 0.9) << "callers are found";
  ASSERT_EQ(p.threads.size(), 2u);
  EXPECT_NEAR(double(p.threads[0].samples) / double(p.samples), 0.5, 0.2);
  EXPECT_THAT(cpu_text(to_json(p), 120), HasSubstr("timer (libcgp_sample.so)"));
}

TEST(sampling, programs_that_start_others_are_sampled_by_the_timer_too) {
  const ByTimer forced;
  const SamplerOptions options{.rate = 999, .library = CGP_SAMPLE_LIBRARY};
  const std::string loop = std::string(CGP_PLANTED_LOOP) + " 200000";
  const CpuProfile p = sampled({"-c", loop + "; exec " + loop}, "/bin/sh", options);
  const auto* hot = find(p, "planted::hot_loop");
  ASSERT_TRUE(hot) << cpu_text(to_json(p), 120);
  std::set<std::uint32_t> processes;
  for (const auto& t : p.threads)
    if (t.name == "cgp_planted_loo") processes.insert(t.process);
  EXPECT_EQ(processes.size(), 2u) << "one is a child, the other what the shell became";
}

TEST(sampling, without_any_clock_there_is_a_reason) {
  const ByTimer forced;
  const CpuProfile p = sampled({"1000"});
  EXPECT_EQ(p.absent, "CGP_SAMPLER is timer") << "no library";
  const CpuProfile q = sampled({"--version"}, "/bin/true", {.library = "/nowhere.so"});
  EXPECT_THAT(q.absent, HasSubstr("did not load libcgp_sample.so"));
}

TEST(sampling, functions_of_python_have_names) {
  if (access("/usr/bin/python3", X_OK) != 0) GTEST_SKIP() << "no /usr/bin/python3";
  const std::string script =
      "import sys\n"
      "def inner(n):\n  s = 0\n  for i in range(n): s += i * i % 7\n  return s\n"
      "class Work:\n  def outer(self): return inner(1500000)\n"
      "sys.exit(0 if sys.version_info >= (3, 9) and Work().outer() else 9)\n";
  const CpuProfile p = sampled({"-c", script}, "/usr/bin/python3",
                               {.rate = 999, .python = true, .library = CGP_SAMPLE_LIBRARY});
  if (!p.absent.empty()) GTEST_SKIP() << p.absent;
  ASSERT_FALSE(p.python.empty());
  EXPECT_EQ(p.python[0].name, "inner");
  EXPECT_EQ(p.python[0].file, "<string>");
  EXPECT_GT(double(p.python[0].self) / double(p.samples), 0.6);
  const auto j = to_json(p);
  EXPECT_THAT(cpu_text(j, 120), HasSubstr("ONE FUNCTION OF PYTHON: inner"));
  EXPECT_THAT(cpu_text(j, 120), HasSubstr("functions of Python"));
  std::uint64_t whole = 0;
  for (const auto& [stack, samples] : p.folded) {
    const auto outer = stack.find(";py::Work.outer:<string>;"), inner = stack.find(";py::inner:<string>");
    if (outer != stack.npos && inner != stack.npos && outer < inner) whole += samples;
  }
  EXPECT_GT(double(whole) / double(p.samples), 0.6) << cpu_text(to_json(p), 120);
}

TEST(sampling, kernels_have_the_functions_that_launched_them) {
  if (access("/usr/bin/python3", X_OK) != 0) GTEST_SKIP() << "no /usr/bin/python3";
  const std::string events = testing::TempDir() + "cgp_launched_" + std::to_string(getpid());
  const std::string script =
      "import ctypes\n"
      "inject = ctypes.CDLL('" CGP_INJECT_LIBRARY "')\ncupti = ctypes.CDLL('" CGP_FAKE_CUPTI_LIBRARY
      "')\ninject.InitializeInjection()\n"
      "def step(): cupti.fake_cupti_launch()\n"
      "def other(): cupti.fake_cupti_launch()\n"
      "def train():\n  step(); other(); step()\n"
      "train()\n";
  CpuSampler sampler({.launches = true, .python = true, .library = CGP_SAMPLE_LIBRARY});
  measure::ProcessOptions o;
  o.environment = sampler.environment();
  o.environment.insert(o.environment.end(),
                       {{"CGP_INJECT_OUT", events}, {"CGP_CUPTI", CGP_FAKE_CUPTI_LIBRARY}});
  const auto run = measure::run_process({"/usr/bin/python3", "-c", script}, o);
  ASSERT_TRUE(run.ok()) << run.err;
  const CpuProfile p = analyse(sampler.stop());
  ASSERT_EQ(p.launches.size(), 3u);
  for (const auto& l : p.launches) {
    EXPECT_THAT(l.folded, HasSubstr(";py::train:<string>;"));
    EXPECT_THAT(l.folded, HasSubstr(l.correlation == 2 ? ";py::other:<string>;" : ";py::step:<string>;"));
    EXPECT_EQ(l.folded.find("cgp_sample_launch"), std::string::npos) << "our own functions are left out";
  }
  // Launch 4 has no stack: its time is shared out as that of its kernel's other launches.
  Timeline t;
  read_events(
      "{\"ev\":\"hello\",\"pid\":" + std::to_string(p.launches[0].process) +
          "}\n{\"ev\":\"name\",\"id\":0,\"name\":\"k\"}\n{\"ev\":\"name\",\"id\":1,\"name\":\"unseen\"}\n" +
          kernel_event(0, 1, 3) + kernel_event(0, 2, 1) + kernel_event(0, 4, 4) + kernel_event(1, 5, 1),
      t);
  const auto j = launched_json(t, p);
  ASSERT_EQ(j["folded"].size(), 3u);
  EXPECT_THAT(j["folded"][0]["stack"].get<std::string>(), HasSubstr("py::step:<string>;"));
  EXPECT_NEAR(j["folded"][0]["samples"].get<double>(), 6, 1e-9);
  EXPECT_EQ(j["folded"][2]["stack"], "[stack not seen];unseen");
  EXPECT_THAT(j["folded"][1]["stack"].get<std::string>(), HasSubstr("py::other:<string>;"));
  EXPECT_NEAR(j["folded"][1]["samples"].get<double>(), 2, 1e-9);
  EXPECT_EQ(j["launches"], 4);
  EXPECT_EQ(j["stacks_seen"], 2);
  ordered_json section = {{"samples", 0}, {"launched", j}};
  EXPECT_THAT(cpu_text(section, 120), HasSubstr("k < "));
  EXPECT_THAT(cpu_flamegraph_svg(j, "t"), HasSubstr("GPU time by what launched it"));
}
#endif

TEST(sampling, threads_are_told_apart) {
  const CpuProfile p = sampled({"600000", "two"});
  if (!p.absent.empty()) GTEST_SKIP() << p.absent;
  ASSERT_EQ(p.threads.size(), 2u);
  EXPECT_NEAR(double(p.threads[0].samples) / double(p.samples), 0.5, 0.1);
  EXPECT_EQ(p.threads[0].process, p.threads[1].process);
}
#endif

TEST(sampling, what_a_jit_wrote_is_named_by_its_map) {
  const std::string map = "/tmp/perf-" + std::to_string(getpid()) + ".map";
  write_file(map, "7f0000001000 100 py::f:/a b.py\n7f0000001100 80 py::g:/a.py\nbroken\n");
  CpuRecording r;
  r.rate = 1000, r.samples = 5;
  r.modules = {kMemoryModule};
  const auto pid = std::uint32_t(getpid());
  r.stacks[{pid, pid, {{0, 0x7f0000001110}, {0, 0x7f0000001004}}}] = 3;
  r.stacks[{pid, pid, {{0, 0x7f0000009999}}}] = 2;
  const auto p = analyse(r);
  std::filesystem::remove(map);
  EXPECT_EQ(p.functions[0].name, "py::g:/a.py");
  EXPECT_EQ(p.functions[0].self, 3u);
  EXPECT_EQ(p.folded.at("[thread];py::f:/a b.py;py::g:/a.py"), 3u);
  EXPECT_EQ(p.folded.at("[thread];[[memory]]"), 2u);
}

TEST(sampling, damaged_line_tables_end_quietly) {
  SplitMix64 random(5);
  for (int trial = 0; trial < 20000; ++trial) {
    std::string bytes;
    const auto size = 12 + random.next() % 80;
    for (std::size_t i = 0; i < size; ++i) bytes += char(random.next() % (trial % 2 ? 256 : 16));
    const std::uint32_t length = std::uint32_t(size - 4);
    std::memcpy(bytes.data(), &length, 4);
    bytes[4] = char(2 + trial % 4), bytes[5] = 0;
    read_lines(bytes, "a\0b", "c\0", {1, 2, 300});
  }
}

/// A table of one function that pushes rbp at 2 and moves it at 5, as gcc writes it.
std::string planted_table() {
  const auto u32 = [](std::uint32_t v) { return std::string(reinterpret_cast<const char*>(&v), 4); };
  const std::string cie =
      u32(0) + std::string("\1zR\0\1\x78\x10\1\x1b", 9) + std::string("\x0c\7\x08\x90\1\0\0", 7);
  const std::string program("\x42\x0e\x10\x86\2\x43\x0d\6\0\0\0", 11);
  const std::size_t at = 4 + cie.size() + 4;  // of the pointer to its CIE
  const std::string fde = u32(std::uint32_t(at)) + u32(std::uint32_t(0x2000 - (0x1000 + at + 4))) +
                          u32(0x40) + std::string(1, '\0') + program;
  return u32(std::uint32_t(cie.size())) + cie + u32(std::uint32_t(fde.size())) + fde + u32(0);
}

TEST(sampling, an_unwind_table_gives_the_caller_at_every_instruction) {
  const std::string bytes = planted_table();
  UnwindTable table(bytes, 0x1000);
  ASSERT_FALSE(table.empty());
  const std::uint64_t words[] = {11, 22, 33, 44};
  const StackBytes stack{0x7000, {reinterpret_cast<const char*>(words), sizeof words}};
  const auto step = [&](std::uint64_t pc, std::uint64_t sp, std::uint64_t bp) {
    Registers r;
    r.set(Registers::kStack, sp), r.set(Registers::kFrame, bp), r.set(Registers::kInstruction, pc);
    const Step s = table.step(pc, r, stack);
    return std::tuple{s, r.value[Registers::kInstruction], r.value[Registers::kStack],
                      r.value[Registers::kFrame]};
  };
  EXPECT_EQ(step(0x2000, 0x7000, 5), (std::tuple{Step::caller, 11u, 0x7008u, 5u})) << "before the push";
  EXPECT_EQ(step(0x2002, 0x7000, 5), (std::tuple{Step::caller, 22u, 0x7010u, 11u})) << "behind it";
  EXPECT_EQ(step(0x2010, 0x6000, 0x7008), (std::tuple{Step::caller, 33u, 0x7018u, 22u})) << "by rbp";
  EXPECT_EQ(std::get<0>(step(0x2000, 0x7020, 5)), Step::cut);
  EXPECT_EQ(std::get<0>(step(0x2040, 0x7000, 5)), Step::unknown) << "behind the function";
  SplitMix64 random(7);
  for (int trial = 0; trial < 20000; ++trial) {  // damaged tables end quietly
    std::string damaged = bytes;
    for (int i = 0; i < 1 + trial % 4; ++i) damaged[random.next() % damaged.size()] = char(random.next());
    UnwindTable other(damaged, 0x1000);
    Registers r;
    r.set(Registers::kStack, 0x7000), r.set(Registers::kFrame, 0x7008);
    other.step(0x2000 + random.next() % 0x40, r, stack);
  }
}

TEST(sampling, two_profiles_say_which_functions_changed) {
  const auto section = [](const std::string& program, int hot, int same, int gone) {
    CpuProfile p;
    p.rate = 100, p.samples = std::uint64_t(hot + same + gone);
    for (const auto& [name, n] : {std::pair{"hot", hot}, {"same", same}, {"gone", gone}}) {
      if (n > 0) p.functions.push_back({name, program, std::uint64_t(n), std::uint64_t(n), {}});
      if (n > 0) p.folded[program + ";main;" + name] = std::uint64_t(n);
    }
    return to_json(p);
  };
  const auto before = section("old", 200, 100, 50), after = section("new", 400, 108, 0);
  const auto changes = function_changes(before, after);
  ASSERT_EQ(changes.size(), 3u);
  EXPECT_EQ(changes[0].name, "hot");
  EXPECT_NEAR(changes[0].change_s(), 2, 1e-12);
  EXPECT_EQ(changes[1].name, "gone");
  EXPECT_NEAR(changes[1].change_s(), -0.5, 1e-12);
  EXPECT_TRUE(changes[0].certain() && changes[1].certain());
  EXPECT_FALSE(changes[2].certain()) << "8 samples of 100 more are chance";
  EXPECT_THAT(changes_text(changes, 120), HasSubstr("+2.00 s"));
  EXPECT_THAT(changes_text(changes, 120), HasSubstr("within 3 standard errors"));
  const auto html = changes_html(before, after, "a", "b");
  EXPECT_THAT(html, HasSubstr("hot: 400 samples, 78.74 %; +2.00 s"));
  EXPECT_THAT(html, HasSubstr("hsl(8,")) << "red";
  EXPECT_THAT(html, HasSubstr("#d4d4d4")) << "same";
  EXPECT_TRUE(function_changes(before, {{"absent", "not permitted"}}).empty());
  Document d[2] = {new_document("binary", "a"), new_document("binary", "b")};
  d[0].more["cpu_samples"] = before, d[1].more["cpu_samples"] = after;
  EXPECT_THAT(report_html({d[0], d[1]}, "t"), HasSubstr("by the change since a"));
}

TEST(sampling, a_file_keeps_the_stacks_seen_most) {
  CpuProfile p;
  p.rate = 1000;
  for (int i = 0; i < 5000; ++i)
    p.folded["t;f" + std::to_string(i)] = i < 10 ? 100 : 1, p.samples += i < 10 ? 100 : 1;
  const auto j = to_json(p);
  EXPECT_EQ(j["folded"].size(), 4000u);
  EXPECT_EQ(j["folded"][0]["samples"], 100);
  EXPECT_EQ(j["folded_left_out"], 1000);
}

#ifdef CGP_PLANTED_LOOP
TEST(sampling, the_hot_line_and_its_machine_code_are_shown) {
  CpuProfile p = sampled({"400000"});
  if (!p.absent.empty()) GTEST_SKIP() << p.absent;
  annotate(p);
  Document d = new_document("binary", "prog");
  d.more["cpu_samples"] = to_json(p);
  const auto& hot = d.more["cpu_samples"]["functions"][0];
  const std::string text = cpu_text(d.more["cpu_samples"], 120), html = report_html({d}, "t");
  EXPECT_THAT(text, HasSubstr("ONE FUNCTION: planted::hot_loop takes"));
  EXPECT_THAT(text, HasSubstr("// hot"));
  EXPECT_THAT(html, HasSubstr("<b>"));
  EXPECT_THAT(html, HasSubstr("// hot"));
  if (hot["assembly"].contains("absent")) GTEST_SKIP() << hot["assembly"];
  std::uint64_t samples = 0;
  for (const auto& row : hot["assembly"]["rows"]) samples += row["samples"].get<std::uint64_t>();
  EXPECT_EQ(samples, hot["self"].get<std::uint64_t>()) << "each sample lies on an instruction";
  EXPECT_THAT(text, HasSubstr("imul"));
}
#endif

TEST(sampling, sentences_fit_a_terminal_of_80_columns) {
  CpuProfile p;
  p.rate = 100, p.samples = 100, p.threads = {{1, 1, "", 100}};
  p.functions = {{"f", "a", 60, 60, {{{"/a.cpp", 3}, 60}}}, {"__sin_fma", "libm.so.6", 40, 40, {}}};
  for (const auto& line : text::split(cpu_text(to_json(p), 80), '\n')) EXPECT_LE(line.size(), 80u) << line;
}

TEST(sampling, the_headline_follows_from_the_samples) {
  const auto of = [](std::vector<HotFunction> functions, double wall,
                     std::vector<HotThread> threads = {{1, 1, "", 100}}) {
    CpuProfile p;
    p.rate = 100, p.samples = 100, p.functions = std::move(functions), p.threads = std::move(threads);
    const auto h = headline_of(to_json(p), wall);
    EXPECT_EQ(h.next.size(), 3u);
    return h.bound_by.substr(0, h.bound_by.find(':'));
  };
  EXPECT_EQ(of({{"f", "a", 90, 90, {}}}, 1), "ONE FUNCTION");
  EXPECT_EQ(of({{"f", "a", 90, 90, {}}}, 10), "WAITING") << "one second of work in ten";
  EXPECT_EQ(of({{"f", "a", 50, 50, {}}, {"clear_page", "[kernel]", 40, 40, {}}}, 1), "OPERATING SYSTEM");
  EXPECT_EQ(of({{"f", "a", 70, 70, {}}, {"_int_malloc", "libc.so.6", 20, 20, {}}}, 1), "ALLOCATION");
  EXPECT_EQ(of({{"f", "a", 70, 70, {}}, {"__memmove_avx", "libc.so.6", 20, 20, {}}}, 1), "COPIES");
  EXPECT_EQ(of({{"f", "a", 80, 80, {}}, {"pthread_mutex_lock", "libc.so.6", 12, 12, {}}}, 1), "LOCKS");
  EXPECT_EQ(of({{"f", "a", 60, 60, {}}, {"__sin_fma", "libm.so.6", 40, 40, {}}}, 1), "MATHEMATICS");
  EXPECT_EQ(of({{"f", "a", 30, 30, {}}, {"g", "a", 30, 30, {}}}, 1), "FLAT");
  EXPECT_EQ(of({{"f", "a", 30, 30, {}}, {"g", "a", 30, 30, {}}}, 1, {{1, 1, "", 95}, {1, 2, "", 5}}),
            "ONE THREAD");
  EXPECT_TRUE(headline_of({{"samples", 0}}, 1).bound_by.empty());
}

TEST(sampling, colours_of_reports_have_contrast) {
  const auto luminance = [](const std::string& hex) {  // WCAG 2.1
    double sum = 0;
    const double weights[] = {0.2126, 0.7152, 0.0722};
    for (std::size_t i = 0; i < 3; ++i) {
      const double c = double(std::stoi(hex.substr(1 + 2 * i, 2), nullptr, 16)) / 255;
      sum += weights[i] * (c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4));
    }
    return sum;
  };
  const auto contrast = [&](const std::string& a, const std::string& b) {
    const double x = luminance(a), y = luminance(b);
    return (std::max(x, y) + 0.05) / (std::min(x, y) + 0.05);
  };
  EXPECT_NEAR(contrast("#ffffff", "#000000"), 21, 1e-9);
  int checked = 0;
  for (const auto& ground : report_colours()) {
    if (std::string(ground.name) != "paper" && std::string(ground.name) != "hot") continue;
    for (const auto& ink : report_colours())
      if (ink.text) {
        EXPECT_GE(contrast(ink.light, ground.light), 4.5) << ink.name << " on " << ground.name;
        EXPECT_GE(contrast(ink.dark, ground.dark), 4.5) << ink.name << " on " << ground.name << ", dark";
        ++checked;
      }
  }
  EXPECT_EQ(checked, 6);
}

TEST(sampling, views_show_what_is_there) {
  CpuProfile p;
  p.rate = 1000, p.samples = 10;
  p.functions = {{"f<int>", "prog", 7, 7, {{{"/src/a.cpp", 12}, 5}}}, {"main", "prog", 3, 10, {}}};
  p.folded = {{"prog;main;f<int>", 7}, {"prog;main", 3}};
  Document d = new_document("binary", "prog");
  d.more["cpu_samples"] = to_json(p);
  const std::string text = cpu_text(d.more["cpu_samples"], 100);
  EXPECT_THAT(text, HasSubstr("70.0 %"));
  EXPECT_THAT(text, HasSubstr("a.cpp:12"));
  const std::string html = report_html({d}, "t");
  EXPECT_THAT(html, HasSubstr("f&lt;int&gt;: 7 samples, 70.00 %"));
  for (const char* bad :
       {R"({"functions": 3, "folded": [1, {"stack": 2}]})", R"({"samples": "x", "kernel": 1})"}) {
    d.more["cpu_samples"] = nlohmann::ordered_json::parse(bad);
    report_html({d}, "t");
    cpu_text(d.more["cpu_samples"], 80);
  }
  d.more["cpu_samples"] = to_json(p);
  ScreenModel model;
  model.documents = {d};
  ScreenState timeline;
  timeline.tab = Tab::timeline;
  EXPECT_THAT(text::join(render(model, timeline, 100, 30, false), "\n"), HasSubstr("f<int>"));
  CpuProfile none;
  none.absent = "not permitted";
  EXPECT_THAT(cpu_text(to_json(none), 80), HasSubstr("no samples: not permitted"));
}

}  // namespace
