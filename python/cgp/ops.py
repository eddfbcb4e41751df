# SPDX-License-Identifier: Apache-2.0
"""Operators for PyTorch, registered as torch.ops.cgp.*: CUDA tensors, the caller's current stream, autograd,
torch.compile, CUDA graphs. Nothing is compiled against PyTorch."""
import torch

from . import _core, _ops_quantized
from ._options import ACTIVATIONS, PRECISIONS, fit_batches
from ._ops_attention import attention
from ._ops_elements import activate, gated, rope, swiglu
from ._ops_experts import grouped_matmul
from ._ops_linear_loss import linear_cross_entropy
from ._ops_rows import cross_entropy, layer_norm, log_softmax, rms_norm, softmax
from ._ops_table import argmax, cumsum, dropout, embedding, topk
from ._quantized import QuantizedTensor, expect_plain
from ._runtime import ArgumentError, Unsupported
from ._torch import aligned_rows, define, dense, empty, expect, expect_float, expect_like, gradient, queue, way

__all__ = [
    "activate", "add", "argmax", "attention", "cross_entropy", "cumsum", "dropout", "embedding", "gated", "grouped_matmul", "layer_norm",
    "linear_cross_entropy", "log_softmax", "matmul", "max", "rms_norm", "rope", "softmax", "sum", "swiglu", "topk", "transpose"
]


# ---------------------------------------------------------------- matmul
def _shapes(a, b):
    if a.dim() < 2 or b.dim() < 2:
        raise ArgumentError(f"matmul: a and b must have at least 2 dimensions, not {a.dim()} and {b.dim()}")
    if a.dtype != b.dtype:
        raise ArgumentError(f"matmul: b is {b.dtype}, a is {a.dtype}")
    if b.dim() > 2:
        fit_batches(a.shape, b.shape)


def _usable(x):
    """x, or a copy, with one of its last two dimensions contiguous and leading ones that collapse."""
    strides, (rows, cols) = x.stride(), x.shape[-2:]
    down, right = strides[-2:]
    plain = ((right == 1 and (down >= cols or rows == 1)) or (down == 1 and (right >= rows or cols == 1)) or x.numel() == 0)
    if plain and len(strides) == 2:
        return x
    if plain:
        step, fits = None, True
        for n, s in zip(reversed(x.shape[:-2]), reversed(x.stride()[:-2])):
            if n == 1:
                continue
            fits = fits and (s > 0 if step is None else s == step)
            step = s * n
        if fits:
            return x
    return x.contiguous()


def _result_type(a):
    """None: that of a. Products of 8-bit integers do not fit into 8 bits."""
    return torch.int32 if a.dtype == torch.int8 else None


def _matmul(a, b, bias=None, activation="", alpha=1.0, precision="standard", aligned=False):
    _shapes(a, b)
    a, b = _usable(a), _usable(b)
    shape = a.shape[:-1] + b.shape[-1:]
    if b.dim() == 2 and a.dim() > 2 and (aligned or not a.is_contiguous()):
        a = _usable(a.flatten(0, -2))
    bias = dense(bias)
    c = aligned_rows(a, a.shape[:-1] + b.shape[-1:]) if aligned else empty(a, _result_type(a), a.shape[:-1] + b.shape[-1:])
    if activation and activation not in ACTIVATIONS:
        raise ArgumentError(f"matmul: there is no activation {activation!r}")
    if precision not in PRECISIONS:
        raise ArgumentError(f"matmul: there is no precision {precision!r}")
    queue(_core.gemm, a, a, b, c, alpha, 0.0, PRECISIONS[precision], ACTIVATIONS[activation or None], 0, 0, bias, None, None,
          None, aligned and not c.is_contiguous())
    return c if c.dim() == len(shape) else c.unflatten(0, shape[:-1])


def _matmul_fake(a, b, bias=None, activation="", alpha=1.0, precision="standard", aligned=False):
    _shapes(a, b)
    expect(a.shape[-1] == b.shape[-2], "matmul", "b", f"it must have the {a.shape[-1]} rows that a has columns; it is "
           f"{list(b.shape)}")
    expect_like("matmul", "bias", bias, b.shape[-1:], "n")
    shape = a.shape[:-1] + b.shape[-1:]
    return aligned_rows(a, shape) if aligned else a.new_empty(shape, dtype=_result_type(a))


_matmul_op = define(
    "matmul(Tensor a, Tensor b, Tensor? bias=None, str activation='', float alpha=1.0, str precision='standard', "
    "bool aligned=False) -> Tensor", _matmul, _matmul_fake)


def _matmul_setup(ctx, inputs, output):
    a, b, bias, activation, alpha, precision, _ = inputs
    if activation:
        raise Unsupported("cgp::matmul has no gradient through a fused activation: apply the activation to its result")
    ctx.save_for_backward(a, b)
    ctx.alpha, ctx.precision, ctx.bias = alpha, precision, bias is not None


