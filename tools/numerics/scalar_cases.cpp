// SPDX-License-Identifier: Apache-2.0
// Instructions that compute from registers to registers within a lane: arithmetic, logic, comparisons,
// conversions, carry chains, video.
#include <set>

#include "cgp/base/text.h"
#include "corpus.h"

namespace cgp::numerics {
namespace {

using ptx::Mod;
using ptx::Op;
using text::cat;
using Kind = ptx::OperandPattern::Kind;
using TypeFrom = ptx::OperandPattern::Type;

bool computes(Op op) {
  switch (ptx::family(op)) {
    case ptx::Family::integer:
    case ptx::Family::floating:
    case ptx::Family::half_precision:
    case ptx::Family::logic:
    case ptx::Family::compare:
    case ptx::Family::video:
      return true;
    case ptx::Family::move:
      return op == Op::mov || op == Op::cvt || op == Op::cvt_pack;
    default:
      return false;
  }
}

// Constants to try of an operand: both ends of each range and some between.
std::vector<std::int64_t> constants(const ptx::OperandPattern& p) {
  std::set<std::int64_t> out;
  for (const auto& r : p.ranges)
    for (std::int64_t k = 0; k <= 12; ++k)
      out.insert(r.first + (r.last - r.first) / r.step * k / 12 * r.step);
  return {out.begin(), out.end()};
}

struct Builder {
  const Instance& i;
  Case c;
  std::string operands, before, after;
  int bits16 = 0;  // bits of all sources, to see whether all patterns can be tried

