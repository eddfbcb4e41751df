/* SPDX-License-Identifier: Apache-2.0 */
#include "core_torch.h"

#include <string.h>

/* What torch_use() was given, in its order. */
enum {
  TENSOR,    /* types whose tensors are plain: */
  PARAMETER, /* torch.Tensor, torch.nn.Parameter */
  CODES,     /* {torch.dtype: cgp_dtype} */
  DATA_PTR,  /* methods of torch.Tensor */
  STRIDE,
  GET_DEVICE,
  IS_CONTIGUOUS,
  RAW_STREAM,      /* (device) -> CUstream */
  CURRENT_DEVICE,  /* () -> device */
  EXCHANGE_DEVICE, /* (device) -> the one before */
  OPEN_STREAM,     /* (device, CUstream) -> handle of the C interface */
  REFUSE,          /* (function, argument, tensor, device): raises */
  GRAD_ENABLED,    /* () -> whether gradients are recorded */
  WATCHERS,        /* functions () that give something true where somebody watches or traces */
  FORWARD,         /* the module torch.autograd.forward_ad, or None */
  EMPTY_STRIDED,   /* (shape, strides, dtype) -> a tensor on the current device, or None */
  EMPTY,           /* (tensor, what torch_empty() was given, shape, dtype) -> a tensor */
  GIVEN
};
static PyObject* given[GIVEN];
static PyObject *is_cuda, *requires_grad, *shape_name, *dtype_name, *level_name, *grad_name;

/* Handles of streams that were seen; they live as long as the process. */
static struct {
  long device;
  uint64_t stream;
  void* handle;
} streams[32];
static unsigned streams_seen;

#define LENT 8
static _Thread_local struct {
  long device; /* of the tensors read; -1: none was */
  long before; /* the current device before the call; -1: it is the same */
  int lent_count;
  PyObject* lent[LENT];
} call = {-1, -1, 0, {NULL}};

static int ready(void) {
  if (given[0]) return 1;
  PyErr_SetString(PyExc_RuntimeError, "cgp._core was not told about PyTorch (torch_use)");
  return 0;
}
static long as_long(PyObject* o) {
  if (!o) return -1;
  const long v = PyLong_AsLong(o);
  Py_DECREF(o);
  return v;
}
static PyObject* call0(int f) { return PyObject_CallNoArgs(given[f]); }
static PyObject* call1(int f, PyObject* o) { return PyObject_CallFunctionObjArgs(given[f], o, NULL); }

PyObject* py_torch_use(PyObject* self, PyObject* const* a, Py_ssize_t n) {
  (void)self;
  if (n != GIVEN) {
    PyErr_Format(PyExc_TypeError, "torch_use() takes %d arguments, got %zd", (int)GIVEN, n);
    return NULL;
  }
  is_cuda = PyUnicode_InternFromString("is_cuda"),
  requires_grad = PyUnicode_InternFromString("requires_grad");
  shape_name = PyUnicode_InternFromString("shape"), dtype_name = PyUnicode_InternFromString("dtype");
  level_name = PyUnicode_InternFromString("_current_level"), grad_name = PyUnicode_InternFromString("grad");
  for (int i = 0; i < GIVEN; ++i) {
    Py_INCREF(a[i]);
    Py_XDECREF(given[i]);
    given[i] = a[i];
  }
  Py_RETURN_NONE;
}

int torch_is_tensor(PyObject* o) {
  if (!given[0] || PyTuple_Check(o)) return 0;
  const PyTypeObject* type = Py_TYPE(o);
  return type == (PyTypeObject*)given[TENSOR] || type == (PyTypeObject*)given[PARAMETER] ||
         PyObject_IsInstance(o, given[TENSOR]) == 1;
}

void torch_begin(void) { call.device = call.before = -1; }

static int refuse(PyObject* o, const char* function, const char* what) {
  PyObject* r = PyObject_CallFunction(given[REFUSE], "ssOl", function, what, o, call.device);
  Py_XDECREF(r);
  if (!PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "%s: an argument cannot be used", function);
  return -1;
}
int torch_read(PyObject* o, cgp_tensor* t, const char* function, const char* what) {
  memset(t, 0, sizeof *t);
  const long device = as_long(call1(GET_DEVICE, o));
  if (device == -1 && PyErr_Occurred()) return -1;
  if (call.device < 0) call.device = device;
  PyObject* dtype = PyObject_GetAttr(o, dtype_name);
  if (!dtype) return -1;
  PyObject* code = PyDict_GetItemWithError(given[CODES], dtype);
  Py_DECREF(dtype);
  if (!code && PyErr_Occurred()) return -1;
  if (!code || device != call.device || device < 0) return refuse(o, function, what);
  t->dtype = (int32_t)PyLong_AsLong(code);
  PyObject* address = call1(DATA_PTR, o);
  if (!address) return -1;
  t->address = PyLong_AsUnsignedLongLong(address);
  Py_DECREF(address);
  PyObject* shape = PyObject_GetAttr(o, shape_name);
  PyObject* stride = shape ? call1(STRIDE, o) : NULL;
  int32_t strides = 0;
  const int bad = !stride || cgp_read_list(shape, t->shape, &t->rank, what) ||
                  cgp_read_list(stride, t->stride, &strides, what);
  Py_XDECREF(shape);
  Py_XDECREF(stride);
  return bad ? -1 : 1;
}

