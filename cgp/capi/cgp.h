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
#include "cgp/capi/cgp_base.h"
#include "cgp/capi/cgp_decode.h"
#include "cgp/capi/cgp_distributed.h"
#include "cgp/capi/cgp_kernel.h"
#include "cgp/capi/cgp_llm.h"
#include "cgp/capi/cgp_ops.h"
#include "cgp/capi/cgp_optimizer.h"
#include "cgp/capi/cgp_quantized.h"
#endif
