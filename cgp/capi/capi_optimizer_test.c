/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of optimizers and adapters through the C interface; part of the program of capi_kernel_test.c. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cgp/capi/cgp.h"

int optimizer_failures(cgp_device* device, cgp_stream* stream);

enum { N = 5, M = 3 };
static int failures;
static void expect(int ok, const char* what) {
  if (ok) return;
  ++failures;
  fprintf(stderr, "capi_optimizer_test.c: not so: %s (%s)\n", what, cgp_last_error());
}
static cgp_device* gpu;
static cgp_tensor put(int32_t dtype, uint64_t size, uint64_t count, const void* host) {
  cgp_tensor t;
  memset(&t, 0, sizeof t);
  t.dtype = dtype, t.rank = 1, t.shape[0] = (int64_t)count, t.stride[0] = 1;
  expect(!cgp_alloc(gpu, count * size, &t.address) && !cgp_upload(gpu, t.address, host, count * size),
         "memory");
  return t;
}

static cgp_tensor matrix(int64_t rows, int64_t cols, const float* host) {
  cgp_tensor t = put(CGP_F32, 4, (uint64_t)(rows * cols), host);
  t.rank = 2, t.shape[0] = rows, t.shape[1] = cols, t.stride[0] = cols, t.stride[1] = 1;
  return t;
}
/* A layer of two inputs and three outputs with an adapter of rank one. */
static void expect_adapter(cgp_stream* stream) {
  const float x[2] = {1, 2}, w[6] = {1, 0, 0, 1, 1, 1}, a[2] = {3, 1}, b[3] = {1, 0, 2};
  float y[3] = {0, 0, 0}, t[1] = {0};
  const cgp_tensor of_x = matrix(1, 2, x), of_w = matrix(3, 2, w), of_a = matrix(1, 2, a),
                   of_b = matrix(3, 1, b);
  const cgp_tensor of_t = matrix(1, 1, t), of_y = matrix(1, 3, y);
  expect(!cgp_lora_linear(stream, &of_x, &of_w, &of_a, &of_b, 0.5f, 1, &of_t, &of_y) &&
             !cgp_stream_wait(stream) && !cgp_download(gpu, y, of_y.address, sizeof y) &&
             !cgp_download(gpu, t, of_t.address, sizeof t),
         "an adapter");
  expect(t[0] == 2.5f && y[0] == 3.5f && y[1] == 2.0f && y[2] == 8.0f, "x w' + t b'");
  expect(cgp_lora_linear(stream, &of_x, &of_w, &of_a, &of_b, 0.5f, 0, &of_t, &of_y) == CGP_INVALID_ARGUMENT &&
             strstr(cgp_last_error(), "weight"),
         "shapes are checked");
  const cgp_tensor all[] = {of_x, of_w, of_a, of_b, of_t, of_y};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) cgp_free(gpu, all[i].address);
}

