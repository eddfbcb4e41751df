# SPDX-License-Identifier: Apache-2.0
"""Greedy decoding, batch 1: the prompt and then token by token, the same loop for all.

eager, cgp.patch       the model, and a copy of it that is patched, with a DynamicCache, no graph (without the patch of RoPE, which all
                       models of a kind share: layers of few tokens have ours anyhow)
torch.compile          a StaticCache and mode "reduce-overhead" (CUDA graphs); the prompt by the model itself
cgp.Decoder            a CUDA graph"""
import copy

import torch

from . import _models
from ._time import by_clock


def _dynamic(model, ids, new):
    from transformers import DynamicCache
    cache = DynamicCache(config=model.config)
    tokens = [model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[:, -1].argmax(-1, keepdim=True)]
    for _ in range(new - 1):
        tokens.append(model(tokens[-1], past_key_values=cache, use_cache=True).logits[:, -1].argmax(-1, keepdim=True))
    return torch.cat([ids, *tokens], 1)


class _Static:
    def __init__(self, model, room):
        import inspect

        from transformers import StaticCache
        self.model, self.cache = model, StaticCache(config=model.config, max_cache_len=room)
        self.step = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True)
        self.by_place = "cache_position" in inspect.signature(type(model).forward).parameters

    def __call__(self, ids, new):
        self.cache.reset()
        places = torch.arange(ids.shape[1], device=ids.device)[None]

        def call(f, tokens, places, **options):
            if self.by_place:
                options["cache_position"] = places[0]
            logits = f(tokens, past_key_values=self.cache, position_ids=places, use_cache=True, **options).logits
            return logits[:, -1].argmax(-1, keepdim=True).clone()

        tokens = [call(self.model, ids, places, logits_to_keep=1)]
        place = torch.full((1, 1), ids.shape[1], device=ids.device)
        for _ in range(new - 1):
            torch.compiler.cudagraph_mark_step_begin()
            tokens.append(call(self.step, tokens[-1], place.clone()))
            place += 1
        return torch.cat([ids, *tokens], 1)


def _told(contenders, times, new):
    """Tokens a second, and megabytes (2^20 bytes) of PyTorch's at their highest, model included: into times, and as text."""
    for name, f in contenders.items():
        if "ms" in times[name]:
            torch.cuda.reset_peak_memory_stats()
            f()
            times[name] |= {"tokens_per_s": new / times[name]["ms"] * 1e3, "peak_mb": torch.cuda.max_memory_allocated() / 2**20}
    return "; ".join(f"{n} {t['tokens_per_s']:.0f} tokens/s, {t['peak_mb']:.0f} MB" for n, t in times.items() if "peak_mb" in t)


def same_tokens(ours, theirs, prompt):
    """How many new tokens agree before the first that does not."""
    return int((ours == theirs)[0, prompt:].int().cumprod(0).sum())


@torch.no_grad()
def divergence(model, decoder, ours, theirs, prompt):
    """What was said where the first token differs: the model's logits of both, and how far ours are from the model's."""
    n = prompt + same_tokens(ours, theirs, prompt)
    logits = model(theirs[:, :n], logits_to_keep=1).logits[0, -1].float()
    mine = decoder.prefill(theirs[:, :n])[0].float()
    gap = (logits[theirs[0, n]] - logits[ours[0, n]]).item()
    return f"token {n - prompt} differs: {gap:.4f} lie between both in the model's logits, which differ by up to " \
           f"{(mine - logits).abs().max().item():.4f}"


@torch.no_grad()
def run(options):
    import cgp
    rows = []
    for name in options.models:
        model = _models.make(name, options.layers)
        new, room = options.new_tokens, max(options.prompts) + options.new_tokens
        decoder = cgp.Decoder(model, 1, room)
        static = _Static(model, room) if options.compile else None

        copied = copy.deepcopy(model)
        cgp.patch(copied, rope=False)

        def patched(ids):
            return _dynamic(copied, ids, new)

        for prompt in options.prompts:
            ids = torch.randint(0, 1000, (1, prompt), device="cuda")
            contenders = {"cgp.Decoder": lambda: decoder.generate(ids, max_new_tokens=new), "cgp.patch": lambda: patched(ids),
                          "eager": lambda: _dynamic(model, ids, new)}
            if static:
                contenders["torch.compile"] = lambda: static(ids, new)
            times = by_clock(contenders, options.rounds, options.seconds)
            theirs = _dynamic(model, ids, new)
            note = [_told(contenders, times, new)]
            for what, ours in (("cgp.Decoder", decoder.generate(ids, max_new_tokens=new)), ("cgp.patch", patched(ids))):
                same = same_tokens(ours, theirs, prompt)
                note.append(f"{what} gives {same} of {new} tokens as eager" +
                            ("" if same == new else f" ({divergence(model, decoder, ours, theirs, prompt)})"))
            rows.append(dict(part="generate (graph)", name=f"{name}, prompt {prompt}, {new} new", own=["cgp.Decoder"],
                             times={n: t for n, t in times.items() if n in ("cgp.Decoder", "torch.compile")}, note="; ".join(note)))
            rows.append(dict(part="generate (eager)", name=f"{name}, prompt {prompt}, {new} new", own=["cgp.patch"],
                             times={n: t for n, t in times.items() if n in ("cgp.patch", "eager")}))
        del model, copied, decoder, static
        torch.cuda.empty_cache()
    return rows
