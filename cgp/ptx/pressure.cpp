// SPDX-License-Identifier: Apache-2.0
#include "cgp/ptx/pressure.h"

#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/ptx/liveness.h"
#include "cgp/ptx/print.h"

namespace cgp::ptx {
namespace {

void count(RegisterCount& c, Mod type, int by) {
  switch (type_bits(type)) {
    case 1:
      c.pred += by;
      break;
    case 64:
      c.b64 += by;
      break;
    case 128:
      c.b128 += by;
      break;
    case 32:
      c.b32 += by;
      break;
    default:
      c.b16 += by;
      break;
  }
}

int register_limit(const Function& f) {
  int limit = 255;
  if (f.maxnreg) limit = std::min(limit, int(*f.maxnreg));
  const auto& shape = f.reqntid ? f.reqntid : f.maxntid;
  if (shape) {
    const std::uint64_t threads = std::uint64_t((*shape)[0]) * (*shape)[1] * (*shape)[2];
    const std::uint64_t blocks = f.minnctapersm ? std::max(1u, *f.minnctapersm) : 1;
    const std::uint64_t warps = (threads + 31) / 32 * blocks;
    // 65536 registers, given to warps in units of 256: 8 per thread
    if (warps) limit = std::min(limit, std::max(16, int(65536 / 32 / warps / 8 * 8)));
  }
  return limit;
}

}  // namespace

PressureReport pressure(const Function& f) {
  PressureReport r;
  r.limit = register_limit(f);
  const Cfg c = build_cfg(f);
  const Liveness l = liveness(f, c);
  std::vector<RegisterUse> uses;
  for (BlockId b = 0; b < c.blocks.size(); ++b) {
    if (!c.blocks[b].reachable) continue;
    RegisterSet live = l.out[b];
    RegisterCount now;
    for (RegId reg : live.list()) count(now, f.regs[reg].type, 1);
    for (std::uint32_t i = c.blocks[b].last; i-- > c.blocks[b].first;) {
      registers_of(f.body[i], uses);
      // At the instruction both what it writes and what lives across it need a place.
      for (const RegisterUse& u : uses)
        if (u.written && !live.has(u.reg)) {
          live.add(u.reg);
          count(now, f.regs[u.reg].type, 1);
        }
      auto note = [&] {
        r.largest.pred = std::max(r.largest.pred, now.pred);
        r.largest.b16 = std::max(r.largest.b16, now.b16);
        r.largest.b32 = std::max(r.largest.b32, now.b32);
        r.largest.b64 = std::max(r.largest.b64, now.b64);
        r.largest.b128 = std::max(r.largest.b128, now.b128);
        if (now.total() > r.at_peak.total() || r.peak == kNone) {
          r.at_peak = now;
          r.peak = i;
        }
      };
      note();
      for (const RegisterUse& u : uses)
        if (u.written && !u.read && f.body[i].guard == kNone && live.has(u.reg)) {
          live.remove(u.reg);
          count(now, f.regs[u.reg].type, -1);
        }
      for (const RegisterUse& u : uses)
        if (u.read && !live.has(u.reg)) {
          live.add(u.reg);
          count(now, f.regs[u.reg].type, 1);
        }
      note();
    }
  }
  if (r.peak != kNone) {
    r.ptx_line = f.body[r.peak].ptx_line;
    r.loc = f.body[r.peak].loc;
  }
  r.excess = std::max(0, r.at_peak.total() - r.limit);
  r.utilisation = double(r.at_peak.total()) / r.limit;
  return r;
}

std::string describe(const Module& m, const Function& f, const PressureReport& r) {
  std::string s =
      text::cat(m.text(f.name), ": ", r.at_peak.total(), " of ", r.limit, " registers live at once (",
                r.at_peak.b32, " x 32 bit, ", r.at_peak.b64, " x 64 bit, ", r.at_peak.b16, " x 16 bit, ",
                r.at_peak.b128, " x 128 bit; ", r.largest.pred, " predicates at most)");
  if (r.peak != kNone) {
    s += "\n  at ";
    if (r.ptx_line) s += text::cat("line ", r.ptx_line, ": ");
    s += print(m, f, f.body[r.peak]);
  }
  if (r.excess)
    s +=
        text::cat("\n  ", r.excess,
                  " too many: expect spills to local memory; use smaller tiles or fewer elements per thread");
  return s;
}

Family family(const Inst& i) {
  const Family f = family(i.op);
  if (f != Family::integer && f != Family::floating) return f;
  switch (i.type(i.op == Op::cvt ? 1 : 0)) {
    case Mod::f16:
    case Mod::bf16:
    case Mod::f16x2:
    case Mod::bf16x2:
      return Family::half_precision;
    case Mod::f32:
    case Mod::f64:
    case Mod::f32x2:
      return Family::floating;
    default:
      return f;
  }
}

Mix mix(const Function& f) {
  Mix m;
  Module none;
  Function empty;
  for (const Inst& i : f.body) {
    ++m.by_family[std::size_t(family(i))];
    ++m.total;
    Inst bare;
    bare.op = i.op;
    bare.mods = i.mods;
    std::string s = print(none, empty, bare);
    s.pop_back();
    ++m.by_opcode[std::move(s)];
  }
  return m;
}

}  // namespace cgp::ptx
