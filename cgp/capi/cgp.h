/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CGP_CAPI_CGP_H
#define CGP_CAPI_CGP_H
/* The C interface of cgp: stable, for other languages. Everything is a function of this header in libcgp.so.
 *
 *   cgp_device* gpu;
 *   if (cgp_device_open("cuda:0", &gpu)) return fprintf(stderr, "%s\n", cgp_last_error());
 *   cgp_stream* s;
 *   cgp_stream_borrow(gpu, my_cu_stream, &s);
 *   cgp_gemm(s, &a, &b, &c, NULL);
 *   cgp_stream_free(s);
 *
 * A function returns CGP_OK or the kind of failure; cgp_last_error() of the same thread is the message: the rule,
 * where, why and what to do. A handle may be used from several threads, one at a time. A cgp_tensor describes an
 * array of the caller's; work is queued on a stream, and the call does not wait for it.
 * A later version adds functions, and members at the end of option structs. `size` is the caller's sizeof the
 * struct; members beyond it are 0. */
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(CGP_CAPI_BUILD)
#define CGP_API __attribute__((visibility("default")))
#else
#define CGP_API
#endif

#define CGP_ABI_VERSION 1
#define CGP_MAX_RANK 8

typedef enum {
  CGP_OK = 0,
  CGP_INVALID_ARGUMENT = 1, /* the caller passed what the function cannot accept */
  CGP_UNSUPPORTED = 2,      /* this device or build cannot do it */
  CGP_DRIVER = 3,           /* a call of the GPU driver failed */
  CGP_FAULT = 4,            /* the emulator found that a kernel misbehaved */
  CGP_OUT_OF_MEMORY = 5,    /* of the host, or no page of a cache is free */
  CGP_INTERNAL = 6
} cgp_status;

typedef enum {
  CGP_U8,
  CGP_S8,
  CGP_U16,
  CGP_S16,
  CGP_U32,
  CGP_S32,
  CGP_U64,
  CGP_S64,
  CGP_F16,
  CGP_BF16,
  CGP_F32,
  CGP_F64,
  CGP_E4M3,
  CGP_E5M2
} cgp_dtype;

typedef struct cgp_device cgp_device;
typedef struct cgp_stream cgp_stream;
typedef struct cgp_kv_pages cgp_kv_pages;

/* An array in the memory of a device; strides in elements. */
typedef struct {
  uint64_t address; /* of element [0, 0, ...] */
  int32_t dtype;    /* cgp_dtype */
  int32_t rank;     /* 0 to CGP_MAX_RANK */
  int64_t shape[CGP_MAX_RANK];
  int64_t stride[CGP_MAX_RANK];
} cgp_tensor;

/* ---- the library */
CGP_API uint32_t cgp_abi_version(void);
CGP_API const char* cgp_version(void);
/* The message of this thread's last failed call; valid until its next call. */
CGP_API const char* cgp_last_error(void);
typedef enum { CGP_RULE = 0, CGP_WHERE = 1, CGP_WHY = 2, CGP_HINT = 3 } cgp_error_part;
CGP_API const char* cgp_last_error_part(int32_t part);

/* ---- devices: "cuda:0" (its primary context, which other libraries share), "emu:sm_90a", "auto" */
CGP_API cgp_status cgp_device_open(const char* spec, cgp_device** out);
CGP_API void cgp_device_free(cgp_device* device);
typedef struct {
  size_t size;
  int32_t is_emulator, compute_capability; /* times ten: 90 */
  int32_t sm_count;
  uint64_t memory_bytes;
  char name[128], arch[16]; /* "NVIDIA H200", "sm_90a" */
} cgp_device_info;
CGP_API cgp_status cgp_device_get_info(cgp_device* device, cgp_device_info* out);
/* Kernels compiled by the driver since the device was opened. */
CGP_API cgp_status cgp_device_jit_count(cgp_device* device, uint64_t* out);

