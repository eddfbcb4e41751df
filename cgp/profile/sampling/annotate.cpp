// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/sampling/annotate.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "cgp/base/file.h"
#include "cgp/base/program.h"
#include "cgp/base/text.h"
#include "cgp/profile/measure/process.h"
#include "cgp/profile/view/document.h"
#include "cgp/profile/view/table.h"

namespace cgp::profile {
namespace {

using fmt::format;
using nlohmann::ordered_json;

constexpr std::size_t kFunctions = 3;        // that are annotated
constexpr double kLeastShare = 0.02;         // of the samples
constexpr std::uint32_t kAround = 4;         // lines before and after
constexpr std::uint32_t kFarthest = 30;      // from the hottest line
constexpr std::size_t kInstructions = 40;    // of the machine code
constexpr std::uint64_t kLargest = 1 << 18;  // bytes of a function that is disassembled

ordered_json source_of(const HotFunction& f) {
  if (f.lines.empty()) return {{"absent", "it has no line table: compile with -g"}};
  const SourceLine& hottest = f.lines[0].at;
  std::error_code ec;
  if (!std::filesystem::is_regular_file(hottest.file, ec))
    return {{"absent", text::cat(hottest.file, " is not on this machine")}};
  std::map<std::uint32_t, std::uint64_t> samples;
  std::uint32_t first = hottest.line, last = hottest.line;
  for (const auto& l : f.lines) {
    if (l.at.file != hottest.file) continue;
    samples[l.at.line] = l.samples;
    const auto away = l.at.line > hottest.line ? l.at.line - hottest.line : hottest.line - l.at.line;
    if (away <= kFarthest) first = std::min(first, l.at.line), last = std::max(last, l.at.line);
  }
  first = first > kAround ? first - kAround : 1, last += kAround;
  const std::string content = read_file(hottest.file);
  const auto lines = text::split(content, '\n');
  ordered_json rows = ordered_json::array();
  for (std::uint32_t n = first; n <= last && n <= lines.size(); ++n) {
    const auto at = samples.find(n);
    rows.push_back({{"line", n},
                    {"samples", at == samples.end() ? 0 : at->second},
                    {"text", visible(std::string(lines[n - 1]))}});
  }
  if (rows.empty()) return {{"absent", text::cat(hottest.file, " has no line ", hottest.line)}};
  return {{"file", hottest.file}, {"rows", rows}};
}

/// "  401136:\tvmulsd (%rax),%xmm0,%xmm0" of objdump.
struct Instruction {
  std::uint64_t address = 0;
  std::string text;
};
std::vector<Instruction> instructions_of(std::string_view listing) {
  std::vector<Instruction> out;
  for (const auto line : text::split(listing, '\n')) {
    const auto colon = line.find(':');
    if (colon == line.npos || colon + 1 >= line.size() || line[colon + 1] != '\t') continue;
    const auto number = std::string(text::trim(line.substr(0, colon)));
    char* end = nullptr;
    const std::uint64_t address = std::strtoull(number.c_str(), &end, 16);
    if (number.empty() || *end) continue;
    std::string words(text::trim(line.substr(colon + 2)));
    std::replace(words.begin(), words.end(), '\t', ' ');
    out.push_back({address, std::move(words)});
  }
  return out;
}

ordered_json assembly_of(const HotFunction& f, const std::string& objdump) {
  if (f.instructions.empty() || f.path.empty() || f.end <= f.begin)
    return {{"absent", "no file has its machine code"}};
  if (objdump.empty()) return {{"absent", "objdump disassembles it: apt install binutils"}};
  if (f.end - f.begin > kLargest)
    return {{"absent", format("{} bytes are too long to show", f.end - f.begin)}};
  measure::ProcessOptions o;
  o.timeout_seconds = 20, o.keep_bytes = 64u << 20;
  const auto r =
      measure::run_process({objdump, "-d", "--no-show-raw-insn", "-C", format("--start-address={}", f.begin),
                            format("--stop-address={}", f.end), f.path},
                           o);
  const auto all = instructions_of(r.out);
  if (!r.ok() || all.empty())
    return {{"absent", text::cat("objdump: ", r.describe(), " ", text::trim(r.err))}};
  std::size_t hottest = 0;
  std::uint64_t most = 0;
  const auto samples = [&](const Instruction& i) {
    const auto at = f.instructions.find(i.address);
    return at == f.instructions.end() ? std::uint64_t(0) : at->second;
  };
  for (std::size_t i = 0; i < all.size(); ++i)
    if (samples(all[i]) > most) most = samples(all[i]), hottest = i;
  const std::size_t first = hottest > kInstructions / 2 ? hottest - kInstructions / 2 : 0;
  ordered_json rows = ordered_json::array();
  for (std::size_t i = first; i < std::min(all.size(), first + kInstructions); ++i)
    rows.push_back(
        {{"address", all[i].address}, {"samples", samples(all[i])}, {"text", visible(all[i].text)}});
  return {{"tool", "objdump"}, {"rows", rows}};
}

double share(const ordered_json& section, const std::function<bool(const ordered_json&)>& is) {
  const double all = number_in(section, "samples");
  double sum = 0;
  for (const auto& f : rows_in(section, "functions"))
    if (const double self = number_in(f, "self"); std::isfinite(self) && is(f)) sum += self;
  return all > 0 ? 100 * sum / all : 0;
}

std::string word(const ordered_json& j, const char* key) {
  return j.contains(key) && j[key].is_string() ? j[key].get<std::string>() : std::string();
}

bool contains_any(const std::string& name, std::initializer_list<const char*> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](const char* p) { return name.find(p) != name.npos; });
}

}  // namespace

