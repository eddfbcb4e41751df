// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/collect/memory_check.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/program.h"
#include "cgp/base/text.h"
#include "cgp/profile/collect/misaligned.h"

namespace cgp::profile {
namespace {

namespace fs = std::filesystem;
using fmt::format;

/// The content of the first element of that name at or after `from`, which moves behind it; npos: there is
/// none. Valgrind nests no element in one of its own name.
std::string_view element(std::string_view xml, const std::string& name, std::size_t& from) {
  const auto open = xml.find("<" + name + ">", from);
  if (open == std::string_view::npos) return from = open, std::string_view{};
  const auto begin = open + name.size() + 2, end = xml.find("</" + name + ">", begin);
  if (end == std::string_view::npos) return from = end, std::string_view{};
  from = end + name.size() + 3;
  return xml.substr(begin, end - begin);
}
std::string_view element(std::string_view xml, const std::string& name) {
  std::size_t from = 0;
  return element(xml, name, from);
}

std::string plain(std::string_view xml) {
  static const std::pair<const char*, char> kEntities[] = {
      {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}, {"&amp;", '&'}};
  std::string out;
  for (std::size_t i = 0; i < xml.size(); ++i) {
    out += xml[i];
    for (const auto& [entity, c] : kEntities)
      if (xml.substr(i, std::string_view(entity).size()) == entity) {
        out.back() = c;
        i += std::string_view(entity).size() - 1;
        break;
      }
  }
  return std::string(text::trim(out));
}

std::string frame_text(std::string_view frame) {
  std::string out = plain(element(frame, "fn"));
  if (out.empty()) out = plain(element(frame, "ip"));
  const std::string file = plain(element(frame, "file")), line = plain(element(frame, "line"));
  if (!file.empty()) return out + " at " + file + (line.empty() ? "" : ":" + line);
  const std::string object = plain(element(frame, "obj"));
  return object.empty() ? out : out + " in " + fs::path(object).filename().string();
}

std::vector<std::string> frames(std::string_view stack, std::size_t most) {
  std::vector<std::string> out;
  for (std::size_t at = 0; out.size() < most;) {
    const auto frame = element(stack, "frame", at);
    if (at == std::string_view::npos) break;
    out.push_back(frame_text(frame));
  }
  return out;
}

std::string kind_of_valgrind(const std::string& kind) {
  static const std::map<std::string, const char*> kNames{
      {"InvalidRead", "invalid read"},
      {"InvalidWrite", "invalid write"},
      {"InvalidJump", "invalid jump"},
      {"InvalidFree", "invalid free"},
      {"MismatchedFree", "free does not match the allocation"},
      {"Overlap", "copied ranges overlap"},
      {"UninitCondition", "uninitialised condition"},
      {"UninitValue", "uninitialised value"},
      {"SyscallParam", "uninitialised system call"},
      {"Leak_DefinitelyLost", "leak"},
      {"Leak_IndirectlyLost", "leak"},
      {"Leak_PossiblyLost", "possible leak"}};
  const auto at = kNames.find(kind);
  return at == kNames.end() ? kind : at->second;
}

/// The tool under which the program runs, with its options.
std::vector<std::string> wrapper(const std::string& tool, const std::string& file) {
  if (tool.empty()) {
    const std::string valgrind = find_program("valgrind");
    if (valgrind.empty())
      throw Unsupported(ErrorText{"programs are checked by valgrind",
                                  {},
                                  "it is not here",
                                  "apt install valgrind, or build with -fsanitize=address,undefined"});
    return {valgrind,
            "--tool=memcheck",
            "--xml=yes",
            "--xml-file=" + file,
            "--leak-check=full",
            "--show-leak-kinds=definite,possible"};
  }
  const std::string sanitizer = find_cuda_program("compute-sanitizer");
  if (sanitizer.empty())
    throw Unsupported(ErrorText{"what a program does on a GPU is checked by compute-sanitizer",
                                {},
                                "it is not here (part of the CUDA toolkit)",
                                "cgp run FILE.ptx checks a kernel on the emulator, without a GPU"});
  return {sanitizer, "--tool", tool, "--log-file", file};
}

constexpr std::string_view kNoCuda = "Error: Target application", kAccess = " access at ";

/// From the first line of what compute-sanitizer says of an error.
MemoryError sanitizer_error(const std::string& line) {
  MemoryError e;
  e.what = line;
  if (line.find("Race reported") != std::string::npos) {
    e.kind = "race";
    if (const auto at = line.find(kAccess); at != std::string::npos)
      e.where.push_back(line.substr(at + kAccess.size()));
  } else if (line.rfind("Leaked", 0) == 0) {
    e.kind = "leak";
  } else if (line.rfind("Program hit", 0) == 0) {
    e.kind = "failed call";
  } else {
    e.kind = line.substr(0, line.find(" of size"));
    e.kind[0] = char(std::tolower(static_cast<unsigned char>(e.kind[0])));
  }
  return e;
}

void merge_equal(std::vector<MemoryError>& all) {
  std::vector<MemoryError> out;
  for (auto& e : all) {
    const auto same = std::find_if(out.begin(), out.end(), [&](const MemoryError& o) {
      return o.kind == e.kind && o.what == e.what && o.where == e.where;
    });
    if (same == out.end())
      out.push_back(std::move(e));
    else
      same->count += e.count;
  }
  all = std::move(out);
}

}  // namespace

std::vector<MemoryError> read_valgrind_xml(std::string_view xml, const std::string& origin) {
  if (element(xml, "protocolversion").empty())
    throw ParseError(ErrorText{"the file must be what valgrind --xml=yes writes", origin, {}, {}});
  std::map<std::string, std::uint64_t> counts;
  for (std::size_t at = 0;;) {
    const auto block = element(xml, "errorcounts", at);
    if (at == std::string_view::npos) break;
    for (std::size_t in = 0;;) {
      const auto pair = element(block, "pair", in);
      if (in == std::string_view::npos) break;
      counts[plain(element(pair, "unique"))] = std::stoull("0" + plain(element(pair, "count")));
    }
  }
  std::vector<MemoryError> out;
  for (std::size_t at = 0;;) {
    const auto error = element(xml, "error", at);
    if (at == std::string_view::npos) break;
    MemoryError e;
    e.kind = kind_of_valgrind(plain(element(error, "kind")));
    e.what = plain(element(error, "what"));
    if (const auto more = element(error, "xwhat"); !more.empty()) e.what = plain(element(more, "text"));
    std::size_t stack = 0;
    e.where = frames(element(error, "stack", stack), 8);
    const std::string note = plain(element(error, "auxwhat"));
    if (!note.empty()) e.notes.push_back(note);
    if (!note.empty() && stack != std::string_view::npos)
      for (const auto& f : frames(element(error, "stack", stack), 3)) e.notes.push_back("  " + f);
    if (const auto n = counts.find(plain(element(error, "unique"))); n != counts.end()) e.count = n->second;
    out.push_back(std::move(e));
  }
  return out;
}

std::vector<MemoryError> read_compute_sanitizer(std::string_view text) {
  constexpr std::string_view kMark = "=========";
  std::vector<MemoryError> out;
  bool open = false;
  for (std::string_view line : text::split(text, '\n')) {
    if (line.substr(0, kMark.size()) != kMark) continue;
    line.remove_prefix(kMark.size());
    const std::string content(text::trim(line));
    const bool detail = line.substr(0, 5) == "     ";
    if (content.empty() || content == "COMPUTE-SANITIZER" || content.find("SUMMARY") != std::string::npos) {
      open = false;
    } else if (content.rfind(kNoCuda, 0) == 0) {
      open = false;  // no finding: the tool had nothing to look at
    } else if (!detail) {
      out.push_back(sanitizer_error(content));
      open = true;
    } else if (open && content.rfind("Saved host backtrace", 0) == 0) {
      open = false;  // the host's frames are the driver's
    } else if (open && out.back().kind == "race" && content.find(kAccess) != std::string::npos) {
      out.back().where.push_back(content.substr(content.find(kAccess) + kAccess.size()));
    } else if (open && content.rfind("at ", 0) == 0) {
      out.back().where.push_back(content.substr(3));
    } else if (open) {
      out.back().notes.push_back(content);
    }
  }
  merge_equal(out);
  return out;
}

namespace {

/// The program again, without a tool.
std::optional<MemoryError> misaligned_access(const std::vector<std::string>& command, double timeout_seconds,
                                             measure::ProcessResult& ended) {
  const auto found = find_misaligned(command, timeout_seconds, ended);
  if (!found) return std::nullopt;
  const auto& a = found->access;
  return MemoryError{
      "misaligned access",
      format("{} {} {} bytes at {:#x}, {} beyond a multiple of {}", a.name, a.writes ? "writes" : "reads",
             a.bytes, a.address, a.address % std::uint64_t(a.bytes), a.bytes),
      found->where,
      {"use the unaligned form (movups, loadu, storeu), or align the data"},
      1};
}

}  // namespace

MemoryReport check_memory(const std::vector<std::string>& command, const std::string& tool,
                          double timeout_seconds) {
  MemoryReport report;
  if (tool == "alignment") {
    report.tool = "the processor";
    if (auto e = misaligned_access(command, timeout_seconds, report.process))
      report.errors.push_back(std::move(*e));
    return report;
  }
  report.tool = tool.empty() ? "valgrind" : "compute-sanitizer " + tool;
  const std::string file = (fs::temp_directory_path() / format("cgp-memory-{}.txt", getpid())).string();
  auto words = wrapper(tool, file);
  words.insert(words.end(), command.begin(), command.end());
  measure::ProcessOptions o;
  o.timeout_seconds = timeout_seconds;
  if (find_program(command[0]).empty())
    throw ArgumentError(ErrorText{"the program must be one that can be run", command[0], "not found", {}});
  report.process = measure::run_process(words, o);
  std::error_code ec;
  const std::string content = fs::exists(file, ec) ? read_file(file) : "";
  fs::remove(file, ec);
  if (!tool.empty()) {
    report.errors = read_compute_sanitizer(content);
    if (report.errors.empty() && content.find(kNoCuda) != std::string::npos)
      throw Unsupported(ErrorText{"compute-sanitizer checks programs that use a CUDA GPU",
                                  measure::join_command(command), "this one made no CUDA call",
                                  "cgp memcheck -- PROGRAM, without --gpu, checks it on the processor"});
    return report;
  }
  // An address that does not suit its instruction is no finding of valgrind's, and AVX-512 is nothing that it
  // runs.
  const bool unknown = content.find("<signame>SIGILL") != std::string::npos;
  if (unknown || content.find("General Protection Fault") != std::string::npos) {
    measure::ProcessResult ended;
    if (auto e = misaligned_access(command, timeout_seconds, ended)) {
      if (!unknown) {
        report.errors = read_valgrind_xml(content, "valgrind's output");
        const auto stack = frames(element(element(content, "fatal_signal"), "stack"), 8);
        if (!stack.empty()) e->where = stack;
      } else {
        report.tool = "the processor; valgrind cannot execute the program", report.process = ended;
      }
      report.errors.push_back(std::move(*e));
      return report;
    }
  }
  if (unknown)
    throw Unsupported(
        ErrorText{"valgrind must know every instruction of the program", measure::join_command(command),
                  "it met one that it cannot execute: AVX-512, most likely",
                  "build with -fsanitize=address,undefined and run that, or without -mavx512f"});
  report.errors = read_valgrind_xml(content, "valgrind's output");
  return report;
}

std::string memory_text(const MemoryReport& report) {
  std::string out;
  std::uint64_t all = 0;
  for (const auto& e : report.errors) {
    all += e.count;
    out += format("{}{}: {}\n", e.kind, e.count > 1 ? format(" ({} times)", e.count) : "", e.what);
    for (std::size_t i = 0; i < e.where.size(); ++i) out += format("  {} {}\n", i ? "by" : "at", e.where[i]);
    for (const auto& n : e.notes) out += format("  {}\n", n);
  }
  const auto number = [](std::uint64_t n, const char* what) {
    return format("{} {}{}", n, what, n == 1 ? "" : "s");
  };
  return out + (all ? format("{} at {}, found by {}\n", number(all, "error"),
                             number(report.errors.size(), "place"), report.tool)
                    : format("no errors found by {}\n", report.tool));
}

nlohmann::ordered_json to_json(const MemoryReport& report) {
  nlohmann::ordered_json j = {{"tool", report.tool}, {"ended", report.process.describe()}};
  j["errors"] = nlohmann::ordered_json::array();
  for (const auto& e : report.errors)
    j["errors"].push_back(
        {{"kind", e.kind}, {"what", e.what}, {"count", e.count}, {"where", e.where}, {"notes", e.notes}});
  return j;
}

}  // namespace cgp::profile
