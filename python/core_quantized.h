/* SPDX-License-Identifier: Apache-2.0 */
/* Quantised weights and GGUF files: functions of core.c, which includes this where its macros are. */

/* A weight as the handle of the C interface: codes, scales, zeros, g_idx, absmax_table, absmax_scales, packed (tensors), format, rows,
 * cols, (group, zeros_minus_one, absmax_block, scale_rows, scale_cols), absmax_offset. */
enum { WEIGHT_ARGUMENTS = 12 };
typedef struct {
  cgp_tensor tensors[7];
  cgp_quantized_weight* handle;
} weight_argument;
/* 0, or -1 with an exception. */
static int read_weight(PyObject* const* a, weight_argument* w, const char* function) {
  static const char* const names[] = {"codes", "scales", "zeros", "g_idx", "absmax_table", "absmax_scales", "packed"};
  const cgp_tensor* given[7] = {NULL, NULL, NULL, NULL, NULL, NULL, NULL};
  w->handle = NULL;
  for (int i = 0; i < 7; ++i) {
    const int there = read_tensor(a[i], &w->tensors[i], names[i], function);
    if (there < 0) return -1;
    if (there) given[i] = &w->tensors[i];
  }
  int64_t numbers[CGP_MAX_RANK];
  int32_t count_of = 0;
  if (cgp_read_list(a[10], numbers, &count_of, "numbers")) return -1;
  const uint64_t rows = PyLong_AsUnsignedLongLong(a[8]), cols = PyLong_AsUnsignedLongLong(a[9]);
  OPTIONS(cgp_quantized_options)
  o.absmax_offset = (float)PyFloat_AsDouble(a[11]);
  if (PyErr_Occurred()) return -1;
  if (count_of != 5) {
    PyErr_SetString(PyExc_TypeError, "a weight has five numbers");
    return -1;
  }
  o.scales = given[1], o.zeros = given[2], o.g_idx = given[3], o.absmax_table = given[4], o.absmax_scales = given[5];
  o.packed = given[6];
  o.group = (uint64_t)numbers[0], o.zeros_minus_one = numbers[1] != 0, o.absmax_block = (uint64_t)numbers[2];
  o.scale_rows = (uint64_t)numbers[3], o.scale_cols = (uint64_t)numbers[4];
  PyObject* format = PyUnicode_AsUTF8String(a[7]);
  if (!format) return -1;
  const cgp_status status = cgp_quantized_weight_new(PyBytes_AsString(format), rows, cols, given[0], &o, &w->handle);
  Py_DECREF(format);
  if (status) fail(status);
  return status ? -1 : 0;
}
/* Bytes of workspace that are missing: then nothing was queued. stream, x, the weight, transposed, workspace, y */
FUNCTION(quantized_matmul, 5 + WEIGHT_ARGUMENTS)
  TENSOR(x, 1)
  TENSOR(workspace, 15)
  TENSOR(y, 16)
  const int transposed = PyObject_IsTrue(a[14]);
  weight_argument w;
  uint64_t bytes = 0;
  if (transposed < 0 || read_weight(a + 2, &w, "quantized_matmul")) {
    torch_end();
    return NULL;
  }
  cgp_stream* s = handle(a[0]);
  cgp_status status = cgp_quantized_matmul_workspace(s, x, w.handle, transposed, NULL, y, &bytes);
  if (!status && (!bytes || workspace)) {
    Py_BEGIN_ALLOW_THREADS status = cgp_quantized_matmul(s, x, w.handle, transposed, workspace, NULL, y);
    Py_END_ALLOW_THREADS bytes = 0;
  }
  cgp_quantized_weight_free(w.handle);
  torch_end();
  return status || PyErr_Occurred() ? fail(status) : PyLong_FromUnsignedLongLong(bytes);
END
/* stream, the weight, first row, error_flag, out */
FUNCTION(dequantize, 4 + WEIGHT_ARGUMENTS)
  TENSOR(error_flag, 14)
  TENSOR(out, 15)
  const uint64_t first = PyLong_AsUnsignedLongLong(a[13]);
  weight_argument w;
  if (PyErr_Occurred() || read_weight(a + 1, &w, "dequantize")) {
    torch_end();
    return NULL;
  }
  cgp_stream* s = handle(a[0]);
  cgp_status status;
  Py_BEGIN_ALLOW_THREADS status = cgp_dequantize(s, w.handle, first, error_flag, out);
  Py_END_ALLOW_THREADS cgp_quantized_weight_free(w.handle);
  return done(status);
END

/* On the host; arrays are addresses. format, values, elements, blocks, bytes */
FUNCTION(quantize, 5)
  PyObject* format = PyUnicode_AsUTF8String(a[0]);
  if (!format) return NULL;
  const char* name = PyBytes_AsString(format);
  const float* values = (const float*)handle(a[1]);
  void* blocks = handle(a[3]);
  const uint64_t elements = PyLong_AsUnsignedLongLong(a[2]), bytes = PyLong_AsUnsignedLongLong(a[4]);
  cgp_status status;
  Py_BEGIN_ALLOW_THREADS status = cgp_quantize(name, values, elements, blocks, bytes);
  Py_END_ALLOW_THREADS Py_DECREF(format);
  return done(status);
END
/* values, rows, cols, group, qweight, qzeros, scales */
FUNCTION(quantize_int4, 7)
  const cgp_status status =
      cgp_quantize_int4((const float*)handle(a[0]), PyLong_AsUnsignedLongLong(a[1]), PyLong_AsUnsignedLongLong(a[2]),
                        PyLong_AsUnsignedLongLong(a[3]), (uint32_t*)handle(a[4]), (uint32_t*)handle(a[5]),
                        (uint16_t*)handle(a[6]));
  return done(status);
