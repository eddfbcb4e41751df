# SPDX-License-Identifier: Apache-2.0
"""Layers of transformers on a few tokens: a whole layer as few calls, past the modules inside it.

What such a layer costs in PyTorch is Python: some forty calls. Here a Llama's layer is eight."""
import torch

from . import _core
from ._functions import ACTIVATIONS
from ._torch import queue

NONE, RMS, LAYER = 0, 1, 2
MOST = 8  # rows of few_rows
MOST_NORMED = 4096  # columns that few_rows normalises
_HALVES = (torch.float16, torch.bfloat16)


def few_calls(x, weights, biases, y, *, norm=None, kind=NONE, eps=0.0, residual=None, activation=0, gated=False, early=False,
              normed=None):
    """(function of _core, arguments after the stream) of y = f(norm(x) w' + b) + residual for up to MOST rows; `normed` is
    memory for rows that are too long to be normalised on the way."""
    calls, kind = [], kind if norm else NONE
    weight, bias = norm or (None, None)
    if kind and x.shape[-1] > MOST_NORMED:
        normed = torch.empty_like(x) if normed is None else normed
        calls.append((_core.norm, (kind == LAYER, x, normed, None, weight, bias, None, None, None, eps, 0.0)))
        x, kind, weight, bias = normed, NONE, None, None
    weights, biases = (tuple(t) + (None,) * (3 - len(t)) for t in (weights, biases))
    calls.append((_core.few_rows, (x, *weights, *biases, residual, weight, bias, eps, 0.0, kind, activation, gated, early,
                                  None, None, 0, y)))
    return calls


def _run(x, weights, biases, columns, **options):
    y = x.new_empty((x.shape[0], columns))
    for function, arguments in few_calls(x, weights, biases, y, **options):
        queue(function, x, *arguments)
    return y


def _there(t):
    return t.is_cuda


def _suits(layer, x):
    return (not torch.is_grad_enabled() and not layer.training and _there(x) and x.dtype in _HALVES and x.dim() == 3 and
            0 < x.shape[0] * x.shape[1] <= MOST and type(x) is torch.Tensor and not torch.compiler.is_compiling())


class _Parts:
    """Weights of a layer, and whether they are still those."""

    def __init__(self, modules, weights, **values):
        self.modules, self.weights = modules, weights
        self.state = tuple((w.data_ptr(), w.dtype) for w in weights)
        self.__dict__.update(values)

    def stale(self, modules):
        return (any(a is not b for a, b in zip(self.modules, modules)) or
                self.state != tuple((w.data_ptr(), w.dtype) for w in self.weights))


def _hooked(module):
    return any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())


def _attend(attention, module, q, k, v, mask, cache, scale, window=None):
    """q, k, v: [batch, heads, n, d] -> [tokens, heads * d]"""
    if cache is not None:
        k, v = cache.update(k, v, module.layer_idx)
    out = attention(module, q, k, v, mask, scaling=scale, sliding_window=window)[0]  # [batch, n, heads, d]
    return out.reshape(out.shape[0] * out.shape[1], -1)


# ---------------------------------------------------------------- Llama and its kind
def _llama_modules(layer):
    a, m = layer.self_attn, layer.mlp
    return (a.q_proj, a.k_proj, a.v_proj, a.o_proj, m.gate_proj, m.up_proj, m.down_proj, layer.input_layernorm,
            layer.post_attention_layernorm)


def _llama_parts(layer, activation):
    a, modules = layer.self_attn, _llama_modules(layer)
    plain = all(type(m) is torch.nn.Linear for m in modules[:7])
    if not plain or activation is None or _hooked(layer) or hasattr(a, "q_norm"):
        return None
    norms = [m.weight for m in modules[7:]]
    weights = [m.weight for m in modules[:7]]
    if any(w.dtype not in _HALVES or not w.is_contiguous() or not _there(w) for w in weights + norms):
        return None
    if any((m.bias is None) != (modules[0].bias is None) for m in modules[:3]) or any(
            (m.bias is None) != (modules[4].bias is None) for m in modules[4:6]):
        return None
    return _Parts(modules, weights + norms, biases=[m.bias for m in modules[:7]], activation=ACTIVATIONS[activation],
                  eps=layer.input_layernorm.variance_epsilon, eps2=layer.post_attention_layernorm.variance_epsilon,
                  window=getattr(a.config if type(a).__name__ == "MistralAttention" else a, "sliding_window", None))


