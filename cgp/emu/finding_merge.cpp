// SPDX-License-Identifier: Apache-2.0
// Many findings of one cause become one: a loop that the compiler unrolled breaks a rule at each of its copies, a
// missing wait at every register of a tile.
#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/emu/core/machine_impl.h"

namespace cgp::emu {

using text::cat;

namespace {
// What follows from another mistake comes after it.
int rank(std::string_view cls) {
  if (cls.substr(0, 7) == "uninit.") return 1;
  if (cls == "deadlock" || cls == "trap" || cls == "assert" || cls == "policy.result") return 2;
  return 0;
}

bool synchronises(const ptx::Inst& i) {
  switch (ptx::family(i.op)) {
    case ptx::Family::control:
    case ptx::Family::barrier:
    case ptx::Family::mbarrier:
      return true;
    case ptx::Family::async:
      return i.op != ptx::Op::cp_async && i.op != ptx::Op::cp_async_bulk &&
             i.op != ptx::Op::cp_async_bulk_tensor;
    default:
      return false;
  }
}

class Causes {
 public:
  explicit Causes(const ProgramImpl& p) : run_(p.insts.size()) {
    std::vector<bool> starts(p.insts.size());
    for (std::uint32_t n = 0; n < p.insts.size(); ++n) {
      const bool first = n == 0 || p.insts[n].function != p.insts[n - 1].function;
      starts[n] = starts[n] || first || synchronises(p.inst(n - 1));
      if (first)
        for (const ptx::Label& l : p.functions[p.insts[n].function].ptx->labels)
          if (n + l.position < starts.size()) starts[n + l.position] = true;
      run_[n] = starts[n] ? n : run_[n - 1];
      at_line_.try_emplace(int(p.inst(n).ptx_line), n);
    }
  }
  // Where a party is, as far as causes are concerned: its opcode on a C++ line; without one, between two labels,
  // branches or synchronisations.
  template <class Place>
  std::string place(const Place& at) const {
    const std::string opcode = at.instruction.substr(0, at.instruction.find(' '));
    if (!at.file.empty()) return cat(opcode, '@', at.file, ':', at.line);
    const auto inst = at_line_.find(at.ptx_line);
    return cat(opcode, '#', inst == at_line_.end() ? 0 : run_[inst->second]);
  }

 private:
  std::vector<std::uint32_t> run_;  // of each instruction: the first of its straight run
  std::unordered_map<int, std::uint32_t> at_line_;
};
}  // namespace

bool reported_before(const Finding& a, const Finding& b) {
  const int x = rank(a.cls), y = rank(b.cls);
  return std::tie(a.severity, x, a.ptx_line, a.cls) < std::tie(b.severity, y, b.ptx_line, b.cls);
}

void sum_up(LaunchState& launch) {
  std::sort(launch.findings.begin(), launch.findings.end(), reported_before);
  if (launch.findings.size() < 2) return;
  const Causes causes(*launch.program);
  std::map<std::string, std::size_t> known;
  std::vector<Finding> all;
  for (Finding& f : launch.findings) {
    std::string key = cat(f.cls, '|', f.buffer, '|', causes.place(f));
    if (f.other) key += cat('|', causes.place(*f.other));
    const auto [it, fresh] = known.try_emplace(std::move(key), all.size());
    if (fresh) {
      all.push_back(std::move(f));
      continue;
    }
    all[it->second].count += f.count;
    ++all[it->second].instructions;
  }
  launch.findings = std::move(all);
}

}  // namespace cgp::emu
