/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CGP_CAPI_CGP_OPS_H
#define CGP_CAPI_CGP_OPS_H
/* A part of cgp.h: products, norms, losses, attention, activations, tables. */
#include "cgp/capi/cgp_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- operations
 * Output tensors come last. Optional tensors may be NULL. A row is the last dimension, which is contiguous; the
 * leading dimensions must collapse to rows with one stride, or to groups of such rows. */

/* c[..., m, n] = alpha * a[..., m, k] b[..., k, n] + beta * c, then the epilogue. One of the last two strides of
 * a and of b is 1; leading dimensions collapse to one batch, and b may be broadcast over it. Per-row vectors
 * have m elements, or batch * m where b is broadcast. */
typedef enum { CGP_PRECISION_STANDARD = 0, CGP_PRECISION_FAST = 1, CGP_PRECISION_STRICT = 2 } cgp_precision;
typedef enum {
  CGP_ACT_NONE = 0,
  CGP_ACT_RELU = 1,
  CGP_ACT_SILU = 2,
  CGP_ACT_GELU = 3,
  CGP_ACT_GELU_TANH = 4
} cgp_activation;
typedef struct {
  size_t size;
  float alpha, beta;      /* no default: give 1 and 0 for a plain product */
  int32_t precision;      /* cgp_precision */
  int32_t activation;     /* cgp_activation, applied after the biases */
  int32_t swiglu;         /* c = silu(x) * y: 1: x is column 2 j of the product and y column 2 j + 1; 2: x is
                           * column j and y column j + n / 2 */
  int32_t scaling;        /* scale_a and scale_b (f32): 0 none; 1 per tensor: one element each; 2 per channel:
                           * one a row of a, and [n]; 3 block: [batch, m, ceil(k / 128)] and
                           * [batch, ceil(n / 128), ceil(k / 128)] */
  const cgp_tensor* bias; /* [n] */
  const cgp_tensor* residual; /* of c's shape, added last */
  const cgp_tensor *scale_a, *scale_b;
  int32_t padded_ldc;          /* 1: each row of c may be written up to the next multiple of 16 bytes */
  const cgp_tensor* bias_rows; /* per row, added after bias */
  const cgp_tensor *multiply_rows,
      *multiply_columns;  /* per row, and [n]: multiply the accumulators before bias */
  const cgp_tensor* amax; /* output: f32 [batch, ceil(m / 128), ceil(columns of c / 128)], the largest |c| of
                           * each 128 x 128 block before rounding */
} cgp_gemm_options;
CGP_API cgp_status cgp_gemm(cgp_stream* s, const cgp_tensor* a, const cgp_tensor* b,
                            const cgp_gemm_options* options, const cgp_tensor* c);

/* Grouped GEMM: many products in one launch whose sizes are in device memory. Options are cgp_gemm's without amax.
 * Group g is rows ends[g - 1] to ends[g] - 1 of a (s32, u32, s64 or u64 [groups], ascending). Arrays are
 * contiguous; b may be transposed in its last two dimensions.
 *   cgp_grouped_gemm        c[r, :] = alpha * a[r, :] b[g]       a [rows, k], b [groups, k, n], c [rows, n];
 *                           rows from the last end on are not written. index (s32 or u32 [rows], optional): row
 *                           r of the product is a[index[r], :]. Scales: of a as in cgp_gemm, of b one set a group.
 *   cgp_grouped_gemm_depth  c[g] = alpha * (rows of g of a)' (rows of g of b)    a [rows, m], b [rows, n],
 *                           c [groups, m, n]. Per-tensor scales, [groups] each. */
CGP_API cgp_status cgp_grouped_gemm(cgp_stream* s, const cgp_tensor* a, const cgp_tensor* b,
                                    const cgp_tensor* ends, const cgp_tensor* index,
                                    const cgp_gemm_options* options, const cgp_tensor* c);
CGP_API cgp_status cgp_grouped_gemm_depth(cgp_stream* s, const cgp_tensor* a, const cgp_tensor* b,
                                          const cgp_tensor* ends, const cgp_gemm_options* options,
                                          const cgp_tensor* c);