END
/* values, rows, cols, scale_rows, scale_cols, codes, scales */
FUNCTION(quantize_fp8, 7)
  const cgp_status status =
      cgp_quantize_fp8((const float*)handle(a[0]), PyLong_AsUnsignedLongLong(a[1]), PyLong_AsUnsignedLongLong(a[2]),
                       PyLong_AsUnsignedLongLong(a[3]), PyLong_AsUnsignedLongLong(a[4]), (uint8_t*)handle(a[5]),
                       (float*)handle(a[6]));
  return done(status);
END
/* format, elements -> bytes */
FUNCTION(quantized_bytes, 2)
  PyObject* format = PyUnicode_AsUTF8String(a[0]);
  if (!format) return NULL;
  uint64_t bytes = 0;
  const cgp_status status = cgp_quantized_bytes(PyBytes_AsString(format), PyLong_AsUnsignedLongLong(a[1]), &bytes);
  Py_DECREF(format);
  return status || PyErr_Occurred() ? fail(status) : PyLong_FromUnsignedLongLong(bytes);
END
/* format, blocks, bytes */
FUNCTION(quantized_check, 3)
  PyObject* format = PyUnicode_AsUTF8String(a[0]);
  if (!format) return NULL;
  const cgp_status status = cgp_quantized_check(PyBytes_AsString(format), handle(a[1]), PyLong_AsUnsignedLongLong(a[2]));
  Py_DECREF(format);
  return done(status);
END
/* format, rows, cols -> bytes of packed weights; 0: the format has none */
FUNCTION(quantized_packed_bytes, 3)
  PyObject* format = PyUnicode_AsUTF8String(a[0]);
  if (!format) return NULL;
  uint64_t bytes = 0;
  const cgp_status status = cgp_quantized_packed_bytes(PyBytes_AsString(format), PyLong_AsUnsignedLongLong(a[1]),
                                                       PyLong_AsUnsignedLongLong(a[2]), &bytes);
  Py_DECREF(format);
  return (status && status != CGP_UNSUPPORTED) || PyErr_Occurred() ? fail(status) : PyLong_FromUnsignedLongLong(bytes);
END
/* format, rows, cols, blocks, bytes, packed, bytes of it */
FUNCTION(quantized_pack, 7)
  PyObject* format = PyUnicode_AsUTF8String(a[0]);
  if (!format) return NULL;
  const cgp_status status =
      cgp_quantized_pack(PyBytes_AsString(format), PyLong_AsUnsignedLongLong(a[1]), PyLong_AsUnsignedLongLong(a[2]),
                         handle(a[3]), PyLong_AsUnsignedLongLong(a[4]), handle(a[5]), PyLong_AsUnsignedLongLong(a[6]));
  Py_DECREF(format);
  return done(status);
END

FUNCTION(gguf_open, 1)
  PyObject* path = NULL;
  if (!PyUnicode_FSConverter(a[0], &path)) return NULL;
  cgp_gguf* file = NULL;
  const cgp_status status = cgp_gguf_open(PyBytes_AsString(path), &file);
  Py_DECREF(path);
  return status ? fail(status) : as_handle(file);
END
FUNCTION(gguf_free, 1)
  cgp_gguf_free(handle(a[0]));
  return done(CGP_OK);
END
/* name, format, shape */
static PyObject* gguf_summary(const cgp_gguf_tensor* t) {
  PyObject* shape = PyTuple_New(t->rank);
  if (!shape) return NULL;
  for (int32_t i = 0; i < t->rank; ++i) {
    PyObject* n = PyLong_FromUnsignedLongLong(t->shape[i]);
    if (!n || PyTuple_SetItem(shape, i, n)) {
      Py_DECREF(shape);
      return NULL;
    }
  }
  PyObject* name = PyUnicode_FromStringAndSize(t->name, (Py_ssize_t)t->name_length);
  if (!name) {
    Py_DECREF(shape);
    return NULL;
  }
  return Py_BuildValue("(NsN)", name, t->format, shape);
}
FUNCTION(gguf_tensors, 1)
  uint64_t count_of = 0;
  cgp_gguf_tensor t;
  t.size = sizeof t;
  const cgp_status status = cgp_gguf_count(handle(a[0]), &count_of);
  if (status) return fail(status);
  PyObject* all = PyList_New(0);
  for (uint64_t i = 0; all && i < count_of; ++i) {
    PyObject* one = cgp_gguf_at(handle(a[0]), i, &t) ? fail(CGP_INTERNAL) : gguf_summary(&t);
    if (!one || PyList_Append(all, one)) {
      Py_XDECREF(one);
      Py_DECREF(all);
      return NULL;
    }
    Py_DECREF(one);
  }
  return all;
END
/* file, name -> (name, format, shape), its bytes */
FUNCTION(gguf_read, 2)
  PyObject* name = PyUnicode_AsUTF8String(a[1]);
  if (!name) return NULL;
  cgp_gguf_tensor t;
  t.size = sizeof t;
  const cgp_status status = cgp_gguf_find(handle(a[0]), PyBytes_AsString(name), &t);
  Py_DECREF(name);
  if (status) return fail(status);
  PyObject* summary = gguf_summary(&t);
  if (!summary) return NULL;
  PyObject* data = PyBytes_FromStringAndSize((const char*)t.data, (Py_ssize_t)t.bytes);
  if (!data) {
    Py_DECREF(summary);
    return NULL;
  }
  return Py_BuildValue("(NN)", summary, data);
END
