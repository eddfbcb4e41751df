# SPDX-License-Identifier: Apache-2.0
"""Steps of AdamW on float32: one large tensor and many small ones, with and without clipping by the global norm, against
PyTorch's fused AdamW (after its clip_grad_norm_ by lists) and a copy of as many bytes (28 an element). AdamW with states of 8 bits
against a copy of its bytes (16 an element)."""
import torch

from ._time import by_clock, by_events

SHAPES = {"one tensor of 256 Mi": [(1 << 28,)], "300 tensors of 768 x 768": [(768, 768)] * 300}


def _parameters(shapes):
    made = [torch.nn.Parameter(torch.randn(s, device="cuda")) for s in shapes]
    for p in made:
        p.grad = torch.randn_like(p)
    return made


def _ours(shapes, kind="AdamW", **options):
    from cgp import optim
    return getattr(optim, kind)(_parameters(shapes), **options).step


def _theirs(shapes, max_norm=None):
    parameters = _parameters(shapes)
    step = torch.optim.AdamW(parameters, fused=True).step

    def clipped():
        torch.nn.utils.clip_grad_norm_(parameters, max_norm, foreach=True)
        step()

    return clipped if max_norm else step


def _copy(shapes, bytes_of_each=28):
    n = sum(torch.Size(s).numel() for s in shapes)
    a = torch.randn(n * bytes_of_each // 8, device="cuda")
    b = torch.empty_like(a)
    return lambda: b.copy_(a)


def run(options):
    rows = []
    for name, shapes in SHAPES.items():
        if options.only and not any(o in name for o in options.only):
            continue
        contenders = {"cgp": _ours(shapes), "torch fused": _theirs(shapes), "copy": _copy(shapes),
                      "cgp, clipped": _ours(shapes, max_norm=1.0), "torch fused, clipped": _theirs(shapes, 1.0)}
        for how, measure in (("device", by_events), ("clock", by_clock)):
            times = measure(contenders, options.rounds, options.seconds)
            clip = {n.removesuffix(", clipped"): t for n, t in times.items() if n.endswith("clipped")}
            plain = {n: t for n, t in times.items() if not n.endswith("clipped")}
            rows.append(dict(part="optimizers", name=f"{name}, {how}", own=["cgp"], times=plain))
            rows.append(dict(part="optimizers", name=f"{name}, clipped, {how}", own=["cgp"], times=clip))
        contenders = {"cgp": _ours(shapes, "AdamW8bit"), "copy": _copy(shapes, 16)}
        rows.append(dict(part="optimizers", name=f"{name}, 8-bit states, device", own=["cgp"],
                         times=by_events(contenders, options.rounds, options.seconds)))
        del contenders
        torch.cuda.empty_cache()
    return rows
