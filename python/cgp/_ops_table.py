# SPDX-License-Identifier: Apache-2.0
"""Rows by index, dropout, and what is chosen or summed up in rows. See cgp.ops."""
import torch

from . import _core
from ._runtime import ArgumentError
from ._torch import define, empty, expect, expect_float, expect_row, gradient, no_second_gradient, queue, rows, way


# ---------------------------------------------------------------- embedding
def _check_embedding(indices, weight):
    expect(weight.dim() == 2, "embedding", "weight", f"it must be [vocab, n]; it is {list(weight.shape)}")
    expect_float("embedding", "weight", weight)
    if indices.dtype not in (torch.int32, torch.int64):
        raise ArgumentError(f"embedding: indices are {indices.dtype}; they must be int32 or int64")


def _embedding(indices, weight, padding_idx=-1):
    _check_embedding(indices, weight)
    indices, weight = indices.contiguous(), rows(weight)
    out = empty(weight, None, indices.shape + weight.shape[1:])
    queue(_core.embedding, weight, indices, weight, None, out)
    return out


def _embedding_fake(indices, weight, padding_idx=-1):
    _check_embedding(indices, weight)
    return weight.new_empty(indices.shape + weight.shape[1:])


def _embedding_backward(dout, indices, vocab, padding_idx):
    dout, indices = rows(dout), indices.contiguous()
    dweight = empty(dout, None, (vocab, dout.shape[-1]))
    queue(_core.embedding_backward, dout, indices, dout, padding_idx, None, dweight)
    return dweight


def _embedding_gradient_accumulate(dweight, dout, indices, padding_idx):
    """Adds it to dweight [vocab, n]."""
    queue(_core.embedding_backward_accumulate, dout, indices.contiguous(), rows(dout), padding_idx, None, dweight)


_embedding_op = define("embedding(Tensor indices, Tensor weight, int padding_idx=-1) -> Tensor", _embedding, _embedding_fake)
_embedding_backward_op = define(
    "embedding_backward(Tensor dout, Tensor indices, int vocab, int padding_idx) -> Tensor", _embedding_backward,
    lambda dout, indices, vocab, padding_idx: dout.new_empty((vocab, dout.shape[-1])))
no_second_gradient(_embedding_backward_op)


def _embedding_setup(ctx, inputs, output):
    indices, weight, ctx.padding = inputs
    ctx.vocab = weight.shape[0]
    ctx.save_for_backward(indices)


def _embedding_gradient(ctx, d):
    indices, = ctx.saved_tensors
    return None, _embedding_backward_op.ways[way(d, indices)](d, indices, ctx.vocab, ctx.padding), None


gradient(_embedding_op, _embedding_gradient, _embedding_setup)


def embedding(indices, weight, padding_idx=-1):
    """Rows of weight. indices: int32 or int64 [...]; weight: [vocab, n] -> [..., n]. The gradient is the same at every run;
    row padding_idx gets none. An index that is no row gives NaN.

    >>> ops.embedding(torch.tensor([1], device="cuda"), torch.tensor([[1.], [2.]], device="cuda"))
    tensor([[2.]], device='cuda:0')
    """
    return _embedding_op.ways[way(indices, weight)](indices, weight, padding_idx)


# ---------------------------------------------------------------- dropout
def _dropout(x, p, seed, offset=0):
    expect_float("dropout", "x", x)
    x = rows(x)
    y = empty(x)
    queue(_core.dropout, x, x, p, seed, offset, y)
    return y


def _dropout_fake(x, p, seed, offset=0):
    expect_float("dropout", "x", x)
    return x.new_empty(x.shape)


_dropout_op = define("dropout(Tensor x, float p, int seed, int offset=0) -> Tensor", _dropout, _dropout_fake)


def _dropout_setup(ctx, inputs, output):
    ctx.options = inputs[1:]


gradient(_dropout_op, lambda ctx, dy: (_dropout_op.ways[way(dy)](dy, *ctx.options), None, None, None), _dropout_setup)


