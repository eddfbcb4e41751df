/* SPDX-License-Identifier: Apache-2.0 */
/* cgp._core: the C interface (cgp/capi/cgp.h) for Python, on the limited API. Arrays come as tuples
 * (address, dtype, shape, strides in elements) or None; handles are integers. The Python side of the package owns
 * them and gives the messages their exception classes (set_exceptions). */
#include <Python.h>

#include <string.h>

#include "cgp/capi/cgp.h"

static PyObject* exceptions[7]; /* by cgp_status */
static PyObject* scratch_callback;

static PyObject* fail(cgp_status status) {
  PyObject* type = status < 7 && exceptions[status] ? exceptions[status] : PyExc_RuntimeError;
  if (!PyErr_Occurred()) PyErr_SetString(type, cgp_last_error());
  return NULL;
}
static PyObject* done(cgp_status status) {
  if (status != CGP_OK || PyErr_Occurred()) return fail(status);
  Py_RETURN_NONE;
}

static int read_list(PyObject* list, int64_t* out, int32_t* rank, const char* what) {
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
static int read_tensor(PyObject* o, cgp_tensor* t, const char* what) {
  if (o == Py_None) return 0;
  if (!PyTuple_Check(o) || PyTuple_Size(o) != 4) {
    PyErr_Format(PyExc_TypeError, "%s must be (address, dtype, shape, strides) or None", what);
    return -1;
  }
  memset(t, 0, sizeof *t);
  t->address = PyLong_AsUnsignedLongLong(PyTuple_GetItem(o, 0));
  t->dtype = (int32_t)PyLong_AsLong(PyTuple_GetItem(o, 1));
  if (PyErr_Occurred()) return -1;
  int32_t strides = 0;
  if (read_list(PyTuple_GetItem(o, 2), t->shape, &t->rank, what) || read_list(PyTuple_GetItem(o, 3), t->stride, &strides, what))
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
static void* handle(PyObject* o) { return (void*)(uintptr_t)PyLong_AsUnsignedLongLong(o); }
static PyObject* as_handle(void* p) { return PyLong_FromUnsignedLongLong((uintptr_t)p); }

#define FUNCTION(name, arguments)                                                   \
  static PyObject* py_##name(PyObject* self, PyObject* const* a, Py_ssize_t n) {    \
    (void)self, (void)a;                                                            \
    if (count(n, arguments, #name)) return NULL;
#define END }
/* A tensor argument: `name` is NULL where None was given. */
#define TENSOR(name, index)                                         \
  cgp_tensor name##_;                                               \
  const int name##_given = read_tensor(a[index], &name##_, #name);  \
  if (name##_given < 0) return NULL;                                \
  const cgp_tensor* name = name##_given ? &name##_ : NULL;

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
  PyObject* result = PyObject_CallFunction(scratch_callback, "K", (unsigned long long)bytes);
  if (!result) return 0;
  const uint64_t address = PyLong_AsUnsignedLongLong(result);
  Py_DECREF(result);
  return PyErr_Occurred() ? 0 : address;
}
/* stream, callable(bytes) -> address: one callable serves all streams */
FUNCTION(stream_set_scratch, 2)
  Py_INCREF(a[1]);
  Py_XDECREF(scratch_callback);
  scratch_callback = a[1];
  return done(cgp_stream_set_scratch(handle(a[0]), lend, NULL));
END

/* stream, a, b, c, alpha, beta, precision, activation, swiglu, scaling, bias, residual, scale_a, scale_b */
FUNCTION(gemm, 14)
  TENSOR(a_tensor, 1)
  TENSOR(b, 2)
  TENSOR(c, 3)
  TENSOR(bias, 10)
  TENSOR(residual, 11)
  TENSOR(scale_a, 12)
  TENSOR(scale_b, 13)
  cgp_gemm_options o;
  memset(&o, 0, sizeof o);
  o.size = sizeof o;
  o.alpha = (float)PyFloat_AsDouble(a[4]), o.beta = (float)PyFloat_AsDouble(a[5]);
  o.precision = (int32_t)PyLong_AsLong(a[6]), o.activation = (int32_t)PyLong_AsLong(a[7]);
  o.swiglu = (int32_t)PyLong_AsLong(a[8]), o.scaling = (int32_t)PyLong_AsLong(a[9]);
  if (PyErr_Occurred()) return NULL;
  o.bias = bias, o.residual = residual, o.scale_a = scale_a, o.scale_b = scale_b;
  return done(cgp_gemm(handle(a[0]), a_tensor, b, &o, c));
END
/* stream, q, k, v, o, lse, scale, causal, window_left, window_right, soft_cap, slopes, mask, key_lengths */
FUNCTION(attention, 14)
  TENSOR(q, 1)
  TENSOR(k, 2)
  TENSOR(v, 3)
  TENSOR(out, 4)
  TENSOR(lse, 5)
  TENSOR(slopes, 11)
  TENSOR(mask, 12)
  TENSOR(key_lengths, 13)
  cgp_attention_options o;
  memset(&o, 0, sizeof o);
  o.size = sizeof o;
  o.scale = (float)PyFloat_AsDouble(a[6]), o.causal = (int32_t)PyLong_AsLong(a[7]);
  o.window_left = (int32_t)PyLong_AsLong(a[8]), o.window_right = (int32_t)PyLong_AsLong(a[9]);
  o.soft_cap = (float)PyFloat_AsDouble(a[10]);
  if (PyErr_Occurred()) return NULL;
  o.slopes = slopes, o.mask = mask, o.key_lengths = key_lengths;
  return done(cgp_attention(handle(a[0]), q, k, v, &o, out, lse));
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
  cgp_norm_options o;
  memset(&o, 0, sizeof o);
  o.size = sizeof o;
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
  cgp_norm_backward_options o;
  memset(&o, 0, sizeof o);
  o.size = sizeof o;
  o.weight_offset = real(a[11]);
  const int layer = PyObject_IsTrue(a[1]);
  if (PyErr_Occurred()) return NULL;
  o.dsum = dsum, o.weight = weight, o.mean = mean, o.rstd = rstd, o.dweight = dweight, o.dbias = dbias;
  return done((layer ? cgp_layer_norm_backward : cgp_rms_norm_backward)(handle(a[0]), x, dy, &o, dx));
END
/* stream, logits, targets, loss, lse, dlogits, scale, errors, ignore_index, label_smoothing, z_loss */
FUNCTION(cross_entropy, 11)
  TENSOR(logits, 1)
  TENSOR(targets, 2)
  TENSOR(loss, 3)
  TENSOR(lse, 4)
  TENSOR(dlogits, 5)
  TENSOR(scale, 6)
  TENSOR(errors, 7)
  cgp_cross_entropy_options o;
  memset(&o, 0, sizeof o);
  o.size = sizeof o;
  o.ignore_index = PyLong_AsLongLong(a[8]);
  o.label_smoothing = real(a[9]), o.z_loss = real(a[10]);
  if (PyErr_Occurred()) return NULL;
  o.scale = scale, o.errors = errors;
  return done(cgp_cross_entropy(handle(a[0]), logits, targets, &o, loss, lse, dlogits));
END
/* stream, targets, ignore_index, scale */
FUNCTION(count_targets, 4)
  TENSOR(targets, 1)
  TENSOR(scale, 3)
  return done(cgp_count_targets(handle(a[0]), targets, PyLong_AsLongLong(a[2]), scale));
END
/* stream, x, y, cos, sin, positions, sequence, offset, rotary, interleaved, inverse, scaling, base, factor,
 * original_positions */
FUNCTION(rope, 15)
  TENSOR(x, 1)
  TENSOR(y, 2)
  TENSOR(cos, 3)
  TENSOR(sin, 4)
  TENSOR(positions, 5)
  cgp_rope_options o;
  memset(&o, 0, sizeof o);
  o.size = sizeof o;
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

#define METHOD(name) {#name, (PyCFunction)(void (*)(void))py_##name, METH_FASTCALL, NULL}
static PyMethodDef methods[] = {METHOD(set_exceptions), METHOD(version),     METHOD(device_open), METHOD(device_info),
                                METHOD(jit_count),      METHOD(alloc),       METHOD(free),        METHOD(upload),
                                METHOD(download),       METHOD(stream_new),  METHOD(stream_borrow), METHOD(stream_wait),
                                METHOD(stream_free),    METHOD(stream_set_scratch), METHOD(gemm), METHOD(attention),
                                METHOD(softmax),        METHOD(reduce),      METHOD(transpose),   METHOD(add),
                                METHOD(norm),           METHOD(norm_backward), METHOD(cross_entropy), METHOD(count_targets),
                                METHOD(rope),           METHOD(activate),    METHOD(activate_backward), METHOD(gated),
                                METHOD(gated_backward), METHOD(log_softmax), METHOD(softmax_backward),
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
