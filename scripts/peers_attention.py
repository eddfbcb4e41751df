#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times PyTorch's attention (cuDNN, flash) on the shapes of cgp_attention_bench: cold L2, medians of events.

    peers_attention.py [--ours FILE] [--json FILE] [--backends cudnn,flash] [--rounds N] [PREFIX...]

With --ours, the JSON of cgp_attention_bench from the same machine and time, it prints ratios (peer's time over
ours: above 1 we are faster) and their geometric means.
"""
import argparse
import json
import math
import statistics

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "e4m3": torch.bfloat16}  # no peer takes 8 bits: bf16


def median_ms(work, rounds, flush):
    for _ in range(2):
        work()
    pairs = []
    for _ in range(rounds):
        flush.zero_()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        work()
        end.record()
        pairs.append((start, end))
    torch.cuda.synchronize()
    return statistics.median(s.elapsed_time(e) for s, e in pairs)


def shapes():
    for dtype in DTYPES:
        for d in (64, 128, 256):
            for causal in (False, True):
                for n in (512, 1024, 2048, 4096, 8192, 16384):
                    yield dtype, d, causal, n


DOCUMENTS = {
    "mixed": (4096, 512, 1024, 256, 2048, 512, 1024, 256, 128, 2048, 1024, 512, 256, 1024, 512, 1152),
    "even": (1024,) * 16
}


def document_rows(prefixes, ours, rounds, flush):
    """Packed sequences: PyTorch's flash kernel with offsets, and cuDNN on a batch padded to the longest."""
    for what, rows in DOCUMENTS.items():
        for d in (64, 128, 256):
            for causal in (False, True):
                for grad in (False, True):
                    name = f"documents/{'backward' if grad else 'forward'}/{what}/bf16/d{d}/{'causal' if causal else 'full'}"
                    if not any(name.startswith(x) for x in prefixes):
                        continue
                    h, most, make = 2048 // d, max(rows), {"device": "cuda", "dtype": torch.bfloat16, "requires_grad": grad}
                    flops = sum(4 * h * n * n * d * (0.5 if causal else 1) * (2.5 if grad else 1) for n in rows)
                    cu = torch.tensor([sum(rows[:i]) for i in range(len(rows) + 1)], device="cuda", dtype=torch.int32)
                    packed = [torch.randn(sum(rows), h, d, **make) for _ in range(3)]
                    padded = [torch.randn(len(rows), h, most, d, **make) for _ in range(3)]
                    flash = lambda: torch.ops.aten._flash_attention_forward(*packed, cu, cu, most, most, 0.0, causal, False)[0]
                    cudnn = lambda: F.scaled_dot_product_attention(*padded, is_causal=causal)
                    line = f"{name:44s}"
                    for peer, inputs, work in (("flash", packed, flash), ("padded cudnn", padded, cudnn)):
                        try:
                            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                                if grad:
                                    o = work()
                                    g = torch.randn_like(o)
                                    ms = median_ms(lambda: torch.autograd.grad(o, inputs, g, retain_graph=True), rounds, flush)
                                else:
                                    ms = median_ms(work, rounds, flush)
                        except RuntimeError as e:
                            line += f"  {peer}: {str(e)[:60]}"
                            continue
                        line += f"  {peer} {ms:8.4f} ms {flops / ms / 1e9:6.1f} TFLOP/s"
                        if name in ours:
                            line += f" ratio {ms / ours[name]:.3f}"
                    print(line, flush=True)