void annotate(CpuProfile& p) {
  const std::string objdump = find_program("objdump");
  for (std::size_t i = 0; i < std::min(kFunctions, p.functions.size()); ++i) {
    auto& f = p.functions[i];
    if (double(f.self) < kLeastShare * double(p.samples) || f.instructions.empty()) continue;
    f.source = source_of(f), f.assembly = assembly_of(f, objdump);
  }
}

std::string annotated_text(const ordered_json& f, int width) {
  std::string out;
  const double self = number_in(f, "self");
  const std::size_t room = std::size_t(std::max(30, width - 22));
  const auto rows = [&](const ordered_json& part, const char* key, std::size_t most) {
    auto all = rows_in(part, "rows");
    std::size_t hottest = 0;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (number_in(all[i], "samples") > number_in(all[hottest], "samples")) hottest = i;
    const std::size_t first = hottest > most / 2 ? hottest - most / 2 : 0;
    for (std::size_t i = first; i < std::min(all.size(), first + most); ++i) {
      const double n = number_in(all[i], "samples"), at = number_in(all[i], key);
      out +=
          format("  {:>7}  {:>8}  {}\n", n > 0 && self > 0 ? format("{:.1f} %", 100 * n / self) : "",
                 std::string_view(key) == "line" ? format("{:.0f}", at) : format("{:x}", std::uint64_t(at)),
                 fitted(word(all[i], "text"), room));
    }
  };
  const auto part = [&](const char* key) { return f.contains(key) ? f[key] : ordered_json(); };
  if (const auto source = part("source"); !rows_in(source, "rows").empty()) {
    out += format("           {} in {}\n", fitted(visible(word(f, "name")), room),
                  visible(word(source, "file")));
    rows(source, "line", 11);
  }
  if (const auto assembly = part("assembly"); !rows_in(assembly, "rows").empty()) {
    out += format("           {}: machine code; a sample is one instruction late at times\n",
                  fitted(visible(word(f, "name")), room));
    rows(assembly, "address", 13);
  }
  return out;
}

