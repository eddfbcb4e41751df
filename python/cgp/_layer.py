# SPDX-License-Identifier: Apache-2.0
"""Decoder layers in training: a whole layer of a model of transformers as one function of autograd.

What such a layer costs in PyTorch besides its kernels is Python and some thirty nodes of the graph of gradients. Here it is one
node: products by PyTorch's own but for the last, the rest by our kernels, and no dispatcher between them. What is kept for the
gradient is what the separate operations would keep, without the queries and keys before their rotation. A cache that is filled
meanwhile is given keys and values that bring their gradients back."""
import torch

from . import _core
from ._ops_attention import _attention, _backward as _attention_backward, _gradients_into
from ._ops_elements import _activate, _activate_backward, _gated, _gated_backward
from ._ops_rows import _norm, _norm_gradients
from ._runtime import Unsupported
from ._torch import empty, queue, way

NAME = "cgp"  # of our attention, for transformers
RMS_NORMS = ("LlamaRMSNorm", "Qwen2RMSNorm", "Qwen3RMSNorm", "MistralRMSNorm")
MLPS = ("LlamaMLP", "Qwen2MLP", "Qwen3MLP", "MistralMLP")
ATTENTIONS = ("LlamaAttention", "Qwen2Attention", "Qwen3Attention", "MistralAttention")
DTYPES = (torch.float16, torch.bfloat16)
MOST_HEAD = 128  # elements of a head that the gradient of attention has fast kernels for

# Places of a layer's parameters; those that it lacks are None. Products that are one (GPT-2's q, k and v) are the first.
(_NORM1, _NORM1_BIAS, _NORM2, _NORM2_BIAS, _Q_NORM, _K_NORM, _Q, _K, _V, _Q_BIAS, _K_BIAS, _V_BIAS, _OUT, _OUT_BIAS, _GATE, _UP,
 _GATE_BIAS, _UP_BIAS, _DOWN, _DOWN_BIAS) = range(20)
_ARGUMENTS = 6  # of the function of autograd before the parameters


class _Plan:
    """What does not change from call to call."""
    __slots__ = ("modules", "kinds", "parameters", "config", "transposed", "packed", "layer_norm", "eps", "heads", "heads_kv", "d", "scale", "window",
                 "activation", "gated")

    def current(self, modules):
        """Whether the layer still has these modules and parameters, and nothing that watches or replaces them."""
        for a, b in zip(self.modules, modules):
            if a is not b or b._forward_hooks or b._forward_pre_hooks or b._backward_hooks or b._backward_pre_hooks:
                return False
        return all(m._parameters.get(name) is self.parameters[place] for m, name, place in self.kinds)


def _plain(modules, replaced):
    """Whether no module's forward was exchanged for another than ours (`replaced`: functions of our patch)."""
    for m in modules:
        own = m.__dict__.get("forward")
        if own is not None and getattr(own, "__func__", None) not in replaced:
            return False
    return True


def _collect(plan, places):
    """places: (module, name of the parameter, place)."""
    plan.kinds = tuple(places)
    plan.parameters = [None] * 20
    for module, name, place in places:
        plan.parameters[place] = module._parameters.get(name)
    biases = [b is None for b in plan.parameters[_Q_BIAS:_V_BIAS + 1]]
    plan.packed = plan.transposed or (plan.parameters[_Q_NORM] is None and len(set(biases)) == 1)
    return plan


# ---------------------------------------------------------------- products
def _times(x, weight, bias, transposed):
    w = weight if transposed else weight.t()
    return torch.mm(x, w) if bias is None else torch.addmm(bias, x, w)


def _back(dy, weight, transposed):
    return torch.mm(dy, weight.t() if transposed else weight)


def _back_onto(sum, dy, weight, transposed):
    return sum.addmm_(dy, weight.t() if transposed else weight)


def _times_onto(h, x, weight, bias, transposed):
    """h + x weight + bias, rounded once, in one launch."""
    w, out = weight if transposed else weight.t(), empty(h, None, h.shape)
    queue(_core.gemm, x, x, w if weight.is_contiguous() else w.contiguous(), out, 1.0, 0.0, 0, 0, 0, 0, bias, h, None, None, False)
    return out


