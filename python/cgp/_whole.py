# SPDX-License-Identifier: Apache-2.0
"""A patched model on a few tokens with a DynamicCache: one list of calls, past all of its modules.

What decoding costs call by call is the host: wrappers, modules, allocations. Here most of the list is made once, for buffers that
stay where they are; from step to step only the cache's tensors, the mask, positions and logits are others. The cache stays what
transformers makes of it, but its tensors are the first part of memory with room behind: a token more is written there, and nothing
else is copied."""
import operator
import threading
import weakref

import torch

from . import _core, _few, _torch
from ._decoder import _Shape
from ._runtime import Unsupported
from ._torch import way

_KNOWN = {"input_ids", "attention_mask", "position_ids", "past_key_values", "use_cache", "logits_to_keep", "return_dict"}
_LIBRARIES = ("torch.nn.modules.", "transformers.models.", "transformers.activations", "transformers.pytorch_utils", "cgp.")
_MOST_SHAPES = 8  # of steps whose buffers are kept
_MORE = 256  # tokens, at least, that there is room for behind a cache's


def _there(t):
    return t.is_cuda


class _Room:
    """A layer's keys and values in the first part of [2, batch, heads, capacity, d]."""
    __slots__ = ("memory", "keys", "values", "used")

    def __init__(self, layer, n):
        (b, heads, self.used, d), self.keys, self.values = layer.keys.shape, layer.keys, layer.values
        capacity = -(-(self.used + max(_MORE, self.used // 4) + n) // 64) * 64
        with torch.inference_mode(False), torch.no_grad():
            self.memory = torch.empty((2, b, heads, capacity, d), dtype=self.keys.dtype, device=self.keys.device)
            self.memory[0, :, :, :self.used], self.memory[1, :, :, :self.used] = self.keys, self.values

    def holds(self, layer, n):
        """Nobody gave the layer other tensors, or wrote behind these through a copy of it, and there is room."""
        return (self.keys is layer.keys and self.values is layer.values and self.used == self.keys.shape[2] and
                self.used + n <= self.memory.shape[3])


def _grows(layer, total):
    """Whether it would keep all of so many tokens."""
    kind = type(layer).__name__
    return kind == "DynamicLayer" or (kind == "DynamicSlidingWindowLayer" and total < layer.sliding_window and
                                      layer.cumulative_length == layer.get_seq_length())


def _room_of(layer, n):
    room = layer.__dict__.get("_cgp_room")
    if room is None or not room.holds(layer, n):
        room = layer.__dict__["_cgp_room"] = _Room(layer, n)
    return room


def _copy(stream, to, of):
    to.copy_(of)


def _described(*arguments):
    return tuple(_torch.describe(a) if isinstance(a, torch.Tensor) and _there(a) else a for a in arguments)


class _Step:
    """Buffers and calls for b x n tokens."""

    def __init__(self, plan, b, n):
        s = self.shape = plan.shape
        tokens, width, like = b * n, s.tokens.shape[1], s.tokens

        def new(*shape, dtype=like.dtype):
            return torch.zeros(shape, dtype=dtype, device=like.device)

        x, qkv, normed = new(tokens, width), new(tokens, s.layers[0].qkv.columns), new(tokens, width)
        attended, wide = new(tokens, s.heads * s.d), new(tokens, s.layers[0].wide.columns)
        self.embedded = [x] if s.positions is None else [new(tokens, width) for _ in range(2)]
        self.angles = new(2, tokens, s.d // 2, dtype=torch.float32) if s.rotary is not None else None
        heads = qkv.view(b, n, -1, s.d).transpose(1, 2)
        self.made = heads[:, s.heads:].unflatten(1, (2, s.heads_kv)).transpose(0, 1)  # [2, b, heads_kv, n, d]
        out = attended.view(b, n, s.heads, s.d).transpose(1, 2)
        self.x, self.normed, self.ends = x, normed, _described(heads[:, :s.heads], out)
        self.memory = qkv, attended, wide
        rotate = []
        if s.rotary is not None and s.layers[0].q_norm is None:
            rotated = qkv.view(tokens, -1, s.d)[:, :s.heads + s.heads_kv]
            rotate = [(_core.rope, (rotated, rotated, *self.angles, None, 0, 0, 0, False, False, 0, 10000.0, 1.0, 0.0))]
        elif s.rotary is not None:
            # With a norm of each head: all tokens as one sequence, whose pages are written and never read.
            pages, one = new(1, 2, s.heads_kv, 16, s.d), new(1, 1, dtype=torch.int32)
            error_flag = new(1, dtype=torch.int32)
            self.memory += pages, one, error_flag

        def linear(x, l, y, **options):
            return _few.linear_calls(x, l.weights, l.biases, y, kind=s.norm, eps=s.eps, activation=l.activation, gated=l.gated,
                                     pdl=True, normed=normed, **options)

        self.layers = []
        for layer in s.layers:
            if layer.q_norm is not None:
                rotate = [(_core.qkv_append, (qkv.view(1, tokens, -1, s.d), *self.angles, layer.q_norm, layer.k_norm, None, 0, s.eps,
                                              True, one, error_flag, pages))]
            before = linear(x, layer.qkv, qkv, norm=layer.norm1) + rotate
            after = (linear(attended, layer.out, x, residual=x) + linear(x, layer.wide, wide, norm=layer.norm2) +
                     linear(wide, layer.back, x, residual=x))
            self.layers.append(tuple([(f, _described(*a)) for f, a in calls] for calls in (before, after)))

    def calls(self, ids, places, layers, causal, mask, logits):
        s, (q, out) = self.shape, self.ends
        ids, mask, to = _described(ids, mask, self.x)
        embedded = _described(*self.embedded)
        calls = [(_core.embedding, (ids, *_described(s.tokens), None, embedded[0]))]
        if s.positions is not None:
            calls += [(_core.embedding, (*_described(places, s.positions), None, embedded[1])), (_core.add, (*embedded, to))]
        for (before, after), (room, keys, values) in zip(self.layers, layers):
            calls += before
            calls.append((_copy, (room, self.made)))
            calls.append((_core.attention, (q, *_described(keys, values), out, None, s.scale, causal, 0, 0, 0.0, None, mask, None,
                                            None, None)))
            calls += after
        calls += [(f, _described(*a)) for f, a in _few.linear_calls(
            self.x, s.head.weights, s.head.biases, logits, norm=s.last_norm, kind=s.norm, eps=s.eps, pdl=True,
            normed=self.normed)]
        return tuple(calls)


class _Plan:
    """What steps need to know of a model, and whether it still is what it was."""

    def __init__(self, model):
        modules = list(model.modules())
        for m in modules[1:]:
            forward = m.__dict__.get("forward")
            if not type(m).__module__.startswith(_LIBRARIES) or type(m) is torch.nn.Embedding and m.max_norm is not None:
                raise Unsupported(f"{type(m).__name__} is a module of its own")
            if forward is not None and not getattr(getattr(forward, "__func__", None), "__module__", "").startswith("cgp."):
                raise Unsupported(f"{type(m).__name__}.forward was replaced")
        shape = self.shape = _Shape(model)
        if any(l.q_norm is not None for l in shape.layers) and shape.d % 64:
            raise Unsupported(f"heads of {shape.d} elements that are normalised")
        if shape.d > 256:
            raise Unsupported(f"heads of {shape.d} elements")
        if shape.rotary is not None and 2 * len(shape.rotary.inv_freq) != shape.d:
            raise Unsupported("RoPE of a part of each head")
        parameters = [p for m in modules for p in m._parameters.values() if p is not None]
        if any(p.device != shape.tokens.device for p in parameters):
            raise Unsupported("parameters on several devices")
        # What must not change: submodules, parameters, forward methods; what must stay empty: hooks.
        slots = [(d, name, of) for m in modules for d in (m._modules, m._parameters) for name, of in d.items()]
        slots += [(m.__dict__, "forward", m.__dict__.get("forward")) for m in modules[1:]]
        self.where, self.names, self.objects = zip(*slots)
        of_all = torch.nn.modules.module
        self.hooks = [of_all._global_forward_hooks, of_all._global_forward_pre_hooks]
        self.hooks += [h for m in modules[1:] for h in (m._forward_hooks, m._forward_pre_hooks)]
        self.blocks = modules[1:]
        self.parameters, self.pointers = parameters, [p.data_ptr() for p in parameters]
        # GPT-2's linear layers are copies.
        self.copied = [p for p in parameters if p.dim() == 2] if type(model).__name__ == "GPT2LMHeadModel" else []
        self.versions = list(map(_torch.version, self.copied))
        self.steps, self.places, self.tables = {}, None, None

    def current(self, model):
        return (all(map(operator.is_, map(dict.get, self.where, self.names), self.objects)) and
                list(map(torch.Tensor.data_ptr, self.parameters)) == self.pointers and
                list(map(_torch.version, self.copied)) == self.versions)

    def watched(self):
        """Whether a module has hooks but those that transformers leaves behind when it was asked for hidden states once."""
        return any(getattr(f, "__module__", "") != "transformers.utils.output_capturing"
                   for hooks in filter(None, self.hooks) for f in hooks.values())

    def step(self, b, n):
        at = self.shape.tokens
        key = b, n, threading.get_ident(), _torch._raw_stream(at.get_device()) if _there(at) else 0
        if key not in self.steps:
            if len(self.steps) == _MOST_SHAPES:
                self.steps.clear()
            with torch.inference_mode(False), torch.no_grad():
                self.steps[key] = _Step(self, b, n)
        return self.steps[key]

    def places_of(self, given, b, n, past):
        """GPT-2's positions [b * n]."""
        if given is not None:
            return given.expand(b, n).reshape(-1).contiguous()
        if self.places is None:
            with torch.inference_mode(False):
                self.places = torch.arange(self.shape.positions.shape[0], device=self.shape.positions.device)
        places = self.places[past:past + n]
        return places if b == 1 else places.repeat(b)

    def rotate(self, step, given, b, n, past):
        """The angles of RoPE, as the model rounds them."""
        s = self.shape
        if given is not None:
            angles = torch.stack([t[..., :s.d // 2] for t in s.rotary(s.tokens[:1], given)])
        else:
            if self.tables is None or self.tables.shape[1] < past + n:
                room = max(512, 1 << (past + n - 1).bit_length())
                places = torch.arange(room, device=s.tokens.device)[None]
                with torch.inference_mode(False), torch.no_grad():
                    self.tables = torch.cat(s.rotary(s.tokens[:1].detach(), places))[..., :s.d // 2].float()
            angles = self.tables[:, None, past:past + n]
        step.angles.view(2, b, n, -1).copy_(angles)


class _Refused:
    """A model that goes the usual way until its parameters lie elsewhere."""
    shape = None

    def __init__(self, model):
        self.where = self._where(model)

    @staticmethod
    def _where(model):
        return next(model.parameters()).data_ptr()

    def current(self, model):
        return self.where == self._where(model)


_plans = weakref.WeakKeyDictionary()  # model -> _Plan or _Refused


def _plan_of(model):
    plan = _plans.get(model)
    if plan is None or not plan.current(model):
        try:
            with torch.inference_mode(False), torch.no_grad():
                plan = _Plan(model)
        except (Unsupported, AttributeError):
            plan = _Refused(model)
        _plans[model] = plan
    return plan


def _run(calls, anchor):
    if _there(anchor):
        return _torch.run(calls, anchor.get_device())
    for f, arguments in calls:
        f(None, *arguments) if f is _copy else _torch.queue(f, anchor, *arguments)


def step(model, arguments, given):
    """The model's result for up to MAX_ROWS tokens behind a DynamicCache, or None where it must go the usual way."""
    cache = given.get("past_key_values")
    if cache is None or type(cache).__name__ != "DynamicCache" or torch.is_grad_enabled() or model.training or len(arguments) > 1:
        return None
    ids = arguments[0] if arguments else given.get("input_ids")
    if type(ids) is not torch.Tensor or ids.dim() != 2 or not 0 < ids.numel() <= _few.MAX_ROWS or way(ids) != 1:
        return None
    if any(v is not None and v is not False for k, v in given.items() if k not in _KNOWN) or given.get("return_dict") is False:
        return None
    keep, config = given.get("logits_to_keep") or 0, model.config.__dict__
    use = given.get("use_cache")
    if not (config.get("use_cache") if use is None else use) or type(keep) is not int or any(
            config.get(name) for name in ("_output_attentions", "output_hidden_states")) or config.get("return_dict") is False:
        return None
    plan = _plan_of(model)
    if plan.shape is None or plan.watched() or any(m.training for m in plan.blocks) or torch.is_autocast_enabled():
        return None
    (b, n), s, layers = ids.shape, plan.shape, cache.layers
    if not len(layers) == len(s.layers) == config.get("num_hidden_layers", len(s.layers)) or getattr(cache, "offloading", False):
        return None
    if ids.device != s.tokens.device or ids.dtype is not torch.int64 or (
            _there(ids) and torch.cuda.is_current_stream_capturing()):
        return None
    past = layers[0].get_seq_length()
    if not past or (s.most and past + n > s.most):
        return None
    shape = (b, s.heads_kv, past, s.d)
    for layer in layers:
        if not _grows(layer, past + n) or layer.keys.shape != shape or layer.values.shape != shape or (
                layer.keys.dtype is not s.tokens.dtype) or layer.values.dtype is not s.tokens.dtype:
            return None
    mask, places = given.get("attention_mask"), given.get("position_ids")
    if mask is not None:
        if mask.dim() != 2 or mask.shape != (b, past + n):
            return None
        mask = (mask if mask.dtype is torch.bool else mask != 0)[:, None, None]
    if places is not None and (places.dim() != 2 or places.shape[1] != n or places.shape[0] not in (1, b)):
        return None

    made = plan.step(b, n)
    rooms, seen = [_room_of(layer, n) for layer in layers], []
    for room in rooms:
        seen.append((room.memory.narrow(3, past, n), *room.memory.narrow(3, 0, past + n).unbind(0)))
    logits = _torch.empty(s.tokens, None, (b * n, s.vocab))
    if s.rotary is not None:
        plan.rotate(made, places, b, n, past)
    else:
        places = plan.places_of(places, b, n, past)
    tokens = ids.reshape(-1).contiguous()
    _run(made.calls(tokens, places, seen, int(n > 1), mask, logits), made.x)
    for layer, room, (_, keys, values) in zip(layers, rooms, seen):
        layer.keys, layer.values = room.keys, room.values = keys, values
        room.used = past + n
        if layer.is_sliding:
            layer.cumulative_length += n
    logits = logits.view(b, n, s.vocab)
    return _output_of(model)(logits=logits[:, -keep:] if keep else logits, past_key_values=cache)


def _output_of(model):
    from transformers import modeling_outputs
    if type(model).__name__ == "GPT2LMHeadModel":
        return modeling_outputs.CausalLMOutputWithCrossAttentions
    return modeling_outputs.CausalLMOutputWithPast


def forget(model):
    _plans.pop(model, None)
