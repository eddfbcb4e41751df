/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CGP_CAPI_CGP_QUANTIZED_H
#define CGP_CAPI_CGP_QUANTIZED_H
/* A part of cgp.h: quantised weights. */
#include "cgp/capi/cgp_base.h"

#ifdef __cplusplus
extern "C" {
#endif

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
  const cgp_tensor* packed; /* optional: what cgp_quantized_weight_pack() made, for sm_80 and later */
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
/* Experts of a mixture in one launch: y[r, :] = x[r, :] w_g' for the rows r from ends[g - 1] to ends[g] of x [rows, cols], y [rows, n].
 * The weight [groups * n, cols] has one expert behind the other; ends (s32, u32, s64 or u64 [groups], rising) lie on the device. Rows behind
 * the last end are not written. x and y: contiguous, of one type. workspace as above. */
CGP_API cgp_status cgp_quantized_grouped_matmul_workspace(cgp_stream* s, const cgp_tensor* x,
                                                          cgp_quantized_weight* weight,
                                                          const cgp_tensor* ends, const cgp_tensor* y,
                                                          uint64_t* bytes);
CGP_API cgp_status cgp_quantized_grouped_matmul(cgp_stream* s, const cgp_tensor* x,
                                                cgp_quantized_weight* weight, const cgp_tensor* ends,
                                                const cgp_tensor* workspace, const cgp_tensor* y);
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
/* The same of a weight whose tensors lie in host memory (cgp_quantized_weight_new with such addresses): those formats, nf4, mxfp4 and
 * iq4_nl, gptq (of g_idx: as many inputs in each group) and awq with groups of 32, 64 or 128 inputs, bnb_nf4 with blocks of 64 in rows of whole blocks. Without
 * `packed` *bytes becomes the size, 0 for other weights; with it *bytes is that size. Sizes and, of separate tensors, scales are checked. */
CGP_API cgp_status cgp_quantized_weight_pack(cgp_quantized_weight* host, void* packed, uint64_t* bytes);
/* The same bytes from a weight on the device, by a kernel: packed u8, of those bytes, at a multiple of 16. CGP_UNSUPPORTED for a weight with
 * g_idx and for absmax of u8, which the host packs. */
CGP_API cgp_status cgp_quantized_weight_pack_on(cgp_stream* s, cgp_quantized_weight* weight,
                                                const cgp_tensor* packed);

#ifdef __cplusplus
}
#endif
#endif
