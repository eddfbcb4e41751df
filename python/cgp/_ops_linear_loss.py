# SPDX-License-Identifier: Apache-2.0
"""The last linear layer of a language model and its loss, without the logits in memory. See cgp.ops."""
import torch

from . import _core
from ._runtime import ArgumentError
from ._torch import aligned_rows, define, expect, expect_float, expect_like, gradient, queue, rows, way

_LOGITS = 512 << 20  # bytes of a chunk's logits where the caller leaves the choice


def _check(hidden, weight, target, reduction):
    op = "linear_cross_entropy"
    expect_float(op, "hidden", hidden), expect_float(op, "weight", weight)
    expect(weight.dim() == 2 and hidden.dim() >= 1 and weight.shape[1] == hidden.shape[-1], op, "weight",
           f"it must be [classes, {hidden.shape[-1] if hidden.dim() else 'n'}]; it is {list(weight.shape)}")
    expect(weight.dtype == hidden.dtype, op, "weight", f"it must be {hidden.dtype} as hidden; it is {weight.dtype}")
    expect_like(op, "target", target, hidden.shape[:-1], "hidden without the last dimension")
    expect(target.dtype in (torch.int32, torch.int64), op, "target", f"it must be int32 or int64; it is {target.dtype}")
    if reduction not in ("mean", "sum"):
        raise ArgumentError(f"{op}: reduction must be 'mean' or 'sum', not {reduction!r}")


def _gemm(a, b, c, beta=0.0, spare=False):
    queue(_core.gemm, a, a, b, c, 1.0, beta, 0, 0, 0, 0, None, None, None, None, spare)


def _run(hidden, weight, target, reduction="mean", ignore_index=-100, label_smoothing=0.0, z_loss=0.0, chunk=0,
         with_gradient=True):
    """(loss, d hidden, d weight); both are empty without a gradient."""
    _check(hidden, weight, target, reduction)
    shape, hidden = hidden.shape, hidden.reshape(-1, hidden.shape[-1])
    hidden, weight, target = rows(hidden), rows(weight), target.reshape(-1).contiguous()
    tokens, classes = hidden.shape[0], weight.shape[0]
    expect(chunk >= 0, "linear_cross_entropy", "chunk", f"it must not be negative; it is {chunk}")
    if not chunk:
        chunk = max(128, _LOGITS // (2 * max(classes, 1)) // 128 * 128)
        if with_gradient and tokens <= chunk + 2 * hidden.shape[1]:
            chunk = tokens  # all logits take no more memory than the float32 sum that chunks need
    chunk = min(chunk, max(tokens, 1)) or 1
    losses = torch.empty(tokens, dtype=torch.float32, device=hidden.device)
    scale = None
    if reduction == "mean":
        scale = losses.new_empty(1)
        queue(_core.count_targets, losses, target, ignore_index, scale)
    several = tokens > chunk
    dhidden = torch.empty_like(hidden) if with_gradient else hidden.new_empty(0)
    # Sums over chunks are kept in float32: one rounding, as if there were one chunk.
    total = torch.empty(weight.shape, dtype=torch.float32 if several else weight.dtype,
                        device=weight.device) if with_gradient else weight.new_empty(0)
    space = aligned_rows(hidden, (chunk, classes))
    for first in range(0, tokens, chunk):
        part = hidden[first:first + chunk]
        logits = space[:part.shape[0]]
        _gemm(part, weight.mT, logits, spare=not space.is_contiguous())
        queue(_core.cross_entropy, logits, logits, target[first:first + chunk], losses[first:first + chunk], None,
              logits if with_gradient else None, scale if with_gradient else None, None, ignore_index, label_smoothing, z_loss)
        if with_gradient:
            _gemm(logits, weight, dhidden[first:first + chunk])
            _gemm(logits.mT, part, total, 1.0 if first else 0.0)
    loss = torch.empty((), dtype=torch.float32, device=hidden.device)
    queue(_core.mean_loss, losses, losses, target, ignore_index, scale, loss)
    if not with_gradient:
        return loss, dhidden, total
    if not tokens:
        total.zero_()
    return loss, dhidden.view(shape), total.to(weight.dtype)


def _fake(hidden, weight, target, reduction="mean", ignore_index=-100, label_smoothing=0.0, z_loss=0.0, chunk=0,
          with_gradient=True):
    _check(hidden, weight, target, reduction)
    empty = not with_gradient
    return (hidden.new_empty((), dtype=torch.float32), hidden.new_empty(0 if empty else hidden.shape),
            weight.new_empty(0 if empty else weight.shape))


_op = define(
    "linear_cross_entropy(Tensor hidden, Tensor weight, Tensor target, str reduction='mean', int ignore_index=-100, "
    "float label_smoothing=0.0, float z_loss=0.0, int chunk=0, bool with_gradient=True) -> (Tensor, Tensor, Tensor)", _run, _fake, 1)


def _setup(ctx, inputs, output):
    ctx.save_for_backward(*output[1:])
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _gradient(ctx, grad, *_):
    if grad is None:
        return (None,) * 9
    dhidden, dweight = (d * grad.to(d.dtype) if needed else None
                        for d, needed in zip(ctx.saved_tensors, ctx.needs_input_grad))
    return (dhidden, dweight, *(None,) * 7)


gradient(_op, _gradient, _setup)


def linear_cross_entropy(hidden, weight, target, reduction="mean", ignore_index=-100, label_smoothing=0.0, z_loss=0.0, chunk=0):
    """cross_entropy(hidden @ weight.T, target), of `chunk` rows at a time (0: what 512 MB of logits hold, or all where that
    takes no more memory than the sums of chunks), so that logits and their gradient are not there as a whole. The gradients are
    made with the loss and wait for the backward pass.

    hidden: [..., n]; weight: [classes, n]; target: int32 or int64 [...] -> a float32 scalar, for reduction "mean" or "sum".
    Memory: chunk * classes elements, and with more than one chunk a float32 sum of the weight's gradient.

    >>> h, w = torch.zeros(1, 8, device="cuda"), torch.zeros(1, 8, device="cuda")
    >>> ops.linear_cross_entropy(h, w, torch.zeros(1, dtype=torch.long, device="cuda"))
    tensor(0., device='cuda:0')
    """
    needed = torch.is_grad_enabled() and (hidden.requires_grad or weight.requires_grad)
    return _op.ways[way(hidden, weight, target)](hidden, weight, target, reduction, ignore_index, label_smoothing, z_loss, chunk,
                                                 needed)
