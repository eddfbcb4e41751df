/* SPDX-License-Identifier: Apache-2.0 */
/* cgp._core: the C interface (cgp/capi/cgp.h) for Python, on the limited API. Arrays come as tuples
 * (address, dtype, shape, strides in elements), as tensors of PyTorch, or None; handles are integers. The Python side of the
 * package owns them and gives the messages their exception classes (set_exceptions). A stream that is None is the current one
 * of PyTorch for the device of the tensors. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string.h>

#include "cgp/capi/cgp.h"
#include "core_torch.h"

static PyObject* exceptions[7]; /* by cgp_status */
static PyObject* scratch_callback;

static PyObject* fail(cgp_status status) {
  PyObject* type = status < 7 && exceptions[status] ? exceptions[status] : PyExc_RuntimeError;
  if (!PyErr_Occurred()) PyErr_SetString(type, cgp_last_error());
  return NULL;
}
static PyObject* done(cgp_status status) {
  torch_end();
  if (status != CGP_OK || PyErr_Occurred()) return fail(status);
  Py_RETURN_NONE;
}

int cgp_read_list(PyObject* list, int64_t* out, int32_t* rank, const char* what) {
  const int tuple = PyTuple_Check(list); /* torch.Size is one too; its items are borrowed */
  const Py_ssize_t n = tuple ? PyTuple_Size(list) : PySequence_Size(list);
  if (n < 0) return -1;
  if (n > CGP_MAX_RANK) {
    PyErr_Format(exceptions[1] ? exceptions[1] : PyExc_ValueError, "%s has %zd dimensions; at most %d are possible", what, n,
                 CGP_MAX_RANK);
    return -1;
  }
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* item = tuple ? PyTuple_GetItem(list, i) : PySequence_GetItem(list, i);
    if (!item) return -1;
    out[i] = PyLong_AsLongLong(item);
    if (!tuple) Py_DECREF(item);
    if (out[i] == -1 && PyErr_Occurred()) return -1;
  }
  *rank = (int32_t)n;
  return 0;
}
/* 1: read into *t; 0: None; -1: an exception is set. */
static int read_tensor(PyObject* o, cgp_tensor* t, const char* what, const char* function) {
  if (o == Py_None) return 0;
  if (torch_is_tensor(o)) return torch_read(o, t, function, what);
  if (!PyTuple_Check(o) || PyTuple_Size(o) != 4) {
    PyErr_Format(PyExc_TypeError, "%s must be (address, dtype, shape, strides) or None", what);
    return -1;
  }
  memset(t, 0, sizeof *t);
  t->address = PyLong_AsUnsignedLongLong(PyTuple_GetItem(o, 0));
  t->dtype = (int32_t)PyLong_AsLong(PyTuple_GetItem(o, 1));
  if (PyErr_Occurred()) return -1;
  int32_t strides = 0;
  if (cgp_read_list(PyTuple_GetItem(o, 2), t->shape, &t->rank, what) || cgp_read_list(PyTuple_GetItem(o, 3), t->stride, &strides, what))
    return -1;
  if (strides != t->rank) {
    PyErr_Format(PyExc_ValueError, "%s has %d sizes and %d strides", what, (int)t->rank, (int)strides);
    return -1;
  }
  return 1;
}
static int count(Py_ssize_t n, Py_ssize_t want, const char* name) {
  if (n == want) return 0;
  PyErr_Format(PyExc_TypeError, "%s() takes %zd arguments, got %zd", name, want, n);
  return -1;
}
static void* handle(PyObject* o) {
  return o == Py_None ? torch_stream() : (void*)(uintptr_t)PyLong_AsUnsignedLongLong(o);
}
static PyObject* as_handle(void* p) { return PyLong_FromUnsignedLongLong((uintptr_t)p); }

