// SPDX-License-Identifier: Apache-2.0
// Instructions in which the lanes of a warp exchange values, and atomics on one word per thread.
#include "cgp/base/text.h"
#include "corpus.h"

namespace cgp::numerics {
namespace {

using ptx::Mod;
using ptx::Op;
using text::cat;

Case named(const Instance& i, const char* family) {
  Case c;
  c.key = i.text;
  c.family = family;
  c.op = i.form->op;
  return c;
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

void add_exchanges(Corpus& corpus) {
  each(corpus, Op::shfl_sync, [&](const Instance& i) {
    Case c = named(i, "warp");
    c.body = cat(".reg .pred %p;\n", i.text, " %o0_0|%p, %i0_0, %i1_0, %i2_0, 0xffffffff;\n",
                 "selp.b32 %o1_0, 1, 0, %p;\n");
    c.inputs = {{Draw::scalar, Mod::b32, 0, 32, 1},
                {Draw::lane, Mod::b32, 1, 32, 1},
                {Draw::clamp, Mod::b32, 2, 32, 1}};
    c.outputs = {{Mod::b32, 32, 1}, {Mod::pred, 32, 1}};
    corpus.cases.push_back(c);
  });
  each(corpus, Op::vote_sync, [&](const Instance& i) {
    Case c = named(i, "warp");
    const bool ballot = i.mods.has(Mod::ballot);
    c.body = cat(".reg .pred %p, %q;\nsetp.ne.u32 %q, %i0_0, 0;\n", i.text, ballot ? " %o0_0" : " %p",
                 ", %q, 0xffffffff;\n", ballot ? "" : "selp.b32 %o0_0, 1, 0, %p;\n");
    c.inputs = {{Draw::bit, Mod::pred, 0, 32, 1}};  // .pred: whole warps agree now and then
    c.outputs = {{Mod::b32, 32, 1}};
    corpus.cases.push_back(c);
  });
  for (const Op op : {Op::match_any_sync, Op::match_all_sync})
    each(corpus, op, [&](const Instance& i) {
      Case c = named(i, "warp");
      const bool all = op == Op::match_all_sync;
      const int bits = i.mods.has(Mod::b64) ? 64 : 32;
      c.body = cat(".reg .pred %p;\n", i.text, " %o0_0", all ? "|%p" : "", ", %i0_0, 0xffffffff;\n",
                   all ? "selp.b32 %o1_0, 1, 0, %p;\n" : "mov.u32 %o1_0, 0;\n");
      c.inputs = {{Draw::lane, bits == 64 ? Mod::b64 : Mod::b32, 1, bits, 1}};
      c.outputs = {{Mod::b32, 32, 1}, {Mod::pred, 32, 1}};
      corpus.cases.push_back(c);
    });
  each(corpus, Op::redux_sync, [&](const Instance& i) {
    Case c = named(i, "warp");
    c.body = cat(i.text, " %o0_0, %i0_0, 0xffffffff;\n");
    c.inputs = {{Draw::scalar, Mod::s32, 1, 32, 1}};
    c.outputs = {{Mod::b32, 32, 1}};
    corpus.cases.push_back(c);
  });
  each(corpus, Op::movmatrix, [&](const Instance& i) {
    Case c = named(i, "warp");
    c.body = cat(i.text, " %o0_0, %i0_0;\n");
    c.inputs = {{Draw::scalar, Mod::b32, 0, 32, 1}};
    c.outputs = {{Mod::b32, 32, 1}};
    corpus.cases.push_back(c);
  });
}

std::string registers(const char* name, int k, int n) {
  std::string s = "{";
  for (int j = 0; j < n; ++j) s += cat(j ? ", " : "", name, k, "_", j);
  return s + "}";
}

// Every lane owns 16 bytes of its warp's 512; rows are taken in another order than lanes have.
void add_matrix_moves(Corpus& corpus) {
  const char* place =
      ".reg .b32 %own, %row, %t;\nmov.u32 %own, sm;\nshl.b32 %t, %th, 4;\nadd.u32 %own, %own, %t;\n"
      "mul.lo.u32 %row, %lane, 5;\nand.b32 %row, %row, 31;\nshl.b32 %row, %row, 4;\nand.b32 %t, %th, 96;\n"
      "shl.b32 %t, %t, 4;\nadd.u32 %row, %row, %t;\nmov.u32 %t, sm;\nadd.u32 %row, %row, %t;\nbar.sync 0;\n";
  for (const Op op : {Op::ldmatrix, Op::stmatrix})
    each(corpus, op, [&](const Instance& i) {
      if (!i.mods.has(Mod::shared)) return;
      Case c = named(i, "warp");
      const int n = i.mods.has(Mod::x4) ? 4 : i.mods.has(Mod::x2) ? 2 : 1;
      const bool load = op == Op::ldmatrix;
      c.body = cat(place, "st.shared.v4.b32 [%own], ", registers("%i", 0, 4), ";\nbar.sync 0;\n", i.text, " ",
                   load ? cat(registers("%o", 0, n), ", [%row]") : cat("[%row], ", registers("%i", 1, n)),
                   ";\nbar.sync 0;\n");
      if (!load) c.body += cat("ld.shared.v4.b32 ", registers("%o", 0, 4), ", [%own];\n");
      c.inputs = {{Draw::scalar, Mod::b32, 0, 32, 4}};
      if (!load) c.inputs.push_back({Draw::scalar, Mod::b32, 1, 32, n});
      c.outputs = {{Mod::b32, 32, load ? n : 4}};
      corpus.cases.push_back(c);
    });
}

// No order, scope or hint: they do not change what one thread computes.
bool plain_atomic(const Instance& i, Mod space) {
  bool named_space = false;
  for (Mod m : i.mods) {
    switch (m) {
      case Mod::relaxed:
      case Mod::acquire:
      case Mod::release:
      case Mod::acq_rel:
      case Mod::cta:
      case Mod::cluster:
      case Mod::gpu:
      case Mod::sys:
      case Mod::shared_cta:
      case Mod::shared_cluster:
      case Mod::L2_cache_hint:
      case Mod::b128:
        return false;
      case Mod::global:
      case Mod::shared:
        if (m != space) return false;
        named_space = true;
        break;
      default:
        break;
    }
  }
  return named_space;
}

int elements(const ptx::Mods& mods) {
  return mods.has(Mod::v8) ? 8 : mods.has(Mod::v4) ? 4 : mods.has(Mod::v2) ? 2 : 1;
}

Mod data_type(const ptx::Mods& mods) {
  for (Mod m : mods)
    if (ptx::is_type(m)) return m;
  return Mod::b32;
}

Case atomic_case(const Instance& i, bool shared) {
  Case c = named(i, "atomic");
  const Mod type = data_type(i.mods);
  const int n = elements(i.mods), width = ptx::type_bits(type);
  const char* space = shared ? "shared" : "global";
  const std::string v = n > 1 ? cat(".v", n) : "", b = cat(".b", width);
  auto operand = [&](const char* name, int k) { return n > 1 ? registers(name, k, n) : cat(name, k, "_0"); };
  // A vector of eight halves is stored and loaded in two pieces.
  auto whole = [&](const char* name, int k, bool store) {
    std::string s;
    const int step = n == 8 ? 4 : n;
    for (int j = 0; j < n; j += step) {
      std::string e = step > 1 ? "{" : "";
      for (int t = 0; t < step; ++t) e += cat(t ? ", " : "", name, k, "_", j + t);
      if (step > 1) e += "}";
      const std::string where = cat("[%at+", j * width / 8, "]"), vec = step > 1 ? cat(".v", step) : "";
      s += store ? cat("st.", space, vec, b, " ", where, ", ", e, ";\n")
                 : cat("ld.", space, vec, b, " ", e, ", ", where, ";\n");
    }
    return s;
  };
  c.body = shared
               ? cat(".reg .b32 %at;\nshl.b32 %at, %th, 4;\nmov.u32 %o0_0, sm;\nadd.u32 %at, %at, %o0_0;\n")
               : cat(".reg .b64 %at;\nmul.wide.u32 %at, %gid, 16;\nadd.u64 %at, %at, %scratch;\n");
  if (shared)
    c.body = cat(".reg .b32 %at, %s;\nshl.b32 %at, %th, 4;\nmov.u32 %s, sm;\nadd.u32 %at, %at, %s;\n");
  c.body += whole("%i", 0, true);
  const bool atom = i.form->op == Op::atom, cas = i.mods.has(Mod::cas);
  c.body += cat(i.text, " ", atom ? operand("%o", 1) + ", " : "", "[%at], ", operand("%i", 1),
                cas ? ", " + operand("%i", 2) : "", ";\n");
  c.body += whole("%o", 0, false);
  const int bits = width < 16 ? 16 : width;
  for (int k = 0; k < (cas ? 3 : 2); ++k) c.inputs.push_back({Draw::scalar, type, k, bits, n});
  for (int k = 0; k < (atom ? 2 : 1); ++k) c.outputs.push_back({type, bits, n});
  return c;
}

}  // namespace

void add_warp_cases(Corpus& corpus) {
  add_exchanges(corpus);
  add_matrix_moves(corpus);
}

void add_atomic_cases(Corpus& corpus) {
  for (const Op op : {Op::atom, Op::red})
    for (const bool shared : {false, true})
      each(corpus, op, [&](const Instance& i) {
        if (plain_atomic(i, shared ? Mod::shared : Mod::global))
          corpus.cases.push_back(atomic_case(i, shared));
      });
}

}  // namespace cgp::numerics
