# SPDX-License-Identifier: Apache-2.0
"""Operators on rows: softmax, norms, cross-entropy. See cgp.ops."""
import torch

from . import _core
from ._runtime import ArgumentError
from ._torch import (aligned_rows, define, dense, empty, expect, expect_float, expect_like, expect_row, gradient,
                     no_second_gradient, queue, rows, way)


# ---------------------------------------------------------------- softmax
def _softmax(x):
    x = rows(x)
    y = empty(x)
    queue(_core.softmax, x, x, y)
    return y


def _log_softmax(x):
    x = rows(x)
    y = empty(x)
    queue(_core.log_softmax, x, x, y)
    return y


def _softmax_backward(y, dy, log):
    y, dy = rows(y), rows(dy)
    dx = empty(y)
    queue(_core.softmax_backward, y, log, y, dy, dx)
    return dx


def _softmax_fake(op):

    def fake(x, dy=None, log=None):
        expect_row(op, x)
        expect_like(op, "dy", dy, x.shape, "x")
        return x.new_empty(x.shape)

    return fake


_softmax_op = define("softmax(Tensor x) -> Tensor", _softmax, _softmax_fake("softmax"))
_log_softmax_op = define("log_softmax(Tensor x) -> Tensor", _log_softmax, _softmax_fake("log_softmax"))
_softmax_backward_op = define("softmax_backward(Tensor y, Tensor dy, bool log) -> Tensor", _softmax_backward,
                              lambda y, dy, log: _softmax_fake("softmax_backward")(y, dy))
no_second_gradient(_softmax_backward_op)


def _keep_output(ctx, inputs, output):
    ctx.save_for_backward(output)


def _softmax_gradient(log):

    def backward(ctx, dy):
        y, = ctx.saved_tensors
        return _softmax_backward_op.ways[way(y, dy)](y, dy, log)

    return backward


gradient(_softmax_op, _softmax_gradient(False), _keep_output)
gradient(_log_softmax_op, _softmax_gradient(True), _keep_output)


def softmax(x):
    """Softmax over the last dimension. x: [..., n] -> [..., n].

    >>> ops.softmax(torch.zeros(1, 4, device="cuda"))
    tensor([[0.2500, 0.2500, 0.2500, 0.2500]], device='cuda:0')
    """
    return _softmax_op.ways[way(x)](x)


def log_softmax(x):
    """x - log sum exp(x) over the last dimension. x: [..., n] -> [..., n].

    >>> ops.log_softmax(torch.zeros(1, 1, device="cuda"))
    tensor([[0.]], device='cuda:0')
    """
    return _log_softmax_op.ways[way(x)](x)


# ---------------------------------------------------------------- norms
def _check_norm(op, x, residual, weight, bias):
    expect(x.dim() >= 1, op, "x", "it must have a dimension")
    for name, t in (("x", x), ("residual", residual), ("weight", weight), ("bias", bias)):
        expect_float(op, name, t)
    expect_like(op, "residual", residual, x.shape, "x")
    expect_like(op, "weight", weight, x.shape[-1:], "the last dimension of x")
    expect_like(op, "bias", bias, x.shape[-1:], "the last dimension of x")


def _norm(layer, x, residual, weight, bias, eps, weight_offset, statistics):
    """(y, h or None, mean or None, rstd or None)"""
    x, weight, bias = rows(x), dense(weight), dense(bias)
    y = empty(x)
    h = mean = rstd = None
    if residual is not None:
        residual = rows(residual)
        h = empty(residual)
    if statistics:
        rstd = empty(x, torch.float32, x.shape[:-1])
        mean = empty(rstd) if layer else None
    queue(_core.norm, x, layer, x, y, residual, weight, bias, h, mean, rstd, eps, weight_offset)
    return y, h, mean, rstd


def _norm_fake(op, layer, x, residual, weight, bias):
    _check_norm(op, x, residual, weight, bias)
    y, rstd = x.new_empty(x.shape), x.new_empty(x.shape[:-1], dtype=torch.float32)
    h = None if residual is None else residual.new_empty(residual.shape)
    return tuple(t for t in (y, h, rstd.new_empty(rstd.shape) if layer else None, rstd) if t is not None)


