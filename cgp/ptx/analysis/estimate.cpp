// SPDX-License-Identifier: Apache-2.0
#include "cgp/ptx/analysis/estimate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cgp/ptx/analysis/assign.h"
#include "cgp/ptx/analysis/estimate_values.h"
#include "cgp/ptx/pressure.h"

namespace cgp::ptx {
namespace {

// What a schedule is made with, by experience with ptxas.
constexpr int kTarget = 64;             ///< live registers below which latency alone decides the order
constexpr std::size_t kLongest = 6000;  ///< operations of a chain that are reordered
constexpr int kHeld = 8;                ///< operations for which a store keeps its sources
constexpr int kFew = 24;                ///< live registers up to which ptxas does not save
constexpr int kReserved = 2;            ///< ptxas counts two more than it gives out
constexpr int kCalls = 24;              ///< what the calling convention takes

// Fitted to ptxas 13.0 over the corpus and 420 kernels of this repository (docs/analyses.md).
constexpr double kAlways = 0.637;
constexpr double kWritten = 0.321, kWrittenBeyondFew = 0.566;
constexpr double kScheduled = 0.398, kScheduledBeyondFew = -0.406;
constexpr double kHeldLive = 1.449;  ///< for each doubling of what is live with the sources of stores
constexpr double kSize = 0.784;      ///< for each doubling of the number of instructions
constexpr double kLoop = 1.145, kUnrolled = 4.789, kWgmma = 2.685;  ///< when there are any
constexpr double kDivision = 0.391, kCondition = -1.009, kVector = 0.199, kManyFunctions = 0.536;
constexpr double kGlobalStore = 0.541, kStore = -1.802, kStores = 0.739, kLoads = 0.146;

/// Live registers of a function, at its worst places.
struct Live {
  int written = 0, scheduled = 0, held = 0;
  bool loops = false, unrolled = false;
};

Live find_live(const Function& f) {
  RegisterValues v(f);
  Live live;
  for (BlockId b : v.cfg().order) {
    const auto [ops, values] = v.operations({{b, false}}, 1);
    std::vector<std::uint32_t> order(ops.size());
    std::iota(order.begin(), order.end(), 0u);
    live.written = std::max(live.written, most_live(ops, order, values));
    for (BlockId next : v.cfg().blocks[b].successors) live.loops = live.loops || v.cfg().dominates(next, b);
  }
  for (const auto& chain : v.chains()) {
    const int times = v.rounds(chain);
    live.unrolled = live.unrolled || times > 1;
    const auto [ops, values] = v.operations(chain, times);
    if (ops.size() > kLongest) continue;
    const auto order = schedule(ops, values, std::max(kTarget, live.written));
    live.scheduled = std::max(live.scheduled, most_live(ops, order, values));
    live.held = std::max(live.held, most_live_held(ops, order, values, kHeld));
  }
  return live;
}

double doublings(double n) { return std::log2(1 + n); }

/// Registers that depend on what instructions there are.
double extra(const Function& f, const Cfg& c) {
  bool wgmma = false;
  int divisions = 0, functions = 0, vectors = 0, conditions = 0, global_stores = 0, loads = 0, stores = 0;
  for (const Inst& i : f.body) {
    wgmma = wgmma || family(i.op) == Family::wgmma;
    vectors += i.has(Mod::v2) || i.has(Mod::v4);
    conditions += i.op == Op::setp;
    global_stores += i.op == Op::st && !i.has(Mod::param) && !i.has(Mod::local) && !i.has(Mod::shared) &&
                     !i.has(Mod::shared_cta) && !i.has(Mod::shared_cluster);
    switch (i.op) {
      case Op::div:
      case Op::rem:
        ++(is_float(i.type()) ? functions : divisions);
        break;
      case Op::rcp:
      case Op::rsqrt:
      case Op::sqrt:
      case Op::sin:
      case Op::cos:
      case Op::lg2:
      case Op::ex2:
      case Op::tanh:
        ++functions;
        break;
      default:
        break;
    }
  }
  for (BlockId b : c.order) {  // of the block that has most
    int ld = 0, st = 0;
    for (std::uint32_t i = c.blocks[b].first; i < c.blocks[b].last; ++i) {
      ld += f.body[i].op == Op::ld && !f.body[i].has(Mod::param);
      st += f.body[i].op == Op::st && !f.body[i].has(Mod::param);
    }
    loads = std::max(loads, ld), stores = std::max(stores, st);
  }
  return (wgmma ? kWgmma : 0) + kDivision * divisions + kCondition * doublings(conditions) +
         kVector * std::min(vectors, 14) + kManyFunctions * std::max(functions - 24, 0) +
         kGlobalStore * std::sqrt(global_stores) + (stores ? kStore : 0) + kStores * doublings(stores) +
         kLoads * loads + kSize * doublings(double(f.body.size()));
}

/// The highest register of any chain, in an order that has loads early while few values are live.
int simulate(const Function& f, int sm) {
  RegisterValues v(f, true, sm);
  int most = 0;
  for (const auto& chain : v.chains()) {
    const auto [ops, values] = v.operations(chain, v.rounds(chain));
    if (ops.size() > kLongest) return 0;
    most = std::max(most, assigned_registers(ops, schedule(ops, values, kFew), values));
  }
  return most + kReserved;
}

/// Pairs of registers begin at even numbers, and nearly every kernel has one: small counts are even.
int whole(double n) { return n < 32 ? std::max(6, 2 * int(n / 2 + 0.5)) : int(n + 0.5); }

}  // namespace

RegisterEstimate estimate_registers(const Function& f, int sm) {
  RegisterEstimate e;
  e.limit = pressure(f).limit;
  if (f.body.empty()) return e;
  const Live live = find_live(f);
  e.as_written = live.written;
  e.scheduled = std::max(live.written, live.scheduled);
  // setmaxnreg moves registers between warps: the kernel starts with all that its block may have.
  int asked = 0;
  for (const Inst& i : f.body)
    if (i.op == Op::setmaxnreg && !i.operands.empty()) asked = std::max(asked, int(i.operands[0].imm));
  if (asked) {
    e.registers = e.limit < 255 ? e.limit : asked;
    return e;
  }
  double n = kAlways + kWritten * live.written + kWrittenBeyondFew * std::max(live.written - kFew, 0) +
             kScheduled * live.scheduled + kScheduledBeyondFew * std::max(live.scheduled - kFew, 0) +
             kHeldLive * doublings(live.held) + (live.loops ? kLoop : 0) + (live.unrolled ? kUnrolled : 0) +
             extra(f, build_cfg(f));
  // Where few are needed, which register is taken decides; the constants alone are right on average only.
  if (const int simulated = n < 2 * kFew ? simulate(f, sm) : 0; simulated && (n + simulated) / 2 <= kFew)
    n = (n + 2 * simulated) / 3;
  const bool calls =
      std::any_of(f.body.begin(), f.body.end(), [](const Inst& i) { return i.op == Op::call; });
  e.registers = std::min(e.limit, std::max(calls ? kCalls : 0, whole(n)));
  e.spilled = std::max(0, e.as_written - e.limit);
  return e;
}

}  // namespace cgp::ptx