/* ---- memory of a device, for callers without an allocator of their own */
CGP_API cgp_status cgp_alloc(cgp_device* device, uint64_t bytes, uint64_t* address);
CGP_API void cgp_free(cgp_device* device, uint64_t address);
/* Both wait for the work queued before, and report its errors. */
CGP_API cgp_status cgp_upload(cgp_device* device, uint64_t to, const void* from, uint64_t bytes);
CGP_API cgp_status cgp_download(cgp_device* device, void* to, uint64_t from, uint64_t bytes);

/* ---- streams */
CGP_API cgp_status cgp_stream_new(cgp_device* device, cgp_stream** out);
/* A CUstream of another library (NULL: the default stream). It must outlive the handle. */
CGP_API cgp_status cgp_stream_borrow(cgp_device* device, void* cu_stream, cgp_stream** out);
CGP_API void cgp_stream_free(cgp_stream* stream);
CGP_API cgp_status cgp_stream_wait(cgp_stream* stream);
/* The workspace allocator of a stream: returns the address of `bytes` bytes, aligned to 256, or 0 on failure. The
 * memory must stay valid for all work queued until the next call. NULL: the stream allocates its own. */
typedef uint64_t (*cgp_scratch)(void* user, uint64_t bytes);
CGP_API cgp_status cgp_stream_set_scratch(cgp_stream* stream, cgp_scratch source, void* user);

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

/* ---- quantised weights [rows, cols] (y = x w'): blocks of a GGUF format ("q4_0" to "q6_k", "iq1_s" to "iq4_xs", "mxfp4",
 * "nvfp4", "nf4", "f16", ...), or "gptq", "awq", "bnb_nf4", "fp8_e4m3", "fp8_e5m2" with codes and scales apart. */
typedef struct cgp_quantized_weight cgp_quantized_weight;
typedef struct {
  size_t size;
  const cgp_tensor*
      scales; /* gptq, awq: f16 [cols / group, rows]; bnb_nf4: f32 [blocks], or u8 codes of them; fp8: f32
                                    * [ceil(rows / scale_rows), ceil(cols / scale_cols)] */
  const cgp_tensor* zeros; /* gptq, awq: u32 or s32 [cols / group, rows / 8] */
  const cgp_tensor* g_idx; /* gptq, optional: s32 [cols], the group of each input (act-order) */
  const cgp_tensor *absmax_table,
      *absmax_scales;       /* bnb_nf4 with scales of u8: f32 [256], f32 [ceil(blocks / absmax_block)] */
  const cgp_tensor* packed; /* optional: what cgp_quantized_weight_pack() made, for sm_90 */
  uint64_t group;           /* inputs that share a scale; bnb_nf4: elements that share an absmax */
  int32_t zeros_minus_one;  /* gptq: zeros hold zero - 1 */
  uint64_t absmax_block;    /* 0: 256 */
  float absmax_offset;
  uint64_t scale_rows, scale_cols; /* fp8: weights that share a scale; 0: 128 */
} cgp_quantized_options;
/* A weight in tensors of the device, which belong to the caller and must outlive the handle. codes: of blocks u8, as many bytes as
 * the file has; gptq u32 or s32 [cols / 8, rows]; awq u32 or s32 [cols, rows / 8]; bnb_nf4 u8 [rows * cols / 2]; fp8 [rows, cols].
 * Sizes and types are checked; scales are not looked at (cgp_dequantize's `error_flag` flags them). */
CGP_API cgp_status cgp_quantized_weight_new(const char* format, uint64_t rows, uint64_t cols,
                                            const cgp_tensor* codes, const cgp_quantized_options* options,
                                            cgp_quantized_weight** out);
/* A weight from blocks on the host, as a GGUF file has them: copied to the device, refused when a scale is NaN or infinite. It is
 * packed too where the device has the product of packed weights and `packed` is not 0. */
CGP_API cgp_status cgp_quantized_weight_load(cgp_device* device, const char* format, uint64_t rows,
                                             uint64_t cols, const void* blocks, uint64_t bytes,
                                             int32_t packed, cgp_quantized_weight** out);