def _of_heads(plan, p):
    """Weight and bias of the one product that makes q, k and v: a copy costs less than three products do more than one."""
    if plan.transposed:
        return p[_Q], p[_Q_BIAS]
    return torch.cat(p[_Q:_V + 1]), None if p[_Q_BIAS] is None else torch.cat(p[_Q_BIAS:_V_BIAS + 1])


def _rotate(x, tables, sequence, inverse):
    """RoPE in place; x: [tokens, heads, d]."""
    queue(_core.rope, x, x, x, *tables, None, sequence, 0, 0, False, inverse, 0, 10000.0, 1.0, 0.0)


def _heads_of(packed, b, n, plan):
    """q, k and v in the result of the one product that makes them."""
    return packed.view(b, n, -1, plan.d).transpose(1, 2).split((plan.heads, plan.heads_kv, plan.heads_kv), 1)


def _rotary_heads(packed, plan):
    """The heads of q and k."""
    return packed.view(packed.shape[0], -1, plan.d)[:, :plan.heads + plan.heads_kv]


def _heads_apart(plan, y, p, b, n, tables, sequence):
    """q, k and v as attention takes them, and what their norms need for the gradient."""
    tokens, d = b * n, plan.d
    if plan.packed:
        packed = _times(y, *_of_heads(plan, p), plan.transposed)
        if tables[0] is not None:
            _rotate(_rotary_heads(packed, plan), tables, sequence, False)
        return *_heads_of(packed, b, n, plan), (None,) * 4, packed
    raw_q, raw_k, v = (_times(y, p[_Q + i], p[_Q_BIAS + i], False).view(tokens, -1, d) for i in range(3))
    q, _, _, q_rstd = _norm(False, raw_q, None, p[_Q_NORM], None, plan.eps[2], 0.0, True)
    k, _, _, k_rstd = _norm(False, raw_k, None, p[_K_NORM], None, plan.eps[3], 0.0, True)
    for t in (q, k):
        _rotate(t, tables, sequence, False)
    return *(t.view(b, n, -1, d).transpose(1, 2) for t in (q, k, v)), (raw_q, q_rstd, raw_k, k_rstd), None


def _forward(ctx, plan, mask, tables, sequence, cached, x, *p):
    b, n, width = x.shape
    tokens = b * n
    x = x.reshape(tokens, width)
    y, _, mean1, rstd1 = _norm(plan.layer_norm, x, None, p[_NORM1], p[_NORM1_BIAS], plan.eps[0], 0.0, True)
    q, k, v, qk_norms, packed = _heads_apart(plan, y, p, b, n, tables, sequence)
    options = (mask is None and n > 1, plan.scale, plan.window if mask is None else 0, 0, 0.0, None, mask)
    o, lse = _attention(q, k, v, *options)
    attended = _times(o.transpose(1, 2).reshape(tokens, -1), p[_OUT], p[_OUT_BIAS], plan.transposed)
    z, h, mean2, rstd2 = _norm(plan.layer_norm, attended, x, p[_NORM2], p[_NORM2_BIAS], plan.eps[1], 0.0, True)
    gate = _times(z, p[_GATE], p[_GATE_BIAS], plan.transposed)
    up = _times(z, p[_UP], p[_UP_BIAS], plan.transposed) if plan.gated else None
    wide = _gated(gate, up, plan.activation) if plan.gated else _activate(gate, plan.activation)
    out = _times_onto(h, wide, p[_DOWN], p[_DOWN_BIAS], plan.transposed)
    ctx.plan, ctx.options, ctx.sequence, ctx.shape = plan, options[:-2], sequence, (b, n, width)
    qkv = (packed, None, None) if packed is not None else (q, k, v)
    ctx.save_for_backward(x, y, mean1, rstd1, *qkv, *qk_norms, o, lse, z, h, mean2, rstd2, gate, up, wide, mask, *tables, *p)
    ctx.set_materialize_grads(False)
    return (out.view(b, n, width), k, v) if cached else out.view(b, n, width)


