// SPDX-License-Identifier: Apache-2.0
// One instruction against the forms of its opcode: modifiers, versions and targets.
#include <algorithm>
#include <bit>

#include "cgp/base/text.h"
#include "cgp/ptx/print.h"
#include "cgp/ptx/verify/verify_impl.h"

namespace cgp::ptx {

std::string version_text(Version v) { return text::cat(v.major, ".", v.minor); }

std::string requirement_text(const Requirement& r) {
  std::string s = text::cat("PTX ", version_text(r.version));
  for (std::size_t i = 0; i < r.targets.size(); ++i) s += text::cat(i ? " or " : " and ", name(r.targets[i]));
  return s;
}

void raise(Requirement& to, const Requirement& by) {
  to.version = std::max(to.version, by.version);
  if (by.targets.empty()) return;
  // Of two plain minima the higher one; a list of special targets is stricter than a minimum.
  auto strictness = [](const Requirement& r) {
    if (r.targets.empty()) return 0;
    const TargetCondition& c = r.targets[0];
    return c.suffix || c.last ? 1000 + c.sm : c.sm;
  };
  if (strictness(by) >= strictness(to)) to.targets = by.targets;
}

Requirement requirement_of(const Form& f, const Mods& mods) {
  Requirement r = f.need;
  for (const auto& [mod, need] : f.mod_needs)
    if (mods.has(mod)) raise(r, need);
  // These hold wherever the modifiers may stand.
  if (mods.has(Mod::b128) && mods.has(Mod::sys)) raise(r, {{8, 4}, {}});
  for (Mod m : mods) switch (m) {
      case Mod::shared_cta:
        if (f.op != Op::cp_async) raise(r, {{7, 8}, {}});
        break;
      case Mod::shared_cluster:
      case Mod::cluster:
        raise(r, {{7, 8}, {{90, 0, 0}}});
        break;
      case Mod::param_entry:
      case Mod::param_func:
        raise(r, {{8, 3}, {}});
        break;
      default:
        break;
    }
  return r;
}

std::optional<Requirement> requirement_of(Sreg s) {
  if (s >= Sreg::clusterid_x && s <= Sreg::cluster_nctaid_z) return Requirement{{7, 8}, {{90, 0, 0}}};
  switch (s) {
    case Sreg::cluster_ctarank:
    case Sreg::cluster_nctarank:
    case Sreg::is_explicit_cluster:
      return Requirement{{7, 8}, {{90, 0, 0}}};
    case Sreg::aggr_smem_size:
      return Requirement{{8, 1}, {{90, 0, 0}}};
    case Sreg::current_graph_exec:
      return Requirement{{8, 0}, {{50, 0, 0}}};
    case Sreg::reserved_smem_offset_begin:
    case Sreg::reserved_smem_offset_end:
    case Sreg::reserved_smem_offset_cap:
    case Sreg::reserved_smem_offset_0:
    case Sreg::reserved_smem_offset_1:
      return Requirement{{7, 6}, {{80, 0, 0}}};
    default:
      return std::nullopt;
  }
}

std::string InstVerifier::spelling(const Inst& i) {
  Module m;
  Function f;
  Inst bare;
  bare.op = i.op;
  bare.mods = i.mods;
  std::string s = print(m, f, bare);
  s.pop_back();  // the semicolon
  return s;
}

// ---------------------------------------------------------------- the whole instruction
bool InstVerifier::on_target(const Requirement& r) const {
  return target_ && (r.targets.empty() || std::any_of(r.targets.begin(), r.targets.end(),
                                                      [&](const auto& c) { return satisfies(*target_, c); }));
}

const std::vector<InstVerifier::Fitting>& InstVerifier::fitting_forms(const Inst& i) {
  auto [it, added] = spellings_.try_emplace(Spelling{i.op, i.mods});
  if (added)
    for (const Form& f : forms(i.op))
      if (match_modifiers(f, i.mods)) {
        Requirement need = requirement_of(f, i.mods);
        const bool here = on_target(need);
        it->second.push_back({&f, std::move(need), here});
      }
  return it->second;
}

namespace {

/// How an instruction's modifiers differ from a form's.
struct Misfit {
  const Form* form = nullptr;
  std::vector<Mod> extra;
  std::vector<const ModSlot*> missing;
  std::size_t cost() const { return extra.size() + missing.size(); }
};

// Takes the modifiers of an alternative out of `rest`. Types keep their order: cvt.f32.f16 is not
// cvt.f16.f32.
bool take(const std::vector<Mod>& alternative, std::vector<Mod>& rest) {
  std::vector<Mod> left = rest;
  for (Mod m : alternative) {
    auto it = std::find(left.begin(), left.end(), m);
    if (it == left.end()) return false;
    if (is_type(m) && std::find_if(left.begin(), left.end(), is_type) != it) return false;
    left.erase(it);
  }
  rest = std::move(left);
  return true;
}

Misfit misfit(const Form& f, const Mods& mods) {
  Misfit d{&f, {mods.begin(), mods.end()}, {}};
  for (const ModSlot& s : f.slots) {
    const bool found = std::any_of(s.alternatives.begin(), s.alternatives.end(),
                                   [&](const auto& alternative) { return take(alternative, d.extra); });
    if (!found && !s.optional) d.missing.push_back(&s);
  }
  return d;
}

std::string choices(const ModSlot& s) {
  std::string t;
  for (std::size_t k = 0; k < s.alternatives.size() && k < 12; ++k) {
    if (k) t += ' ';
    for (Mod m : s.alternatives[k]) t += text::cat(".", name(m));
  }
  return s.alternatives.size() > 12 ? t + " ..." : t;
}

std::string explain(const Misfit& d) {
  std::string why;
  for (Mod m : d.extra) why += text::cat(why.empty() ? "" : "; ", ".", name(m), " does not belong there");
  for (const ModSlot* s : d.missing)
    why += text::cat(why.empty() ? "" : "; ", s->alternatives.size() == 1 ? "missing " : "missing one of ",
                     choices(*s));
  return why;
}

}  // namespace

Problem InstVerifier::modifier_problem(const Inst& i) const {
  Problem p;
  Mods ordered;
  for (const Form& f : forms(i.op))
    if (match_unordered(f, i.mods, ordered)) {
      Inst good = i;
      good.mods = ordered;
      p.rule = text::cat("the modifiers of ", name(i.op), " stand in a fixed order");
      p.why = text::cat("found ", spelling(i));
      p.hint = text::cat("write ", spelling(good));
      return p;
    }
  p.rule = text::cat(spelling(i), " is not an instruction");
  // Explain by the form that needs the fewest changes.
  Misfit best;
  std::string lacks;  // div.f32 lacks .approx or .full or .rn ...: what equally near forms miss
  for (const Form& f : forms(i.op)) {
    Misfit d = misfit(f, i.mods);
    if (!best.form || d.cost() < best.cost()) {
      best = d;
      lacks.clear();
    }
    if (d.cost() == 1 && best.cost() == 1 && d.missing.size() == 1)
      if (const std::string more = choices(*d.missing[0]); lacks.find(more) == std::string::npos)
        lacks += text::cat(lacks.empty() ? "" : " ", more);
  }
  if (!best.form) return p;
  p.why = best.missing.size() == 1 && !lacks.empty() && lacks != choices(*best.missing[0])
              ? text::cat("missing one of ", lacks)
              : explain(best);
  std::string shown = best.form->modifiers_text;
  if (shown.size() > 200) shown = shown.substr(0, 200) + "...";
  p.hint = text::cat("the nearest form is ", name(i.op), shown, "  ", best.form->operands_text);
  return p;
}

Problem InstVerifier::operand_problem(const Inst& i, const Attempt& best) const {
  Problem p;
  if (i.op == Op::call)
    p.rule = "a call must match the signature of the function";
  else if (best.at >= i.operands.size())
    p.rule = text::cat("an operand of ", spelling(i), " is missing");
  else
    p.rule = text::cat("operand ", best.at + 1, " of ", spelling(i), " does not fit");
  p.why = best.why;
  p.hint = best.hint;
  if (p.hint.empty() && i.op != Op::call) {
    const Form* f = nullptr;
    for (const Form& g : forms(i.op))
      if (!f && match_modifiers(g, i.mods)) f = &g;
    if (f)
      p.hint = text::cat("the form is ", spelling(i), f->operands_text.empty() ? "" : "  ", f->operands_text);
  }
  return p;
}

// Rules between the constants of one instruction.
std::optional<Problem> InstVerifier::constant_problem(const Inst& i) const {
  auto constant = [&](std::size_t k) {
    return k < i.operands.size() && i.operands[k].kind == OperandKind::imm;
  };
  auto value = [&](std::size_t k) { return std::int64_t(i.operands[k].imm); };
  auto problem = [](std::string rule, std::string why) {
    return Problem{std::move(rule), {}, std::move(why), {}, 0, kNone};
  };
  switch (i.op) {
    case Op::bfe:
    case Op::bfi:
      for (std::size_t k = i.operands.size() - 2; k < i.operands.size(); ++k)
        if (constant(k) && (value(k) < 0 || value(k) > 255))
          return problem("the position and the length of a bit field are 0 to 255",
                         text::cat("operand ", k + 1, " is ", value(k)));
      break;
    case Op::shfl_sync:
      if (!options_.foreign && constant(2) && (value(2) < 0 || value(2) > 31))
        return problem("the lane or offset of a shuffle is below 32", text::cat("it is ", value(2)));
      break;
    case Op::cp_async:
      if (constant(2) && constant(3) && i.operands.size() == (i.has(Mod::L2_cache_hint) ? 5u : 4u) &&
          (value(3) < 0 || value(3) > value(2)))
        return problem("cp.async reads at most as many bytes as it writes",
                       text::cat("source size ", value(3), ", copy size ", value(2)));
      break;
    case Op::createpolicy_range:
      if (constant(2) && constant(3) && value(2) > value(3))
        return problem("the primary size of a range policy is at most its total size",
                       text::cat("primary ", value(2), ", total ", value(3)));
      break;
    case Op::createpolicy_fractional: {
      if (i.operands.size() < 2) break;
      const Operand& o = i.operands[1];
      double f = 1;
      if (o.kind == OperandKind::f32_imm) f = double(std::bit_cast<float>(std::uint32_t(o.imm)));
      if (o.kind == OperandKind::f64_imm) f = std::bit_cast<double>(o.imm);
      if (!(f > 0 && f <= 1))
        return problem("the fraction of a cache policy is above 0 and at most 1", text::cat("it is ", f));
      break;
    }
    default:
      break;
  }
  return std::nullopt;
}

// Unlike other conversions of integers, those from and to bf16 take no wider registers.
std::optional<Problem> InstVerifier::conversion_problem(const Inst& i) const {
  if (i.op != Op::cvt || i.mods.size() < 2 || i.operands.size() != 2) return std::nullopt;
  const Mod to = i.mods[i.mods.size() - 2], from = i.mods[i.mods.size() - 1];
  if ((to == Mod::bf16) == (from == Mod::bf16)) return std::nullopt;
  const Mod other = to == Mod::bf16 ? from : to;
  const Operand& o = i.operands[to == Mod::bf16 ? 1 : 0];
  if (is_float(other) || o.kind != OperandKind::reg || o.reg == kNone) return std::nullopt;
  const int have = type_bits(f_->regs[o.reg].type);
  if (have == type_bits(other)) return std::nullopt;
  return Problem{text::cat("a conversion between bf16 and .", name(other), " takes a register of ",
                           type_bits(other), " bits"),
                 {},
                 text::cat("register ", f_->regs[o.reg].name, " has ", have),
                 "convert to or from a wider integer, or through f32",
                 0,
                 kNone};
}

std::optional<Problem> InstVerifier::check(const Inst& i, Requirement* need) {
  auto located = [&](Problem p) {
    p.instruction = print(m_, *f_, i);
    p.ptx_line = i.ptx_line;
    p.loc = i.loc;
    return p;
  };
  if (i.guard != kNone && (i.guard >= f_->regs.size() || f_->regs[i.guard].type != Mod::pred))
    return located({"a guard @%p is a .pred register", {}, {}, "compare with setp first", 0, kNone});
  const auto& fitting = fitting_forms(i);
  if (fitting.empty()) return located(modifier_problem(i));
  Attempt best;
  std::optional<Requirement> lowest;
  int rank = -1;  // 1: the target has it, 2: at this version already
  for (const Fitting& x : fitting) {
    Attempt a;
    if (!operands_fit(*x.form, i, 0, 0, a)) {
      if (a.at > best.at || best.why.empty()) best = std::move(a);
      continue;
    }
    Requirement r = x.need;
    bool special = false;
    for (const Operand& o : i.operands)
      if (o.kind == OperandKind::sreg)
        if (auto more = requirement_of(o.sreg)) raise(r, *more), special = true;
    const bool there = special ? on_target(r) : x.on_target;
    const int here = there ? 1 + int(m_.version >= r.version) : 0;
    if (here > rank || (here == rank && r.version < lowest->version)) lowest = std::move(r);
    rank = std::max(rank, here);
  }
  if (!lowest) return located(operand_problem(i, best));
  if (need) *need = *lowest;
  newest_ = std::max(newest_, lowest->version);
  if (!target_ || rank == 2) {
    if (auto p = constant_problem(i)) return located(std::move(*p));
    if (auto p = conversion_problem(i)) return located(std::move(*p));
    return std::nullopt;
  }
  Problem p;
  p.rule = text::cat(spelling(i), " needs ", requirement_text(*lowest));
  p.why = text::cat("the module is PTX ", version_text(m_.version), " for ", m_.target);
  const bool version = m_.version < lowest->version;
  p.hint = version ? text::cat("raise .version to ", version_text(lowest->version)) : "choose another target";
  return located(std::move(p));
}

}  // namespace cgp::ptx
