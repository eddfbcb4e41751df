#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Grouped GEMM beside PyTorch's, in one process, on one stream, in interleaved rounds with a cold L2.

    compare_grouped_gemm.py LIBRARY [--json FILE] [--rounds N] [--sweep] [PREFIX...]

LIBRARY is the target cgp_grouped_gemm_shared. Peers: torch._grouped_mm, and a loop of torch.mm over the groups
(which is told the sizes on the host). With --sweep every tiling runs, not the selector's alone.
"""
import argparse
import ctypes
import json
import statistics

import torch

FORMS = {"rows": 0, "depth": 1, "problems": 2}


class Grouped(ctypes.Structure):
    _fields_ = [(n, ctypes.c_uint64) for n in
                ("groups", "rows", "m", "n", "k", "a_rows", "a", "b", "c", "ends", "index", "items")] + [
        (n, ctypes.c_int32) for n in ("f16", "form", "trans_b", "wide", "bn", "stages", "buffers", "band", "taken")]


class Library:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.cgp_grouped_error.restype = ctypes.c_char_p
        self.lib.cgp_grouped_stream.restype = ctypes.c_void_p
        stream = self.lib.cgp_grouped_stream()
        if not stream:
            raise RuntimeError(self.error())
        self.stream = torch.cuda.ExternalStream(stream)

    def error(self):
        return self.lib.cgp_grouped_error().decode()

    def run(self, problem):
        if self.lib.cgp_grouped_run(ctypes.byref(problem)):
            raise RuntimeError(self.error())


def ragged_ends(groups, rows, spread, generator):
    u = torch.rand(groups, generator=generator, dtype=torch.float64)
    weight = {"even": torch.ones_like(u), "ragged": 0.2 + 1.6 * u, "skewed": u ** 4,
              "one": (torch.arange(groups) == groups // 2).double()}[spread]
    ends = (rows * torch.cumsum(weight, 0) / weight.sum()).round().to(torch.int64)
    ends[-1] = rows
    return ends


def compare(contenders, rounds, stream):
    """Milliseconds of each contender, interleaved, the order rotating, L2 overwritten before each."""
    flush = torch.empty(64 << 20, dtype=torch.int32, device="cuda")
    times = {name: [] for name, _ in contenders}
    with torch.cuda.stream(stream):
        for round_ in range(rounds + 2):
            events = []
            for i in range(len(contenders)):
                name, run = contenders[(i + round_) % len(contenders)]
                flush.fill_(round_)
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                start.record(stream)
                run()
                end.record(stream)
                events.append((name, start, end))
            torch.cuda.synchronize()
            if round_ >= 2:
                for name, start, end in events:
                    times[name].append(start.elapsed_time(end))
    return times


def tunings(sweep):
    out = [("cgp", (0, 0, 0, 0, 0))]
    if sweep:
        for bn, stages, band, taken in ((128, 6, 8, 1), (256, 4, 8, 0), (256, 4, 8, 1), (256, 4, 4, 1),
                                        (256, 4, 16, 1), (256, 3, 8, 1)):
            name = f"bn{bn}_s{stages}_b{band}" + ("" if taken else "_static")
            out.append((name, (bn, stages, 2, band, taken)))
    return out


def case(lib, name, form, spread, groups, rows, n, k, layout, rounds, sweep):
    generator = torch.Generator().manual_seed(1)
    ends = ragged_ends(groups, rows, spread, generator)
    sizes = torch.diff(ends, prepend=torch.zeros(1, dtype=torch.int64)).tolist()
    offs = ends.to(torch.int32).cuda()
    normal = lambda *s: torch.randn(*s, device="cuda", dtype=torch.bfloat16)
    if form == "rows":
        a = normal(rows, k)
        b = normal(groups, n, k) if layout == "nt" else normal(groups, k, n)
        b_math = b.transpose(1, 2) if layout == "nt" else b
        c = torch.empty(rows, n, device="cuda", dtype=torch.bfloat16)
        theirs = torch.empty_like(c)
        peer = lambda: torch._grouped_mm(a, b_math, offs=offs)
        parts = list(zip(torch.split(a, sizes), b_math, torch.split(theirs, sizes)))
        loop = lambda: [torch.mm(x, y, out=z) for x, y, z in parts if x.shape[0]]
        m = 0
    else:
        m, k = k, 0
        a, b = normal(rows, m), normal(rows, n)
        c = torch.empty(groups, m, n, device="cuda", dtype=torch.bfloat16)
        theirs = torch.empty_like(c)
        peer = lambda: torch._grouped_mm(a.t(), b, offs=offs)
        parts = list(zip(torch.split(a, sizes), torch.split(b, sizes), theirs))
        loop = lambda: [torch.mm(x.t(), y, out=z) for x, y, z in parts if x.shape[0]]
    torch.cuda.synchronize()
    contenders = []
    for label, (bn, stages, buffers, band, taken) in tunings(sweep):
        p = Grouped(groups=groups, rows=rows, m=m, n=n, k=k, a=a.data_ptr(), b=b.data_ptr(), c=c.data_ptr(),
                    ends=offs.data_ptr(), form=FORMS[form], trans_b=layout == "nt", bn=bn, stages=stages,
                    buffers=buffers, band=band, taken=taken)
        contenders.append((label, lambda p=p: lib.run(p)))
    for label, run in (("torch._grouped_mm", peer), ("torch.mm loop", loop)):
        try:
            with torch.cuda.stream(lib.stream):
                run()
            torch.cuda.synchronize()
            contenders.append((label, run))
        except Exception as e:  # a peer that does not take the problem is no peer for it
            print(f"{name}: {label}: {str(e).splitlines()[0][:120]}")
    times = compare(contenders, rounds, lib.stream)
    lib.run(p)
    with torch.cuda.stream(lib.stream):
        loop()
    torch.cuda.synchronize()
    error = ((c.float() - theirs.float()).norm() / theirs.float().norm()).item()
    flops = 2.0 * rows * n * (k or m)
    peers = {x: statistics.median(t) for x, t in times.items() if x.startswith("torch")}
    best_peer = min(peers.values())
    print(f"{name}: difference {error:.1e}", flush=True)
    for label, t in times.items():
        ms = statistics.median(t)
        q = statistics.quantiles(t, n=4)
        print(f"  {label:20s} {ms:9.4f} ms ± {50 * (q[2] - q[0]) / ms:3.1f} %  {flops / ms / 1e9:6.1f} TFLOP/s"
              f"  ratio {best_peer / ms:.3f}", flush=True)
    if not error < 1e-2:
        raise SystemExit(f"{name}: wrong, or the peer is")
    return {"name": name, "flops": flops, "difference": error,
            "timings": [{"name": x, "ms": t} for x, t in times.items()]}


SHAPES = [  # groups, rows, n, k
    (64, 1024, 4096, 4096),
    (64, 8192, 4096, 4096),
    (64, 16384, 2048, 4096),
    (64, 32768, 4096, 2048),
    (64, 32768, 1408, 2048),
    (64, 65536, 2048, 1024),
    (64, 65536, 4096, 4096),
    (8, 16384, 14336, 4096),
    (256, 65536, 4096, 7168),
    (256, 4096, 4096, 7168),
]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--json")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("prefixes", nargs="*")
    args = parser.parse_intermixed_args()
    lib = Library(args.library)
    print(torch.cuda.get_device_name(), "PyTorch", torch.__version__, flush=True)
    rows = []
    for form, layouts in (("rows", ("nt", "nn")), ("depth", ("tn",))):
        for layout in layouts:
            for shape in SHAPES:
                spreads = ("ragged", "skewed", "even") if shape == (64, 32768, 4096, 2048) else ("ragged",)
                if layout == "nn" and shape != (64, 32768, 4096, 2048):
                    continue
                if form == "depth" and shape[0] == 256:
                    continue
                for spread in spreads:
                    name = f"grouped/{form}/{layout}/{spread}/" + "x".join(map(str, shape))
                    if args.prefixes and not any(name.startswith(p) for p in args.prefixes):
                        continue
                    rows.append(case(lib, name, form, spread, *shape, layout, args.rounds, args.sweep))
                    torch.cuda.empty_cache()
    ratios = []
    for row in rows:
        t = {x["name"]: statistics.median(x["ms"]) for x in row["timings"]}
        ratios.append(min(v for x, v in t.items() if x.startswith("torch")) / t["cgp"])
    if not ratios:
        raise SystemExit("no such problem")
    print(f"geometric mean of {len(ratios)} ratios: {statistics.geometric_mean(ratios):.3f}, least {min(ratios):.3f}")
    if args.json:
        with open(args.json, "w") as f:
            json.dump({"device": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows}, f)


if __name__ == "__main__":
    main()