class _Gradients:
    """Gradients of the parameters, of those that need one."""

    def __init__(self, needed, transposed):
        self.of, self.needed, self.transposed = [None] * 20, needed, transposed

    def product(self, place, bias, x, dy):
        """x: what was multiplied; dy: the gradient of the result."""
        if self.needed[place]:
            self.of[place] = torch.mm(x.t(), dy) if self.transposed else torch.mm(dy.t(), x)
        if self.needed[bias]:
            self.of[bias] = self.sums(dy)

    def heads(self, plan, y, d):
        """Of the one product that made q, k and v."""
        if self.transposed:
            return self.product(_Q, _Q_BIAS, y, d)
        rows = [h * plan.d for h in (plan.heads, plan.heads_kv, plan.heads_kv)]
        for first, make in ((_Q, lambda: torch.mm(d.t(), y)), (_Q_BIAS, lambda: self.sums(d))):
            places = [i for i in range(first, first + 3) if self.needed[i]]
            parts = make().split(rows) if places else ()
            for i in places:
                self.of[i] = parts[i - first]

    @staticmethod
    def sums(dy):
        out = empty(dy, None, dy.shape[1:])
        queue(_core.reduce, dy, 0, 0, dy, out)
        return out

    def norm(self, place, bias, gradients):
        dx, dweight, dbias = gradients
        if self.needed[place]:
            self.of[place] = dweight
        if bias is not None and self.needed[bias]:
            self.of[bias] = dbias
        return dx


def _backward_of_heads(plan, g, p, y, dq, dk, dv, qk_norms, tables, sequence):
    """The gradient of what q, k and v were made from one by one; dq, dk, dv: [batch, heads, n, d]."""
    tokens = y.shape[0]
    dq, dk, dv = (t.transpose(1, 2).reshape(tokens, -1, plan.d) for t in (dq, dk, dv))
    for t in (dq, dk):
        _rotate(t, tables, sequence, True)
    raw_q, q_rstd, raw_k, k_rstd = qk_norms
    dq = g.norm(_Q_NORM, None, _norm_gradients(dq, raw_q, None, p[_Q_NORM], None, q_rstd, False, 0.0))
    dk = g.norm(_K_NORM, None, _norm_gradients(dk, raw_k, None, p[_K_NORM], None, k_rstd, False, 0.0))
    dy = None
    for i, t in enumerate((dq, dk, dv)):
        t = t.view(tokens, -1)
        g.product(_Q + i, _Q_BIAS + i, y, t)
        dy = _back(t, p[_Q + i], False) if dy is None else _back_onto(dy, t, p[_Q + i], False)
    return dy


def _backward(ctx, d, d_key=None, d_value=None):
    if torch.is_grad_enabled():
        raise Unsupported("cgp.patch: layers in training have no second derivatives; patch(model, layers=False) has them in part")
    plan, (b, n, width) = ctx.plan, ctx.shape
    tokens, transposed = b * n, plan.transposed
    (x, y, mean1, rstd1, q, k, v, *qk_norms, o, lse, z, h, mean2, rstd2, gate, up, wide, mask, cos, sin,
     ) = ctx.saved_tensors[:-20]
    p = ctx.saved_tensors[-20:]
    g = _Gradients(ctx.needs_input_grad[_ARGUMENTS:], transposed)
    d = x.new_zeros((tokens, width)) if d is None else d.reshape(tokens, width).contiguous()
    g.product(_DOWN, _DOWN_BIAS, wide, d)
    dwide = _back(d, p[_DOWN], transposed)
    if plan.gated:
        dgate, dup = _gated_backward(gate, up, dwide, plan.activation)
        g.product(_UP, _UP_BIAS, z, dup)
    else:
        dgate = _activate_backward(gate, plan.activation, None, dwide)
    g.product(_GATE, _GATE_BIAS, z, dgate)
    dz = _back(dgate, p[_GATE], transposed)
    if plan.gated:
        dz = _back_onto(dz, dup, p[_UP], transposed)
    dh = g.norm(_NORM2, _NORM2_BIAS, _norm_gradients(dz, h, d, p[_NORM2], mean2, rstd2, p[_NORM2_BIAS] is not None, 0.0))
    g.product(_OUT, _OUT_BIAS, o.transpose(1, 2).reshape(tokens, -1), dh)
    d_o = _back(dh, p[_OUT], transposed).view(b, n, plan.heads, plan.d).transpose(1, 2)
    of_cache = (None, d_key, d_value)  # of what a cache was given
    if plan.packed:
        packed = torch.empty_like(q)
        of_heads = _heads_of(packed, b, n, plan)
        _gradients_into(of_heads, *_heads_of(q, b, n, plan), o, lse, d_o, *ctx.options, None, mask)
        for a, more in zip(of_heads, of_cache):
            if more is not None:
                a.add_(more)
        if cos is not None:
            _rotate(_rotary_heads(packed, plan), (cos, sin), ctx.sequence, True)
        g.heads(plan, y, packed)
        dy = _back(packed, p[_Q] if transposed else torch.cat(p[_Q:_V + 1]), transposed)
    else:
        of_heads = _attention_backward(q, k, v, o, lse, d_o, *ctx.options, None, mask)
        of_heads = [a if more is None else a + more for a, more in zip(of_heads, of_cache)]
        dy = _backward_of_heads(plan, g, p, y, *of_heads, qk_norms, (cos, sin), ctx.sequence)
    dx = g.norm(_NORM1, _NORM1_BIAS, _norm_gradients(dy, x, dh, p[_NORM1], mean1, rstd1, p[_NORM1_BIAS] is not None, 0.0))
    return (None,) * (_ARGUMENTS - 1) + (dx.view(b, n, width), *g.of)


