// SPDX-License-Identifier: Apache-2.0
// A warp has a head of a token; a lane has the pairs lane, lane + 32, ... that there are of it. The norm is the warp's sum.
#include "cgp/kernels/kv_cache/qkv_append.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/core/kernel_params.h"
#include "cgp/dsl/kernel.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr std::uint32_t kWarps = 4;

template <template <class> class V>
struct QkvAppendParams {
  V<u64> qkv, pitch, cos, sin, positions, q_weight, k_weight, pool, table, lengths, error_flag, offset;
  V<u64> slots, places;
  V<u32> items, tokens, heads_q, heads, page_size, page_count, columns;
  V<f32> eps;
};

template <class T>
class Head {
 public:
  Head(Kernel& k, Warp& w, const QkvAppendConfig& c, const QkvAppendParams<Val>& p, const Val<u32>& item)
      : k_(k),
        warp_(w),
        c_(c),
        p_(p),
        token_(item / all()),
        head_(item % all()),
        sequence_(token_ / p.tokens),
        place_(place()),
        row_(p.qkv + (to<u64>(token_) * p.pitch + to<u64>(head_ * std::uint32_t(c.d))) * 2u),
        changes_(head_ < p.heads_q + p.heads) {}

  void run() {
    const Out<T> row(row_);
    std::vector<Val<f32>> low, high;
    for (int j = 0; j < pairs(); ++j) {
      low.push_back(to<f32>(row.ld_if(there(j), first(j), Val<T>(0))[0]));
      high.push_back(to<f32>(row.ld_if(there(j), second(j), Val<T>(0))[0]));
    }
    if (c_.norm) norm(low, high);
    if (c_.rope) rotate(low, high);
    const auto store = [&](const Out<T>& to_row, const Val<pred>& wanted) {
      for (int j = 0; j < pairs(); ++j) {
        to_row.st_if(wanted & there(j), first(j), to<T>(low[std::size_t(j)]));
        to_row.st_if(wanted & there(j), second(j), to<T>(high[std::size_t(j)]));
      }
    };
    if (c_.norm || c_.rope) store(row, changes_);
    k_.if_(head_ >= p_.heads_q, [&] {
      const auto slot = slot_of();
      const auto page = slot / to<u64>(p_.page_size);
      const Val<pred> exists = page < to<u64>(p_.page_count);
      k_.if_(!exists, [&] {
        red<relaxed, gpu, op::max>(Out<u32>(p_.error_flag), 0, (c_.slots ? token_ : sequence_) + 1u);
      });
      const auto other = head_ - p_.heads_q;  // keys, then values: as they lie in a page
      const auto element = ((page * 2u * to<u64>(p_.heads) + to<u64>(other)) * to<u64>(p_.page_size) +
                            (slot - page * to<u64>(p_.page_size))) *
                           std::uint64_t(c_.d);
      store(Out<T>(p_.pool + element * 2u), exists);
    });
  }

