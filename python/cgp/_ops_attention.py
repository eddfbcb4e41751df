# SPDX-License-Identifier: Apache-2.0
"""Attention and its gradient. See cgp.ops."""
import torch

from . import _core
from ._runtime import ArgumentError, Unsupported
from ._score import score_formula
from ._torch import FLOATS, define, dense, empty, expect, expect_float, expect_like, gradient, no_second_gradient, queue, way


def _last_contiguous(x):
    strides = x.stride()
    if strides[-1] == 1 and 0 not in strides:
        return x
    broadcast = any(s == 0 and n > 1 for n, s in zip(x.shape, x.stride()))
    return x if x.stride(-1) == 1 and not broadcast else x.contiguous()


def _without_gaps(x):
    """x, or a copy that has neither gaps nor repetitions: what a gradient can be strided as."""
    if x.is_contiguous() or (x.dim() == 4 and x.transpose(1, 2).is_contiguous()):
        return x
    extent = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride())) if x.numel() else 0
    return x if x.stride(-1) == 1 and extent == x.numel() else x.contiguous()


def _strided_as(x, like):
    if x.stride() == like.stride() or all(a == b or n == 1 for n, a, b in zip(x.shape, x.stride(), like.stride())):
        return x
    return empty(like, x.dtype, True).copy_(x)


def _output(q, v, new=empty):
    if q.dim() == 4 and q.stride(1) < q.stride(2):  # [batch, n, heads, d] seen as [batch, heads, n, d]: so is the result
        return new(q, None, (q.shape[0], q.shape[2], q.shape[1], v.shape[-1])).transpose(1, 2)
    return new(q, None, q.shape[:-1] + v.shape[-1:])


def _attention(q, k, v, causal=False, scale=0.0, window_left=0, window_right=0, soft_cap=0.0, slopes=None, mask=None):
    q, k, v = _last_contiguous(q), _last_contiguous(k), _last_contiguous(v)
    o = _output(q, v)
    lse = empty(q, torch.float32, q.shape[:-1])
    queue(_core.attention, q, q, k, v, o, lse, scale, int(causal), window_left, window_right, soft_cap, dense(slopes), mask,
          None, None, None)
    return o, lse


def _attention_fake(q, k, v, causal=False, scale=0.0, window_left=0, window_right=0, soft_cap=0.0, slopes=None, mask=None):
    for name, t in (("q", q), ("k", k), ("v", v)):
        expect_float("attention", name, t)
        expect(t.dim() == 4, "attention", name, f"it must be [batch, heads, n, d]; it is {list(t.shape)}")
        expect(t.dtype == q.dtype, "attention", name, f"it must be {q.dtype} as q; it is {t.dtype}")
    expect_like("attention", "k", k, (q.shape[0], *k.shape[1:3], q.shape[3]), "q")
    expect_like("attention", "v", v, (*k.shape[:3], v.shape[3]), "k")
    expect_like("attention", "slopes", slopes, q.shape[1:2], "q")
    if mask is not None:
        expect(mask.dim() == 4, "attention", "mask", f"it must have 4 dimensions; it is {list(mask.shape)}")
    return _output(_last_contiguous(q), v, lambda x, _, shape: x.new_empty(shape)), q.new_empty(q.shape[:-1], dtype=torch.float32)


_attention_op = define(
    "attention(Tensor q, Tensor k, Tensor v, bool causal=False, float scale=0.0, int window_left=0, int window_right=0, "
    "float soft_cap=0.0, Tensor? slopes=None, Tensor? mask=None) -> (Tensor, Tensor)", _attention, _attention_fake)


def _backward(q, k, v, o, lse, d_o, *options):
    q, k, v = _without_gaps(q), _without_gaps(k), _without_gaps(v)
    gradients = empty(q, None, True), empty(k, None, True), empty(v, None, True)
    return _gradients_into(gradients, q, k, v, o, lse, d_o, *options)


def _gradients_into(gradients, q, k, v, o, lse, d_o, causal, scale, window_left, window_right, soft_cap, slopes, mask):
    """The gradients of q, k and v into tensors that are strided as these."""
    o = _without_gaps(o)
    d_o = _strided_as(d_o, o)
    queue(_core.attention_backward, q, q, k, v, o, lse, d_o, *gradients, scale, int(causal), window_left, window_right, soft_cap,
          dense(slopes), mask, None, not torch.are_deterministic_algorithms_enabled(), None, None)
    return gradients


def _backward_fake(q, k, v, *_):
    return tuple(torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
                 for x in map(_without_gaps, (q, k, v)))


_backward_op = define(
    "attention_backward(Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor d_o, bool causal, float scale, "
    "int window_left, int window_right, float soft_cap, Tensor? slopes, Tensor? mask) -> (Tensor, Tensor, Tensor)", _backward,
    _backward_fake)
no_second_gradient(_backward_op)


