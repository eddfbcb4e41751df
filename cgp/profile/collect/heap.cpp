// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/collect/heap.h"

#include <fmt/core.h>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <sstream>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/profile/collect/program.h"
#include "cgp/profile/measure/process.h"
#include "cgp/profile/sampling/elf_file.h"
#include "cgp/profile/view/document.h"
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

namespace {

/// Executable memory of a file, and where callers are in it.
struct Mapped {
  std::uint64_t begin = 0, end = 0, offset = 0;
  std::string path;
};

/// Names of callers, each file read once.
class Callers {
 public:
  /// "f (a.cpp:7)"; `address` is behind the call.
  std::string name(const std::vector<Mapped>& maps, std::uint64_t address) {
    for (const auto& m : maps) {
      if (address <= m.begin || address > m.end) continue;
      const auto [at, fresh] = files_.try_emplace(m.path);
      if (fresh) at->second = ElfFile::open(m.path);
      const std::string module = fs::path(m.path).filename().string();
      if (module == "libcgp_heap.so" || !at->second) return {};
      const std::uint64_t in_file = at->second->address_of(address - 1 - m.begin + m.offset);
      const std::string function(at->second->function_at(in_file));
      const auto lines = at->second->lines_at({in_file});
      const std::string shown = function.empty() ? cat("[", module, "]") : short_name(function);
      return lines.empty() ? shown
                           : cat(shown, " (", fs::path(lines.begin()->second.file).filename().string(), ":",
                                 lines.begin()->second.line, ")");
    }
    return {};
  }

