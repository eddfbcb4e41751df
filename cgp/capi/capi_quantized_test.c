/* SPDX-License-Identifier: Apache-2.0 */
/* Quantised weights through the C interface, on the emulator (or the device named by the first argument). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cgp/capi/cgp.h"

static int failures = 0;
#define CHECK(ok)                                                      \
  do {                                                                 \
    if (!(ok)) {                                                       \
      ++failures;                                                      \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #ok); \
    }                                                                  \
  } while (0)
/* The call ends with `code`; the message of one that fails has `text`. */
#define EXPECT(code, call, text)                                                                        \
  do {                                                                                                  \
    const cgp_status status_ = (call);                                                                  \
    if (status_ != (code) || (status_ != CGP_OK && !strstr(cgp_last_error(), text))) {                  \
      ++failures;                                                                                       \
      fprintf(stderr, "%s:%d: %s: %d: \"%s\"\n", __FILE__, __LINE__, #call, status_, cgp_last_error()); \
    }                                                                                                   \
  } while (0)
#define OK(call) EXPECT(CGP_OK, call, "")
#define BAD(call, text) EXPECT(CGP_INVALID_ARGUMENT, call, text)

enum { ROWS = 24, COLS = 256, M = 5 };
static cgp_device* device;
static cgp_stream* stream;

/* A dense array on the device, a copy of `host` where that is given. */
static cgp_tensor put(int32_t dtype, size_t element, int64_t rows, int64_t cols, const void* host) {
  cgp_tensor t;
  memset(&t, 0, sizeof t);
  t.dtype = dtype, t.rank = 2;
  t.shape[0] = rows, t.shape[1] = cols, t.stride[0] = cols, t.stride[1] = 1;
  const uint64_t bytes = (uint64_t)rows * (uint64_t)cols * element;
  OK(cgp_alloc(device, bytes, &t.address));
  void* zeros = calloc(bytes + 1, 1);
  OK(cgp_upload(device, t.address, host ? host : zeros, bytes));
  free(zeros);
  return t;
}
static void get(const cgp_tensor* t, void* host, size_t bytes) {
  OK(cgp_stream_wait(stream));
  OK(cgp_download(device, host, t->address, bytes));
}
static void values_of(float* v, size_t n, unsigned seed) {
  for (size_t i = 0; i < n; ++i) {
    seed = seed * 1664525u + 1013904223u;
    v[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
  }
}
/* y = x w' of f32 on the device against loops over decoded weights; with `transposed` y = x w. Five rows: up to four need no workspace. */
static void check_product(cgp_quantized_weight* w, const float* decoded, int transposed) {
  const int64_t k = transposed ? ROWS : COLS, n = transposed ? COLS : ROWS;
  float x[M * COLS], y[M * COLS];
  values_of(x, (size_t)(M * k), 7);
  cgp_tensor tx = put(CGP_F32, 4, M, k, x), ty = put(CGP_F32, 4, M, n, NULL);
  uint64_t bytes = 0;
  OK(cgp_quantized_matmul_workspace(stream, &tx, w, transposed, NULL, &ty, &bytes));
  CHECK(bytes == (uint64_t)(n * k) * 4);
  BAD(cgp_quantized_matmul(stream, &tx, w, transposed, NULL, NULL, &ty), "workspace must be given");
  cgp_tensor room = put(CGP_U8, 1, 1, (int64_t)bytes, NULL);
  OK(cgp_quantized_matmul(stream, &tx, w, transposed, &room, NULL, &ty));
  get(&ty, y, sizeof(float) * (size_t)(M * n));
  for (int64_t i = 0; i < M; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t e = 0; e < k; ++e)
        sum += (double)x[i * k + e] * (double)decoded[transposed ? e * COLS + j : j * COLS + e];
      CHECK(fabs(y[i * n + j] - sum) < 1e-4);
    }
  cgp_free(device, tx.address), cgp_free(device, ty.address), cgp_free(device, room.address);
}

/* The rows of the weight as three experts, the second without rows of x, and a row behind the last end. */
static void check_experts(cgp_quantized_weight* w, const float* decoded) {
  enum { EACH = ROWS / 3 };
  const int32_t ends_of[3] = {2, 2, 4};
  float x[M * COLS], y[M * EACH], before[M * EACH];
  uint64_t bytes = 0;
  values_of(x, M * COLS, 7), values_of(before, M * EACH, 8);
  cgp_tensor tx = put(CGP_F32, 4, M, COLS, x), ty = put(CGP_F32, 4, M, EACH, before),
             ends = put(CGP_S32, 4, 1, 3, ends_of), two = ends;
  ends.rank = 1, ends.shape[0] = 3, ends.stride[0] = 1;
  two.rank = 1, two.shape[0] = 5, two.stride[0] = 1;
  OK(cgp_quantized_grouped_matmul_workspace(stream, &tx, w, &ends, &ty, &bytes));
  CHECK(bytes == ROWS * COLS * 4);
  BAD(cgp_quantized_grouped_matmul(stream, &tx, w, &ends, NULL, &ty), "workspace must be given");
  BAD(cgp_quantized_grouped_matmul(stream, &tx, w, &two, NULL, &ty), "must divide the 24 rows");
  cgp_tensor room = put(CGP_U8, 1, 1, (int64_t)bytes, NULL);
  OK(cgp_quantized_grouped_matmul(stream, &tx, w, &ends, &room, &ty));
  get(&ty, y, sizeof y);
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < EACH; ++j) {
      const int row = (i < 2 ? 0 : 2) * EACH + j;
      double sum = i < 4 ? 0 : before[i * EACH + j];
      for (int e = 0; i < 4 && e < COLS; ++e)
        sum += (double)x[i * COLS + e] * (double)decoded[row * COLS + e];
      CHECK(fabs(y[i * EACH + j] - sum) < 1e-4);
    }
  cgp_free(device, tx.address), cgp_free(device, ty.address), cgp_free(device, room.address);
  cgp_free(device, ends.address);
}