def _setup(ctx, inputs, output):
    q, k, v, *options, slopes, mask = inputs
    for name, t in (("slopes", slopes), ("mask", mask)):
        if t is not None and t.requires_grad:
            raise Unsupported(f"cgp::attention has no gradient for {name}: detach it, or use PyTorch's attention")
    ctx.options = options
    ctx.save_for_backward(q, k, v, *output, slopes, mask)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _gradient(ctx, d_o, _):
    if d_o is None:
        return (None,) * 10
    q, k, v, o, lse, slopes, mask = ctx.saved_tensors
    return (*_backward_op.ways[way(q, k, v, o, d_o)](q, k, v, o, lse, d_o, *ctx.options, slopes, mask), *(None,) * 7)


gradient(_attention_op, _gradient, _setup)


# ---------------------------------------------------------------- score formulas, packed sequences, key lengths, e4m3 operands
def _all(q, k, v, cu_seqlens_q, cu_seqlens_kv, max_seqlen_q, max_seqlen_kv, key_lengths, q_scale, k_scale, v_scale, promoted, dtype,
         score, data, causal, scale, window_left, window_right, soft_cap, slopes, mask):
    q, k, v = _last_contiguous(q), _last_contiguous(k), _last_contiguous(v)
    o = empty(q, dtype, (*q.shape[:-1], v.shape[-1])) if q.dim() == 3 else _output(q, v, lambda x, _, shape: empty(x, dtype, shape))
    lse = empty(q, torch.float32, (q.shape[1], q.shape[0]) if q.dim() == 3 else q.shape[:-1])
    queue(_core.attention, q, q, k, v, o, lse, scale, int(causal), window_left, window_right, soft_cap, dense(slopes), mask,
          dense(key_lengths), score, dense(data), dense(cu_seqlens_q), dense(cu_seqlens_kv), q_scale, k_scale, v_scale, max_seqlen_q,
          max_seqlen_kv, promoted)
    return o, lse


def _all_fake(q, k, v, cu_seqlens_q, cu_seqlens_kv, max_seqlen_q, max_seqlen_kv, key_lengths, q_scale, k_scale, v_scale, promoted, dtype,
              score, data, *others):
    if q.dim() == 4 and dtype is None:
        return _attention_fake(q, k, v, *others)

    def new(x, _, shape):
        return x.new_empty(shape, dtype=dtype or x.dtype)

    if q.dim() == 3:
        return new(q, None, (*q.shape[:-1], v.shape[-1])), q.new_empty((q.shape[1], q.shape[0]), dtype=torch.float32)
    return _output(_last_contiguous(q), v, new), q.new_empty(q.shape[:-1], dtype=torch.float32)


_MORE = ("Tensor? cu_seqlens_q, Tensor? cu_seqlens_kv, int max_seqlen_q, int max_seqlen_kv, Tensor? key_lengths, Tensor? q_scale, "
         "Tensor? k_scale, Tensor? v_scale, bool promoted, ScalarType? dtype, str? score, Tensor? data, bool causal, float scale, "
         "int window_left, int window_right, float soft_cap, Tensor? slopes, Tensor? mask")
_all_op = define(f"attention_all(Tensor q, Tensor k, Tensor v, {_MORE}) -> (Tensor, Tensor)", _all, _all_fake)


def _all_backward(q, k, v, o, lse, d_o, cu_seqlens_q, cu_seqlens_kv, max_seqlen_q, max_seqlen_kv, key_lengths, score, data, causal, scale,
                  window_left, window_right, soft_cap, slopes, mask):
    q, k, v, o = (x.contiguous() if x.dim() == 3 else _without_gaps(x) for x in (q, k, v, o))
    gradients = empty(q, None, True), empty(k, None, True), empty(v, None, True)
    queue(_core.attention_backward, q, q, k, v, o, lse, _strided_as(d_o, o), *gradients, scale, int(causal), window_left, window_right,
          soft_cap, dense(slopes), mask, dense(key_lengths), not torch.are_deterministic_algorithms_enabled(), score, dense(data),
          dense(cu_seqlens_q), dense(cu_seqlens_kv), None, None, None, max_seqlen_q, max_seqlen_kv, False)
    return gradients


def _all_backward_fake(q, k, v, *_):
    return tuple(x.new_empty(x.shape) for x in (q, k, v)) if q.dim() == 3 else _backward_fake(q, k, v)


_all_backward_op = define(
    "attention_all_backward(Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor d_o, Tensor? cu_seqlens_q, "
    "Tensor? cu_seqlens_kv, int max_seqlen_q, int max_seqlen_kv, Tensor? key_lengths, str? score, Tensor? data, bool causal, "
    "float scale, int window_left, int window_right, float soft_cap, Tensor? slopes, Tensor? mask) -> (Tensor, Tensor, Tensor)", _all_backward, _all_backward_fake)
no_second_gradient(_all_backward_op)


