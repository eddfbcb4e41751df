// SPDX-License-Identifier: Apache-2.0
#include "cgp/ptx/analysis/memory.h"

#include <algorithm>
#include <array>
#include <bit>

#include "cgp/base/text.h"
#include "cgp/ptx/verify/verify_impl.h"

namespace cgp::ptx {
namespace {

using text::cat;

struct Shape {
  AccessKind kind;
  std::uint32_t bytes;
  const Operand* address;
  std::uint32_t lanes = 32;  ///< that give an address: 8 per matrix
};

std::uint32_t vector_length(const Inst& i) {
  return i.has(Mod::v8) ? 8 : i.has(Mod::v4) ? 4 : i.has(Mod::v2) ? 2 : 1;
}

std::optional<Shape> shape_of(const Inst& i) {
  const auto address = [&](std::size_t k) -> const Operand* {
    return k < i.operands.size() && i.operands[k].kind == OperandKind::address ? &i.operands[k] : nullptr;
  };
  const std::uint32_t element = std::uint32_t(type_bits(i.type()) / 8) * vector_length(i);
  switch (i.op) {
    case Op::ld:
    case Op::ldu:
      return Shape{AccessKind::load, element, address(1)};
    case Op::st:
      return Shape{AccessKind::store, element, address(0)};
    case Op::atom:
      return Shape{AccessKind::atomic, element, address(1)};
    case Op::red:
      return Shape{AccessKind::atomic, element, address(0)};
    case Op::cp_async:
      if (i.operands.size() > 2 && i.operands[2].kind == OperandKind::imm)
        return Shape{AccessKind::load, std::uint32_t(i.operands[2].imm), address(1)};
      return std::nullopt;
    case Op::ldmatrix:
    case Op::stmatrix: {
      if (!i.has(Mod::m8n8)) return std::nullopt;
      const std::uint32_t n = i.has(Mod::x4) ? 32 : i.has(Mod::x2) ? 16 : 8;
      return Shape{AccessKind::matrix, 16, address(i.op == Op::ldmatrix ? 1 : 0), n};
    }
    default:
      return std::nullopt;
  }
}

/// Passes of one group: the bank that must deliver most. Threads share a word, except in atomics.
std::uint32_t passes(const std::vector<std::uint64_t>& addresses, std::uint32_t bytes, bool share) {
  std::vector<std::uint64_t> words;
  for (std::uint64_t a : addresses)
    for (std::uint64_t w = a / 4; w <= (a + bytes - 1) / 4; ++w) words.push_back(w);
  if (share) {
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
  }
  std::array<std::uint32_t, 32> load{};
  for (std::uint64_t w : words) ++load[w % 32];
  return *std::max_element(load.begin(), load.end());
}

class Finder {
 public:
  Finder(const ThreadValues& v, const Pointers& p) : v_(v), f_(v.function()), p_(p) {}

  std::optional<MemoryAccess> access(std::uint32_t i) {
    const Inst& inst = f_.body[i];
    const auto shape = shape_of(inst);
    if (!shape || !shape->address || shape->bytes == 0) return std::nullopt;
    MemoryAccess a;
    a.inst = i;
    a.kind = shape->kind;
    a.bytes = shape->bytes;
    a.space = inst.op == Op::cp_async ? Space::global : named_space(inst);
    if (a.space == Space::generic) {
      const Pointer at = p_.operand(i, *shape->address);
      if (at.kind == Pointer::Kind::generic) a.space = at.space;
    }
    if (a.space == Space::param || a.space == Space::constant || a.space == Space::local) return std::nullopt;
    a.address = v_.operand(i, *shape->address);
    if (a.space == Space::generic) {
      a.why = "a generic address: the state space is not known";
      return a;
    }
    if (inst.op == Op::cp_async && inst.operands.size() > 3) {
      a.why = "the number of bytes that it reads is an operand";
      return a;
    }
    measure(a, *shape);
    return a;
  }

