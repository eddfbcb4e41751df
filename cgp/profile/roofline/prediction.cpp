// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/roofline/prediction.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/profile/view/table.h"
#include "cgp/ptx/verify/verify.h"

namespace cgp::profile {
namespace {

using fmt::format;
using text::cat;

std::string short_number(double v) { return v == std::floor(v) ? format("{:.0f}", v) : format("{:.1f}", v); }

/// The range of what one execution by a warp may cost.
void predict(const ptx::MemoryAccess& a, AccessCheck& c) {
  if (!a.warps) {
    c.why = a.why;
    c.least = a.least_sectors, c.most = a.most_sectors;
    return;
  }
  const auto cost = [&](const ptx::WarpCost& w) { return double(c.shared ? w.banks.passes : w.sectors); };
  for (const ptx::WarpCost& w : *a.warps) {
    c.least = c.most == 0 ? cost(w) : std::min(c.least, cost(w));
    c.most = std::max(c.most, cost(w));
  }
  if (!a.all_lanes) c.least = c.most > 0 ? 1 : 0;  // a condition that is not known may exclude lanes
}

void judge(const ptx::MemoryAccess& a, AccessCheck& c) {
  constexpr double kRounding = 1e-9;
  if (!c.requests) {
    c.agreement = Agreement::never_ran;
  } else if (c.most == 0) {
    c.agreement = Agreement::unknown;
  } else if (c.counted < c.least - kRounding || c.counted > c.most + kRounding) {
    c.agreement = Agreement::differs;
    if (c.counted > c.most)
      c.why = c.shared
                  ? "lanes meet in banks that the analysis holds apart: does 32-bit index arithmetic wrap?"
                  : "the address is not aligned as assumed (256 bytes for pointers), or 32-bit index "
                    "arithmetic wraps";
    else
      c.why = "fewer lanes came than every known condition lets through";
  } else {
    c.agreement = a.warps && c.least == c.most ? Agreement::equal : Agreement::within;
  }
}

}  // namespace

std::string_view name(Agreement a) {
  constexpr std::string_view names[] = {"equal", "within", "differs", "unknown", "never ran"};
  return names[std::size_t(a)];
}

namespace {

struct Predicted {
  AccessCheck check;
  const ptx::MemoryAccess* access = nullptr;
  std::size_t pc = 0;
};

/// Every access of the kernel, nothing counted yet.
std::vector<Predicted> predicted(const emu::Program& program, const ptx::Analysis& analysis) {
  // Program counters run through the bodies of the functions in their order.
  std::map<std::pair<std::string, std::uint32_t>, std::size_t> pc;
  std::map<std::string, std::uint32_t> next;
  for (std::size_t i = 0; i < program.instruction_count(); ++i) {
    const std::string function = program.instruction(i).function;
    pc[{function, next[function]++}] = i;
  }
  std::vector<Predicted> out;
  for (const auto& part : analysis.functions)
    for (const ptx::MemoryAccess& a : part->memory) {
      const auto at = pc.find({program.module().text(part->function->name), a.inst});
      if (at == pc.end()) continue;
      const emu::InstructionInfo info = program.instruction(at->second);
      Predicted p{{}, &a, at->second};
      AccessCheck& c = p.check;
      c.function = info.function, c.opcode = info.opcode, c.text = info.text, c.ptx_line = info.ptx_line;
      c.file = info.file, c.line = info.line;
      c.shared = a.space == ptx::Space::shared;
      out.push_back(std::move(p));
    }
  return out;
}

ptx::Analysis analysed(const emu::Program& program, const std::string& kernel,
                       const ptx::LaunchAssumptions& launch) {
  const ptx::Function* f = program.module().find(kernel);
  if (!f) throw ArgumentError(ErrorText{cat("the program has the kernel ", kernel), {}, {}, {}});
  ptx::verify(program.module(), {.foreign = true});  // what analyse() may assume
  return ptx::analyse(program.module(), *f, launch);
}

/// Loads and stores of global and of shared memory; "" for what is none of them.
std::string kind_of(const ptx::MemoryAccess& a) {
  if (a.space != ptx::Space::global && a.space != ptx::Space::shared) return {};
  if (a.kind != ptx::AccessKind::load && a.kind != ptx::AccessKind::store) return {};
  return cat(a.kind == ptx::AccessKind::load ? "LD" : "ST", a.space == ptx::Space::shared ? "S" : "G");
}

}  // namespace

std::vector<AccessCheck> check_predictions(const emu::Program& program, const std::string& kernel,
                                           const emu::Counters& counted,
                                           const ptx::LaunchAssumptions& launch) {
  const ptx::Analysis analysis = analysed(program, kernel, launch);
  std::vector<AccessCheck> out;
  for (Predicted& p : predicted(program, analysis)) {
    if (p.pc >= counted.per_pc.size()) continue;
    const emu::PcCounters& got = counted.per_pc[p.pc];
    AccessCheck& c = p.check;
    c.shared |= p.access->space != ptx::Space::global && got.wavefronts > 0;
    c.requests = got.requests;
    if (got.requests) {
      c.counted = double(c.shared ? got.wavefronts : got.sectors) / double(got.requests);
      const double bytes = double(got.bytes) / double(got.requests);
      c.needed = std::max(1.0, std::ceil(bytes / (c.shared ? 128 : 32)));
    }
    predict(*p.access, c);
    judge(*p.access, c);
    out.push_back(std::move(c));
  }
  return out;
}

std::vector<AccessCheck> check_machine_code(const emu::Program& program, const std::string& kernel,
                                            const Document& report) {
  std::vector<nlohmann::ordered_json> rows;
  for (const auto& k : rows_in(report.more, "instructions"))
    if (const std::string of = k.value("kernel", ""); of == kernel || short_name(of) == kernel)
      rows = rows_in(k, "rows");
  if (rows.empty())
    throw ArgumentError(ErrorText{cat("the report has machine instructions of ", kernel),
                                  report.name,
                                  {},
                                  "ncu --set full, or --section SourceCounters"});
  ptx::LaunchAssumptions launch;
  const auto small = [](const measure::Triple& t) {
    return std::array<std::uint32_t, 3>{std::uint32_t(t[0]), std::uint32_t(t[1]), std::uint32_t(t[2])};
  };
  for (const auto& k : report.kernels)
    if ((k.name == kernel || short_name(k.name) == kernel) && k.block[0])
      launch.block = small(k.block), launch.grid = small(k.grid);
  std::map<std::string, std::vector<const nlohmann::ordered_json*>> machine;
  for (const auto& row : rows) {
    std::string opcode = row.value("text", "");
    if (!opcode.empty() && opcode[0] == '@') opcode.erase(0, opcode.find(' ') + 1);  // its guard
    machine[opcode.substr(0, 3)].push_back(&row);
  }
  const ptx::Analysis analysis = analysed(program, kernel, launch);
  auto all = predicted(program, analysis);
  std::map<std::string, std::size_t> written, next;
  for (const Predicted& p : all) ++written[kind_of(*p.access)];
  std::vector<AccessCheck> out;
  for (Predicted& p : all) {
    AccessCheck& c = p.check;
    const std::string kind = kind_of(*p.access);
    predict(*p.access, c);
    if (kind.empty() || written[kind] != machine[kind].size()) {
      c.agreement = Agreement::never_ran;
      if (!kind.empty()) {
        c.agreement = Agreement::unknown;
        c.why = format("{} such accesses in the PTX, {} {} in the machine code", written[kind],
                       machine[kind].size(), kind);
      }
      out.push_back(std::move(c));
      continue;
    }
    const auto values = machine[kind][next[kind]++]->value("values", nlohmann::ordered_json::object());
    const auto value = [&](const char* counter) { return values.value(counter, 0.0); };
    const double times = value("inst_executed");
    c.requests = std::uint64_t(times);
    if (times > 0) {
      c.counted =
          value(c.shared ? "memory_l1_wavefronts_shared" : "memory_l2_theoretical_sectors_global") / times;
      c.needed = value(c.shared ? "memory_l1_wavefronts_shared_ideal"
                                : "memory_l2_theoretical_sectors_global_ideal") /
                 times;
    }
    judge(*p.access, c);
    out.push_back(std::move(c));
  }
  return out;
}

std::string predicted_text(const AccessCheck& c) {
  if (c.most == 0) return "?";
  if (c.least == c.most) return short_number(c.most);
  return c.least <= 1 && c.agreement != Agreement::differs && c.most > 2
             ? "<= " + short_number(c.most)
             : cat(short_number(c.least), " to ", short_number(c.most));
}

nlohmann::ordered_json to_json(const std::vector<AccessCheck>& all) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const auto& c : all)
    out.push_back({{"function", c.function},
                   {"ptx_line", c.ptx_line},
                   {"opcode", c.opcode},
                   {"instruction", c.text},
                   {"file", c.file},
                   {"line", c.line},
                   {"unit", c.shared ? "passes" : "sectors"},
                   {"requests", c.requests},
                   {"counted", c.counted},
                   {"needed", c.needed},
                   {"predicted", {c.least, c.most}},
                   {"agreement", name(c.agreement)},
                   {"why", c.why}});
  return out;
}

