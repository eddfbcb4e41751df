// SPDX-License-Identifier: Apache-2.0
#include "cgp/testing/assemble.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <thread>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/hash.h"
#include "cgp/base/text.h"
#include "cgp/testing/merge_ptx.h"

namespace cgp::testing {
namespace fs = std::filesystem;

namespace {

// The number before `word` in every place it occurs, summed: "12 bytes spill stores".
// ptxas's warnings repeat what its report says.
int sum_before(const std::string& log, std::string_view word) {
  int sum = 0;
  for (std::size_t at = log.find(word); at != std::string::npos; at = log.find(word, at + 1)) {
    const auto line = log.rfind('\n', at) + 1;  // npos + 1 is 0: the first line
    if (log.compare(line, 13, "ptxas warning") == 0) continue;
    std::size_t end = at;
    while (end > 0 && log[end - 1] == ' ') --end;
    std::size_t begin = end;
    while (begin > 0 && log[begin - 1] >= '0' && log[begin - 1] <= '9') --begin;
    if (begin < end) sum += std::stoi(log.substr(begin, end - begin));
  }
  return sum;
}

constexpr std::string_view kFlags = " -v -warn-spills ";

Assembly read_log(bool ok, std::string log) {
  Assembly a;
  a.ok = ok;
  a.log = std::move(log);
  a.spill_bytes = sum_before(a.log, "bytes spill stores") + sum_before(a.log, "bytes spill loads");
  a.stack_bytes = sum_before(a.log, "bytes stack frame");
  a.registers = sum_before(a.log, "registers");
  a.serialised = a.log.find("(C7") != std::string::npos;
  return a;
}

std::string need_ptxas() {
  if (auto p = find_ptxas(); !p.empty()) return p;
  throw Unsupported(
      {"ptxas is not installed", {}, "looked on PATH and in /usr/local/cuda/bin", "set CGP_PTXAS"});
}

Assembly call(const std::string& ptxas, std::string_view ptx, std::string_view arch) {
  static std::atomic<int> serial{0};
  const auto stem =
      (fs::temp_directory_path() / text::cat("cgp_assemble_", ::getpid(), "_", serial++)).string();
  write_file(stem + ".ptx", ptx);
  const auto command = text::cat("'", ptxas, "' -arch=", arch, kFlags, "'", stem, ".ptx' -o '", stem,
                                 ".cubin' > '", stem, ".log' 2>&1");
  const bool ok = std::system(command.c_str()) == 0;
  auto a = read_log(ok, read_file(stem + ".log"));
  for (const char* suffix : {".ptx", ".log", ".cubin"}) fs::remove(stem + suffix);
  return a;
}

// What ptxas said earlier: one file a text, "ok" or "failed" and its size in the first line, then the log.
class Kept {
 public:
  explicit Kept(const std::string& ptxas) {
    const char* folder = std::getenv("CGP_ASSEMBLIES");
    struct stat s {};
    if (!folder || !*folder || ::stat(ptxas.c_str(), &s) != 0) return;
    std::error_code failed;
    fs::create_directories(folder, failed);
    if (failed) return;
    folder_ = folder;
    program_ = text::cat(ptxas, " ", s.st_size, " ", s.st_mtime);
  }

  std::optional<Assembly> find(const AssemblyJob& job) const {
    if (folder_.empty() || !fs::exists(path(job))) return std::nullopt;
    const std::string content = read_file(path(job));
    const auto line = content.find('\n');
    if (line == std::string::npos) return std::nullopt;
    const std::string log = content.substr(line + 1);
    for (const bool ok : {true, false})
      if (content.compare(0, line, head(ok, log)) == 0) return read_log(ok, log);
    return std::nullopt;  // cut short: as if it were not there
  }

  void keep(const AssemblyJob& job, const Assembly& a) const {
    if (!folder_.empty()) write_file(path(job), text::cat(head(a.ok, a.log), "\n", a.log));
  }

 private:
  static std::string head(bool ok, const std::string& log) {
    return text::cat(ok ? "ok " : "failed ", log.size());
  }
  std::string path(const AssemblyJob& job) const {
    Hash128 h;
    for (std::string_view part : {std::string_view(program_), kFlags, job.arch, job.ptx}) h.add(part);
    char name[33];
    std::snprintf(name, sizeof name, "%016llx%016llx", static_cast<unsigned long long>(h.a),
                  static_cast<unsigned long long>(h.b));
    return text::cat(folder_, "/", name);
  }

