// SPDX-License-Identifier: Apache-2.0
// Random control flow runs the same blocks in the same order as jumps and as nested statements.
#include "cgp/shader/structure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/ptx/parse.h"

namespace cgp::shader {
namespace {

using ptx::BlockId;

/// `n` blocks, each of which ends with a jump, a branch or nothing. %p0 is what the trace decides.
std::string random_kernel(int n, std::mt19937& random) {
  std::string s =
      ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n.reg .pred %p<2>;\n.reg .b32 "
      "%r<2>;\n";
  for (int b = 0; b < n; ++b) {
    text::append(s, text::cat("L", b, ":\nadd.u32 %r0, %r0, 1;\n"));
    // Mostly forward, sometimes back: reducible often enough.
    const auto target = [&] {
      return random() % 4 == 0 ? int(random()) % (b + 1)
                               : b + 1 + int(random() % unsigned(std::max(1, std::min(4, n - b))));
    };
    int to = target();
    if (to < 0) to = -to;
    const std::string label = to < n ? text::cat("L", to) : "end";
    switch (random() % 4) {
      case 0:
        break;
      case 1:
        text::append(s, text::cat("bra ", label, ";\n"));
        break;
      default:
        text::append(s, text::cat(random() % 2 ? "@%p0 bra " : "@!%p0 bra ", label, ";\n"));
    }
  }
  return s + "end:\nret;\n}\n";
}

/// The condition at the n-th executed block.
struct Oracle {
  std::uint32_t seed;
  bool at(std::size_t n) const { return (std::uint32_t(n) * 2654435761u ^ seed) >> 13 & 1; }
};

constexpr std::size_t kSteps = 200;

std::vector<BlockId> run_jumps(const ptx::Function& f, const ptx::Cfg& c, const Oracle& o) {
  std::vector<BlockId> trace;
  BlockId b = 0;
  while (trace.size() < kSteps) {
    trace.push_back(b);
    const auto& last = f.body[c.blocks[b].last - 1];
    const bool value = o.at(trace.size());
    std::uint32_t next = c.blocks[b].last;
    if (last.op == ptx::Op::ret) break;
    if (last.op == ptx::Op::bra && (last.guard == ptx::kNone || value != last.guard_negated))
      next = f.labels[last.operands[0].label].position;
    if (next >= f.body.size()) break;
    b = c.block_of[next];
  }
  return trace;
}

class Interpreter {
 public:
  Interpreter(const Structure& s, const Oracle& o) : o_(o), flags_(s.flags) { list(s.statements); }
  std::vector<BlockId> trace;

 private:
  enum class Way { on, left, again, stop };
  Way list(const std::vector<Statement>& l) {
    using Kind = Statement::Kind;
    for (const auto& s : l) {
      Way w = Way::on;
      switch (s.kind) {
        case Kind::code:
          if (trace.size() >= kSteps) return Way::stop;
          trace.push_back(s.block);
          break;
        case Kind::branch:
          w = list(o_.at(trace.size()) != s.negated ? s.body : s.otherwise);
          break;
        case Kind::loop:
          do w = list(s.body);
          while (w == Way::on || w == Way::again);
          if (w == Way::left) w = Way::on;
          break;
        case Kind::leave:
          return Way::left;
        case Kind::next:
          return Way::again;
        case Kind::set:
        case Kind::clear:
          flags_[s.flags[0]] = s.kind == Kind::set;
          break;
        case Kind::unless: {
          bool any = false;
          for (auto f : s.flags) any = any || flags_[f];
          if (!any) w = list(s.body);
          break;
        }
        case Kind::if_leave:
          if (flags_[s.flags[0]]) return Way::left;
          break;
      }
      if (w != Way::on) return w;
    }
    return Way::on;
  }
  const Oracle o_;
  std::vector<std::uint8_t> flags_;
};

TEST(structure, runs_the_same_blocks_as_the_jumps) {
  std::mt19937 random(11);
  int translated = 0, with_flags = 0, with_loops = 0;
  for (int round = 0; round < 1500; ++round) {
    const std::string text = random_kernel(2 + int(random() % 14), random);
    const ptx::Module m = ptx::parse(text);
    const auto& f = m.functions[0];
    const ptx::Cfg c = ptx::build_cfg(f);
    Structure s;
    try {
      s = structured(m, f, c);
    } catch (const BuildError& e) {
      EXPECT_NE(std::string(e.what()).find("reducible"), std::string::npos);
      continue;
    }
    ++translated;
    with_flags += s.flags > 0;
    with_loops += std::any_of(s.statements.begin(), s.statements.end(),
                              [](const auto& x) { return x.kind == Statement::Kind::loop; });
    for (std::uint32_t seed = 0; seed < 4; ++seed) {
      const Oracle o{seed * 0x9e3779b9u + std::uint32_t(round)};
      ASSERT_EQ(Interpreter(s, o).trace, run_jumps(f, c, o)) << text;
    }
  }
  // The cases are there: most graphs are reducible, some need flags.
  EXPECT_GT(translated, 700);
  EXPECT_GT(with_flags, 50);
  EXPECT_GT(with_loops, 50);
}

TEST(structure, long_sequences_are_translated_and_deep_nests_refused) {
  const auto statements = [](int n, bool nested) {
    std::string s =
        ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n.reg .pred %p<2>;\n.reg .b32 "
        "%r<2>;\n";
    for (int b = 0; b < n; ++b) {
      const std::string label = nested ? "end" : text::cat("L", b);
      text::append(s, text::cat("@%p0 bra ", label, ";\nadd.u32 %r0, %r0, 1;\n"));
      if (!nested) text::append(s, text::cat(label, ":\n"));
    }
    const ptx::Module m = ptx::parse(s + "end:\nret;\n}\n");
    return structured(m, m.functions[0], ptx::build_cfg(m.functions[0])).statements.size();
  };
  EXPECT_GT(statements(2000, false), 2000u);
  EXPECT_GT(statements(200, true), 0u);
  EXPECT_THROW(statements(2000, true), BuildError);
}

}  // namespace
}  // namespace cgp::shader
