// SPDX-License-Identifier: Apache-2.0
// A warp has a head of a token; a lane has pairs lane, lane + 32, ... of it. The norm is the warp's sum.
#include "cgp/kernels/kv_cache/qkv_append.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/kernel.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr std::uint32_t kWarps = 4;

struct Build {
  int d = 64;
  bool turns = false, norms = false, lengths = false, early = false;
};
struct Numbers {
  std::uint64_t qkv, pitch, cos, sin, positions, q_weight, k_weight, pool, table, lengths, wrong, offset;
  std::uint32_t items, tokens, heads_q, heads, page_size, page_count, columns;
  float eps;
};
struct Params {
  Val<u64> qkv, pitch, cos, sin, positions, q_weight, k_weight, pool, table, lengths, wrong, offset;
  Val<u32> items, tokens, heads_q, heads, page_size, page_count, columns;
  Val<f32> eps;
  static auto carried() {
    using P = Params;
    return std::tuple(&P::qkv, &P::pitch, &P::cos, &P::sin, &P::positions, &P::q_weight, &P::k_weight,
                      &P::pool, &P::table, &P::lengths, &P::wrong, &P::offset, &P::items, &P::tokens,
                      &P::heads_q, &P::heads, &P::page_size, &P::page_count, &P::columns, &P::eps);
  }
};

template <class T>
class Head {
 public:
  Head(Kernel& k, Warp& w, const Build& b, const Params& p, const Val<u32>& item)
      : k_(k),
        warp_(w),
        b_(b),
        p_(p),
        token_(item / all()),
        head_(item % all()),
        sequence_(token_ / p.tokens),
        place_(place()),
        row_(p.qkv + (to<u64>(token_) * p.pitch + to<u64>(head_ * std::uint32_t(b.d))) * 2u),
        changes_(head_ < p.heads_q + p.heads) {}

  void run() {
    const Out<T> row(row_);
    std::vector<Val<f32>> low, high;
    for (int j = 0; j < b_.d / 64; ++j) {
      low.push_back(to<f32>(row.ld(pair(j))));
      high.push_back(to<f32>(row.ld(pair(j) + half())));
    }
    if (b_.norms) norm(low, high);
    if (b_.turns) turn(low, high);
    const auto store = [&](const Out<T>& to_row, const Val<pred>& there) {
      for (int j = 0; j < b_.d / 64; ++j) {
        to_row.st_if(there, pair(j), to<T>(low[std::size_t(j)]));
        to_row.st_if(there, pair(j) + half(), to<T>(high[std::size_t(j)]));
      }
    };
    if (b_.norms || b_.turns) store(row, changes_);
    k_.if_(head_ >= p_.heads_q, [&] {
      const auto column = place_ / to<u64>(p_.page_size);
      const Val<pred> listed = column < to<u64>(p_.columns);
      const auto page =
          bits<u32>(In<s32>(p_.table, 0, true)
                        .ld_if(listed, to<u64>(sequence_) * to<u64>(p_.columns) + column, Val<s32>(-1))[0]);
      const Val<pred> there = listed & (page < p_.page_count);
      k_.if_(!there, [&] { red<relaxed, gpu, op::max>(Out<u32>(p_.wrong), 0, sequence_ + 1u); });
      const auto other = head_ - p_.heads_q;  // keys, then values: as they lie in a page
      const auto element =
          ((to<u64>(page) * 2u * to<u64>(p_.heads) + to<u64>(other)) * to<u64>(p_.page_size) +
           place_ % to<u64>(p_.page_size)) *
          std::uint64_t(b_.d);
      store(Out<T>(p_.pool + element * 2u), there);
    });
  }

 private:
  Val<u32> all() const { return p_.heads_q + p_.heads * 2u; }
  std::uint32_t half() const { return std::uint32_t(b_.d / 2); }
  Val<u32> pair(int j) const { return warp_.lane() + std::uint32_t(32 * j); }
  Val<u64> place() const {
    const auto i = token_ % p_.tokens;
    if (!b_.lengths) return p_.offset + to<u64>(i);
    return to<u64>(In<u32>(p_.lengths, 0, !b_.early).ld(sequence_) - p_.tokens + i);
  }
  // Both are rounded to the type, as a norm of its own would leave them.
  void norm(std::vector<Val<f32>>& low, std::vector<Val<f32>>& high) {
    std::vector<Val<f32>> sum{Val<f32>(0)};
    for (std::size_t j = 0; j < low.size(); ++j)
      sum.push_back(fma(high[j], high[j], fma(low[j], low[j], sum.back())));
    const auto squares =
        reduce(warp_, sum.back(), [](const Val<f32>& a, const Val<f32>& b) { return a + b; });
    const auto rstd = rsqrt<approx>(squares * (1.0f / float(b_.d)) + p_.eps);
    const In<T> weight(select(head_ < p_.heads_q, p_.q_weight, p_.k_weight), 0, true);
    const auto each = [&](std::vector<Val<f32>>& v, std::uint32_t offset) {
      std::vector<Val<f32>> out;
      for (std::size_t j = 0; j < v.size(); ++j) {
        const auto normed = v[j] * rstd * to<f32>(weight.ld(pair(int(j)) + offset));
        out.push_back(select(changes_, to<f32>(to<T>(normed)), v[j]));
      }
      v.swap(out);
    };
    each(low, 0), each(high, half());
  }
  void turn(std::vector<Val<f32>>& low, std::vector<Val<f32>>& high) {
    const Val<pred> known = changes_ & (place_ < p_.positions);
    std::vector<Val<f32>> a, b;
    for (std::size_t j = 0; j < low.size(); ++j) {
      const auto at = place_ * std::uint64_t(half()) + to<u64>(pair(int(j)));
      const Val<f32> nan(std::numeric_limits<float>::quiet_NaN());
      const auto c = In<f32>(p_.cos, 0, true).ld_if(known, at, nan)[0],
                 s = In<f32>(p_.sin, 0, true).ld_if(known, at, nan)[0];
      a.push_back(select(changes_, fma(low[j], c, -(high[j] * s)), low[j]));
      b.push_back(select(changes_, fma(low[j], s, high[j] * c), high[j]));
    }
    low.swap(a), high.swap(b);
  }