  std::string folder_, program_;
};

// Calls `f(i)` for i below n, on all cores.
template <class F>
void on_all_cores(std::size_t n, F f) {
  std::atomic<std::size_t> next{0};
  std::vector<std::jthread> workers;
  for (unsigned w = 0; w < std::max(1u, std::thread::hardware_concurrency()); ++w)
    workers.emplace_back([&] {
      for (std::size_t i; (i = next++) < n;) f(i);
    });
}

// The kernels of one call: below this many characters ptxas spends more on its start than on them.
constexpr std::size_t kTextOfOneCall = 96 << 10;

std::vector<std::vector<std::size_t>> calls(std::span<const AssemblyJob> jobs,
                                            const std::vector<std::size_t>& wanted) {
  struct Open {
    std::vector<std::size_t> jobs;
    std::size_t size = 0;
  };
  std::map<std::pair<std::string_view, std::string_view>, Open> open;
  std::vector<std::vector<std::size_t>> all;
  for (const std::size_t i : wanted) {
    Open& o = open[{jobs[i].arch, ptx_head(jobs[i].ptx)}];
    if (o.size && o.size + jobs[i].ptx.size() > kTextOfOneCall) {
      all.push_back(std::move(o.jobs));
      o = {};
    }
    o.jobs.push_back(i);
    o.size += jobs[i].ptx.size();
  }
  for (auto& [head, o] : open) all.push_back(std::move(o.jobs));
  return all;
}

// What one call says of each of several kernels; nothing when it says more than a clean bill.
std::vector<Assembly> together(const std::string& ptxas, std::span<const AssemblyJob> jobs,
                               const std::vector<std::size_t>& members) {
  std::vector<std::string_view> texts;
  for (const std::size_t i : members) texts.push_back(jobs[i].ptx);
  const auto merged = merge_ptx(texts);
  if (!merged) return {};
  const Assembly all = call(ptxas, merged->ptx, jobs[members[0]].arch);
  if (!all.ok || all.serialised || all.spill_bytes || all.stack_bytes ||
      all.log.find("warning") != std::string::npos)
    return {};
  std::vector<Assembly> each;
  for (const auto& entry : merged->entries) {
    const auto begin = all.log.find(text::cat("Compiling entry function '", entry, "' for"));
    if (begin == std::string::npos) return {};
    each.push_back(read_log(true, all.log.substr(begin, all.log.find("Compiling entry", begin + 1) - begin)));
    if (each.back().registers == 0) return {};
  }
  return each;
}

}  // namespace

Assembly assemble(std::string_view ptx, std::string_view arch) {
  const AssemblyJob job{ptx, arch};
  return assemble_all({&job, 1})[0];
}

std::vector<Assembly> assemble_all(std::span<const AssemblyJob> jobs) {
  const std::string ptxas = need_ptxas();
  const Kept kept(ptxas);
  std::vector<Assembly> results(jobs.size());
  std::map<std::pair<std::string_view, std::string_view>, std::size_t> first;
  std::vector<std::size_t> wanted;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (!first.emplace(std::pair(jobs[i].arch, jobs[i].ptx), i).second) continue;
    if (auto a = kept.find(jobs[i]))
      results[i] = std::move(*a);
    else
      wanted.push_back(i);
  }
  const auto work = calls(jobs, wanted);
  on_all_cores(work.size(), [&](std::size_t c) {
    const auto& members = work[c];
    auto each = members.size() > 1 ? together(ptxas, jobs, members) : std::vector<Assembly>();
    for (std::size_t m = 0; m < members.size(); ++m) {
      const AssemblyJob& job = jobs[members[m]];
      results[members[m]] = each.empty() ? call(ptxas, job.ptx, job.arch) : std::move(each[m]);
      kept.keep(job, results[members[m]]);
    }
  });
  for (std::size_t i = 0; i < jobs.size(); ++i)
    if (const std::size_t f = first.at({jobs[i].arch, jobs[i].ptx}); f != i) results[i] = results[f];
  return results;
}

}  // namespace cgp::testing