class _Layer(torch.autograd.Function):
    forward, backward = staticmethod(_forward), staticmethod(_backward)


def _suits(x, mask):
    return (torch.is_grad_enabled() and x.dim() == 3 and x.dtype in DTYPES and x.numel() > 0 and way(x, mask) and
            not torch.is_autocast_enabled() and not torch.nn.modules.module._has_any_global_hook() and
            (mask is None or (mask.dim() == 4 and mask.dtype in (torch.bool, x.dtype) and not mask.requires_grad)))


def _empty(cache, index):
    """Whether there is no cache, or one that has nothing of this layer and would give back what it is given."""
    return cache is None or (type(cache).__name__ == "DynamicCache" and cache.get_seq_length(index) == 0)


def _call(plan, x, mask, tables, sequence, cache, index):
    p = plan.parameters
    if p[_Q].dtype is not x.dtype or way(x, *p) != 2:
        return None
    if mask is not None:
        mask = mask[..., :x.shape[1]]
    if cache is None:
        return _Layer.apply(plan, mask, tables, sequence, False, x, *p)
    out, k, v = _Layer.apply(plan, mask, tables, sequence, True, x, *p)
    cache.update(k, v, index)
    return out


# ---------------------------------------------------------------- Llama and its kind
_KNOWN = frozenset(("position_embeddings", "position_ids", "past_key_values", "use_cache", "cache_position",
                     "encoder_attention_mask"))


def _llama_modules(layer):
    a, m = layer._modules["self_attn"]._modules, layer._modules["mlp"]._modules
    more = (a["q_norm"], a["k_norm"]) if "q_norm" in a else ()
    return (layer._modules["input_layernorm"], layer._modules["post_attention_layernorm"], a["q_proj"], a["k_proj"], a["v_proj"],
            a["o_proj"], m["gate_proj"], m["up_proj"], m["down_proj"], m["act_fn"], layer._modules["self_attn"],
            layer._modules["mlp"], *more)


def _llama_plan(layer, modules, activation, replaced):
    norm1, norm2, *linear = modules[:9]
    attention, mlp, more = modules[10], modules[11], modules[12:]
    ours = (norm1, norm2, attention, mlp, *more)
    if (any(type(m) is not torch.nn.Linear for m in linear) or not _plain(linear, ()) or not _plain(ours, replaced) or
            any(type(m).__name__ not in RMS_NORMS for m in (norm1, norm2, *more)) or type(mlp).__name__ not in MLPS or
            type(attention).__name__ not in ATTENTIONS or activation is None or attention.head_dim > MOST_HEAD or
            attention.head_dim % 8):
        return None
    plan = _Plan()
    plan.modules, plan.config, plan.activation = modules, attention.config, activation
    plan.transposed, plan.layer_norm, plan.gated = False, False, True
    plan.eps = tuple(m.variance_epsilon for m in (norm1, norm2, *more))
    plan.d, plan.scale = attention.head_dim, float(attention.scaling)
    plan.heads, plan.heads_kv = linear[0].out_features // plan.d, linear[1].out_features // plan.d
    plan.window = getattr(attention.config if type(attention).__name__ == "MistralAttention" else attention, "sliding_window",
                          None) or 0
    places = [(norm1, "weight", _NORM1), (norm2, "weight", _NORM2)]
    places += [(m, "weight", place) for m, place in zip(more, (_Q_NORM, _K_NORM))]
    for m, weight, bias in zip(linear, (_Q, _K, _V, _OUT, _GATE, _UP, _DOWN),
                               (_Q_BIAS, _K_BIAS, _V_BIAS, _OUT_BIAS, _GATE_BIAS, _UP_BIAS, _DOWN_BIAS)):
        places += [(m, "weight", weight), (m, "bias", bias)]
    return _collect(plan, places)