/* One row of ones in bf16: no workspace where the product of packed weights is there. */
static void check_packed(cgp_quantized_weight* w, const float* decoded) {
  uint16_t half_x[COLS], half_y[ROWS];
  uint64_t bytes = 0;
  cgp_device_info on;
  on.size = sizeof on;
  OK(cgp_device_get_info(device, &on));
  for (int i = 0; i < COLS; ++i) half_x[i] = 0x3f80; /* 1 */
  cgp_tensor tx = put(CGP_BF16, 2, 1, COLS, half_x), ty = put(CGP_BF16, 2, 1, ROWS, NULL);
  OK(cgp_quantized_matmul_workspace(stream, &tx, w, 0, NULL, &ty, &bytes));
  CHECK(bytes == 0 || on.compute_capability != 90);
  if (!bytes) {
    OK(cgp_quantized_matmul(stream, &tx, w, 0, NULL, NULL, &ty));
    get(&ty, half_y, sizeof half_y);
    for (int j = 0; j < ROWS; ++j) {
      const uint32_t bits = (uint32_t)half_y[j] << 16;
      float y;
      double sum = 0;
      memcpy(&y, &bits, 4);
      for (int e = 0; e < COLS; ++e) sum += (double)decoded[j * COLS + e];
      CHECK(fabs((double)y - sum) < 0.01 * fabs(sum) + 0.01);
    }
  }
  BAD(cgp_quantized_matmul(stream, &tx, w, 1, NULL, NULL, &ty), "its last dimension must be 24");
  cgp_free(device, tx.address), cgp_free(device, ty.address);
}
/* The weight in host memory, packed there, beside the one on the device. */
static void check_packed_int4(const cgp_tensor* t_codes, cgp_quantized_options o, const uint32_t* codes,
                              const uint32_t* zeros, const uint16_t* scales, const float* decoded) {
  static unsigned char packed[65536];
  uint64_t bytes = 1;
  cgp_quantized_weight *host = NULL, *w = NULL;
  cgp_tensor h_codes = *t_codes, h_zeros = *o.zeros, h_scales = *o.scales;
  h_codes.address = (uint64_t)(uintptr_t)codes, h_zeros.address = (uint64_t)(uintptr_t)zeros;
  h_scales.address = (uint64_t)(uintptr_t)scales;
  cgp_quantized_options on_host = o;
  on_host.zeros = &h_zeros, on_host.scales = &h_scales;
  OK(cgp_quantized_weight_new("gptq", ROWS, COLS, &h_codes, &on_host, &host));
  OK(cgp_quantized_weight_pack(host, NULL, &bytes));
  CHECK(bytes > ROWS * COLS / 2 && bytes <= sizeof packed);
  --bytes;
  BAD(cgp_quantized_weight_pack(host, packed, &bytes), "packed weights have");
  ++bytes;
  OK(cgp_quantized_weight_pack(host, packed, &bytes));
  cgp_quantized_weight_free(host);
  cgp_tensor t = put(CGP_U8, 1, 1, (int64_t)bytes, packed);
  o.packed = &t;
  OK(cgp_quantized_weight_new("gptq", ROWS, COLS, t_codes, &o, &w));
  check_packed(w, decoded);
  static unsigned char again[65536];
  cgp_tensor room = put(CGP_U8, 1, 1, (int64_t)bytes, NULL), less = room;
  less.shape[1] = less.stride[0] = (int64_t)bytes - 1;
  BAD(cgp_quantized_weight_pack_on(stream, w, &less), "packed must hold");
  OK(cgp_quantized_weight_pack_on(stream, w, &room));
  get(&room, again, bytes);
  CHECK(!memcmp(again, packed, bytes));
  cgp_quantized_weight_free(w), cgp_free(device, t.address), cgp_free(device, room.address);
}

