// SPDX-License-Identifier: Apache-2.0
// Pages of a cache of keys and values: who has which, and moving what is in them.
#include <algorithm>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/capi/handles.h"
#include "cgp/capi/tensor.h"
#include "cgp/kernels/kv_cache/kv_cache.h"

struct cgp_kv_pages {
  cgp::kernels::KvPages pages;
};

namespace cgp::capi {
namespace {

kernels::KvCacheShape kv_cache_of(const Tensor& pool, const Tensor& tokens, const cgp_kv_options* given,
                                  const char* op) {
  cgp_kv_options defaults{};
  defaults.size = sizeof defaults;
  const auto o = known(given, defaults, op);
  tokens.expect({DType::f16, DType::bf16});
  pool.expect_rank(5, 5), pool.expect({tokens.dtype(), DType::e4m3}), pool.expect_contiguous();
  if (pool.size(1) != 2) pool.fail("it must be [pages, 2, heads_kv, page_size, d]");
  kernels::KvCacheShape c{tokens.dtype(), pool.dtype(), pool.size(0),
                          pool.size(3),   pool.size(2), pool.size(4)};
  if (o.key_scale) c.key_scale = o.key_scale;
  if (o.value_scale) c.value_scale = o.value_scale;
  return c;
}
std::uint64_t kv_word(const Tensor& t) {
  t.expect({DType::u32, DType::s32});
  if (t.elements() != 1) t.fail("it must have one element");
  return t.address();
}

void append_tokens(cgp_stream& s, const Tensor& k, const Tensor& v, const Tensor& slots,
                   const cgp_kv_options* o, const Tensor& error_flag, const Tensor& pool) {
  const auto c = kv_cache_of(pool, k, o, "kv_append");
  const std::uint64_t shape[] = {k.rank() == 3 ? k.size(0) : 0, c.heads, c.d};
  k.expect_rank(3, 3), k.expect_shape(shape, "pool"), v.expect({k.dtype()}),
      v.expect_shape(shape, "k and pool");
  const std::uint64_t count[] = {k.size(0)};
  slots.expect({DType::u64, DType::s64}), slots.expect_shape(count, "k"), slots.expect_contiguous();
  kernels::KvTokens t{k.address(), v.address(), 0, 0, k.size(0)};
  for (const Tensor* x : {&k, &v}) {
    if (x->size(2) > 1 && x->stride(2) != 1)
      x->fail("its last dimension must be contiguous", "pass x.contiguous()");
    x->expect_apart(pool);
  }
  if (k.size(0) > 1) t.row = k.stride(0);
  if (k.size(1) > 1) t.head = k.stride(1);
  if ((k.size(0) > 1 && v.stride(0) != t.row) || (k.size(1) > 1 && v.stride(1) != t.head))
    v.fail("its strides must be those of k");
  if ((k.size(0) > 1 && !t.row) || (k.size(1) > 1 && !t.head))
    k.fail("it repeats elements", "pass x.contiguous()");
  kernels::kv_append(s.stream, c, pool.address(), t, slots.address(), kv_word(error_flag));
}

void gather_tokens(cgp_stream& s, const Tensor& pool, const Tensor& table, const Tensor& lengths,
                   const cgp_kv_options* o, const Tensor& error_flag, const Tensor& k, const Tensor& v) {
  const auto c = kv_cache_of(pool, k, o, "kv_gather");
  k.expect_rank(4, 4);
  const std::uint64_t batch = k.size(0), shape[] = {batch, c.heads, k.size(2), c.d};
  k.expect_shape(shape, "pool"), k.expect_contiguous();
  v.expect({k.dtype()}), v.expect_shape(shape, "k and pool"), v.expect_contiguous(), v.expect_apart(k);
  for (const Tensor* x : {&k, &v}) x->expect_apart(pool);
  table.expect({DType::s32, DType::u32}), table.expect_rank(2, 2), table.expect_contiguous();
  const std::uint64_t rows[] = {batch, table.size(1)}, one[] = {batch};
  table.expect_shape(rows, "k");
  lengths.expect({DType::u32, DType::s32}), lengths.expect_shape(one, "k"), lengths.expect_contiguous();
  kernels::kv_gather(s.stream, c, pool.address(), table.address(), table.size(1), lengths.address(), batch,
                     k.size(2), k.address(), v.address(), kv_word(error_flag));
}

void copy_page(cgp_stream& s, const Tensor& pool, std::uint32_t from, std::uint32_t to,
               std::uint32_t tokens) {
  pool.expect_rank(5, 5), pool.expect({DType::f16, DType::bf16, DType::e4m3}), pool.expect_contiguous();
  if (pool.size(1) != 2) pool.fail("it must be [pages, 2, heads_kv, page_size, d]");
  if (from >= pool.size(0) || to >= pool.size(0) || tokens > pool.size(3))
    pool.fail(text::cat("it has no ", tokens, " tokens to copy from page ", from, " to ", to));
  const DType tokens_of = pool.dtype() == DType::e4m3 ? DType::bf16 : pool.dtype();
  const kernels::KvCacheShape c{tokens_of,    pool.dtype(), pool.size(0),
                                pool.size(3), pool.size(2), pool.size(4)};
  kernels::kv_copy(s.stream, c, pool.address(), {{from, to, tokens}});
}

}  // namespace
}  // namespace cgp::capi