def _plan_of(layer, modules, make, *arguments):
    plan = layer.__dict__.get("_cgp_layer")
    if plan is None or not plan.current(modules):
        plan = make(layer, modules, *arguments)
        if plan is None or not plan.current(modules):  # what a hook is waiting for goes the usual way
            return None
        layer.__dict__["_cgp_layer"] = plan
    return plan if plan.config._attn_implementation == NAME else None


def llama(layer, x, mask, kwargs, tables_of, activation, replaced):
    """The layer's result, or None where it must go the usual way. tables_of(cos, sin): float32 tables of half a head."""
    embeddings = kwargs.get("position_embeddings")
    cache, index = kwargs.get("past_key_values"), layer.self_attn.layer_idx
    if embeddings is None or not _KNOWN.issuperset(kwargs) or not _suits(x, mask) or not _empty(cache, index):
        return None
    plan = _plan_of(layer, _llama_modules(layer), _llama_plan, activation, replaced)
    if plan is None or (layer.self_attn.training and layer.self_attn.attention_dropout):
        return None
    cos, sin = embeddings
    if cos.shape[-1] != plan.d or cos.requires_grad or sin.requires_grad or cos.shape[0] not in (1, x.shape[0]):
        return None
    return _call(plan, x, mask, tables_of(cos, sin), cos.shape[1] if cos.shape[0] == 1 else 0, cache, index)


# ---------------------------------------------------------------- GPT-2
def _gpt2_modules(block):
    a, m = block._modules["attn"]._modules, block._modules["mlp"]._modules
    return (block._modules["ln_1"], block._modules["ln_2"], a["c_attn"], a["c_proj"], m["c_fc"], m["c_proj"], m["act"],
            block._modules["attn"], block._modules["mlp"], a["attn_dropout"], a["resid_dropout"], m["dropout"])


def _gpt2_plan(block, modules, activation, replaced):
    norm1, norm2, *linear = modules[:6]
    attention, mlp = modules[7:9]
    if (any(type(m).__name__ != "Conv1D" for m in linear) or type(attention).__name__ != "GPT2Attention" or
            type(mlp).__name__ != "GPT2MLP" or type(norm2) is not torch.nn.LayerNorm or type(norm1) is not torch.nn.LayerNorm or not _plain(linear, ()) or
            not _plain((norm1, norm2, *modules[6:]), replaced) or activation is None or "crossattention" in block._modules or
            attention.head_dim > MOST_HEAD or attention.head_dim % 8 or not isinstance(getattr(attention, "scaling", None), float)):
        return None
    plan = _Plan()
    plan.modules, plan.config, plan.activation = modules, attention.config, activation
    plan.transposed, plan.layer_norm, plan.gated = True, True, False
    plan.eps, plan.d, plan.scale, plan.window = (norm1.eps, norm2.eps), attention.head_dim, attention.scaling, 0
    plan.heads = plan.heads_kv = attention.num_heads
    places = []
    for m, weight, bias in zip((norm1, norm2, *linear), (_NORM1, _NORM2, _Q, _OUT, _GATE, _DOWN),
                               (_NORM1_BIAS, _NORM2_BIAS, _Q_BIAS, _OUT_BIAS, _GATE_BIAS, _DOWN_BIAS)):
        places += [(m, "weight", weight), (m, "bias", bias)]
    return _collect(plan, places)


def gpt2(block, x, mask, cache, kwargs, activation, replaced):
    """The block's result, or None where it must go the usual way."""
    index = block.attn.layer_idx
    if (not _empty(cache, index) or not _KNOWN.issuperset(kwargs) or kwargs.get("encoder_attention_mask") is not None or
            not _suits(x, mask)):
        return None
    plan = _plan_of(block, _gpt2_modules(block), _gpt2_plan, activation, replaced)
    if plan is None or any(m.training and m.p for m in plan.modules[-3:]):
        return None
    return _call(plan, x, mask, (None, None), 0, cache, index)


def forget(model):
    for module in model.modules():
        module.__dict__.pop("_cgp_layer", None)
