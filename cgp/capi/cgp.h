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
 * Functions return CGP_OK or what went wrong; cgp_last_error() of the same thread says it in words: the rule,
 * where, why and what to do. Handles may be used from several threads, one at a time. Arrays are described by
 * cgp_tensor and belong to the caller; work is queued on a stream and not waited for.
 * Growing the interface adds functions and, at the end of options structures, members: `size` says how much
 * of a structure the caller knows, absent members are 0. */
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
/* Of the last call of this thread that failed; valid until its next call. */
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
/* These wait, and report what went wrong with work that was queued before. */
CGP_API cgp_status cgp_upload(cgp_device* device, uint64_t to, const void* from, uint64_t bytes);
CGP_API cgp_status cgp_download(cgp_device* device, void* to, uint64_t from, uint64_t bytes);

/* ---- streams */
CGP_API cgp_status cgp_stream_new(cgp_device* device, cgp_stream** out);
/* A CUstream of another library (NULL: the default stream). It must outlive the handle. */
CGP_API cgp_status cgp_stream_borrow(cgp_device* device, void* cu_stream, cgp_stream** out);
CGP_API void cgp_stream_free(cgp_stream* stream);
CGP_API cgp_status cgp_stream_wait(cgp_stream* stream);
/* Where operations get temporary memory from: returns the address of `bytes` bytes at a 256-byte boundary, or
 * 0 when there are none; they must stay valid for work queued until the next call. NULL: the stream's own. */
typedef uint64_t (*cgp_scratch)(void* user, uint64_t bytes);
CGP_API cgp_status cgp_stream_set_scratch(cgp_stream* stream, cgp_scratch source, void* user);

/* ---- operations
 * Output tensors come last. Optional tensors may be NULL. "Rows" are the last dimension, which is contiguous;
 * leading dimensions are any that collapse to rows at one distance, or to groups of such rows. */

/* c[..., m, n] = alpha * a[..., m, k] b[..., k, n] + beta * c, then the epilogue. Either of the last two
 * strides of a and b is 1; leading dimensions collapse to one batch; one b may serve all of it. Vectors of
 * rows have m elements, or batch * m where one b serves a batch. */
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
  float alpha, beta;      /* used as they are: give 1 and 0 */
  int32_t precision;      /* cgp_precision */
  int32_t activation;     /* cgp_activation, applied after the biases */
  int32_t swiglu;         /* 1: columns 2 j and 2 j + 1 of the product make silu(x) * y; 2: j and j + n / 2 */
  int32_t scaling;        /* scale_a and scale_b (f32): 0 none; 1 tensor: one factor each; 2 channel: of the
                           * rows of a, and [n]; 3 block: [batch, m, ceil(k / 128)] and [batch, ceil(n / 128),
                           * ceil(k / 128)] */
  const cgp_tensor* bias; /* [n] */
  const cgp_tensor* residual; /* as c, added last */
  const cgp_tensor *scale_a, *scale_b;
  int32_t c_spare; /* what lies behind each row of c, up to a multiple of 16 bytes, is there and nobody's */
  const cgp_tensor* bias_rows; /* of rows, added after bias */
  const cgp_tensor *multiply_rows,
      *multiply_columns;  /* of rows, and [n]: the sums times these, before bias */
  const cgp_tensor* amax; /* written: f32 [batch, ceil(m / 128), ceil(columns of c / 128)], the largest |c| of
                           * each block before it is rounded */
} cgp_gemm_options;
CGP_API cgp_status cgp_gemm(cgp_stream* s, const cgp_tensor* a, const cgp_tensor* b,
                            const cgp_gemm_options* options, const cgp_tensor* c);