/* Batched GEMM by arrays of pointers: `count` products of one shape. a, b and c (matrices; their addresses are not
 * used) describe each; a_at, b_at and c_at (u64 [count], on the device) hold the addresses. `items` (u8
 * [48 * count], 16-byte aligned) is workspace. Per-tensor scales, [count] each. The addresses are not checked. */
CGP_API cgp_status cgp_gemm_pointers(cgp_stream* s, const cgp_tensor* a, const cgp_tensor* b,
                                     const cgp_tensor* a_at, const cgp_tensor* b_at, const cgp_tensor* c_at,
                                     const cgp_gemm_options* options, const cgp_tensor* items,
                                     const cgp_tensor* c);

/* A linear layer with a low-rank adapter: t = scale * x op(a), y = x op(weight) + t op(b), in one pass on sm_90a. x [m, k], t [m, r],
 * y [m, n]; weight [k, n], a [k, r], b [r, n] or, transposed, weight [n, k], a [r, k], b [n, r]. Contiguous, of one type: f32, f16 or
 * bf16. The gradient of x is the same of dy, with the other `transposed` and b and a in the places of a and b. */
CGP_API cgp_status cgp_lora_linear(cgp_stream* s, const cgp_tensor* x, const cgp_tensor* weight,
                                   const cgp_tensor* a, const cgp_tensor* b, float scale, int32_t transposed,
                                   const cgp_tensor* t, const cgp_tensor* y);

/* y = softmax of each row of x; y may be x. */
CGP_API cgp_status cgp_softmax(cgp_stream* s, const cgp_tensor* x, const cgp_tensor* y);
/* Sum (op 0) or maximum (op 1) over dimension `dim` of a contiguous array (negative: from the end). */
CGP_API cgp_status cgp_reduce(cgp_stream* s, int32_t op, int32_t dim, const cgp_tensor* x,
                              const cgp_tensor* y);
/* y[..., j, i] = x[..., i, j], both contiguous. */
CGP_API cgp_status cgp_transpose(cgp_stream* s, const cgp_tensor* x, const cgp_tensor* y);
/* z = x + y, contiguous, of one shape. */
CGP_API cgp_status cgp_add(cgp_stream* s, const cgp_tensor* x, const cgp_tensor* y, const cgp_tensor* z);

/* ---- norms. x, y, dy, dx, residual, sum: one shape, rows as above, each f32, f16 or bf16; arithmetic in f32.
 * Outputs do not overlap other arguments. h = x + residual, rounded to the type of sum or, without sum, of x;
 * h = x without a residual.
 *   RMSNorm    y = h * rstd * (weight + weight_offset)                    rstd = 1 / sqrt(mean(h^2) + eps)
 *   LayerNorm  y = (h - mean) * rstd * (weight + weight_offset) + bias    rstd = 1 / sqrt(var(h) + eps)
 * Without weight it is 1; without bias there is none; outputs that are not given are not stored. */
typedef struct {
  size_t size;
  float eps, weight_offset;   /* no default */
  const cgp_tensor* weight;   /* [cols] */
  const cgp_tensor* bias;     /* [cols]; LayerNorm only */
  const cgp_tensor* residual; /* of x's shape */
  const cgp_tensor* sum;      /* output of x's shape: h; needs a residual */
  const cgp_tensor* mean;     /* output: f32 [..., rows], contiguous; LayerNorm only */
  const cgp_tensor* rstd;     /* output of mean's shape */
} cgp_norm_options;
CGP_API cgp_status cgp_rms_norm(cgp_stream* s, const cgp_tensor* x, const cgp_norm_options* options,
                                const cgp_tensor* y);
CGP_API cgp_status cgp_layer_norm(cgp_stream* s, const cgp_tensor* x, const cgp_norm_options* options,
                                  const cgp_tensor* y);
/* Gradients; deterministic. x is h of the forward pass. dx = the gradient through y, plus dsum if given. */
typedef struct {
  size_t size;
  float weight_offset;
  const cgp_tensor* weight;  /* [cols] */
  const cgp_tensor* dsum;    /* of x's shape: the gradient of sum */
  const cgp_tensor* mean;    /* of the forward pass; LayerNorm only */
  const cgp_tensor* rstd;    /* of the forward pass; must be given */
  const cgp_tensor* dweight; /* output [cols] */
  const cgp_tensor* dbias;   /* output [cols]; LayerNorm only */
} cgp_norm_backward_options;
CGP_API cgp_status cgp_rms_norm_backward(cgp_stream* s, const cgp_tensor* x, const cgp_tensor* dy,
                                         const cgp_norm_backward_options* options, const cgp_tensor* dx);