CGP_API void cgp_quantized_weight_free(cgp_quantized_weight* weight);
typedef struct {
  size_t size;
  uint64_t rows, cols;
  uint64_t stored_bytes, packed_bytes; /* of all tensors as in the file; of the packed copy, 0: none */
  char format[16];
} cgp_quantized_info;
CGP_API cgp_status cgp_quantized_weight_get_info(cgp_quantized_weight* weight, cgp_quantized_info* out);
/* out [n, cols], f32, f16 or bf16: rows first_row to first_row + n of the weight (gptq, awq: multiples of 8). error_flag (u32 or s32, one
 * element, optional) becomes 1 where a scale is NaN or infinite. */
CGP_API cgp_status cgp_dequantize(cgp_stream* s, cgp_quantized_weight* weight, uint64_t first_row,
                                  const cgp_tensor* error_flag, const cgp_tensor* out);
/* y [..., rows] = x [..., cols] w', or with `transposed` y [..., cols] = x [..., rows] w, the gradient of x. x: f32, f16 or bf16; y: the
 * same or f32. `workspace`: u8, of the bytes that cgp_quantized_matmul_workspace() says (0: NULL will do), at a multiple of 256; `error_flag` as
 * above. */
CGP_API cgp_status cgp_quantized_matmul_workspace(cgp_stream* s, const cgp_tensor* x,
                                                  cgp_quantized_weight* weight, int32_t transposed,
                                                  const cgp_tensor* error_flag, const cgp_tensor* y,
                                                  uint64_t* bytes);
CGP_API cgp_status cgp_quantized_matmul(cgp_stream* s, const cgp_tensor* x, cgp_quantized_weight* weight,
                                        int32_t transposed, const cgp_tensor* workspace,
                                        const cgp_tensor* error_flag, const cgp_tensor* y);
/* On the host alone. Bytes of `elements` values of a block format; blocks from values and back; whether all scales are finite. */
CGP_API cgp_status cgp_quantized_bytes(const char* format, uint64_t elements, uint64_t* bytes);
CGP_API cgp_status cgp_quantize(const char* format, const float* values, uint64_t elements, void* blocks,
                                uint64_t bytes);
CGP_API cgp_status cgp_quantized_decode(const char* format, const void* blocks, uint64_t bytes, float* values,
                                        uint64_t elements);
CGP_API cgp_status cgp_quantized_check(const char* format, const void* blocks, uint64_t bytes);
/* int4 as "gptq" has it with zeros_minus_one 0: qweight [cols / 8, rows], qzeros [cols / group, rows / 8], scales f16 [cols / group,
 * rows]. e4m3 with scales of tiles: codes [rows, cols], scales [ceil(rows / scale_rows), ceil(cols / scale_cols)]. */
CGP_API cgp_status cgp_quantize_int4(const float* values, uint64_t rows, uint64_t cols, uint64_t group,
                                     uint32_t* qweight, uint32_t* qzeros, uint16_t* scales);
CGP_API cgp_status cgp_quantize_fp8(const float* values, uint64_t rows, uint64_t cols, uint64_t scale_rows,
                                    uint64_t scale_cols, uint8_t* codes, float* scales);
/* Blocks of q4_0, q8_0, q4_k, q5_k or q6_k in the order of the product on sm_90; bytes 0 and UNSUPPORTED for other formats. */
CGP_API cgp_status cgp_quantized_packed_bytes(const char* format, uint64_t rows, uint64_t cols,
                                              uint64_t* bytes);
CGP_API cgp_status cgp_quantized_pack(const char* format, uint64_t rows, uint64_t cols, const void* blocks,
                                      uint64_t bytes, void* packed, uint64_t packed_bytes);
/* The same of a weight whose tensors lie in host memory (cgp_quantized_weight_new with such addresses): those formats, nf4, mxfp4 and iq4_nl, gptq and awq with
 * groups of 32, 64 or 128 inputs and no g_idx, bnb_nf4 with blocks of 64 in rows of whole blocks. Without `packed` *bytes becomes the size,
 * 0 for other weights; with it *bytes is that size. Sizes and, of separate tensors, scales are checked. */