  Kernel& k_;
  Warp& warp_;
  const Build& b_;
  const Params& p_;
  Val<u32> token_, head_, sequence_;
  Val<u64> place_, row_;
  Val<pred> changes_;
};

template <class T>
void qkv_append_kernel(Kernel& k, Build b, Params p) {
  k.block(int(32 * kWarps));
  if (b.early && k.sm() >= 90) {
    griddepcontrol_launch_dependents(k);
    griddepcontrol_wait(k);
  }
  auto warp = k.warp();
  const auto item = k.ctaid_x() * kWarps + warp.index;
  k.if_(item < p.items, [&] { Head<T>(k, warp, b, p, item).run(); });
}

}  // namespace

std::string reject(const QkvAppend& p) {
  if (auto why = reject(p.cache); !why.empty()) return why;
  if (p.cache.pages != p.cache.type)
    return text::cat("pages = ", name(p.cache.pages), ": they must be ", name(p.cache.type),
                     " as the tokens");
  if (p.cache.d % 64) return text::cat("d = ", p.cache.d, " is no multiple of 64");
  if (p.batch * p.tokens * (p.heads_q + 2 * p.cache.heads) > 0x7fffffff)
    return "there are 2^31 heads of tokens or more";
  if (p.columns > 0x7fffffff) return text::cat("columns = ", p.columns, " is above 2^31 - 1");
  if (!p.cos != !p.sin) return "cos and sin must be given together";
  if (!p.q_weight != !p.k_weight) return "q_weight and k_weight must be given together";
  if (p.pitch && p.pitch < (p.heads_q + 2 * p.cache.heads) * p.cache.d) return "rows of qkv overlap";
  for (auto [what, a] : {std::pair{"qkv", p.qkv}, {"pool", p.pool}, {"table", p.table}, {"wrong", p.wrong}})
    if (!a) return text::cat(what, " is not given");
  return {};
}

Variant qkv_append_variant(const QkvAppend& p) {
  const Build b{int(p.cache.d), p.cos != 0, p.q_weight != 0, p.lengths != 0, p.early};
  auto name = text::cat("qkv_append_", cgp::name(p.cache.type), "_", b.d, b.norms ? "_norms" : "",
                        b.turns ? "_turns" : "", b.lengths ? "_lengths" : "", b.early ? "_early" : "");
  if (p.cache.type == DType::f16) return variant(std::move(name), 75, qkv_append_kernel<f16>, b);
  return variant(std::move(name), 80, qkv_append_kernel<bf16>, b);
}
std::vector<Variant> qkv_append_variants() {
  QkvAppend p;
  p.cache.d = 64;
  std::vector<Variant> all{qkv_append_variant(p)};
  p.cos = p.q_weight = p.lengths = 16, p.early = true, p.cache.d = 128;
  all.push_back(qkv_append_variant(p));
  p.cache.type = p.cache.pages = DType::f16;
  all.push_back(qkv_append_variant(p));
  return all;
}

void qkv_append(runtime::Stream& s, const QkvAppend& p) {
  if (auto why = reject(p); !why.empty()) throw ArgumentError(text::cat("qkv_append: ", why));
  const std::uint64_t heads = p.heads_q + 2 * p.cache.heads, items = p.batch * p.tokens * heads;
  if (!items) return;
  const auto u32 = [](std::uint64_t v) { return std::uint32_t(v); };
  const Numbers n{p.qkv,
                  p.pitch ? p.pitch : heads * p.cache.d,
                  p.cos,
                  p.sin,
                  p.positions,
                  p.q_weight,
                  p.k_weight,
                  p.pool,
                  p.table,
                  p.lengths,
                  p.wrong,
                  p.offset,
                  u32(items),
                  u32(p.tokens),
                  u32(p.heads_q),
                  u32(p.cache.heads),
                  u32(p.cache.page_size),
                  u32(p.cache.page_count),
                  u32(p.columns),
                  p.eps};
  load(s.device(), qkv_append_variant(p))(
      s,
      runtime::Launch{.grid = {u32((items + kWarps - 1) / kWarps)},
                      .programmatic = p.early && s.device().info().cc() >= 90},
      n);
}

}  // namespace cgp::kernels