def _rms_norm(x, weight=None, eps=1e-6, weight_offset=0.0):
    y, _, _, rstd = _norm(False, x, None, weight, None, eps, weight_offset, True)
    return y, rstd


def _add_rms_norm(x, residual, weight=None, eps=1e-6, weight_offset=0.0):
    y, h, _, rstd = _norm(False, x, residual, weight, None, eps, weight_offset, True)
    return y, h, rstd


def _layer_norm(x, weight=None, bias=None, eps=1e-5):
    y, _, mean, rstd = _norm(True, x, None, weight, bias, eps, 0.0, True)
    return y, mean, rstd


def _add_layer_norm(x, residual, weight=None, bias=None, eps=1e-5):
    return _norm(True, x, residual, weight, bias, eps, 0.0, True)


_rms_norm_op = define(
    "rms_norm(Tensor x, Tensor? weight=None, float eps=1e-06, float weight_offset=0.0) -> (Tensor, Tensor)", _rms_norm,
    lambda x, weight=None, eps=1e-6, weight_offset=0.0: _norm_fake("rms_norm", False, x, None, weight, None),
    1, lambda x, weight, eps, weight_offset: _norm(False, x, None, weight, None, eps, weight_offset, False)[0])
_add_rms_norm_op = define(
    "add_rms_norm(Tensor x, Tensor residual, Tensor? weight=None, float eps=1e-06, float weight_offset=0.0) -> "
    "(Tensor, Tensor, Tensor)", _add_rms_norm,
    lambda x, residual, weight=None, eps=1e-6, weight_offset=0.0: _norm_fake("add_rms_norm", False, x, residual, weight, None),
    2, lambda x, residual, weight, eps, weight_offset: _norm(False, x, residual, weight, None, eps, weight_offset, False)[:2])
_layer_norm_op = define(
    "layer_norm(Tensor x, Tensor? weight=None, Tensor? bias=None, float eps=1e-05) -> (Tensor, Tensor, Tensor)", _layer_norm,
    lambda x, weight=None, bias=None, eps=1e-5: _norm_fake("layer_norm", True, x, None, weight, bias),
    1, lambda x, weight, bias, eps: _norm(True, x, None, weight, bias, eps, 0.0, False)[0])
_add_layer_norm_op = define(
    "add_layer_norm(Tensor x, Tensor residual, Tensor? weight=None, Tensor? bias=None, float eps=1e-05) -> "
    "(Tensor, Tensor, Tensor, Tensor)", _add_layer_norm,
    lambda x, residual, weight=None, bias=None, eps=1e-5: _norm_fake("add_layer_norm", True, x, residual, weight, bias),
    2, lambda x, residual, weight, bias, eps: _norm(True, x, residual, weight, bias, eps, 0.0, False)[:2])


def _norm_gradients(dy, x, dsum, weight, mean, rstd, bias, weight_offset):
    """(dx, dweight, dbias) of x that is h of the forward pass; None where there is no weight or bias."""
    dy, x, dsum = rows(dy), rows(x), None if dsum is None else rows(dsum)
    weight = dense(weight)
    dx = empty(x)
    like = x if weight is None else weight
    dweight = None if weight is None else empty(like, None, x.shape[-1:])
    dbias = empty(like, None, x.shape[-1:]) if bias else None
    queue(_core.norm_backward, x, mean is not None, x, dy, dx, dsum, weight, mean, rstd, dweight, dbias, weight_offset)
    return dx, dweight, dbias


def _norm_backward(dy, x, dsum, weight, *rest):
    """The same as an operator must give it: empty tensors where there is nothing."""
    dx, *others = _norm_gradients(dy, x, dsum, weight, *rest)
    return (dx, *((x if weight is None else weight).new_empty(0) if t is None else t for t in others))


def _norm_backward_fake(dy, x, dsum, weight, mean, rstd, bias, weight_offset):
    expect_like("norm_backward", "dy", dy, x.shape, "x")
    like = x if weight is None else weight
    return (x.new_empty(x.shape), like.new_empty(x.shape[-1:] if weight is not None else (0,)),
            like.new_empty(x.shape[-1:] if bias else (0,)))