/* The handle of the current stream of `device`. */
static void* stream_of(long device) {
  PyObject* index = PyLong_FromLong(device);
  PyObject* raw = index ? call1(RAW_STREAM, index) : NULL;
  if (!raw) {
    Py_XDECREF(index);
    return NULL;
  }
  const uint64_t stream = PyLong_AsUnsignedLongLong(raw);
  void* handle = NULL;
  const unsigned held = sizeof streams / sizeof streams[0];
  for (unsigned i = 0; i < streams_seen && i < held && !handle; ++i)
    if (streams[i].device == device && streams[i].stream == stream) handle = streams[i].handle;
  if (!handle && !PyErr_Occurred()) {
    PyObject* opened = PyObject_CallFunctionObjArgs(given[OPEN_STREAM], index, raw, NULL);
    if (opened) {
      handle = (void*)(uintptr_t)PyLong_AsUnsignedLongLong(opened);
      Py_DECREF(opened);
      const unsigned at = streams_seen++ % held;
      streams[at].device = device, streams[at].stream = stream, streams[at].handle = handle;
    }
  }
  Py_DECREF(index);
  Py_DECREF(raw);
  return PyErr_Occurred() ? NULL : handle;
}
static long exchange(long device) {
  PyObject* index = PyLong_FromLong(device);
  const long before = index ? as_long(call1(EXCHANGE_DEVICE, index)) : -1;
  Py_XDECREF(index);
  return before;
}
void* torch_stream(void) {
  if (!ready()) return NULL;
  if (call.device < 0) {
    PyErr_SetString(PyExc_TypeError, "there is no stream without a tensor of PyTorch");
    return NULL;
  }
  const long current = as_long(call0(CURRENT_DEVICE));
  if (current != call.device) {
    if (PyErr_Occurred()) return NULL;
    call.before = exchange(call.device);
    if (PyErr_Occurred()) return NULL;
  }
  return stream_of(call.device);
}
void torch_end(void) {
  while (call.lent_count) {
    PyObject* block = call.lent[--call.lent_count];
    Py_DECREF(block);
  }
  if (call.before < 0) return;
  PyObject *type, *value, *trace; /* an error on the way back must not hide the one of the call */
  PyErr_Fetch(&type, &value, &trace);
  exchange(call.before);
  call.before = -1;
  if (type) PyErr_Clear(), PyErr_Restore(type, value, trace);
}
uint64_t torch_lend(PyObject* callable, uint64_t bytes) {
  PyObject* result = PyObject_CallFunction(callable, "K", (unsigned long long)bytes);
  if (!result) return 0;
  if (!PyTuple_Check(result) || PyTuple_Size(result) != 2 || call.lent_count == LENT) {
    Py_DECREF(result);
    PyErr_SetString(PyExc_RuntimeError,
                    "temporary memory must come as (address, owner), at most 8 blocks for a call");
    return 0;
  }
  const uint64_t address = PyLong_AsUnsignedLongLong(PyTuple_GetItem(result, 0));
  PyObject* block = PyTuple_GetItem(result, 1);
  Py_INCREF(block);
  call.lent[call.lent_count++] = block;
  Py_DECREF(result);
  return PyErr_Occurred() ? 0 : address;
}

/* device -> the handle of its current stream */
PyObject* py_torch_stream(PyObject* self, PyObject* const* a, Py_ssize_t n) {
  (void)self;
  if (n != 1) return PyErr_SetString(PyExc_TypeError, "torch_stream() takes a device's number"), NULL;
  if (!ready()) return NULL;
  const long device = PyLong_AsLong(a[0]);
  void* handle = PyErr_Occurred() ? NULL : stream_of(device);
  return handle ? PyLong_FromUnsignedLongLong((uintptr_t)handle) : NULL;
}

static int is_true(PyObject* o) {
  if (!o) return -1;
  const int r = PyObject_IsTrue(o);
  Py_DECREF(o);
  return r;
}
/* tensors or None -> 0: through PyTorch's dispatcher; 1: past it, there is no gradient to record; 2: past it,
 * with one */