def feature_rows(prefixes, rounds, flush):
    """Gradients of shaped scores: flex_attention compiled (soft cap, slopes), PyTorch's attention with a mask."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    for shape in ("cap", "alibi", "add", "bool"):
        for d in (64, 128, 256):
            for causal in (False, True):
                for n in (1024, 4096):
                    name = f"duel/shaped/{shape}/bf16/d{d}/{'causal' if causal else 'full'}/n{n}"
                    if not any(name.startswith(x) for x in prefixes):
                        continue
                    b, h = 16384 // n, 2048 // d
                    make = {"device": "cuda", "dtype": torch.bfloat16}
                    q, k, v = (torch.randn(b, h, n, d, requires_grad=True, **make) for _ in range(3))
                    flops = 4 * b * h * n * n * d * (0.5 if causal else 1) * 2.5
                    if shape in ("cap", "alibi"):
                        slopes = torch.full((h,), 0.01, device="cuda")

                        def cap(score, _b, _h, _q, _k):
                            return 30 * torch.tanh(score / 30)

                        def alibi(score, _b, h_, q_, k_):
                            return score - slopes[h_] * (q_ - k_).abs()

                        torch.compiler.reset()
                        below = create_block_mask(lambda _b, _h, q_, k_: q_ >= k_, None, None, n, n) if causal else None
                        flex = torch.compile(flex_attention, dynamic=False)
                        work = lambda: flex(q, k, v, score_mod=cap if shape == "cap" else alibi, block_mask=below)
                    else:
                        bias = torch.randn(n, n, **make) if shape == "add" else torch.rand(n, n, device="cuda") > 0.1
                        if causal:
                            low = torch.ones(n, n, device="cuda", dtype=torch.bool).tril()
                            bias = bias.masked_fill(~low, -math.inf) if shape == "add" else bias & low
                        work = lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
                    try:
                        o = work()
                        g = torch.randn_like(o)
                        ms = median_ms(lambda: torch.autograd.grad(o, (q, k, v), g, retain_graph=True), rounds, flush)
                    except Exception as e:  # the compiler's errors are of many types
                        print(f"{name:44s}  {type(e).__name__}: {str(e)[:90]!r}", flush=True)
                        continue
                    peer = "flex_attention" if shape in ("cap", "alibi") else "sdpa"
                    print(f"{name:44s}  {peer} {ms:9.4f} ms {flops / ms / 1e9:7.1f} TFLOP/s", flush=True)


def padded_rows(prefixes, rounds, flush):
    """Head dimensions that are no power of two, by the better of cuDNN and flash."""
    for kind in ("forward", "backward"):
        for d in (32, 80, 96, 112):
            for causal in (False, True):
                name = f"duel/padded/{kind}/bf16/d{d}/{'causal' if causal else 'full'}/n4096"
                if not any(name.startswith(x) for x in prefixes):
                    continue
                grad = kind == "backward"
                q, k, v = (torch.randn(4, 16, 4096, d, device="cuda", dtype=torch.bfloat16, requires_grad=grad) for _ in range(3))
                line = f"{name:44s}"
                for backend, which in BACKENDS.items():
                    try:
                        with sdpa_kernel(which):
                            attend = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal)
                            o = attend()
                            g = torch.randn_like(o)
                            work = (lambda: torch.autograd.grad(o, (q, k, v), g, retain_graph=True)) if grad else attend
                            line += f"  {backend} {median_ms(work, rounds, flush):9.4f} ms"
                    except RuntimeError as e:
                        line += f"  {backend}: {str(e)[:60]}"
                print(line, flush=True)


def decode_rows(rounds, flush):
    """PyTorch's attention of one query over a contiguous cache, the best of its backends."""
    for b, hq, hk, n in ((1, 32, 8, 8192), (8, 32, 8, 8192), (32, 32, 8, 4096), (64, 32, 32, 2048), (128, 32, 8, 4096)):
        q = torch.randn(b, hq, 1, 128, device="cuda", dtype=torch.bfloat16)
        k, v = (torch.randn(b, hk, n, 128, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        ms = median_ms(lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), rounds, flush)
        print(f"decode/bf16/b{b}/hq{hq}/hk{hk}/n{n}  sdpa {ms:9.4f} ms {(k.nbytes + v.nbytes) / ms / 1e6:7.0f} GB/s", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--ours")
    p.add_argument("--json")
    p.add_argument("--backends", default="cudnn")
    p.add_argument("--rounds", type=int, default=15)
    p.add_argument("prefixes", nargs="*")
    a = p.parse_args()
    ours = {}
    if a.ours:
        with open(a.ours) as f:
            for row in json.load(f)["rows"]:
                ours.setdefault(row["name"], statistics.median(row["timings"][0]["ms"]))  # the first is the chosen one
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    rows, ratios = [], {}
    if not a.prefixes or any(x.startswith("decode") for x in a.prefixes):
        decode_rows(a.rounds, flush)
    if a.prefixes:
        document_rows(a.prefixes, ours, a.rounds, flush)
        feature_rows(a.prefixes, a.rounds, flush)
        padded_rows(a.prefixes, a.rounds, flush)
    passes = ["forward", "backward"]
    for kind in passes:
        for dtype, d, causal, n in shapes():
            name = f"{kind}/{dtype}/d{d}/{'causal' if causal else 'full'}/n{n}"
            if a.prefixes and not any(name.startswith(x) for x in a.prefixes):
                continue
            if kind == "backward" and (not a.prefixes or dtype == "e4m3"):
                continue
            b, h = 16384 // n, 2048 // d
            grad = kind == "backward"
            q, k, v = (torch.randn(b, h, n, d, device="cuda", dtype=DTYPES[dtype], requires_grad=grad) for _ in range(3))
            flops = 4 * b * h * n * n * d * (0.5 if causal else 1) * (2.5 if grad else 1)
            line = f"{name:40s}"
            for backend in a.backends.split(","):
                try:
                    with sdpa_kernel(BACKENDS[backend]):
                        if grad:
                            o = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
                            g = torch.randn_like(o)
                            ms = median_ms(lambda: torch.autograd.grad(o, (q, k, v), g, retain_graph=True), a.rounds, flush)
                        else:
                            ms = median_ms(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal), a.rounds, flush)
                except RuntimeError as e:
                    line += f"  {backend}: {str(e)[:60]}"
                    continue
                rows.append({"name": name, "peer": backend, "ms": ms})
                line += f"  {backend} {ms:9.4f} ms {flops / ms / 1e9:7.1f} TFLOP/s"
                if name in ours:
                    ratio = ms / ours[name]
                    line += f"  cgp {ours[name]:9.4f} ms {flops / ours[name] / 1e9:7.1f}  ratio {ratio:.3f}"
                    for group in (f"{backend} {kind}", f"{backend} {kind} d{d}"):
                        ratios.setdefault(group, []).append(ratio)
            print(line, flush=True)
    for group, r in sorted(ratios.items()):
        print(f"{group:28s} geometric mean {math.exp(sum(map(math.log, r)) / len(r)):.3f}  least {min(r):.3f}  of {len(r)}")
    if a.json:
        with open(a.json, "w") as f:
            json.dump({"torch": torch.__version__, "cudnn": torch.backends.cudnn.version(), "rows": rows}, f)


if __name__ == "__main__":
    main()