static void test_loaded(void) {
  static float values[ROWS * COLS], decoded[ROWS * COLS], out[ROWS * COLS];
  static unsigned char blocks[ROWS * COLS];
  uint64_t bytes = 0;
  cgp_quantized_weight* w = NULL;
  values_of(values, ROWS * COLS, 1);
  OK(cgp_quantized_bytes("q4_k", ROWS * COLS, &bytes));
  CHECK(bytes == ROWS * 144);
  OK(cgp_quantize("q4_k", values, ROWS * COLS, blocks, bytes));
  OK(cgp_quantized_check("q4_k", blocks, bytes));
  OK(cgp_quantized_decode("q4_k", blocks, bytes, decoded, ROWS * COLS));
  BAD(cgp_quantize("q4k", values, ROWS * COLS, blocks, bytes), "q4_k");
  BAD(cgp_quantized_weight_load(device, "q4_k", ROWS, COLS, blocks, bytes - 1, 1, &w),
      "must have 3456 bytes");
  BAD(cgp_quantized_weight_load(device, "q4_k", ROWS, 250, blocks, bytes, 1, &w), "multiple of 256");
  BAD(cgp_quantized_weight_load(device, "gptq", ROWS, COLS, blocks, bytes, 1, &w),
      "cgp_quantized_weight_new");
  const unsigned char d = blocks[145];
  blocks[145] = 0x7e;
  BAD(cgp_quantized_weight_load(device, "q4_k", ROWS, COLS, blocks, bytes, 1, &w), "block 1");
  CHECK(w == NULL);
  blocks[145] = d;
  OK(cgp_quantized_weight_load(device, "q4_k", ROWS, COLS, blocks, bytes, 1, &w));
  cgp_quantized_info info;
  info.size = sizeof info;
  OK(cgp_quantized_weight_get_info(w, &info));
  CHECK(info.rows == ROWS && info.cols == COLS && info.stored_bytes == bytes && !strcmp(info.format, "q4_k"));
  cgp_device_info on;
  on.size = sizeof on;
  OK(cgp_device_get_info(device, &on));
  CHECK((info.packed_bytes > 0) == (on.compute_capability == 90));

  cgp_tensor t = put(CGP_F32, 4, ROWS, COLS, NULL);
  OK(cgp_dequantize(stream, w, 0, NULL, &t));
  get(&t, out, sizeof out);
  CHECK(!memcmp(out, decoded, sizeof out));
  t.shape[0] = 5;
  OK(cgp_dequantize(stream, w, 19, NULL, &t));
  get(&t, out, sizeof out);
  CHECK(!memcmp(out, decoded + 19 * COLS, 5 * COLS * sizeof *out));
  BAD(cgp_dequantize(stream, w, 20, NULL, &t), "rows must be rows of the weight");
  check_product(w, decoded, 0), check_product(w, decoded, 1);
  check_experts(w, decoded);
  check_packed(w, decoded);
  cgp_free(device, t.address);
  cgp_quantized_weight_free(w), cgp_quantized_weight_free(NULL);
}