/* Many products in one launch whose sizes only the device knows. Options are cgp_gemm's, without amax. Group
 * g has the rows from ends[g - 1] to ends[g] of a (s32, u32, s64 or u64 [groups], rising); arrays are
 * contiguous, but of b either of the last two strides is 1.
 *   cgp_grouped_gemm        c[r, :] = alpha * a[r, :] b[g]       a [rows, k], b [groups, k, n], c [rows, n];
 *                           rows behind the last end are left alone. index (s32 or u32 [rows], optional): row
 *                           r of a is a[index[r], :]. Factors: of a as gemm's, of b one set for each group.
 *   cgp_grouped_gemm_depth  c[g] = alpha * (rows of g of a)' (rows of g of b)    a [rows, m], b [rows, n],
 *                           c [groups, m, n]. Factors of tensors, [groups] each. */
CGP_API cgp_status cgp_grouped_gemm(cgp_stream* s, const cgp_tensor* a, const cgp_tensor* b,
                                    const cgp_tensor* ends, const cgp_tensor* index,
                                    const cgp_gemm_options* options, const cgp_tensor* c);
CGP_API cgp_status cgp_grouped_gemm_depth(cgp_stream* s, const cgp_tensor* a, const cgp_tensor* b,
                                          const cgp_tensor* ends, const cgp_gemm_options* options,
                                          const cgp_tensor* c);
/* A batch of equal products whose matrices lie anywhere: a, b and c (matrices; their addresses are not used)
 * describe each, a_at, b_at and c_at (u64 [count]) have the addresses of all, on the device. `items` (u8
 * [48 * count], at a multiple of 16 bytes) is written. Factors of tensors, [count] each. Nothing can be
 * checked that only the device knows. */
CGP_API cgp_status cgp_gemm_pointers(cgp_stream* s, const cgp_tensor* a, const cgp_tensor* b,
                                     const cgp_tensor* a_at, const cgp_tensor* b_at, const cgp_tensor* c_at,
                                     const cgp_gemm_options* options, const cgp_tensor* items,
                                     const cgp_tensor* c);

/* y = softmax of each row of x; in place when they are the same. */
CGP_API cgp_status cgp_softmax(cgp_stream* s, const cgp_tensor* x, const cgp_tensor* y);
/* Sum (op 0) or maximum (op 1) over dimension `dim` of a contiguous array (negative: from the end). */
CGP_API cgp_status cgp_reduce(cgp_stream* s, int32_t op, int32_t dim, const cgp_tensor* x,
                              const cgp_tensor* y);
/* y[..., j, i] = x[..., i, j], both contiguous. */
CGP_API cgp_status cgp_transpose(cgp_stream* s, const cgp_tensor* x, const cgp_tensor* y);
/* z = x + y, contiguous, of one shape. */
CGP_API cgp_status cgp_add(cgp_stream* s, const cgp_tensor* x, const cgp_tensor* y, const cgp_tensor* z);

/* ---- norms. x, y, dy, dx, residual, sum: one shape, rows as above; f32, f16 or bf16 in any mixture, f32
 * inside. Outputs overlap nothing else. h = x + residual (rounded to the type of sum, else of x), or x
 *   RMSNorm    y = h * rstd * (weight + weight_offset)                    rstd = 1 / sqrt(mean(h^2) + eps)
 *   LayerNorm  y = (h - mean) * rstd * (weight + weight_offset) + bias    rstd = 1 / sqrt(var(h) + eps)
 * Members that are not given are left out: no residual, a weight of 1, no bias, nothing stored. */
typedef struct {
  size_t size;
  float eps, weight_offset;   /* used as they are */
  const cgp_tensor* weight;   /* [cols] */
  const cgp_tensor* bias;     /* [cols]; LayerNorm only */
  const cgp_tensor* residual; /* as x */
  const cgp_tensor* sum;      /* as x, written: h; needs a residual */
  const cgp_tensor* mean;     /* f32 [..., rows], contiguous, written; LayerNorm only */
  const cgp_tensor* rstd;     /* as mean, written */
} cgp_norm_options;
CGP_API cgp_status cgp_rms_norm(cgp_stream* s, const cgp_tensor* x, const cgp_norm_options* options,
                                const cgp_tensor* y);
CGP_API cgp_status cgp_layer_norm(cgp_stream* s, const cgp_tensor* x, const cgp_norm_options* options,
                                  const cgp_tensor* y);
