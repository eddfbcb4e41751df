# SPDX-License-Identifier: Apache-2.0
"""Operators on elements and pairs of elements: RoPE, activations, gated activations. See cgp.ops."""
import torch

from . import _core
from ._options import ELEMENTWISE, ROPE_SCALINGS, check_rope, choice
from ._torch import define, dense, empty, expect, expect_float, expect_like, gradient, no_second_gradient, queue, rows, way


# ---------------------------------------------------------------- rotary position embedding
def _heads(x):
    """x, or a copy: [..., heads, dim] with a contiguous last dimension and leading ones that collapse."""
    if x.is_contiguous():
        return x
    stride = x.stride()
    if x.dim() < 2 or (x.shape[-1] > 1 and stride[-1] != 1) or (x.shape[-2] > 1 and stride[-2] == 0):
        return x.contiguous()
    step = None
    for n, s in zip(reversed(x.shape[:-2]), reversed(stride[:-2])):
        if n == 1:
            continue
        if s == 0 if step is None else s != step:
            return x.contiguous()
        step = s * n
    return x


def _rope(x, cos=None, sin=None, positions=None, sequence=0, offset=0, rotary=0, interleaved=False, inverse=False,
          base=10000.0, scaling="none", factor=1.0, original_positions=0.0):
    check_rope(cos, sequence, offset, base, scaling, factor)
    x = _heads(x)
    y = empty(x)
    queue(_core.rope, x, x, y, dense(cos), dense(sin), dense(positions), sequence, offset, rotary, interleaved, inverse,
          choice(ROPE_SCALINGS, scaling, "rope: scaling"), base, factor, original_positions)
    return y


def _rope_fake(x, cos=None, sin=None, positions=None, sequence=0, offset=0, rotary=0, interleaved=False, inverse=False,
               base=10000.0, scaling="none", factor=1.0, original_positions=0.0):
    expect_float("rope", "x", x)
    check_rope(cos, sequence, offset, base, scaling, factor)
    expect(x.dim() >= 2, "rope", "x", "it must have dimensions [..., heads, dim]")
    expect((cos is None) == (sin is None), "rope", "cos", "it and sin must be given together")
    if cos is not None:
        expect_like("rope", "sin", sin, cos.shape, "cos")
    return x.new_empty(x.shape)


_rope_op = define(
    "rope(Tensor x, Tensor? cos=None, Tensor? sin=None, Tensor? positions=None, int sequence=0, int offset=0, int rotary=0, "
    "bool interleaved=False, bool inverse=False, float base=10000.0, str scaling='none', float factor=1.0, "
    "float original_positions=0.0) -> Tensor", _rope, _rope_fake)


def _rope_setup(ctx, inputs, output):
    _, cos, sin, positions, *ctx.options = inputs
    ctx.save_for_backward(cos, sin, positions)


def _rope_gradient(ctx, dy):
    options = list(ctx.options)
    options[4] = not options[4]  # inverse
    tables = ctx.saved_tensors
    return (_rope_op.ways[way(dy, *tables)](dy, *tables, *options),) + (None,) * 12


gradient(_rope_op, _rope_gradient, _rope_setup)


def rope(x, cos=None, sin=None, positions=None, sequence=0, offset=0, rotary=0, interleaved=False, inverse=False,
         base=10000.0, scaling="none", factor=1.0, original_positions=0.0):
    """Turns pairs of elements of each head by their position: (a, b) -> (a cos - b sin, a sin + b cos).

    x: [..., heads, dim], leading dimensions are tokens -> the same shape. Pair i is (i, i + rotary / 2), or (2 i, 2 i + 1)
    when interleaved; rotary = 0 is dim. cos, sin: float32 [positions, rotary / 2], or neither: then angles are
    position * base^(-2 i / rotary), exactly, scaled by "linear", "ntk", "yarn" or "llama3" with factor. positions: int32 or
    int64, one a token; else offset + token % sequence (0: the tokens are one sequence). The gradient is `inverse`.

    >>> ops.rope(torch.ones(1, 1, 2, device="cuda"))            # position 0 turns nothing
    tensor([[[1., 1.]]], device='cuda:0')
    """
    return _rope_op.ways[way(x, cos, sin, positions)](x, cos, sin, positions, sequence, offset, rotary, interleaved, inverse, base,
                                                      scaling, factor, original_positions)


# ---------------------------------------------------------------- activations
def _activate(x, activation, bias=None):
    x = rows(x)
    y = empty(x)
    queue(_core.activate, x, choice(ELEMENTWISE, activation, "activation"), x, dense(bias), y)
    return y