CGP_API cgp_status cgp_quantized_weight_pack(cgp_quantized_weight* host, void* packed, uint64_t* bytes);

/* ---- optimizers: a step over all tensors of a model, in launches that wait for nothing: cgp_optimizer_norm (where gradients are
 * clipped or checked), cgp_optimizer_control, cgp_optimizer_update (one for each pair of types). The tables lie in memory of the
 * device, at multiples of 16 bytes; integers may be signed. cgp/kernels/optimizer/optimizer.h has the formulas. */
/* CGP_SGD and CGP_NESTEROV have momentum (beta1), CGP_DESCENT is SGD without. */
typedef enum { CGP_ADAMW, CGP_ADAM, CGP_SGD, CGP_NESTEROV, CGP_LION, CGP_DESCENT } cgp_optimizer_rule;
/* A row of the table, u64 [tensors, 8]: addresses, of any alignment that fits the type. */
typedef struct {
  uint64_t weight, gradient;
  uint64_t master, first, second; /* f32: the copy that steps are taken on, m and v; 0 where there is none */
  uint64_t step, elements;        /* one f32: the steps that this tensor has taken; its length */
  uint32_t group, tensor;         /* its row of the groups; what stochastic rounding counts it as */
} cgp_optimizer_row;
typedef struct {
  double lr, beta1, beta2, eps, weight_decay, maximize;
} cgp_optimizer_group;     /* f64 [groups, 6] */
typedef struct {           /* the control block, u32 [8] */
  uint32_t taken, skipped; /* steps that were, and that were not, for NaN or Inf */
  uint32_t good, skip;     /* steps since the scale last changed; whether this step is skipped */
  float scale, factor;     /* the loss scale, 1 without; what gradients are multiplied with */
  float norm, found;       /* of the gradients without scale; not 0 where they hold NaN or Inf */
} cgp_optimizer_counts;
typedef struct {
  size_t size;
  int32_t rule;             /* cgp_optimizer_rule */
  float max_norm;           /* 0: not clipped */
  uint32_t growth_interval; /* steps after which the scale grows; 0: it never changes */
  float growth, backoff;    /* its factors then, and after a step that is skipped */
  int32_t use_found;        /* 1: the step is skipped, too, where the caller set `found` */
  int32_t clip_only;        /* 1: for cgp_optimizer_clip: of the tables control alone */
} cgp_optimizer_options;
typedef struct {
  size_t size;
  int32_t rule, weight, gradient; /* cgp_dtype: a gradient is f32 or the weight's; of f32 weights any float */
  int32_t master, stochastic; /* 1: with masters; bf16 rounded by Philox of (seed, step, tensor, element) */
  uint64_t seed;
} cgp_optimizer_types;
/* On the host: the blocks' work, u32 [*count, 2]; with NULL only *count. */
CGP_API cgp_status cgp_optimizer_chunks(const uint64_t* elements, uint64_t tensors, uint32_t* chunks,
                                        uint64_t* count);
/* partial f32 [chunks]: sums of squares. All of them go to the control, which writes rates f32 [tensors, 12]. */
CGP_API cgp_status cgp_optimizer_norm(cgp_stream* s, int32_t gradient, const cgp_tensor* table,
                                      const cgp_tensor* chunks, const cgp_tensor* partial);
CGP_API cgp_status cgp_optimizer_control(cgp_stream* s, const cgp_optimizer_options* options,
                                         const cgp_tensor* table, const cgp_tensor* groups,
                                         const cgp_tensor* control, const cgp_tensor* rates,
                                         const cgp_tensor* partial);
CGP_API cgp_status cgp_optimizer_update(cgp_stream* s, const cgp_optimizer_types* types,
                                        const cgp_tensor* table, const cgp_tensor* chunks,
                                        const cgp_tensor* rates, const cgp_tensor* control);
/* Multiplies gradients with the factor, in place. */
CGP_API cgp_status cgp_optimizer_clip(cgp_stream* s, int32_t gradient, const cgp_tensor* table,
                                      const cgp_tensor* chunks, const cgp_tensor* control);

