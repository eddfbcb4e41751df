// SPDX-License-Identifier: Apache-2.0
#include "cgp/spec/policies.h"

#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/emu/finding_class.h"

namespace cgp::spec {
namespace {

using text::cat;

/// The finding for two results of one buffer; nothing when they are the same.
std::optional<LocatedFinding> difference(const PolicyBuffer& got, const PolicyBuffer& want,
                                         const std::string& policy, const std::string& first) {
  if (got.data.bytes == want.data.bytes) return std::nullopt;
  const Compare::Mode mode = want.how.mode == Compare::Mode::multiset ? want.how.mode : Compare::Mode::exact;
  const Comparison bits = compare({mode, 0, 0}, want.data.dtype, got.data.bytes, want.data.bytes);
  if (bits.equal) return std::nullopt;  // NaNs of another payload, or another order that the spec allows
  const bool accepted = want.how.mode == Compare::Mode::abs_rel &&
                        compare(want.how, want.data.dtype, got.data.bytes, want.data.bytes).equal;
  LocatedFinding f;
  f.finding.cls = "policy.result";
  f.finding.severity = accepted ? emu::Severity::note : emu::find_class("policy.result")->severity;
  f.finding.message = cat("'", want.name, "' differs in ", text::grouped(bits.wrong), " of ",
                          text::grouped(bits.elements), " elements: element ", bits.first, " is ",
                          bits.first_got, " under ", policy, ", ", bits.first_want, " under ", first);
  if (accepted) {
    f.finding.message += ", within the tolerance of the comparison";
    f.finding.hint = "a sum whose order is left to chance; make the order fixed if the bits matter";
  }
  f.finding.buffer = want.name;
  f.finding.byte_offset = std::int64_t(bits.first * std::uint64_t(cgp::bytes(want.data.dtype)));
  return f;
}

}  // namespace

void PolicyRuns::add(const Policy& policy, const std::vector<LocatedFinding>& found,
                     std::vector<PolicyBuffer> buffers, const std::string& fault) {
  PolicyOutcome o;
  o.policy = policy.arguments();
  o.fault = fault;
  std::vector<LocatedFinding> all = found;
  if (outcomes.empty()) {
    first_ = std::move(buffers);
  } else if (fault.empty() && outcomes[0].fault.empty()) {
    for (const PolicyBuffer& b : buffers) {
      const auto want =
          std::find_if(first_.begin(), first_.end(), [&](const PolicyBuffer& x) { return x.name == b.name; });
      if (want == first_.end()) continue;
      if (auto f = difference(b, *want, o.policy, outcomes[0].policy)) {
        o.agrees = false;
        all.push_back(std::move(*f));
      }
    }
  }
  o.findings = count_text(all);
  merge(findings, all, o.policy);
  outcomes.push_back(std::move(o));
  for (LocatedFinding& f : findings) f.policies_run = outcomes.size();
}

std::string policies_text(const std::vector<PolicyOutcome>& outcomes, const Style& style) {
  const Paint paint(style.color);
  std::string out;
  bool same = true;
  for (const auto& o : outcomes)
    same = same && o.agrees && o.fault.empty() && o.findings == outcomes[0].findings;
  if (same)
    return cat(paint.good("ok"), " ", outcomes.size(), " policies agree bit for bit: ", outcomes[0].findings,
               "\n");
  std::size_t widest = 0;
  for (const auto& o : outcomes) widest = std::max(widest, o.policy.size());
  for (const auto& o : outcomes)
    out += cat("  ", o.policy, std::string(widest - o.policy.size() + 2, ' '),
               !o.fault.empty() ? paint.bad("gave up     ")
               : o.agrees       ? std::string("same result ")
                                : paint.bad("other result"),
               "  ", o.findings, "\n");
  return out;
}

}  // namespace cgp::spec