CGP_API cgp_status cgp_layer_norm_backward(cgp_stream* s, const cgp_tensor* x, const cgp_tensor* dy,
                                           const cgp_norm_backward_options* options, const cgp_tensor* dx);

/* ---- cross-entropy of logits x [..., cols] and targets s32 or s64 [...] (contiguous), with its gradient:
 *   loss    = lse - (1 - e) x[target] - e mean(x) + z_loss lse^2     lse = log sum exp(x), e = label_smoothing
 *   dlogits = scale * d loss / d x
 * A row whose target is ignore_index has loss and gradient 0. A target outside [0, cols) gives NaN in its row and
 * sets `error_flag` to 1. loss and lse: f32, of the targets' shape. Each of the three outputs is optional, but one
 * must be given. dlogits may be the logits. */
typedef struct {
  size_t size;
  int64_t ignore_index; /* no default; NULL options mean -100, as in PyTorch */
  float label_smoothing, z_loss;
  const cgp_tensor* scale;      /* f32, one element: multiplies dlogits */
  const cgp_tensor* error_flag; /* u32 or s32, one element: set to 1, never to 0 */
} cgp_cross_entropy_options;
CGP_API cgp_status cgp_cross_entropy(cgp_stream* s, const cgp_tensor* logits, const cgp_tensor* targets,
                                     const cgp_cross_entropy_options* options, const cgp_tensor* loss,
                                     const cgp_tensor* lse, const cgp_tensor* dlogits);
/* scale (f32, one element) = 1 / the number of targets that are not ignore_index. */
CGP_API cgp_status cgp_count_targets(cgp_stream* s, const cgp_tensor* targets, int64_t ignore_index,
                                     const cgp_tensor* scale);
/* The same scale, and loss (f32, one element) = scale * the sum of `losses` (f32, contiguous, of the targets'
 * shape). scale NULL: loss is the sum, and targets may be NULL. */
CGP_API cgp_status cgp_mean_loss(cgp_stream* s, const cgp_tensor* losses, const cgp_tensor* targets,
                                 int64_t ignore_index, const cgp_tensor* scale, const cgp_tensor* loss);

/* ---- rotary position embedding of x [..., heads, dim], whose leading dimensions are tokens:
 *   (a, b) -> (a cos - b sin, a sin + b cos)
 * Pair i of a head is (i, i + rotary / 2), or (2 i, 2 i + 1) when interleaved. y may be x. The gradient is
 * cgp_rope of the upstream gradient with `inverse`. Without tables the angle is position * base^(-2 i / rotary),
 * scaled as `scaling` says, with full range reduction. */
typedef enum {
  CGP_ROPE_PLAIN = 0,
  CGP_ROPE_LINEAR = 1,
  CGP_ROPE_NTK = 2,
  CGP_ROPE_YARN = 3,
  CGP_ROPE_LLAMA3 = 4
} cgp_rope_scaling;
typedef struct {
  size_t size;
  const cgp_tensor *cos, *sin; /* f32 [positions, rotary / 2], contiguous; both or neither */
  const cgp_tensor* positions; /* s32 or s64, one a token, contiguous; NULL: offset + token % sequence */
  uint64_t sequence, offset;   /* sequence 0: all tokens are one sequence */
  uint64_t rotary;             /* the first elements of a head, which are rotated; 0: all */
  int32_t interleaved, inverse;
  int32_t scaling;                      /* cgp_rope_scaling; from here on: without tables only */
  double base;                          /* 0: 10000 */
  double factor;                        /* context length over original_positions; 0: 1 */
  double original_positions;            /* yarn, llama3: context length of the training */
  double beta_fast, beta_slow;          /* yarn; 0: 32 and 1 */
  double low_frequency, high_frequency; /* llama3; 0: 1 and 4 */
} cgp_rope_options;
CGP_API cgp_status cgp_rope(cgp_stream* s, const cgp_tensor* x, const cgp_rope_options* options,
                            const cgp_tensor* y);