def _matmul_backward(ctx, grad):
    a, b = ctx.saved_tensors
    da = db = dbias = None
    run = _matmul_op.ways[way(grad, a, b)]
    if ctx.needs_input_grad[0]:
        da = run(grad, b.mT, None, "", ctx.alpha, ctx.precision)
    if ctx.needs_input_grad[1]:
        left, right = (a.flatten(0, -2), grad.flatten(0, -2)) if b.dim() == 2 else (a, grad)
        if b.stride(-2) == 1 and b.stride(-1) != 1:  # a transposed weight: its gradient is laid out as it
            db = run(right.mT, left, None, "", ctx.alpha, ctx.precision).mT
        else:
            db = run(left.mT, right, None, "", ctx.alpha, ctx.precision)
    if ctx.bias and ctx.needs_input_grad[2]:
        dbias = grad.flatten(0, -2).sum(0)
    return da, db, dbias, None, None, None, None


gradient(_matmul_op, _matmul_backward, _matmul_setup)


def matmul(a, b, bias=None, activation="", alpha=1.0, precision="standard", aligned=False):
    """activation(alpha * a @ b + bias). a: [..., m, k]; b: [k, n] or [..., k, n]; bias: [n] -> [..., m, n]. Leading dimensions of b are those
    of a, or 1. The result has the type of a; int8 gives int32.

    activation: "", "relu", "silu", "gelu", "gelu_tanh"; precision: "standard", "fast", "strict". aligned: rows of the result begin at
    multiples of 16 bytes, which products with it and its gradient are faster for; it is then not contiguous where n is odd.
    b: a QuantizedTensor [n, k] gives a [..., k] times its transpose; bias, activation and alpha are not possible then.

    >>> ops.matmul(torch.eye(2, device="cuda"), torch.ones(2, 2, device="cuda"))
    tensor([[1., 1.],
            [1., 1.]], device='cuda:0')
    """
    if isinstance(b, QuantizedTensor):
        expect_plain(bias, activation, alpha)
        return _ops_quantized.matmul(a, b)
    return _matmul_op.ways[way(a, b, bias)](a, b, bias, activation, alpha, precision, aligned)


# ---------------------------------------------------------------- reductions and elements
def _without(op, x, dim):
    expect(-x.dim() <= dim < x.dim(), op, "dim", f"{dim} is not a dimension of x, which has {x.dim()}")
    shape = list(x.shape)
    del shape[dim]
    return tuple(shape)


def _reduction(name, op):

    def run(x, dim=-1):
        y = empty(x, None, _without(name, x, dim))
        queue(_core.reduce, x, op, dim, x.contiguous(), y)
        return y

    def fake(x, dim=-1):
        expect_float(name, "x", x)
        return x.new_empty(_without(name, x, dim))

    return define(f"{name}(Tensor x, int dim=-1) -> Tensor", run, fake)


_sum_op, _max_op = _reduction("sum", 0), _reduction("max", 1)


def _sum_setup(ctx, inputs, output):
    ctx.shape, ctx.dim = inputs[0].shape, inputs[1]


gradient(_sum_op, lambda ctx, grad: (grad.unsqueeze(ctx.dim).expand(ctx.shape), None), _sum_setup)


def sum(x, dim=-1):
    """Sum over one dimension, in float32, rounded once. x: [..., n, ...] -> [..., ...].

    >>> ops.sum(torch.ones(2, 3, device="cuda"))
    tensor([3., 3.], device='cuda:0')
    """
    return _sum_op.ways[way(x)](x, dim)


def max(x, dim=-1):
    """Maximum over one dimension; NaN wins. x: [..., n, ...] -> [..., ...].

    >>> ops.max(torch.ones(2, 3, device="cuda"))
    tensor([1., 1.], device='cuda:0')
    """
    return _max_op.ways[way(x)](x, dim)


def _matrices(x):
    expect(x.dim() >= 2, "transpose", "x", f"it must have at least 2 dimensions, not {x.dim()}")


def _transpose(x):
    _matrices(x)
    y = empty(x, None, x.mT.shape)
    queue(_core.transpose, x, x.contiguous(), y)
    return y


def _transpose_fake(x):
    _matrices(x)
    return x.new_empty(x.mT.shape)


_transpose_op = define("transpose(Tensor x) -> Tensor", _transpose, _transpose_fake)
gradient(_transpose_op, lambda ctx, grad: _transpose_op.ways[way(grad)](grad))


def transpose(x):
    """The last two dimensions exchanged, as a new contiguous tensor. x: [..., m, n] -> [..., n, m].

    >>> ops.transpose(torch.ones(2, 3, device="cuda")).shape
    torch.Size([3, 2])
    """
    return _transpose_op.ways[way(x)](x)


def _add(x, y):
    x, y = x.contiguous(), y.contiguous()
    z = empty(x)
    queue(_core.add, x, x, y, z)
    return z


def _add_fake(x, y):
    expect_float("add", "x", x)
    expect_like("add", "y", y, x.shape, "x")
    expect(y.dtype == x.dtype, "add", "y", f"it must be {x.dtype} as x; it is {y.dtype}")
    return x.new_empty(x.shape)


_add_op = define("add(Tensor x, Tensor y) -> Tensor", _add, _add_fake)
gradient(_add_op, lambda ctx, grad: (grad, grad))


def add(x, y):
    """x + y, of one shape and type. x, y: [...] -> [...].

    >>> ops.add(torch.ones(2, device="cuda"), torch.ones(2, device="cuda"))
    tensor([2., 2.], device='cuda:0')
    """
    return _add_op.ways[way(x, y)](x, y)
