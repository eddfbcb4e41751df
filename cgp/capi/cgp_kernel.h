/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CGP_CAPI_CGP_KERNEL_H
#define CGP_CAPI_CGP_KERNEL_H
/* A part of cgp.h: kernels of your own. */
#include "cgp/capi/cgp_base.h"

#ifdef __cplusplus
extern "C" {
#endif

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
