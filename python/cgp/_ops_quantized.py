# SPDX-License-Identifier: Apache-2.0
"""Products with quantised weights as operators for PyTorch."""
import torch

from . import _core
from ._runtime import ArgumentError
from ._torch import define, expect, expect_float, gradient, queue, rows, way

_WEIGHT = ("Tensor codes, Tensor? scales, Tensor? zeros, Tensor? g_idx, Tensor? absmax_table, Tensor? absmax_scales, Tensor? packed, "
           "str format, int rows, int cols, int[] numbers, float absmax_offset")
_WEIGHT_ARGUMENTS = 12


def _result_shape(x, weight, transposed):
    n, k = weight[8:10] if not transposed else (weight[9], weight[8])
    expect_float("quantized_matmul", "x", x)
    expect(x.dim() >= 1 and x.shape[-1] == k, "quantized_matmul", "x",
           f"its last dimension must be {k}: the weight is [{weight[8]}, {weight[9]}], x {list(x.shape)}")
    return x.shape[:-1] + (n,)


def _quantized_matmul(x, *rest):
    weight, transposed = rest[:_WEIGHT_ARGUMENTS], rest[_WEIGHT_ARGUMENTS]
    y = x.new_empty(_result_shape(x, weight, transposed))
    x = rows(x)
    weight = (*weight[:10], tuple(weight[10]), weight[11])
    missing = queue(_core.quantized_matmul, x, x, *weight, transposed, None, y)
    if missing:
        queue(_core.quantized_matmul, x, x, *weight, transposed, x.new_empty(missing, dtype=torch.uint8), y)
    return y


def _quantized_matmul_fake(x, *rest):
    return x.new_empty(_result_shape(x, rest[:_WEIGHT_ARGUMENTS], rest[_WEIGHT_ARGUMENTS]))


_matmul_op = define(f"quantized_matmul(Tensor x, {_WEIGHT}, bool transposed) -> Tensor", _quantized_matmul,
                    _quantized_matmul_fake)


def _setup(ctx, inputs, output):
    ctx.save_for_backward(*inputs[1:8])
    ctx.rest = inputs[8:]


def _backward(ctx, dy):
    dx = None
    if ctx.needs_input_grad[0]:
        *rest, transposed = ctx.rest
        dx = _product(dy, (*ctx.saved_tensors, *rest), not transposed)
    return (dx, *(None for _ in range(_WEIGHT_ARGUMENTS + 1)))


gradient(_matmul_op, _backward, _setup)


def _product(x, weight, transposed):
    return _matmul_op.ways[way(x, *weight[:7])](x, *weight[:10], list(weight[10]), weight[11], transposed)


def matmul(x, w):
    """x [..., cols] times the transposed weight [rows, cols]: [..., rows], of x's type. The gradient of x is that of the values of the
    weight, which has none.

    Raises ArgumentError for sizes, types and devices that do not fit.
    """
    if w.device is None:
        raise ArgumentError("matmul: the weight is in NumPy arrays; move it with w.to(x.device)")
    return _product(x, w._arguments(), False)


def _dequantize(*rest):
    *weight, dtype = rest
    out = weight[0].new_empty((weight[8], weight[9]), dtype=dtype)
    queue(_core.dequantize, out, *weight[:10], tuple(weight[10]), weight[11], 0, None, out)
    return out


def _dequantize_fake(*rest):
    *weight, dtype = rest
    return weight[0].new_empty((weight[8], weight[9]), dtype=dtype)


_dequantize_op = define(f"dequantize({_WEIGHT}, ScalarType dtype) -> Tensor", _dequantize, _dequantize_fake)


def dequantize(w, dtype=None):
    dtype = dtype or torch.bfloat16
    if dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ArgumentError(f"dequantize: dtype is {dtype}; it must be float32, float16 or bfloat16")
    a = w._arguments()
    return _dequantize_op.ways[way(*a[:7])](*a[:10], list(a[10]), a[11], dtype)