Headline headline_of(const ordered_json& section, double wall_seconds) {
  const auto functions = rows_in(section, "functions");
  const double samples = number_in(section, "samples"), seconds = number_in(section, "seconds");
  if (functions.empty() || !(samples > 0)) return {};
  const auto& top = functions[0];
  const std::string name = fitted(visible(word(top, "name")), 60);
  const auto lines = rows_in(top, "lines");
  const std::string at =
      lines.empty()
          ? ""
          : format(" ({}:{:.0f})", std::filesystem::path(word(lines[0], "file")).filename().string(),
                   number_in(lines[0], "line"));
  const double first = number_in(top, "self_pct");
  const double kernel = share(section, [](const auto& f) { return word(f, "module") == "[kernel]"; });
  const double heap = share(section, [](const auto& f) {
    return contains_any(word(f, "name"), {"malloc", "_int_free", "cfree", "calloc", "realloc", "operator new",
                                          "operator delete"});
  });
  const double moves = share(section, [](const auto& f) {
    return contains_any(word(f, "name"), {"memcpy", "memmove", "memset"});
  });
  const double locks = share(section, [](const auto& f) {
    return contains_any(word(f, "name"), {"pthread_mutex", "futex", "lll_lock", "spin_lock", "pthread_cond"});
  });
  const double maths = share(section, [](const auto& f) {
    return word(f, "module").rfind("libm.", 0) == 0 || word(f, "module").rfind("libm-", 0) == 0;
  });
  const auto threads = rows_in(section, "threads");
  const double busiest = threads.empty() ? 100 : 100 * number_in(threads[0], "samples") / samples;
  if (wall_seconds > 0 && seconds < 0.5 * wall_seconds)
    return {format("WAITING: it worked for {:.0f} % of {}; the rest of the time it waited for files, a "
                   "network, other programs or sleep",
                   100 * seconds / wall_seconds, time_text(wall_seconds * 1e6)),
            {"cgp syscalls -- PROGRAM counts what it asks the operating system for",
             "cgp profile binary --waits -- PROGRAM says which functions wait, and for how long",
             "read ahead or on another thread what it waits for; ask for more at a time"}};
  if (locks >= 10)
    return {format("LOCKS: {:.0f} % of the processor time is in locks", locks),
            {"cgp profile binary --sample 999 -- PROGRAM, and look in the flame graph for who takes the lock",
             "hold it shorter, or give each thread its own part",
             "measure again with fewer threads: cgp time -- PROGRAM, once for each number"}};
  if (kernel >= 30)
    return {format("OPERATING SYSTEM: {:.0f} % of the processor time is in the kernel", kernel),
            {"cgp syscalls -- PROGRAM counts the calls",
             "fewer and larger reads and writes; memory that is used again needs no new pages",
             "the flame graph of cgp report names the callers"}};
  if (const auto python = rows_in(section, "python");
      !python.empty() && number_in(python[0], "self_pct") >= 40)
    return {format("ONE FUNCTION OF PYTHON: {} takes {:.0f} % of the processor time with the machine code "
                   "for it ({})",
                   fitted(visible(word(python[0], "name")), 60), number_in(python[0], "self_pct"),
                   std::filesystem::path(word(python[0], "file")).filename().string()),
            {"what it computes number by number takes a NumPy operation, or a function in C, a fraction of "
             "the time",
             "the functions of the interpreter below say whether it computes, allocates or looks names up",
             "compare: cgp time --against 'python3 OLD.py' -- python3 NEW.py"}};
  if (heap >= 15)
    return {format("ALLOCATION: {:.0f} % of the processor time is in malloc and free", heap),
            {"cgp profile binary --heap -- PROGRAM names who allocates",
             "allocate outside of the loop, reserve() containers, keep what is freed for the next use",
             "compare: cgp diff --left OLD --right NEW"}};
  if (moves >= 15)
    return {format("COPIES: {:.0f} % of the processor time is in memcpy, memmove and memset", moves),
            {"the flame graph of cgp report names who copies",
             "pass references, move instead of copying, write where it is needed",
             "compare with the bandwidth of this machine: cgp roofline --target cpu"}};
  if (maths >= 30)
    return {format("MATHEMATICS: {:.0f} % of the processor time is in the mathematics library", maths),
            {"compile with -O3 -march=native -fopenmp-simd -ffast-math, where its rounding is accepted, for "
             "vector versions of sin, exp, log",
             "32-bit versions (sinf, expf) take half of the time",
             "cgp profile binary --count step -- PROGRAM counts vector instructions"}};
  if (first >= 40)
    return {format("ONE FUNCTION: {} takes {:.0f} % of the processor time{}", name, first, at),
            {"look at its lines below: what does the hottest one wait for?",
             "cgp profile binary --count step -- PROGRAM says how much of its arithmetic uses vectors",
             busiest > 95 ? "one thread does all of it: are its iterations independent?"
                          : "cgp roofline --target cpu says what this machine allows"}};
  if (threads.size() > 1 && busiest > 90)
    return {format("ONE THREAD: of {} threads one does {:.0f} % of the work", threads.size(), busiest),
            {"divide the work of the busiest thread: its functions are the first of the table",
             "cgp profile parallel shows what this machine gains from threads",
             "the flame graph of cgp report has a tower for each thread"}};
  return {format("FLAT: no function takes more than {:.0f} %; {} is the first{}", first, name, at),
          {"order by total in the flame graph (cgp report): a caller may be the one to change",
           "a better algorithm or fewer calls is worth more here than a faster function",
           "--sample 999 tells more functions apart"}};
}

}  // namespace cgp::profile
