// SPDX-License-Identifier: Apache-2.0
#include "cgp/explain/machine_code.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/profile/collect/cubin.h"
#include "cgp/profile/collect/disassemble.h"
#include "cgp/profile/lint/x86_mix.h"
#include "cgp/profile/measure/process.h"
#include "cgp/profile/view/table.h"

namespace cgp::explain {
namespace {

using fmt::format;
using nlohmann::ordered_json;

template <class T>
ordered_json maybe(const std::optional<T>& v) {
  return v ? ordered_json(*v) : ordered_json();
}

template <class T>
std::string shown(const std::optional<T>& v, const char* unit) {
  return v ? format("{}{}", *v, unit) : std::string("not in the file");
}

std::string banks_text(const std::map<int, std::uint64_t>& banks) {
  std::vector<std::string> parts;
  for (const auto& [bank, bytes] : banks) parts.push_back(format("bank {}: {} bytes", bank, bytes));
  return parts.empty() ? "none" : text::join(parts, ", ");
}

std::map<std::string, std::uint64_t> grouped(const std::map<std::string, std::uint64_t>& opcodes) {
  std::map<std::string, std::uint64_t> out;
  for (const auto& [opcode, n] : opcodes) out[std::string(profile::sass_group(opcode))] += n;
  return out;
}

std::string kernel_text(const profile::CubinKernel& k, const profile::SassMix& mix) {
  std::string out = format("\n{}{}\n", k.name, k.entry ? "" : " (a function that kernels call)");
  const auto line = [&](std::string_view label, const std::string& text) {
    out += format("  {:<14} {}\n", label, text);
  };
  line("registers",
       shown(k.registers, " per thread") + (k.max_registers && *k.max_registers < 255
                                                ? format(", at most {} were allowed", *k.max_registers)
                                                : ""));
  line("shared",
       format("{} static{}", text::bytes(k.shared_bytes),
              k.shared_reserved ? format(", and {} that the system reserves", text::bytes(k.shared_reserved))
                                : ""));
  line("local", k.stack_bytes && *k.stack_bytes == 0
                    ? "none"
                    : shown(k.stack_bytes, " bytes of stack per thread: spills or arrays"));
  line("constants", banks_text(k.constant_banks));
  line("parameters", shown(k.parameter_bytes, " bytes"));
  line("barriers", shown(k.barriers, ""));
  if (k.max_threads)
    line("launch bounds",
         format("at most {},{},{} threads", (*k.max_threads)[0], (*k.max_threads)[1], (*k.max_threads)[2]));
  if (k.required_threads)
    line("launch bounds", format("exactly {},{},{} threads", (*k.required_threads)[0],
                                 (*k.required_threads)[1], (*k.required_threads)[2]));
  line("code", format("{} bytes, {} instructions with padding", k.code_bytes, k.instructions));
  const auto at = mix.find(k.name);
  if (at == mix.end()) return out;
  std::uint64_t total = 0;
  for (const auto& [opcode, n] : at->second) total += n;
  for (const auto& [group, n] : grouped(at->second))
    line("", format("{:>6} ({:>4.1f} %)  {}", n, 100.0 * double(n) / double(total), group));
  return out;
}

ordered_json kernel_json(const profile::CubinKernel& k, const profile::SassMix& mix) {
  ordered_json j = {{"name", k.name},
                    {"entry", k.entry},
                    {"registers", maybe(k.registers)},
                    {"max_registers", maybe(k.max_registers)},
                    {"shared_bytes", k.shared_bytes},
                    {"shared_reserved_bytes", k.shared_reserved},
                    {"stack_bytes", maybe(k.stack_bytes)},
                    {"parameter_bytes", maybe(k.parameter_bytes)},
                    {"barriers", maybe(k.barriers)},
                    {"max_threads", maybe(k.max_threads)},
                    {"required_threads", maybe(k.required_threads)},
                    {"code_bytes", k.code_bytes},
                    {"instructions", k.instructions}};
  j["constant_banks"] = ordered_json::object();
  for (const auto& [bank, bytes] : k.constant_banks) j["constant_banks"][std::to_string(bank)] = bytes;
  const auto at = mix.find(k.name);
  j["sass"] = at == mix.end() ? ordered_json()
                              : ordered_json{{"by_opcode", at->second}, {"by_group", grouped(at->second)}};
  return j;
}

ordered_json mix_json(const profile::X86Mix& m) {
  return {{"total", m.total()}, {"integer", m.integer}, {"scalar_float", m.scalar_float},
          {"sse", m.sse},       {"avx128", m.avx128},   {"avx256", m.avx256},
          {"avx512", m.avx512}, {"amx", m.amx}};
}

std::vector<std::string> mix_row(const std::string& name, const profile::X86Mix& m) {
  std::vector<std::string> row;
  for (auto n : {m.total(), m.integer, m.scalar_float, m.sse, m.avx128, m.avx256, m.avx512, m.amx})
    row.push_back(std::to_string(n));
  row.push_back(name);
  return row;
}

}  // namespace

MachineCodeView explain_cubin(const std::string& file, const std::string& entry) {
  const auto cubin = profile::read_cubin(read_file(file), file);
  const profile::Listing listing = profile::disassemble(file);
  const auto mix = profile::sass_mix(listing.text);
  if (!entry.empty() && std::none_of(cubin.kernels.begin(), cubin.kernels.end(),
                                     [&](const auto& k) { return k.name == entry; })) {
    std::vector<std::string> names;
    for (const auto& k : cubin.kernels) names.push_back(k.name);
    throw ArgumentError(
        ErrorText{"--entry names a kernel of the file", file, entry, "there are " + text::join(names, ", ")});
  }
  ordered_json j = {{"schema", "cgp.explain_cubin/1"},
                    {"name", file},
                    {"sm", cubin.sm},
                    {"elf_abi", cubin.abi},
                    {"global_bytes", cubin.global_bytes}};
  j["constant_banks"] = ordered_json::object();
  for (const auto& [bank, bytes] : cubin.constant_banks) j["constant_banks"][std::to_string(bank)] = bytes;
  j["sass_absent"] = listing.absent;
  j["kernels"] = ordered_json::array();
  std::string out =
      format("{}\n  {:<14} sm_{}\n  {:<14} {} global; constants of the module: {}\n  {:<14} {}\n", file,
             "target", cubin.sm, "variables", text::bytes(cubin.global_bytes),
             banks_text(cubin.constant_banks), "machine code",
             listing.absent.empty() ? "read by " + listing.tool : "opcodes are absent: " + listing.absent);
  for (const auto& k : cubin.kernels) {
    if (!entry.empty() && k.name != entry) continue;
    out += kernel_text(k, mix);
    j["kernels"].push_back(kernel_json(k, mix));
  }
  return {std::move(out), std::move(j)};
}

MachineCodeView explain_x86(const std::string& file, const std::string& function, bool all_rows, int width) {
  const std::string objdump = find_program("objdump");
  if (objdump.empty())
    throw Unsupported(ErrorText{"reading x86 instructions needs objdump",
                                {},
                                "it is not on PATH, and cgp has no disassembler of its own",
                                "apt install binutils"});
  if (!std::filesystem::is_regular_file(file))
    throw ArgumentError(ErrorText{"--x86 takes a program, library or object file", {}, file, {}});
  measure::ProcessOptions p;
  p.keep_bytes = 1u << 30, p.timeout_seconds = 300;
  std::vector<std::string> command{objdump, "-d", "-C", "--no-show-raw-insn", "-M", "att"};
  if (!function.empty()) command.push_back("--disassemble=" + function);
  command.push_back(file);
  const auto r = measure::run_process(command, p);
  if (!r.ok())
    throw ArgumentError(ErrorText{"objdump could not read it", file, std::string(text::trim(r.err)), {}});
  if (r.out.find("x86-64") == std::string::npos && r.out.find("i386") == std::string::npos)
    throw ArgumentError(ErrorText{"--x86 takes machine code for x86",
                                  file,
                                  std::string(text::trim(r.out.substr(0, r.out.find("\n\n")))),
                                  {}});
  auto functions = profile::x86_functions(r.out);
  std::erase_if(functions, [](const auto& f) { return f.mix.total() == 0; });
  if (functions.empty())
    throw ArgumentError(
        ErrorText{function.empty() ? "it holds no instructions" : "it has no function of this name", file,
                  function, "nm -C lists the names"});
  profile::X86Mix all;
  for (const auto& f : functions) all.add(f.mix);
  std::stable_sort(functions.begin(), functions.end(),
                   [](const auto& a, const auto& b) { return a.mix.vectors() > b.mix.vectors(); });
  ordered_json j = {{"schema", "cgp.explain_x86/1"},
                    {"name", file},
                    {"total", mix_json(all)},
                    {"functions", ordered_json::array()}};
  profile::Table table(
      {"instr", "integer", "scalar fp", "SSE", "AVX 128", "AVX 256", "AVX-512", "AMX", "<function"});
  const std::size_t most = all_rows ? functions.size() : 25;
  table.row(mix_row("all", all));
  for (std::size_t i = 0; i < functions.size(); ++i) {
    if (i < most)
      table.row(mix_row(profile::fitted(functions[i].name, std::size_t(std::max(30, width - 70))),
                        functions[i].mix));
    j["functions"].push_back(mix_json(functions[i].mix));
    j["functions"].back()["name"] = functions[i].name;
  }
  std::string out = format(
                        "{}: {} functions, {:.1f} % of the instructions on vectors (in the file; cgp profile "
                        "binary --count step counts what runs)\n",
                        file, functions.size(), 100.0 * double(all.vectors()) / double(all.total())) +
                    table.text();
  if (functions.size() > most)
    out += format("  and {} more functions (--all, --json)\n", functions.size() - most);
  return {std::move(out), std::move(j)};
}

}  // namespace cgp::explain
