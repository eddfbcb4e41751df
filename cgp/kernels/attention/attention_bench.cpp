// SPDX-License-Identifier: Apache-2.0
// Measures attention on a GPU, cold L2, medians; with "sweep" every tuning of a few shapes. Peers are timed
// by scripts/peers_attention.py on the same shapes and in the same way. Prints a table; --json FILE keeps
// every sample.
//   cgp_attention_bench [--json FILE] [--rounds N] [PREFIX...]   e.g. forward/bf16/d128 sweep/d64
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/kernel.h"
#include "cgp/kernels/attention/attention.h"
#include "cgp/kernels/attention/attention_backward.h"
#include "cgp/kernels/bench/table_bench.h"
#include "cgp/kernels/decode/decode.h"
#include "cgp/profile/measure/compare.h"

namespace {

using namespace cgp;
using namespace cgp::kernels;
using runtime::Buffer;
using runtime::Stream;

class Bench {
 public:
  Bench(const runtime::Device& d, std::vector<std::string> prefixes, int rounds, std::string only)
      : device_(d), prefixes_(std::move(prefixes)), rounds_(rounds), only_(std::move(only)) {}
  bool wanted(const std::string& name) const {
    if (prefixes_.empty())
      return name.rfind("sweep", 0) != 0 && name.rfind("ordered", 0) != 0 && name.rfind("duel", 0) != 0 &&
             name.rfind("clean", 0) != 0;
    for (const auto& p : prefixes_)
      if (name.rfind(p, 0) == 0) return true;
    return false;
  }
  void run(const std::string& name, const std::string& variant, double flops, double bytes,
           const std::function<void(Stream&)>& work, int rounds = 0, bool cold = true) try {
    if (!takes(variant)) return;
    measure::CompareOptions o;
    o.rounds = rounds ? rounds : rounds_, o.warmup = 2, o.cold_l2 = cold;
    const std::vector<measure::Contender> one{{"cgp", work}};
    rows_.push_back({name, variant, flops, bytes, measure::compare(device_, one, o)});
    print_row(rows_.back());
  } catch (const Error& e) {
    std::printf("%-44s %s: %s\n", name.c_str(), variant.c_str(), e.what());
  }
  /// Contenders in rounds, since clocks change from minute to minute.
  void duel(const std::string& name, double flops, const std::vector<measure::Contender>& all) try {
    measure::CompareOptions o;
    o.rounds = rounds_, o.warmup = 2;
    rows_.push_back({name, "", flops, 0, measure::compare(device_, all, o)});
    std::printf("%-36s", name.c_str());
    for (const auto& t : rows_.back().timings) std::printf("  %s %.4f", t.name.c_str(), t.summary.median);
    std::printf(" ms\n");
    std::fflush(stdout);
  } catch (const Error& e) {
    std::printf("%-36s %s\n", name.c_str(), e.what());
  }
  bool takes(const std::string& variant) const { return variant.find(only_) != std::string::npos; }
  /// Whether prefixes ask for sweeps.
  bool sweeps() const {
    return std::any_of(prefixes_.begin(), prefixes_.end(),
                       [](const auto& p) { return p.rfind("sweep", 0) == 0; });
  }
  const runtime::Device& device() const { return device_; }
  const std::vector<BenchRow>& rows() const { return rows_; }