/* Two steps of SGD on two tensors, the second one's gradients clipped to half. */
int optimizer_failures(cgp_device* device, cgp_stream* stream) {
  gpu = device;
  expect_adapter(stream);
  float w[N + M], g[N + M], m[N + M], step[2] = {0, 0};
  for (int i = 0; i < N + M; ++i) w[i] = 1.0f, g[i] = 2.0f, m[i] = 0.0f;
  const cgp_tensor weight = put(CGP_F32, 4, N + M, w), gradient = put(CGP_F32, 4, N + M, g);
  const cgp_tensor first = put(CGP_F32, 4, N + M, m), steps = put(CGP_F32, 4, 2, step);
  cgp_optimizer_row rows[2];
  memset(rows, 0, sizeof rows);
  for (uint32_t i = 0; i < 2; ++i) {
    const uint64_t at = i ? 4 * N : 0;
    rows[i].weight = weight.address + at, rows[i].gradient = gradient.address + at,
    rows[i].first = first.address + at;
    rows[i].step = steps.address + 4 * i, rows[i].elements = i ? M : N, rows[i].group = i, rows[i].tensor = i;
  }
  const cgp_optimizer_group groups_host[2] = {{0.5, 0.5, 0, 0, 0, 0}, {0.25, 0.5, 0, 0, 0, 1}};
  cgp_optimizer_counts counts;
  memset(&counts, 0, sizeof counts);
  counts.scale = 1.0f;
  const uint64_t lengths[2] = {N, M};
  uint32_t chunks_host[4];
  uint64_t chunk_count = 0;
  expect(!cgp_optimizer_chunks(lengths, 2, NULL, &chunk_count) && chunk_count == 2, "two chunks");
  expect(!cgp_optimizer_chunks(lengths, 2, chunks_host, &chunk_count), "chunks");
  float partial_host[2] = {0, 0}, rates_host[24];
  memset(rates_host, 0, sizeof rates_host);
  const cgp_tensor table = put(CGP_U64, 8, 16, rows), chunks = put(CGP_U32, 4, 4, chunks_host);
  const cgp_tensor groups = put(CGP_F64, 8, 12, groups_host), control = put(CGP_U32, 4, 8, &counts);
  const cgp_tensor rates = put(CGP_F32, 4, 24, rates_host), partial = put(CGP_F32, 4, 2, partial_host);
  cgp_optimizer_options o;
  memset(&o, 0, sizeof o);
  o.size = sizeof o, o.rule = CGP_SGD;
  cgp_optimizer_types types;
  memset(&types, 0, sizeof types);
  types.size = sizeof types, types.rule = CGP_SGD, types.weight = types.gradient = CGP_F32;
  for (int t = 0; t < 2; ++t) {
    o.max_norm = t ? sqrtf(4.0f * (N + M)) / 2 : 0;
    expect(!cgp_optimizer_norm(stream, CGP_F32, &table, &chunks, &partial), "norm");
    expect(!cgp_optimizer_control(stream, &o, &table, &groups, &control, &rates, &partial), "control");
    expect(!cgp_optimizer_update(stream, &types, &table, &chunks, &rates, &control), "update");
  }
  expect(!cgp_stream_wait(stream) && !cgp_download(device, w, weight.address, sizeof w) &&
             !cgp_download(device, step, steps.address, sizeof step) &&
             !cgp_download(device, &counts, control.address, sizeof counts),
         "download");
  expect(counts.taken == 2 && fabsf(counts.norm - sqrtf(4.0f * (N + M))) < 1e-4f &&
             fabsf(counts.factor - 0.5f) < 1e-5f,
         "counts");
  expect(step[0] == 2 && step[1] == 2, "steps");
  /* m = 2, then 0.5 * 2 + 1 = 2: w = 1 - 2 * 0.5 * 2; the other group goes up by 2 * 0.25 * 2 */
  expect(fabsf(w[0] + 1) < 1e-4f && fabsf(w[N] - 2) < 1e-4f, "weights");
  expect(!cgp_optimizer_clip(stream, CGP_F32, &table, &chunks, &control) && !cgp_stream_wait(stream) &&
             !cgp_download(device, g, gradient.address, sizeof g) && fabsf(g[N + M - 1] - 1) < 1e-4f,
         "clipped");
  types.rule = 9;
  expect(cgp_optimizer_update(stream, &types, &table, &chunks, &rates, &control) == CGP_INVALID_ARGUMENT &&
             strstr(cgp_last_error(), "rule = 9"),
         "rules are checked");
  types.rule = CGP_SGD, types.stochastic = 1;
  expect(cgp_optimizer_update(stream, &types, &table, &chunks, &rates, &control) == CGP_UNSUPPORTED,
         "bf16 alone");
  expect(cgp_optimizer_norm(stream, CGP_U8, &table, &chunks, &partial) == CGP_INVALID_ARGUMENT,
         "types are checked");
  expect(cgp_optimizer_control(stream, NULL, &table, &groups, &control, &rates, NULL) == CGP_INVALID_ARGUMENT,
         "options");
  const cgp_tensor all[] = {weight, gradient, first, steps, table, chunks, groups, control, rates, partial};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) cgp_free(device, all[i].address);
  return failures;
}
