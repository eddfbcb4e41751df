#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times PyTorch (eager and torch.compile) and, where installed, Liger's Triton kernels on the problems of
cgp_rows_bench: medians of rounds with a cold L2, as one JSON line each. Run it in the same hour as
cgp_rows_bench:  python3 scripts/peers_rows.py [--compile] [PREFIX...] > peers_rows.jsonl"""
import argparse
import json
import statistics

import torch
import torch.nn.functional as F

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--compile", action="store_true", help="torch.compile too (seconds a problem)")
parser.add_argument("--rounds", type=int, default=15)
parser.add_argument("prefixes", nargs="*")
args = parser.parse_args()
flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")


def milliseconds(run):
    for _ in range(3):
        run()
    times = []
    for _ in range(args.rounds):
        flush.zero_()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def report(name, peer, run, moved):
    try:
        ms = milliseconds(run)
        print(json.dumps({"name": name, "peer": peer, "ms": round(ms, 5), "GB/s": round(moved / ms / 1e6, 1)}), flush=True)
    except Exception as e:  # a peer that cannot is a result too
        print(json.dumps({"name": name, "peer": peer, "error": f"{type(e).__name__}: {e}"[:160]}), flush=True)


def peers(name, function, moved, backward=None):
    """`function()` is timed; with `backward` = (inputs, function of them, gradient), its gradient alone."""
    if args.prefixes and not any(name.startswith(p) for p in args.prefixes):
        return
    for peer in ["eager"] + (["compile"] if args.compile else []):
        torch._dynamo.reset()
        f = torch.compile(function) if peer == "compile" else function
        if backward is None:
            report(name, peer, f, moved)
            continue
        inputs, dy = backward
        y = f(*inputs)
        report(name, peer, lambda: torch.autograd.grad(y, inputs, dy, retain_graph=True), moved)


def norms(rows, cols):
    x = torch.randn(rows, cols, device="cuda", dtype=torch.bfloat16)
    w, b = (torch.randn(cols, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    dy, shape, matrix = torch.randn_like(x), f"bf16/{rows}x{cols}", x.numel() * 2
    peers(f"rms_norm/{shape}", lambda: F.rms_norm(x, (cols,), w, 1e-6), 2 * matrix)
    peers(f"layer_norm/{shape}", lambda: F.layer_norm(x, (cols,), w, b, 1e-6), 2 * matrix)
    peers(f"log_softmax/{shape}", lambda: F.log_softmax(x, 1), 2 * matrix)
    xs, ws, bs = (t.clone().requires_grad_() for t in (x, w, b))
    peers(f"rms_norm_backward/{shape}", lambda x, w: F.rms_norm(x, (cols,), w, 1e-6), 3 * matrix, ((xs, ws), dy))
    peers(f"layer_norm_backward/{shape}", lambda x, w, b: F.layer_norm(x, (cols,), w, b, 1e-6), 3 * matrix,
          ((xs, ws, bs), dy))
    peers(f"softmax_backward/{shape}", lambda x: F.softmax(x, 1), 3 * matrix, ((xs,), dy))


def cross_entropy(rows, cols):
    x = torch.randn(rows, cols, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    t = torch.arange(rows, device="cuda") * 7919 % cols
    name = f"cross_entropy/bf16/{rows}x{cols}"
    moved = 4 * rows * cols
    if args.prefixes and not any(name.startswith(p) for p in args.prefixes):
        return

    def step(loss):
        x.grad = None
        loss(x, t).backward()

    report(name, "eager", lambda: step(F.cross_entropy), moved)
    if args.compile:
        torch._dynamo.reset()
        compiled = torch.compile(lambda x, t: F.cross_entropy(x, t))
        report(name, "compile", lambda: step(compiled), moved)
    try:
        from liger_kernel.transformers.functional import liger_cross_entropy
        report(name, "liger", lambda: step(liger_cross_entropy), moved)
    except ImportError:
        pass


def activations(rows, cols):
    x, up = (torch.randn(rows, cols, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    shape, matrix = f"bf16/{rows}x{cols}", x.numel() * 2
    peers(f"gelu/{shape}", lambda: F.gelu(x), 2 * matrix)
    peers(f"swiglu/{shape}", lambda: F.silu(x) * up, 3 * matrix)
    xs, us = x.clone().requires_grad_(), up.clone().requires_grad_()
    peers(f"swiglu_backward/{shape}", lambda x, u: F.silu(x) * u, 5 * matrix, ((xs, us), torch.randn_like(x)))


print(json.dumps({"torch": torch.__version__, "gpu": torch.cuda.get_device_name()}))
for cols in (1024, 4096, 16384, 32768, 131072):
    norms((1 << 27) // cols, cols)
for rows, cols in ((8192, 32000), (4096, 151936), (8192, 50257)):
    cross_entropy(rows, cols)
activations(8192, 14336)