using cgp::capi::guarded;
using cgp::capi::require;
using cgp::capi::Tensor;

cgp_status cgp_kv_pages_new(uint32_t pages, uint32_t page_size, cgp_kv_pages** out) {
  return guarded([&] {
    require(out, "out");
    *out = new cgp_kv_pages{cgp::kernels::KvPages(pages, page_size)};
  });
}
void cgp_kv_pages_free(cgp_kv_pages* pages) { delete pages; }
cgp_status cgp_kv_pages_left(cgp_kv_pages* pages, uint32_t* out) {
  return guarded([&] {
    require(pages, "pages"), require(out, "out");
    *out = pages->pages.free_pages();
  });
}
cgp_status cgp_kv_add(cgp_kv_pages* pages, uint64_t* sequence) {
  return guarded([&] {
    require(pages, "pages"), require(sequence, "sequence");
    *sequence = pages->pages.add();
  });
}
cgp_status cgp_kv_fork(cgp_kv_pages* pages, uint64_t parent, uint64_t tokens, uint64_t* sequence) {
  return guarded([&] {
    require(pages, "pages"), require(sequence, "sequence");
    *sequence = pages->pages.fork(parent, tokens);
  });
}
cgp_status cgp_kv_extend(cgp_kv_pages* pages, uint64_t sequence, uint64_t tokens, uint64_t* slots,
                         cgp_kv_page_copy* first) {
  return guarded([&] {
    require(pages, "pages"), require(first, "first");
    if (tokens) require(slots, "slots");
    const auto a = pages->pages.append(sequence, tokens);
    std::copy(a.slots.begin(), a.slots.end(), slots);
    *first = a.copies.empty() ? cgp_kv_page_copy{}
                              : cgp_kv_page_copy{a.copies[0].from, a.copies[0].to, a.copies[0].tokens};
  });
}
cgp_status cgp_kv_truncate(cgp_kv_pages* pages, uint64_t sequence, uint64_t length) {
  return guarded([&] {
    require(pages, "pages");
    pages->pages.truncate(sequence, length);
  });
}
cgp_status cgp_kv_free(cgp_kv_pages* pages, uint64_t sequence) {
  return guarded([&] {
    require(pages, "pages");
    pages->pages.free(sequence);
  });
}
cgp_status cgp_kv_length(cgp_kv_pages* pages, uint64_t sequence, uint64_t* length) {
  return guarded([&] {
    require(pages, "pages"), require(length, "length");
    *length = pages->pages.length(sequence);
  });
}
cgp_status cgp_kv_tables(cgp_kv_pages* pages, const uint64_t* sequences, uint64_t count, uint64_t columns,
                         int32_t* tables) {
  return guarded([&] {
    require(pages, "pages");
    if (count) require(sequences, "sequences"), require(tables, "tables");
    const auto all = pages->pages.tables({sequences, sequences + count}, columns);
    std::copy(all.begin(), all.end(), tables);
  });
}
cgp_status cgp_kv_append(cgp_stream* s, const cgp_tensor* k, const cgp_tensor* v, const cgp_tensor* slots,
                         const cgp_kv_options* options, const cgp_tensor* error_flag,
                         const cgp_tensor* pool) {
  return guarded([&] {
    require(s, "s");
    const char* op = "kv_append";
    cgp::capi::append_tokens(*s, Tensor(k, op, "k"), Tensor(v, op, "v"), Tensor(slots, op, "slots"), options,
                             Tensor(error_flag, op, "error_flag"), Tensor(pool, op, "pool"));
  });
}
cgp_status cgp_kv_copy(cgp_stream* s, const cgp_tensor* pool, const cgp_kv_page_copy* what) {
  return guarded([&] {
    require(s, "s"), require(what, "what");
    cgp::capi::copy_page(*s, Tensor(pool, "kv_copy", "pool"), what->from, what->to, what->tokens);
  });
}
cgp_status cgp_kv_gather(cgp_stream* s, const cgp_tensor* pool, const cgp_tensor* table,
                         const cgp_tensor* lengths, const cgp_kv_options* options,
                         const cgp_tensor* error_flag, const cgp_tensor* k, const cgp_tensor* v) {
  return guarded([&] {
    require(s, "s");
    const char* op = "kv_gather";
    cgp::capi::gather_tokens(*s, Tensor(pool, op, "pool"), Tensor(table, op, "table"),
                             Tensor(lengths, op, "lengths"), options, Tensor(error_flag, op, "error_flag"),
                             Tensor(k, op, "k"), Tensor(v, op, "v"));
  });
}
