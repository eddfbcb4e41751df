// SPDX-License-Identifier: Apache-2.0
// Forms of the table to instructions.
#include <set>

#include "cgp/base/text.h"
#include "corpus.h"

namespace cgp::numerics {

std::vector<Instance> instances(const ptx::Form& form) {
  std::vector<Instance> out;
  std::vector<ptx::Mods> all{{}};
  for (const ptx::ModSlot& slot : form.slots) {
    std::vector<ptx::Mods> next;
    for (const ptx::Mods& m : all) {
      if (slot.optional) next.push_back(m);
      for (const auto& alternative : slot.alternatives) {
        ptx::Mods longer = m;
        for (ptx::Mod x : alternative) longer.push_back(x);
        next.push_back(longer);
      }
    }
    all = std::move(next);
  }
  std::set<std::string> seen;
  for (const ptx::Mods& m : all) {
    std::string s{ptx::name(form.op)};
    for (ptx::Mod x : m) s += text::cat(".", ptx::name(x));
    if (seen.insert(s).second) out.push_back({&form, m, s});
  }
  return out;
}

bool runs_on_hopper(const Instance& i) {
  const ptx::Target hopper{90, 'a'};
  auto met = [&](const ptx::Requirement& r) {
    if (r.version > ptx::Version{8, 7}) return false;
    if (r.targets.empty()) return true;
    for (const ptx::TargetCondition& c : r.targets)
      if (ptx::satisfies(hopper, c)) return true;
    return false;
  };
  if (!met(i.form->need)) return false;
  for (const auto& [mod, need] : i.form->mod_needs)
    if (i.mods.has(mod) && !met(need)) return false;
  return true;
}

std::vector<std::string> family_names() { return {"scalar", "warp", "atomic", "matrix", "wgmma"}; }

Corpus build_corpus(const std::string& family) {
  Corpus c;
  if (family.empty() || family == "scalar") add_scalar_cases(c);
  if (family.empty() || family == "warp") add_warp_cases(c);
  if (family.empty() || family == "atomic") add_atomic_cases(c);
  if (family.empty() || family == "matrix") add_matrix_cases(c);
  if (family.empty() || family == "wgmma") add_wgmma_cases(c);
  return c;
}

}  // namespace cgp::numerics