_norm_backward_op = define(
    "norm_backward(Tensor dy, Tensor x, Tensor? dsum, Tensor? weight, Tensor? mean, Tensor rstd, bool bias, "
    "float weight_offset) -> (Tensor, Tensor, Tensor)", _norm_backward, _norm_backward_fake,
    plain=_norm_gradients)
no_second_gradient(_norm_backward_op)


def _register_norm(operator, layer, residual):
    """Inputs are (x, [residual], weight, [bias], eps, [weight_offset]), outputs (y, [h], [mean], rstd)."""

    def setup(ctx, inputs, output):
        rest = inputs[2 if residual else 1:]
        weight, bias = rest[0], rest[1] if layer else None
        ctx.offset = 0.0 if layer else rest[2]
        ctx.bias, ctx.x_dtype = bias is not None, inputs[0].dtype
        ctx.save_for_backward(output[1] if residual else inputs[0], weight, output[-2] if layer else None, output[-1])
        ctx.set_materialize_grads(False)

    def backward(ctx, dy, *grads):
        h, weight, mean, rstd = ctx.saved_tensors
        dsum = grads[0] if residual else None
        if dy is None:
            dx, dweight, dbias = dsum, None, None
        else:
            dx, dweight, dbias = _norm_backward_op.ways[way(dy, h, dsum, weight)](dy, h, dsum, weight, mean, rstd, ctx.bias,
                                                                                  ctx.offset)
        dweight = dweight if weight is not None else None
        dbias = dbias if ctx.bias else None
        own = dx if dx is None or dx.dtype is ctx.x_dtype else dx.to(ctx.x_dtype)
        parameters = (dweight, dbias, None) if layer else (dweight, None, None)
        return (own, dx, *parameters) if residual else (own, *parameters)

    gradient(operator, backward, setup)


_register_norm(_rms_norm_op, False, False)
_register_norm(_add_rms_norm_op, False, True)
_register_norm(_layer_norm_op, True, False)
_register_norm(_add_layer_norm_op, True, True)


def rms_norm(x, weight=None, eps=1e-6, weight_offset=0.0, residual=None):
    """h / sqrt(mean(h^2) + eps) * (weight + weight_offset), over the last dimension, with h = x + residual.

    x, residual: [..., n]; weight: [n] -> y [..., n], and h too (in the type of residual) where a residual is given.

    >>> ops.rms_norm(torch.full((1, 2), 3., device="cuda"), torch.ones(2, device="cuda"), eps=7.)
    tensor([[0.7500, 0.7500]], device='cuda:0')
    """
    if residual is None:
        return _rms_norm_op.ways[way(x, weight)](x, weight, eps, weight_offset)
    return _add_rms_norm_op.ways[way(x, residual, weight)](x, residual, weight, eps, weight_offset)


def layer_norm(x, weight=None, bias=None, eps=1e-5, residual=None):
    """(h - mean(h)) / sqrt(var(h) + eps) * weight + bias, over the last dimension, with h = x + residual.

    x, residual: [..., n]; weight, bias: [n] -> y [..., n], and h too (in the type of residual) where a residual is given.

    >>> ops.layer_norm(torch.tensor([[1., 3.]], device="cuda"), eps=0.)
    tensor([[-1.,  1.]], device='cuda:0')
    """
    if residual is None:
        return _layer_norm_op.ways[way(x, weight, bias)](x, weight, bias, eps)
    return _add_layer_norm_op.ways[way(x, residual, weight, bias)](x, residual, weight, bias, eps)


# ---------------------------------------------------------------- cross-entropy
_REDUCTIONS = ("mean", "sum", "none")


def _check_cross_entropy(logits, target, reduction):
    expect_float("cross_entropy", "logits", logits)
    expect(logits.dim() >= 1, "cross_entropy", "logits", "they must have a dimension")
    expect_like("cross_entropy", "target", target, logits.shape[:-1], "logits without the last dimension")
    if target.dtype not in (torch.int32, torch.int64):
        raise ArgumentError(f"cross_entropy: target is {target.dtype}; it must be int32 or int64")
    if reduction not in _REDUCTIONS:
        raise ArgumentError(f"cross_entropy: reduction must be one of {', '.join(map(repr, _REDUCTIONS))}, not {reduction!r}")