/* ---- GGUF files, mapped and not read. Tensors and strings are valid until the file is freed. */
typedef struct cgp_gguf cgp_gguf;
typedef struct {
  size_t size;
  const char* name;
  uint64_t name_length;
  char format[16]; /* for the functions above; GGML's own name where they have none ("I32") */
  int32_t rank;
  uint64_t shape[4]; /* of rows: the last varies fastest */
  const void* data;
  uint64_t bytes;
} cgp_gguf_tensor;
CGP_API cgp_status cgp_gguf_open(const char* path, cgp_gguf** out);
CGP_API void cgp_gguf_free(cgp_gguf* file);
CGP_API cgp_status cgp_gguf_count(cgp_gguf* file, uint64_t* tensors);
CGP_API cgp_status cgp_gguf_at(cgp_gguf* file, uint64_t index, cgp_gguf_tensor* out);
/* An error names the closest names. */
CGP_API cgp_status cgp_gguf_find(cgp_gguf* file, const char* name, cgp_gguf_tensor* out);

/* ---- language models: a GGUF file and what runs it. Requests that are submitted run together, a step of all of them with each
 * cgp_llm_step(). Pointers that a function returns are valid until the next call with the same model. */
typedef struct cgp_llm cgp_llm;
typedef struct {
  size_t size;
  const char* device;    /* "cpu", also NULL; or as cgp_device_open takes it */
  int64_t context;       /* tokens of a sequence, at most; 0: those of the model, at most 8192 */
  int64_t sequences;     /* for which the cache has pages; 0: 1 */
  int64_t chunk;         /* tokens of a step, at most; 0: 512 */
  int64_t lookup_tokens; /* that prompt lookup tries at once; results do not change */
  int32_t threads;       /* of the processor; 0: all */
  int32_t cache_dtype;   /* CGP_F16, CGP_BF16 or CGP_F32; 0: CGP_F16 */
  int32_t activations; /* of products: 0: the fastest within 16 bits; or 32 (f32), 16 or 8 (integers) bits */
  int32_t batch_invariant; /* the same bits whatever else is in the step, for every format */
} cgp_llm_options;
CGP_API cgp_status cgp_llm_load(const char* path, const cgp_llm_options* options, cgp_llm** out);
CGP_API void cgp_llm_free(cgp_llm* llm);
typedef struct {
  size_t size;
  const char *architecture, *name,
      *backend; /* "llama", "SmolLM2 135M", "cpu (8 threads, int16 activations)" */
  int64_t context, vocabulary;
  uint64_t memory_bytes; /* of weights, cache and values */
  int32_t has_chat_template;
} cgp_llm_info;
CGP_API cgp_status cgp_llm_get_info(cgp_llm* llm, cgp_llm_info* out);
/* With the tokens that the model wants before and after. parse_special: "<|im_end|>" in the text is that token. */
CGP_API cgp_status cgp_llm_encode(cgp_llm* llm, const char* text, uint64_t bytes, int32_t parse_special,
                                  const int32_t** ids, uint64_t* count);
CGP_API cgp_status cgp_llm_decode(cgp_llm* llm, const int32_t* ids, uint64_t count, int32_t skip_special,
                                  const char** text, uint64_t* bytes);
/* A conversation through the model's chat template, ready for the assistant's answer. */
CGP_API cgp_status cgp_llm_chat_prompt(cgp_llm* llm, const char* const* roles, const char* const* contents,
                                       uint64_t messages, const int32_t** ids, uint64_t* count);
