// SPDX-License-Identifier: Apache-2.0
// Append, copy and gather: 8 elements (16 bytes of a token) per thread and step.
#include "cgp/kernels/kv_cache/kv_cache.h"

#include <algorithm>
#include <bit>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/memory/atomic.h"
#include "cgp/kernels/kv_cache/kv_words.h"
#include "cgp/launch/kernel_args.h"

namespace cgp::kernels {
namespace {

using namespace kv_impl;

constexpr std::uint32_t kThreads = 256;

template <class T>
Val<f32> element(const Val<b32>& word, int which) {
  return to<f32>(unpack<T>(word)[which]);
}

// One token's 8 elements into the pool.
template <class T, class Page>
void store8(const Val<u64>& to, const RegGroup<b32, 4>& w, const Val<f32>& inverse_scale) {
  if constexpr (Page::bits == 16) {
    Out<b32>(to).template st<4>(0, w);
  } else {
    const auto pair = [&](int i) {
      return cvt<rn, satfinite, e4m3x2>(element<T>(w[i], 1) * inverse_scale,
                                        element<T>(w[i], 0) * inverse_scale);
    };
    Out<b32>(to).template st<2>(
        0, RegGroup<b32, 2>(dsl::pack<b32>(pair(0), pair(1)), dsl::pack<b32>(pair(2), pair(3))));
  }
}

// Chunks are of 8 elements. The launch does not know T and Page as types: pointers of all types are alike there.
template <class T, class Page>
struct AppendArgs {
  template <template <class> class V>
  struct Of {
    V<In<T>> keys, values;
    V<Out<Page>> pool;
    V<In<u64>> slots;
    V<InOut<u32>> error_flag;
    V<u32> first;     ///< token of this launch
    V<u32> chunks;    ///< of the tokens of this launch
    V<u32> per_head;  ///< chunks
    V<u32> heads, page_shift;
    V<u64> slot_count;
    V<u64> row, head_stride;  ///< elements between tokens and heads
    V<f32> key_inverse, value_inverse;
  };
};

template <class T, class Page>
void append_kernel(Kernel& k, typename AppendArgs<T, Page>::template Of<DeviceArg> p) {
  k.block(int(kThreads));
  k.grid_stride(p.chunks, [&](ThreadIndex i) {
    const Val<u32> index = i, each = p.per_head, all = each * p.heads;
    const auto token = index / all, inside = index - token * all, head = inside / each,
               chunk = inside - head * each;
    const auto slot = p.slots.ld(p.first + token);
    const auto from = to<u64>(p.first + token) * p.row + to<u64>(head) * p.head_stride + to<u64>(chunk) * 8u;
    const Val<pred> there = index < p.chunks;
    const auto keys = load8<T>(p.keys.at(from).address(), there);
    const auto values = load8<T>(p.values.at(from).address(), there);
    const auto bad = slot >= p.slot_count;
    k.if_(bad, [&] { red<relaxed, gpu, op::max>(p.error_flag, 0, p.first + token + 1); });
    k.if_(!bad, [&] {
      const auto page = slot >> p.page_shift, place = slot - (page << p.page_shift);
      const auto d = to<u64>(each) * 8u, heads = to<u64>(p.heads);
      const auto key =
          ((((page * 2u) * heads + to<u64>(head)) << p.page_shift) + place) * d + to<u64>(chunk) * 8u;
      const auto value = key + ((heads * d) << p.page_shift);
      store8<T, Page>(p.pool.at(key).address(), keys, p.key_inverse);
      store8<T, Page>(p.pool.at(value).address(), values, p.value_inverse);
    });
  });
}

template <class T, class Page>
struct GatherArgs {
  template <template <class> class V>
  struct Of {
    V<In<Page>> pool;
    V<In<s32>> table;
    V<In<u32>> lengths;
    V<Out<T>> keys, values;
    V<InOut<u32>> error_flag;
    V<u32> first;     ///< sequence of this launch
    V<u32> chunks;    ///< of the rows of this launch
    V<u32> per_head;  ///< chunks
    V<u32> heads, rows, page_shift, page_count, columns;
    V<f32> key_scale, value_scale;
  };
};

template <class T, class Page>
void gather_kernel(Kernel& k, typename GatherArgs<T, Page>::template Of<DeviceArg> p) {
  k.block(int(kThreads));
  k.grid_stride(p.chunks, [&](ThreadIndex i) {
    const Val<u32> index = i, each = p.per_head;
    const auto line = index / each, chunk = index - line * each, bh = line / p.rows, row = line - bh * p.rows;
    const auto of_launch = bh / p.heads, head = bh - of_launch * p.heads, batch = p.first + of_launch;
    const auto inside = row < p.lengths.ld(batch);
    const auto column = row >> p.page_shift;
    const auto listed = inside & (column < p.columns);
    const auto page =
        p.table.ld_if(listed, to<u64>(batch) * to<u64>(p.columns) + to<u64>(column), Val<s32>(-1))[0];
    const auto good = listed & (bits<u32>(page) < p.page_count);
    k.if_(inside & !good, [&] { red<relaxed, gpu, op::max>(p.error_flag, 0, batch + 1); });
    const auto d = to<u64>(each) * 8u, heads = to<u64>(p.heads);
    const auto place = row - (column << p.page_shift);
    const auto key =
        ((((to<u64>(bits<u32>(page)) * 2u) * heads + to<u64>(head)) << p.page_shift) + to<u64>(place)) * d +
        to<u64>(chunk) * 8u;
    const auto value = key + ((heads * d) << p.page_shift);
    const auto target = (to<u64>(p.first) * heads * to<u64>(p.rows) * to<u64>(each) + to<u64>(index)) * 8u;
    const auto move = [&](const Val<u64>& from, const Out<T>& out, const Val<f32>& scale) {
      const auto w = load8<Page>(p.pool.at(from).address(), good);
      const auto back = [&](int n) -> Val<b32> {
        if constexpr (Page::bits == 16)
          return w[n];
        else
          return dsl::pack<T>(element<f16>(w[n], 0) * scale, element<f16>(w[n], 1) * scale);
      };
      out.at(target).template as<b32>().template st<4>(0,
                                                       RegGroup<b32, 4>(back(0), back(1), back(2), back(3)));
    };
    move(key, p.keys, p.key_scale);
    move(value, p.values, p.value_scale);
  });
}

template <class Page>
struct CopyArgs {
  template <template <class> class V>
  struct Of {
    V<InOut<Page>> pool;
    V<u64> from, to_page;
    V<u32> tokens, page_size;
    V<u32> rows;   ///< heads of keys and of values
    V<u32> bytes;  ///< of one token and head
  };
};

// The first tokens of one page, all heads, keys and values.
template <class Page>
void copy_kernel(Kernel& k, typename CopyArgs<Page>::template Of<DeviceArg> p) {
  k.block(int(kThreads));
  const auto per_row = p.bytes / 8u;  // words of 8 bytes of one token and head
  const auto page_bytes = to<u64>(p.rows) * to<u64>(p.page_size) * to<u64>(p.bytes);
  const auto base = p.pool.template as<b64>();
  k.grid_stride(p.rows * p.tokens * per_row, [&](ThreadIndex i) {
    const Val<u32> index = i;
    const auto word = index % per_row, token = index / per_row % p.tokens, row = index / per_row / p.tokens;
    const auto at = (to<u64>(row) * to<u64>(p.page_size) + to<u64>(token)) * to<u64>(per_row) + to<u64>(word);
    base.st(p.to_page * page_bytes / 8u + at, base.ld(p.from * page_bytes / 8u + at));
  });
}

template <class F>
Variant by_types(DType type, DType pages, F&& make) {
  if (pages == DType::e4m3) return type == DType::f16 ? make(f16{}, e4m3{}) : make(bf16{}, e4m3{});
  return type == DType::f16 ? make(f16{}, f16{}) : make(bf16{}, bf16{});
}
Variant append_variant(DType type, DType pages) {
  return by_types(type, pages, [&]<class T, class P>(T, P) {
    return variant(text::cat("kv_append_", name(type), "_", name(pages)),
                   P::bits == 8              ? 90
                   : std::is_same_v<T, bf16> ? 80
                                             : 75,
                   append_kernel<T, P>);
  });
}
Variant gather_variant(DType type, DType pages) {
  return by_types(type, pages, [&]<class T, class P>(T, P) {
    return variant(text::cat("kv_gather_", name(type), "_", name(pages)),
                   P::bits == 8              ? 90
                   : std::is_same_v<T, bf16> ? 80
                                             : 75,
                   gather_kernel<T, P>);
  });
}
Variant copy_variant(DType pages) {
  const auto name = text::cat("kv_copy_", cgp::bytes(pages) == 1 ? "b8" : "b16");
  return cgp::bytes(pages) == 1 ? variant(name, 75, copy_kernel<b8>) : variant(name, 75, copy_kernel<b16>);
}

void check(const KvCacheShape& c) {
  if (auto why = reject(c); !why.empty()) throw ArgumentError(text::cat("kv cache: ", why));
}
std::uint32_t page_shift(const KvCacheShape& c) { return std::uint32_t(std::countr_zero(c.page_size)); }
runtime::Dim3 grid(runtime::Stream& s, std::uint64_t chunks) {
  return runtime::grid_for_at_most(chunks, kThreads,
                                   std::uint64_t(std::max(1, s.device().info().sm_count)) * 16);
}

}  // namespace

std::uint64_t KvCacheShape::bytes() const { return elements() * std::uint64_t(cgp::bytes(pages)); }

std::string reject(const KvCacheShape& c) {
  if (c.type != DType::f16 && c.type != DType::bf16)
    return text::cat("type = ", name(c.type), ": tokens are f16 or bf16");
  if (c.pages != c.type && c.pages != DType::e4m3)
    return text::cat("pages = ", name(c.pages), ": pages are ", name(c.type), " as the tokens, or e4m3");
  if (c.page_size < 16 || c.page_size > 1 << 20 || (c.page_size & (c.page_size - 1)))
    return text::cat("page_size = ", c.page_size, " is no power of two from 16 to 2^20");
  if (c.d < 8 || c.d > 256 || c.d % 8) return text::cat("d = ", c.d, " is no multiple of 8 up to 256");
  if (c.heads < 1 || c.heads > 0xffff) return text::cat("heads = ", c.heads, " is not 1 to 65535");
  if (c.page_count > 0x7fffffff) return text::cat("page_count = ", c.page_count, " is above 2^31 - 1");
  if (!(c.key_scale > 0) || !(c.value_scale > 0)) return "key_scale and value_scale must be positive";
  return {};
}

void kv_append(runtime::Stream& s, const KvCacheShape& c, std::uint64_t pool, const KvTokens& t,
               std::uint64_t slots, std::uint64_t error_flag) {
  check(c);
  if (!t.count) return;
  const std::uint64_t head = t.head ? t.head : c.d, row = t.row ? t.row : c.heads * c.d;
  if (t.k % 16 || t.v % 16 || head % 8 || row % 8)
    throw ArgumentError("kv cache: tokens and heads must lie at multiples of 16 bytes");

  if (t.count >= 1ull << 32)
    throw ArgumentError(text::cat("kv cache: ", t.count, " tokens; there can be 2^32 - 1 at once"));
  // The kernel counts chunks in 32 bits: more tokens take several launches.
  const std::uint64_t each = c.heads * c.d / 8, most = (1ull << 31) / each;
  const auto fn = load(s.device(), append_variant(c.type, c.pages));
  for (std::uint64_t first = 0; first < t.count; first += most) {
    const std::uint64_t chunks = std::min(most, t.count - first) * each;
    launch::launch_kernel(s, fn, grid(s, chunks),
                          AppendArgs<b8, b8>::Of<launch::HostArg>{.keys = t.k,
                                                                  .values = t.v,
                                                                  .pool = pool,
                                                                  .slots = slots,
                                                                  .error_flag = error_flag,
                                                                  .first = std::uint32_t(first),
                                                                  .chunks = std::uint32_t(chunks),
                                                                  .per_head = std::uint32_t(c.d / 8),
                                                                  .heads = std::uint32_t(c.heads),
                                                                  .page_shift = page_shift(c),
                                                                  .slot_count = c.page_count * c.page_size,
                                                                  .row = row,
                                                                  .head_stride = head,
                                                                  .key_inverse = 1 / c.key_scale,
                                                                  .value_inverse = 1 / c.value_scale});
  }
}

void kv_copy(runtime::Stream& s, const KvCacheShape& c, std::uint64_t pool,
             const std::vector<KvPages::Copy>& copies) {
  check(c);
  const auto fn = load(s.device(), copy_variant(c.pages));
  for (const auto& copy : copies) {
    const auto rows = std::uint32_t(2 * c.heads),
               bytes = std::uint32_t(c.d * std::uint64_t(cgp::bytes(c.pages)));
    launch::launch_kernel(s, fn, grid(s, std::uint64_t(rows) * copy.tokens * (bytes / 8)),
                          CopyArgs<b8>::Of<launch::HostArg>{.pool = pool,
                                                            .from = std::uint64_t(copy.from),
                                                            .to_page = std::uint64_t(copy.to),
                                                            .tokens = copy.tokens,
                                                            .page_size = std::uint32_t(c.page_size),
                                                            .rows = rows,
                                                            .bytes = bytes});
  }
}

void kv_gather(runtime::Stream& s, const KvCacheShape& c, std::uint64_t pool, std::uint64_t table,
               std::uint64_t columns, std::uint64_t lengths, std::uint64_t batch, std::uint64_t rows,
               std::uint64_t k, std::uint64_t v, std::uint64_t error_flag) {
  check(c);
  const std::uint64_t each = c.heads * rows * c.d / 8;
  if (!batch || !each) return;
  if (each > 1ull << 31 || batch >= 1ull << 32)
    throw Unsupported(
        {"kv cache: a sequence is gathered in 2^31 chunks of 8 elements at most",
         {},
         text::cat(c.heads, " heads of ", rows, " rows of ", c.d, " elements, ", batch, " sequences"),
         "gather fewer heads or rows at once"});
  const std::uint64_t most = (1ull << 31) / each;
  const auto fn = load(s.device(), gather_variant(c.type, c.pages));
  for (std::uint64_t first = 0; first < batch; first += most) {
    const std::uint64_t chunks = std::min(most, batch - first) * each;
    launch::launch_kernel(s, fn, grid(s, chunks),
                          GatherArgs<b8, b8>::Of<launch::HostArg>{.pool = pool,
                                                                  .table = table,
                                                                  .lengths = lengths,
                                                                  .keys = k,
                                                                  .values = v,
                                                                  .error_flag = error_flag,
                                                                  .first = std::uint32_t(first),
                                                                  .chunks = std::uint32_t(chunks),
                                                                  .per_head = std::uint32_t(c.d / 8),
                                                                  .heads = std::uint32_t(c.heads),
                                                                  .rows = std::uint32_t(rows),
                                                                  .page_shift = page_shift(c),
                                                                  .page_count = std::uint32_t(c.page_count),
                                                                  .columns = std::uint32_t(columns),
                                                                  .key_scale = c.key_scale,
                                                                  .value_scale = c.value_scale});
  }
}

std::vector<Variant> kv_cache_variants() {
  std::vector<Variant> all{copy_variant(DType::e4m3), copy_variant(DType::bf16)};
  for (DType t : {DType::f16, DType::bf16})
    for (DType p : {t, DType::e4m3}) all.push_back(append_variant(t, p)), all.push_back(gather_variant(t, p));
  return all;
}

}  // namespace cgp::kernels
