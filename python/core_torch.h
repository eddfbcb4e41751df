/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's tensors as arguments of cgp._core's functions: what Python would do for every call, done here.
 * Nothing of PyTorch is linked: torch_use() is given its types and functions. */
#pragma once
#include <Python.h>

#include "cgp/capi/cgp.h"

/* Of core.c: a sequence of integers; 0, or -1 with an exception. */
int cgp_read_list(PyObject* list, int64_t* out, int32_t* rank, const char* what);

/* Whether `o` may be one of PyTorch's tensors. */
int torch_is_tensor(PyObject* o);
/* A call begins: no tensor was read yet. */
void torch_begin(void);
/* 1: read into *t; -1: an exception. All tensors of a call are on the device of the first. */
int torch_read(PyObject* o, cgp_tensor* t, const char* function, const char* what);
/* The current stream of the device of this call's tensors; NULL with an exception. That device is the current
 * one until torch_end(). */
void* torch_stream(void);
/* A call ends: temporary memory goes back, the current device is again what it was. */
void torch_end(void);
/* Temporary memory for the call under way, by the Python callable (bytes) -> (address, what keeps it). */
uint64_t torch_lend(PyObject* callable, uint64_t bytes);

PyObject* py_torch_use(PyObject* self, PyObject* const* a, Py_ssize_t n);
PyObject* py_torch_way(PyObject* self, PyObject* const* a, Py_ssize_t n);
PyObject* py_torch_stream(PyObject* self, PyObject* const* a, Py_ssize_t n);
PyObject* py_torch_empty(PyObject* self, PyObject* const* a, Py_ssize_t n);
PyObject* py_torch_key(PyObject* self, PyObject* const* a, Py_ssize_t n);