  static int register_bits(Mod type, bool wider) {
    const int b = ptx::type_bits(type);
    return b == 64 ? 64 : b <= 16 && b >= 8 && !wider ? b : 32;
  }
  void comma() {
    if (!operands.empty()) operands += ", ";
  }
  void predicate_output(const std::string& reg) {
    before += cat(".reg .pred ", reg, ";\n");
    after += cat("selp.b32 %o", c.outputs.size(), "_0, 1, 0, ", reg, ";\n");
    c.outputs.push_back({Mod::pred, 32, 1});
  }
  void predicate_input(const std::string& reg, int role) {
    before += cat(".reg .pred ", reg, ";\nsetp.ne.u32 ", reg, ", %i", c.inputs.size(), "_0, 0;\n");
    c.inputs.push_back({Draw::bit, Mod::b32, role, 32, 1});
    bits16 += 16;
  }
  // False: the operand is none that a lane computes with.
  bool operand(const ptx::OperandPattern& p, std::int64_t constant) {
    const Mod type = ptx::operand_type(p, i.mods);
    if (ptx::operand_count(p, i.mods) > 0) return false;
    comma();
    switch (p.kind) {
      case Kind::dest: {
        if (type == ptx::kNoMod || ptx::type_bits(type) > 64) return false;
        const int n = int(c.outputs.size());
        operands += cat("%o", n, "_0");
        const bool wider = p.wider && ptx::operand_type(i.form->operands[1], i.mods) != Mod::bf16;
        c.outputs.push_back({type, register_bits(type, wider), 1});
        if (p.dual) {
          operands += "|%q";
          predicate_output("%q");
        }
        return true;
      }
      case Kind::source:
      case Kind::reg:
      case Kind::mov: {
        if (type == ptx::kNoMod || type == Mod::pred || ptx::type_bits(type) > 64) return false;
        const int role = int(c.inputs.size());
        operands += cat("%i", role, "_0");
        // ptxas wants registers of exactly the type in a conversion to bf16.
        const bool wider = p.wider && ptx::operand_type(i.form->operands[0], i.mods) != Mod::bf16;
        c.inputs.push_back({Draw::scalar, type, role, register_bits(type, wider), 1});
        bits16 += ptx::type_bits(type);
        return true;
      }
      case Kind::pred_dest:
        operands += "%p";
        predicate_output("%p");
        if (p.dual) {
          operands += "|%q";
          predicate_output("%q");
        }
        return true;
      case Kind::pred:
      case Kind::pred_not:
        operands += cat("%s", c.inputs.size());
        predicate_input(cat("%s", c.inputs.size()), int(c.inputs.size()));
        return true;
      case Kind::imm:
        operands += cat(constant);
        c.key += cat(" ", constant);
        return true;
      default:
        return false;
    }
  }
};

// add.cc and its relatives: the carry comes in from an input and goes out to an output. The carry of a chain
// of additions and the borrow of one of subtractions are not mixed: PTX does not define that.
void carry_chain(Builder& b) {
  const std::string_view op = ptx::name(b.i.form->op);
  const bool borrow = op.substr(0, 3) == "sub";
  const bool out = op.size() > 3 && op.substr(op.size() - 3) == ".cc" ? true : b.i.mods.has(Mod::cc);
  b.before += cat(".reg .b32 %cc;\n", borrow ? "sub.cc.u32 %cc, 0, %i" : "add.cc.u32 %cc, %i",
                  b.c.inputs.size(), "_0", borrow ? "" : ", 0xffffffff", ";\n");
  b.c.inputs.push_back({Draw::bit, Mod::b32, 3, 32, 1});
  if (!out) return;
  b.after += cat(borrow ? "subc.u32 %o" : "addc.u32 %o", b.c.outputs.size(), "_0, 0, 0;\n");
  b.c.outputs.push_back({Mod::b32, 32, 1});
}

bool uses_carry(const Instance& i) {
  switch (i.form->op) {
    case Op::add_cc:
    case Op::addc:
    case Op::addc_cc:
    case Op::sub_cc:
    case Op::subc:
    case Op::subc_cc:
    case Op::madc:
      return true;
    default:
      return i.mods.has(Mod::cc);
  }
}

// Packing and unpacking movs have no pattern for their elements: written by hand.
void add_packs(Corpus& corpus) {
  struct Pack {
    int bits, n;
  };
  for (const Pack p : {Pack{32, 2}, Pack{64, 2}, Pack{64, 4}}) {
    const int part = p.bits / p.n;
    const Mod element = part == 16 ? Mod::b16 : Mod::b32, whole = p.bits == 32 ? Mod::b32 : Mod::b64;
    for (const bool pack : {true, false}) {
      Case c;
      c.family = "scalar";
      c.op = Op::mov;
      c.key = cat("mov.b", p.bits, pack ? " pack " : " unpack ", p.n);
      std::string vector = "{";
      for (int k = 0; k < p.n; ++k) vector += cat(k ? ", " : "", pack ? "%i0_" : "%o0_", k);
      vector += "}";
      c.body = pack ? cat("mov.b", p.bits, " %o0_0, ", vector, ";\n")
                    : cat("mov.b", p.bits, " ", vector, ", %i0_0;\n");
      const Input parts{Draw::scalar, element, 0, part, p.n}, one{Draw::scalar, whole, 0, p.bits, 1};
      c.inputs.push_back(pack ? parts : one);
      c.outputs.push_back(pack ? Output{whole, p.bits, 1} : Output{element, part, p.n});
      corpus.cases.push_back(c);
    }
  }
}

// More inputs for forms that the others say too little of: results next to the smallest normal number where
// .ftz flushes, and every pattern as a factor of fma.oob.
void add_closer_looks(Corpus& corpus) {
  std::vector<Case> more;
  for (const Case& c : corpus.cases) {
    const bool flushes = c.key.find(".ftz") != c.key.npos && !c.approximate;
    if (flushes &&
        (c.op == Op::mul || c.op == Op::fma || c.op == Op::mad || c.op == Op::div || c.op == Op::rcp)) {
      more.push_back(c);
      more.back().key += " small";
      for (Input& i : more.back().inputs) i.draw = Draw::small;
      more.back().cases = 4096;
    }
    if (c.key.find("fma.rn.oob") != c.key.npos) {
      more.push_back(c);
      more.back().key += " all";
      more.back().inputs[0].draw = Draw::all16;
      more.back().cases = 65536;
    }
  }
  for (Case& c : more) corpus.cases.push_back(std::move(c));
}

}  // namespace

void add_scalar_cases(Corpus& corpus) {
  std::set<std::string> seen;
  for (std::size_t k = 0; k < std::size_t(Op::kCount); ++k) {
    const Op op = Op(k);
    if (!computes(op)) continue;
    for (const ptx::Form& form : ptx::forms(op))
      for (const Instance& i : instances(form)) {
        std::vector<std::int64_t> tries{0};
        for (const auto& p : form.operands)
          if (p.kind == Kind::imm) tries = constants(p);
        for (const std::int64_t constant : tries) {
          Builder b{i, {}, {}, {}, {}, 0};
          b.c.key = i.text;
          b.c.family = "scalar";
          b.c.op = op;
          bool ok = true;
          for (const auto& p : form.operands) ok = ok && b.operand(p, constant);
          if (!ok || !seen.insert(b.c.key).second) continue;
          if (!runs_on_hopper(i)) {
            corpus.not_measured.push_back(b.c.key);
            continue;
          }
          if (uses_carry(i)) carry_chain(b);
          if (b.c.inputs.size() == 1 && b.bits16 <= 16) {
            b.c.inputs[0].draw = Draw::all16;
            b.c.cases = 65536;
          }
          for (Mod m : i.mods) b.c.approximate |= m == Mod::approx || m == Mod::full;
          b.c.body = b.before + i.text + " " + b.operands + ";\n" + b.after;
          corpus.cases.push_back(std::move(b.c));
        }
      }
  }
  add_packs(corpus);
  add_closer_looks(corpus);
}

}  // namespace cgp::numerics
