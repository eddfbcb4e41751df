// SPDX-License-Identifier: Apache-2.0
#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/core/finish_checks_impl.h"
#include "cgp/ptx/analysis/barriers.h"
#include "cgp/ptx/analysis/registers.h"
#include "cgp/ptx/analysis/spaces.h"
#include "cgp/ptx/print.h"

namespace cgp::dsl {
namespace {

/// Longer bodies take the analysis of values some ten milliseconds; `cgp explain` has that time.
constexpr std::size_t kShort = 1000;

[[noreturn]] void refuse(const ptx::Module& m, const ptx::Function& f, ptx::Bug bug, std::uint32_t inst,
                         const std::string& why) {
  const ptx::BugClass& c = ptx::bug_class(bug);
  std::string where;
  for (std::uint32_t i = inst + 1; i-- > 0 && where.empty();) {
    if (f.body[i].loc == ptx::kNone) continue;
    const ptx::Loc& at = m.locs[f.body[i].loc];
    for (const auto& [number, path] : m.files)
      if (number == at.file) where = text::cat(path, ":", at.line);
  }
  throw BuildError({text::cat(c.title, " [", c.code, "]"), where,
                    text::cat(ptx::print(m, f, f.body[inst]), " ", why), std::string(c.hint)});
}

}  // namespace

void check_analyses(const ptx::Module& m, const ptx::Function& f) {
  const ptx::Cfg c = ptx::build_cfg(f);
  const ptx::Ssa s = ptx::build_ssa(f, c, ptx::liveness(f, c));
  for (const auto& u : ptx::uninitialised_reads(f, c, s))
    if (u.on_every_path)
      refuse(m, f, ptx::Bug::B07, u.inst, text::cat(f.regs[u.reg].name, " is never written before"));
  for (const auto& x : ptx::space_mismatches(f, c, ptx::Pointers(m, f, c, s)))
    refuse(m, f, ptx::Bug::B10, x.inst, x.why);
  if (!f.reqntid || f.body.size() > kShort) return;
  ptx::LaunchAssumptions a;
  a.block = *f.reqntid;
  a.cluster = f.reqnctapercluster;
  if (a.threads() == 0 || a.threads() > 1024) return;  // the launch will say so
  const ptx::ThreadValues values(m, f, c, s, a);
  for (const auto& x : ptx::check_collectives(values))
    if (x.verdict == ptx::Verdict::unsafe && ptx::bug_class(x.bug).severity == ptx::Severity::P0)
      refuse(m, f, x.bug, x.inst, x.why);
}

}  // namespace cgp::dsl
