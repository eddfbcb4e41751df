// SPDX-License-Identifier: Apache-2.0
// attention as tools and tests drive it: options as text, random or given arrays, checked by the oracle.
#include <algorithm>
#include <cmath>

#include "cgp/base/error.h"
#include "cgp/base/random.h"
#include "cgp/base/text.h"
#include "cgp/kernels/attention/attention.h"
#include "cgp/kernels/attention/attention_ref.h"
#include "cgp/kernels/decode/decode.h"

namespace cgp::kernels {
namespace {

using Bytes = runtime::Buffer<std::byte>;

Bytes uploaded(const runtime::Device& d, const void* data, std::size_t bytes, const char* what) {
  auto b = d.alloc<std::byte>(std::max<std::size_t>(bytes, 1), what);
  if (bytes) b.slice(0, bytes).upload(std::span(static_cast<const std::byte*>(data), bytes));
  return b;
}
Bytes uploaded(const runtime::Device& d, const HostArray& a, const char* what) {
  return uploaded(d, a.bytes.data(), a.bytes.size(), what);
}
Bytes uploaded(const runtime::Device& d, const std::vector<std::uint32_t>& a, const char* what) {
  return uploaded(d, a.data(), a.size() * 4, what);
}

class AttentionCase : public Case {
 public:
  AttentionCase(const runtime::Device& d, const AttentionProblem& q, const std::string& kind, bool lse,
                AttentionInputs in, const AttentionSm90Tuning* tune)
      : p_(q.dense()),
        in_(std::move(in)),
        q_(uploaded(d, in_.q, "q")),
        k_(uploaded(d, in_.k, "k")),
        v_(uploaded(d, in_.v, "v")),
        slopes_(uploaded(d, in_.slopes, "slopes")),
        mask_(uploaded(d, in_.mask, "mask")),
        cu_q_(uploaded(d, in_.cu_seqlens_q, "cu_seqlens_q")),
        cu_kv_(uploaded(d, in_.cu_seqlens_kv, "cu_seqlens_kv")),
        lengths_(uploaded(d, in_.lengths, "lengths")),
        scales_{uploaded(d, in_.q_scale, "q_scale"), uploaded(d, in_.k_scale, "k_scale"),
                uploaded(d, in_.v_scale, "v_scale")} {
    const std::uint64_t rows = p_.packed ? in_.cu_seqlens_q.back() : p_.batch * p_.n_q;
    o_shape_ = {rows, p_.heads_q, p_.d_v};
    o_ = uploaded(d, HostArray(p_.o_type(), o_shape_), "o");
    lse_ = uploaded(d, HostArray(DType::f32, {lse ? rows * p_.heads_q : 0}), "lse");
    o_.fill_bytes(0xff), lse_.fill_bytes(0xff);  // NaN: what is not written shows
    at_.q = q_.address(), at_.k = k_.address(), at_.v = v_.address(), at_.o = o_.address();
    at_.lse = lse ? lse_.address() : 0, at_.slopes = slopes_.address(), at_.mask = mask_.address();
    if (!in_.q_scale.bytes.empty())
      at_.q_scale = scales_[0].address(), at_.k_scale = scales_[1].address(),
      at_.v_scale = scales_[2].address();
    at_.cu_seqlens_q = cu_q_.address(), at_.cu_seqlens_kv = cu_kv_.address(),
    at_.lengths = lengths_.address();
    if (p_.packed) at_.total_q = in_.cu_seqlens_q.back(), at_.total_kv = in_.cu_seqlens_kv.back();
    const bool possible = reject_split_kv(p_, at_, d.info()).empty();
    split_kv_ = kind == "split_kv" || (kind == "auto" && !tune && possible && suits_split_kv(p_));
    if (split_kv_ && !possible) throw Unsupported(reject_split_kv(p_, at_, d.info()));
    if (split_kv_)
      choice_.variant = decode_variant(split_kv_config(p_, at_, d.info())),
      choice_.why = "few queries, many keys";
    else
      choice_ = choose(kind, d.info(), lse, tune);
    variant = choice_.variant.name, why = choice_.why;
    images = {image(choice_.variant, d.info().arch)};
    flops = p_.flops();
    bytes = double(in_.q.bytes.size() + in_.k.bytes.size() + in_.v.bytes.size() + o_.bytes());
  }
  void launch(runtime::Stream& s) override {
    split_kv_ ? attention_split_kv(s, p_, at_) : run_attention(s, choice_, p_, at_);
  }
  std::vector<NamedArray> outputs() override {
    std::vector<NamedArray> out;
    HostArray o(p_.o_type(), o_shape_);
    o_.slice(0, o.bytes.size()).download(o.bytes);
    out.push_back({"o", std::move(o)});
    if (at_.lse) {
      HostArray l(DType::f32, {o_shape_[0] * p_.heads_q});
      lse_.slice(0, l.bytes.size()).download(l.bytes);
      out.push_back({"lse", std::move(l)});
    }
    return out;
  }
  Check verify() override {
    const auto out = outputs();
    return check_attention(p_, in_, out[0].array, at_.lse ? out[1].array : HostArray{});
  }

