// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/mma/wgmma.h"

#include <map>

namespace cgp::dsl::record {
using ptx::Mod;
using ptx::Op;
using ptx::Operand;

namespace {

/// The descriptors of one operand: base address and constant part are combined once, the rest is additions.
class Descriptors {
 public:
  Descriptors(Kernel& k, const WgmmaOperand& o, int block)
      : k_(k), block_(block), tile_(o.tile), major_(o.major) {
    if (!o.address) return;
    const Swizzle s = tile_.swizzle == Swizzle::none ? Swizzle::b16 : tile_.swizzle;
    layout_ = operand_layout(major_, s, std::uint32_t(tile_.panel_rows));
    offset_ = o.address->offset;
    const Value start = k.op(Op::bfe, {Mod::u32}, Mod::u32,
                             {o.address->base, Value::literal(4, Mod::u32), Value::literal(14, Mod::u32)});
    const Value wide = k.op(Op::cvt, {Mod::u64, Mod::u32}, Mod::u64, {start});
    base_.emplace(
        k.op(Op::or_, {Mod::b64}, Mod::u64, {wide, Value::literal(layout_.fixed.encode(), Mod::u64)}));
  }
  /// Of block `i` along M or N (`block` elements each) and K step `step`.
  Value at(int i, int step) {
    const int bytes = offset_ + block_offset(i) + step_offset(step);
    if (bytes == 0) return *base_;
    const auto found = made_.find(bytes);
    if (found != made_.end()) return found->second;
    // The address field cannot carry into the next one: shared memory ends below 2^18 bytes.
    const Value d =
        k_.op(Op::add, {Mod::u64}, Mod::u64, {*base_, Value::literal(std::uint64_t(bytes) >> 4, Mod::u64)});
    made_.emplace(bytes, d);
    return d;
  }

 private:
  int block_offset(int i) const {
    if (major_ == Major::k) return i * block_ * tile_.span();
    const int elements = i * block_;
    if (elements % tile_.panel_cols() != 0)
      throw BuildError("an MN-major operand is cut at panel boundaries", k_.here(),
                       text::cat("column ", elements, " of panels of ", tile_.panel_cols()),
                       "use a narrower swizzle for this tile");
    return elements / tile_.panel_cols() * tile_.panel_bytes();
  }
  int step_offset(int step) const {
    if (layout_.k_steps_per_panel == 0) return step * int(layout_.k_step);
    const int per = int(layout_.k_steps_per_panel);
    return step % per * int(layout_.k_step) + step / per * int(layout_.panel);
  }
  Kernel& k_;
  int block_;
  TileLayout tile_;
  Major major_;
  OperandLayout layout_;
  int offset_ = 0;
  std::optional<Value> base_;
  std::map<int, Value> made_;
};

Mod shape_mod(int n, int k) {
  const auto m = ptx::parse_mod(text::cat("m64n", n, "k", k));
  if (!m) throw BuildError("wgmma has no such shape", Here::now(), text::cat("m64n", n, "k", k));
  return *m;
}

Operand registers(Kernel& k, const std::vector<Value>& v, int from, int count) {
  std::vector<Operand> list;
  list.reserve(std::size_t(count));
  for (int i = 0; i < count; ++i) list.push_back(k.in_register(v[std::size_t(from + i)]));
  return Operand::vec(std::move(list));
}

}  // namespace

std::size_t wgmma_group(Kernel& k, const WgmmaGroup& g, const WgmmaOperand& a, const WgmmaOperand& b,
                        const std::vector<Value>& acc, const ScaleD& first, Here at) {
  k.at(at);
  k.collective("wgmma.mma_async", Uniform::warpgroup, at);
  if (k.sm() != 90 || !k.arch_specific())
    throw BuildError("wgmma exists on sm_90a only", at, text::cat("the kernel is built for ", k.target()));
  const int whole = wgmma_n(g.n), parts = g.n / whole, blocks = g.m / 64, all_steps = g.k / g.k_inst;
  const int n = g.part.columns ? g.part.columns : whole;
  const int steps = g.part.depth ? g.part.depth / g.k_inst : all_steps;
  if (g.part.depth % g.k_inst || steps > all_steps || (g.part.columns && parts > 1) || n > whole ||
      !wgmma_legal(g.a, g.b, g.d, n, a.major, b.major))
    throw BuildError(
        "a part of a product is whole instructions of it", at,
        text::cat(g.part.depth, " of ", g.k, " deep, ", g.part.columns, " of ", g.n, " columns"));
  const int regs = int(acc.size()) / (blocks * parts), used = regs / (whole / 8) * (n / 8);
  const bool b16 = g.k_inst == 16, integer = g.d == Mod::s32;
  Descriptors da(k, a, 64), db(k, b, n);
  const ptx::Mods mods{Mod::sync, Mod::aligned, shape_mod(n, g.k_inst), g.d, g.a, g.b};
  k.inst(Op::wgmma_fence, {Mod::sync, Mod::aligned}, {});
  for (int step = 0; step < steps; ++step)
    for (int i = 0; i < blocks; ++i)
      for (int j = 0; j < parts; ++j) {
        std::vector<Operand> o{registers(k, acc, (i * parts + j) * regs, used)};
        o.push_back(a.address ? k.operand(da.at(i, step))
                              : registers(k, a.regs, (i * all_steps + step) * 4, 4));
        o.push_back(k.operand(db.at(j, step)));
        if (step == 0 && first.accumulate)
          o.push_back(k.in_register(*first.accumulate));
        else
          o.push_back(Operand::integer(step == 0 && first.overwrite ? 0 : 1));
        if (!integer) {
          o.push_back(Operand::integer(1));
          o.push_back(Operand::integer(1));
        }
        if (b16) {
          if (a.address) o.push_back(Operand::integer(a.major == Major::mn));
          o.push_back(Operand::integer(b.major == Major::mn));
        }
        k.inst(Op::wgmma_mma_async, mods, std::move(o));
      }
  k.inst(Op::wgmma_commit_group, {Mod::sync, Mod::aligned}, {});
  k.wgmma_groups.push_back(k.region_serial());
  return k.wgmma_groups.size() - 1;
}

std::size_t wgmma_younger(const Kernel& k, std::size_t group) {
  // A group committed inside an if_ or loop that has ended may have been committed any number of times, also
  // none: only those in statements still open are certain.
  std::size_t n = 0;
  for (std::size_t i = group + 1; i < k.wgmma_groups.size(); ++i) n += k.region_is_open(k.wgmma_groups[i]);
  return n;
}

void wgmma_wait(Kernel& k, std::size_t pending, Here at) {
  k.at(at);
  k.collective("wgmma.wait_group", Uniform::warpgroup, at);
  k.inst(Op::wgmma_wait_group, {Mod::sync, Mod::aligned}, {Operand::integer(std::int64_t(pending))});
}

void wgmma_age_error(std::size_t before, std::size_t after, Here at) {
  throw BuildError(
      "a product carried round a loop is as old at the bottom as at the top", at,
      text::cat("at the top ", before, " younger groups were in flight, at the bottom ", after),
      "wait for the younger products before the loop, or issue them in the same order in the body");
}

std::vector<Value> to_a_registers(Kernel& k, Mod packed, const std::vector<Value>& acc, int m, int n,
                                  Here at) {
  std::vector<Value> out;
  (void)m;
  (void)n;
  for (std::size_t i = 0; i + 1 < acc.size(); i += 2)
    out.push_back(pack_pair(k, packed, acc[i], acc[i + 1], at));
  return out;
}

}  // namespace cgp::dsl::record
