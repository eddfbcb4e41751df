# SPDX-License-Identifier: Apache-2.0
"""Layers of transformers on a few tokens: a whole layer as few calls, past the modules inside it.

What such a layer costs in PyTorch is Python: some forty calls. Here a Llama's layer is eight."""
import torch

from . import _core
from ._options import ACTIVATIONS
from ._torch import empty, queue, version

NONE, RMS, LAYER = 0, 1, 2
MAX_ROWS = 8  # rows of decode_linear
MAX_NORM_COLUMNS = 4096  # columns that decode_linear normalises
_HALVES = (torch.float16, torch.bfloat16)


def linear_calls(x, weights, biases, y, *, norm=None, kind=NONE, eps=0.0, residual=None, activation=0, gated=False, pdl=False,
                 normed=None):
    """(function of _core, arguments after the stream) of y = f(norm(x) w' + b) + residual for up to MAX_ROWS rows; `normed` is
    memory for rows that are too long to be normalised on the way."""
    calls, kind = [], kind if norm else NONE
    weight, bias = norm or (None, None)
    if kind and x.shape[-1] > MAX_NORM_COLUMNS:
        normed = torch.empty_like(x) if normed is None else normed
        calls.append((_core.norm, (kind == LAYER, x, normed, None, weight, bias, None, None, None, eps, 0.0)))
        x, kind, weight, bias = normed, NONE, None, None
    weights, biases = (tuple(t) + (None,) * (3 - len(t)) for t in (weights, biases))
    calls.append((_core.decode_linear, (x, *weights, *biases, residual, weight, bias, eps, 0.0, kind, activation, gated, pdl,
                                        None, None, 0, y)))
    return calls


class _Product:
    """A linear layer whose arguments are fixed but for the rows."""
    __slots__ = ("before", "norm", "after", "columns", "given", "options")

    def __init__(self, weights, biases, columns, *, norm=(None, None), kind=NONE, eps=0.0, activation=0, gated=False):
        self.columns, self.given = columns, (weights, biases)
        self.options = dict(norm=norm, kind=kind, eps=eps, activation=activation, gated=gated)
        pad = (None,) * (3 - len(weights))
        self.before = (*weights, *pad, *biases, *pad)
        self.after = (*norm, eps, 0.0, kind, activation, gated, False, None, None, 0)

    def __call__(self, x, residual=None):
        y = empty(x, None, (x.shape[0], self.columns))
        if self.options["kind"] and x.shape[1] > MAX_NORM_COLUMNS:
            for function, arguments in linear_calls(x, *self.given, y, residual=residual, **self.options):
                queue(function, x, *arguments)
        else:
            queue(_core.decode_linear, x, x, *self.before, residual, *self.after, y)
        return y


def _there(t):
    return t.is_cuda


def _suits(layer, x):
    return (not torch.is_grad_enabled() and not layer.training and _there(x) and x.dtype in _HALVES and x.dim() == 3 and
            0 < x.shape[0] * x.shape[1] <= MAX_ROWS and type(x) is torch.Tensor and not torch.compiler.is_compiling())