static void test_tensors(void) {
  static uint32_t codes[COLS / 8 * ROWS], zeros[2 * ROWS / 8];
  static uint16_t scales[2 * ROWS];
  static float decoded[ROWS * COLS], out[ROWS * COLS];
  const int group = 128;
  unsigned seed = 3;
  for (int i = 0; i < COLS / 8 * ROWS; ++i) codes[i] = seed = seed * 1664525u + 1013904223u;
  for (int i = 0; i < 2 * ROWS / 8; ++i) zeros[i] = seed = seed * 1664525u + 1013904223u;
  for (int i = 0; i < 2 * ROWS; ++i) scales[i] = i % 2 ? 0x3800 : 0x3c00; /* 0.5, 1 */
  for (int r = 0; r < ROWS; ++r)
    for (int c = 0; c < COLS; ++c) {
      const int g = c / group, q = (int)(codes[c / 8 * ROWS + r] >> 4 * (c % 8) & 15);
      const int zero = (int)(zeros[(g * ROWS + r) / 8] >> 4 * (r % 8) & 15) + 1;
      decoded[r * COLS + c] = ((g * ROWS + r) % 2 ? 0.5f : 1.0f) * (float)(q - zero);
    }
  cgp_tensor t_codes = put(CGP_S32, 4, COLS / 8, ROWS, codes), t_zeros = put(CGP_S32, 4, 2, ROWS / 8, zeros),
             t_scales = put(CGP_F16, 2, 2, ROWS, scales), error_flag = put(CGP_S32, 4, 1, 1, NULL);
  cgp_quantized_options o;
  memset(&o, 0, sizeof o);
  o.size = sizeof o, o.scales = &t_scales, o.zeros = &t_zeros, o.group = (uint64_t)group,
  o.zeros_minus_one = 1;
  cgp_quantized_weight* w = NULL;
  OK(cgp_quantized_weight_new("gptq", ROWS, COLS, &t_codes, &o, &w));
  cgp_tensor t = put(CGP_F32, 4, ROWS, COLS, NULL);
  OK(cgp_dequantize(stream, w, 0, &error_flag, &t));
  get(&t, out, sizeof out);
  CHECK(!memcmp(out, decoded, sizeof out));
  check_product(w, decoded, 0), check_product(w, decoded, 1);
  int32_t flag = 0;
  get(&error_flag, &flag, sizeof flag);
  CHECK(flag == 0);
  cgp_quantized_weight_free(w), w = NULL;
  check_packed_int4(&t_codes, o, codes, zeros, scales, decoded);
  OK(cgp_quantized_weight_new("gptq", ROWS, COLS, &t_codes, &o, &w));
  scales[5] = 0x7e00;
  OK(cgp_upload(device, t_scales.address, scales, sizeof scales));
  OK(cgp_dequantize(stream, w, 0, &error_flag, &t));
  get(&error_flag, &flag, sizeof flag);
  CHECK(flag == 1);
  cgp_quantized_weight_free(w), w = NULL;
  o.group = 96;
  BAD(cgp_quantized_weight_new("gptq", ROWS, COLS, &t_codes, &o, &w), "cols must be a multiple of 96");
  o.group = (uint64_t)group, o.zeros = NULL;
  BAD(cgp_quantized_weight_new("gptq", ROWS, COLS, &t_codes, &o, &w), "zeros must be given");
  BAD(cgp_quantized_weight_new("marlin", ROWS, COLS, &t_codes, &o, &w), "there is no weight format marlin");
  CHECK(w == NULL);
  uint64_t bytes = 1;
  EXPECT(CGP_UNSUPPORTED, cgp_quantized_packed_bytes("iq2_s", ROWS, COLS, &bytes), "iq2_s");
  CHECK(bytes == 0);
  OK(cgp_quantized_packed_bytes("q8_0", ROWS, COLS, &bytes));
  CHECK(bytes >= ROWS * COLS);
  const cgp_tensor* all[] = {&t_codes, &t_zeros, &t_scales, &error_flag, &t};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) cgp_free(device, all[i]->address);
}