 private:
  void measure(MemoryAccess& a, const Shape& shape) {
    const Inst& inst = f_.body[a.inst];
    const Control& control = v_.control(v_.cfg().block_of[a.inst]);
    std::vector<std::uint8_t> may = control.may;
    Scope together = control.together;
    if (inst.guard != kNone) {
      const LinearForm guard = v_.operand(a.inst, Operand::of(inst.guard, inst.guard_negated), 1);
      if (!guard.known()) together = min_of(together, v_.scope(guard));
      for (std::size_t t = 0; t < may.size() && guard.known(); ++t) may[t] = may[t] && guard.constant[t];
    }
    a.all_lanes = together >= Scope::warp && !control.may_part;
    std::vector<WarpCost> out;
    for (std::size_t first = 0; first < v_.threads(); first += 32) {
      std::vector<std::size_t> threads;
      for (std::size_t t = first; t < std::min(first + shape.lanes, v_.threads()); ++t)
        if (may[t]) threads.push_back(t);
      if (threads.empty()) continue;
      const auto cost = warp(a, threads);
      if (!cost) return;
      out.push_back(*cost);
    }
    a.warps = std::move(out);
  }

  /// The term that keeps two lanes of the warp from having a known distance, in words.
  std::string unknown_term(const LinearForm& f, const std::vector<std::size_t>& threads) const {
    for (const Term& t : f.terms) {
      const Scope s = v_.symbol(t.symbol).scope;
      for (std::size_t k : threads)
        if (t.coefficient[k] != t.coefficient[threads[0]])
          return cat("the distance between lanes depends on ", v_.text(t.symbol));
      if (s == Scope::thread && threads.size() > 1)
        return cat("the address depends on ", v_.text(t.symbol), ", which may differ in every lane");
    }
    return "";
  }

  std::optional<WarpCost> warp(MemoryAccess& a, const std::vector<std::size_t>& threads) {
    a.why = unknown_term(a.address, threads);
    if (!a.why.empty()) return std::nullopt;
    // Sectors and, below 4 bytes, banks depend on where the warp's addresses begin modulo this.
    const std::uint64_t modulus = a.space == Space::global ? 32 : 4;
    std::uint64_t step = std::max<std::uint64_t>(modulus, a.bytes);
    std::string loosest;
    for (const Term& t : a.address.terms) {
      const std::int64_t k = t.coefficient[threads[0]];
      const SymbolInfo& s = v_.symbol(t.symbol);
      const std::uint64_t whole = std::uint64_t(k) * (k == 1 ? s.alignment : 1);
      const std::uint64_t power = whole ? 1ull << std::countr_zero(whole) : step;
      if (power < step) {
        step = power;
        loosest = v_.text(t.symbol);
      }
    }
    const std::uint64_t end = std::max<std::uint64_t>(modulus, a.bytes);
    std::optional<WarpCost> first;
    bool differs = false;
    std::uint32_t least = ~0u;
    for (std::uint64_t open = 0; open < end; open += step) {
      const auto cost = at(a, threads, open);
      if (!cost) continue;  // misaligned: the hardware would refuse
      if (first && (first->sectors != cost->sectors || first->banks.passes != cost->banks.passes))
        differs = true;
      least = std::min(least, cost->sectors);
      if (!first || cost->sectors > first->sectors) first = cost;
    }
    if (!first) {
      a.misaligned = true;
      a.why = cat("no multiple of ", a.bytes, " bytes, whatever the parameters are");
      return std::nullopt;
    }
    if (!differs) return first;
    a.least_sectors = least;
    a.most_sectors = first->sectors;
    a.why = cat("depends on the alignment of ", loosest);
    return std::nullopt;
  }