 private:
  Val<u32> all() const { return p_.heads_q + p_.heads * 2u; }
  std::uint32_t half() const { return std::uint32_t(c_.d / 2); }
  int pairs() const { return (c_.d + 63) / 64; }  // of a lane
  Val<u32> pair(int j) const { return warp_.lane() + std::uint32_t(32 * j); }
  Val<pred> there(int j) const { return pair(j) < half(); }
  Val<u32> first(int j) const { return c_.interleaved ? pair(j) * 2u : pair(j); }
  Val<u32> second(int j) const { return c_.interleaved ? pair(j) * 2u + 1u : pair(j) + half(); }
  // Beyond all pages where none is listed.
  Val<u64> slot_of() const {
    if (c_.slots) return In<u64>(p_.slots, 0, !c_.pdl).ld(token_);
    const auto size = to<u64>(p_.page_size), column = place_ / size;
    const auto page = In<s32>(p_.table, 0, true)
                          .ld_if(column < to<u64>(p_.columns),
                                 to<u64>(sequence_) * to<u64>(p_.columns) + column, Val<s32>(-1))[0];
    return to<u64>(bits<u32>(page)) * size + place_ % size;
  }
  Val<u64> place() const {
    if (c_.slots) return to<u64>(bits<u32>(In<s32>(p_.places, 0, !c_.pdl).ld(token_)));
    const auto i = token_ % p_.tokens;
    if (!c_.lengths) return p_.offset + to<u64>(i);
    return to<u64>(In<u32>(p_.lengths, 0, !c_.pdl).ld(sequence_) - p_.tokens + i);
  }
  // Both are rounded to the type, as a norm of its own would leave them.
  void norm(std::vector<Val<f32>>& low, std::vector<Val<f32>>& high) {
    std::vector<Val<f32>> sum{Val<f32>(0)};
    for (std::size_t j = 0; j < low.size(); ++j)
      sum.push_back(fma(high[j], high[j], fma(low[j], low[j], sum.back())));
    const auto squares =
        reduce(warp_, sum.back(), [](const Val<f32>& a, const Val<f32>& b) { return a + b; });
    const auto rstd = rsqrt<approx>(squares * (1.0f / float(c_.d)) + p_.eps);
    const In<T> weight(select(head_ < p_.heads_q, p_.q_weight, p_.k_weight), 0, true);
    const auto each = [&](std::vector<Val<f32>>& v, bool of_second) {
      std::vector<Val<f32>> out;
      for (std::size_t j = 0; j < v.size(); ++j) {
        const auto at = of_second ? second(int(j)) : first(int(j));
        const auto normed = v[j] * rstd * to<f32>(weight.ld_if(there(int(j)), at, Val<T>(0))[0]);
        out.push_back(select(changes_, to<f32>(to<T>(normed)), v[j]));
      }
      v.swap(out);
    };
    each(low, false), each(high, true);
  }
  void rotate(std::vector<Val<f32>>& low, std::vector<Val<f32>>& high) {
    const Val<pred> known = changes_ & (place_ < p_.positions);
    std::vector<Val<f32>> a, b;
    for (std::size_t j = 0; j < low.size(); ++j) {
      const auto at = place_ * std::uint64_t(half()) + to<u64>(pair(int(j)));
      const Val<f32> nan(std::numeric_limits<float>::quiet_NaN());
      const Val<pred> listed = known & there(int(j));
      const auto c = In<f32>(p_.cos, 0, true).ld_if(listed, at, nan)[0],
                 s = In<f32>(p_.sin, 0, true).ld_if(listed, at, nan)[0];
      a.push_back(select(changes_, fma(low[j], c, -(high[j] * s)), low[j]));
      b.push_back(select(changes_, fma(low[j], s, high[j] * c), high[j]));
    }
    low.swap(a), high.swap(b);
  }

  Kernel& k_;
  Warp& warp_;
  const QkvAppendConfig& c_;
  const QkvAppendParams<Val>& p_;
  Val<u32> token_, head_, sequence_;
  Val<u64> place_, row_;
  Val<pred> changes_;
};

template <class T>
void qkv_append_kernel(Kernel& k, QkvAppendConfig c, QkvAppendParams<Val> p) {
  k.block(int(32 * kWarps));
  if (c.pdl && k.sm() >= 90) {
    griddepcontrol_launch_dependents(k);
    griddepcontrol_wait(k);
  }
  auto warp = k.warp();
  const auto item = k.ctaid_x() * kWarps + warp.index;
  k.if_(item < p.items, [&] { Head<T>(k, warp, c, p, item).run(); });
}

}  // namespace