/* ---- activations (cgp_activation, not NONE); all arrays of one shape, rows as above, each f32, f16 or bf16. An
 * output may be one of the inputs. bias [cols] is optional.
 *   activate           y = f(x + bias)
 *   activate_backward  dx = dy f'(x + bias)
 *   gated              out = f(gate) * up
 *   gated_backward     dgate = dout up f'(gate), dup = dout f(gate) */
CGP_API cgp_status cgp_activate(cgp_stream* s, int32_t activation, const cgp_tensor* x,
                                const cgp_tensor* bias, const cgp_tensor* y);
CGP_API cgp_status cgp_activate_backward(cgp_stream* s, int32_t activation, const cgp_tensor* x,
                                         const cgp_tensor* bias, const cgp_tensor* dy, const cgp_tensor* dx);
CGP_API cgp_status cgp_gated(cgp_stream* s, int32_t activation, const cgp_tensor* gate, const cgp_tensor* up,
                             const cgp_tensor* out);
CGP_API cgp_status cgp_gated_backward(cgp_stream* s, int32_t activation, const cgp_tensor* gate,
                                      const cgp_tensor* up, const cgp_tensor* dout, const cgp_tensor* dgate,
                                      const cgp_tensor* dup);

/* y = x - log sum exp(x) of each row. The gradients dx of softmax and log-softmax take the result y and dy. */
CGP_API cgp_status cgp_log_softmax(cgp_stream* s, const cgp_tensor* x, const cgp_tensor* y);
CGP_API cgp_status cgp_softmax_backward(cgp_stream* s, const cgp_tensor* y, const cgp_tensor* dy,
                                        const cgp_tensor* dx);
CGP_API cgp_status cgp_log_softmax_backward(cgp_stream* s, const cgp_tensor* y, const cgp_tensor* dy,
                                            const cgp_tensor* dx);

/* o[b, h, i, :] = sum_j softmax_j(q_i . k_j * scale ...) v[b, h / (h_q / h_kv), j, :]; q [b, h_q, n_q, d], k and v
 * [b, h_kv, n_kv, d]; any strides, but that of d is 1; h_q a multiple of h_kv; f32, f16, bf16 or e4m3. The last
 * query is aligned with the last key. lse (optional): f32 [b, h_q, n_q], contiguous, the log-sum-exp of each
 * row. */
typedef struct {
  size_t size;
  float scale;    /* 0: 1 / sqrt(d) */
  int32_t causal; /* 1: query i sees the keys up to its own position */
  int32_t window_left,
      window_right;         /* sliding window: keys before and after a query's own that it sees, plus 1;
                                      * 0: all */
  float soft_cap;           /* c: scores become c * tanh(score / c); 0: none */
  const cgp_tensor* slopes; /* ALiBi: f32 [h_q] */
  const cgp_tensor* mask;   /* [b or 1, h_q or 1, n_q or 1, n_kv]: of q's type: added; u8: 0 hides a key */
  const cgp_tensor* key_lengths; /* u32 [b]: keys of each sequence */
  int32_t nondeterministic;      /* gradients only: 1: d_q may be accumulated in any order, which is faster */
  /* A score modification, or NULL: a formula applied after all of the above but a u8 mask. It has score, b, h, q, k
   * (indices of the score), numbers and inf; + - * / // % < <= > >= == != and or not; abs, floor, exp, log, sqrt,
   * sin, cos, tanh, sigmoid, min, max, where(condition, a, b); data[i, ...]: an element of score_data, indices
   * clamped. Gradients are derived from it; score_data has none. Each formula and each shape of score_data compiles
   * a kernel of its own. */
  const char* score;
  const cgp_tensor* score_data; /* f32, contiguous */
  /* Packed sequences of different lengths: q [total_q, h_q, d], k and v [total_kv, h_kv, d], o of q's shape, lse
   * [h_q, total_q]. cu_seqlens_*: u32 or s32 [sequences + 1], the first row of each sequence and the end of the
   * last, at most the rows that q (k) has. max_seqlen_*: rows of the longest sequence, or more; 0: all rows. */
  const cgp_tensor *cu_seqlens_q, *cu_seqlens_kv;
  uint64_t max_seqlen_q, max_seqlen_kv;
  /* q, k and v of e4m3 (no gradient; o of bf16 or f16): dequantization scales, f32, one element or [b, h_q]
   * ([b, h_kv]; b sequences); NULL: 1. promoted: 1: partial sums over keys are added in f32 outside the tensor
   * cores, whose e4m3 accumulators keep 14 bits. */
  const cgp_tensor *q_scale, *k_scale, *v_scale;
  int32_t promoted;
} cgp_attention_options;
CGP_API cgp_status cgp_attention(cgp_stream* s, const cgp_tensor* q, const cgp_tensor* k, const cgp_tensor* v,
                                 const cgp_attention_options* options, const cgp_tensor* o,
                                 const cgp_tensor* lse);