typedef struct {
  size_t size;
  int64_t max_tokens;        /* 0: 256 */
  double temperature;        /* 0: the greatest logit */
  int32_t top_k;             /* 0: all */
  double top_p;              /* 0 or 1: all */
  double min_p;              /* of the greatest probability; 0: all */
  double typical_p;          /* 0 or 1: all */
  double repetition_penalty; /* 0 or 1: none */
  double frequency_penalty, presence_penalty;
  int32_t penalty_window; /* how many of the last tokens count as seen; -1: all, 0: none */
  uint64_t seed;
  int32_t logprobs;     /* each token has its log probability */
  int32_t top_logprobs; /* and those of so many alternatives */
  int32_t ignore_end;   /* goes on behind tokens that end generation */
  const char* const* stops;
  uint64_t stop_count;
  const int32_t* bias_ids; /* added to logits before all else */
  const float* bias;
  uint64_t bias_count;
} cgp_llm_request;
/* request NULL: temperature 0.7, top_k 40, top_p 0.9, seed 42. *id: positive. */
CGP_API cgp_status cgp_llm_submit(cgp_llm* llm, const int32_t* prompt, uint64_t count,
                                  const cgp_llm_request* request, int64_t* id);
/* *busy: whether there was something to do. */
CGP_API cgp_status cgp_llm_step(cgp_llm* llm, int32_t* busy);
CGP_API cgp_status cgp_llm_cancel(cgp_llm* llm, int64_t id);
/* Text that came since the last call for this request: UTF-8, no part of a stop string. */
CGP_API cgp_status cgp_llm_text(cgp_llm* llm, int64_t id, const char** text, uint64_t* bytes);
typedef struct {
  int32_t token;
  double logprob; /* natural */
} cgp_llm_logprob;
typedef struct {
  size_t size;
  const int32_t* ids; /* that were generated, with the token that ended generation */
  uint64_t count;
  const char* text;
  uint64_t text_bytes;
  const char*
      finish_reason; /* "stop", "length", "cancelled", "error"; NULL: it is still at work, and nothing else is set */
  const char *stop, *error;             /* the stop string; what went wrong */
  int64_t prompt_tokens, reused_tokens; /* of the prompt; those that the cache had */
  int64_t drafted_tokens, accepted_tokens;
  double prefill_seconds, decode_seconds;
  const cgp_llm_logprob*
      logprobs; /* [count][1 + top_logprobs]: the token, then the most likely ones, token -1 behind the last */
  uint64_t logprob_columns; /* 1 + top_logprobs; 0: none were asked for */
} cgp_llm_completion;
/* A request that has ended is given once. */
CGP_API cgp_status cgp_llm_take(cgp_llm* llm, int64_t id, cgp_llm_completion* out);
/* exp of the mean negative log probability of the text in chunks, of which the second half is predicted; no request may be at
 * work. */
CGP_API cgp_status cgp_llm_perplexity(cgp_llm* llm, const char* text, uint64_t bytes, int64_t chunk,
                                      double* value, double* error);

/* ---- kernels of your own, as PTX text
 *
 *   cgp_module_load(gpu, ptx, strlen(ptx), &module);
 *   cgp_kernel_open(module, "scale", &kernel);
 *   cgp_argument arguments[] = {{CGP_ARGUMENT_TENSOR, 0, 0, &y}, {CGP_ARGUMENT_SCALAR, CGP_U32, 0, &n}};
 *   cgp_launch launch = {.size = sizeof launch, .grid = {blocks, 1, 1}, .block = {256, 1, 1}};
 *   cgp_kernel_launch(s, kernel, arguments, 2, &launch);
 *
 * On the emulator every access is checked; findings are CGP_FAULT of the next cgp_stream_wait or cgp_download. */
