/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CGP_CAPI_CGP_DECODE_H
#define CGP_CAPI_CGP_DECODE_H
/* A part of cgp.h: steps of language models over caches of keys and values. */
#include "cgp/capi/cgp_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- decoding: the steps of a language model that makes one token of each sequence. f16 or bf16.
 * `pdl`: programmatic dependent launch (sm_90): the kernel starts while the work queued right before it ends. That
 * work must not write weights, biases or norm weights; the kernel waits for everything else. */
/* Linear layers of up to 8 rows: y [m, n] = f(h w' + bias) + residual, x [m, k], h = x or the norm of its rows (k at
 * most 4096). Up to three weights [n_i, k], whose outputs are concatenated in columns; `gated`: two weights, and
 * y = f(h w0') * (h w1'). y may be the residual. */
typedef enum { CGP_NORM_NONE = 0, CGP_NORM_RMS = 1, CGP_NORM_LAYER = 2 } cgp_norm_kind;
typedef struct {
  size_t size;
  const cgp_tensor *weight0, *weight1, *weight2; /* [n_i, k], contiguous */
  const cgp_tensor *bias0, *bias1, *bias2;       /* [n_i]; all or none */
  const cgp_tensor* residual;                    /* of y's shape */
  const cgp_tensor *norm_weight, *norm_bias;     /* [k]; the bias is LayerNorm's */
  float eps, weight_offset;                      /* no default */
  int32_t norm;                                  /* cgp_norm_kind */
  int32_t activation;                            /* cgp_activation */
  int32_t gated, pdl;
  /* With `pdl`: the first prefetch_bytes of each are prefetched into L2, for the kernel after this one. */
  const cgp_tensor *prefetch0, *prefetch1;
  uint64_t prefetch_bytes;
} cgp_decode_linear_options;
CGP_API cgp_status cgp_decode_linear(cgp_stream* s, const cgp_tensor* x,
                                     const cgp_decode_linear_options* options, const cgp_tensor* y);

/* A paged key-value cache: pool [pages, 2, heads_kv, page_size, d], keys then values, page_size a power of two from
 * 16 to 256, d a multiple of 64; table s32 [batch, columns]: the pages of each sequence in order. `error_flag` (u32,
 * one element) becomes batch number + 1 of a sequence whose table names a page outside the pool.
 *
 * cgp_qkv_append is everything between the product that makes qkv [batch, tokens, heads_q + 2 heads_kv, d] and
 * attention: RMSNorm of the heads of q and k, their rotary embedding (both in place), keys and values into pages.
 * Token i of a sequence has position lengths[b] - tokens + i, or offset + i without lengths. */
typedef struct {
  size_t size;
  const cgp_tensor *cos, *sin;           /* f32 [positions, d / 2]; both, or neither: no rotation */
  const cgp_tensor *q_weight, *k_weight; /* [d]; both, or neither: no norm */
  const cgp_tensor* lengths;             /* u32 or s32 [batch], with the new tokens */
  uint64_t offset;
  float eps;
  int32_t pdl;
} cgp_qkv_append_options;
CGP_API cgp_status cgp_qkv_append(cgp_stream* s, const cgp_tensor* qkv, const cgp_qkv_append_options* options,
                                  const cgp_tensor* table, const cgp_tensor* error_flag,
                                  const cgp_tensor* pool);
/* The page tables of a cache, on the host: which page holds which tokens of which sequence. A call that fails changes
 * nothing; an unknown or freed sequence is refused. A forked sequence shares its parent's pages; the last one is
 * copied on write. */
typedef struct {
  uint32_t from, to, tokens; /* tokens 0: no copy */
} cgp_kv_page_copy;
CGP_API cgp_status cgp_kv_pages_new(uint32_t pages, uint32_t page_size, cgp_kv_pages** out);
CGP_API void cgp_kv_pages_free(cgp_kv_pages* pages);
CGP_API cgp_status cgp_kv_pages_left(cgp_kv_pages* pages, uint32_t* out);
CGP_API cgp_status cgp_kv_add(cgp_kv_pages* pages, uint64_t* sequence);
/* A new sequence whose first tokens are the first `tokens` of the parent. */
CGP_API cgp_status cgp_kv_fork(cgp_kv_pages* pages, uint64_t parent, uint64_t tokens, uint64_t* sequence);
/* Allocates room for more tokens: slots[i] = page * page_size + offset in the page; `first`: the page to copy before
 * they are written. */