/* Gradients; deterministic. x is h of the forward pass. dx = dsum (if given) + the gradient through y. */
typedef struct {
  size_t size;
  float weight_offset;
  const cgp_tensor* weight;  /* [cols] */
  const cgp_tensor* dsum;    /* as x: gradient that reached h by itself */
  const cgp_tensor* mean;    /* of the forward pass; LayerNorm only */
  const cgp_tensor* rstd;    /* of the forward pass; must be given */
  const cgp_tensor* dweight; /* [cols], written */
  const cgp_tensor* dbias;   /* [cols], written; LayerNorm only */
} cgp_norm_backward_options;
CGP_API cgp_status cgp_rms_norm_backward(cgp_stream* s, const cgp_tensor* x, const cgp_tensor* dy,
                                         const cgp_norm_backward_options* options, const cgp_tensor* dx);
CGP_API cgp_status cgp_layer_norm_backward(cgp_stream* s, const cgp_tensor* x, const cgp_tensor* dy,
                                           const cgp_norm_backward_options* options, const cgp_tensor* dx);

/* ---- cross-entropy of logits [..., cols] and targets s32 or s64 [...] (contiguous), with its gradient:
 *   loss    = lse - (1 - e) x[target] - e mean(x) + z_loss lse^2       lse = log sum exp(x), e =
 * label_smoothing dlogits = scale * d loss / d x A row whose target is ignore_index has loss and gradient 0.
 * A target that is no column gives NaN in its row and sets `errors` to 1. loss and lse: f32, as targets; all
 * three outputs are optional, one must be given. dlogits may be the logits themselves. */
typedef struct {
  size_t size;
  int64_t ignore_index; /* used as it is: -100 is customary, and what NULL options mean */
  float label_smoothing, z_loss;
  const cgp_tensor* scale;  /* f32, one element on the device, multiplies dlogits */
  const cgp_tensor* errors; /* u32 or s32, one element, written; never set to 0 */
} cgp_cross_entropy_options;
CGP_API cgp_status cgp_cross_entropy(cgp_stream* s, const cgp_tensor* logits, const cgp_tensor* targets,
                                     const cgp_cross_entropy_options* options, const cgp_tensor* loss,
                                     const cgp_tensor* lse, const cgp_tensor* dlogits);
/* scale (f32, one element) = 1 / the number of targets that are not ignore_index. */
CGP_API cgp_status cgp_count_targets(cgp_stream* s, const cgp_tensor* targets, int64_t ignore_index,
                                     const cgp_tensor* scale);
/* The same, and loss (f32, one element) = scale times the sum of `losses` (f32, contiguous, as targets);
 * scale NULL: their sum, and targets may be NULL. */
CGP_API cgp_status cgp_mean_loss(cgp_stream* s, const cgp_tensor* losses, const cgp_tensor* targets,
                                 int64_t ignore_index, const cgp_tensor* scale, const cgp_tensor* loss);

/* ---- rotary position embedding of x [..., heads, dim], whose leading dimensions are tokens:
 *   (a, b) -> (a cos - b sin, a sin + b cos)
 * Pair i of a head is (i, i + rotary / 2), or (2 i, 2 i + 1) when interleaved. y may be x. The gradient is
 * the same with `inverse`. Without tables angles are position * base^(-2 i / rotary), scaled, computed
 * exactly. */
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
  const cgp_tensor* positions; /* s32 or s64, one a token, contiguous; else offset + token % sequence */
  uint64_t sequence, offset;   /* sequence 0: all tokens are one */
  uint64_t rotary;             /* elements of a head that turn; 0: all */
  int32_t interleaved, inverse;
  int32_t scaling;                      /* cgp_rope_scaling; this and what follows: without tables */
  double base;                          /* 0: 10000 */
  double factor;                        /* by which the context grew; 0: 1 */
  double original_positions;            /* yarn, llama3: the context before */
  double beta_fast, beta_slow;          /* yarn; 0: 32 and 1 */
  double low_frequency, high_frequency; /* llama3; 0: 1 and 4 */
} cgp_rope_options;
CGP_API cgp_status cgp_rope(cgp_stream* s, const cgp_tensor* x, const cgp_rope_options* options,
                            const cgp_tensor* y);

