// SPDX-License-Identifier: Apache-2.0
// Append, copy and gather: 8 elements (16 bytes of a token) per thread and step.
#include "cgp/kernels/kv_cache/kv_cache.h"

#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/dsl/memory/atomic.h"
#include "cgp/kernels/kv_cache/kv_words.h"

namespace cgp::kernels {
namespace {

using namespace kv_parts;

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

template <class T, class Page>
void append_kernel(Kernel& k, In<T> keys, In<T> values, Out<Page> pool, In<u64> slots, InOut<u32> error_flag,
                   Val<u64> chunks, Val<u32> per_head, Val<u32> heads, Val<u32> page_size,
                   Val<u64> slot_count, Val<u64> row, Val<u64> head_stride, Val<f32> key_inverse,
                   Val<f32> value_inverse) {
  k.block(int(kThreads));
  k.grid_stride(chunks, [&](ThreadIndex64 i) {
    const Val<u64> index = i, each = to<u64>(per_head), all = each * to<u64>(heads);
    const auto token = index / all, inside = index % all, head = inside / each, chunk = inside % each;
    const auto slot = slots.ld(token);
    const auto bad = slot >= slot_count;
    k.if_(bad, [&] { red<relaxed, gpu, op::max>(error_flag, 0, to<u32>(token) + 1); });
    k.if_(!bad, [&] {
      const auto size = to<u64>(page_size), page = slot / size, place = slot % size;
      const auto from = token * row + head * head_stride + chunk * 8u;
      const auto d = each * 8u;
      const auto key = (((page * 2u) * to<u64>(heads) + head) * size + place) * d + chunk * 8u;
      const auto value = key + to<u64>(heads) * size * d;
      const auto yes = from >= 0u;
      store8<T, Page>(pool.at(key).address(), load8<T>(keys.at(from).address(), yes), key_inverse);
      store8<T, Page>(pool.at(value).address(), load8<T>(values.at(from).address(), yes), value_inverse);
    });
  });
}

template <class T, class Page>
void gather_kernel(Kernel& k, In<Page> pool, In<s32> table, In<u32> lengths, Out<T> keys, Out<T> values,
                   InOut<u32> error_flag, Val<u64> chunks, Val<u32> per_head, Val<u32> heads, Val<u32> rows,
                   Val<u32> page_size, Val<u32> page_count, Val<u32> columns, Val<f32> key_scale,
                   Val<f32> value_scale) {
  k.block(int(kThreads));
  k.grid_stride(chunks, [&](ThreadIndex64 i) {
    const Val<u64> index = i, each = to<u64>(per_head);
    const auto chunk = index % each, row = index / each % to<u64>(rows), bh = index / each / to<u64>(rows);
    const auto batch = bh / to<u64>(heads), head = bh % to<u64>(heads);
    const auto size = to<u64>(page_size);
    const auto inside = row < to<u64>(lengths.ld(batch));
    const auto column = row / size;
    const auto listed = inside & (column < to<u64>(columns));
    const auto page = table.ld_if(listed, batch * to<u64>(columns) + column, Val<s32>(-1))[0];
    const auto good = listed & (bits<u32>(page) < page_count);
    k.if_(inside & !good, [&] { red<relaxed, gpu, op::max>(error_flag, 0, to<u32>(batch) + 1); });
    const auto d = each * 8u;
    const auto key =
        (((to<u64>(bits<u32>(page)) * 2u) * to<u64>(heads) + head) * size + row % size) * d + chunk * 8u;
    const auto value = key + to<u64>(heads) * size * d;
    const auto move = [&](const Val<u64>& from, const Out<T>& out, const Val<f32>& scale) {
      const auto w = load8<Page>(pool.at(from).address(), good);
      const auto back = [&](int n) -> Val<b32> {
        if constexpr (Page::bits == 16)
          return w[n];
        else
          return dsl::pack<T>(element<f16>(w[n], 0) * scale, element<f16>(w[n], 1) * scale);
      };
      out.at(index * 8u)
          .template as<b32>()
          .template st<4>(0, RegGroup<b32, 4>(back(0), back(1), back(2), back(3)));
    };
    move(key, keys, key_scale);
    move(value, values, value_scale);
  });
}

// Copy number ctaid.y: the first tokens of one page, all heads, keys and values.
template <class Page>
void copy_kernel(Kernel& k, InOut<Page> pool, Val<u64> from, Val<u64> to_page, Val<u32> tokens,
                 Val<u32> page_size, Val<u32> rows, Val<u32> bytes) {
  k.block(int(kThreads));
  const auto per_row = bytes / 8u;  // words of 8 bytes of one token and head
  const auto page_bytes = to<u64>(rows) * to<u64>(page_size) * to<u64>(bytes);
  const auto base = pool.template as<b64>();
  k.grid_stride(rows * tokens * per_row, [&](ThreadIndex i) {
    const Val<u32> index = i;
    const auto word = index % per_row, token = index / per_row % tokens, row = index / per_row / tokens;
    const auto at = (to<u64>(row) * to<u64>(page_size) + to<u64>(token)) * to<u64>(per_row) + to<u64>(word);
    base.st(to_page * page_bytes / 8u + at, base.ld(from * page_bytes / 8u + at));
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
  if (c.page_size < 16 || c.page_size > 256 || (c.page_size & (c.page_size - 1)))
    return text::cat("page_size = ", c.page_size, " is no power of two from 16 to 256");
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
  const auto at = [](std::uint64_t a) { return runtime::Arg::address(a); };
  const std::uint64_t chunks = t.count * c.heads * c.d / 8;
  load(s.device(), append_variant(c.type, c.pages))(
      s, grid(s, chunks), at(t.k), at(t.v), at(pool), at(slots), at(error_flag), chunks,
      std::uint32_t(c.d / 8), std::uint32_t(c.heads), std::uint32_t(c.page_size), c.page_count * c.page_size,
      row, head, 1 / c.key_scale, 1 / c.value_scale);
}

void kv_copy(runtime::Stream& s, const KvCacheShape& c, std::uint64_t pool,
             const std::vector<KvPages::Copy>& copies) {
  check(c);
  const auto fn = load(s.device(), copy_variant(c.pages));
  for (const auto& copy : copies) {
    const auto rows = std::uint32_t(2 * c.heads),
               bytes = std::uint32_t(c.d * std::uint64_t(cgp::bytes(c.pages)));
    fn(s, grid(s, std::uint64_t(rows) * copy.tokens * (bytes / 8)), runtime::Arg::address(pool),
       std::uint64_t(copy.from), std::uint64_t(copy.to), copy.tokens, std::uint32_t(c.page_size), rows,
       bytes);
  }
}

void kv_gather(runtime::Stream& s, const KvCacheShape& c, std::uint64_t pool, std::uint64_t table,
               std::uint64_t columns, std::uint64_t lengths, std::uint64_t batch, std::uint64_t rows,
               std::uint64_t k, std::uint64_t v, std::uint64_t error_flag) {
  check(c);
  const std::uint64_t chunks = batch * c.heads * rows * c.d / 8;
  if (!chunks) return;
  const auto at = [](std::uint64_t a) { return runtime::Arg::address(a); };
  load(s.device(), gather_variant(c.type, c.pages))(
      s, grid(s, chunks), at(pool), at(table), at(lengths), at(k), at(v), at(error_flag), chunks,
      std::uint32_t(c.d / 8), std::uint32_t(c.heads), std::uint32_t(rows), std::uint32_t(c.page_size),
      std::uint32_t(c.page_count), std::uint32_t(columns), c.key_scale, c.value_scale);
}

std::vector<Variant> kv_cache_variants() {
  std::vector<Variant> all{copy_variant(DType::e4m3), copy_variant(DType::bf16)};
  for (DType t : {DType::f16, DType::bf16})
    for (DType p : {t, DType::e4m3}) all.push_back(append_variant(t, p)), all.push_back(gather_variant(t, p));
  return all;
}

}  // namespace cgp::kernels
