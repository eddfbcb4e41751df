# SPDX-License-Identifier: Apache-2.0
"""Experts of a mixture with quantised weights as an operator for PyTorch."""
import torch

from . import _core
from ._ops_quantized import _WEIGHT
from ._runtime import ArgumentError
from ._torch import define, expect, expect_float, queue, way


def _grouped_shape(x, ends, weight):
    expect_float("grouped_matmul", "x", x)
    groups = ends.shape[0] if ends.dim() == 1 else 0
    expect(groups and weight[8] % groups == 0, "grouped_matmul", "ends",
           f"their number must divide the {weight[8]} rows of the weight; they are {list(ends.shape)}")
    expect(x.dim() == 2 and x.shape[-1] == weight[9], "grouped_matmul", "x", f"it must be [m, {weight[9]}]; it is {list(x.shape)}")
    return x.shape[0], weight[8] // groups


def _grouped_matmul(x, ends, *weight):
    y = x.new_empty(_grouped_shape(x, ends, weight))
    x, ends = x.contiguous(), ends.contiguous()
    weight = (*weight[:10], tuple(weight[10]), weight[11])
    missing = queue(_core.quantized_grouped_matmul, x, x, *weight, ends, None, y)
    if missing:
        queue(_core.quantized_grouped_matmul, x, x, *weight, ends, x.new_empty(missing, dtype=torch.uint8), y)
    return y


def _grouped_matmul_fake(x, ends, *weight):
    return x.new_empty(_grouped_shape(x, ends, weight))


_grouped_op = define(f"quantized_grouped_matmul(Tensor x, Tensor ends, {_WEIGHT}) -> Tensor", _grouped_matmul, _grouped_matmul_fake)


def grouped_matmul(x, w, ends):
    """Experts of a mixture with quantised weights, as cgp.grouped_matmul. There is no gradient.

    Raises ArgumentError for sizes, types and devices that do not fit.
    """
    if w.device is None:
        raise ArgumentError("grouped_matmul: the weight is in NumPy arrays; move it with w.to(x.device)")
    a = w._arguments()
    return _grouped_op.ways[way(x, ends, *a[:7])](x, ends, *a[:10], list(a[10]), a[11])