/* ---- activations (cgp_activation, not NONE); all arrays of one shape, rows as above, f32, f16 or bf16 in
 * any mixture. An output may be one of the inputs. bias [cols] is optional. activate  y = f(x + bias)
 * activate_backward  dx = dy f'(x + bias) gated     out = f(gate) * up       gated_backward     dgate = dout
 * up f'(gate), dup = dout f(gate) */
CGP_API cgp_status cgp_activate(cgp_stream* s, int32_t activation, const cgp_tensor* x,
                                const cgp_tensor* bias, const cgp_tensor* y);
CGP_API cgp_status cgp_activate_backward(cgp_stream* s, int32_t activation, const cgp_tensor* x,
                                         const cgp_tensor* bias, const cgp_tensor* dy, const cgp_tensor* dx);
CGP_API cgp_status cgp_gated(cgp_stream* s, int32_t activation, const cgp_tensor* gate, const cgp_tensor* up,
                             const cgp_tensor* out);
CGP_API cgp_status cgp_gated_backward(cgp_stream* s, int32_t activation, const cgp_tensor* gate,
                                      const cgp_tensor* up, const cgp_tensor* dout, const cgp_tensor* dgate,
                                      const cgp_tensor* dup);

/* y = x - log sum exp(x) of each row; dx of both forms of softmax from its result y and dy. */
CGP_API cgp_status cgp_log_softmax(cgp_stream* s, const cgp_tensor* x, const cgp_tensor* y);
CGP_API cgp_status cgp_softmax_backward(cgp_stream* s, const cgp_tensor* y, const cgp_tensor* dy,
                                        const cgp_tensor* dx);
CGP_API cgp_status cgp_log_softmax_backward(cgp_stream* s, const cgp_tensor* y, const cgp_tensor* dy,
                                            const cgp_tensor* dx);

/* o[b, h, i, :] = sum_j softmax_j(q_i . k_j * scale ...) v[b, h', j, :]; q [b, h, n_q, d], k and v [b, h_kv,
 * n_kv, d] with any strides but that of d, h a multiple of h_kv; f32, f16, bf16 or e4m3. The last query is
 * aligned with the last key. lse (optional): f32 [b, h, n_q], contiguous, the logarithm of each row's sum. */
typedef struct {
  size_t size;
  float scale;                       /* 0: 1 / sqrt(d) */
  int32_t causal;                    /* 1: query i sees keys up to its own */
  int32_t window_left, window_right; /* keys before and after a query's own that it sees, plus 1; 0: all */
  float soft_cap;                    /* 0: none; c: scores become c * tanh(score / c) */
  const cgp_tensor* slopes;          /* ALiBi: f32 [h] */
  const cgp_tensor* mask;        /* [b or 1, h or 1, n_q or 1, n_kv]: added (of q's type), or u8: 0 hides */
  const cgp_tensor* key_lengths; /* u32 [b]: keys of each sequence */
  int32_t any_order;             /* of gradients: 1: sums of d_q may be added in any order, which is faster */
  /* What becomes of a score after all of the above but a u8 mask, or NULL. A formula of score, b, h, q, k (of
   * this query and key), numbers and inf; + - * / // % < <= > >= == != and or not; abs, floor, exp, log,
   * sqrt, sin, cos, tanh, sigmoid, min, max, where(condition, this, that); data[i, ...]: an element of
   * score_data, its indices clamped. Gradients follow from it; score_data has none. A kernel is built for
   * each formula and shape of score_data. */
  const char* score;
  const cgp_tensor* score_data; /* f32, contiguous */
  /* Documents that lie one after the other: q [total_q, h, d], k and v [total_kv, h_kv, d], o as q, lse [h,
   * total_q]. u32 or s32 [documents + 1]: where each begins and the last ends, no further than the rows there
   * are. longest_q, longest_kv: rows of the longest document, or more; 0: all. */
  const cgp_tensor *cu_q, *cu_kv;
  uint64_t longest_q, longest_kv;
  /* q, k and v of e4m3 (no gradient; o of bf16 or f16): what they are multiplied with, f32, one element or
   * [b, h] ([b, h_kv]; b documents); NULL: 1. promoted: sums over keys leave the tensor cores' 14 bits. */
  const cgp_tensor *q_scale, *k_scale, *v_scale;
  int32_t promoted;
} cgp_attention_options;
CGP_API cgp_status cgp_attention(cgp_stream* s, const cgp_tensor* q, const cgp_tensor* k, const cgp_tensor* v,
                                 const cgp_attention_options* options, const cgp_tensor* o,
                                 const cgp_tensor* lse);
