# SPDX-License-Identifier: Apache-2.0
"""Drop-ins for functions of torch.nn.functional: the same arguments and meaning. What cgp cannot do (tensors on the
CPU, dropout inside attention, gradients of attention) is left to PyTorch's own function, silently: a drop-in must not
change what a program can do. `cgp.ops` refuses instead."""
import torch
import torch.nn.functional as F

from .. import ops

__all__ = ["linear", "scaled_dot_product_attention", "softmax"]

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def _ours(*tensors):
    return all(t.is_cuda and t.dtype in _FLOATS for t in tensors)


def linear(input, weight, bias=None):
    """input [..., k], weight [n, k], bias [n] -> [..., n]."""
    if not _ours(input, weight) or input.dtype != weight.dtype or input.dim() < 2:
        return F.linear(input, weight, bias)
    return ops.matmul(input, weight.mT, bias)


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
                                 enable_gqa=False):
    """query [..., heads, n_q, d], key and value [..., heads_kv, n_kv, d]. is_causal is PyTorch's: query i sees keys up to
    i, which is ours only where n_q = n_kv."""
    needs_grad = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    fits = (query.dim() == 4 and _ours(query, key, value) and dropout_p == 0 and not needs_grad and query.shape[-1] <= 256 and
            value.shape[-1] <= 256 and (not is_causal or query.shape[-2] == key.shape[-2]) and
            (enable_gqa or query.shape[1] == key.shape[1]) and query.dtype == key.dtype == value.dtype)
    if attn_mask is not None:
        fits = fits and not is_causal and attn_mask.dim() == 4 and attn_mask.dtype in (torch.bool, query.dtype)
    if not fits:
        return F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale,
                                              enable_gqa=enable_gqa)
    return ops.attention(query, key, value, is_causal, float(scale or 0), 0, 0, 0.0, None, attn_mask)[0]


def softmax(input, dim=-1, dtype=None):
    """Softmax over the last dimension; other dimensions are PyTorch's."""
    if dtype is not None or dim not in (-1, input.dim() - 1) or not _ours(input):
        return F.softmax(input, dim, dtype=dtype)
    return ops.softmax(input)
