/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CGP_CAPI_CGP_DISTRIBUTED_H
#define CGP_CAPI_CGP_DISTRIBUTED_H
/* Collectives, and products that communicate, between the GPUs of one host, each in a process of its own (torchrun, mpirun).
 *
 *   cgp_communicator* all;
 *   cgp_communicator_new(gpu, rank, size, my_all_gather, NULL, NULL, &all);      every process
 *   cgp_all_reduce(s, all, &x, &y);
 *
 * All processes make the same calls in the same order, one at a time. Arrays are contiguous, of CUDA devices. */
#include "cgp/capi/cgp_base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgp_communicator cgp_communicator;
/* MPI_Allgather: `all` gets the `bytes` bytes of each rank, rank by rank. Returns 0, or something else for failure. */
typedef int32_t (*cgp_all_gather_bytes)(void* user, const void* own, uint64_t bytes, void* all);

typedef struct {
  size_t size;
  uint64_t staging_bytes; /* of a rank; what is longer goes in pieces; 0: 64 MiB. The same on all ranks */
  int32_t may_share;      /* not 0: several ranks may use one GPU, to try programs */
  /* Another process has ended without cgp_communicator_free; called on another thread. NULL: a line on stderr, and this process
   * ends with code 70, since its kernels may wait for the lost rank. */
  void (*on_lost)(void* user, int32_t rank);
  void* user; /* of on_lost */
} cgp_communicator_options;

/* Called by all processes; 1 to 16 of them. all_gather is called four times, within this call. */
CGP_API cgp_status cgp_communicator_new(cgp_device* device, int32_t rank, int32_t size,
                                        cgp_all_gather_bytes all_gather, void* user,
                                        const cgp_communicator_options* options, cgp_communicator** out);
CGP_API void cgp_communicator_free(cgp_communicator* all);

/* ---- collectives: sums of f32, f16 or bf16 are in f32 in the order of the ranks, other data is of any type */
/* y = the sum of x; y may be x. */
CGP_API cgp_status cgp_all_reduce(cgp_stream* s, const cgp_communicator* all, const cgp_tensor* x,
                                  const cgp_tensor* y);
/* y = x of rank 0, x of rank 1, ... */
CGP_API cgp_status cgp_all_gather(cgp_stream* s, const cgp_communicator* all, const cgp_tensor* x,
                                  const cgp_tensor* y);
/* y = the sum of part `rank` of x, which has a part for each rank. */
CGP_API cgp_status cgp_reduce_scatter(cgp_stream* s, const cgp_communicator* all, const cgp_tensor* x,
                                      const cgp_tensor* y);
/* x of all ranks becomes x of `root`. */
CGP_API cgp_status cgp_broadcast(cgp_stream* s, const cgp_communicator* all, int32_t root,
                                 const cgp_tensor* x);
/* part r of y = part `rank` of x of rank r. */
CGP_API cgp_status cgp_all_to_all(cgp_stream* s, const cgp_communicator* all, const cgp_tensor* x,
                                  const cgp_tensor* y);
/* What comes behind it on the stream runs once all ranks have come to it. */
CGP_API cgp_status cgp_barrier(cgp_stream* s, const cgp_communicator* all);

/* ---- products of tensor-parallel layers with a weight [n, k], f16 or bf16, addresses at multiples of 16 bytes */
/* y [m, n] = (x [m / ranks, k] of all ranks, one under the other) weight'. sm_90a; n and k multiples of 8. */
CGP_API cgp_status cgp_all_gather_gemm(cgp_stream* s, const cgp_communicator* all, const cgp_tensor* x,
                                       const cgp_tensor* weight, const cgp_tensor* y);
/* y [m / ranks, n] = this rank's rows of the sum over the ranks of x [m, k] weight'. sm_90a; n and k multiples of 8. */
CGP_API cgp_status cgp_gemm_reduce_scatter(cgp_stream* s, const cgp_communicator* all, const cgp_tensor* x,
                                           const cgp_tensor* weight, const cgp_tensor* y);
/* y [m, n] = the sum over the ranks of x [m, k] weight', on all ranks. */
CGP_API cgp_status cgp_gemm_all_reduce(cgp_stream* s, const cgp_communicator* all, const cgp_tensor* x,
                                       const cgp_tensor* weight, const cgp_tensor* y);

#ifdef __cplusplus
}
#endif
#endif