class _Parts:
    """Weights of a layer, and whether they are still those."""

    def __init__(self, modules, weights):
        self.modules, self.weights = modules, weights
        self.state = tuple((w.data_ptr(), w.dtype) for w in weights)

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
    own = layer._modules
    a, m = own["self_attn"]._modules, own["mlp"]._modules
    return (a["q_proj"], a["k_proj"], a["v_proj"], a["o_proj"], m["gate_proj"], m["up_proj"], m["down_proj"], own["input_layernorm"],
            own["post_attention_layernorm"])


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
    parts, b = _Parts(modules, weights + norms), [m.bias for m in modules[:7]]
    parts.window = getattr(a.config if type(a).__name__ == "MistralAttention" else a, "sliding_window", None)
    d = parts.d = a.head_dim
    heads, parts.heads_kv = weights[0].shape[0] // d, weights[1].shape[0] // d
    parts.heads, parts.scaling = heads, a.scaling
    parts.qkv = _Product(weights[:3], b[:3], sum(w.shape[0] for w in weights[:3]), norm=(norms[0], None), kind=RMS,
                         eps=layer.input_layernorm.variance_epsilon)
    parts.out = _Product(weights[3:4], b[3:4], weights[3].shape[0])
    parts.wide = _Product(weights[4:6], b[4:6], weights[4].shape[0], norm=(norms[1], None), kind=RMS,
                          eps=layer.post_attention_layernorm.variance_epsilon, activation=ACTIVATIONS[activation], gated=True)
    parts.down = _Product(weights[6:7], b[6:7], weights[6].shape[0])
    return parts


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
    b, n, width = x.shape
    d, tokens = parts.d, b * n
    if cos.shape[1] * 2 != d:
        return None
    x = x.reshape(tokens, width)
    qkv = parts.qkv(x)
    rotated = qkv.view(tokens, -1, d)[:, :parts.heads + parts.heads_kv]
    queue(_core.rope, x, rotated, rotated, cos, sin, None, sequence, 0, 0, False, False, 0, 10000.0, 1.0, 0.0)
    q, k, v = qkv.view(b, n, -1, d).transpose(1, 2).split((parts.heads, parts.heads_kv, parts.heads_kv), 1)
    x = parts.out(_attend(attention, layer._modules["self_attn"], q, k, v, mask, cache, parts.scaling, parts.window), x)
    return parts.down(parts.wide(x), x).view(b, n, width)


# ---------------------------------------------------------------- GPT-2
def _gpt2_modules(block):
    own = block._modules
    a, m = own["attn"]._modules, own["mlp"]._modules
    return a["c_attn"], a["c_proj"], m["c_fc"], m["c_proj"], own["ln_1"], own["ln_2"]


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
    parts, (norm1, norm2) = _Parts(modules, sources), modules[4:]
    parts.versions = list(map(version, sources))
    transposed, b = [w.detach().t().contiguous() for w in sources], [m.bias for m in modules[:4]]  # [n, k]
    parts.heads, columns = block.attn.num_heads, [w.shape[0] for w in transposed]
    parts.qkv = _Product(transposed[:1], b[:1], columns[0], norm=(norm1.weight, norm1.bias), kind=LAYER, eps=norm1.eps)
    parts.out = _Product(transposed[1:2], b[1:2], columns[1])
    parts.wide = _Product(transposed[2:3], b[2:3], columns[2], norm=(norm2.weight, norm2.bias), kind=LAYER, eps=norm2.eps,
                          activation=ACTIVATIONS[activation])
    parts.down = _Product(transposed[3:], b[3:], columns[3])
    return parts


def gpt2(block, x, mask, cache, attention, activation):
    """The block's result, or None where it must go the usual way. Keeps a transposed copy of the block's linear layers."""
    if not _suits(block, x):
        return None
    parts = block.__dict__.get("_cgp_few", False)
    if parts is False or (parts is not None and (parts.stale(_gpt2_modules(block)) or
                                                 parts.versions != list(map(version, parts.weights)))):
        parts = block.__dict__["_cgp_few"] = _gpt2_parts(block, activation)
    if parts is None or parts.state[0][1] != x.dtype:
        return None
    (b, n, width), heads = x.shape, parts.heads
    x = x.reshape(b * n, width)
    q, k, v = parts.qkv(x).view(b, n, 3 * heads, -1).transpose(1, 2).split(heads, 1)
    x = parts.out(_attend(attention, block._modules["attn"], q, k, v, mask, cache, q.shape[-1]**-0.5), x)
    return parts.down(parts.wide(x), x).view(b, n, width)


def forget(model):
    for module in model.modules():
        module.__dict__.pop("_cgp_few", None)