/* Gradients d_q, d_k and d_v, with the strides of q, k and v, from the results o and lse of the forward pass and
 * the gradient d_o, with the strides of o. Every run gives the same bits unless nondeterministic is 1. */
CGP_API cgp_status cgp_attention_backward(cgp_stream* s, const cgp_tensor* q, const cgp_tensor* k,
                                          const cgp_tensor* v, const cgp_attention_options* options,
                                          const cgp_tensor* o, const cgp_tensor* lse, const cgp_tensor* d_o,
                                          const cgp_tensor* d_q, const cgp_tensor* d_k,
                                          const cgp_tensor* d_v);

/* ---- embeddings, dropout, argmax, top-k, prefix sums. Indices are s32 or s64. */
/* out[r, :] = weight[indices[r], :]; indices [...], weight [vocab, cols], out [..., cols]. An index outside
 * [0, vocab) gives a row of NaN and sets `error_flag` (u32 or s32, one element, optional) to 1. */
CGP_API cgp_status cgp_embedding(cgp_stream* s, const cgp_tensor* indices, const cgp_tensor* weight,
                                 const cgp_tensor* error_flag, const cgp_tensor* out);
/* dweight[v, :] = the sum of dout[r, :] over the r with indices[r] == v, in f32, in ascending order of r; 0 where v
 * is padding_idx (-1: none) or no index. */
CGP_API cgp_status cgp_embedding_backward(cgp_stream* s, const cgp_tensor* indices, const cgp_tensor* dout,
                                          int64_t padding_idx, const cgp_tensor* error_flag,
                                          const cgp_tensor* dweight);
/* The same sums added to dweight and rounded once; rows that are no index are not read or written. */
CGP_API cgp_status cgp_embedding_backward_accumulate(cgp_stream* s, const cgp_tensor* indices,
                                                     const cgp_tensor* dout, int64_t padding_idx,
                                                     const cgp_tensor* error_flag, const cgp_tensor* dweight);
/* y = 0 with probability p, else x / (1 - p), by Philox4x32-10 with key `seed` and counter (element number / 4,
 * offset). The gradient is the same function of dy. y may be x. */
CGP_API cgp_status cgp_dropout(cgp_stream* s, const cgp_tensor* x, double p, uint64_t seed, uint64_t offset,
                               const cgp_tensor* y);
/* index[r] = column of the largest element of row r, the first of equal ones; NaN is larger than any number.
 * values (optional): those elements. */
CGP_API cgp_status cgp_argmax(cgp_stream* s, const cgp_tensor* x, const cgp_tensor* index,
                              const cgp_tensor* values);
/* The k largest elements of each row, descending, with their columns; values and index [..., k], k <= 1024. */
CGP_API cgp_status cgp_topk(cgp_stream* s, const cgp_tensor* x, const cgp_tensor* values,
                            const cgp_tensor* index);
/* Prefix sum of each row: y[r, c] = the sum of x[r, 0 .. c], exclusive: of x[r, 0 .. c - 1]; arithmetic in f32. y may
 * be x. */
CGP_API cgp_status cgp_cumsum(cgp_stream* s, const cgp_tensor* x, int32_t exclusive, const cgp_tensor* y);

#ifdef __cplusplus
}
#endif
#endif
