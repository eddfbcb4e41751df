# SPDX-License-Identifier: Apache-2.0
"""A linear layer with a low-rank adapter in bfloat16, forward, and forward with gradients of x, A and B: against PyTorch, the same
compiled, and our product of the layer alone."""
import torch

from ._time import by_events

SHAPES = [(4096, 4096, 4096, 16), (4096, 4096, 4096, 64), (8192, 14336, 4096, 16), (8192, 14336, 4096, 64)]  # m, n, k, r


def _layer(x, w, a, b):
    return x @ w.mT + 2.0 * ((x @ a.mT) @ b.mT)


def run(options):
    from cgp import _lora, ops
    rows = []
    for m, n, k, r in SHAPES:
        name = f"{m} x {n} x {k}, r {r}"
        if options.only and not any(o in name for o in options.only):
            continue

        def made(*shape):
            return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)

        x, w, a, b, dy = made(m, k), made(n, k) / k**0.5, made(r, k) / k**0.5, made(n, r), made(m, n)
        trained = [t.clone().requires_grad_() for t in (x, a, b)]

        def gradients(layer):
            return lambda: torch.autograd.grad(layer(trained[0], w, *trained[1:]), trained, dy)

        def ours(x, w, a, b):
            return _lora.apply(x, a, b, 2.0, w)

        layers = {"cgp": ours, "torch": _layer} | ({"torch.compile": torch.compile(_layer)} if options.compile else {})
        forward = {n: (lambda f: lambda: f(x, w, a, b))(f) for n, f in layers.items()}
        forward["layer alone"] = lambda: ops.matmul(x, w.mT)
        both = {n: gradients(f) for n, f in layers.items()}
        with torch.no_grad():
            rows.append(dict(part="adapters", name=f"{name}, forward", own=["cgp"],
                             times=by_events(forward, options.rounds, options.seconds)))
        rows.append(dict(part="adapters", name=f"{name}, with gradients", own=["cgp"],
                         times=by_events(both, options.rounds, options.seconds)))
        torch.cuda.empty_cache()
    return rows
