# SPDX-License-Identifier: Apache-2.0
"""Drop-ins for functions of torch.nn.functional: the same arguments and meaning. What cgp cannot do (tensors on the
CPU, dropout inside attention, autocast, which chooses types) is left to PyTorch's own function, silently: a drop-in must not
change what a program can do, nor what it is told about mistakes. `cgp.ops` refuses instead."""
import math

import torch
import torch.nn.functional as F

from .. import ops

__all__ = [
    "cross_entropy", "gelu", "layer_norm", "linear", "log_softmax", "relu", "rms_norm", "scaled_dot_product_attention",
    "silu", "softmax"
]

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def _usable(t):
    return t.is_cuda and t.dtype in _FLOATS and t.dim() <= 8


def _ours(*tensors):
    return all(t is None or _usable(t) for t in tensors) and not torch.is_autocast_enabled()


def linear(input, weight, bias=None):
    """input [..., k], weight [n, k], bias [n] -> [..., n].

    >>> linear(torch.ones(1, 2, device="cuda"), torch.ones(1, 2, device="cuda"))
    tensor([[2.]], device='cuda:0')
    """
    fits = (_ours(input, weight, bias) and input.dtype == weight.dtype and input.dim() >= 2 and weight.dim() == 2 and
            input.shape[-1] == weight.shape[1] and
            (bias is None or (bias.shape == weight.shape[:1] and bias.dtype == input.dtype)))
    if not fits:
        return F.linear(input, weight, bias)
    return ops.matmul(input, weight.mT, bias)


def _attends(query, key, value, scale, most):
    """Whether these are shapes of ours, which PyTorch would not broadcast."""
    return (query.dim() == key.dim() == value.dim() == 4 and query.dtype == key.dtype == value.dtype and
            query.shape[0] == key.shape[0] and key.shape[:3] == value.shape[:3] and query.shape[3] == key.shape[3] and
            0 < query.shape[3] <= most and 0 < value.shape[3] <= most and query.shape[1] % max(key.shape[1], 1) == 0 and
            key.shape[1] > 0 and (scale is None or 0 < scale < math.inf))


def _four(mask):
    return mask if mask is None or mask.dim() >= 4 else mask[(None,) * (4 - mask.dim())]


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
                                 enable_gqa=False):
    """query [..., heads, n_q, d], key and value [..., heads_kv, n_kv, d] -> [..., heads, n_q, d]. is_causal is PyTorch's:
    query i sees keys up to i, which is ours only where n_q = n_kv.

    >>> q = torch.ones(1, 1, 3, 8, device="cuda")
    >>> scaled_dot_product_attention(q, q, q).shape
    torch.Size([1, 1, 3, 8])
    """
    needs_grad = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (query, key, value, attn_mask))
    if needs_grad:  # wider heads and float32 have kernels that are not fast
        most, needs_grad = 128, query.dtype == torch.float32 or getattr(attn_mask, "requires_grad", False)
    else:
        most = 256
    fits = (_ours(query, key, value) and dropout_p == 0 and not needs_grad and _attends(query, key, value, scale, most) and
            (not is_causal or query.shape[-2] == key.shape[-2]) and (enable_gqa or query.shape[1] == key.shape[1]))
    if attn_mask is not None and fits:
        full = (*query.shape[:3], key.shape[2])
        fits = (not is_causal and 1 <= attn_mask.dim() <= 4 and attn_mask.is_cuda == query.is_cuda and
                attn_mask.dtype in (torch.bool, query.dtype) and attn_mask.shape[-1] == full[-1] and
                all(m in (1, n) for m, n in zip(reversed(attn_mask.shape), reversed(full))))
    if not fits:
        return F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale,
                                              enable_gqa=enable_gqa)
    return ops.attention(query, key, value, is_causal, float(scale or 0), 0, 0, 0.0, None, _four(attn_mask))[0]


def _last(input, dim, dtype):
    return dtype is None and input.dim() > 0 and dim in (-1, input.dim() - 1) and _ours(input)


def softmax(input, dim=None, _stacklevel=3, dtype=None):
    """Softmax over the last dimension, input [..., n] -> [..., n]; other dimensions (and which one, if none is given) are
    PyTorch's.

    >>> softmax(torch.zeros(1, 2, device="cuda"), -1)
    tensor([[0.5000, 0.5000]], device='cuda:0')
    """
    return ops.softmax(input) if _last(input, dim, dtype) else F.softmax(input, dim, _stacklevel + 1, dtype)


