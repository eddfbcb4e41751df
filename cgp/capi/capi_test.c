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
/* A vector of the device alone. */
static cgp_tensor bare(int64_t count) {
  const array a = make(1, &count, 0);
  free(a.host);
  return a.t;
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
  /* One matrix c for the product of a batch: none of them may be taken for it in silence. */
  cgp_tensor one = c.t, many = bt;
  one.shape[0] = 1;
  FAILS(CGP_INVALID_ARGUMENT, cgp_gemm(stream, &a.t, &bt, NULL, &one), "gemm: a",
        "batch of 2 does not fit c's of 1");
  many.rank = 3, many.shape[0] = 1, many.shape[1] = k, many.shape[2] = n;
  many.stride[0] = 0, many.stride[1] = 1, many.stride[2] = k;
  cgp_tensor alone = a.t;
  alone.shape[0] = 1, many.shape[0] = 5;
  FAILS(CGP_INVALID_ARGUMENT, cgp_gemm(stream, &alone, &many, NULL, &one), "gemm: b", "batch of 5");
  FAILS(CGP_INVALID_ARGUMENT, cgp_gemm(NULL, &a.t, &bt, NULL, &c.t), "s is NULL", "");
  cgp_tensor over = c.t;
  over.address = a.t.address;
  FAILS(CGP_INVALID_ARGUMENT, cgp_gemm(stream, &a.t, &bt, NULL, &over), "gemm: c", "shares memory with a");
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

/* Vectors of rows and columns, an expanded b, the largest of each block. */
static void test_gemm_epilogue(void) {
  const int64_t m = 5, n = 130, k = 9, batch = 2;
  array a = make(3, (int64_t[]){batch, m, k}, 1), b = make(2, (int64_t[]){k, n}, 1),
        c = make(3, (int64_t[]){batch, m, n}, 0);
  array rows = make(1, (int64_t[]){batch * m}, 1), times = make(1, (int64_t[]){batch * m}, 1),
        columns = make(1, (int64_t[]){n}, 1);
  array most = make(2, (int64_t[]){1, 2}, 0), bias = make(1, (int64_t[]){n}, 1);
  cgp_tensor expanded = b.t;
  expanded.rank = 3, expanded.shape[0] = batch, expanded.shape[1] = k, expanded.shape[2] = n;
  expanded.stride[0] = 0, expanded.stride[1] = n, expanded.stride[2] = 1;
  cgp_gemm_options o;
  memset(&o, 0, sizeof o);
  o.size = sizeof o, o.alpha = 1, o.bias = &bias.t, o.bias_rows = &rows.t, o.multiply_rows = &times.t;
  o.multiply_columns = &columns.t, o.amax = &most.t;
  OK(cgp_gemm(stream, &a.t, &expanded, &o, &c.t));
  fetch(&c), fetch(&most);
  double largest[2] = {0, 0};
  for (int64_t i = 0; i < batch * m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double x = 0;
      for (int64_t l = 0; l < k; ++l) x += (double)a.host[i * k + l] * b.host[l * n + j];
      x = x * times.host[i] * columns.host[j] + bias.host[j] + rows.host[i];
      CHECK(fabs(c.host[i * n + j] - x) < 1e-5);
      largest[j / 128] = fmax(largest[j / 128], fabs(x));
    }
  for (int j = 0; j < 2; ++j) CHECK(fabs(most.host[j] - largest[j]) < 1e-5);
  /* rows of a and c at a distance, one b */
  cgp_tensor row = a.t, to = c.t;
  row.shape[0] = to.shape[0] = m, row.shape[1] = to.shape[1] = 1;
  row.stride[0] = 2 * k, to.stride[0] = 2 * n;
  OK(cgp_gemm(stream, &row, &b.t, NULL, &to));
  fetch(&c);
  double third = 0;
  for (int64_t l = 0; l < k; ++l) third += (double)a.host[4 * k + l] * b.host[l * n + 1];
  CHECK(fabs(c.host[4 * n + 1] - third) < 1e-5);
  o.bias_rows = &bias.t;
  FAILS(CGP_INVALID_ARGUMENT, cgp_gemm(stream, &a.t, &expanded, &o, &c.t), "gemm: bias_rows", "10 elements");
  o.bias_rows = NULL, o.amax = &rows.t;
  FAILS(CGP_INVALID_ARGUMENT, cgp_gemm(stream, &a.t, &expanded, &o, &c.t), "gemm: amax", "2 elements");
  cgp_tensor one = a.t, far = a.t;
  one.stride[0] = 0, far.stride[0] = (int64_t)1 << 60;
  FAILS(CGP_INVALID_ARGUMENT, cgp_gemm(stream, &one, &b.t, NULL, &c.t), "gemm: a", "one and the same");
  FAILS(CGP_INVALID_ARGUMENT, cgp_gemm(stream, &far, &b.t, NULL, &c.t), "gemm: a", "too much memory");
  drop(&a), drop(&b), drop(&c), drop(&rows), drop(&times), drop(&columns), drop(&most), drop(&bias);
}

/* Groups of 3, 0 and 4 of 9 rows; matrices that lie anywhere. */
static void test_grouped_gemm(void) {
  enum { GROUPS = 3, M = 9, N = 7, K = 5 };
  static const int64_t ends_host[GROUPS] = {3, 3, 7};
  static const int32_t index_host[M] = {8, 0, 3, 3, 1, 7, 2, 0, 0};
  array a = make(2, (int64_t[]){M, K}, 1), b = make(3, (int64_t[]){GROUPS, N, K}, 1),
        c = make(2, (int64_t[]){M, N}, 1);
  array bias = make(1, (int64_t[]){N}, 1), old = make(2, (int64_t[]){M, N}, 0);
  memcpy(old.host, c.host, M * N * sizeof(float));
  cgp_tensor ends = bare(2 * GROUPS), index = bare(M), bt = b.t;
  OK(cgp_upload(device, ends.address, ends_host, sizeof ends_host));
  OK(cgp_upload(device, index.address, index_host, sizeof index_host));
  ends.dtype = CGP_S64, ends.shape[0] = GROUPS, index.dtype = CGP_S32;
  bt.shape[1] = K, bt.shape[2] = N, bt.stride[1] = 1, bt.stride[2] = K;
  cgp_gemm_options o;
  memset(&o, 0, sizeof o);
  o.size = sizeof o, o.alpha = 0.5f, o.beta = 2, o.bias = &bias.t;
  OK(cgp_grouped_gemm(stream, &a.t, &bt, &ends, &index, &o, &c.t));
  fetch(&c);
  for (int r = 0; r < M; ++r)
    for (int j = 0; j < N; ++j) {
      const int g = r < 3 ? 0 : 2;
      double x = 0;
      for (int l = 0; l < K; ++l) x += (double)a.host[index_host[r] * K + l] * b.host[(g * N + j) * K + l];
      x = r < 7 ? 0.5 * x + 2.0 * old.host[r * N + j] + bias.host[j] : old.host[r * N + j];
      CHECK(fabs(c.host[r * N + j] - x) < 1e-5);
    }
  array rows = make(2, (int64_t[]){M, N}, 1), made = make(3, (int64_t[]){GROUPS, K, N}, 0);
  OK(cgp_grouped_gemm_depth(stream, &a.t, &rows.t, &ends, NULL, &made.t));
  fetch(&made);
  for (int g = 0; g < GROUPS; ++g)
    for (int i = 0; i < K; ++i)
      for (int j = 0; j < N; ++j) {
        double x = 0;
        for (int64_t r = g ? ends_host[g - 1] : 0; r < ends_host[g]; ++r)
          x += (double)a.host[r * K + i] * rows.host[r * N + j];
        CHECK(fabs(made.host[(g * K + i) * N + j] - x) < 1e-5);
      }
  /* c_i = a b_i' for the matrices of b in turn, the last first. */
  array out = make(3, (int64_t[]){GROUPS, M, N}, 0), items = make(2, (int64_t[]){GROUPS, 12}, 0);
  uint64_t at[3][GROUPS];
  cgp_tensor where[3];
  for (int g = 0; g < GROUPS; ++g) {
    at[0][g] = a.t.address, at[1][g] = b.t.address + (uint64_t)(GROUPS - 1 - g) * N * K * 4;
    at[2][g] = out.t.address + (uint64_t)g * M * N * 4;
  }
  for (int i = 0; i < 3; ++i) {
    where[i] = bare(2 * GROUPS);
    OK(cgp_upload(device, where[i].address, at[i], sizeof at[i]));
    where[i].dtype = CGP_U64, where[i].shape[0] = GROUPS;
  }
  cgp_tensor each = bt, to = c.t;
  each.rank = 2, each.shape[0] = K, each.shape[1] = N, each.stride[0] = 1, each.stride[1] = K;
  each.address = to.address = 0;
  OK(cgp_gemm_pointers(stream, &a.t, &each, &where[0], &where[1], &where[2], NULL, &items.t, &to));
  fetch(&out);
  for (int g = 0; g < GROUPS; ++g)
    for (int i = 0; i < M; ++i)
      for (int j = 0; j < N; ++j) {
        double x = 0;
        for (int l = 0; l < K; ++l)
          x += (double)a.host[i * K + l] * b.host[((GROUPS - 1 - g) * N + j) * K + l];
        CHECK(fabs(out.host[(g * M + i) * N + j] - x) < 1e-5);
      }

  cgp_tensor wrong = ends;
  wrong.shape[0] = 2;
  FAILS(CGP_INVALID_ARGUMENT, cgp_grouped_gemm(stream, &a.t, &bt, &wrong, NULL, NULL, &c.t),
        "grouped_gemm: b", "ends, 2");
  FAILS(CGP_INVALID_ARGUMENT, cgp_grouped_gemm(stream, &a.t, &bt, &c.t, NULL, NULL, &c.t),
        "grouped_gemm: ends", "s64");
  FAILS(CGP_INVALID_ARGUMENT, cgp_grouped_gemm(stream, &a.t, &b.t, &ends, NULL, NULL, &c.t),
        "grouped_gemm: b", "5 rows");
  FAILS(CGP_INVALID_ARGUMENT, cgp_grouped_gemm(stream, &a.t, &bt, &ends, NULL, NULL, &a.t), "grouped_gemm: c",
        "shares memory");
  FAILS(CGP_INVALID_ARGUMENT, cgp_grouped_gemm_depth(stream, &a.t, &rows.t, &ends, NULL, &c.t),
        "grouped_gemm_depth: c", "3 dimensions");
  FAILS(CGP_INVALID_ARGUMENT,
        cgp_gemm_pointers(stream, &a.t, &each, &where[0], &where[1], &ends, NULL, &bias.t, &to),
        "gemm_pointers: items", "144 bytes");
  o.amax = &bias.t;
  FAILS(CGP_INVALID_ARGUMENT, cgp_grouped_gemm(stream, &a.t, &bt, &ends, NULL, &o, &c.t),
        "grouped_gemm: amax", "");
  drop(&a), drop(&b), drop(&c), drop(&bias), drop(&old), drop(&rows), drop(&made), drop(&out), drop(&items);
  cgp_free(device, ends.address), cgp_free(device, index.address);
  for (int i = 0; i < 3; ++i) cgp_free(device, where[i].address);
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
  other = z.t; /* memory that a tensor of the call has already */
  other.address = x.t.address;
  FAILS(CGP_INVALID_ARGUMENT, cgp_transpose(stream, &x.t, &other), "transpose: y", "shares memory with x");
  other = s.t, other.address = x.t.address + 8;
  FAILS(CGP_INVALID_ARGUMENT, cgp_reduce(stream, 1, -2, &x.t, &other), "reduce: y", "shares memory with x");
  other = x.t, other.shape[0] = 1, other.address += 4;
  cgp_tensor part = x.t;
  part.shape[0] = 1;
  FAILS(CGP_INVALID_ARGUMENT, cgp_softmax(stream, &part, &other), "softmax: y", "without being the same");
  FAILS(CGP_INVALID_ARGUMENT, cgp_add(stream, &part, &part, &other), "add: z", "without being the same");
  OK(cgp_softmax(stream, &part, &part));
  array none = make(2, (int64_t[]){0, 33}, 0);
  OK(cgp_softmax(stream, &none.t, &none.t));
  drop(&x), drop(&y), drop(&z), drop(&s), drop(&none);
}

enum { ROWS = 6, COLS = 37 };
static void test_norms(void) {
  array x = make(3, (int64_t[]){2, 3, COLS}, 1), r = make(3, (int64_t[]){2, 3, COLS}, 1);
  array w = make(1, (int64_t[]){COLS}, 1), b = make(1, (int64_t[]){COLS}, 1);
  array y = make(3, (int64_t[]){2, 3, COLS}, 0), h = make(3, (int64_t[]){2, 3, COLS}, 0);
  array mean = make(2, (int64_t[]){2, 3}, 0), rstd = make(2, (int64_t[]){2, 3}, 0);
  array dy = make(3, (int64_t[]){2, 3, COLS}, 1), dx = make(3, (int64_t[]){2, 3, COLS}, 0);
  array dw = make(1, (int64_t[]){COLS}, 0), db = make(1, (int64_t[]){COLS}, 0);
  for (int layer = 0; layer < 2; ++layer) {
    cgp_norm_options o;
    memset(&o, 0, sizeof o);
    o.size = sizeof o, o.eps = 1e-3f, o.weight = &w.t, o.residual = &r.t, o.sum = &h.t, o.rstd = &rstd.t;
    if (layer) o.bias = &b.t, o.mean = &mean.t;
    OK((layer ? cgp_layer_norm : cgp_rms_norm)(stream, &x.t, &o, &y.t));
    cgp_norm_backward_options g;
    memset(&g, 0, sizeof g);
    g.size = sizeof g, g.weight = &w.t, g.dsum = &r.t, g.rstd = &rstd.t, g.dweight = &dw.t;
    if (layer) g.mean = &mean.t, g.dbias = &db.t;
    OK((layer ? cgp_layer_norm_backward : cgp_rms_norm_backward)(stream, &h.t, &dy.t, &g, &dx.t));
    fetch(&y), fetch(&h), fetch(&rstd), fetch(&dx), fetch(&dw), fetch(&db), fetch(&mean);
    double want_dw[COLS] = {0}, want_db[COLS] = {0};
    for (int i = 0; i < ROWS; ++i) {
      const float *px = x.host + i * COLS, *pr = r.host + i * COLS, *pd = dy.host + i * COLS;
      double m = 0, var = 0, sum_g = 0, sum_gn = 0;
      for (int j = 0; j < COLS; ++j) m += ((double)px[j] + pr[j]) / COLS;
      if (!layer) m = 0;
      for (int j = 0; j < COLS; ++j) var += ((double)px[j] + pr[j] - m) * ((double)px[j] + pr[j] - m) / COLS;
      const double inverse = 1 / sqrt(var + 1e-3);
      CHECK(fabs(rstd.host[i] - inverse) < 1e-5);
      for (int j = 0; j < COLS; ++j) {
        const double n = ((double)px[j] + pr[j] - m) * inverse;
        CHECK(fabs(y.host[i * COLS + j] - (n * w.host[j] + (layer ? b.host[j] : 0))) < 1e-5);
        CHECK(fabs(h.host[i * COLS + j] - ((double)px[j] + pr[j])) < 1e-6);
        sum_g += (double)pd[j] * w.host[j] / COLS, sum_gn += (double)pd[j] * w.host[j] * n / COLS;
        want_dw[j] += pd[j] * n, want_db[j] += pd[j];
      }
      for (int j = 0; j < COLS; ++j) {
        const double n = ((double)px[j] + pr[j] - m) * inverse;
        const double want = pr[j] + inverse * ((double)pd[j] * w.host[j] - (layer ? sum_g : 0) - n * sum_gn);
        CHECK(fabs(dx.host[i * COLS + j] - want) < 2e-5);
      }
    }
    for (int j = 0; j < COLS; ++j) {
      CHECK(fabs(dw.host[j] - want_dw[j]) < 2e-5);
      if (layer) CHECK(fabs(db.host[j] - want_db[j]) < 2e-5);
    }
  }
  cgp_norm_options o;
  memset(&o, 0, sizeof o);
  o.size = sizeof o, o.bias = &b.t;
  FAILS(CGP_INVALID_ARGUMENT, cgp_rms_norm(stream, &x.t, &o, &y.t), "rms_norm: bias", "layer_norm");
  o.bias = NULL, o.weight = &x.t;
  FAILS(CGP_INVALID_ARGUMENT, cgp_rms_norm(stream, &x.t, &o, &y.t), "rms_norm: weight", "[37]");
  o.weight = NULL;
  FAILS(CGP_INVALID_ARGUMENT, cgp_rms_norm(stream, &x.t, &o, &x.t), "rms_norm: y", "shares memory with x");
  /* rows between rows of one memory: refused exactly where an element is shared */
  for (int i = 0; i < 80; ++i) {
    cgp_tensor t[2] = {x.t, x.t};
    int taken[64] = {0}, shared = 0;
    for (int side = 0; side < 2; ++side) {
      const int pitch = 3 + (int)(4 * (random_float() + 1)) * (side || i % 2);
      const int first = (int)(6 * (random_float() + 1));
      t[side].rank = 2, t[side].shape[0] = 1 + i % 4, t[side].shape[1] = 3, t[side].stride[0] = pitch;
      t[side].stride[1] = 1, t[side].address += (uint64_t)first * sizeof(float);
      for (int row = 0; row < t[side].shape[0]; ++row)
        for (int col = 0; col < 3; ++col)
          shared += side ? taken[first + row * pitch + col] : 0, taken[first + row * pitch + col] |= !side;
    }
    if (shared)
      FAILS(CGP_INVALID_ARGUMENT, cgp_rms_norm(stream, &t[0], &o, &t[1]), "rms_norm: y",
            "shares memory with x");
    else
      OK(cgp_rms_norm(stream, &t[0], &o, &t[1]));
  }
  cgp_tensor repeats = x.t;
  repeats.stride[0] = repeats.stride[1] = 0;
  FAILS(CGP_INVALID_ARGUMENT, cgp_rms_norm(stream, &repeats, NULL, &y.t), "rms_norm: x", "overlap");
  FAILS(CGP_INVALID_ARGUMENT, cgp_rms_norm_backward(stream, &x.t, &dy.t, NULL, &dx.t), "options", "rstd");
  drop(&x), drop(&r), drop(&w), drop(&b), drop(&y), drop(&h), drop(&mean), drop(&rstd);
  drop(&dy), drop(&dx), drop(&dw), drop(&db);
}

static void test_cross_entropy(void) {
  array x = make(2, (int64_t[]){ROWS, COLS}, 1), d = make(2, (int64_t[]){ROWS, COLS}, 0);
  array loss = make(1, (int64_t[]){ROWS}, 0), scale = make(1, (int64_t[]){1}, 0);
  array target = make(1, (int64_t[]){ROWS}, 0), errors = make(1, (int64_t[]){1}, 0);
  int32_t targets[ROWS] = {0, COLS - 1, 5, -7, 8, 9}, wrong = 0;
  target.t.dtype = CGP_S32, errors.t.dtype = CGP_U32;
  OK(cgp_upload(device, target.t.address, targets, sizeof targets));
  OK(cgp_upload(device, errors.t.address, &wrong, sizeof wrong));
  cgp_cross_entropy_options o;
  memset(&o, 0, sizeof o);
  o.size = sizeof o, o.ignore_index = -7, o.label_smoothing = 0.25f, o.scale = &scale.t,
  o.error_flag = &errors.t;
  OK(cgp_count_targets(stream, &target.t, -7, &scale.t));
  OK(cgp_cross_entropy(stream, &x.t, &target.t, &o, &loss.t, NULL, &d.t));
  fetch(&loss), fetch(&d), fetch(&scale);
  CHECK(fabs(scale.host[0] - 0.2) < 1e-7);
  array mean = make(1, (int64_t[]){1}, 0);
  double losses = 0;
  for (int i = 0; i < ROWS; ++i) losses += loss.host[i];
  OK(cgp_mean_loss(stream, &loss.t, &target.t, -7, &scale.t, &mean.t));
  fetch(&mean);
  CHECK(fabs(mean.host[0] - 0.2 * losses) < 1e-5);
  OK(cgp_mean_loss(stream, &loss.t, NULL, 0, NULL, &mean.t));
  fetch(&mean);
  CHECK(fabs(mean.host[0] - losses) < 1e-5);
  FAILS(CGP_INVALID_ARGUMENT, cgp_mean_loss(stream, &loss.t, &mean.t, -7, &scale.t, &mean.t), "targets",
        "shape");
  drop(&mean);
  for (int i = 0; i < ROWS; ++i) {
    const float* row = x.host + i * COLS;
    const int kept = targets[i] != -7;
    double sum = 0, all = 0;
    for (int j = 0; j < COLS; ++j) sum += exp((double)row[j]), all += row[j];
    const double want = kept ? log(sum) - 0.75 * row[targets[i]] - 0.25 * all / COLS : 0;
    CHECK(fabs(loss.host[i] - want) < 1e-5);
    for (int j = 0; j < COLS; ++j) {
      const double p = exp((double)row[j]) / sum - 0.75 * (j == targets[i]) - 0.25 / COLS;
      CHECK(fabs(d.host[i * COLS + j] - (kept ? 0.2 * p : 0)) < 1e-6);
    }
  }
  OK(cgp_download(device, &wrong, errors.t.address, sizeof wrong));
  CHECK(wrong == 0);
  targets[2] = COLS; /* no column */
  OK(cgp_upload(device, target.t.address, targets, sizeof targets));
  OK(cgp_cross_entropy(stream, &x.t, &target.t, &o, &loss.t, NULL, NULL));
  fetch(&loss);
  OK(cgp_download(device, &wrong, errors.t.address, sizeof wrong));
  CHECK(wrong == 1 && isnan(loss.host[2]) && !isnan(loss.host[1]));
  FAILS(CGP_INVALID_ARGUMENT, cgp_cross_entropy(stream, &x.t, &loss.t, &o, &loss.t, NULL, NULL), "targets",
        "s32 or s64");
  FAILS(CGP_INVALID_ARGUMENT, cgp_cross_entropy(stream, &x.t, &target.t, &o, NULL, NULL, NULL), "one of loss",
        "");
  OK(cgp_log_softmax(stream, &x.t, &d.t));
  array g = make(2, (int64_t[]){ROWS, COLS}, 0);
  OK(cgp_log_softmax_backward(stream, &d.t, &x.t, &g.t));
  fetch(&d), fetch(&g);
  double sum = 0, all = 0;
  for (int j = 0; j < COLS; ++j) sum += exp((double)x.host[j]), all += x.host[j];
  CHECK(fabs(d.host[3] - (x.host[3] - log(sum))) < 1e-5);
  CHECK(fabs(g.host[3] - (x.host[3] - exp((double)x.host[3]) / sum * all)) < 1e-5);
  drop(&x), drop(&d), drop(&loss), drop(&scale), drop(&target), drop(&errors), drop(&g);
}

static void test_elements(void) {
  const int64_t tokens = 5, heads = 3, dim = 8;
  array x = make(3, (int64_t[]){heads, tokens, dim}, 1), y = make(3, (int64_t[]){tokens, heads, dim}, 0);
  cgp_tensor xt = x.t; /* [heads, tokens, dim] seen as [tokens, heads, dim] */
  xt.shape[0] = tokens, xt.shape[1] = heads, xt.stride[0] = dim, xt.stride[1] = tokens * dim;
  cgp_rope_options o;
  memset(&o, 0, sizeof o);
  o.size = sizeof o, o.offset = 2, o.rotary = 6, o.base = 100;
  OK(cgp_rope(stream, &xt, &o, &y.t));
  fetch(&y);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t h = 0; h < heads; ++h) {
      const float *from = x.host + (h * tokens + t) * dim, *to = y.host + (t * heads + h) * dim;
      for (int i = 0; i < 3; ++i) {
        const double angle = (double)(t + 2) * pow(100, -2.0 * i / 6);
        CHECK(fabs(to[i] - (from[i] * cos(angle) - from[i + 3] * sin(angle))) < 1e-5);
        CHECK(fabs(to[i + 3] - (from[i] * sin(angle) + from[i + 3] * cos(angle))) < 1e-5);
      }
      CHECK(to[6] == from[6] && to[7] == from[7]);
    }
  o.cos = &x.t;
  FAILS(CGP_INVALID_ARGUMENT, cgp_rope(stream, &xt, &o, &y.t), "rope: cos and sin", "together");
  o.cos = NULL, o.scaling = 9;
  FAILS(CGP_INVALID_ARGUMENT, cgp_rope(stream, &xt, &o, &y.t), "scaling 9", "");

  array up = make(3, (int64_t[]){tokens, heads, dim}, 1), out = make(3, (int64_t[]){tokens, heads, dim}, 0);
  array gate = make(3, (int64_t[]){tokens, heads, dim}, 1), dup = make(3, (int64_t[]){tokens, heads, dim}, 0);
  array other = make(3, (int64_t[]){tokens, heads, dim}, 0), bias = make(1, (int64_t[]){dim}, 1);
  OK(cgp_gated(stream, CGP_ACT_SILU, &gate.t, &up.t, &out.t));
  /* the gradient by gate takes the place of gate's copy in y: an output may be an input */
  OK(cgp_add(stream, &gate.t, &gate.t, &y.t));
  OK(cgp_gated_backward(stream, CGP_ACT_RELU, &y.t, &up.t, &up.t, &y.t, &dup.t));
  OK(cgp_activate(stream, CGP_ACT_GELU, &gate.t, &bias.t, &other.t));
  fetch(&out), fetch(&y), fetch(&dup), fetch(&other);
  for (size_t i = 0; i < out.count; ++i) {
    const double v = gate.host[i], u = up.host[i], z = v + bias.host[i % 8];
    CHECK(fabs(out.host[i] - v / (1 + exp(-v)) * u) < 1e-6);
    CHECK(fabs(y.host[i] - (v > 0 ? u * u : 0)) < 1e-6);
    CHECK(fabs(dup.host[i] - (v > 0 ? 2 * v * u : 0)) < 1e-6);
    CHECK(fabs(other.host[i] - z / 2 * (1 + erf(z / sqrt(2)))) < 1e-6);
  }
  OK(cgp_activate_backward(stream, CGP_ACT_SILU, &gate.t, NULL, &up.t, &other.t));
  fetch(&other);
  const double e = 1 / (1 + exp(-(double)gate.host[5]));
  CHECK(fabs(other.host[5] - up.host[5] * (e + gate.host[5] * e * (1 - e))) < 1e-6);
  FAILS(CGP_INVALID_ARGUMENT, cgp_gated(stream, CGP_ACT_SILU, &gate.t, &bias.t, &out.t), "gated: up",
        "[5, 3, 8]");
  FAILS(CGP_INVALID_ARGUMENT, cgp_activate(stream, 9, &gate.t, NULL, &out.t), "no activation 9", "");
  cgp_tensor shifted = gate.t;
  shifted.address += 4, shifted.shape[0] = tokens - 1;
  cgp_tensor part = gate.t;
  part.shape[0] = tokens - 1;
  FAILS(CGP_INVALID_ARGUMENT, cgp_activate(stream, CGP_ACT_RELU, &part, NULL, &shifted), "activate: y",
        "without being the same");
  drop(&x), drop(&y), drop(&up), drop(&out), drop(&gate), drop(&dup), drop(&other), drop(&bias);
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
  array data = make(2, (int64_t[]){h, nk}, 1);
  const int64_t rows = b * h * nq;
  for (int64_t n = 0; n < 2 * rows; ++n) { /* without and with a formula */
    const int64_t i = n % rows;
    if (i == 0) {
      if (n) options.score = "score / 2 + data[h, k - b]", options.score_data = &data.t;
      OK(cgp_attention(stream, &qt, &k.t, &v.t, &options, &o.t, &lse.t));
      fetch(&o), fetch(&lse);
    }
    const int64_t ib = i / (h * nq), ih = i / nq % h, iq = i % nq, kv = ib * hk + ih / (h / hk);
    double p[7], sum = 0;
    for (int64_t j = 0; j < nk; ++j) {
      double dot = 0;
      for (int64_t e = 0; e < d; ++e)
        dot += (double)q.host[((ib * nq + iq) * h + ih) * d + e] * k.host[(kv * nk + j) * d + e];
      const double score = n < rows ? dot / 4 : dot / 8 + data.host[ih * nk + (j > ib ? j - ib : 0)];
      p[j] = j <= iq + nk - nq ? exp(score) : 0;
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
  FAILS(CGP_INVALID_ARGUMENT, cgp_attention(stream, &qt, &k.t, &v.t, &options, &qt, NULL), "attention: o",
        "shares memory with q");
  FAILS(CGP_INVALID_ARGUMENT, cgp_attention(stream, &qt, &three, &v.t, &options, &o.t, NULL), "attention: v",
        "[2, 3, 7");
  options.score = "score / 2 + data[h]";
  FAILS(CGP_INVALID_ARGUMENT, cgp_attention(stream, &qt, &k.t, &v.t, &options, &o.t, NULL), "score formula",
        "at 20: data has 2 dimensions, these are 1");
  options.score = NULL;
  FAILS(CGP_INVALID_ARGUMENT, cgp_attention(stream, &qt, &k.t, &v.t, &options, &o.t, NULL),
        "attention: score_data", "no score");
  drop(&q), drop(&k), drop(&v), drop(&o), drop(&lse), drop(&data);
}
/* packed sequences, and the same one by one */
static void test_attention_of_packed_sequences(void) {
  const int64_t h = 4, hk = 2, d = 16, rows = 12, cu[] = {0, 5, 5, 12};
  const int32_t begins[] = {0, 5, 5, 12};
  array q = make(3, (int64_t[]){rows, h, d}, 1), k = make(3, (int64_t[]){rows, hk, d}, 1);
  array v = make(3, (int64_t[]){rows, hk, d}, 1), o = make(3, (int64_t[]){rows, h, d}, 0);
  array alone = make(3, (int64_t[]){rows, h, d}, 0), lse = make(2, (int64_t[]){h, rows}, 0);
  array offsets = make(1, (int64_t[]){4}, 0);
  cgp_tensor c = offsets.t;
  c.dtype = CGP_S32;
  OK(cgp_upload(device, c.address, begins, sizeof begins));
  cgp_attention_options options, plain;
  memset(&options, 0, sizeof options);
  options.size = sizeof options, options.causal = 1, plain = options;
  options.cu_seqlens_q = options.cu_seqlens_kv = &c, options.max_seqlen_q = options.max_seqlen_kv = 7;
  OK(cgp_attention(stream, &q.t, &k.t, &v.t, &options, &o.t, &lse.t));
  for (int n = 0; n < 3; ++n) {
    cgp_tensor one[4] = {q.t, k.t, v.t, alone.t};
    for (int i = 0; i < 4; ++i) {
      cgp_tensor* t = &one[i];
      t->rank = 4, t->address += (uint64_t)(cu[n] * t->stride[0]) * 4;
      t->shape[3] = d, t->shape[2] = cu[n + 1] - cu[n], t->shape[1] = i == 0 || i == 3 ? h : hk,
      t->shape[0] = 1;
      t->stride[3] = 1, t->stride[2] = t->shape[1] * d, t->stride[1] = d, t->stride[0] = rows * h * d;
    }
    OK(cgp_attention(stream, &one[0], &one[1], &one[2], &plain, &one[3], NULL));
  }
  fetch(&o), fetch(&alone);
  for (int64_t i = 0; i < rows * h * d; ++i) CHECK(fabs(o.host[i] - alone.host[i]) < 1e-6);
  options.cu_seqlens_kv = NULL;
  FAILS(CGP_INVALID_ARGUMENT, cgp_attention(stream, &q.t, &k.t, &v.t, &options, &o.t, NULL),
        "attention: cu_seqlens_kv", "");
  options.cu_seqlens_q = NULL;
  FAILS(CGP_INVALID_ARGUMENT, cgp_attention(stream, &q.t, &k.t, &v.t, &options, &o.t, NULL), "attention: q",
        "");
  options.cu_seqlens_q = options.cu_seqlens_kv = &c, options.k_scale = &offsets.t;
  FAILS(CGP_INVALID_ARGUMENT, cgp_attention(stream, &q.t, &k.t, &v.t, &options, &o.t, NULL), "k_scale",
        "e4m3");
  drop(&q), drop(&k), drop(&v), drop(&o), drop(&alone), drop(&lse), drop(&offsets);
}

static uint64_t lend(void* user, uint64_t bytes) {
  *(uint64_t*)user += bytes;
  uint64_t address = 0;
  return cgp_alloc(device, bytes, &address) == CGP_OK ? address : 0; /* the test may leak */
}
/* ---- attention's gradient, tables, choices, and steps of decoding */
static void test_attention_backward(void) {
  const int64_t n = 3, d = 4;
  array q = make(4, (int64_t[]){1, 1, n, d}, 1), k = make(4, (int64_t[]){1, 1, n, d}, 1),
        v = make(4, (int64_t[]){1, 1, n, d}, 1), o = make(4, (int64_t[]){1, 1, n, d}, 0),
        lse = make(3, (int64_t[]){1, 1, n}, 0), d_o = make(4, (int64_t[]){1, 1, n, d}, 1),
        dq = make(4, (int64_t[]){1, 1, n, d}, 0), dk = make(4, (int64_t[]){1, 1, n, d}, 0),
        dv = make(4, (int64_t[]){1, 1, n, d}, 0);
  cgp_attention_options options;
  memset(&options, 0, sizeof options);
  options.size = sizeof options, options.causal = 1, options.scale = 0.5f;
  OK(cgp_attention(stream, &q.t, &k.t, &v.t, &options, &o.t, &lse.t));
  OK(cgp_attention_backward(stream, &q.t, &k.t, &v.t, &options, &o.t, &lse.t, &d_o.t, &dq.t, &dk.t, &dv.t));
  fetch(&o), fetch(&dq), fetch(&dk), fetch(&dv);
  double p[3][3], ds[3][3];
  for (int i = 0; i < n; ++i) {
    double sum = 0, delta = 0;
    for (int j = 0; j <= i; ++j) {
      double dot = 0;
      for (int e = 0; e < d; ++e) dot += (double)q.host[i * d + e] * k.host[j * d + e];
      sum += p[i][j] = exp(0.5 * dot);
    }
    for (int j = 0; j <= i; ++j) p[i][j] /= sum;
    for (int e = 0; e < d; ++e) {
      double out = 0;
      for (int j = 0; j <= i; ++j) out += p[i][j] * v.host[j * d + e];
      delta += out * d_o.host[i * d + e];
    }
    for (int j = 0; j <= i; ++j) {
      double dp = 0;
      for (int e = 0; e < d; ++e) dp += (double)d_o.host[i * d + e] * v.host[j * d + e];
      ds[i][j] = 0.5 * p[i][j] * (dp - delta);
    }
  }
  for (int r = 0; r < n; ++r)
    for (int e = 0; e < d; ++e) {
      double want_q = 0, want_k = 0, want_v = 0;
      for (int j = 0; j <= r; ++j) want_q += ds[r][j] * k.host[j * d + e];
      for (int i = r; i < n; ++i)
        want_k += ds[i][r] * q.host[i * d + e], want_v += p[i][r] * d_o.host[i * d + e];
      CHECK(fabs(dq.host[r * d + e] - want_q) < 1e-5);
      CHECK(fabs(dk.host[r * d + e] - want_k) < 1e-5);
      CHECK(fabs(dv.host[r * d + e] - want_v) < 1e-5);
    }
  cgp_tensor other = dq.t;
  other.stride[2] = 2 * d;
  FAILS(
      CGP_INVALID_ARGUMENT,
      cgp_attention_backward(stream, &q.t, &k.t, &v.t, &options, &o.t, &lse.t, &d_o.t, &other, &dk.t, &dv.t),
      "d_q", "strides");
  FAILS(CGP_INVALID_ARGUMENT,
        cgp_attention_backward(stream, &q.t, &k.t, &v.t, &options, &o.t, NULL, &d_o.t, &dq.t, &dk.t, &dv.t),
        "lse", "NULL");
  FAILS(CGP_INVALID_ARGUMENT,
        cgp_attention_backward(stream, &q.t, &k.t, &v.t, &options, &o.t, &lse.t, &d_o.t, &dq.t, &dk.t, &k.t),
        "d_v", "shares memory with k");
  array* all[] = {&q, &k, &v, &o, &lse, &d_o, &dq, &dk, &dv};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) drop(all[i]);
}

/* Integers on the device: s32, beside an array of floats that holds their bits. */
static cgp_tensor words(array* a) {
  cgp_tensor t = a->t;
  t.dtype = CGP_S32;
  return t;
}
static array make_words(int rank, const int64_t* shape, const int32_t* values) {
  array a = make(rank, shape, 0);
  if (values) memcpy(a.host, values, a.count * sizeof(float));
  OK(cgp_upload(device, a.t.address, a.host, a.count * sizeof(float)));
  return a;
}
static int32_t word(const array* a, size_t i) {
  int32_t w;
  memcpy(&w, a->host + i, sizeof w);
  return w;
}

static void test_tables(void) {
  array weight = make(2, (int64_t[]){4, 3}, 1), out = make(2, (int64_t[]){3, 3}, 0),
        dweight = make(2, (int64_t[]){4, 3}, 0);
  array index = make_words(1, (int64_t[]){3}, (int32_t[]){2, 0, 2}),
        errors = make_words(1, (int64_t[]){1}, (int32_t[]){0});
  cgp_tensor i = words(&index), e = words(&errors);
  OK(cgp_embedding(stream, &i, &weight.t, &e, &out.t));
  OK(cgp_embedding_backward(stream, &i, &out.t, -1, &e, &dweight.t));
  fetch(&out), fetch(&dweight), fetch(&errors);
  CHECK(word(&errors, 0) == 0);
  for (int c = 0; c < 3; ++c) {
    CHECK(out.host[c] == weight.host[6 + c] && out.host[3 + c] == weight.host[c]);
    CHECK(dweight.host[6 + c] == 2 * weight.host[6 + c] && dweight.host[3 + c] == 0);
  }
  FAILS(CGP_INVALID_ARGUMENT, cgp_embedding(stream, &weight.t, &weight.t, NULL, &out.t), "indices", "s32");
  FAILS(CGP_INVALID_ARGUMENT, cgp_embedding(stream, &i, &weight.t, NULL, &dweight.t), "out", "indices");

  array x = make(2, (int64_t[]){3, 5}, 1), y = make(2, (int64_t[]){3, 5}, 0),
        best = make_words(1, (int64_t[]){3}, NULL);
  array values = make(2, (int64_t[]){3, 2}, 0), places = make_words(2, (int64_t[]){3, 2}, NULL);
  cgp_tensor b = words(&best), p = words(&places);
  OK(cgp_argmax(stream, &x.t, &b, NULL));
  OK(cgp_topk(stream, &x.t, &values.t, &p));
  OK(cgp_cumsum(stream, &x.t, 1, &y.t));
  fetch(&best), fetch(&values), fetch(&places), fetch(&y);
  for (int r = 0; r < 3; ++r) {
    double sum = 0;
    for (int c = 0; c < 5; ++c) {
      CHECK(fabs(y.host[r * 5 + c] - sum) < 1e-6);
      sum += x.host[r * 5 + c];
      CHECK(x.host[r * 5 + c] <= x.host[r * 5 + word(&best, (size_t)r)]);
      CHECK(c == word(&places, (size_t)(2 * r)) || x.host[r * 5 + c] <= values.host[2 * r + 1]);
    }
    CHECK(word(&places, (size_t)(2 * r)) == word(&best, (size_t)r));
  }
  OK(cgp_dropout(stream, &x.t, 0.5, 3, 4, &y.t));
  fetch(&y);
  int dropped = 0;
  for (int n = 0; n < 15; ++n) {
    CHECK(y.host[n] == 0 || fabs(y.host[n] - 2 * x.host[n]) < 1e-6);
    dropped += y.host[n] == 0;
  }
  CHECK(dropped > 1 && dropped < 14);
  FAILS(CGP_INVALID_ARGUMENT, cgp_dropout(stream, &x.t, 1.5, 3, 4, &y.t), "p", "1.5");
  FAILS(CGP_INVALID_ARGUMENT, cgp_topk(stream, &x.t, &y.t, &p), "index", "values");
  array* all[] = {&weight, &out, &dweight, &index, &errors, &x, &y, &best, &values, &places};
  for (size_t n = 0; n < sizeof all / sizeof *all; ++n) drop(all[n]);
}

/* bf16: the upper half of a float. */
static array make_half(int rank, const int64_t* shape, int random) {
  array a = make(rank, shape, 0);
  uint16_t* bits = malloc(a.count * sizeof *bits + 1);
  for (size_t i = 0; i < a.count; ++i) {
    a.host[i] = random ? (float)(int)(8 * random_float()) / 8.0f : 0.0f; /* exact in bf16 */
    uint32_t w;
    memcpy(&w, a.host + i, sizeof w);
    bits[i] = (uint16_t)(w >> 16);
  }
  a.t.dtype = CGP_BF16;
  OK(cgp_upload(device, a.t.address, bits, a.count * sizeof *bits));
  free(bits);
  return a;
}
static void fetch_half(array* a) {
  uint16_t* bits = malloc(a->count * sizeof *bits + 1);
  OK(cgp_stream_wait(stream));
  OK(cgp_download(device, bits, a->t.address, a->count * sizeof *bits));
  for (size_t i = 0; i < a->count; ++i) {
    const uint32_t w = (uint32_t)bits[i] << 16;
    memcpy(a->host + i, &w, sizeof w);
  }
  free(bits);
}

static void test_decoding(void) {
  /* one token of one sequence: 1 head, d 64, whose cache has no other */
  array x = make_half(2, (int64_t[]){1, 16}, 1), w = make_half(2, (int64_t[]){192, 16}, 1),
        y = make_half(2, (int64_t[]){1, 192}, 0);
  cgp_decode_linear_options few;
  memset(&few, 0, sizeof few);
  few.size = sizeof few, few.weight0 = &w.t;
  OK(cgp_decode_linear(stream, &x.t, &few, &y.t));
  fetch_half(&y);
  for (int n = 0; n < 192; ++n) {
    double want = 0;
    for (int e = 0; e < 16; ++e) want += (double)x.host[e] * w.host[n * 16 + e];
    CHECK(fabs(y.host[n] - want) <= fabs(want) / 256 + 1e-6);
  }
  FAILS(CGP_INVALID_ARGUMENT, cgp_decode_linear(stream, &x.t, &few, &x.t), "y", "shape");
  few.bias1 = &x.t;
  FAILS(CGP_INVALID_ARGUMENT, cgp_decode_linear(stream, &x.t, &few, &y.t), "bias1", "weight");

  array pool = make_half(5, (int64_t[]){2, 2, 1, 16, 64}, 0), o = make_half(4, (int64_t[]){1, 1, 1, 64}, 0);
  array table = make_words(2, (int64_t[]){1, 1}, (int32_t[]){1}),
        lengths = make_words(1, (int64_t[]){1}, (int32_t[]){1});
  array error_flag = make_words(1, (int64_t[]){1}, (int32_t[]){0});
  cgp_tensor t = words(&table), l = words(&lengths), bad = words(&error_flag), qkv = y.t, q = o.t;
  qkv.rank = 4;
  for (int i = 0; i < 4; ++i)
    qkv.shape[i] = (int64_t[]){1, 1, 3, 64}[i], qkv.stride[i] = (int64_t[]){192, 192, 64, 1}[i];
  cgp_qkv_append_options append;
  memset(&append, 0, sizeof append);
  append.size = sizeof append, append.lengths = &l, append.eps = 1e-6f;
  OK(cgp_qkv_append(stream, &qkv, &append, &t, &bad, &pool.t));
  q.address = qkv.address;
  uint64_t bytes = 0;
  OK(cgp_paged_attention_workspace(stream, &q, &pool.t, &t, NULL, &bytes));
  array workspace = make_words(1, (int64_t[]){(int64_t)(bytes + 3) / 4}, NULL);
  memset(workspace.host, 0, workspace.count * sizeof(float));
  OK(cgp_upload(device, workspace.t.address, workspace.host, workspace.count * sizeof(float)));
  OK(cgp_paged_attention(stream, &q, &pool.t, &t, &l, NULL, &workspace.t, &bad, &o.t));
  fetch_half(&o), fetch_half(&pool), fetch(&error_flag);
  CHECK(word(&error_flag, 0) == 0);
  for (int e = 0; e < 64; ++e) {
    CHECK(o.host[e] == y.host[128 + e]); /* the only value */
    CHECK(pool.host[2 * 16 * 64 + e] == y.host[64 + e] && pool.host[3 * 16 * 64 + e] == y.host[128 + e]);
  }
  cgp_paged_attention_options paged; /* a sequence that shares with nobody */
  memset(&paged, 0, sizeof paged);
  array in_common = make_words(1, (int64_t[]){1}, (int32_t[]){1});
  const cgp_tensor common = words(&in_common);
  paged.size = sizeof paged, paged.share = 4;
  FAILS(CGP_INVALID_ARGUMENT,
        cgp_paged_attention(stream, &q, &pool.t, &t, &l, &paged, &workspace.t, &bad, &o.t),
        "paged_attention: ", "");
  paged.shared = &common;
  OK(cgp_paged_attention_workspace(stream, &q, &pool.t, &t, &paged, &bytes));
  array larger = make_words(1, (int64_t[]){(int64_t)(bytes + 3) / 4}, NULL);
  memset(larger.host, 0, larger.count * sizeof(float));
  OK(cgp_upload(device, larger.t.address, larger.host, larger.count * sizeof(float)));
  OK(cgp_paged_attention(stream, &q, &pool.t, &t, &l, &paged, &larger.t, &bad, &o.t));
  fetch_half(&o);
  for (int e = 0; e < 64; ++e) CHECK(o.host[e] == y.host[128 + e]);
  drop(&in_common), drop(&larger);
  workspace.t.shape[0] = 1;
  if (bytes > 4)
    FAILS(CGP_INVALID_ARGUMENT,
          cgp_paged_attention(stream, &q, &pool.t, &t, &l, NULL, &workspace.t, &bad, &o.t), "workspace",
          "bytes");
  append.cos = &x.t;
  FAILS(CGP_INVALID_ARGUMENT, cgp_qkv_append(stream, &qkv, &append, &t, &bad, &pool.t), "cos", "sin");
  array* all[] = {&x, &w, &y, &pool, &o, &table, &lengths, &error_flag, &workspace};
  for (size_t n = 0; n < sizeof all / sizeof *all; ++n) drop(all[n]);
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

static int32_t gather_one(void* user, const void* own, uint64_t bytes, void* all) {
  ++*(int*)user;
  memcpy(all, own, bytes);
  return 0;
}
static int32_t gather_none(void* user, const void* own, uint64_t bytes, void* all) {
  (void)user, (void)own, (void)bytes, (void)all;
  return 1;
}
/* Of one rank; between processes it runs where there is a GPU (python/tests/test_distributed.py). */
static void test_communicator(void) {
  cgp_communicator* all = NULL;
  int asked = 0;
  FAILS(CGP_INVALID_ARGUMENT, cgp_communicator_new(device, 1, 1, gather_one, &asked, NULL, &all), "rank 1 of 1", "");
  FAILS(CGP_INVALID_ARGUMENT, cgp_communicator_new(device, 0, 17, gather_one, &asked, NULL, &all), "1 to 16", "");
  FAILS(CGP_INTERNAL, cgp_communicator_new(device, 0, 1, gather_none, NULL, NULL, &all), "all_gather", "");
  cgp_device_info info;
  info.size = sizeof info;
  OK(cgp_device_get_info(device, &info));
  if (info.is_emulator) {
    FAILS(CGP_UNSUPPORTED, cgp_communicator_new(device, 0, 1, gather_one, &asked, NULL, &all), "rank 0", "cannot share memory");
    CHECK(all == NULL && asked == 2);
    return;
  }
  OK(cgp_communicator_new(device, 0, 1, gather_one, &asked, NULL, &all));
  array x = make(1, (int64_t[]){1000}, 3), y = make(1, (int64_t[]){1000}, 0);
  OK(cgp_all_reduce(stream, all, &x.t, &y.t));
  OK(cgp_barrier(stream, all));
  fetch(&y);
  for (size_t i = 0; i < x.count; ++i) CHECK(y.host[i] == x.host[i]);
  y.t.shape[0] = 999;
  FAILS(CGP_INVALID_ARGUMENT, cgp_all_reduce(stream, all, &x.t, &y.t), "elements", "999");
  cgp_communicator_free(all);
  drop(&x), drop(&y);
}

int main(int argc, char** argv) {
  OK(cgp_device_open(argc > 1 ? argv[1] : "emu:sm_90a", &device));
  if (!device) return 1;
  OK(cgp_stream_new(device, &stream));
  test_devices();
  test_gemm();
  test_gemm_epilogue();
  test_grouped_gemm();
  test_rows();
  test_norms();
  test_cross_entropy();
  test_elements();
  test_attention();
  test_attention_of_packed_sequences();
  test_attention_backward();
  test_tables();
  test_decoding();
  test_scratch();
  test_communicator();
  cgp_stream_free(stream);
  cgp_device_free(device);
  if (!failures) printf("all right\n");
  return failures != 0;
}