/* Gradients from the results o and lse of the forward pass and the gradient d_o of o, strided as o; d_q, d_k
 * and d_v are written, strided as q, k and v. The same bits at every run, unless any_order is 1. */
CGP_API cgp_status cgp_attention_backward(cgp_stream* s, const cgp_tensor* q, const cgp_tensor* k,
                                          const cgp_tensor* v, const cgp_attention_options* options,
                                          const cgp_tensor* o, const cgp_tensor* lse, const cgp_tensor* d_o,
                                          const cgp_tensor* d_q, const cgp_tensor* d_k,
                                          const cgp_tensor* d_v);

/* ---- rows by index, and choices in rows. Indices are s32 or s64. */
/* out[r, :] = weight[indices[r], :]; indices [...], weight [vocab, cols], out [..., cols]. An index that is
 * no row gives NaN and sets `errors` (u32 or s32, one element, optional) to 1. */
CGP_API cgp_status cgp_embedding(cgp_stream* s, const cgp_tensor* indices, const cgp_tensor* weight,
                                 const cgp_tensor* errors, const cgp_tensor* out);
/* dweight[v, :] = the sum of dout[r, :] over the r with indices[r] == v, in f32, in ascending order of r; 0
 * for padding_idx (-1: none) and rows that nobody named. */
CGP_API cgp_status cgp_embedding_backward(cgp_stream* s, const cgp_tensor* indices, const cgp_tensor* dout,
                                          int64_t padding_idx, const cgp_tensor* errors,
                                          const cgp_tensor* dweight);
/* The same sums added to what is in dweight, rounded once; rows that nobody named are not touched. */
CGP_API cgp_status cgp_embedding_backward_onto(cgp_stream* s, const cgp_tensor* indices,
                                               const cgp_tensor* dout, int64_t padding_idx,
                                               const cgp_tensor* errors, const cgp_tensor* dweight);
/* y = x / (1 - p) or 0, by Philox4x32-10 with key seed and counter (number of the element / 4, offset); the
 * gradient is the same function of dy. y may be x. */
CGP_API cgp_status cgp_dropout(cgp_stream* s, const cgp_tensor* x, double p, uint64_t seed, uint64_t offset,
                               const cgp_tensor* y);
/* index[r] = place of the largest element of each row, the first of several; NaN is larger than everything.
 * values (optional): the elements. */
CGP_API cgp_status cgp_argmax(cgp_stream* s, const cgp_tensor* x, const cgp_tensor* index,
                              const cgp_tensor* values);
/* The k largest elements of each row, descending, with their places; values and index [..., k], k <= 1024. */
CGP_API cgp_status cgp_topk(cgp_stream* s, const cgp_tensor* x, const cgp_tensor* values,
                            const cgp_tensor* index);
/* y[r, c] = the sum of x[r, 0 .. c], or of x[r, 0 .. c - 1] when exclusive; f32 inside. y may be x. */
CGP_API cgp_status cgp_cumsum(cgp_stream* s, const cgp_tensor* x, int32_t exclusive, const cgp_tensor* y);

/* ---- decoding: steps of a language model that makes one token of each sequence. f16 or bf16.
 * `early`: a programmatic launch on sm_90, which begins while the work queued right before ends. That work
 * must not write what is constant in a step: weights, biases, norm weights. Everything else is waited for. */