std::string reject(const QkvAppend& p) {
  if (auto why = reject(p.cache); !why.empty()) return why;
  if (p.cache.pages != p.cache.type)
    return text::cat("pages = ", name(p.cache.pages), ": they must be ", name(p.cache.type),
                     " as the tokens");
  if (p.batch * p.tokens * (p.heads_q + 2 * p.cache.heads) > 0x7fffffff)
    return "there are 2^31 heads of tokens or more";
  if (p.columns > 0x7fffffff) return text::cat("columns = ", p.columns, " is above 2^31 - 1");
  if (!p.cos != !p.sin) return "cos and sin must be given together";
  if (!p.q_weight != !p.k_weight) return "q_weight and k_weight must be given together";
  if (p.pitch && p.pitch < (p.heads_q + 2 * p.cache.heads) * p.cache.d) return "rows of qkv overlap";
  if (p.slots && !p.places) return "places must be given with slots";
  for (auto [what, a] : {std::pair{"qkv", p.qkv},
                         {"pool", p.pool},
                         {"table", p.slots ? p.slots : p.table},
                         {"error_flag", p.error_flag}})
    if (!a) return text::cat(what, " is not given");
  return {};
}

QkvAppendConfig QkvAppendConfig::of(const QkvAppend& p) {
  return {p.cache.type,   int(p.cache.d), p.q_weight != 0, p.cos != 0,
          p.lengths != 0, p.pdl,          p.slots != 0,    p.interleaved && p.cos != 0};
}
Variant qkv_append_variant(const QkvAppendConfig& c) {
  if (c.type == DType::f16) return variant(c.name(), 75, qkv_append_kernel<f16>, c);
  return variant(c.name(), 80, qkv_append_kernel<bf16>, c);
}
std::vector<Variant> qkv_append_variants() {
  QkvAppend p;
  p.cache.d = 64;
  std::vector<Variant> all{qkv_append_variant(QkvAppendConfig::of(p))};
  p.cos = p.q_weight = p.lengths = 16, p.pdl = true, p.cache.d = 128;
  all.push_back(qkv_append_variant(QkvAppendConfig::of(p)));
  p.cache.type = p.cache.pages = DType::f16;
  all.push_back(qkv_append_variant(QkvAppendConfig::of(p)));
  p.slots = p.places = 16, p.lengths = 0, p.interleaved = true, p.q_weight = 0;
  all.push_back(qkv_append_variant(QkvAppendConfig::of(p)));
  return all;
}

void qkv_append(runtime::Stream& s, const QkvAppend& p) {
  if (auto why = reject(p); !why.empty()) throw ArgumentError(text::cat("qkv_append: ", why));
  const std::uint64_t heads = p.heads_q + 2 * p.cache.heads, items = p.batch * p.tokens * heads;
  if (!items) return;
  const auto u32 = [](std::uint64_t v) { return std::uint32_t(v); };
  const QkvAppendParams<HostValue> n{.qkv = p.qkv,
                                     .pitch = p.pitch ? p.pitch : heads * p.cache.d,
                                     .cos = p.cos,
                                     .sin = p.sin,
                                     .positions = p.positions,
                                     .q_weight = p.q_weight,
                                     .k_weight = p.k_weight,
                                     .pool = p.pool,
                                     .table = p.table,
                                     .lengths = p.lengths,
                                     .error_flag = p.error_flag,
                                     .offset = p.offset,
                                     .slots = p.slots,
                                     .places = p.places,
                                     .items = u32(items),
                                     .tokens = u32(p.tokens),
                                     .heads_q = u32(p.heads_q),
                                     .heads = u32(p.cache.heads),
                                     .page_size = u32(p.cache.page_size),
                                     .page_count = u32(p.cache.page_count),
                                     .columns = u32(p.columns),
                                     .eps = p.eps};
  load(s.device(), qkv_append_variant(QkvAppendConfig::of(p)))(
      s,
      runtime::Launch{.grid = {u32((items + kWarps - 1) / kWarps)},
                      .programmatic = p.pdl && s.device().info().cc() >= 90},
      n);
}

}  // namespace cgp::kernels