  std::optional<WarpCost> at(const MemoryAccess& a, const std::vector<std::size_t>& threads,
                             std::uint64_t open) const {
    std::vector<std::uint64_t> addresses;
    std::vector<int> lanes;
    // A base high enough that no offset goes below zero, and of no influence on sectors and banks.
    constexpr std::uint64_t kBase = 1ull << 62;
    const std::uint64_t natural = std::min<std::uint64_t>(a.bytes, 16);
    const bool vector = std::has_single_bit(a.bytes);
    for (std::size_t t : threads) {
      addresses.push_back(kBase + open + std::uint64_t(a.address.constant[t]));
      if (vector && a.kind != AccessKind::atomic && addresses.back() % (a.bytes > 16 ? a.bytes : natural))
        return std::nullopt;
      lanes.push_back(int(t % 32));
    }
    WarpCost c;
    c.warp = std::uint32_t(threads[0] / 32);
    c.lanes = std::uint32_t(threads.size());
    if (a.space == Space::global)
      c.sectors = sectors_of(addresses, a.bytes);
    else
      c.banks = banks_of(addresses, lanes, a.kind, a.bytes);
    return c;
  }

  const ThreadValues& v_;
  const Function& f_;
  const Pointers& p_;
};

}  // namespace

std::uint32_t sectors_of(const std::vector<std::uint64_t>& addresses, std::uint32_t bytes) {
  std::vector<std::uint64_t> s;
  for (std::uint64_t a : addresses)
    for (std::uint64_t x = a / 32; x <= (a + bytes - 1) / 32; ++x) s.push_back(x);
  std::sort(s.begin(), s.end());
  return std::uint32_t(std::unique(s.begin(), s.end()) - s.begin());
}

BankCost banks_of(const std::vector<std::uint64_t>& addresses, const std::vector<int>& lanes, AccessKind kind,
                  std::uint32_t bytes) {
  int group = bytes <= 4 ? 32 : bytes == 8 ? 16 : 8;
  if (kind == AccessKind::matrix) group = 8;
  if (kind == AccessKind::load && group < 32) {
    // Loads whose neighbouring lanes read one address need half the groups.
    bool pairs = true;
    for (std::size_t k = 0; k + 1 < lanes.size(); ++k)
      if (lanes[k] % 2 == 0 && lanes[k + 1] == lanes[k] + 1)
        pairs = pairs && addresses[k] == addresses[k + 1];
    if (pairs) group *= 2;
  }
  BankCost out;
  for (int first = 0; first < 32; first += group) {
    std::vector<std::uint64_t> part;
    for (std::size_t k = 0; k < lanes.size(); ++k)
      if (lanes[k] >= first && lanes[k] < first + group) part.push_back(addresses[k]);
    if (part.empty()) continue;
    const std::uint32_t n = passes(part, bytes, kind != AccessKind::atomic);
    out.passes += n;
    out.conflicts += n - 1;
  }
  return out;
}

std::uint64_t MemoryAccess::total_lanes() const {
  std::uint64_t n = 0;
  for (const WarpCost& w : *warps) n += w.lanes;
  return n;
}
std::uint64_t MemoryAccess::total_sectors() const {
  std::uint64_t n = 0;
  for (const WarpCost& w : *warps) n += w.sectors;
  return n;
}
BankCost MemoryAccess::total_banks() const {
  BankCost c;
  for (const WarpCost& w : *warps) {
    c.passes += w.banks.passes;
    c.conflicts += w.banks.conflicts;
  }
  return c;
}

std::vector<MemoryAccess> memory_accesses(const ThreadValues& v, const Pointers& p) {
  std::vector<MemoryAccess> out;
  Finder finder(v, p);
  const Cfg& c = v.cfg();
  for (BlockId b = 0; b < c.blocks.size(); ++b) {
    if (!c.blocks[b].reachable || v.control(b).count() == 0) continue;
    for (std::uint32_t i = c.blocks[b].first; i < c.blocks[b].last; ++i)
      if (auto a = finder.access(i)) out.push_back(*std::move(a));
  }
  return out;
}

}  // namespace cgp::ptx