def _cross_entropy(logits, target, reduction="mean", ignore_index=-100, label_smoothing=0.0, z_loss=0.0):
    """(loss, 1 / count for a mean, else empty)"""
    _check_cross_entropy(logits, target, reduction)
    logits, target = rows(logits), target.contiguous()
    losses = empty(logits, torch.float32, target.shape)
    scale = empty(losses, None, (1 if reduction == "mean" else 0,))
    queue(_core.cross_entropy, logits, logits, target, losses, None, None, None, None, ignore_index, label_smoothing, z_loss)
    if reduction == "none":
        return losses, scale
    loss = empty(losses, None, ())
    queue(_core.mean_loss, logits, losses, target, ignore_index, scale if reduction == "mean" else None, loss)
    return loss, scale


def _cross_entropy_fake(logits, target, reduction="mean", ignore_index=-100, label_smoothing=0.0, z_loss=0.0):
    _check_cross_entropy(logits, target, reduction)
    shape = target.shape if reduction == "none" else ()
    return (logits.new_empty(shape, dtype=torch.float32),
            logits.new_empty(1 if reduction == "mean" else 0, dtype=torch.float32))


def _cross_entropy_backward(logits, target, scale, ignore_index, label_smoothing, z_loss):
    logits, target = rows(logits), target.contiguous()
    dlogits = aligned_rows(logits, logits.shape)
    queue(_core.cross_entropy, logits, logits, target, None, None, dlogits, scale, None, ignore_index, label_smoothing, z_loss)
    return dlogits


_cross_entropy_op = define(
    "cross_entropy(Tensor logits, Tensor target, str reduction='mean', int ignore_index=-100, float label_smoothing=0.0, "
    "float z_loss=0.0) -> (Tensor, Tensor)", _cross_entropy, _cross_entropy_fake, 1)
_cross_entropy_backward_op = define(
    "cross_entropy_backward(Tensor logits, Tensor target, Tensor? scale, int ignore_index, float label_smoothing, "
    "float z_loss) -> Tensor", _cross_entropy_backward, lambda logits, *_: aligned_rows(logits, logits.shape))
no_second_gradient(_cross_entropy_backward_op)


def _cross_entropy_setup(ctx, inputs, output):
    logits, target, ctx.reduction, *ctx.options = inputs
    ctx.save_for_backward(logits, target, output[1])
    ctx.set_materialize_grads(False)


def _cross_entropy_gradient(ctx, grad, *_):
    logits, target, scale = ctx.saved_tensors
    if grad is None:
        return (None,) * 6
    run = _cross_entropy_backward_op.ways[way(logits, target, grad)]
    if ctx.reduction == "none":
        dlogits = run(logits, target, None, *ctx.options)
        dlogits = dlogits * grad.unsqueeze(-1).to(dlogits.dtype)
    else:
        factor = grad.reshape(1).float()
        dlogits = run(logits, target, factor * scale if ctx.reduction == "mean" else factor, *ctx.options)
    return dlogits, None, None, None, None, None


gradient(_cross_entropy_op, _cross_entropy_gradient, _cross_entropy_setup)


def cross_entropy(logits, target, reduction="mean", ignore_index=-100, label_smoothing=0.0, z_loss=0.0):
    """log sum exp(logits) - logits[target], with label smoothing and z_loss * (log sum exp)^2 added; float32.

    logits: [..., n]; target: int32 or int64 [...] -> a scalar, or [...] for reduction="none". Neither the softmax nor
    the gradient is stored between the passes. A target that is no class and not ignore_index gives NaN.

    >>> ops.cross_entropy(torch.zeros(1, 1, device="cuda"), torch.zeros(1, dtype=torch.long, device="cuda"))
    tensor(0., device='cuda:0')
    """
    return _cross_entropy_op.ways[way(logits, target)](logits, target, reduction, ignore_index, label_smoothing, z_loss)
