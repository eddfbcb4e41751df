# SPDX-License-Identifier: Apache-2.0
"""Masks of patched models: those that say no more than "causal" are neither made nor looked for.

transformers asks the device in each forward pass of training whether positions begin anew somewhere (packed sequences), and the
host waits for the answer; while a graph is recorded it cannot ask, and writes out a mask of n x n. Where nobody gave positions,
the model counts them itself and the answer is known."""
import functools
import inspect
import sys
import threading
import types

import torch

from . import _layer

_MAKERS = ("create_causal_mask", "create_sliding_window_causal_mask")
_state = threading.local()  # counted: the running forward pass counts positions itself
_makers = {}  # module of transformers -> [its own functions, patches that want ours]


def _recorded():
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def mask(*args, **kwargs):
    """The mask of "sdpa", but none in a recorded step that is causal alone: it keeps its shapes, where others that transformers
    knows as traced may be run with new ones."""
    from transformers.masking_utils import sdpa_mask
    n, window = kwargs.get("kv_length"), kwargs.get("local_size")
    if (_recorded() and not args and kwargs.get("attention_mask") is None and
            kwargs.get("allow_is_causal_skip", True) and n is not None and kwargs.get("q_length") == n and
            (window is None or n < window)):
        return None
    return sdpa_mask(*args, **kwargs)


def _forward_of(kind):
    """forward of a model's body that notes whether it was given positions; None: it takes none."""
    names = list(inspect.signature(kind.forward).parameters)[1:]
    if "position_ids" not in names:
        return None
    place = names.index("position_ids")

    def forward(self, *args, **kwargs):
        if torch.compiler.is_compiling():
            return kind.forward(self, *args, **kwargs)
        before = getattr(_state, "counted", False)
        _state.counted = kwargs.get("position_ids") is None and (len(args) <= place or args[place] is None)
        try:
            return kind.forward(self, *args, **kwargs)
        finally:
            _state.counted = before

    return forward


def _maker(own):
    @functools.wraps(own)
    def create(*args, **kwargs):
        if (not torch.compiler.is_compiling() and getattr(_state, "counted", False) and "position_ids" in kwargs and
                getattr(kwargs.get("config"), "_attn_implementation", None) == _layer.NAME):
            kwargs["position_ids"] = None
        return own(*args, **kwargs)

    return create


def patch(model, done):
    body = model.base_model
    source = sys.modules[type(body).__module__]
    forward = None if "forward" in body.__dict__ else _forward_of(type(body))
    if forward is None or not hasattr(source, _MAKERS[0]):
        return
    name = source.__name__
    if name not in _makers:
        _makers[name] = [{m: getattr(source, m) for m in _MAKERS if hasattr(source, m)}, 0]
        for m, own in _makers[name][0].items():
            setattr(source, m, _maker(own))
    _makers[name][1] += 1
    body.forward = types.MethodType(forward, body)

    def undo():
        body.__dict__.pop("forward", None)
        _makers[name][1] -= 1
        if not _makers[name][1]:
            for m, own in _makers.pop(name)[0].items():
                setattr(source, m, own)

    done._undo.append(undo)