def _activate_backward(x, activation, bias, dy):
    x, dy = rows(x), rows(dy)
    dx = empty(x)
    queue(_core.activate_backward, x, choice(ELEMENTWISE, activation, "activation"), x, dense(bias), dy, dx)
    return dx


def _activate_fake(x, activation, bias=None, dy=None):
    expect_float("activate", "x", x)
    choice(ELEMENTWISE, activation, "activation")
    expect_like("activate", "bias", bias, x.shape[-1:], "the last dimension of x")
    expect_like("activate", "dy", dy, x.shape, "x")
    return x.new_empty(x.shape)


_activate_op = define("activate(Tensor x, str activation, Tensor? bias=None) -> Tensor", _activate, _activate_fake)
_activate_backward_op = define("activate_backward(Tensor x, str activation, Tensor? bias, Tensor dy) -> Tensor",
                               _activate_backward, _activate_fake)
no_second_gradient(_activate_backward_op)


def _activate_setup(ctx, inputs, output):
    x, ctx.activation, bias = inputs
    ctx.save_for_backward(x, bias)


def _activate_gradient(ctx, dy):
    x, bias = ctx.saved_tensors
    dx = _activate_backward_op.ways[way(x, bias, dy)](x, ctx.activation, bias, dy)
    dbias = dx.reshape(-1, dx.shape[-1]).sum(0, dtype=bias.dtype) if bias is not None and ctx.needs_input_grad[2] else None
    return dx, None, dbias


gradient(_activate_op, _activate_gradient, _activate_setup)


def activate(x, activation, bias=None):
    """f(x + bias) for activation "relu", "silu", "gelu" or "gelu_tanh". x: [..., n]; bias: [n] -> [..., n].

    >>> ops.activate(torch.tensor([[-1., 2.]], device="cuda"), "relu")
    tensor([[0., 2.]], device='cuda:0')
    """
    return _activate_op.ways[way(x, bias)](x, activation, bias)


def _gated(gate, up, activation="silu"):
    gate, up = rows(gate), rows(up)
    out = empty(gate)
    queue(_core.gated, gate, choice(ELEMENTWISE, activation, "activation"), gate, up, out)
    return out


def _gated_fake(gate, up, activation="silu"):
    expect_float("gated", "gate", gate), expect_float("gated", "up", up)
    expect_like("gated", "up", up, gate.shape, "gate")
    choice(ELEMENTWISE, activation, "activation")
    return gate.new_empty(gate.shape)


def _gated_backward(gate, up, dout, activation):
    gate, up, dout = rows(gate), rows(up), rows(dout)
    dgate, dup = empty(gate), empty(up)
    queue(_core.gated_backward, gate, choice(ELEMENTWISE, activation, "activation"), gate, up, dout, dgate, dup)
    return dgate, dup


def _gated_setup(ctx, inputs, output):
    gate, up, ctx.activation = inputs
    ctx.save_for_backward(gate, up)


_gated_op = define("gated(Tensor gate, Tensor up, str activation='silu') -> Tensor", _gated, _gated_fake)
_gated_backward_op = define("gated_backward(Tensor gate, Tensor up, Tensor dout, str activation) -> (Tensor, Tensor)",
                            _gated_backward, lambda gate, up, *_: (gate.new_empty(gate.shape), up.new_empty(up.shape)))
no_second_gradient(_gated_backward_op)


def _gated_gradient(ctx, dout):
    gate, up = ctx.saved_tensors
    return (*_gated_backward_op.ways[way(gate, up, dout)](gate, up, dout, ctx.activation), None)


gradient(_gated_op, _gated_gradient, _gated_setup)


def gated(gate, up, activation="silu"):
    """f(gate) * up: SwiGLU for "silu", GeGLU for "gelu" and "gelu_tanh", ReGLU for "relu". gate, up: [..., n] -> [..., n].
    They may be the halves of one tensor (x.chunk(2, -1)).

    >>> ops.gated(torch.ones(1, 1, device="cuda"), torch.full((1, 1), 2., device="cuda"), "relu")
    tensor([[2.]], device='cuda:0')
    """
    return _gated_op.ways[way(gate, up)](gate, up, activation)


def swiglu(gate, up):
    """silu(gate) * up. gate, up: [..., n] -> [..., n].

    >>> ops.swiglu(torch.zeros(1, 1, device="cuda"), torch.ones(1, 1, device="cuda"))
    tensor([[0.]], device='cuda:0')
    """
    return gated(gate, up, "silu")