def llama(layer, x, mask, cache, tables, attention, activation):
    """The layer's result, or None where it must go the usual way. `tables`: (cos, sin, rows that repeat or 0) of half a head."""
    if not _suits(layer, x):
        return None
    parts = layer.__dict__.get("_cgp_few", False)
    if parts is False or (parts is not None and parts.stale(_llama_modules(layer))):
        parts = layer.__dict__["_cgp_few"] = _llama_parts(layer, activation)
    if parts is None or parts.state[0][1] != x.dtype:
        return None
    cos, sin, sequence = tables
    a, w, biases = layer.self_attn, parts.weights, parts.biases
    b, n, width = x.shape
    d, tokens = a.head_dim, b * n
    if cos.shape[1] * 2 != d:
        return None
    x = x.reshape(tokens, width)
    qkv = _run(x, w[:3], biases[:3], sum(t.shape[0] for t in w[:3]), norm=(w[7], None), kind=RMS, eps=parts.eps)
    heads, heads_kv = w[0].shape[0] // d, w[1].shape[0] // d
    turned = qkv.view(tokens, -1, d)[:, :heads + heads_kv]
    queue(_core.rope, x, turned, turned, cos, sin, None, sequence, 0, 0, False, False, 0, 10000.0, 1.0, 0.0)
    q, k, v = qkv.view(b, n, -1, d).transpose(1, 2).split((heads, heads_kv, heads_kv), 1)
    x = _run(_attend(attention, a, q, k, v, mask, cache, a.scaling, parts.window), w[3:4], biases[3:4], width, residual=x)
    wide = _run(x, w[4:6], biases[4:6], w[4].shape[0], norm=(w[8], None), kind=RMS, eps=parts.eps2, activation=parts.activation,
                gated=True)
    return _run(wide, w[6:7], biases[6:7], width, residual=x).view(b, n, width)


# ---------------------------------------------------------------- GPT-2
def _gpt2_modules(block):
    a, m = block.attn, block.mlp
    return a.c_attn, a.c_proj, m.c_fc, m.c_proj, block.ln_1, block.ln_2


def _gpt2_parts(block, activation):
    modules = _gpt2_modules(block)
    if (any(type(m).__name__ != "Conv1D" for m in modules[:4]) or activation is None or _hooked(block) or
            hasattr(block, "crossattention") or getattr(block.attn, "scale_attn_by_inverse_layer_idx", False) or
            not getattr(block.attn, "scale_attn_weights", True)):
        return None
    sources = [m.weight for m in modules[:4]]
    small = [t for m in modules for t in (m.bias,)] + [m.weight for m in modules[4:]]
    if any(t is None or t.dtype not in _HALVES or not _there(t) for t in sources + small):
        return None
    parts = _Parts(modules, sources, biases=[m.bias for m in modules[:4]], activation=ACTIVATIONS[activation],
                   norms=[(m.weight, m.bias) for m in modules[4:]], eps=[m.eps for m in modules[4:]])
    parts.versions = [w._version for w in sources]
    parts.turned = [w.detach().t().contiguous() for w in sources]  # [n, k], as few_rows reads them
    return parts


def gpt2(block, x, mask, cache, attention, activation):
    """The block's result, or None where it must go the usual way. Keeps a transposed copy of the block's linear layers."""
    if not _suits(block, x):
        return None
    parts = block.__dict__.get("_cgp_few", False)
    if parts is False or (parts is not None and (parts.stale(_gpt2_modules(block)) or
                                                 parts.versions != [w._version for w in parts.weights])):
        parts = block.__dict__["_cgp_few"] = _gpt2_parts(block, activation)
    if parts is None or parts.state[0][1] != x.dtype:
        return None
    w, biases, (b, n, width) = parts.turned, parts.biases, x.shape
    heads, tokens = block.attn.num_heads, b * n
    x = x.reshape(tokens, width)
    qkv = _run(x, w[:1], biases[:1], 3 * width, norm=parts.norms[0], kind=LAYER, eps=parts.eps[0])
    q, k, v = qkv.view(b, n, 3 * heads, -1).transpose(1, 2).split(heads, 1)
    x = _run(_attend(attention, block.attn, q, k, v, mask, cache, q.shape[-1]**-0.5), w[1:2], biases[1:2], width, residual=x)
    wide = _run(x, w[2:3], biases[2:3], w[2].shape[0], norm=parts.norms[1], kind=LAYER, eps=parts.eps[1],
                activation=parts.activation)
    return _run(wide, w[3:4], biases[3:4], width, residual=x).view(b, n, width)


def forget(model):
    for module in model.modules():
        module.__dict__.pop("_cgp_few", None)