 private:
  std::map<std::string, std::unique_ptr<ElfFile>> files_;
};

HeapProfile under_valgrind(const std::vector<std::string>& command) {
  const std::string valgrind = find_program("valgrind");
  if (valgrind.empty())
    throw Unsupported(
        ErrorText{"the heap is counted by libcgp_heap.so or by valgrind", measure::join_command(command),
                  "the library was not loaded into the program (it is linked statically, or brings an "
                  "allocator of its own), and valgrind is not here",
                  "apt install valgrind"});
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

}  // namespace

HeapProfile read_heap_records(const std::vector<std::string>& files) {
  HeapProfile p;
  p.counted_by = "libcgp_heap.so";
  Callers callers;
  std::map<std::string, HeapSite> sites;
  std::map<std::string, std::pair<double, double>> lives;  // nanoseconds, and how many were freed
  for (const auto& file : files) {
    std::vector<Mapped> maps;
    for (const auto text_line : text::split(file, '\n')) {
      if (text_line.empty()) continue;
      std::istringstream line{std::string(text_line)};
      char kind = 0;
      line >> kind;
      if (kind == 'M') {
        Mapped m;
        line >> std::hex >> m.begin >> m.end >> m.offset;
        std::getline(line >> std::ws, m.path);
        maps.push_back(std::move(m));
      } else if (kind == 'T') {
        double peak = 0;
        line >> peak;
        p.peak_bytes += peak;
      } else {
        double blocks = 0, bytes = 0, left_blocks = 0, left = 0, peak = 0, lifetime = 0;
        line >> blocks >> bytes >> left_blocks >> left >> peak >> lifetime;
        if (kind != 'S' || line.fail())
          throw ParseError(ErrorText{
              "a heap record has the rows of libcgp_heap.so", {}, std::string(text_line.substr(0, 80)), {}});
        if (bytes == kEmergencyPool && blocks == 1 && left == bytes) {
          p.peak_bytes -= peak;
          continue;
        }
        std::string where;
        int shown = 0;
        std::uint64_t address = 0;
        while (shown < 2 && line >> std::hex >> address) {
          const std::string name = callers.name(maps, address);
          if (name.empty() || is_allocator(name)) continue;
          where += (where.empty() ? "" : " < ") + name, ++shown;
        }
        if (where.empty()) where = "(no frame)";
        HeapSite& s = sites[where];
        s.where = where;
        s.bytes += bytes, s.blocks += blocks, s.left_bytes += left, s.peak_bytes += peak;
        auto& [ns, freed] = lives[where];
        ns += lifetime, freed += blocks - left_blocks;
        p.bytes += bytes, p.blocks += blocks, p.left_bytes += left, p.left_blocks += left_blocks;
      }
    }
  }
  for (auto& [where, s] : sites) {
    if (const auto& [ns, freed] = lives[where]; freed > 0) s.lifetime_us = ns / freed * 1e-3;
    p.sites.push_back(std::move(s));
  }
  std::stable_sort(p.sites.begin(), p.sites.end(),
                   [](const HeapSite& a, const HeapSite& b) { return a.bytes > b.bytes; });
  return p;
}

std::string heap_library() {
  if (const char* given = std::getenv("CGP_HEAP_LIBRARY"); given && *given)
    return fs::exists(given) ? given : "";
  return library_beside_inject("libcgp_heap.so");
}

HeapProfile profile_heap(const std::vector<std::string>& command) {
  const std::string library = heap_library();
  if (library.empty()) return under_valgrind(command);
  std::string folder = (fs::temp_directory_path() / "cgp-heap-XXXXXX").string();
  if (!mkdtemp(folder.data()))
    throw Error(ErrorText{"the records of the heap need a folder", folder, {}, {}});
  measure::ProcessOptions o;
  o.environment = {{"LD_PRELOAD", library}, {"CGP_HEAP_OUT", folder + "/heap"}};
  measure::ProcessResult r;
  std::vector<std::string> files;
  std::error_code ec;
  try {
    r = measure::run_process(command, o);
    for (const auto& e : fs::directory_iterator(folder, ec)) files.push_back(read_file(e.path().string()));
  } catch (...) {
    fs::remove_all(folder, ec);
    throw;
  }
  fs::remove_all(folder, ec);
  if (!r.ok())
    throw Error(ErrorText{"the program must end well for its heap to be counted",
                          measure::join_command(command),
                          text::cat(r.describe(), " ", text::trim(r.err)),
                          {}});
  auto p = read_heap_records(files);
  return files.empty() ? under_valgrind(command) : p;
}

void HeapProfile::add_to(measure::MetricSet& m) const {
  const auto put = [&](Metric id, double v) { m.set(id, v, measure::Source::counted, counted_by); };
  put(Metric::heap_allocated_mb, bytes * 1e-6), put(Metric::heap_peak_mb, peak_bytes * 1e-6);
  put(Metric::malloc_count, blocks), put(Metric::free_count, blocks - left_blocks);
  put(Metric::memory_leaks_bytes, left_bytes);
}

nlohmann::ordered_json to_json(const HeapProfile& p) {
  nlohmann::ordered_json j = {
      {"bytes", p.bytes},           {"blocks", p.blocks},           {"peak_bytes", p.peak_bytes},
      {"left_bytes", p.left_bytes}, {"left_blocks", p.left_blocks}, {"counted_by", p.counted_by}};
  j["sites"] = nlohmann::ordered_json::array();
  for (const auto& s : p.sites)
    j["sites"].push_back({{"where", s.where},
                          {"bytes", s.bytes},
                          {"blocks", s.blocks},
                          {"peak_bytes", s.peak_bytes},
                          {"left_bytes", s.left_bytes},
                          {"lifetime_us", s.lifetime_us < 0 ? nlohmann::ordered_json()
                                                            : nlohmann::ordered_json(s.lifetime_us)}});
  return j;
}

std::string heap_text(const HeapProfile& p, int width) {
  const auto size = [](double b) { return text::bytes(std::uint64_t(b)); };
  std::string out =
      fmt::format("heap       {} in {} allocations; {} live at once; {} never freed\n", size(p.bytes),
                  text::grouped(std::uint64_t(p.blocks)), size(p.peak_bytes), size(p.left_bytes));
  Table table({"bytes", "blocks", "at the peak", "left", "lives", "<where"});
  for (std::size_t i = 0; i < std::min<std::size_t>(8, p.sites.size()); ++i) {
    const auto& s = p.sites[i];
    table.row({size(s.bytes), text::grouped(std::uint64_t(s.blocks)), size(s.peak_bytes), size(s.left_bytes),
               s.lifetime_us < 0      ? "-"
               : s.lifetime_us < 4000 ? "< 4 ms"
                                      : time_text(s.lifetime_us),
               fitted(s.where, std::size_t(std::max(24, width - 58)))});
  }
  return out + (table.empty() ? "" : table.text());
}

}  // namespace cgp::profile
