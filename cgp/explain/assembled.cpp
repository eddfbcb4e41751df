// SPDX-License-Identifier: Apache-2.0
#include "cgp/explain/assembled.h"

#include <unistd.h>

#include <charconv>
#include <filesystem>

#include "cgp/base/file.h"
#include "cgp/base/program.h"
#include "cgp/base/text.h"
#include "cgp/profile/measure/process.h"

namespace cgp::explain {
namespace {

/// The number before `what`: "12 bytes spill stores".
int number_before(std::string_view line, std::string_view what) {
  const auto at = line.find(what);
  if (at == line.npos || at == 0) return 0;
  const auto end = line.find_last_not_of(' ', at - 1) + 1;
  const auto begin = line.find_last_not_of("0123456789", end - 1) + 1;
  int v = 0;
  std::from_chars(line.data() + begin, line.data() + end, v);
  return v;
}

}  // namespace

std::map<std::string, Assembled::Entry> read_ptxas_log(std::string_view log) {
  std::map<std::string, Assembled::Entry> out;
  Assembled::Entry* entry = nullptr;
  for (const auto line : text::split(log, '\n')) {
    constexpr std::string_view kBegin = "Compiling entry function '";
    if (const auto at = line.find(kBegin); at != line.npos) {
      const auto name = line.substr(at + kBegin.size());
      entry = &out[std::string(name.substr(0, name.find('\'')))];
    }
    if (!entry) continue;
    if (line.find("bytes stack frame") != line.npos) {  // of the kernel and of each function it calls
      entry->stack_bytes += number_before(line, "bytes stack frame");
      entry->spill_stores += number_before(line, "bytes spill stores");
      entry->spill_loads += number_before(line, "bytes spill loads");
    }
    if (line.find("Used ") != line.npos) entry->registers = number_before(line, "registers");
  }
  return out;
}

Assembled assembled(std::string_view ptx, const std::string& target) {
  Assembled out;
  const std::string ptxas = find_ptxas();
  if (ptxas.empty()) {
    out.absent = "ptxas is not installed (CGP_PTXAS, PATH, /usr/local/cuda/bin)";
    return out;
  }
  const std::string file =
      (std::filesystem::temp_directory_path() / text::cat("cgp-explain-", getpid(), ".ptx")).string();
  write_file(file, ptx);
  const auto run = measure::run_process(
      {ptxas, "-v", "-arch=" + target.substr(0, target.find(',')), file, "-o", "/dev/null"});
  std::error_code ignored;
  std::filesystem::remove(file, ignored);
  if (run.ok())
    out.entries = read_ptxas_log(run.err + run.out);
  else
    out.absent = text::cat("ptxas refuses it: ", text::trim(run.err));
  return out;
}

}  // namespace cgp::explain
