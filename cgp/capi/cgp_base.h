/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CGP_CAPI_CGP_BASE_H
#define CGP_CAPI_CGP_BASE_H
/* What every part of cgp.h has: status codes, types, devices, their memory, streams. */

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

#ifdef __cplusplus
}
#endif
#endif
