#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two builds of libcgp.so side by side on one GPU: is anything slower, is anything different?

    compare_builds.py --before OLD/libcgp.so.1 --after NEW/libcgp.so.1 --json FILE [--only REGEX] [--warm 14]

Takes the names of all rows in results/h200/*.json, runs each problem through the C interface of both libraries in turns
(cold L2, random data, medians), and compares the bits of the results. Needs PyTorch, for memory, random data and events.
--warm N first compiles all kernels with N processes, so that the timed process finds them in the cache.
"""
import argparse
import ctypes as ct
import glob
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
BF16, F16, F32, F64, U8, S8 = torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.uint8, torch.int8
TYPES = {"bf16": BF16, "f16": F16, "f32": F32, "f64": F64, "u8": U8, "s8": S8, "e4m3": torch.float8_e4m3fn}
CODES = {U8: 0, S8: 1, torch.int32: 5, torch.int64: 7, F16: 8, BF16: 9, F32: 10, F64: 11, torch.float8_e4m3fn: 12}


class Tensor(ct.Structure):
    _fields_ = [("address", ct.c_uint64), ("dtype", ct.c_int32), ("rank", ct.c_int32), ("shape", ct.c_int64 * 8),
                ("stride", ct.c_int64 * 8)]


P = ct.POINTER(Tensor)


class GemmOptions(ct.Structure):
    _fields_ = [("size", ct.c_size_t), ("alpha", ct.c_float), ("beta", ct.c_float), ("precision", ct.c_int32),
                ("activation", ct.c_int32), ("swiglu", ct.c_int32), ("scaling", ct.c_int32), ("bias", P), ("residual", P),
                ("scale_a", P), ("scale_b", P), ("padded_c", ct.c_int32), ("bias_rows", P), ("multiply_rows", P),
                ("multiply_columns", P), ("amax", P)]


class NormOptions(ct.Structure):
    _fields_ = [("size", ct.c_size_t), ("eps", ct.c_float), ("weight_offset", ct.c_float), ("weight", P), ("bias", P),
                ("residual", P), ("sum", P), ("mean", P), ("rstd", P)]


class NormBackwardOptions(ct.Structure):
    _fields_ = [("size", ct.c_size_t), ("weight_offset", ct.c_float), ("weight", P), ("dsum", P), ("mean", P), ("rstd", P),
                ("dweight", P), ("dbias", P)]


class AttentionOptions(ct.Structure):
    _fields_ = [("size", ct.c_size_t), ("scale", ct.c_float), ("causal", ct.c_int32), ("window_left", ct.c_int32),
                ("window_right", ct.c_int32), ("soft_cap", ct.c_float), ("slopes", P), ("mask", P), ("key_lengths", P),
                ("nondeterministic", ct.c_int32)]


class CrossEntropyOptions(ct.Structure):
    _fields_ = [("size", ct.c_size_t), ("ignore_index", ct.c_int64), ("label_smoothing", ct.c_float), ("z_loss", ct.c_float)]


KEEP = []  # what structures point to


def view(x):
    t = Tensor(x.data_ptr(), CODES[x.dtype], x.dim())
    for i in range(x.dim()):
        t.shape[i], t.stride[i] = x.shape[i], x.stride(i)
    p = ct.pointer(t)
    KEEP.append((t, p, x))
    return p


def options(kind, **members):
    o = kind(size=ct.sizeof(kind))
    for name, value in members.items():
        setattr(o, name, view(value) if isinstance(value, torch.Tensor) else value)
    KEEP.append(o)
    return ct.byref(o)


def rand(*shape, dtype=BF16, scale=1.0):
    if dtype in (U8, S8):
        return torch.randint(-100 if dtype == S8 else 0, 100, shape, dtype=dtype, device="cuda")
    if dtype == torch.float8_e4m3fn:
        return torch.randn(shape, device="cuda").to(dtype)
    x = torch.empty(shape, dtype=dtype, device="cuda")
    return x.normal_(0, scale)


def empty(*shape, dtype=BF16):
    return torch.empty(shape, dtype=dtype, device="cuda")


def problem(name):
    """(function of the C interface, its arguments behind the stream, the result), or None: not a row of this interface."""
    part = name.split("/")
    kind, last = part[0], part[-1]
    sizes = [int(s) for s in re.findall(r"\d+", last)]
    if kind == "gemm":
        t, layout = TYPES[part[1]], part[2]
        m, n, k = sizes[:3]
        batch = sizes[3:] or []
        a = rand(*batch, k, m, dtype=t).mT if layout[0] == "t" else rand(*batch, m, k, dtype=t)
        b = rand(*batch, n, k, dtype=t).mT if layout[1] == "t" else rand(*batch, k, n, dtype=t)
        c = empty(*batch, m, n, dtype=t)
        return "cgp_gemm", [view(a), view(b), options(GemmOptions, alpha=1, beta=0), view(c)], c
    if kind == "gemm_types":
        more, out, t, precision = {}, BF16, BF16, 0
        form = part[1]
        m, n, k = sizes[:3] if form != "epilogue" else (8192, 8192, 8192)
        if form == "fp8":
            t = TYPES["e4m3"]
            precision = 1 if part[2] == "fast" else 0
            if part[2] == "channels":
                more = dict(scaling=2, scale_a=rand(m, dtype=F32), scale_b=rand(n, dtype=F32))
            if part[2] == "blocks":
                more = dict(scaling=3, scale_a=rand(1, m, -(-k // 128), dtype=F32),
                            scale_b=rand(1, -(-n // 128), -(-k // 128), dtype=F32))
        elif form == "s8":
            t, out = S8, torch.int32
        elif form == "bf16_f32":
            out = F32
        elif form in ("tf32", "f32", "strict"):
            t = out = F32
            precision = {"tf32": 1, "f32": 0, "strict": 2}[form]
        beta, columns = 0, n
        if form == "epilogue":
            e = part[2]
            if e == "beta":
                beta = 1
            if e.startswith("bias"):
                more = dict(bias=rand(n), activation={"bias": 0, "bias_relu": 1, "bias_gelu": 3}.get(e, 4))
            if e == "residual":
                more = dict(residual=rand(m, n))
            if e == "swiglu":
                more, columns = dict(swiglu=1), n // 2
            if e == "silu_amax":
                more = dict(activation=2, amax=empty(1, -(-m // 128), -(-n // 128), dtype=F32))
        a, b, c = rand(m, k, dtype=t), rand(n, k, dtype=t).mT, torch.zeros(m, columns, dtype=out, device="cuda")
        if beta:
            return "cgp_gemm", [view(a), view(b), options(GemmOptions, alpha=1, beta=0.5, **more), view(c)], None
        return "cgp_gemm", [view(a), view(b), options(GemmOptions, alpha=1, beta=0, precision=precision, **more),
                            view(c)], c
    if kind == "grouped_gemm" and part[1] == "rows":
        groups, rows, n, k = sizes
        a, b, c = rand(rows, k), rand(groups, n, k).mT, empty(rows, n)
        generator = torch.Generator().manual_seed(1)
        share = torch.rand(groups, generator=generator) ** (3 if part[3] == "skewed" else 1)
        if part[3] == "even":
            share = torch.ones(groups)
        ends = (share.cumsum(0) / share.sum() * rows).round().to(torch.int32).cuda()
        return "cgp_grouped_gemm", [view(a), view(b), view(ends), None, options(GemmOptions, alpha=1, beta=0), view(c)], c
    if kind == "attention":
        nondeterministic = 0 if "turns" in part else 1
        part = [p for p in part if p != "turns"]
        t, d, n = TYPES[part[2]], int(part[3][1:]), int(part[5][1:])
        b, h = max(1, 16384 // n), 2048 // d
        q, k, v = (rand(b, h, n, d, dtype=t) for _ in range(3))
        o = empty(b, h, n, d, dtype=BF16 if part[2] == "e4m3" else t)
        lse = empty(b, h, n, dtype=F32)
        opt = options(AttentionOptions, causal=int(part[4] == "causal"), nondeterministic=nondeterministic)
        forward = ["cgp_attention", [view(q), view(k), view(v), opt, view(o), view(lse)], o]
        if part[1] == "forward":
            forward[1][-1] = None
            return forward
        grads = [rand(b, h, n, d, dtype=t), *(torch.empty_like(q) for _ in range(3))]
        call = ["cgp_attention_backward", [view(q), view(k), view(v), opt, view(o), view(lse), *map(view, grads)],
                None if nondeterministic else grads[1]]
        call.append(forward)
        return call
    if kind in ("softmax", "log_softmax"):
        x = rand(*sizes, dtype=TYPES[part[1]])
        y = torch.empty_like(x)
        return "cgp_" + kind, [view(x), view(y)], y
    if kind in ("softmax_backward", "log_softmax_backward"):
        y = torch.randn(sizes, device="cuda")
        y = (y.softmax(-1) if kind[0] == "s" else y.log_softmax(-1)).to(TYPES[part[1]])
        dy, dx = rand(*sizes, dtype=y.dtype), torch.empty_like(y)
        return "cgp_" + kind, [view(y), view(dy), view(dx)], dx
    if kind in ("rms_norm", "layer_norm", "rms_norm_residual"):
        t = TYPES[part[1]]
        x, w = rand(*sizes, dtype=t), rand(sizes[1], dtype=t)
        y, more = torch.empty_like(x), dict(rstd=empty(sizes[0], dtype=F32))
        if kind == "layer_norm":
            more.update(bias=rand(sizes[1], dtype=t), mean=empty(sizes[0], dtype=F32))
        if kind == "rms_norm_residual":
            more.update(residual=rand(*sizes, dtype=t), sum=torch.empty_like(x))
        call = "cgp_layer_norm" if kind == "layer_norm" else "cgp_rms_norm"
        return call, [view(x), options(NormOptions, eps=1e-5, weight=w, **more), view(y)], y
    if kind in ("rms_norm_backward", "layer_norm_backward"):
        t = TYPES[part[1]]
        x, dy, w = rand(*sizes, dtype=t), rand(*sizes, dtype=t), rand(sizes[1], dtype=t)
        dx = torch.empty_like(x)
        more = dict(rstd=rand(sizes[0], dtype=F32).abs() + 0.5, dweight=empty(sizes[1], dtype=t))
        if kind[0] == "l":
            more.update(mean=rand(sizes[0], dtype=F32), dbias=empty(sizes[1], dtype=t))
        return "cgp_" + kind, [view(x), view(dy), options(NormBackwardOptions, weight=w, **more), view(dx)], dx
    if kind == "cross_entropy":
        x = rand(*sizes, dtype=TYPES[part[1]])
        target = torch.randint(0, sizes[1], (sizes[0],), device="cuda")
        loss, lse, dx = empty(sizes[0], dtype=F32), empty(sizes[0], dtype=F32), torch.empty_like(x)
        opt = options(CrossEntropyOptions, ignore_index=-100)
        return "cgp_cross_entropy", [view(x), view(target), opt, view(loss), view(lse), view(dx)], dx
    codes = {"silu": 2, "gelu": 3, "gelu_tanh": 4, "bias_gelu": 3}
    if kind in codes:
        x = rand(*sizes, dtype=TYPES[part[1]])
        y, bias = torch.empty_like(x), rand(sizes[1], dtype=x.dtype) if kind == "bias_gelu" else None
        return "cgp_activate", [ct.c_int32(codes[kind]), view(x), view(bias) if bias is not None else None, view(y)], y
    if kind == "silu_backward":
        x, dy = rand(*sizes, dtype=TYPES[part[1]]), rand(*sizes, dtype=TYPES[part[1]])
        dx = torch.empty_like(x)
        return "cgp_activate_backward", [ct.c_int32(2), view(x), None, view(dy), view(dx)], dx
    if kind in ("swiglu", "swiglu_backward"):
        x = [rand(*sizes, dtype=TYPES[part[1]]) for _ in range(3)]
        out = [torch.empty_like(x[0]) for _ in range(2)]
        if kind == "swiglu":
            return "cgp_gated", [ct.c_int32(2), view(x[0]), view(x[1]), view(out[0])], out[0]
        return "cgp_gated_backward", [ct.c_int32(2), *map(view, x), *map(view, out)], out[0]
    if kind == "transpose":
        x = rand(*sizes, dtype=TYPES[part[1]])
        y = empty(sizes[0], sizes[2], sizes[1], dtype=x.dtype)
        return "cgp_transpose", [view(x), view(y)], y
    if kind == "reduce":
        x = rand(*sizes, dtype=TYPES[part[2]])
        y = empty(sizes[0], sizes[2], dtype=x.dtype)
        return "cgp_reduce", [ct.c_int32(part[1] == "max"), ct.c_int32(1), view(x), view(y)], y
    if kind == "vecadd":
        x, y = rand(*sizes, dtype=TYPES[part[1]]), rand(*sizes, dtype=TYPES[part[1]])
        z = torch.empty_like(x)
        return "cgp_add", [view(x), view(y), view(z)], z
    if kind == "argmax":
        x, index = rand(*sizes, dtype=TYPES[part[1]]), empty(sizes[0], dtype=torch.int64)
        return "cgp_argmax", [view(x), view(index), None], index
    if kind == "topk":
        x = rand(*sizes[:2], dtype=TYPES[part[1]])
        values, index = empty(sizes[0], sizes[2], dtype=x.dtype), empty(sizes[0], sizes[2], dtype=torch.int64)
        return "cgp_topk", [view(x), view(values), view(index)], values
    if kind == "cumsum":
        x = rand(*sizes, dtype=TYPES[part[1]])
        y = torch.empty_like(x)
        return "cgp_cumsum", [view(x), ct.c_int32(0), view(y)], y
    if kind in ("embedding", "embedding_backward"):
        tokens, cols, vocab = sizes
        index = torch.randint(0, vocab, (tokens,), device="cuda")
        table, rows = rand(vocab, cols), rand(tokens, cols)
        if kind == "embedding":
            return "cgp_embedding", [view(index), view(table), None, view(rows)], rows
        return "cgp_embedding_backward", [view(index), view(rows), ct.c_int64(-1), None, view(table)], table
    return None


class Library:
    def __init__(self, path):
        self.lib = ct.CDLL(path, mode=os.RTLD_LOCAL | os.RTLD_NOW)
        self.lib.cgp_last_error.restype = ct.c_char_p
        device, self.stream = ct.c_void_p(), ct.c_void_p()
        self.check(self.lib.cgp_device_open(b"cuda:0", ct.byref(device)))
        self.check(self.lib.cgp_stream_borrow(device, ct.c_void_p(torch.cuda.current_stream().cuda_stream),
                                              ct.byref(self.stream)))

    def check(self, status):
        if status:
            raise RuntimeError(self.lib.cgp_last_error().decode())

    def call(self, function, arguments):
        self.check(getattr(self.lib, function)(self.stream, *arguments))


def names():
    found = set()
    for f in glob.glob(str(ROOT / "results/h200/*.json")):
        document = json.load(open(f))
        found |= {r.get("problem") or r.get("name") for r in document.get("results") or document.get("rows") or []}
    return sorted(found)


def median(x):
    x = sorted(x)
    return x[len(x) // 2] if len(x) % 2 else (x[len(x) // 2 - 1] + x[len(x) // 2]) / 2


def measure(libraries, name, flush, rounds, warm):
    case = problem(name)
    if case is None:
        return {"name": name, "skipped": "not a function of the C interface"}
    function, arguments, result = case[0], case[1], case[2]
    if len(case) > 3:
        for library in libraries:
            library.call(case[3][0], case[3][1])
    bits = []
    for library in libraries:
        library.call(function, arguments)
        torch.cuda.synchronize()
        if result is not None and not warm:
            bits.append(result.contiguous().view(U8).clone() if result.numel() * result.element_size() < 1 << 31 else None)
    if warm:
        return None
    same = None
    if len(bits) == 2 and bits[0] is not None:
        same = bool(torch.equal(bits[0], bits[1]))
    del bits
    start, end = ([torch.cuda.Event(enable_timing=True) for _ in range(2 * rounds)] for _ in range(2))
    for i in range(2 * rounds):
        flush.zero_()
        library = libraries[i % 2 if i // 2 % 2 == 0 else 1 - i % 2]
        start[i].record()
        library.call(function, arguments)
        end[i].record()
    torch.cuda.synchronize()
    times = [[], []]
    for i in range(2 * rounds):
        times[i % 2 if i // 2 % 2 == 0 else 1 - i % 2].append(start[i].elapsed_time(end[i]))
    return {"name": name, "before_ms": times[0], "after_ms": times[1], "same_bits": same,
            "ratio": median(times[0]) / median(times[1])}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--before", required=True)
    p.add_argument("--after", required=True)
    p.add_argument("--json")
    p.add_argument("--only", default=".")
    p.add_argument("--rounds", type=int, default=15)
    p.add_argument("--warm", type=int, default=0)
    p.add_argument("--slice", type=int, nargs=2, metavar=("I", "N"))
    args = p.parse_args()
    chosen = [n for n in names() if re.search(args.only, n)]
    if args.warm:
        common = [sys.executable, __file__, "--before", args.before, "--after", args.after, "--only", args.only]
        jobs = [subprocess.Popen(common + ["--slice", str(i), str(args.warm)]) for i in range(args.warm)]
        for job in jobs:
            job.wait()
    libraries = [Library(args.before), Library(args.after)]
    flush = torch.empty(256 << 20, dtype=U8, device="cuda")
    if args.slice:
        chosen = chosen[args.slice[0]::args.slice[1]]
    rows = []
    for name in chosen:
        torch.manual_seed(1)
        try:
            row = measure(libraries, name, flush, args.rounds, args.slice is not None)
        except Exception as e:  # one problem that fails must not hide the others
            row = {"name": name, "failed": str(e)}
        KEEP.clear()
        if row is None:
            continue
        rows.append(row)
        if not args.slice and ("failed" in row or row.get("same_bits") is False or row.get("ratio", 1) < 0.97):
            print(row["name"], row.get("failed") or f"ratio {row['ratio']:.3f}, same bits: {row['same_bits']}", flush=True)
    if args.slice:
        return 0
    ratios = [r["ratio"] for r in rows if "ratio" in r]
    summary = {"rows": len(ratios), "geometric_mean": math.exp(sum(map(math.log, ratios)) / max(1, len(ratios))),
               "least": min(ratios, default=None), "below_0.97": sum(r < 0.97 for r in ratios),
               "other_bits": sum(r.get("same_bits") is False for r in rows), "failed": sum("failed" in r for r in rows)}
    print(json.dumps(summary))
    if args.json:
        driver = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True,
                                text=True).stdout.strip()
        for r in rows:
            for key in ("before_ms", "after_ms"):
                if key in r:
                    r[key] = [round(x, 5) for x in r[key]]
        with open(args.json, "w") as f:
            json.dump({"gpu": torch.cuda.get_device_name(), "driver": driver, "summary": summary, "rows": rows}, f)
    return 0


if __name__ == "__main__":
    sys.exit(main())