/* y [m, n] = f(h w' + bias) + residual for up to 8 rows x [m, k], h being x or the norm of its rows (k at
 * most 4096). Up to three weights [n_i, k]: their columns of y lie one after another; with `gated` two, and
 * y = f(first) * second. y may be the residual. */
typedef enum { CGP_NORM_NONE = 0, CGP_NORM_RMS = 1, CGP_NORM_LAYER = 2 } cgp_norm_kind;
typedef struct {
  size_t size;
  const cgp_tensor *weight0, *weight1, *weight2; /* [n_i, k], contiguous */
  const cgp_tensor *bias0, *bias1, *bias2;       /* [n_i]; all or none */
  const cgp_tensor* residual;                    /* as y */
  const cgp_tensor *norm_weight, *norm_bias;     /* [k]; the bias is LayerNorm's */
  float eps, weight_offset;                      /* used as they are */
  int32_t norm;                                  /* cgp_norm_kind */
  int32_t activation;                            /* cgp_activation */
  int32_t gated, early;
  /* With `early`: the first ahead_bytes of each go into L2 while this waits, for what runs next. */
  const cgp_tensor *ahead0, *ahead1;
  uint64_t ahead_bytes;
} cgp_few_rows_options;
CGP_API cgp_status cgp_few_rows(cgp_stream* s, const cgp_tensor* x, const cgp_few_rows_options* options,
                                const cgp_tensor* y);

/* Pages of a cache of keys and values: pool [pages, 2, heads_kv, page_size, d], keys then values, page_size a
 * power of two from 16 to 256, d a multiple of 64; table s32 [batch, columns]: pages of each sequence in
 * order. `wrong` (u32, one element) becomes batch number + 1 of a sequence whose table names a page that is
 * not there.
 *
 * What lies between the product that makes qkv [batch, tokens, heads_q + 2 heads_kv, d] and attention:
 * RMSNorm of the heads of q and k, their rotation (both in place), keys and values into pages. Token i of a
 * sequence has the place and position lengths[b] - tokens + i, or offset + i where lengths are not given. */
typedef struct {
  size_t size;
  const cgp_tensor *cos, *sin;           /* f32 [positions, d / 2]; both or neither: nothing turns */
  const cgp_tensor *q_weight, *k_weight; /* [d]; both or neither: no norm */
  const cgp_tensor* lengths;             /* u32 or s32 [batch], the new tokens counted */
  uint64_t offset;
  float eps;
  int32_t early;
} cgp_qkv_append_options;
CGP_API cgp_status cgp_qkv_append(cgp_stream* s, const cgp_tensor* qkv, const cgp_qkv_append_options* options,
                                  const cgp_tensor* table, const cgp_tensor* wrong, const cgp_tensor* pool);
/* Which page holds which tokens of which sequence, on the host alone. A call that fails leaves all as it was;
 * a sequence that was freed, or never was, is refused. A sequence that was forked shares its pages, and the
 * last one is copied when either writes to it. */
typedef struct {
  uint32_t from, to, tokens; /* tokens 0: nothing is to be copied */
} cgp_kv_page_copy;
CGP_API cgp_status cgp_kv_pages_new(uint32_t pages, uint32_t page_size, cgp_kv_pages** out);
CGP_API void cgp_kv_pages_free(cgp_kv_pages* pages);
CGP_API cgp_status cgp_kv_pages_left(cgp_kv_pages* pages, uint32_t* out);
CGP_API cgp_status cgp_kv_add(cgp_kv_pages* pages, uint64_t* sequence);
/* A sequence that begins with the first `tokens` of the parent. */
CGP_API cgp_status cgp_kv_fork(cgp_kv_pages* pages, uint64_t parent, uint64_t tokens, uint64_t* sequence);
/* Room for more tokens: where each goes (page * page_size + place), and what must be copied first. */
CGP_API cgp_status cgp_kv_extend(cgp_kv_pages* pages, uint64_t sequence, uint64_t tokens, uint64_t* slots,
                                 cgp_kv_page_copy* first);