static size_t append(unsigned char* to, size_t at, const void* from, size_t n) {
  memcpy(to + at, from, n);
  return at + n;
}
static void test_gguf(const char* path) {
  /* GGUF 3: magic, version, tensors, keys; one tensor: name, rank, shape, type, offset. */
  unsigned char file[512] = {0};
  size_t n = append(file, 0, "GGUF", 4);
  const uint32_t version = 3, rank = 2, type = 8 /* Q8_0 */;
  const uint64_t tensors = 1, keys = 0, length = 6, shape[2] = {32, 3}, offset = 0;
  n = append(file, n, &version, 4), n = append(file, n, &tensors, 8), n = append(file, n, &keys, 8);
  n = append(file, n, &length, 8), n = append(file, n, "weight", 6), n = append(file, n, &rank, 4);
  n = append(file, n, shape, 16), n = append(file, n, &type, 4), n = append(file, n, &offset, 8);
  n = (n + 31) / 32 * 32;
  for (size_t i = 0; i < 3 * 34; ++i) file[n + i] = (unsigned char)i;
  FILE* f = fopen(path, "wb");
  CHECK(f && fwrite(file, 1, n + 3 * 34, f) == n + 3 * 34);
  if (!f || fclose(f)) return;
  cgp_gguf* g = NULL;
  OK(cgp_gguf_open(path, &g));
  uint64_t count = 0;
  OK(cgp_gguf_count(g, &count));
  CHECK(count == 1);
  cgp_gguf_tensor t;
  t.size = sizeof t;
  OK(cgp_gguf_at(g, 0, &t));
  CHECK(t.name_length == 6 && !memcmp(t.name, "weight", 6) && !strcmp(t.format, "q8_0") && t.rank == 2);
  CHECK(t.shape[0] == 3 && t.shape[1] == 32 && t.bytes == 3 * 34 && !memcmp(t.data, file + n, 3 * 34));
  BAD(cgp_gguf_at(g, 1, &t), "1 tensors");
  BAD(cgp_gguf_find(g, "wieght", &t), "weight");
  cgp_gguf_free(g), remove(path);
  BAD(cgp_gguf_open(path, &g), path);
}

int main(int argc, char** argv) {
  OK(cgp_device_open(argc > 1 ? argv[1] : "emu:sm_90a", &device));
  if (!device) return 1;
  OK(cgp_stream_new(device, &stream));
  test_loaded();
  test_tensors();
  test_gguf("capi_quantized_test.gguf");
  cgp_stream_free(stream);
  cgp_device_free(device);
  if (!failures) printf("all right\n");
  return failures != 0;
}