def _all_setup(ctx, inputs, output):
    q, k, v, cu_seqlens_q, cu_seqlens_kv, max_seqlen_q, max_seqlen_kv, lengths, *_, score, data = inputs[:-7]
    causal, scale, left, right, soft_cap, slopes, mask = inputs[-7:]
    if q.dtype not in FLOATS:
        raise Unsupported(f"cgp::attention has no gradient for operands of {q.dtype}")
    for name, t in (("score_data", data), ("slopes", slopes), ("mask", mask)):
        if t is not None and t.requires_grad:
            raise Unsupported(f"cgp::attention has no gradient for {name}: detach it, or use PyTorch's flex_attention")
    ctx.options = max_seqlen_q, max_seqlen_kv, score, (causal, scale, left, right, soft_cap)
    ctx.save_for_backward(q, k, v, *output, cu_seqlens_q, cu_seqlens_kv, lengths, data, slopes, mask)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _all_gradient(ctx, d_o, _):
    if d_o is None:
        return (None,) * 22
    q, k, v, o, lse, cu_seqlens_q, cu_seqlens_kv, lengths, data, slopes, mask = ctx.saved_tensors
    max_seqlen_q, max_seqlen_kv, score, numbers = ctx.options
    return (*_all_backward_op.ways[way(q, k, v, o, d_o)](q, k, v, o, lse, d_o, cu_seqlens_q, cu_seqlens_kv, max_seqlen_q, max_seqlen_kv,
                                                         lengths, score, data, *numbers, slopes, mask), *(None,) * 19)


gradient(_all_op, _all_gradient, _all_setup)


def attention(q, k, v, causal=False, scale=0.0, window_left=0, window_right=0, soft_cap=0.0, slopes=None, mask=None, score=None,
              score_data=None, key_lengths=None, cu_seqlens_q=None, cu_seqlens_kv=None, max_seqlen_q=0, max_seqlen_kv=0,
              q_scale=None, k_scale=None, v_scale=None, promoted=False, dtype=torch.bfloat16):
    """(softmax(q k^T * scale + ...) v, the log-sum-exp of each row), without the matrix of scores in memory.

    q: [batch, heads, n_q, d]; k, v: [batch, heads_kv, n_kv, d] -> [batch, heads, n_q, d], float32 [batch, heads, n_q].
    causal: the last query is aligned with the last key. scale 0: 1 / sqrt(d). window_left, window_right: keys before and after
    a query's own that it sees, plus 1; 0: all. slopes: ALiBi, float32 [heads]. mask: [batch or 1, heads or 1, n_q or 1, n_kv], added,
    or bool: False hides. score: a function like flex_attention's score_mod (score, batch, head, query, key), which may read
    score_data (float32) through one more argument, or cgp.score_formula's result for it. q, k and v have gradients; lse has
    none. With torch.use_deterministic_algorithms(True) gradients are the same bits at every run.

    key_lengths: int32 [batch], the keys of each sequence; queries are aligned with the last of them.

    cu_seqlens_q, cu_seqlens_kv: int32 [sequences + 1], for packed sequences of different lengths, q: [rows, heads, d]; k, v:
    [rows, heads_kv, d] -> [rows, heads, d], float32 [heads, rows]: the first row of each sequence and the end of the last.
    max_seqlen_q, max_seqlen_kv: rows of the longest sequence, or more (0: all rows).

    q, k, v of float8_e4m3fn, without a gradient: the result is of `dtype`, bfloat16 or float16; q_scale, k_scale, v_scale:
    dequantization scales, float32 of one element or [batch, heads] ([batch, heads_kv]); None: 1. promoted: partial sums over
    keys are added in float32 outside the tensor cores, whose accumulators keep 14 bits; up to d 128.

    >>> q = torch.ones(1, 1, 3, 8, device="cuda")
    >>> ops.attention(q, q, q, causal=True)[0].shape
    torch.Size([1, 1, 3, 8])
    """
    if score_data is not None and score is None:
        raise ArgumentError("attention: score_data is there, and no score that reads it")
    small = q.dtype not in FLOATS
    if not small and (promoted or any(s is not None for s in (q_scale, k_scale, v_scale))):
        raise ArgumentError(f"attention: q_scale, k_scale, v_scale and promoted are of operands of 8 bits; these are {q.dtype}")
    packed = cu_seqlens_q is not None or cu_seqlens_kv is not None or max_seqlen_q or max_seqlen_kv
    if small or score is not None or key_lengths is not None or packed:
        return _all_op.ways[way(q, k, v, score_data, slopes, mask)](
            q, k, v, cu_seqlens_q, cu_seqlens_kv, max_seqlen_q, max_seqlen_kv, key_lengths, q_scale, k_scale, v_scale, promoted,
            dtype if small else None, None if score is None else score_formula(score), score_data, causal, scale, window_left,
            window_right, soft_cap, slopes, mask)
    return _attention_op.ways[way(q, k, v, slopes, mask)](q, k, v, causal, scale, window_left, window_right, soft_cap, slopes,
                                                          mask)