CGP_API cgp_status cgp_kv_truncate(cgp_kv_pages* pages, uint64_t sequence, uint64_t length);
CGP_API cgp_status cgp_kv_free(cgp_kv_pages* pages, uint64_t sequence);
CGP_API cgp_status cgp_kv_length(cgp_kv_pages* pages, uint64_t sequence, uint64_t* length);
/* tables [count, columns]: the pages of each sequence in order, -1 behind them. */
CGP_API cgp_status cgp_kv_tables(cgp_kv_pages* pages, const uint64_t* sequences, uint64_t count,
                                 uint64_t columns, int32_t* tables);
/* Moving tokens: the pool's elements have the type of the tokens, or are e4m3 and hold x / scale. */
typedef struct {
  size_t size;
  float key_scale, value_scale; /* of 8-bit pages; 0: 1 */
} cgp_kv_options;
/* k, v [tokens, heads_kv, d] to slots u64 or s64 [tokens]; v is strided as k. A slot outside the pool leaves
 * its token's number + 1 in `wrong` and writes nothing. */
CGP_API cgp_status cgp_kv_append(cgp_stream* s, const cgp_tensor* k, const cgp_tensor* v,
                                 const cgp_tensor* slots, const cgp_kv_options* options,
                                 const cgp_tensor* wrong, const cgp_tensor* pool);
CGP_API cgp_status cgp_kv_copy(cgp_stream* s, const cgp_tensor* pool, const cgp_kv_page_copy* what);
/* k, v [batch, heads_kv, rows, d]: the first lengths[b] tokens of each sequence, zeros behind them. */
CGP_API cgp_status cgp_kv_gather(cgp_stream* s, const cgp_tensor* pool, const cgp_tensor* table,
                                 const cgp_tensor* lengths, const cgp_kv_options* options,
                                 const cgp_tensor* wrong, const cgp_tensor* k, const cgp_tensor* v);
/* Attention of q [batch, heads, n_q, d] over the first lengths[b] tokens of each sequence; query i sees keys
 * up to lengths[b] - n_q + i. `workspace` is zeroed once and left ready by every call, for calls of any
 * shape. */
typedef struct {
  size_t size;
  float scale; /* 0: 1 / sqrt(d) */
  int32_t early;
  uint64_t max_length; /* no sequence gets longer; 0: columns * page_size */
  /* `share` neighbouring sequences (the last of them fewer) begin with the same pages: shared[i] tokens of
   * group i, no more than its sequences have, are read once for several of them. u32 or s32; both or neither.
   */
  uint64_t share;
  const cgp_tensor* shared;
  float key_scale, value_scale; /* of a pool of e4m3; 0: 1 */
} cgp_paged_attention_options;
CGP_API cgp_status cgp_paged_attention_workspace(cgp_stream* s, const cgp_tensor* q, const cgp_tensor* pool,
                                                 const cgp_tensor* table,
                                                 const cgp_paged_attention_options* options, uint64_t* bytes);
CGP_API cgp_status cgp_paged_attention(cgp_stream* s, const cgp_tensor* q, const cgp_tensor* pool,
                                       const cgp_tensor* table, const cgp_tensor* lengths,
                                       const cgp_paged_attention_options* options,
                                       const cgp_tensor* workspace, const cgp_tensor* wrong,
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
  const cgp_tensor* packed; /* optional: what cgp_quantized_pack() made, for 1 to 16 rows of x on sm_90 */
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
 * packed too where the device has the product for 1 to 16 rows and `packed` is not 0. */
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
/* Blocks of q4_0, q8_0, q4_k, q5_k or q6_k in the order of the product for few rows; bytes 0 and UNSUPPORTED for other formats. */
CGP_API cgp_status cgp_quantized_packed_bytes(const char* format, uint64_t rows, uint64_t cols,
                                              uint64_t* bytes);
CGP_API cgp_status cgp_quantized_pack(const char* format, uint64_t rows, uint64_t cols, const void* blocks,
                                      uint64_t bytes, void* packed, uint64_t packed_bytes);

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

#ifdef __cplusplus
}
#endif
#endif