PyObject* py_torch_way(PyObject* self, PyObject* const* a, Py_ssize_t n) {
  (void)self;
  if (!ready()) return NULL;
  const int grad = is_true(call0(GRAD_ENABLED));
  int way = 1;
  if (grad < 0) return NULL;
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* t = a[i];
    if (t == Py_None) continue;
    const PyTypeObject* type = Py_TYPE(t);
    if (type != (PyTypeObject*)given[TENSOR] && type != (PyTypeObject*)given[PARAMETER])
      return PyLong_FromLong(0);
    const int cuda = is_true(PyObject_GetAttr(t, is_cuda));
    if (cuda <= 0) return cuda ? NULL : PyLong_FromLong(0);
    if (grad && way == 1) {
      const int needed = is_true(PyObject_GetAttr(t, requires_grad));
      if (needed < 0) return NULL;
      if (needed) way = 2;
    }
  }
  const Py_ssize_t watchers = PyTuple_Size(given[WATCHERS]);
  for (Py_ssize_t i = 0; i < watchers; ++i) {
    const int watched = is_true(PyObject_CallNoArgs(PyTuple_GetItem(given[WATCHERS], i)));
    if (watched) return watched < 0 ? NULL : PyLong_FromLong(0);
  }
  if (given[FORWARD] != Py_None) {
    PyObject* level = PyObject_GetAttr(given[FORWARD], level_name);
    if (!level) return NULL;
    if (as_long(level) >= 0) return PyLong_FromLong(0);
  }
  return PyErr_Occurred() ? NULL : PyLong_FromLong(way);
}

/* tensor, shape or None (the tensor's), dtype or None (the tensor's) -> contiguous and uninitialised, on the
 * tensor's device; with True for the shape its strides are the tensor's, too */
PyObject* py_torch_empty(PyObject* self, PyObject* const* a, Py_ssize_t n) {
  (void)self;
  if (n != 3)
    return PyErr_SetString(PyExc_TypeError, "torch_empty() takes a tensor, a shape and a dtype"), NULL;
  if (!ready()) return NULL;
  PyObject *result = NULL, *size = NULL, *stride = NULL;
  const int strided = a[1] == Py_True;
  PyObject* shape = a[1] == Py_None || strided ? PyObject_GetAttr(a[0], shape_name) : (Py_INCREF(a[1]), a[1]);
  PyObject* dtype = a[2] == Py_None ? PyObject_GetAttr(a[0], dtype_name) : (Py_INCREF(a[2]), a[2]);
  if (!shape || !dtype) goto out;
  const long device = as_long(call1(GET_DEVICE, a[0]));
  if (PyErr_Occurred()) goto out;
  if (given[EMPTY_STRIDED] == Py_None || device < 0 || !PyTuple_Check(shape) ||
      device != as_long(call0(CURRENT_DEVICE))) {
    if (!PyErr_Occurred())
      result = PyObject_CallFunctionObjArgs(given[EMPTY], a[0], a[1], shape, dtype, NULL);
    goto out;
  }
  const Py_ssize_t rank = PyTuple_Size(shape);
  size = PyTuple_GetSlice(shape, 0, rank); /* a plain tuple of torch.Size */
  const int like = strided ? 1 : a[1] == Py_None ? is_true(call1(IS_CONTIGUOUS, a[0])) : 0;
  if (!size || like < 0) goto out;
  if (like) {
    stride = call1(STRIDE, a[0]);
  } else if ((stride = PyTuple_New(rank))) {
    long long step = 1;
    for (Py_ssize_t i = rank - 1; i >= 0; --i) {
      PyTuple_SetItem(stride, i, PyLong_FromLongLong(step));
      const long long extent = PyLong_AsLongLong(PyTuple_GetItem(size, i));
      step *= extent > 1 ? extent : 1;
    }
  }
  if (stride && !PyErr_Occurred())
    result = PyObject_CallFunctionObjArgs(given[EMPTY_STRIDED], size, stride, dtype, NULL);
out:
  Py_XDECREF(shape);
  Py_XDECREF(dtype);
  Py_XDECREF(size);
  Py_XDECREF(stride);
  return result;
}

/* a list of parameters -> what changes when one of them, its memory or its gradient's does, as bytes; None: a gradient is sparse */
PyObject* py_torch_key(PyObject* self, PyObject* const* a, Py_ssize_t n) {
  (void)self;
  if (n != 1 || !PyList_Check(a[0])) return PyErr_SetString(PyExc_TypeError, "torch_key() takes a list"), NULL;
  if (!ready()) return NULL;
  const Py_ssize_t count = PyList_Size(a[0]);
  PyObject* key = PyBytes_FromStringAndSize(NULL, count * 32);
  for (Py_ssize_t i = 0; key && i < count; ++i) {
    PyObject* p = PyList_GetItem(a[0], i);
    PyObject* g = PyObject_GetAttr(p, grad_name);
    uint64_t words[4] = {(uint64_t)(uintptr_t)p, 0, 0, 0};
    PyObject* memory = g ? call1(DATA_PTR, p) : NULL;
    if (memory) words[1] = PyLong_AsUnsignedLongLong(memory);
    if (memory && g != Py_None) {
      PyObject* address = call1(DATA_PTR, g);
      if (address) words[2] = PyLong_AsUnsignedLongLong(address), words[3] = 1u + (is_true(call1(IS_CONTIGUOUS, g)) > 0);
      Py_XDECREF(address);
    }
    Py_XDECREF(memory);
    Py_XDECREF(g);
    memcpy(PyBytes_AsString(key) + i * 32, words, 32);
    if (PyErr_Occurred()) {
      PyErr_Clear();
      Py_DECREF(key);
      Py_RETURN_NONE;
    }
  }
  return key;
}
