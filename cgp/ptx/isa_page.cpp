// SPDX-License-Identifier: Apache-2.0
#include "cgp/ptx/isa_page.h"

#include "cgp/base/text.h"
#include "cgp/ptx/forms.h"

namespace cgp::ptx {
namespace {

// A table cell: no bar may end it, long lists of alternatives are cut in the middle.
std::string cell(std::string_view s) {
  std::string out;
  for (char c : s) out += c == '|' ? std::string("\\|") : std::string(1, c);
  constexpr std::size_t kLongest = 160;
  if (out.size() > kLongest) out = out.substr(0, kLongest - 40) + " ... " + out.substr(out.size() - 35);
  return out;
}

std::string need(const Requirement& r) {
  std::string s =
      r.version <= Version{1, 0} ? std::string("any") : text::cat(r.version.major, ".", r.version.minor);
  s += " | ";
  if (r.targets.empty()) return s + "all";
  for (std::size_t i = 0; i < r.targets.size(); ++i) s += text::cat(i ? ", " : "", name(r.targets[i]));
  return s;
}

std::string mod_needs(const Form& f) {
  std::string s;
  for (const auto& [mod, r] : f.mod_needs) {
    bool used = false;
    for (const ModSlot& slot : f.slots)
      for (const auto& a : slot.alternatives)
        for (Mod m : a) used |= m == mod;
    if (!used) continue;
    s += text::cat(s.empty() ? "" : "; ", "`.", name(mod), "` ", r.version.major, ".", r.version.minor);
    for (const TargetCondition& t : r.targets) s += text::cat(" ", name(t));
  }
  return s;
}

}  // namespace

std::string isa_markdown(const std::function<std::string(Op)>& note) {
  std::string out =
      "# PTX instructions\n\nGenerated from `cgp/ptx/opcodes.def`; do not edit. `{.x}` may be left out, `(.x "
      ".y)` is one "
      "of them. The operand letters are explained in `cgp/ptx/forms.h`.\n";
  for (int family_index = 0; family_index < int(Family::kCount); ++family_index) {
    bool any = false;
    for (int i = 0; i < int(Op::kCount); ++i) {
      if (family(Op(i)) != Family(family_index)) continue;
      if (!any) out += text::cat("\n## ", name(Family(family_index)), "\n");
      any = true;
      out += text::cat("\n### ", name(Op(i)), "\n\n");
      if (note)
        if (const std::string n = note(Op(i)); !n.empty()) out += text::cat(n, "\n\n");
      out +=
          "| modifiers | operands | PTX | targets | modifiers that need more |\n| --- | --- | --- | --- | "
          "--- |\n";
      for (const Form& f : forms(Op(i)))
        out += text::cat("| ", f.modifiers_text.empty() ? std::string() : "`" + cell(f.modifiers_text) + "`",
                         " | ", f.operands_text.empty() ? std::string() : "`" + cell(f.operands_text) + "`",
                         " | ", need(f.need), " | ", mod_needs(f), " |\n");
    }
  }
  return out;
}

}  // namespace cgp::ptx