def dropout(x, p, seed, offset=0):
    """x / (1 - p) where an element is kept, else 0: a function of (seed, offset, number of the element) alone, by
    Philox4x32-10, so that nothing is stored for the gradient. x: [...] -> [...].

    >>> ops.dropout(torch.ones(1, device="cuda"), 0.0, 1)
    tensor([1.], device='cuda:0')
    """
    return _dropout_op.ways[way(x)](x, p, seed, offset)


# ---------------------------------------------------------------- argmax, topk, cumsum
def _argmax(x):
    x = rows(x)
    index = empty(x, torch.int64, x.shape[:-1])
    queue(_core.argmax, x, x, index, None)
    return index


def _argmax_fake(x):
    expect_row("argmax", x)
    expect(x.shape[-1] > 0, "argmax", "x", "its last dimension is empty")
    return x.new_empty(x.shape[:-1], dtype=torch.int64)


_argmax_op = define("argmax(Tensor x) -> Tensor", _argmax, _argmax_fake)


def argmax(x):
    """The place of the largest element of each row, the first of several; NaN is larger than everything.
    x: [..., n] -> int64 [...].

    >>> ops.argmax(torch.tensor([1., 3., 3.], device="cuda"))
    tensor(1, device='cuda:0')
    """
    return _argmax_op.ways[way(x)](x)


def _check_topk(x, k):
    expect_row("topk", x)
    expect(0 < k <= min(1024, x.shape[-1]), "topk", "k", f"it must be from 1 to {min(1024, x.shape[-1])}; it is {k}")


def _topk(x, k):
    _check_topk(x, k)
    x = rows(x)
    values = empty(x, None, x.shape[:-1] + (k,))
    index = empty(values, torch.int64)
    queue(_core.topk, x, x, values, index)
    return values, index


def _topk_fake(x, k):
    _check_topk(x, k)
    shape = x.shape[:-1] + (k,)
    return x.new_empty(shape), x.new_empty(shape, dtype=torch.int64)


_topk_op = define("topk(Tensor x, int k) -> (Tensor, Tensor)", _topk, _topk_fake)


def _topk_setup(ctx, inputs, output):
    ctx.shape = inputs[0].shape
    ctx.save_for_backward(output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _topk_gradient(ctx, d, _):
    if d is None:
        return None, None
    return d.new_zeros(ctx.shape).scatter_(-1, ctx.saved_tensors[0], d), None


gradient(_topk_op, _topk_gradient, _topk_setup)


def topk(x, k):
    """(The k largest elements of each row, descending, and their places); among equals the first. x: [..., n], k at most 1024
    -> [..., k], int64 [..., k].

    >>> ops.topk(torch.tensor([1., 3., 2.], device="cuda"), 2)[1]
    tensor([1, 2], device='cuda:0')
    """
    return _topk_op.ways[way(x)](x, k)


def _cumsum(x, exclusive=False):
    x = rows(x)
    y = empty(x)
    queue(_core.cumsum, x, x, exclusive, y)
    return y


def _cumsum_fake(x, exclusive=False):
    expect_row("cumsum", x)
    return x.new_empty(x.shape)


_cumsum_op = define("cumsum(Tensor x, bool exclusive=False) -> Tensor", _cumsum, _cumsum_fake)


def _cumsum_setup(ctx, inputs, output):
    ctx.exclusive = inputs[1]


gradient(_cumsum_op, lambda ctx, dy: (_cumsum_op.ways[way(dy)](dy.flip(-1), ctx.exclusive).flip(-1), None), _cumsum_setup)


def cumsum(x, exclusive=False):
    """Running sums along the last dimension, in float32, rounded once; exclusive: without the element itself.
    x: [..., n] -> [..., n].

    >>> ops.cumsum(torch.ones(3, device="cuda"))
    tensor([1., 2., 3.], device='cuda:0')
    """
    return _cumsum_op.ways[way(x)](x, exclusive)