 private:
  runtime::Device device_;
  std::vector<std::string> prefixes_;
  int rounds_;
  std::string only_;  // part of a variant's name
  std::vector<BenchRow> rows_;
};

// A pool of values, repeated on the device: `elements` of `type`, as 16-bit words.
Buffer<bfloat16> random_words(const runtime::Device& d, DType type, std::uint64_t elements,
                              std::uint64_t seed) {
  const std::uint64_t size = std::uint64_t(bytes(type)), n = elements * size / 2;
  const std::uint64_t pool = std::min<std::uint64_t>(n, (1 << 20) - 3);  // odd: rows do not repeat
  const auto host = random_array(type, {pool * 2 / size}, seed);
  Buffer<bfloat16> b(d, n);
  Stream s(d);
  s.upload<bfloat16>(b.slice(0, pool), std::span(reinterpret_cast<const bfloat16*>(host.bytes.data()), pool));
  for (std::uint64_t have = pool; have < n;) {
    const std::uint64_t more = std::min(have, n - have);
    s.copy<bfloat16>(b.slice(have, more), b.slice(0, more));
    have += more;
  }
  s.wait();
  return b;
}

// 16384 queries and a width of 2048 in all, as the published comparisons have it.
AttentionProblem standard(DType t, std::uint64_t d, std::uint64_t n, bool causal) {
  AttentionProblem p;
  p.type = t, p.batch = 16384 / n, p.heads_q = 2048 / d, p.n_q = p.n_kv = n, p.d_qk = d, p.causal = causal;
  return p;
}
std::string shape_name(const AttentionProblem& p) {
  return text::cat(name(p.type), "/d", p.d_qk, "/", p.causal ? "causal" : "full", "/n", p.n_kv);
}

struct Tensors {
  Buffer<bfloat16> q, k, v, o;
  Tensors(const runtime::Device& d, const AttentionProblem& q_)
      : q(random_words(d, q_.type, q_.batch * q_.heads_q * q_.n_q * q_.d_qk, 1)),
        k(random_words(d, q_.type, q_.batch * q_.heads_kv * q_.n_kv * q_.d_qk, 2)),
        v(random_words(d, q_.type, q_.batch * q_.heads_kv * q_.n_kv * q_.d_v, 3)),
        o(d, q_.batch * q_.heads_q * q_.n_q * q_.d_v) {}
  AttentionAddresses at() const {
    AttentionAddresses a;
    a.q = q.address(), a.k = k.address(), a.v = v.address(), a.o = o.address();
    return a;
  }
};

void forward(Bench& b, const AttentionProblem& q) {
  const auto name = text::cat("forward/", shape_name(q));
  if (!b.wanted(name)) return;
  const auto p = q.dense();
  const Tensors t(b.device(), p);
  const auto choice = select_attention(p, t.at(), b.device().info());
  b.run(name, choice.variant.name, p.flops(), 0, [&](Stream& s) { attention(s, p, t.at()); });
}

// Root mean square errors relative to the kernel of f32 on the numbers before rounding; `mean` of the values
// shows a drift of long sums.
void accuracy(Bench& b, std::uint64_t d, std::uint64_t n, double mean) {
  const auto name = text::cat("accuracy/d", d, "/n", n, "/mean", mean);
  if (!b.wanted(name)) return;
  const auto& device = b.device();
  std::vector<HostArray> exact;
  for (std::uint64_t i = 0; i < 3; ++i) exact.push_back(random_array(DType::f32, {n * d}, 11 + i));
  for (std::uint64_t i = 0; i < n * d; ++i) exact[2].set(i, exact[2].at(i) + mean);
  const auto as = [&](const HostArray& from, DType t) {
    HostArray to(t, {n * d});
    for (std::uint64_t i = 0; i < n * d; ++i) to.set(i, from.at(i));
    return to;
  };
  const auto result = [&](DType inputs, DType kernel, bool promoted) {
    AttentionProblem p;
    p.type = kernel, p.n_q = p.n_kv = n, p.d_qk = d, p.promoted = promoted;
    std::vector<Buffer<std::byte>> in;
    for (const auto& x : exact) in.push_back(device.upload<std::byte>(as(as(x, inputs), kernel).bytes));
    HostArray o(p.o_type(), {n * d});
    Buffer<std::byte> out(device, o.bytes.size());
    Stream s(device);
    attention(s, p, {.q = in[0].address(), .k = in[1].address(), .v = in[2].address(), .o = out.address()});
    s.wait();
    out.download(o.bytes);
    return o;
  };
  const auto want = result(DType::f32, DType::f32, false);
  const auto error = [&](DType inputs, DType kernel, bool promoted = false) {
    const auto got = result(inputs, kernel, promoted);
    double off = 0, all = 0;
    for (std::uint64_t i = 0; i < n * d; ++i)
      off += (got.at(i) - want.at(i)) * (got.at(i) - want.at(i)), all += want.at(i) * want.at(i);
    return std::sqrt(off / all);
  };
  std::printf("%-28s bf16 %.2e  e4m3 %.2e  promoted %.2e  (f32 kernel on inputs rounded to e4m3: %.2e)\n",
              name.c_str(), error(DType::bf16, DType::bf16), error(DType::e4m3, DType::e4m3),
              d <= 128 ? error(DType::e4m3, DType::e4m3, true) : 0.0, error(DType::e4m3, DType::f32));
}

// What gradients need, after one forward pass of `p`; `more` has what else it needs.
struct BackwardTensors {
  Tensors t, grad;
  Buffer<bfloat16> d_o;
  Buffer<float> lse, delta;
  Buffer<std::byte> space;
  AttentionAddresses at;
  AttentionGradients g;
  BackwardTensors(const runtime::Device& d, const AttentionProblem& p, std::uint64_t workspace,
                  const AttentionAddresses& more = {})
      : t(d, p),
        grad(d, p),
        d_o(random_words(d, p.type, t.o.size(), 4)),
        lse(d, p.batch * p.heads_q * p.n_q),
        delta(d, lse.size()),
        space(d, workspace),
        at(more) {
    const auto own = t.at();
    at.q = own.q, at.k = own.k, at.v = own.v, at.o = own.o, at.lse = lse.address();
    g = {d_o.address(), grad.q.address(), grad.k.address(), grad.v.address(), delta.address()};
    g.workspace = space.address(), g.deterministic = false;
    Stream s(d);
    attention(s, p, at);
    s.wait();
  }
};

struct BackwardTunings {
  std::vector<AttentionBackwardTuning> mma;
  std::vector<AttentionBackwardSm90Tuning> sm90;
};
// Gradients after one forward pass: as selected, with any order of sums; "ordered/": in the order of keys. With
// tunings, each of them.
void backward(Bench& b, const AttentionProblem& q, const BackwardTunings& tunings = {},
              bool deterministic = false) {
  const bool each = !tunings.mma.empty() || !tunings.sm90.empty();
  const auto name = text::cat(each ? "sweep/" : deterministic ? "ordered/" : "", "backward/", shape_name(q));
  if (!b.wanted(name)) return;
  const auto p = q.dense();
  const auto& d = b.device();
  BackwardTensors t(d, p, attention_backward_workspace(p));
  t.g.deterministic = deterministic;
  const auto& at = t.at;
  const auto& g = t.g;
  const auto run = [&](const AttentionBackwardChoice& c, int rounds) {
    const auto variant = c.kind == AttentionKind::sm90 ? c.kernels[1].name
                                                       : text::cat(c.kernels[1].name, " ", c.kernels[2].name);
    if (each && b.takes(variant) && load(d, c.kernels[1]).attributes().local_bytes.value_or(0) > 0)
      std::printf("local memory: ");
    b.run(
        name, variant, attention_backward_flops(p), 0,
        [&](Stream& stream) { run_attention_backward(stream, c, p, at, g); }, rounds);
  };
  if (!each) run(select_attention_backward(p, at, g, d.info()), 0);
  for (const auto& tune : tunings.mma)
    run(choose_attention_backward(AttentionKind::mma, p, d.info().cc(), &tune), 7);
  for (const auto& tune : tunings.sm90) run(choose_attention_backward_sm90(p, tune), 7);
}

// The order in which d_q is summed.
void duel_orders(Bench& b, const AttentionProblem& q) {
  const auto name = text::cat("duel/backward/", shape_name(q));
  if (!b.wanted(name)) return;
  const auto p = q.dense();
  const BackwardTensors t(b.device(), p, attention_backward_workspace(p));
  std::vector<measure::Contender> all;
  for (auto [what, order] : {std::pair{"any", AddOrder::any},
                             {"first_stores", AddOrder::first_stores},
                             {"ordered", AddOrder::ordered}}) {
    auto tune = tune_attention_backward(p, order == AddOrder::ordered);
    tune.order = order;
    all.push_back({what, [&, c = choose_attention_backward_sm90(p, tune)](Stream& s) {
                     run_attention_backward(s, c, p, t.at, t.g);
                   }});
  }
  b.duel(name, attention_backward_flops(p), all);
}

// The same shapes as lambdas, whose derivatives are recorded.
ScoreModification capped_by_hand() {
  return {"capped_by_hand",
          [](const AttentionScore& s) {
            const auto e = dsl::ex2<dsl::approx, dsl::ftz>(s.score * (2 * 1.4426950408889634f / 30));
            return dsl::fma(dsl::rcp<dsl::approx, dsl::ftz>(e + 1.0f), -2.0f, dsl::Val<dsl::f32>(1.0f)) *
                   30.0f;
          },
          {}};
}
ScoreModification biased_by_hand() {
  return {"biased_by_hand",
          [](const AttentionScore& s) {
            const auto apart = dsl::max(s.query, s.key) - dsl::min(s.query, s.key);
            return s.score - dsl::to<dsl::f32>(apart) * 0.01f;
          },
          {}};
}

// Gradients of shaped scores (cap, alibi, add, bool), in any order, in that of the keys, by mma and as score
// modifications; beside those of plain ones.
void duel_shapes(Bench& b, const std::string& shape, const AttentionProblem& q) {
  const auto name = text::cat("duel/shaped/", shape, "/", shape_name(q));
  if (!b.wanted(name)) return;
  const auto plain = q.dense();
  auto p = plain;
  p.soft_cap = shape == "cap" ? 30.0f : 0.0f, p.alibi = shape == "alibi";
  p.mask = shape == "add"    ? AttentionMask::additive
           : shape == "bool" ? AttentionMask::boolean
                             : AttentionMask::none;
  const auto& d = b.device();
  const auto slopes = d.upload<float>(std::vector<float>(p.heads_q, 0.01f));
  const bool masked = p.mask != AttentionMask::none;
  const auto mask = random_words(d, p.type, masked ? p.n_q * p.n_kv : 1, 5);
  if (masked) p.mask_row = p.n_kv, p.mask_col = 1;
  AttentionAddresses more;
  more.slopes = slopes.address(), more.mask = mask.address();
  const BackwardTensors t(d, p, attention_backward_workspace(p), more);
  std::vector<measure::Contender> all;
  const auto add = [&](const char* what, const AttentionProblem& of, AttentionBackwardChoice c) {
    all.push_back({what, [&, c = std::move(c)](Stream& s) { run_attention_backward(s, c, of, t.at, t.g); }});
  };
  add("any", p, choose_attention_backward_sm90(p, tune_attention_backward(p, false)));
  add("ordered", p, choose_attention_backward_sm90(p, tune_attention_backward(p, true)));
  add("mma", p, choose_attention_backward(AttentionKind::mma, p, d.info().cc()));
  auto modified = plain;
  if (shape == "cap" || shape == "alibi") {
    modified.modify = shape == "cap" ? capped_by_hand() : biased_by_hand();
    add("modified", modified,
        choose_attention_backward_sm90(modified, tune_attention_backward(modified, false)));
  }
  add("plain", plain, choose_attention_backward_sm90(plain, tune_attention_backward(plain, false)));
  b.duel(name, attention_backward_flops(p), all);
}

// Head dimensions below a tile's, forward and gradients: what is used of it multiplied, and all of it.
void duel_padded(Bench& b, std::uint64_t d, bool causal) {
  auto p = standard(DType::bf16, 128, 4096, causal);
  p.d_qk = d;
  for (const char* pass : {"forward", "backward"}) {
    const auto name = text::cat("duel/padded/", pass, "/", shape_name(p));
    if (!b.wanted(name)) continue;
    const auto q = p.dense();
    const BackwardTensors t(b.device(), q, attention_backward_workspace(q));
    std::vector<measure::Contender> all;
    if (pass == std::string_view("forward")) {
      auto used = select_attention(q, t.t.at(), b.device().info()), whole = used;
      const int tile = d <= 64 ? 64 : 128;
      AttentionSm90Tuning tune;
      tune.warpgroups = used.config.tune.warpgroups, tune.persistent = used.config.tune.persistent;
      tune.q_tiles = used.config.tune.persistent && (causal || tile == 64) ? 2 : 1;
      tune.pingpong = tile == 64 ? Pingpong::at_issue : Pingpong::none,
      tune.stages = tile == 64 && causal ? 3 : 2;
      whole.config.d_qk = whole.config.d_v = tile, whole.config.tune = tune;
      whole.variant = attention_variant(whole.config);
      for (const auto& [what, c] : {std::pair{"used", used}, {"whole", whole}})
        all.push_back({what, [&, c = c](Stream& s) { run_attention(s, c, q, t.t.at()); }});
      b.duel(name, q.flops(), all);
    } else {
      const auto tune = tune_attention_backward(q, true);
      const auto used = choose_attention_backward_sm90(q, tune);
      auto whole = used;
      whole.kernels.clear();
      whole.configs =
          attention_backward_sm90(q.type, d <= 64 ? 64 : 128, tune, AttentionFeatures::of(q, false));
      whole = built(std::move(whole));
      for (const auto& [what, c] : {std::pair{"used", used}, {"whole", whole}})
        all.push_back({what, [&, c = c](Stream& s) { run_attention_backward(s, c, q, t.at, t.g); }});
      b.duel(name, attention_backward_flops(q), all);
    }
  }
}

// 16384 rows of sequences of many lengths, or of one, one after the other; or rows of 16 sequences with fewer
// keys than queries. `packed` of the forward pass and of the gradients, chosen and by mma.
struct Documents {
  const char* what;
  std::vector<std::uint32_t> rows;
};
void documents(Bench& b, DType type, std::uint64_t d, bool causal, const Documents& of) {
  const bool packed = of.what != std::string("lengths");
  AttentionProblem p;
  p.type = type, p.batch = of.rows.size(), p.heads_q = 2048 / d, p.d_qk = d, p.causal = causal;
  p.packed = packed, p.key_lengths = !packed;
  p.n_kv = *std::max_element(of.rows.begin(), of.rows.end()), p.n_q = p.n_kv;
  std::vector<std::uint32_t> cu{0};
  double flops = 0;
  for (auto n : of.rows) {
    cu.push_back(cu.back() + n);
    auto one = p;
    one.batch = 1, one.n_kv = n;
    if (packed) one.n_q = n;
    flops += one.flops();
  }
  if (packed) p.q = p.k = p.v = p.o = {0, d, 2048};
  const auto stem = text::cat(of.what, "/", name(type), "/d", d, causal ? "/causal" : "/full");
  const auto names = [&](const char* pass) { return text::cat("documents/", pass, "/", stem); };
  if (!b.wanted(names("forward")) && !b.wanted(names("backward"))) return;
  p = p.dense();
  AttentionAddresses at;
  const auto dcu = b.device().upload<std::uint32_t>(cu), lengths = b.device().upload<std::uint32_t>(of.rows);
  at.cu_seqlens_q = at.cu_seqlens_kv = dcu.address(), at.lengths = lengths.address();
  if (packed) at.total_q = at.total_kv = cu.back();
  auto as = p;  // its tensors
  if (packed) as.packed = false, as.batch = 1, as.n_q = as.n_kv = cu.back();
  const BackwardTensors t(b.device(), as, attention_backward_workspace(p, at.total_q), at);
  const auto& info = b.device().info();
  std::vector<AttentionChoice> forward{select_attention(p, t.at, info)};
  if (type != DType::e4m3) forward.push_back(choose_attention(AttentionKind::mma, p, true));
  if (b.sweeps())
    for (bool persistent : {true, false})
      for (int head_swizzle : {0, 1})
        for (int q_tiles : {1, 2}) {
          AttentionSm90Tuning tune;
          tune.warpgroups = d == 64 ? 3 : 2, tune.persistent = persistent, tune.head_swizzle = head_swizzle;
          tune.q_tiles = q_tiles;
          if (q_tiles == 1 || (persistent && d < 256))
            forward.push_back(choose_sm90(p, tune, d <= 128 ? 128 : 0, true));
        }
  for (const auto& c : forward)
    if (b.wanted(names("forward")))
      b.run(names("forward"), text::cat(c.variant.name, " head swizzle ", c.config.tune.head_swizzle), flops,
            0, [&](Stream& s) { run_attention(s, c, p, t.at); });
  if (!b.wanted(names("backward")) || type == DType::e4m3) return;
  const std::vector<AttentionBackwardChoice> backward{
      select_attention_backward(p, t.at, t.g, info),
      choose_attention_backward(AttentionKind::mma, p, info.cc())};
  for (const auto& c : backward)
    b.run(names("backward"), c.kernels[1].name, flops * 2.5, 0,
          [&](Stream& s) { run_attention_backward(s, c, p, t.at, t.g); });
}

void sweep(Bench& b, const AttentionProblem& q, const std::vector<int>& columns,
           const std::vector<AttentionSm90Tuning>& tunings, const char* what = "") {
  const auto name = text::cat("sweep/", what, q.type == DType::e4m3 ? "e4m3/" : "", "d", q.d_qk, "/",
                              q.causal ? "causal" : "full", "/n", q.n_kv);
  if (!b.wanted(name)) return;
  const auto p = q.dense();
  const Tensors t(b.device(), p);
  for (int c : columns)
    for (const auto& tune : tunings) {
      const auto choice = choose_sm90(p, tune, c, false);
      if (!b.takes(choice.variant.name)) continue;
      const auto made = load(b.device(), choice.variant).attributes();
      if (made.local_bytes.value_or(0) > 0) std::printf("local memory %u: ", *made.local_bytes);
      b.run(
          name,
          text::cat(choice.variant.name,
                    tune.head_swizzle ? text::cat(" head swizzle ", tune.head_swizzle) : ""),
          p.flops(), 0, [&](Stream& s) { run_attention(s, choice, p, t.at()); }, 7);
    }
}

// Sequences of a few tiles: how many heads together, query tiles ahead, persistent blocks or not.
void sweep_short(Bench& b) {
  for (std::uint64_t d : {64, 128, 256})
    for (std::uint64_t n : {512, 1024, 2048, 4096, 8192}) {
      std::vector<AttentionSm90Tuning> tunings;
      for (int warpgroups : {2, 3})
        for (int blocks : {0, 1, 2})  // not persistent, persistent, persistent with pingpong
          for (int head_swizzle : {0, 1, 4}) {
            if ((warpgroups == 3) != (d == 64 && n > 1024) || (blocks == 2 && d == 256) ||
                (blocks == 0 && head_swizzle))
              continue;
            AttentionSm90Tuning t;
            t.warpgroups = warpgroups, t.pingpong = blocks == 2 ? Pingpong::at_issue : Pingpong::none,
            t.persistent = blocks > 0, t.head_swizzle = head_swizzle;
            t.q_tiles = t.persistent && d < 256 ? 2 : 1, t.stages = t.persistent && d == 64 ? 3 : 2;
            tunings.push_back(t);
          }
      sweep(b, standard(DType::bf16, d, n, true), {d == 256 ? 80 : 128}, tunings);
    }
}
void sweep_fp8(Bench& b) {
  struct Shape {
    std::uint64_t d;
    int columns, warpgroups;
  };
  for (const Shape& shape : {Shape{64, 128, 3}, {64, 192, 2}, {128, 96, 2}, {128, 192, 2}, {256, 96, 2}})
    for (bool causal : {false, true}) {
      std::vector<AttentionSm90Tuning> tunings;
      for (bool persistent : {true, false})
        for (Pingpong pingpong : {Pingpong::none, Pingpong::at_scores})
          for (bool promoted : {false, true}) {
            if (promoted && shape.columns != 96 && shape.columns != 192) continue;
            if ((promoted && (shape.d == 256 || shape.columns * shape.d > 64 * 192)) ||
                (!causal && !persistent))
              continue;
            AttentionSm90Tuning t;
            t.warpgroups = shape.warpgroups, t.pingpong = pingpong, t.persistent = persistent,
            t.promoted = promoted;
            tunings.push_back(t);
          }
      if (causal && shape.columns != 192 && shape.columns != 160) continue;
      sweep(b, standard(DType::e4m3, shape.d, 8192, causal), {shape.columns}, tunings);
    }
}

// e4m3 over sequences of a few tiles, where what hides the ends of a tile matters more than products.
void sweep_fp8_short(Bench& b) {
  struct Ring {
    int warpgroups, stages, q_tiles;
  };
  struct Shape {
    std::uint64_t d;
    int columns;
    std::vector<Ring> rings;
  };
  const Shape shapes[] = {{64, 128, {{3, 3, 2}, {2, 2, 2}}},
                          {128, 192, {{2, 2, 2}}},
                          {128, 96, {{3, 2, 2}, {3, 3, 1}}},
                          {256, 96, {{2, 2, 2}}}};
  for (const Shape& shape : shapes)
    for (bool causal : {false, true})
      for (std::uint64_t n : {512, 1024, 2048, 4096, 8192}) {
        std::vector<AttentionSm90Tuning> tunings;
        for (const Ring& ring : shape.rings)
          for (Pingpong pingpong : {Pingpong::none, Pingpong::at_scores}) {
            if (pingpong != Pingpong::none && shape.d == 256) continue;
            AttentionSm90Tuning t;
            t.warpgroups = ring.warpgroups, t.stages = ring.stages, t.pingpong = pingpong;
            t.persistent = !causal || n <= 4096, t.head_swizzle = t.persistent && causal;
            t.q_tiles = t.persistent ? ring.q_tiles : 1;
            tunings.push_back(t);
          }
        sweep(b, standard(DType::e4m3, shape.d, n, causal), {shape.columns}, tunings, "short/");
      }
}

void sweep_pingpong(Bench& b) {
  for (std::uint64_t d : {64, 128, 256})
    for (bool causal : {false, true})
      for (std::uint64_t n : {1024, 8192}) {
        std::vector<AttentionSm90Tuning> tunings;
        for (Pingpong pingpong : {Pingpong::none, Pingpong::at_issue, Pingpong::at_scores}) {
          AttentionSm90Tuning t;
          t.warpgroups = d == 64 && (n > 1024 || !causal) ? 3 : 2, t.pingpong = pingpong;
          t.persistent = !causal || n == 1024, t.head_swizzle = n == 1024;
          t.q_tiles = n == 1024 && d < 256 ? 2 : 1;
          tunings.push_back(t);
        }
        auto p = standard(DType::bf16, d, n, causal);
        sweep(b, p,
              d == 64    ? std::vector<int>{128}
              : d == 128 ? std::vector<int>{128, 176}
                         : std::vector<int>{80},
              tunings, "pingpong/");
      }
}

// One query per sequence over pages in random order.
struct DecodeCase {
  DecodeProblem p;
  Buffer<bfloat16> pool, q, o;
  Buffer<std::int32_t> table;
  Buffer<std::uint32_t> lengths, work, wrong, shared;

