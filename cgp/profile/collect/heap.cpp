// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/collect/heap.h"

#include <fmt/core.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/profile/measure/process.h"
#include "cgp/profile/view/table.h"

namespace cgp::profile {
namespace {

namespace fs = std::filesystem;
using measure::Metric;
using nlohmann::json;
using text::cat;

/// libstdc++ keeps 72,704 bytes for exceptions that are thrown when memory is gone: not the program's.
constexpr double kEmergencyPool = 72704;

/// "0x1234: f(int) (file.cpp:7)" -> "f(int) (file.cpp:7)".
std::string without_address(const std::string& frame) {
  const auto at = frame.find(": ");
  return frame.rfind("0x", 0) == 0 && at != std::string::npos ? frame.substr(at + 2) : frame;
}

bool is_allocator(const std::string& frame) {
  for (const char* name : {"malloc", "calloc", "realloc", "operator new", "memalign", "_Znw", "allocator<",
                           "allocator_traits<", "_M_allocate", "_M_create"})
    if (frame.find(name) != std::string::npos) return true;
  return false;
}

std::string where(const json& frames, const json& table) {
  std::string out;
  int shown = 0;
  for (const auto& f : frames) {
    const auto index = f.get<std::size_t>();
    if (index >= table.size()) continue;
    const std::string frame = without_address(table[index].get<std::string>());
    if (frame.empty() || frame == "[root]" || is_allocator(frame)) continue;
    out += (out.empty() ? "" : " < ") + frame;
    if (++shown == 2) break;
  }
  return out.empty() ? "(no frame)" : out;
}

}  // namespace

HeapProfile read_dhat(std::string_view text, const std::string& origin) {
  HeapProfile p;
  try {
    const json j = json::parse(text);
    if (j.at("dhatFileVersion").get<int>() != 2 || j.value("mode", "heap") != "heap")
      throw ParseError(ErrorText{"the file must be version 2 of DHAT's heap profiles", origin, {}, {}});
    for (const auto& pp : j.at("pps")) {
      HeapSite s;
      s.bytes = pp.at("tb"), s.blocks = pp.at("tbk");
      s.peak_bytes = pp.value("gb", 0.0), s.left_bytes = pp.value("eb", 0.0);
      if (s.bytes == kEmergencyPool && s.blocks == 1 && s.left_bytes == s.bytes) continue;
      s.where = where(pp.at("fs"), j.at("ftbl"));
      p.bytes += s.bytes, p.blocks += s.blocks;
      p.peak_bytes += s.peak_bytes, p.left_bytes += s.left_bytes, p.left_blocks += pp.value("ebk", 0.0);
      p.sites.push_back(std::move(s));
    }
  } catch (const json::exception& e) {
    throw ParseError(ErrorText{"the file must be a heap profile of valgrind", origin, e.what(), {}});
  }
  std::stable_sort(p.sites.begin(), p.sites.end(),
                   [](const HeapSite& a, const HeapSite& b) { return a.bytes > b.bytes; });
  return p;
}

HeapProfile profile_heap(const std::vector<std::string>& command) {
  const std::string valgrind = find_program("valgrind");
  if (valgrind.empty())
    throw Unsupported(
        ErrorText{"the heap is profiled by valgrind", {}, "it is not here", "apt install valgrind"});
  const std::string file = (fs::temp_directory_path() / fmt::format("cgp-heap-{}.json", getpid())).string();
  std::vector<std::string> words{valgrind, "--tool=dhat", cat("--dhat-out-file=", file)};
  words.insert(words.end(), command.begin(), command.end());
  const auto r = measure::run_process(words);
  std::error_code ec;
  const std::string content = fs::exists(file) ? read_file(file) : "";
  fs::remove(file, ec);
  if (!r.ok() || content.empty())
    throw Error(ErrorText{"the program must end well under valgrind", measure::join_command(command),
                          r.describe(), "valgrind cannot execute AVX-512"});
  return read_dhat(content, "valgrind's output");
}

void HeapProfile::add_to(measure::MetricSet& m) const {
  const std::string from = "valgrind's heap profiler";
  const auto put = [&](Metric id, double v) { m.set(id, v, measure::Source::counted, from); };
  put(Metric::heap_allocated_mb, bytes * 1e-6), put(Metric::heap_peak_mb, peak_bytes * 1e-6);
  put(Metric::malloc_count, blocks), put(Metric::free_count, blocks - left_blocks);
  put(Metric::memory_leaks_bytes, left_bytes);
}

nlohmann::ordered_json to_json(const HeapProfile& p) {
  nlohmann::ordered_json j = {{"bytes", p.bytes},
                              {"blocks", p.blocks},
                              {"peak_bytes", p.peak_bytes},
                              {"left_bytes", p.left_bytes},
                              {"left_blocks", p.left_blocks}};
  j["sites"] = nlohmann::ordered_json::array();
  for (const auto& s : p.sites)
    j["sites"].push_back({{"where", s.where},
                          {"bytes", s.bytes},
                          {"blocks", s.blocks},
                          {"peak_bytes", s.peak_bytes},
                          {"left_bytes", s.left_bytes}});
  return j;
}

std::string heap_text(const HeapProfile& p, int width) {
  const auto size = [](double b) { return text::bytes(std::uint64_t(b)); };
  std::string out =
      fmt::format("heap       {} in {} allocations; {} live at once; {} never freed\n", size(p.bytes),
                  text::grouped(std::uint64_t(p.blocks)), size(p.peak_bytes), size(p.left_bytes));
  Table table({"bytes", "blocks", "at the peak", "left", "<where"});
  for (std::size_t i = 0; i < std::min<std::size_t>(8, p.sites.size()); ++i) {
    const auto& s = p.sites[i];
    table.row({size(s.bytes), text::grouped(std::uint64_t(s.blocks)), size(s.peak_bytes), size(s.left_bytes),
               fitted(s.where, std::size_t(std::max(24, width - 48)))});
  }
  return out + (table.empty() ? "" : table.text());
}

}  // namespace cgp::profile