std::vector<AccessCheck> accesses_of(const Document& d) {
  std::vector<AccessCheck> out;
  for (const auto& kernel : rows_in(d.more, "accesses"))
    for (const auto& j : rows_in(kernel, "accesses")) {
      AccessCheck c;
      c.function = j.value("function", ""), c.opcode = j.value("opcode", ""),
      c.text = j.value("instruction", "");
      c.ptx_line = j.value("ptx_line", 0), c.file = j.value("file", ""), c.line = j.value("line", 0);
      c.shared = j.value("unit", "") == "passes", c.requests = j.value("requests", std::uint64_t(0));
      c.counted = j.value("counted", 0.0), c.needed = j.value("needed", 0.0), c.why = j.value("why", "");
      if (j.contains("predicted") && j["predicted"].is_array() && j["predicted"].size() == 2)
        c.least = j["predicted"][0], c.most = j["predicted"][1];
      for (int k = 0; k <= int(Agreement::never_ran); ++k)
        if (j.value("agreement", "") == name(Agreement(k))) c.agreement = Agreement(k);
      out.push_back(std::move(c));
    }
  return out;
}

std::string predictions_text(const std::vector<AccessCheck>& all, int width, std::size_t most) {
  struct Row {
    AccessCheck check;
    std::string predicted, counted;
    int count = 1;
    double cost = 0;
  };
  std::vector<Row> rows;
  for (const auto& c : all) {
    if (c.agreement == Agreement::never_ran) continue;
    Row r{c, predicted_text(c), short_number(c.counted), 1, c.counted * double(c.requests)};
    const auto same = std::find_if(rows.begin(), rows.end(), [&](const Row& o) {
      return o.check.opcode == c.opcode && o.predicted == r.predicted && o.counted == r.counted &&
             o.check.agreement == c.agreement && o.check.why == c.why;
    });
    if (same == rows.end())
      rows.push_back(std::move(r));
    else
      ++same->count, same->cost += r.cost;
  }
  if (rows.empty()) return {};
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    const bool x = a.check.agreement == Agreement::differs, y = b.check.agreement == Agreement::differs;
    return x != y ? x : a.cost > b.cost;
  });
  Table table({"predicted", "counted", "needed", "<unit", "<", "<line", "<access", "<why"});
  for (std::size_t i = 0; i < std::min(most, rows.size()); ++i) {
    const AccessCheck& c = rows[i].check;
    const std::string where =
        c.file.empty() ? cat("PTX ", c.ptx_line) : cat(c.file.substr(c.file.rfind('/') + 1), ":", c.line);
    table.row({rows[i].predicted, rows[i].counted, short_number(c.needed), c.shared ? "passes" : "sectors",
               std::string(name(c.agreement)), where,
               rows[i].count > 1 ? format("{} x{}", c.opcode, rows[i].count) : c.opcode,
               fitted(c.why, std::size_t(std::max(24, width - 78)))});
  }
  std::string out =
      "memory accesses, a warp's cost each time: predicted from the addresses, counted, and what "
      "the bytes need side by side\n" +
      table.text();
  if (rows.size() > most) out += format("  and {} more kinds (--json has all)\n", rows.size() - most);
  return out;
}

std::vector<Waste> prediction_waste(const std::vector<AccessCheck>& all, const std::string& kernel) {
  double total = 0;
  for (const auto& c : all) total += c.counted * double(c.requests);
  std::vector<Waste> out;
  for (const auto& c : all) {
    if (c.agreement != Agreement::differs || c.counted <= c.most || total <= 0) continue;
    const double extra = (c.counted - c.most) * double(c.requests);
    out.push_back({"transport",
                   c.shared ? "bank conflicts beyond the prediction" : "sectors beyond the prediction",
                   kernel,
                   format("predicted {} {}, counted {}, each of {} times; at {}: {}", predicted_text(c),
                          c.shared ? "passes" : "sectors", short_number(c.counted), text::grouped(c.requests),
                          c.file.empty() ? cat("PTX line ", c.ptx_line) : cat(c.file, ":", c.line), c.text),
                   c.why, std::min(100.0, 100 * extra / total), measure::Source::counted});
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Waste& a, const Waste& b) { return a.percent > b.percent; });
  if (out.size() > 4) out.resize(4);
  return out;
}

}  // namespace cgp::profile