  DecodeCase(const runtime::Device& d, const DecodeProblem& q_, std::uint64_t n)
      : p(q_),
        pool(random_words(d, DType::bf16, p.cache.bytes() / 2, 1)),
        q(random_words(d, DType::bf16, p.batch * p.heads_q * p.cache.d, 2)),
        o(d, p.batch * p.heads_q * p.cache.d),
        lengths(d.upload<std::uint32_t>(std::vector<std::uint32_t>(p.batch, std::uint32_t(n)))),
        wrong(d.zeros<std::uint32_t>(1)) {
    std::vector<std::int32_t> pages_of(p.cache.page_count);
    for (std::size_t i = 0; i < pages_of.size(); ++i)  // an odd step through a power of two of pages
      pages_of[i] = std::int32_t(i * 40503 % pages_of.size());
    table = d.upload<std::int32_t>(pages_of);
    auto splits = p;
    splits.cluster = 0;
    work = d.zeros<std::uint32_t>(
        std::max(decode_workspace(p, d.info()), decode_workspace(splits, d.info())) / 4 + 1);
  }
  void run(Stream& s, int cluster, int smem_kb = 0, bool share = true) const {
    auto with = p;
    with.cluster = cluster, with.smem_kb = smem_kb;
    if (!share) with.share = 0;
    decode(s, with,
           {q.address(), pool.address(), table.address(), lengths.address(), o.address(), 0, work.address(),
            wrong.address(), shared.empty() ? 0 : shared.address()});
  }
};
void decode_rows(Bench& b, DType pages, std::uint64_t batch, std::uint64_t heads_q, std::uint64_t heads_kv,
                 std::uint64_t n, std::uint64_t page, int splits = 0, std::uint64_t width = 128) {
  const auto name = text::cat("decode/", cgp::name(pages), "/b", batch, "/hq", heads_q, "/hk", heads_kv, "/n",
                              n, "/page", page, width == 128 ? "" : text::cat("/d", width));
  const bool row = b.wanted(splits ? text::cat("sweep/", name) : name);
  // clean/decode/...: no memset before, whose dirty lines are written while a cache larger than L2 is read.
  const bool clean = !splits && b.wanted(text::cat("clean/", name));
  const bool duel = !splits && (b.wanted(text::cat("duel/", name)) || b.wanted(text::cat("sweep/", name)));
  if (!row && !duel && !clean) return;
  DecodeProblem p;
  p.cache = {DType::bf16, pages, batch * n / page, page, heads_kv, width};
  p.batch = batch, p.heads_q = heads_q, p.columns = n / page, p.splits = splits;
  const DecodeCase on(b.device(), p, n);
  if (row)
    b.run(splits ? text::cat("sweep/", name) : name, text::cat("splits ", splits), 0, double(p.cache.bytes()),
          [&](Stream& s) { on.run(s, -1); });
  if (clean)
    b.run(
        text::cat("clean/", name), "", 0, double(p.cache.bytes()), [&](Stream& s) { on.run(s, -1); }, 0,
        false);
  if (!duel) return;
  std::vector<measure::Contender> all{{"splits", [&](Stream& s) { on.run(s, 0); }},
                                      {"chosen", [&](Stream& s) { on.run(s, -1); }}};
  // sweep/decode/...: every cluster and both sizes of rings.
  for (int smem_kb : {96, 192})
    for (int c : {1, 2, 4, 8, 16}) {
      const auto blocks = std::uint64_t(c) * batch * heads_kv;
      const auto slots = std::uint64_t(b.device().info().sm_count) * (smem_kb < 192 ? 2 : 1);
      if (!b.wanted(text::cat("sweep/", name)) || (c > 1 ? blocks > slots || blocks < 32 : blocks < 128))
        continue;
      all.push_back(
          {text::cat("c", c, "_", smem_kb), [&on, c, smem_kb](Stream& s) { on.run(s, c, smem_kb); }});
    }
  b.duel(text::cat("duel/", name), 0, all);
}
// `share` neighbours begin with the same `common` tokens, and each has `own` more: with and without a
// cascade.
void cascade_rows(Bench& b, DType pages, std::uint64_t batch, std::uint64_t share, std::uint64_t common,
                  std::uint64_t own, std::uint64_t heads_kv = 8) {
  const auto name = text::cat("duel/cascade/", cgp::name(pages), "/b", batch, "/share", share, "/hk",
                              heads_kv, "/common", common, "/own", own);
  if (!b.wanted(name)) return;
  constexpr std::uint64_t page = 64;
  DecodeProblem p;
  p.cache = {DType::bf16, pages, batch * (common + own) / page, page, heads_kv, 128};
  p.batch = batch, p.heads_q = 32, p.columns = (common + own) / page, p.share = share;
  DecodeCase on(b.device(), p, common + own);
  auto table = on.table.to_vector();
  for (std::uint64_t i = 0; i < batch; ++i)
    for (std::uint64_t c = 0; c < common / page; ++c)
      table[i * p.columns + c] = table[i / share * share * p.columns + c];
  on.table = b.device().upload<std::int32_t>(table);
  on.shared = b.device().upload<std::uint32_t>(std::vector<std::uint32_t>(batch, std::uint32_t(common)));
  b.duel(name, 0,
         {{"alone", [&](Stream& s) { on.run(s, -1, 0, false); }},
          {"without rings", [&](Stream& s) { on.run(s, 0); }},
          {"cascade", [&](Stream& s) { on.run(s, -1); }}});
}
void copy_rows(Bench& b) {
  if (!b.wanted("copy/2GiB")) return;
  Buffer<std::uint8_t> from(b.device(), 1u << 30), to(b.device(), 1u << 30);
  from.fill_bytes(7);
  b.run("copy/2GiB", "", 0, 2.0 * double(1u << 30), [&](Stream& s) { s.copy(to, from); });
}

void run_all(Bench& b) {
  copy_rows(b);
  for (DType t : {DType::bf16, DType::e4m3}) {
    decode_rows(b, t, 1, 32, 8, 8192, 64);
    decode_rows(b, t, 1, 32, 8, 8192, 16);
    for (std::uint64_t batch : {2, 4, 8, 16}) decode_rows(b, t, batch, 32, 8, 8192, 64);
    for (std::uint64_t n : {512, 2048, 32768, 131072}) decode_rows(b, t, 1, 32, 8, n, 64);
    decode_rows(b, t, 1, 12, 2, 8192, 64);
    decode_rows(b, t, 1, 28, 4, 8192, 64);
    decode_rows(b, t, 1, 12, 12, 8192, 64, 0, 64);
    decode_rows(b, t, 1, 14, 2, 8192, 64, 0, 64);
    decode_rows(b, t, 8, 12, 12, 1024, 64, 0, 64);
    decode_rows(b, t, 1, 32, 32, 8192, 64);
    decode_rows(b, t, 32, 32, 8, 4096, 64);
    decode_rows(b, t, 32, 32, 8, 4096, 16);
    decode_rows(b, t, 64, 32, 32, 2048, 64);
    decode_rows(b, t, 128, 32, 8, 4096, 256);
    decode_rows(b, t, 1, 16, 4, 8192, 64, 0, 256);
    decode_rows(b, t, 32, 16, 4, 4096, 64, 0, 256);
    decode_rows(b, t, 32, 32, 2, 4096, 64, 0, 256);
    decode_rows(b, t, 32, 32, 2, 4096, 64);
  }
  for (DType t : {DType::bf16, DType::e4m3}) {
    cascade_rows(b, t, 32, 32, 4096, 256);
    cascade_rows(b, t, 64, 64, 8192, 256);
    cascade_rows(b, t, 64, 8, 2048, 256);
    cascade_rows(b, t, 16, 16, 1024, 1024);
    cascade_rows(b, t, 64, 64, 4096, 256, 32);
  }
  for (int splits : {8, 16, 32, 48, 64}) decode_rows(b, DType::bf16, 1, 32, 8, 8192, 64, splits);
  for (int splits : {1, 2, 3, 4, 8}) decode_rows(b, DType::bf16, 32, 32, 8, 4096, 64, splits);
  for (std::uint64_t d : {64, 128})
    for (bool causal : {false, true})
      for (std::uint64_t n : {512, 1024, 2048, 4096}) duel_orders(b, standard(DType::bf16, d, n, causal));
  for (const char* shape : {"cap", "alibi", "add", "bool"})
    for (std::uint64_t d : {64, 128, 256})
      for (bool causal : {false, true})
        for (std::uint64_t n : {1024, 4096}) duel_shapes(b, shape, standard(DType::bf16, d, n, causal));
  for (std::uint64_t d : {32, 80, 96, 112})
    for (bool causal : {false, true}) duel_padded(b, d, causal);
  const Documents of[] = {
      {"mixed", {4096, 512, 1024, 256, 2048, 512, 1024, 256, 128, 2048, 1024, 512, 256, 1024, 512, 1152}},
      {"even", std::vector<std::uint32_t>(16, 1024)},
      {"lengths", {1024, 300, 777, 900, 64, 512, 1000, 640, 333, 850, 1024, 129, 700, 480, 256, 960}}};
  for (const auto& o : of)
    for (DType t : {DType::bf16, DType::e4m3})
      for (std::uint64_t d : {64, 128, 256})
        for (bool causal : {false, true}) documents(b, t, d, causal, o);
  sweep_short(b);
  sweep_fp8(b);
  sweep_fp8_short(b);
  sweep_pingpong(b);
  std::vector<AttentionBackwardSm90Tuning> of_sm90;
  for (int partial : {1, 2}) of_sm90.push_back({.partial = partial, .order = AddOrder::any});
  for (bool persistent : {false, true})
    of_sm90.push_back({.partial = 1, .order = AddOrder::first_stores, .persistent = persistent});
  for (int head_swizzle : {0, 1, 2, 4, 8, 16, 32})
    of_sm90.push_back({.order = AddOrder::ordered, .head_swizzle = head_swizzle});
  for (std::uint64_t n : {1024, 4096, 16384})
    for (bool causal : {false, true}) {
      backward(b, standard(DType::bf16, 64, n, causal), {{{32, 32, 32, 64}, {32, 32, 32, 32}}, of_sm90});
      backward(b, standard(DType::bf16, 128, n, causal), {{{16, 32, 32, 32}, {16, 64, 32, 32}}, of_sm90});
      std::vector<AttentionBackwardSm90Tuning> wide;
      for (bool persistent : {false, true})
        for (int head_swizzle : {1, 4, 16})
          wide.push_back({.persistent = persistent, .head_swizzle = head_swizzle});
      backward(b, standard(DType::bf16, 256, n, causal), {{{16, 16, 16, 16}}, wide});
    }
  for (DType t : {DType::bf16, DType::f16})
    for (std::uint64_t d : {64, 128, 256})
      for (bool causal : {false, true})
        for (std::uint64_t n : {512, 1024, 2048, 4096, 8192, 16384})
          for (bool deterministic : {false, true}) backward(b, standard(t, d, n, causal), {}, deterministic);
  for (std::uint64_t d : {64, 128, 256})
    for (std::uint64_t n : {1024, 8192})
      for (double mean : {0.0, 1.0}) accuracy(b, d, n, mean);
  for (DType t : {DType::bf16, DType::f16, DType::e4m3})
    for (std::uint64_t d : {64, 128, 256})
      for (bool causal : {false, true})
        for (std::uint64_t n : {512, 1024, 2048, 4096, 8192, 16384}) forward(b, standard(t, d, n, causal));
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> prefixes;
  std::string json, only;
  int rounds = 20;
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--json") && i + 1 < argc)
      json = argv[++i];
    else if (!std::strcmp(argv[i], "--rounds") && i + 1 < argc)
      rounds = std::atoi(argv[++i]);
    else if (!std::strcmp(argv[i], "--only") && i + 1 < argc)
      only = argv[++i];
    else if (argv[i][0] == '-') {
      std::printf("usage: %s [--json FILE] [--rounds N] [--only VARIANT] [PREFIX...]\n", argv[0]);
      return 2;
    } else
      prefixes.push_back(argv[i]);
  }
  return guarded([&] {
    Bench b(runtime::Device::open("cuda:0"), prefixes, rounds, only);
    std::printf("%s\n", b.device().info().name.c_str());
    run_all(b);
    if (!json.empty()) {
      std::vector<std::string> words{"cgp_attention_bench"};
      words.insert(words.end(), argv + 1, argv + argc);
      write_results(json, b.device().info(), words, b.rows(), "cold L2, random data, events");
    }
  });
}