 private:
  AttentionChoice choose(const std::string& kind, const runtime::DeviceInfo& d, bool lse,
                         const AttentionSm90Tuning* tune) {
    if (kind == "auto" && !tune) return select_attention(p_, at_, d);
    const std::string wanted = kind == "auto" ? "sm90" : kind;
    if (tune && wanted != "sm90")
      throw ArgumentError({text::cat("attention: warpgroups is an option of sm90, the variant is ", kind),
                           {},
                           {},
                           "leave warpgroups or variant out"});
    for (int i = 0; i < kAttentionKinds; ++i) {
      const auto k = AttentionKind(i);
      if (name(k) != wanted) continue;
      if (auto wrong = reject(k, p_, at_, d); !wrong.empty()) throw Unsupported(std::move(wrong));
      if (k == AttentionKind::sm90) {
        auto c = tune ? choose_sm90(p_, *tune, 0, lse) : select_attention(p_, at_, d);
        c.why = "asked for";
        return c;
      }
      return choose_attention(k, p_, lse);
    }
    throw ArgumentError(text::cat("attention: no variant ", kind));
  }
  AttentionProblem p_;
  AttentionInputs in_;
  Bytes q_, k_, v_, slopes_, mask_, cu_q_, cu_kv_, lengths_, scales_[3], o_, lse_;
  std::vector<std::uint64_t> o_shape_;
  AttentionAddresses at_;
  AttentionChoice choice_;
  bool split_kv_ = false;
};

// Lengths of sequences between 0 and `most`, the first one of them as long as can be, every second one about
// as long as nothing or a tile.
std::vector<std::uint32_t> random_lengths(std::uint64_t batch, std::uint64_t most, std::uint64_t seed) {
  std::vector<std::uint32_t> n{std::uint32_t(most)};
  SplitMix64 random(seed);
  constexpr std::uint64_t edges[] = {0, 64, 1, 63, 65, 128, 129};
  while (n.size() < batch) {
    const auto any = random.next() % (most + 1), edge = edges[(n.size() / 2 + seed) % std::size(edges)];
    n.push_back(std::uint32_t(n.size() % 2 ? std::min(edge, most) : any));
  }
  n.resize(batch);
  return n;
}
std::vector<std::uint32_t> offsets_of(const std::vector<std::uint32_t>& n) {
  std::vector<std::uint32_t> s{0};
  for (auto x : n) s.push_back(s.back() + x);
  return s;
}

AttentionProblem problem(const Options& o) {
  const DType legal[] = {DType::f32, DType::f16, DType::bf16, DType::e4m3},
              results[] = {DType::bf16, DType::f16};
  const std::string_view masks[] = {"none", "additive", "boolean"};
  AttentionProblem p;
  p.type = o.dtype("dtype", legal), p.out = o.dtype("out", results), p.promoted = o.flag("promoted");
  p.batch = o.size("batch"), p.heads_q = o.size("heads"), p.heads_kv = o.size("heads_kv");
  p.n_q = o.size("n"), p.n_kv = o.given("n_kv") ? o.size("n_kv") : p.n_q;
  p.d_qk = o.size("d"), p.d_v = o.size("d_v");
  p.scale = float(o.real("scale")), p.causal = o.flag("causal");
  p.window_left = o.integer("left"), p.window_right = o.integer("right");
  p.soft_cap = float(o.real("cap")), p.alibi = o.flag("alibi");
  p.packed = o.flag("packed"), p.key_lengths = o.flag("lengths");
  const auto m = o.choice("mask", masks);
  p.mask = m == "additive"  ? AttentionMask::additive
           : m == "boolean" ? AttentionMask::boolean
                            : AttentionMask::none;
  return p;
}

// Rows of [batch, rows, heads, d] (bshd, also what packed is) or [batch, heads, rows, d] (bhsd).
AttentionStrides strides(bool bshd, std::uint64_t heads, std::uint64_t rows, std::uint64_t d) {
  if (bshd) return {rows * heads * d, d, heads * d};
  return {heads * rows * d, rows * d, d};
}

// Scales of e4m3 operands between 1/2 and 2: of one head each, or one for all.
void add_scales(AttentionProblem& p, AttentionInputs& in, bool by_head, std::uint64_t seed) {
  SplitMix64 random(seed);
  const auto make = [&](HostArray& scales, AttentionScaleStrides& s, std::uint64_t heads) {
    scales = HostArray(DType::f32, {by_head ? p.batch * heads : 1});
    for (std::uint64_t i = 0; i < scales.size(); ++i)
      scales.set(i, std::exp2(double(random.next() % 4096) / 2048 - 1));
    if (by_head) s = {heads, 1};
  };
  make(in.q_scale, p.q_scale, p.heads_q), make(in.k_scale, p.k_scale, p.heads_kv);
  make(in.v_scale, p.v_scale, p.heads_kv);
}

Pingpong pingpong(const Options& o) {
  const std::string_view legal[] = {"none", "issue", "scores"};
  const auto word = o.choice("pingpong", legal);
  return word == "issue" ? Pingpong::at_issue : word == "scores" ? Pingpong::at_scores : Pingpong::none;
}

std::unique_ptr<Case> prepare(const runtime::Device& d, const Options& o,
                              const std::vector<NamedArray>& given, std::uint64_t seed) {
  const std::string_view layouts[] = {"bhsd", "bshd"}, kinds[] = {"auto", "simt", "mma", "sm90", "split_kv"};
  AttentionProblem p = problem(o);
  if (auto why = reject_forward(p); !why.empty()) throw ArgumentError(text::cat("attention: ", why));
  p = p.dense();
  const bool bshd = o.choice("layout", layouts) == "bshd" || p.packed;
  AttentionInputs in;
  std::uint64_t rows_q = p.batch * p.n_q, rows_kv = p.batch * p.n_kv;
  if (p.packed) {
    in.cu_seqlens_q = offsets_of(random_lengths(p.batch, p.n_q, seed + 10));
    in.cu_seqlens_kv = offsets_of(random_lengths(p.batch, p.n_kv, seed + 11));
    rows_q = in.cu_seqlens_q.back(), rows_kv = in.cu_seqlens_kv.back();
  }
  if (p.key_lengths) in.lengths = random_lengths(p.batch, p.n_kv, seed + 12);
  p.q = strides(bshd, p.heads_q, p.n_q, p.d_qk), p.k = strides(bshd, p.heads_kv, p.n_kv, p.d_qk);
  p.v = strides(bshd, p.heads_kv, p.n_kv, p.d_v), p.o = strides(bshd, p.heads_q, p.n_q, p.d_v);
  const auto array = [&](const char* what, DType t, std::uint64_t n, std::uint64_t s) {
    if (const HostArray* h = find_input(given, what); h && h->size() == n && h->dtype == t) return *h;
    return input_or_random(given, what, t, {n}, s);
  };
  in.q = array("q", p.type, rows_q * p.heads_q * p.d_qk, seed);
  in.k = array("k", p.type, rows_kv * p.heads_kv * p.d_qk, seed + 1);
  in.v = array("v", p.type, rows_kv * p.heads_kv * p.d_v, seed + 2);
  if (p.alibi) {
    in.slopes = HostArray(DType::f32, {p.heads_q});
    for (std::uint64_t h = 0; h < p.heads_q; ++h)
      in.slopes.set(h, std::exp2(-8.0 * double(h + 1) / double(p.heads_q)));
  }
  if (p.mask != AttentionMask::none) {  // one for all of the batch, its own for each head
    p.mask_head = p.n_q * p.n_kv, p.mask_row = p.n_kv, p.mask_col = 1;
    in.mask = p.mask == AttentionMask::additive
                  ? array("mask", p.o_type(), p.heads_q * p.n_q * p.n_kv, seed + 3)
                  : random_array(DType::u8, {p.heads_q * p.n_q * p.n_kv}, seed + 3);
    if (p.mask == AttentionMask::boolean)  // a fifth is forbidden, the first row's all
      for (std::uint64_t i = 0; i < in.mask.size(); ++i)
        in.mask.set(i, i % (p.n_q * p.n_kv) >= p.n_kv && in.mask.at(i) > 3);
  }
  const std::string_view scales[] = {"none", "tensor", "head"};
  if (const auto how = o.choice("scales", scales); how != "none") {
    if (p.type != DType::e4m3)
      throw ArgumentError(text::cat("scales = ", how, ": only e4m3 operands have scales"));
    add_scales(p, in, how == "head", seed + 4);
  }
  AttentionSm90Tuning tune;
  tune.warpgroups = int(o.size("warpgroups"));
  tune.pingpong = pingpong(o);
  tune.q_tiles = int(o.size("q_tiles")), tune.promoted = p.promoted;
  tune.splits = int(o.size("splits")), tune.split = tune.splits > 1, tune.dynamic = o.flag("dynamic");
  tune.persistent = o.flag("persistent") && !tune.split, tune.lazy_rescale = o.flag("lazy_rescale"),
  tune.polynomial = int(o.size("polynomial"));
  if (tune.splits < 1 || tune.splits > 32)
    throw ArgumentError(text::cat("attention: splits = ", tune.splits, " is not 1 to 32"));
  const AttentionSm90Tuning plain;
  if (!tune.warpgroups && (tune.pingpong != plain.pingpong || tune.q_tiles != plain.q_tiles ||
                           tune.persistent != plain.persistent || tune.dynamic || tune.split ||
                           tune.lazy_rescale != plain.lazy_rescale || tune.polynomial != plain.polynomial))
    throw ArgumentError({"attention: options of sm90 are given without warpgroups, and would have no effect",
                         {},
                         {},
                         "set warpgroups = 2 or 3"});
  return std::make_unique<AttentionCase>(d, p, o.choice("variant", kinds), o.flag("lse"), std::move(in),
                                         tune.warpgroups ? &tune : nullptr);
}

}  // namespace

KernelEntry attention_entry() {
  KernelEntry e;
  e.name = "attention";
  e.summary = "o = softmax(q k' * scale) v by heads, with masks, bounds and grouped queries";
  e.options = {
      {"dtype", "bf16", "f32, f16, bf16 or e4m3"},
      {"out", "bf16", "of e4m3 operands: bf16 or f16"},
      {"promoted", "0", "promoted accumulation of e4m3: fp32 registers add up the tiles of keys"},
      {"scales", "none", "scales of e4m3 operands: none, tensor (one) or head"},
      {"batch", "2", "sequences"},
      {"heads", "4", "of queries"},
      {"heads_kv", "0", "of keys and values; 0: as many"},
      {"n", "512", "queries of a sequence"},
      {"n_kv", "512", "keys of a sequence; not given: n"},
      {"d", "128", "head dimension, 1 to 256"},
      {"d_v", "0", "of the values; 0: d"},
      {"layout", "bhsd", "bhsd or bshd: order of batch, heads, rows"},
      {"scale", "-1", "of the scores; negative: 1 / sqrt(d)"},
      {"causal", "0", "the last query is aligned with the last key"},
      {"left", "-1", "keys before a query's own that it sees; -1: all"},
      {"right", "-1", "keys after a query's own that it sees; -1: all"},
      {"cap", "0", "soft cap of the scores; 0: none"},
      {"alibi", "0", "slopes 2^(-8 h / heads)"},
      {"mask", "none", "none, additive or boolean, random"},
      {"packed", "0", "sequences of random lengths one after the other"},
      {"lengths", "0", "random numbers of keys"},
      {"lse", "1", "log of the sums too"},
      {"warpgroups", "0", "of sm90: 2 or 3, with the next options; 0: chosen"},
      {"q_tiles", "1", "tiles of q in flight (sm90)"},
      {"pingpong", "none",
       "warpgroups issue products in turn: none, issue (until issued) or scores (until there) (sm90)"},
      {"persistent", "1", "one block per SM walks over the tiles (sm90)"},
      {"dynamic", "0", "persistent blocks take tiles one by one (sm90)"},
      {"splits", "1", "blocks that share the keys of a tile, 1 to 32 (sm90)"},
      {"lazy_rescale", "1", "o is rescaled only when a maximum grew by more than 2^8 (sm90)"},
      {"polynomial", "0", "of 16 exponentials, computed by polynomials (sm90)"},
      {"variant", "auto", "auto, simt, mma, sm90 or split_kv"}};
  e.inputs = {"q", "k", "v", "mask"};
  e.images = [](std::string_view arch) { return images(attention_variants(), arch); };
  e.prepare = prepare;
  return e;
}

}  // namespace cgp::kernels