CGP_API cgp_status cgp_kv_extend(cgp_kv_pages* pages, uint64_t sequence, uint64_t tokens, uint64_t* slots,
                                 cgp_kv_page_copy* first);
CGP_API cgp_status cgp_kv_truncate(cgp_kv_pages* pages, uint64_t sequence, uint64_t length);
CGP_API cgp_status cgp_kv_free(cgp_kv_pages* pages, uint64_t sequence);
CGP_API cgp_status cgp_kv_length(cgp_kv_pages* pages, uint64_t sequence, uint64_t* length);
/* tables [count, columns]: the pages of each sequence in order, then -1. */
CGP_API cgp_status cgp_kv_tables(cgp_kv_pages* pages, const uint64_t* sequences, uint64_t count,
                                 uint64_t columns, int32_t* tables);
/* Elements of the pool have the type of the tokens, or are e4m3 and hold x / scale. */
typedef struct {
  size_t size;
  float key_scale, value_scale; /* of e4m3 pages; 0: 1 */
} cgp_kv_options;
/* Writes k, v [tokens, heads_kv, d], of the same strides, to slots u64 or s64 [tokens]. A token whose slot is outside
 * the pool is not written; `error_flag` becomes its number + 1. */
CGP_API cgp_status cgp_kv_append(cgp_stream* s, const cgp_tensor* k, const cgp_tensor* v,
                                 const cgp_tensor* slots, const cgp_kv_options* options,
                                 const cgp_tensor* error_flag, const cgp_tensor* pool);
CGP_API cgp_status cgp_kv_copy(cgp_stream* s, const cgp_tensor* pool, const cgp_kv_page_copy* what);
/* k, v [batch, heads_kv, rows, d] = the first lengths[b] tokens of each sequence, then zeros. */
CGP_API cgp_status cgp_kv_gather(cgp_stream* s, const cgp_tensor* pool, const cgp_tensor* table,
                                 const cgp_tensor* lengths, const cgp_kv_options* options,
                                 const cgp_tensor* error_flag, const cgp_tensor* k, const cgp_tensor* v);
/* Attention of q [batch, heads, n_q, d] over the first lengths[b] tokens of each sequence; query i sees keys up to
 * lengths[b] - n_q + i. The caller zeroes `workspace` once; every call leaves it ready for calls of any shape. */
typedef struct {
  size_t size;
  float scale; /* 0: 1 / sqrt(d) */
  int32_t pdl;
  uint64_t max_length; /* upper bound of lengths; 0: columns * page_size */
  /* Cascade: each `share` consecutive sequences (the last group may have fewer) begin with the same pages.
   * shared[i], u32 or s32: the common tokens of group i, at most the length of its shortest sequence; they are read
   * once for several sequences. Both or neither. */
  uint64_t share;
  const cgp_tensor* shared;
  float key_scale, value_scale; /* of e4m3 pages; 0: 1 */
} cgp_paged_attention_options;
CGP_API cgp_status cgp_paged_attention_workspace(cgp_stream* s, const cgp_tensor* q, const cgp_tensor* pool,
                                                 const cgp_tensor* table,
                                                 const cgp_paged_attention_options* options, uint64_t* bytes);
CGP_API cgp_status cgp_paged_attention(cgp_stream* s, const cgp_tensor* q, const cgp_tensor* pool,
                                       const cgp_tensor* table, const cgp_tensor* lengths,
                                       const cgp_paged_attention_options* options,
                                       const cgp_tensor* workspace, const cgp_tensor* error_flag,
                                       const cgp_tensor* o);

#ifdef __cplusplus
}
#endif
#endif