#define FUNCTION(name, arguments)                                                   \
  static PyObject* py_##name(PyObject* self, PyObject* const* a, Py_ssize_t n) {    \
    (void)self, (void)a;                                                            \
    if (count(n, arguments, #name)) return NULL;                                    \
    torch_begin();
#define END }
/* A tensor argument: `name` is NULL where None was given. */
#define TENSOR(name, index)                                         \
  cgp_tensor name##_;                                               \
  const int name##_given = read_tensor(a[index], &name##_, #name, __func__ + 3); \
  if (name##_given < 0) return NULL;                                \
  const cgp_tensor* name = name##_given ? &name##_ : NULL;

/* Options `o` of the C interface: what is not set is 0. */
#define OPTIONS(type)      \
  type o;                  \
  memset(&o, 0, sizeof o); \
  o.size = sizeof o;

FUNCTION(set_exceptions, 6)
  for (int i = 0; i < 6; ++i) {
    Py_INCREF(a[i]);
    Py_XDECREF(exceptions[i + 1]);
    exceptions[i + 1] = a[i];
  }
  Py_RETURN_NONE;
END
FUNCTION(version, 0) return PyUnicode_FromString(cgp_version()); END

FUNCTION(device_open, 1)
  PyObject* bytes = PyUnicode_AsUTF8String(a[0]);
  if (!bytes) return NULL;
  cgp_device* device = NULL;
  char* spec = PyBytes_AsString(bytes);
  cgp_status status;
  Py_BEGIN_ALLOW_THREADS status = cgp_device_open(spec, &device);
  Py_END_ALLOW_THREADS Py_DECREF(bytes);
  return status ? fail(status) : as_handle(device);
END
FUNCTION(device_info, 1)
  cgp_device_info i;
  memset(&i, 0, sizeof i);
  i.size = sizeof i;
  const cgp_status status = cgp_device_get_info(handle(a[0]), &i);
  if (status) return fail(status);
  return Py_BuildValue("(ssiiiK)", i.name, i.arch, i.compute_capability, i.sm_count, i.is_emulator,
                       (unsigned long long)i.memory_bytes);
END
FUNCTION(jit_count, 1)
  uint64_t c = 0;
  const cgp_status status = cgp_device_jit_count(handle(a[0]), &c);
  return status ? fail(status) : PyLong_FromUnsignedLongLong(c);
END
FUNCTION(alloc, 2)
  uint64_t address = 0;
  const cgp_status status = cgp_alloc(handle(a[0]), PyLong_AsUnsignedLongLong(a[1]), &address);
  return status || PyErr_Occurred() ? fail(status) : PyLong_FromUnsignedLongLong(address);
END
FUNCTION(free, 2)
  cgp_free(handle(a[0]), PyLong_AsUnsignedLongLong(a[1]));
  return done(CGP_OK);
END
/* device, device address, host address, bytes */
FUNCTION(upload, 4)
  void* device = handle(a[0]);
  const uint64_t to = PyLong_AsUnsignedLongLong(a[1]), bytes = PyLong_AsUnsignedLongLong(a[3]);
  const void* from = handle(a[2]);
  if (PyErr_Occurred()) return NULL;
  cgp_status status;
  Py_BEGIN_ALLOW_THREADS status = cgp_upload(device, to, from, bytes);
  Py_END_ALLOW_THREADS return done(status);
END
FUNCTION(download, 4)
  void* device = handle(a[0]);
  const uint64_t from = PyLong_AsUnsignedLongLong(a[1]), bytes = PyLong_AsUnsignedLongLong(a[3]);
  void* to = handle(a[2]);
  if (PyErr_Occurred()) return NULL;
  cgp_status status;
  Py_BEGIN_ALLOW_THREADS status = cgp_download(device, to, from, bytes);
  Py_END_ALLOW_THREADS return done(status);
END
FUNCTION(stream_new, 1)
  cgp_stream* s = NULL;
  const cgp_status status = cgp_stream_new(handle(a[0]), &s);
  return status ? fail(status) : as_handle(s);
END
/* device, CUstream */
FUNCTION(stream_borrow, 2)
  cgp_stream* s = NULL;
  const cgp_status status = cgp_stream_borrow(handle(a[0]), handle(a[1]), &s);
  return status ? fail(status) : as_handle(s);
END
FUNCTION(stream_wait, 1)
  void* s = handle(a[0]);
  cgp_status status;
  Py_BEGIN_ALLOW_THREADS status = cgp_stream_wait(s);
  Py_END_ALLOW_THREADS return done(status);
END
FUNCTION(stream_free, 1)
  cgp_stream_free(handle(a[0]));
  return done(CGP_OK);
END

/* Called with the interpreter's lock: operations keep it. */
static uint64_t lend(void* user, uint64_t bytes) {
  (void)user;
  return torch_lend(scratch_callback, bytes);
}
/* stream, callable(bytes) -> (address, what keeps it until the call is over): one callable serves all streams */
FUNCTION(stream_set_scratch, 2)
  Py_INCREF(a[1]);
  Py_XDECREF(scratch_callback);
  scratch_callback = a[1];
  return done(cgp_stream_set_scratch(handle(a[0]), lend, NULL));
END

/* stream, a, b, c, alpha, beta, precision, activation, swiglu, scaling, bias, residual, scale_a, scale_b, padded_ldc */
FUNCTION(gemm, 15)
  TENSOR(a_tensor, 1)
  TENSOR(b, 2)
  TENSOR(c, 3)
  TENSOR(bias, 10)
  TENSOR(residual, 11)
  TENSOR(scale_a, 12)
  TENSOR(scale_b, 13)
  OPTIONS(cgp_gemm_options)
  o.alpha = (float)PyFloat_AsDouble(a[4]), o.beta = (float)PyFloat_AsDouble(a[5]);
  o.precision = (int32_t)PyLong_AsLong(a[6]), o.activation = (int32_t)PyLong_AsLong(a[7]);
  o.swiglu = (int32_t)PyLong_AsLong(a[8]), o.scaling = (int32_t)PyLong_AsLong(a[9]);
  o.padded_ldc = PyObject_IsTrue(a[14]);
  if (PyErr_Occurred()) return NULL;
  o.bias = bias, o.residual = residual, o.scale_a = scale_a, o.scale_b = scale_b;
  return done(cgp_gemm(handle(a[0]), a_tensor, b, &o, c));
END
/* scale, causal, window_left, window_right, soft_cap */
static int attention_numbers(PyObject* const* a, cgp_attention_options* o) {
  memset(o, 0, sizeof *o);
  o->size = sizeof *o;
  o->scale = (float)PyFloat_AsDouble(a[0]), o->causal = (int32_t)PyLong_AsLong(a[1]);
  o->window_left = (int32_t)PyLong_AsLong(a[2]), o->window_right = (int32_t)PyLong_AsLong(a[3]);
  o->soft_cap = (float)PyFloat_AsDouble(a[4]);
  return PyErr_Occurred() != NULL;
}
/* The text of a formula for scores, or None; `held` keeps it. */
static int attention_score(PyObject* score, cgp_attention_options* o, PyObject** held) {
  *held = NULL;
  if (score == Py_None) return 0;
  if (!(*held = PyUnicode_AsUTF8String(score))) return 1;
  o->score = PyBytes_AsString(*held);
  return 0;
}
/* What may follow: cu_seqlens_q, cu_seqlens_kv, q_scale, k_scale, v_scale, max_seqlen_q, max_seqlen_kv, promoted. `of`: storage for
 * the tensors. */
enum { ATTENTION_MORE = 8, ATTENTION_TENSORS = 5 };
static int attention_more(PyObject* const* a, cgp_attention_options* o, cgp_tensor* of, const char* function) {
  static const char* const names[ATTENTION_TENSORS] = {"cu_seqlens_q", "cu_seqlens_kv", "q_scale", "k_scale", "v_scale"};
  const cgp_tensor** const to[ATTENTION_TENSORS] = {&o->cu_seqlens_q, &o->cu_seqlens_kv, &o->q_scale, &o->k_scale, &o->v_scale};
  for (int i = 0; i < ATTENTION_TENSORS; ++i) {
    const int given = read_tensor(a[i], of + i, names[i], function);
    if (given < 0) return 1;
    if (given) *to[i] = of + i;
  }
  o->max_seqlen_q = PyLong_AsUnsignedLongLong(a[5]), o->max_seqlen_kv = PyLong_AsUnsignedLongLong(a[6]);
  o->promoted = PyObject_IsTrue(a[7]);
  return PyErr_Occurred() != NULL;
}
/* stream, q, k, v, o, lse, scale, causal, window_left, window_right, soft_cap, slopes, mask, key_lengths, score,
 * score_data, and more or not */
FUNCTION(attention, n > 16 ? 16 + ATTENTION_MORE : 16)
  TENSOR(q, 1)
  TENSOR(k, 2)
  TENSOR(v, 3)
  TENSOR(out, 4)
  TENSOR(lse, 5)
  TENSOR(slopes, 11)
  TENSOR(mask, 12)
  TENSOR(key_lengths, 13)
  TENSOR(score_data, 15)
  cgp_attention_options o;
  cgp_tensor more[ATTENTION_TENSORS];
  if (attention_numbers(a + 6, &o) || (n > 16 && attention_more(a + 16, &o, more, "attention"))) return NULL;
  PyObject* text;
  if (attention_score(a[14], &o, &text)) return NULL;
  o.slopes = slopes, o.mask = mask, o.key_lengths = key_lengths, o.score_data = score_data;
  const cgp_status status = cgp_attention(handle(a[0]), q, k, v, &o, out, lse);
  Py_XDECREF(text);
  return done(status);
END
FUNCTION(softmax, 3)
  TENSOR(x, 1)
  TENSOR(y, 2)
  return done(cgp_softmax(handle(a[0]), x, y));
END
/* stream, op, dim, x, y */
FUNCTION(reduce, 5)
  TENSOR(x, 3)
  TENSOR(y, 4)
  return done(cgp_reduce(handle(a[0]), (int32_t)PyLong_AsLong(a[1]), (int32_t)PyLong_AsLong(a[2]), x, y));
END
FUNCTION(transpose, 3)
  TENSOR(x, 1)
  TENSOR(y, 2)
  return done(cgp_transpose(handle(a[0]), x, y));
END
FUNCTION(add, 4)
  TENSOR(x, 1)
  TENSOR(y, 2)
  TENSOR(z, 3)
  return done(cgp_add(handle(a[0]), x, y, z));
END

static float real(PyObject* o) { return (float)PyFloat_AsDouble(o); }
static int32_t small(PyObject* o) { return (int32_t)PyLong_AsLong(o); }

/* stream, layer, x, y, residual, weight, bias, sum, mean, rstd, eps, weight_offset */
FUNCTION(norm, 12)
  TENSOR(x, 2)
  TENSOR(y, 3)
  TENSOR(residual, 4)
  TENSOR(weight, 5)
  TENSOR(bias, 6)
  TENSOR(sum, 7)
  TENSOR(mean, 8)
  TENSOR(rstd, 9)
  OPTIONS(cgp_norm_options)
  o.eps = real(a[10]), o.weight_offset = real(a[11]);
  const int layer = PyObject_IsTrue(a[1]);
  if (PyErr_Occurred()) return NULL;
  o.residual = residual, o.weight = weight, o.bias = bias, o.sum = sum, o.mean = mean, o.rstd = rstd;
  return done((layer ? cgp_layer_norm : cgp_rms_norm)(handle(a[0]), x, &o, y));
END
/* stream, layer, x, dy, dx, dsum, weight, mean, rstd, dweight, dbias, weight_offset */
FUNCTION(norm_backward, 12)
  TENSOR(x, 2)
  TENSOR(dy, 3)
  TENSOR(dx, 4)
  TENSOR(dsum, 5)
  TENSOR(weight, 6)
  TENSOR(mean, 7)
  TENSOR(rstd, 8)
  TENSOR(dweight, 9)
  TENSOR(dbias, 10)
  OPTIONS(cgp_norm_backward_options)
  o.weight_offset = real(a[11]);
  const int layer = PyObject_IsTrue(a[1]);
  if (PyErr_Occurred()) return NULL;
  o.dsum = dsum, o.weight = weight, o.mean = mean, o.rstd = rstd, o.dweight = dweight, o.dbias = dbias;
  return done((layer ? cgp_layer_norm_backward : cgp_rms_norm_backward)(handle(a[0]), x, dy, &o, dx));
END
/* stream, logits, targets, loss, lse, dlogits, scale, error_flag, ignore_index, label_smoothing, z_loss */
FUNCTION(cross_entropy, 11)
  TENSOR(logits, 1)
  TENSOR(targets, 2)
  TENSOR(loss, 3)
  TENSOR(lse, 4)
  TENSOR(dlogits, 5)
  TENSOR(scale, 6)
  TENSOR(error_flag, 7)
  OPTIONS(cgp_cross_entropy_options)
  o.ignore_index = PyLong_AsLongLong(a[8]);
  o.label_smoothing = real(a[9]), o.z_loss = real(a[10]);
  if (PyErr_Occurred()) return NULL;
  o.scale = scale, o.error_flag = error_flag;
  return done(cgp_cross_entropy(handle(a[0]), logits, targets, &o, loss, lse, dlogits));
END
/* stream, targets, ignore_index, scale */
FUNCTION(count_targets, 4)
  TENSOR(targets, 1)
  TENSOR(scale, 3)
  return done(cgp_count_targets(handle(a[0]), targets, PyLong_AsLongLong(a[2]), scale));
END
/* stream, losses, targets, ignore_index, scale, loss */
FUNCTION(mean_loss, 6)
  TENSOR(losses, 1)
  TENSOR(targets, 2)
  TENSOR(scale, 4)
  TENSOR(loss, 5)
  const int64_t ignore = PyLong_AsLongLong(a[3]);
  if (PyErr_Occurred()) return NULL;
  return done(cgp_mean_loss(handle(a[0]), losses, targets, ignore, scale, loss));
END
/* stream, x, y, cos, sin, positions, sequence, offset, rotary, interleaved, inverse, scaling, base, factor,
 * original_positions */
FUNCTION(rope, 15)
  TENSOR(x, 1)
  TENSOR(y, 2)
  TENSOR(cos, 3)
  TENSOR(sin, 4)
  TENSOR(positions, 5)
  OPTIONS(cgp_rope_options)
  o.sequence = PyLong_AsUnsignedLongLong(a[6]), o.offset = PyLong_AsUnsignedLongLong(a[7]);
  o.rotary = PyLong_AsUnsignedLongLong(a[8]);
  o.interleaved = PyObject_IsTrue(a[9]), o.inverse = PyObject_IsTrue(a[10]), o.scaling = small(a[11]);
  o.base = PyFloat_AsDouble(a[12]), o.factor = PyFloat_AsDouble(a[13]), o.original_positions = PyFloat_AsDouble(a[14]);
  if (PyErr_Occurred()) return NULL;
  o.cos = cos, o.sin = sin, o.positions = positions;
  return done(cgp_rope(handle(a[0]), x, &o, y));
END
/* stream, activation, x, bias, y */
FUNCTION(activate, 5)
  TENSOR(x, 2)
  TENSOR(bias, 3)
  TENSOR(y, 4)
  return done(cgp_activate(handle(a[0]), small(a[1]), x, bias, y));
END
/* stream, activation, x, bias, dy, dx */
FUNCTION(activate_backward, 6)
  TENSOR(x, 2)
  TENSOR(bias, 3)
  TENSOR(dy, 4)
  TENSOR(dx, 5)
  return done(cgp_activate_backward(handle(a[0]), small(a[1]), x, bias, dy, dx));
END
/* stream, activation, gate, up, out */
FUNCTION(gated, 5)
  TENSOR(gate, 2)
  TENSOR(up, 3)
  TENSOR(out, 4)
  return done(cgp_gated(handle(a[0]), small(a[1]), gate, up, out));
END
/* stream, activation, gate, up, dout, dgate, dup */
FUNCTION(gated_backward, 7)
  TENSOR(gate, 2)
  TENSOR(up, 3)
  TENSOR(dout, 4)
  TENSOR(dgate, 5)
  TENSOR(dup, 6)
  return done(cgp_gated_backward(handle(a[0]), small(a[1]), gate, up, dout, dgate, dup));
END
FUNCTION(log_softmax, 3)
  TENSOR(x, 1)
  TENSOR(y, 2)
  return done(cgp_log_softmax(handle(a[0]), x, y));
END
/* stream, log, y, dy, dx */
FUNCTION(softmax_backward, 5)
  TENSOR(y, 2)
  TENSOR(dy, 3)
  TENSOR(dx, 4)
  const int log = PyObject_IsTrue(a[1]);
  return done((log ? cgp_log_softmax_backward : cgp_softmax_backward)(handle(a[0]), y, dy, dx));
END

/* stream, q, k, v, o, lse, d_o, d_q, d_k, d_v, scale, causal, window_left, window_right, soft_cap, slopes, mask,
 * key_lengths, nondeterministic, score, score_data, and more or not */
FUNCTION(attention_backward, n > 21 ? 21 + ATTENTION_MORE : 21)
  TENSOR(q, 1)
  TENSOR(k, 2)
  TENSOR(v, 3)
  TENSOR(out, 4)
  TENSOR(lse, 5)
  TENSOR(d_o, 6)
  TENSOR(d_q, 7)
  TENSOR(d_k, 8)
  TENSOR(d_v, 9)
  TENSOR(slopes, 15)
  TENSOR(mask, 16)
  TENSOR(key_lengths, 17)
  TENSOR(score_data, 20)
  cgp_attention_options o;
  cgp_tensor more[ATTENTION_TENSORS];
  if (attention_numbers(a + 10, &o) || (n > 21 && attention_more(a + 21, &o, more, "attention_backward"))) return NULL;
  PyObject* text;
  if (attention_score(a[19], &o, &text)) return NULL;
  o.slopes = slopes, o.mask = mask, o.key_lengths = key_lengths, o.score_data = score_data;
  o.nondeterministic = PyObject_IsTrue(a[18]);
  const cgp_status status = cgp_attention_backward(handle(a[0]), q, k, v, &o, out, lse, d_o, d_q, d_k, d_v);
  Py_XDECREF(text);
  return done(status);
END
/* stream, indices, weight, error_flag, out */
FUNCTION(embedding, 5)
  TENSOR(indices, 1)
  TENSOR(weight, 2)
  TENSOR(error_flag, 3)
  TENSOR(out, 4)
  return done(cgp_embedding(handle(a[0]), indices, weight, error_flag, out));
END
/* stream, indices, dout, padding_idx, error_flag, dweight */
FUNCTION(embedding_backward, 6)
  TENSOR(indices, 1)
  TENSOR(dout, 2)
  TENSOR(error_flag, 4)
  TENSOR(dweight, 5)
  const int64_t padding = PyLong_AsLongLong(a[3]);
  if (PyErr_Occurred()) return NULL;
  return done(cgp_embedding_backward(handle(a[0]), indices, dout, padding, error_flag, dweight));
END
FUNCTION(embedding_backward_accumulate, 6)
  TENSOR(indices, 1)
  TENSOR(dout, 2)
  TENSOR(error_flag, 4)
  TENSOR(dweight, 5)
  const int64_t padding = PyLong_AsLongLong(a[3]);
  if (PyErr_Occurred()) return NULL;
  return done(cgp_embedding_backward_accumulate(handle(a[0]), indices, dout, padding, error_flag, dweight));
END
/* stream, x, p, seed, offset, y */
FUNCTION(dropout, 6)
  TENSOR(x, 1)
  TENSOR(y, 5)
  const double p = PyFloat_AsDouble(a[2]);
  const uint64_t seed = PyLong_AsUnsignedLongLongMask(a[3]), offset = PyLong_AsUnsignedLongLongMask(a[4]);
  if (PyErr_Occurred()) return NULL;
  return done(cgp_dropout(handle(a[0]), x, p, seed, offset, y));
END
/* stream, x, index, values */
FUNCTION(argmax, 4)
  TENSOR(x, 1)
  TENSOR(index, 2)
  TENSOR(values, 3)
  return done(cgp_argmax(handle(a[0]), x, index, values));
END
/* stream, x, values, index */
FUNCTION(topk, 4)
  TENSOR(x, 1)
  TENSOR(values, 2)
  TENSOR(index, 3)
  return done(cgp_topk(handle(a[0]), x, values, index));
END
/* stream, x, exclusive, y */
FUNCTION(cumsum, 4)
  TENSOR(x, 1)
  TENSOR(y, 3)
  return done(cgp_cumsum(handle(a[0]), x, PyObject_IsTrue(a[2]), y));
END
/* stream, x, weight0, weight1, weight2, bias0, bias1, bias2, residual, norm_weight, norm_bias, eps, weight_offset, norm,
 * activation, gated, pdl, prefetch0, prefetch1, prefetch_bytes, y */
FUNCTION(decode_linear, 21)
  TENSOR(x, 1)
  TENSOR(weight0, 2)
  TENSOR(weight1, 3)
  TENSOR(weight2, 4)
  TENSOR(bias0, 5)
  TENSOR(bias1, 6)
  TENSOR(bias2, 7)
  TENSOR(residual, 8)
  TENSOR(norm_weight, 9)
  TENSOR(norm_bias, 10)
  TENSOR(prefetch0, 17)
  TENSOR(prefetch1, 18)
  TENSOR(y, 20)
  OPTIONS(cgp_decode_linear_options)
  o.eps = real(a[11]), o.weight_offset = real(a[12]);
  o.norm = small(a[13]), o.activation = small(a[14]);
  o.gated = PyObject_IsTrue(a[15]), o.pdl = PyObject_IsTrue(a[16]);
  o.prefetch_bytes = PyLong_AsUnsignedLongLong(a[19]);
  if (PyErr_Occurred()) return NULL;
  o.prefetch0 = prefetch0, o.prefetch1 = prefetch1;
  o.weight0 = weight0, o.weight1 = weight1, o.weight2 = weight2, o.bias0 = bias0, o.bias1 = bias1, o.bias2 = bias2;
  o.residual = residual, o.norm_weight = norm_weight, o.norm_bias = norm_bias;
  return done(cgp_decode_linear(handle(a[0]), x, &o, y));
END
/* stream, qkv, cos, sin, q_weight, k_weight, lengths, offset, eps, pdl, table, error_flag, pool */
FUNCTION(qkv_append, 13)
  TENSOR(qkv, 1)
  TENSOR(cos, 2)
  TENSOR(sin, 3)
  TENSOR(q_weight, 4)
  TENSOR(k_weight, 5)
  TENSOR(lengths, 6)
  TENSOR(table, 10)
  TENSOR(error_flag, 11)
  TENSOR(pool, 12)
  OPTIONS(cgp_qkv_append_options)
  o.offset = PyLong_AsUnsignedLongLong(a[7]), o.eps = real(a[8]), o.pdl = PyObject_IsTrue(a[9]);
  if (PyErr_Occurred()) return NULL;
  o.cos = cos, o.sin = sin, o.q_weight = q_weight, o.k_weight = k_weight, o.lengths = lengths;
  return done(cgp_qkv_append(handle(a[0]), qkv, &o, table, error_flag, pool));
END
static int paged_options(PyObject* scale, PyObject* pdl, PyObject* max_length, PyObject* scales, PyObject* share,
                         cgp_paged_attention_options* o) {
  memset(o, 0, sizeof *o);
  o->size = sizeof *o;
  o->scale = real(scale), o->pdl = PyObject_IsTrue(pdl), o->max_length = PyLong_AsUnsignedLongLong(max_length);
  o->share = PyLong_AsUnsignedLongLong(share);
  if (scales != Py_None && !PyArg_ParseTuple(scales, "ff", &o->key_scale, &o->value_scale)) return 1;
  return PyErr_Occurred() != NULL;
}
/* stream, q, pool, table, scale, pdl, max_length, (key scale, value scale) or None, share -> bytes */
FUNCTION(paged_attention_workspace, 9)
  TENSOR(q, 1)
  TENSOR(pool, 2)
  TENSOR(table, 3)
  cgp_paged_attention_options o;
  if (paged_options(a[4], a[5], a[6], a[7], a[8], &o)) return NULL;
  uint64_t bytes = 0;
  const cgp_status status = cgp_paged_attention_workspace(handle(a[0]), q, pool, table, &o, &bytes);
  torch_end();
  return status ? fail(status) : PyLong_FromUnsignedLongLong(bytes);
END
/* stream, q, pool, table, lengths, scale, pdl, max_length, workspace, error_flag, o, (key scale, value scale) or None, share,
 * shared or None */
FUNCTION(paged_attention, 14)
  TENSOR(q, 1)
  TENSOR(pool, 2)
  TENSOR(table, 3)
  TENSOR(lengths, 4)
  TENSOR(workspace, 8)
  TENSOR(error_flag, 9)
  TENSOR(out, 10)
  TENSOR(shared, 13)
  cgp_paged_attention_options o;
  if (paged_options(a[5], a[6], a[7], a[11], a[12], &o)) return NULL;
  o.shared = shared;
  return done(cgp_paged_attention(handle(a[0]), q, pool, table, lengths, &o, workspace, error_flag, out));
END

/* ---- pages of a cache */
static uint64_t number(PyObject* o) { return PyLong_AsUnsignedLongLong(o); }
FUNCTION(kv_pages_new, 2)
  const uint64_t pages = number(a[0]), size = number(a[1]);
  if (PyErr_Occurred()) return NULL;
  if (pages > UINT32_MAX || size > UINT32_MAX) {
    PyErr_SetString(PyExc_OverflowError, "pages and page_size must be below 2^32");
    return NULL;
  }
  cgp_kv_pages* made = NULL;
  const cgp_status status = cgp_kv_pages_new((uint32_t)pages, (uint32_t)size, &made);
  return status ? fail(status) : as_handle(made);
END
FUNCTION(kv_pages_free, 1)
  cgp_kv_pages_free(handle(a[0]));
  return done(CGP_OK);
END
FUNCTION(kv_pages_left, 1)
  uint32_t left = 0;
  const cgp_status status = cgp_kv_pages_left(handle(a[0]), &left);
  return status ? fail(status) : PyLong_FromUnsignedLong(left);
END
FUNCTION(kv_add, 1)
  uint64_t sequence = 0;
  const cgp_status status = cgp_kv_add(handle(a[0]), &sequence);
  return status ? fail(status) : PyLong_FromUnsignedLongLong(sequence);
END
/* pages, parent, tokens */
FUNCTION(kv_fork, 3)
  uint64_t sequence = 0;
  const uint64_t parent = number(a[1]), tokens = number(a[2]);
  if (PyErr_Occurred()) return NULL;
  const cgp_status status = cgp_kv_fork(handle(a[0]), parent, tokens, &sequence);
  return status ? fail(status) : PyLong_FromUnsignedLongLong(sequence);
END
/* pages, sequence, tokens, host address of the slots -> (from, to, tokens) */
FUNCTION(kv_extend, 4)
  const uint64_t sequence = number(a[1]), tokens = number(a[2]);
  uint64_t* slots = (uint64_t*)(uintptr_t)number(a[3]);
  if (PyErr_Occurred()) return NULL;
  cgp_kv_page_copy copy;
  const cgp_status status = cgp_kv_extend(handle(a[0]), sequence, tokens, slots, &copy);
  return status ? fail(status) : Py_BuildValue("(III)", copy.from, copy.to, copy.tokens);
END
/* pages, sequence, length */
FUNCTION(kv_truncate, 3)
  const uint64_t sequence = number(a[1]), length = number(a[2]);
  if (PyErr_Occurred()) return NULL;
  return done(cgp_kv_truncate(handle(a[0]), sequence, length));
END
/* pages, sequence */
FUNCTION(kv_free, 2)
  const uint64_t sequence = number(a[1]);
  if (PyErr_Occurred()) return NULL;
  return done(cgp_kv_free(handle(a[0]), sequence));
END
FUNCTION(kv_length, 2)
  uint64_t length = 0;
  const uint64_t sequence = number(a[1]);
  if (PyErr_Occurred()) return NULL;
  const cgp_status status = cgp_kv_length(handle(a[0]), sequence, &length);
  return status ? fail(status) : PyLong_FromUnsignedLongLong(length);
END
/* pages, host address of the sequences, their number, columns, host address of the tables */
FUNCTION(kv_tables, 5)
  const uint64_t* sequences = (const uint64_t*)(uintptr_t)number(a[1]);
  const uint64_t count_of = number(a[2]), columns = number(a[3]);
  int32_t* tables = (int32_t*)(uintptr_t)number(a[4]);
  if (PyErr_Occurred()) return NULL;
  return done(cgp_kv_tables(handle(a[0]), sequences, count_of, columns, tables));
END
#define SCALES(index)       \
  OPTIONS(cgp_kv_options)   \
  if (!PyArg_ParseTuple(a[index], "ff", &o.key_scale, &o.value_scale)) return NULL;
/* stream, k, v, slots, (key scale, value scale), error_flag, pool */
FUNCTION(kv_append, 7)
  TENSOR(k, 1)
  TENSOR(v, 2)
  TENSOR(slots, 3)
  TENSOR(error_flag, 5)
  TENSOR(pool, 6)
  SCALES(4)
  return done(cgp_kv_append(handle(a[0]), k, v, slots, &o, error_flag, pool));
END
/* stream, pool, (from, to, tokens) */
FUNCTION(kv_copy, 3)
  TENSOR(pool, 1)
  cgp_kv_page_copy copy;
  if (!PyArg_ParseTuple(a[2], "III", &copy.from, &copy.to, &copy.tokens)) return NULL;
  return done(cgp_kv_copy(handle(a[0]), pool, &copy));
END
/* stream, pool, table, lengths, (key scale, value scale), error_flag, k, v */
FUNCTION(kv_gather, 8)
  TENSOR(pool, 1)
  TENSOR(table, 2)
  TENSOR(lengths, 3)
  TENSOR(error_flag, 5)
  TENSOR(k, 6)
  TENSOR(v, 7)
  SCALES(4)
  return done(cgp_kv_gather(handle(a[0]), pool, table, lengths, &o, error_flag, k, v));
END
/* stream, ((function, arguments without the stream), ...): one after another. What a step of decoding queues, without
 * Python between the calls. */
FUNCTION(run, 2)
  const Py_ssize_t calls = PyTuple_Check(a[1]) ? PyTuple_Size(a[1]) : -1;
  if (calls < 0) {
    PyErr_SetString(PyExc_TypeError, "run() takes a stream and a tuple of (function, arguments)");
    return NULL;
  }
  for (Py_ssize_t i = 0; i < calls; ++i) {
    PyObject* call = PyTuple_GetItem(a[1], i);
    PyObject* arguments = call && PyTuple_Check(call) && PyTuple_Size(call) == 2 ? PyTuple_GetItem(call, 1) : NULL;
    if (!arguments || !PyTuple_Check(arguments)) {
      PyErr_SetString(PyExc_TypeError, "run(): a call is (function, tuple of arguments)");
      return NULL;
    }
    const Py_ssize_t count_of = PyTuple_Size(arguments);
    PyObject* all = PyTuple_New(count_of + 1);
    if (!all) return NULL;
    Py_INCREF(a[0]);
    PyTuple_SetItem(all, 0, a[0]);
    for (Py_ssize_t j = 0; j < count_of; ++j) {
      PyObject* item = PyTuple_GetItem(arguments, j);
      Py_INCREF(item);
      PyTuple_SetItem(all, j + 1, item);
    }
    PyObject* result = PyObject_CallObject(PyTuple_GetItem(call, 0), all);
    Py_DECREF(all);
    if (!result) return NULL;
    Py_DECREF(result);
  }
  Py_RETURN_NONE;
END

#include "core_kernel.inc"
#include "core_quantized.inc"
#include "core_llm.inc"
#include "core_optimizer.inc"
#include "core_distributed.inc"

#define METHOD(name) {#name, (PyCFunction)(void (*)(void))py_##name, METH_FASTCALL, NULL}
static PyMethodDef methods[] = {METHOD(set_exceptions), METHOD(version),     METHOD(device_open), METHOD(device_info),
                                METHOD(jit_count),      METHOD(alloc),       METHOD(free),        METHOD(upload),
                                METHOD(download),       METHOD(stream_new),  METHOD(stream_borrow), METHOD(stream_wait),
                                METHOD(stream_free),    METHOD(stream_set_scratch), METHOD(gemm), METHOD(attention),
                                METHOD(softmax),        METHOD(reduce),      METHOD(transpose),   METHOD(add),
                                METHOD(norm),           METHOD(norm_backward), METHOD(cross_entropy), METHOD(count_targets),
                                METHOD(rope),           METHOD(activate),    METHOD(activate_backward), METHOD(gated),
                                METHOD(gated_backward), METHOD(log_softmax), METHOD(softmax_backward),
                                METHOD(attention_backward), METHOD(embedding), METHOD(embedding_backward),
                                METHOD(dropout),        METHOD(embedding_backward_accumulate),
                                METHOD(argmax),         METHOD(topk),        METHOD(cumsum),      METHOD(decode_linear),
                                METHOD(qkv_append),     METHOD(paged_attention), METHOD(paged_attention_workspace), METHOD(run),
                                METHOD(kv_pages_new),   METHOD(kv_pages_free), METHOD(kv_pages_left), METHOD(kv_add),
                                METHOD(kv_fork),        METHOD(kv_extend),   METHOD(kv_truncate), METHOD(kv_free),
                                METHOD(kv_length),      METHOD(kv_tables),   METHOD(kv_append),   METHOD(kv_copy),
                                METHOD(kv_gather),
                                METHOD(mean_loss),      METHOD(torch_use),   METHOD(torch_way),   METHOD(torch_stream),
                                METHOD(torch_empty),
                                METHOD(quantized_matmul), METHOD(quantized_grouped_matmul), METHOD(dequantize), METHOD(quantize),   METHOD(quantize_int4),
                                METHOD(quantize_fp8),   METHOD(quantized_bytes), METHOD(quantized_check),
                                METHOD(quantized_weight_pack), METHOD(quantized_weight_pack_on), METHOD(gguf_open), METHOD(gguf_free),
                                METHOD(gguf_tensors),   METHOD(gguf_read),
                                METHOD(llm_load),       METHOD(llm_free),    METHOD(llm_info),    METHOD(llm_encode),
                                METHOD(llm_decode),     METHOD(llm_chat_prompt), METHOD(llm_submit), METHOD(llm_step),
                                METHOD(llm_cancel),     METHOD(llm_text),    METHOD(llm_take),    METHOD(llm_perplexity),
                                METHOD(alloc_named), METHOD(module_load),
                                METHOD(module_free),    METHOD(module_kernels), METHOD(kernel_open), METHOD(kernel_free),
                                METHOD(kernel_info),    METHOD(kernel_launch),
                                METHOD(optimizer_chunks), METHOD(optimizer_norm), METHOD(optimizer_control),
                                METHOD(optimizer_update), METHOD(optimizer_clip), METHOD(lora_linear), METHOD(torch_key),
                                METHOD(communicator_new), METHOD(communicator_free), METHOD(all_reduce), METHOD(all_gather),
                                METHOD(reduce_scatter), METHOD(all_to_all),  METHOD(broadcast),   METHOD(barrier),
                                METHOD(all_gather_gemm), METHOD(gemm_reduce_scatter), METHOD(gemm_all_reduce),
                                {NULL, NULL, 0, NULL}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "cgp._core", "The C interface of cgp.", -1, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void) {
  if (cgp_abi_version() != CGP_ABI_VERSION) {
    PyErr_Format(PyExc_ImportError, "cgp._core was built for version %d of the C interface, libcgp.so has %u", CGP_ABI_VERSION,
                 (unsigned)cgp_abi_version());
    return NULL;
  }
  return PyModule_Create(&module);
}
