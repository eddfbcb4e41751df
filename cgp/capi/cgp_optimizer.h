/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CGP_CAPI_CGP_OPTIMIZER_H
#define CGP_CAPI_CGP_OPTIMIZER_H
/* A part of cgp.h: optimizers. */
#include "cgp/capi/cgp_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- optimizers: a step over all tensors of a model, in launches that wait for nothing: cgp_optimizer_norm (where gradients are
 * clipped or checked), cgp_optimizer_control, cgp_optimizer_update (one for each pair of types). The tables lie in memory of the
 * device, at multiples of 16 bytes; integers may be signed. cgp/kernels/optimizer/optimizer.h has the formulas. */
/* CGP_SGD and CGP_NESTEROV have momentum (beta1), CGP_DESCENT is SGD without. */
typedef enum { CGP_ADAMW, CGP_ADAM, CGP_SGD, CGP_NESTEROV, CGP_LION, CGP_DESCENT } cgp_optimizer_rule;
/* A row of the table, u64 [tensors, 8]: addresses, of any alignment that fits the type. With states of 8 bits m and v are u8, and
 * master is the address of their scales, f32 [states][ceil(elements / 256)]. */
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
  int32_t states8; /* 1: states of 8 bits (cgp/kernels/optimizer/optimizer_code.h has the code) */
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

#ifdef __cplusplus
}
#endif
#endif