typedef struct cgp_module cgp_module;
typedef struct cgp_kernel cgp_kernel;
/* As cgp_alloc; findings of the emulator call the memory by this name. */
CGP_API cgp_status cgp_alloc_named(cgp_device* device, uint64_t bytes, const char* name, uint64_t* address);
/* Each load has variables (.global, .const) of its own. Malformed PTX is CGP_INVALID_ARGUMENT with line and column. */
CGP_API cgp_status cgp_module_load(cgp_device* device, const char* ptx, uint64_t bytes, cgp_module** out);
/* Kernels of it stay valid until they are freed, too. */
CGP_API void cgp_module_free(cgp_module* module);
CGP_API cgp_status cgp_module_kernel_count(cgp_module* module, uint64_t* out);
/* The name is valid until the module is freed. */
CGP_API cgp_status cgp_module_kernel_name(cgp_module* module, uint64_t index, const char** out);
/* The kernel of that name; NULL: the only one. An error names the kernels there are. */
CGP_API cgp_status cgp_kernel_open(cgp_module* module, const char* name, cgp_kernel** out);
CGP_API void cgp_kernel_free(cgp_kernel* kernel);
typedef struct {
  size_t size;
  const char* name;     /* valid until the kernel is freed */
  uint64_t parameters;  /* how many */
  uint32_t block[3];    /* .reqntid; 0, 0, 0: each launch says it */
  uint32_t cluster[3];  /* .reqnctapercluster; 1, 1, 1: none */
  uint32_t max_threads; /* of a block */
  uint32_t static_shared_bytes;
  int32_t registers; /* of a thread; estimated on the emulator; -1: not known */
} cgp_kernel_info;
CGP_API cgp_status cgp_kernel_get_info(cgp_kernel* kernel, cgp_kernel_info* out);
typedef enum {
  CGP_PARAMETER_SCALAR = 0,
  CGP_PARAMETER_POINTER = 1,    /* declared with .ptr */
  CGP_PARAMETER_TENSOR_MAP = 2, /* .align 64 .b8 [128] */
  CGP_PARAMETER_BYTES = 3,      /* a struct by value */
  CGP_PARAMETER_WORD = 4        /* 8 bytes: PTX does not say whether a number or an address */
} cgp_parameter_kind;
typedef struct {
  size_t size;
  const char* name; /* valid until the kernel is freed */
  int32_t kind;     /* cgp_parameter_kind */
  int32_t dtype;    /* cgp_dtype of a scalar; -1: any of that width */
  uint32_t bytes;
  uint32_t pointer_align; /* bytes, of the memory that a .ptr parameter points to; 0: not declared */
} cgp_parameter_info;
CGP_API cgp_status cgp_kernel_parameter(cgp_kernel* kernel, uint64_t index, cgp_parameter_info* out);

/* A tensor map: box [rank], elements, in the order of the tensor's dimensions; the last stride is 1. */
typedef struct {
  size_t size;
  const cgp_tensor* tensor; /* of 1 to 5 dimensions */
  uint32_t box[5];
  int32_t swizzle;      /* bytes: 0, 32, 64 or 128 */
  int32_t l2_promotion; /* bytes: 0, 64, 128 or 256 */
  int32_t nan_fill;     /* 1: elements outside the tensor are NaN, not 0 */
} cgp_tensor_map;
typedef enum {
  CGP_ARGUMENT_SCALAR = 0,
  CGP_ARGUMENT_TENSOR = 1,
  CGP_ARGUMENT_BYTES = 2,
  CGP_ARGUMENT_TENSOR_MAP = 3
} cgp_argument_kind;
typedef struct {
  int32_t kind;   /* cgp_argument_kind */
  int32_t dtype;  /* SCALAR: cgp_dtype of the value */
  uint64_t bytes; /* BYTES: how many */
  /* The value; a cgp_tensor, of which the kernel gets the address (NULL: address 0); the bytes; a
   * cgp_tensor_map. */
  const void* data;
} cgp_argument;
typedef struct {
  size_t size;
  uint32_t grid[3];      /* in blocks */
  uint32_t block[3];     /* in threads; 0, 0, 0: as the PTX says (.reqntid) */
  uint32_t cluster[3];   /* in blocks; 0, 0, 0: as the PTX says */
  uint32_t shared_bytes; /* dynamic shared memory of a block */
  int32_t cooperative;   /* 1: all blocks run at the same time */
} cgp_launch;
/* Queues a launch. Before it each argument is checked against the parameter of its position: count, kind, type, width, declared
 * alignment; and the shape against the kernel and the device. */
CGP_API cgp_status cgp_kernel_launch(cgp_stream* s, cgp_kernel* kernel, const cgp_argument* arguments,
                                     uint64_t count, const cgp_launch* launch);

#ifdef __cplusplus
}
#endif
#endif
