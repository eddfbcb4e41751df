/* SPDX-License-Identifier: Apache-2.0 */
/* The C interface from C: results on the emulator (or the device named by the first argument) against loops
 * here, and what is said about mistakes. */
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
#define OK(call)                                                                                    \
  do {                                                                                              \
    cgp_status status_ = (call);                                                                    \
    if (status_ != CGP_OK) {                                                                        \
      ++failures;                                                                                   \
      fprintf(stderr, "%s:%d: %s: %d: %s\n", __FILE__, __LINE__, #call, status_, cgp_last_error()); \
    }                                                                                               \
  } while (0)
/* The call fails with `code`, and the message names all of a and b. */
#define FAILS(code, call, a, b)                                                                         \
  do {                                                                                                  \
    cgp_status status_ = (call);                                                                        \
    if (status_ != (code) || !strstr(cgp_last_error(), a) || !strstr(cgp_last_error(), b)) {            \
      ++failures;                                                                                       \
      fprintf(stderr, "%s:%d: %s: %d: \"%s\"\n", __FILE__, __LINE__, #call, status_, cgp_last_error()); \
    }                                                                                                   \
  } while (0)

static cgp_device* device;
static cgp_stream* stream;
static uint32_t state = 12345;
static float random_float(void) {
  state = state * 1664525u + 1013904223u;
  return (float)(state >> 8) / 8388608.0f - 1.0f;
}

/* A dense f32 array on the device with its values. */
typedef struct {
  cgp_tensor t;
  float* host;
  size_t count;
} array;
static array make(int rank, const int64_t* shape, int random) {
  array a;
  memset(&a, 0, sizeof a);
  a.t.dtype = CGP_F32, a.t.rank = rank;
  a.count = 1;
  for (int i = rank - 1; i >= 0; --i) {
    a.t.shape[i] = shape[i];
    a.t.stride[i] = (int64_t)a.count;
    a.count *= (size_t)shape[i];
  }
  a.host = malloc((a.count + 1) * sizeof(float));
  for (size_t i = 0; i < a.count; ++i) a.host[i] = random ? random_float() : NAN;
  OK(cgp_alloc(device, a.count * sizeof(float), &a.t.address));
  OK(cgp_upload(device, a.t.address, a.host, a.count * sizeof(float)));
  return a;
}
static void fetch(array* a) {
  OK(cgp_stream_wait(stream));
  OK(cgp_download(device, a->host, a->t.address, a->count * sizeof(float)));
}
static void drop(array* a) {
  cgp_free(device, a->t.address);
  free(a->host);
}

static void test_gemm(void) {
  const int64_t m = 37, n = 29, k = 53, batch = 2;
  array a = make(3, (int64_t[]){batch, m, k}, 1), b = make(2, (int64_t[]){n, k}, 1);
  array c = make(3, (int64_t[]){batch, m, n}, 0), bias = make(1, (int64_t[]){n}, 1);
  /* b as its transpose: [k, n] with the first dimension contiguous, the same for the whole batch */
  cgp_tensor bt = b.t;
  bt.shape[0] = k, bt.shape[1] = n, bt.stride[0] = 1, bt.stride[1] = k;
  cgp_gemm_options o;
  memset(&o, 0, sizeof o);
  o.size = sizeof o, o.alpha = 0.5f, o.bias = &bias.t, o.activation = CGP_ACT_RELU;
  OK(cgp_gemm(stream, &a.t, &bt, &o, &c.t));
  fetch(&c);
  for (int64_t i = 0; i < batch * m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < k; ++l) sum += (double)a.host[i * k + l] * b.host[j * k + l];
      const double want = fmax(0.5 * sum + bias.host[j], 0);
      CHECK(fabs(c.host[i * n + j] - want) < 1e-4);
    }
  /* without options: alpha 1, beta 0 */
  OK(cgp_gemm(stream, &a.t, &bt, NULL, &c.t));
  fetch(&c);
  double first = 0;
  for (int64_t l = 0; l < k; ++l) first += (double)a.host[l] * b.host[l];
  CHECK(fabs(c.host[0] - first) < 1e-4);

  cgp_tensor wrong = b.t; /* [n, k] is not [k, n] */
  FAILS(CGP_INVALID_ARGUMENT, cgp_gemm(stream, &a.t, &wrong, NULL, &c.t), "gemm: b", "53 rows");
  FAILS(CGP_INVALID_ARGUMENT, cgp_gemm(stream, &a.t, &bt, NULL, NULL), "gemm: c is NULL", "");
  FAILS(CGP_INVALID_ARGUMENT, cgp_gemm(NULL, &a.t, &bt, NULL, &c.t), "s is NULL", "");
  cgp_tensor sparse = a.t;
  sparse.stride[2] = 2;
  FAILS(CGP_INVALID_ARGUMENT, cgp_gemm(stream, &sparse, &bt, NULL, &c.t), "gemm: a", "contiguous");
  o.size = 3;
  FAILS(CGP_INVALID_ARGUMENT, cgp_gemm(stream, &a.t, &bt, &o, &c.t), "options of gemm", "size = 3");
  o.size = sizeof o, o.activation = 77;
  FAILS(CGP_INVALID_ARGUMENT, cgp_gemm(stream, &a.t, &bt, &o, &c.t), "activation 77", "");
  /* A structure of a newer library: fine while what is new is 0. */
  struct {
    cgp_gemm_options o;
    uint64_t more;
  } newer;
  memset(&newer, 0, sizeof newer);
  newer.o.size = sizeof newer, newer.o.alpha = 1;
  OK(cgp_gemm(stream, &a.t, &bt, &newer.o, &c.t));
  newer.more = 1;
  FAILS(CGP_INVALID_ARGUMENT, cgp_gemm(stream, &a.t, &bt, &newer.o, &c.t), "options of gemm", "size");
  drop(&a), drop(&b), drop(&c), drop(&bias);
}

static void test_rows(void) {
  array x = make(3, (int64_t[]){3, 5, 33}, 1), y = make(3, (int64_t[]){3, 5, 33}, 0);
  OK(cgp_softmax(stream, &x.t, &y.t));
  fetch(&y);
  for (int r = 0; r < 15; ++r) {
    double sum = 0;
    for (int i = 0; i < 33; ++i) sum += exp((double)x.host[r * 33 + i]);
    for (int i = 0; i < 33; ++i)
      CHECK(fabs(y.host[r * 33 + i] - exp((double)x.host[r * 33 + i]) / sum) < 1e-6);
  }
  array z = make(3, (int64_t[]){3, 33, 5}, 0);
  OK(cgp_transpose(stream, &x.t, &z.t));
  fetch(&z);
  for (int b = 0; b < 3; ++b)
    for (int i = 0; i < 5; ++i)
      for (int j = 0; j < 33; ++j) CHECK(z.host[(b * 33 + j) * 5 + i] == x.host[(b * 5 + i) * 33 + j]);
  array s = make(2, (int64_t[]){3, 33}, 0);
  OK(cgp_reduce(stream, 1, -2, &x.t, &s.t));
  fetch(&s);
  for (int b = 0; b < 3; ++b)
    for (int j = 0; j < 33; ++j) {
      float most = -INFINITY;
      for (int i = 0; i < 5; ++i) most = fmaxf(most, x.host[(b * 5 + i) * 33 + j]);
      CHECK(s.host[b * 33 + j] == most);
    }
  OK(cgp_add(stream, &x.t, &x.t, &y.t));
  fetch(&y);
  CHECK(y.host[7] == 2 * x.host[7]);
  FAILS(CGP_INVALID_ARGUMENT, cgp_softmax(stream, &x.t, &z.t), "softmax: y", "[3, 5, 33]");
  cgp_tensor other = y.t;
  other.dtype = CGP_S32;
  FAILS(CGP_INVALID_ARGUMENT, cgp_softmax(stream, &x.t, &other), "softmax: y", "f32");
  other.dtype = 99;
  FAILS(CGP_INVALID_ARGUMENT, cgp_softmax(stream, &x.t, &other), "unknown dtype 99", "");
  array none = make(2, (int64_t[]){0, 33}, 0);
  OK(cgp_softmax(stream, &none.t, &none.t));
  drop(&x), drop(&y), drop(&z), drop(&s), drop(&none);
}

static void test_attention(void) {
  const int64_t b = 2, h = 4, hk = 2, nq = 5, nk = 7, d = 16;
  /* q as [b, n, h, d] seen as [b, h, n, d] */
  array q = make(4, (int64_t[]){b, nq, h, d}, 1), k = make(4, (int64_t[]){b, hk, nk, d}, 1);
  array v = make(4, (int64_t[]){b, hk, nk, d}, 1), o = make(4, (int64_t[]){b, h, nq, d}, 0);
  array lse = make(3, (int64_t[]){b, h, nq}, 0);
  cgp_tensor qt = q.t;
  qt.shape[1] = h, qt.shape[2] = nq, qt.stride[1] = d, qt.stride[2] = h * d;
  cgp_attention_options options;
  memset(&options, 0, sizeof options);
  options.size = sizeof options, options.causal = 1;
  OK(cgp_attention(stream, &qt, &k.t, &v.t, &options, &o.t, &lse.t));
  fetch(&o), fetch(&lse);
  for (int64_t i = 0; i < b * h * nq; ++i) {
    const int64_t ib = i / (h * nq), ih = i / nq % h, iq = i % nq, kv = ib * hk + ih / (h / hk);
    double p[7], sum = 0;
    for (int64_t j = 0; j < nk; ++j) {
      double dot = 0;
      for (int64_t e = 0; e < d; ++e)
        dot += (double)q.host[((ib * nq + iq) * h + ih) * d + e] * k.host[(kv * nk + j) * d + e];
      p[j] = j <= iq + nk - nq ? exp(dot / 4) : 0;
      sum += p[j];
    }
    CHECK(fabs(lse.host[i] - log(sum)) < 1e-5);
    for (int64_t e = 0; e < d; ++e) {
      double want = 0;
      for (int64_t j = 0; j < nk; ++j) want += p[j] / sum * v.host[(kv * nk + j) * d + e];
      CHECK(fabs(o.host[i * d + e] - want) < 1e-5);
    }
  }
  cgp_tensor three = k.t;
  three.shape[1] = 3;
  FAILS(CGP_INVALID_ARGUMENT, cgp_attention(stream, &qt, &three, &v.t, &options, &o.t, NULL), "attention: v",
        "[2, 3, 7");
  drop(&q), drop(&k), drop(&v), drop(&o), drop(&lse);
}

static uint64_t lend(void* user, uint64_t bytes) {
  *(uint64_t*)user += bytes;
  uint64_t address = 0;
  return cgp_alloc(device, bytes, &address) == CGP_OK ? address : 0; /* the test may leak */
}
static void test_scratch(void) {
  array x = make(1, (int64_t[]){300000}, 1), y = make(1, (int64_t[]){1}, 0);
  uint64_t lent = 0;
  OK(cgp_stream_set_scratch(stream, lend, &lent));
  y.t.rank = 0;
  OK(cgp_reduce(stream, 0, 0, &x.t, &y.t));
  fetch(&y);
  OK(cgp_stream_set_scratch(stream, NULL, NULL));
  double sum = 0;
  for (size_t i = 0; i < x.count; ++i) sum += x.host[i];
  CHECK(fabs(y.host[0] - sum) < 0.05);
  CHECK(lent > 0);
  drop(&x), drop(&y);
}

static void test_devices(void) {
  cgp_device* none = NULL;
  FAILS(CGP_INVALID_ARGUMENT, cgp_device_open("toaster", &none), "toaster", "");
  CHECK(strlen(cgp_last_error_part(CGP_RULE)) > 0);
  CHECK(none == NULL);
  cgp_device_info info;
  info.size = sizeof info;
  OK(cgp_device_get_info(device, &info));
  CHECK(strlen(info.arch) > 3 && info.compute_capability >= 75);
  if (info.is_emulator) {
    cgp_stream* borrowed = NULL;
    FAILS(CGP_UNSUPPORTED, cgp_stream_borrow(device, NULL, &borrowed), "only a GPU", "emu:sm_90a");
  }
  CHECK(cgp_abi_version() == CGP_ABI_VERSION);
}

int main(int argc, char** argv) {
  OK(cgp_device_open(argc > 1 ? argv[1] : "emu:sm_90a", &device));
  if (!device) return 1;
  OK(cgp_stream_new(device, &stream));
  test_devices();
  test_gemm();
  test_rows();
  test_attention();
  test_scratch();
  cgp_stream_free(stream);
  cgp_device_free(device);
  if (!failures) printf("all right\n");
  return failures != 0;
}