def log_softmax(input, dim=None, _stacklevel=3, dtype=None):
    """The logarithm of the softmax over the last dimension, input [..., n] -> [..., n]; other dimensions (and which one, if
    none is given) are PyTorch's.

    >>> log_softmax(torch.zeros(1, 1, device="cuda"), -1)
    tensor([[0.]], device='cuda:0')
    """
    return ops.log_softmax(input) if _last(input, dim, dtype) else F.log_softmax(input, dim, _stacklevel + 1, dtype)


def _normalises_rows(input, normalized_shape, *parameters):
    one = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    return (one == tuple(input.shape[-1:]) and input.shape[-1] > 0 and _ours(input, *parameters) and
            all(p is None or tuple(p.shape) == one for p in parameters))


def rms_norm(input, normalized_shape, weight=None, eps=None):
    """RMSNorm over the last dimension: input [..., n], normalized_shape (n,), weight [n] -> [..., n]. Several dimensions are
    PyTorch's.

    >>> rms_norm(torch.ones(1, 4, device="cuda"), (4,))
    tensor([[1., 1., 1., 1.]], device='cuda:0')
    """
    if not _normalises_rows(input, normalized_shape, weight) or (eps is None and input.dtype != torch.float32):
        return F.rms_norm(input, normalized_shape, weight, eps)  # what eps is then, versions of PyTorch disagree
    return ops.rms_norm(input, weight, torch.finfo(input.dtype).eps if eps is None else eps)


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    """LayerNorm over the last dimension: input [..., n], normalized_shape (n,), weight and bias [n] -> [..., n]. Several
    dimensions are PyTorch's.

    >>> layer_norm(torch.ones(1, 2, device="cuda"), (2,))
    tensor([[0., 0.]], device='cuda:0')
    """
    if not _normalises_rows(input, normalized_shape, weight, bias):
        return F.layer_norm(input, normalized_shape, weight, bias, eps)
    return ops.layer_norm(input, weight, bias, eps)


def cross_entropy(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean",
                  label_smoothing=0.0):
    """input [rows, classes] or [classes], target int64 [rows] or [] -> a scalar, or as target for reduction="none", in the type
    of the input. Weights of classes, targets that are probabilities and further dimensions are PyTorch's. A target that is no
    class gives NaN, not an assertion on the device.

    >>> cross_entropy(torch.zeros(1, 1, device="cuda"), torch.zeros(1, dtype=torch.long, device="cuda"))
    tensor(0., device='cuda:0')
    """
    if (weight is not None or size_average is not None or reduce is not None or not _ours(input) or input.dim() not in (1, 2) or
            target.dtype != torch.int64 or target.shape != input.shape[:-1] or input.shape[-1] == 0 or
            reduction not in ("mean", "sum", "none") or not 0 <= label_smoothing <= 1):
        return F.cross_entropy(input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing)
    return ops.cross_entropy(input, target, reduction, ignore_index, label_smoothing).to(input.dtype)


def silu(input, inplace=False):
    """x / (1 + exp(-x)), any shape.

    >>> silu(torch.zeros(1, device="cuda"))
    tensor([0.], device='cuda:0')
    """
    return F.silu(input, inplace) if inplace or input.dim() == 0 or not _ours(input) else ops.activate(input, "silu")


def gelu(input, approximate="none"):
    """x Phi(x), any shape; approximate="tanh": its approximation.

    >>> gelu(torch.zeros(1, device="cuda"))
    tensor([0.], device='cuda:0')
    """
    if approximate not in ("none", "tanh") or input.dim() == 0 or not _ours(input):
        return F.gelu(input, approximate=approximate)
    return ops.activate(input, "gelu" if approximate == "none" else "gelu_tanh")


def relu(input, inplace=False):
    """max(x, 0), any shape.

    >>> relu(torch.ones(1, device="cuda"))
    tensor([1.], device='cuda:0')
    """
    return F.relu(input, inplace) if inplace or input.dim() == 0 or not _ours(input) else ops.activate(input, "relu")
