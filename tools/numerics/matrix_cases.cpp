// SPDX-License-Identifier: Apache-2.0
// Matrix instructions of a warp (mma, wmma) and of a warpgroup (wgmma).
#include <charconv>

#include "cgp/base/text.h"
#include "corpus.h"

namespace cgp::numerics {
namespace {

using ptx::Mod;
using ptx::Op;
using text::cat;

std::string registers(const char* name, int k, int n) {
  std::string s = "{";
  for (int j = 0; j < n; ++j) s += cat(j ? ", " : "", name, k, "_", j);
  return s + "}";
}

std::vector<Mod> types(const ptx::Mods& mods) {
  std::vector<Mod> out;
  for (Mod m : mods)
    if (ptx::is_type(m)) out.push_back(m);
  return out;
}

struct Shape {
  int m = 0, n = 0, k = 0;
};
Shape shape_of(const ptx::Mods& mods) {
  for (Mod x : mods) {
    std::string_view s = ptx::name(x);
    if (s.size() < 6 || s[0] != 'm' || s.find('n') == s.npos || s.find('k') == s.npos) continue;
    Shape out;
    const char* end = s.data() + s.size();
    auto r = std::from_chars(s.data() + 1, end, out.m);
    r = std::from_chars(r.ptr + 1, end, out.n);
    std::from_chars(r.ptr + 1, end, out.k);
    return out;
  }
  return {};
}

template <class F>
void each(Corpus& corpus, Op op, F&& f) {
  for (const ptx::Form& form : ptx::forms(op))
    for (const Instance& i : instances(form)) {
      if (runs_on_hopper(i))
        f(i);
      else
        corpus.not_measured.push_back(i.text);
    }
}

// mma and mma.sp: fragments come from memory as they are.
void add_mma(Corpus& corpus, Op op) {
  const bool sparse = op != Op::mma;
  each(corpus, op, [&](const Instance& i) {
    const auto t = types(i.mods);
    int n[4];
    for (int k = 0; k < 4; ++k) n[k] = ptx::operand_count(i.form->operands[std::size_t(k)], i.mods);
    const int selectors = sparse ? int(i.form->operands[5].ranges[0].last) + 1 : 1;
    for (int selector = 0; selector < selectors; ++selector) {
      Case c;
      c.key = sparse ? cat(i.text, " ", selector) : i.text;
      c.family = "matrix";
      c.op = op;
      const int bits = t[0] == Mod::f64 ? 64 : 32;
      for (int k = 0; k < 3; ++k)
        c.inputs.push_back({Draw::tensor, t[std::size_t(k) + 1], k, bits, n[k + 1]});
      c.outputs.push_back({t[0], bits, n[0]});
      c.body = cat(i.text, " ", registers("%o", 0, n[0]), ", ", registers("%i", 0, n[1]), ", ",
                   registers("%i", 1, n[2]), ", ", registers("%i", 2, n[3]),
                   sparse ? cat(", %i3_0, ", selector) : "", ";\n");
      if (sparse) c.inputs.push_back({Draw::mask, t[1], 3, 32, 1});
      corpus.cases.push_back(c);
    }
  });
}

// wmma: the layout of fragments is not part of PTX, so load, multiply and store are one case.
void add_wmma(Corpus& corpus) {
  each(corpus, Op::wmma_mma, [&](const Instance& i) {
    const auto t = types(i.mods);
    const Mod a = t.size() == 2 ? Mod::f16 : t[1], d = t[0], acc = t.back();
    const Shape s = shape_of(i.mods);
    std::vector<std::string> layout;
    std::string shape;
    for (Mod m : i.mods) {
      if (m == Mod::row || m == Mod::col) layout.emplace_back(ptx::name(m));
      const std::string_view name = ptx::name(m);
      if (name.size() > 5 && name[0] == 'm' && name.find('k') != name.npos) shape = name;
    }
    int n[4];
    for (int k = 0; k < 4; ++k) n[k] = ptx::operand_count(i.form->operands[std::size_t(k)], i.mods);
    const char* reg = d == Mod::f64 ? ".reg .b64 " : ".reg .b32 ";
    auto declare = [&](const char* name, int count) {
      std::string r = reg;
      for (int k = 0; k < count; ++k) r += cat(k ? ", " : "", name, k);
      return r + ";\n";
    };
    auto list = [](const char* name, int count) {
      std::string r = "{";
      for (int k = 0; k < count; ++k) r += cat(k ? ", " : "", name, k);
      return r + "}";
    };
    Case c;
    c.key = i.text;
    c.family = "matrix";
    c.op = Op::wmma_mma;
    c.inputs = {{Draw::tensor, a, 0, 32, 8}, {Draw::tensor, a, 1, 32, 8}, {Draw::tensor, acc, 2, 32, 8}};
    c.outputs = {{d == Mod::f64 ? Mod::b32 : d, 32, 8}};
    c.body =
        ".reg .b32 %warp, %own, %t;\nshr.u32 %warp, %th, 5;\nmul.lo.u32 %warp, %warp, 3072;\nmov.u32 %t, "
        "sm;\n"
        "add.u32 %warp, %warp, %t;\nshl.b32 %own, %lane, 5;\nadd.u32 %own, %own, %warp;\nbar.sync 0;\n";
    for (int k = 0; k < 3; ++k)
      for (int j = 0; j < 8; j += 4)
        c.body += cat("st.shared.v4.b32 [%own+", k * 1024 + j * 4, "], {%i", k, "_", j, ", %i", k, "_", j + 1,
                      ", %i", k, "_", j + 2, ", %i", k, "_", j + 3, "};\n");
    c.body += "bar.sync 0;\n" + declare("%wa", n[1]) + declare("%wb", n[2]) + declare("%wc", n[3]) +
              declare("%wd", n[0]);
    c.body += cat("wmma.load.a.sync.aligned.", layout[0], ".", shape, ".shared.", ptx::name(a), " ",
                  list("%wa", n[1]), ", [%warp], ", layout[0] == "row" ? s.k : s.m, ";\n");
    c.body += cat("wmma.load.b.sync.aligned.", layout[1], ".", shape, ".shared.", ptx::name(a), " ",
                  list("%wb", n[2]), ", [%warp+1024], ", layout[1] == "row" ? s.n : s.k, ";\n");
    c.body += cat("wmma.load.c.sync.aligned.row.", shape, ".shared.", ptx::name(acc), " ", list("%wc", n[3]),
                  ", [%warp+2048], ", s.n, ";\n");
    c.body += cat(i.text, " ", list("%wd", n[0]), ", ", list("%wa", n[1]), ", ", list("%wb", n[2]), ", ",
                  list("%wc", n[3]), ";\nbar.sync 0;\n");
    c.body += cat("wmma.store.d.sync.aligned.row.", shape, ".shared.", ptx::name(d), " [%warp+2048], ",
                  list("%wd", n[0]), ", ", s.n, ";\nbar.sync 0;\n");
    for (int j = 0; j < 8; j += 4)
      c.body += cat("ld.shared.v4.b32 {%o0_", j, ", %o0_", j + 1, ", %o0_", j + 2, ", %o0_", j + 3,
                    "}, [%own+", 2048 + j * 4, "];\n");
    corpus.cases.push_back(c);
  });
}

// ---------------------------------------------------------------- wgmma
std::string copy_to_shared(int input, std::uint32_t at, std::uint32_t bytes) {
  return cat(
      "{\n.reg .b32 %at, %end, %x<4>;\n.reg .b64 %from, %by;\n.reg .pred %more;\nshl.b32 %at, %th, 4;\n",
      "cvt.u64.u32 %by, %at;\nadd.u64 %from, %i", input,
      "_p, %by;\nmov.u32 %end, sm;\nadd.u32 %at, %at, %end;\n", "add.u32 %at, %at, ", at,
      ";\nadd.u32 %end, %end, ", at + bytes, ";\nCOPY$_", input,
      ":\nld.global.v4.b32 {%x0, %x1, %x2, %x3}, [%from];\nst.shared.v4.b32 [%at], {%x0, %x1, %x2, %x3};\n",
      "add.u64 %from, %from, 2048;\nadd.u32 %at, %at, 2048;\nsetp.lo.u32 %more, %at, %end;\n@%more bra "
      "COPY$_",
      input, ";\n}\n");
}

// The descriptor of an operand at `at`: rows of `span` bytes, 16 (no swizzle), 32, 64 or 128.
std::string descriptor(const char* reg, std::uint32_t at, int span, bool transposed) {
  const std::uint64_t mode = span == 128 ? 1 : span == 64 ? 2 : span == 32 ? 3 : 0;
  const std::uint64_t stride = span == 16 ? 256 : std::uint64_t(span) * 8;
  const std::uint64_t leading = span == 16 ? 128 : transposed ? std::uint64_t(span) * 16 : 16;
  const std::uint64_t high = mode << 62 | (stride >> 4) << 32 | (leading >> 4) << 16;
  return cat("{\n.reg .b32 %t;\nmov.u32 %t, sm;\nadd.u32 %t, %t, ", at,
             ";\nshr.u32 %t, %t, 4;\nand.b32 %t, %t, 16383;\n", "cvt.u64.u32 ", reg, ", %t;\nor.b64 ", reg,
             ", ", reg, ", ", text::hex(high), ";\n}\n");
}

void wgmma_case(Corpus& corpus, const Instance& i, bool sparse, const std::vector<int>& immediates,
                int span) {
  const auto t = types(i.mods);
  const bool half = t[0] == Mod::f16;
  const Shape s = shape_of(i.mods);
  const int n = half ? s.n / 4 : s.n / 2;
  const bool from_registers = i.form->operands[1].kind == ptx::OperandPattern::Kind::reg;
  const bool floating = immediates.size() >= 2;
  const bool trans_a = immediates.size() == 4 && immediates[2];
  const bool trans_b = immediates.size() >= 3 && immediates.back();
  Case c;
  c.key = cat(i.text, from_registers ? " rs" : " ss", " swizzle ", span == 16 ? 0 : span);
  for (int v : immediates) c.key += cat(" ", v);
  c.family = "wgmma";
  c.op = i.form->op;
  c.cases = 16 * kBlock;
  c.inputs.push_back({Draw::block, t[1], 0, 32, 0});
  c.inputs.push_back({Draw::block, t[2], 1, 32, 0});
  c.inputs.push_back({Draw::group, t[0], 2, 32, n});
  if (from_registers) c.inputs.push_back({Draw::group, t[1], 0, 32, 4});
  const int metadata = int(c.inputs.size());
  if (sparse) c.inputs.push_back({Draw::mask, t[1], 3, 32, 1});
  c.outputs.push_back({t[0], 32, n});
  c.body = "bar.sync 0;\n" + copy_to_shared(0, 0, kBlockA) + copy_to_shared(1, kBlockA, kBlockB) +
           ".reg .b64 %da, %db;\n.reg .b32 %odd;\n.reg .pred %scale;\nmov.u32 %odd, %ctaid.x;\nand.b32 %odd, "
           "%odd, 1;\n"
           "setp.eq.u32 %scale, %odd, 0;\n" +
           descriptor("%da", 0, span, trans_a) + descriptor("%db", kBlockA, span, trans_b);
  for (int k = 0; k < n; ++k) c.body += cat("mov.b32 %o0_", k, ", %i2_", k, ";\n");
  c.body += "fence.proxy.async.shared::cta;\nbar.sync 0;\nwgmma.fence.sync.aligned;\n";
  c.body += cat(i.text, " ", registers("%o", 0, n), ", ", from_registers ? registers("%i", 3, 4) : "%da",
                ", %db, ", sparse ? cat("%i", metadata, "_0, 0, ") : "", "%scale");
  for (int v : immediates) c.body += cat(", ", v);
  c.body += ";\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n";
  (void)floating;
  corpus.cases.push_back(c);
}

void add_wgmma(Corpus& corpus, Op op) {
  const bool sparse = op == Op::wgmma_mma_async_sp;
  int turn = 0;
  each(corpus, op, [&](const Instance& i) {
    const Shape s = shape_of(i.mods);
    if (s.n != 8 && s.n != 24 && s.n != 64 && s.n != 128 && s.n != 256) return;
    // Immediates: signs of a and b, then the transpositions that the form has.
    int count = 0;
    for (const auto& p : i.form->operands) count += p.kind == ptx::OperandPattern::Kind::imm;
    if (sparse) --count;  // the selector
    std::vector<std::vector<int>> all;
    for (int bits = 0; bits < 1 << count; ++bits) {
      const bool plain = bits == 0, full = bits == (1 << count) - 1;
      if (s.n != 64 && !plain && !(full && s.n == 256)) continue;
      std::vector<int> v;
      for (int k = 0; k < count; ++k) v.push_back(k < 2 ? (bits >> k & 1 ? -1 : 1) : bits >> k & 1);
      all.push_back(v);
    }
    for (const auto& v : all) wgmma_case(corpus, i, sparse, v, 16 << turn++ % 4);
  });
}

}  // namespace

void add_matrix_cases(Corpus& corpus) {
  add_mma(corpus, Op::mma);
  add_mma(corpus, Op::mma_sp);
  add_mma(corpus, Op::mma_sp_ordered_metadata);
  add_wmma(corpus);
}

void add_wgmma_cases(Corpus& corpus) {
  add_wgmma(corpus, Op::wgmma_mma_async);
  add_wgmma(corpus, Op::wgmma_mma_async_sp);
}

}  // namespace cgp::numerics
