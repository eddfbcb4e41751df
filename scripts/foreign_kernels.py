#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kernels of public projects through the emulator: all checks, three policies, results against a host oracle.

    python3 scripts/foreign_kernels.py [--cgp PATH] [--sources DIR] [--work DIR] [-k PART]

Compiles the projects' CUDA sources with nvcc (13 or later, must be on the PATH) and runs what comes out with
`cgp run --spec`. Nothing of the projects is kept in this repository. DIR holds a checkout per project, named as
below; what is missing is cloned from GitHub at the commit named here. All three have the MIT licence.
"""
import argparse, array, json, math, pathlib, re, struct, subprocess, sys

PROJECTS = {
    "llm.c": ("https://github.com/karpathy/llm.c", "f1e2ace651495b74ae22d45d1723443fd00ecd3a"),
    "SGEMM_CUDA": ("https://github.com/siboehm/SGEMM_CUDA", "60cba6f9b20a198116c76f18de8047f44df8c8b8"),
    "fast.cu": ("https://github.com/pranjalssh/fast.cu", "38eb642e0c081231d6f695978be63604bd7c689b"),
}
# What is found in them, and why it is right to find it.
KNOWN = {
    "layernorm_forward2": ("oob.global", "normalization_kernel has no guard: it needs B*T*C to be a multiple of the block"),
    "softmax_forward_kernel4": ("race.shared", "the maximum in shared[0] is overwritten by warp 0's sum while other warps may still read it: a __syncthreads() is missing"),
    "softmax_forward_kernel7": ("race.global", "lanes beyond the row read its last element (min(C - 1, i)) while its owner divides it; what they read is not used"),
    "matmul8": ("lifetime.dsmem", "no barrier.cluster at the end: consumers arrive on mbarriers of a block that may have exited"),
    "matmul9": ("lifetime.dsmem", "no barrier.cluster at the end: consumers arrive on mbarriers of a block that may have exited"),
    "matmul10": ("race.proxy", "the tile of C is stored by TMA without a fence.proxy.async after the threads' writes to it"),
    "fused_residual_forward2": ("oob.global", "the guard is idx > N where idx >= N is meant: thread N works on a row that is not there"),
}
POLICIES = [("eager", "fair"), ("late", "adversarial"), ("random:1", "random:2")]
# What fast.cu's main file includes, without its host program.
FAST = """#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda/barrier>
#include <cstdio>
#include <cstdlib>
#include <cuda_bf16.h>
#include <cassert>
typedef __nv_bfloat16 bf16;
#define CEIL_DIV(M, N) (((M) + (N)-1) / (N))
#define cudaCheck(err) (void)(err)
""" + "".join(f'#include "examples/matmul/matmul_{i}.cuh"\n' for i in range(1, 11))


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def bf16_bits(x):
    b = struct.unpack("I", struct.pack("f", x))[0]
    return (b + 0x7FFF + (b >> 16 & 1)) >> 16


def of_bf16(b):
    return struct.unpack("f", struct.pack("I", b << 16))[0]


class Rng:
    def __init__(self, seed):
        self.s = seed

    def next(self):
        self.s = (self.s * 6364136223846793005 + 1442695040888963407) % 2**64
        return self.s >> 33

    def grid(self, n, lo=-8, hi=8, den=4):  # exact in bf16
        return [(lo + self.next() % (hi - lo + 1)) / den for _ in range(n)]

    def ints(self, n, below):
        return [self.next() % below for _ in range(n)]


class Case:
    def __init__(self, name, project, file, entry, grid, block, smem=0, arch="sm_80", cluster=None):
        self.name, self.project, self.file, self.arch = name, project, file, arch
        self.launches, self.buffers = [], []
        self.launch(entry, grid, block, smem, cluster)

    def launch(self, entry, grid, block, smem=0, cluster=None):
        three = lambda v: (list(v) if isinstance(v, (tuple, list)) else [v]) + [1] * (3 - (len(v) if isinstance(v, (tuple, list)) else 1))
        self.launches.append({"entry": entry, "grid": three(grid), "block": three(block), "cluster": cluster,
                              "dynamic_smem": smem, "params": []})
        return self

    def buf(self, name, dtype, data, role="in", want=None, tol=(1e-5, 1e-4)):
        self.buffers.append((name, dtype, data, role, want, tol))
        return self

    def args(self, *args):
        for a in args:
            if isinstance(a, str):
                p = {"buf": a, "offset": 0}
            elif isinstance(a, dict):
                p = {"name": "map", "tensormap": a}
            elif a is None:
                p = {"name": "null", "type": "u64", "value": 0}
            elif isinstance(a, tuple):
                p = {"name": "x", "type": a[0], "value": a[1]}
            elif isinstance(a, int):
                p = {"name": "n", "type": "s32", "value": a}
            else:
                p = {"name": "x", "type": "f32", "value": f32(a)}
            self.launches[-1]["params"].append(p)
        return self


def raw(dtype, values):
    if dtype == "bf16":
        return array.array("H", [bf16_bits(v) for v in values]).tobytes()
    return array.array({"f32": "f", "s32": "i", "u16": "H"}[dtype], values).tobytes()


# ------------------------------------------------------------------------------------------------ llm.c
def layernorm(x, w, b, n, c):
    out, mean, rstd = [], [], []
    for r in range(n):
        row = x[r * c:(r + 1) * c]
        m = sum(row) / c
        s = 1 / math.sqrt(sum((v - m) ** 2 for v in row) / c + 1e-5)
        mean.append(m), rstd.append(s)
        out += [(row[i] - m) * s * w[i] + b[i] for i in range(c)]
    return out, mean, rstd


def softmax(x, n, c):
    out = []
    for r in range(n):
        row = x[r * c:(r + 1) * c]
        e = [math.exp(v - max(row)) for v in row]
        out += [v / sum(e) for v in e]
    return out


def llm_c(cases):
    P = "llm.c"
    rng = Rng(1)
    n, c = 12, 160
    x, w, b = rng.grid(n * c), rng.grid(c), rng.grid(c)
    out, mean, rstd = layernorm(x, w, b, n, c)

    def ln(k, grid, block, smem=0):
        case = Case(f"layernorm_forward{k}", P, "dev/cuda/layernorm_forward.cu", f"layernorm_forward_kernel{k}", grid, block, smem)
        for name, data in (("x", x), ("w", w), ("b", b)):
            case.buf(name, "f32", data)
        case.buf("out", "f32", [0] * (n * c), "out", out).buf("mean", "f32", [0] * n, "out", mean)
        case.buf("rstd", "f32", [0] * n, "out", rstd)
        cases.append(case.args("out", "mean", "rstd", "x", "w", "b", n, c))

    ln(1, 1, 32), ln(3, 6, 64), ln(4, 3, 128), ln(5, n, 128), ln(6, 3, (32, 4), 6 * c * 4)
    case = Case("layernorm_forward2", P, "dev/cuda/layernorm_forward.cu", "mean_kernel", n, 64, 256).args("mean", "x", n, c, 64)
    case.launch("rstd_kernel", n, 64, 256).args("rstd", "x", "mean", n, c, 64)
    case.launch("normalization_kernel", 8, 256).args("out", "x", "mean", "rstd", "w", "b", 2, n // 2, c)
    for name, data in (("x", x), ("w", w), ("b", b)):
        case.buf(name, "f32", data)
    case.buf("out", "f32", [0] * (n * c), "out", out).buf("mean", "f32", [0] * n, "out", mean)
    cases.append(case.buf("rstd", "f32", [0] * n, "out", rstd))

    want = softmax(x, n, c)
    for k, grid, block, smem in (("kernel1", 1, 32, 0), ("kernel2", n, 64, 256), ("kernel3", n, 32, 128), ("kernel4", n, 128, 16),
                                 ("online_kernel1", 1, 32, 0), ("online_kernel2", 3, 128, 0), ("kernel7", n, 128, 32),
                                 ("online_kernel8", 3, 128, 0)):
        case = Case(f"softmax_forward_{k}", P, "dev/cuda/softmax_forward.cu", f"softmax_forward_{k}P", grid, block, smem)
        cases.append(case.buf("x", "f32", x).buf("out", "f32", [0] * (n * c), "out", want).args("out", "x", n, c))

    p, g = rng.grid(300), rng.grid(300)
    m, v = rng.grid(300), [abs(t) for t in rng.grid(300)]
    lr, b1, b2, c1, c2, eps, decay = [f32(t) for t in (1e-3, 0.9, 0.999, 0.1, 0.001, 1e-8, 0.01)]
    wm = [b1 * a + (1 - b1) * d for a, d in zip(m, g)]
    wv = [b2 * a + (1 - b2) * d * d for a, d in zip(v, g)]
    wp = [a - lr * (q / c1 / (math.sqrt(max(r, 0) / c2) + eps) + decay * a) for a, q, r in zip(p, wm, wv)]
    for k in (1, 2):
        case = Case(f"adamw{k}", P, "dev/cuda/adamw.cu", f"adamw_kernel{k}", 2, 256)
        case.buf("p", "f32", p, "inout", wp).buf("g", "f32", g).buf("m", "f32", m, "inout", wm).buf("v", "f32", v, "inout", wv)
        cases.append(case.args("p", "g", "m", "v", ("s64", 300), lr, b1, b2, c1, c2, eps, decay))

    B, T, C, V = 2, 6, 32, 10
    d, tokens = rng.grid(B * T * C), rng.ints(B * T, V)
    wte, wpe = [0.0] * (V * C), [0.0] * (T * C)
    for i in range(B * T):
        for j in range(C):
            wte[tokens[i] * C + j] += d[i * C + j]
            wpe[i % T * C + j] += d[i * C + j]
    for k, grid in ((1, 3), (2, 1)):
        case = Case(f"encoder_backward{k}", P, "dev/cuda/encoder_backward.cu", f"encoder_backward_kernel{k}", grid, 128)
        case.buf("wte", "f32", [0] * (V * C), "inout", wte).buf("wpe", "f32", [0] * (T * C), "inout", wpe)
        cases.append(case.buf("d", "f32", d).buf("tokens", "s32", tokens).args("wte", "wpe", "d", "tokens", B, T, C))

    n, vocab, pitch = 8, 200, 256
    logits, dloss, target = rng.grid(n * pitch), rng.grid(n), rng.ints(n, vocab)
    grads, losses = [], []
    for r in range(n):
        prob = softmax(logits[r * pitch:r * pitch + vocab], 1, vocab)
        losses.append(-math.log(prob[target[r]]))
        grads.append([(q - (j == target[r])) * dloss[r] for j, q in enumerate(prob)])
    for k, grid in ((1, 2), (2, n), (3, n), (4, n), (5, n)):
        pads = pitch - vocab
        # Kernel 1 leaves the padding alone (it keeps the a5 bytes): only it is compared less the padding.
        flat = [q for row in grads for q in row + [0.0] * pads]
        case = Case(f"fused_classifier{k}", P, "dev/cuda/classifier_fused.cu", f"fused_classifier_kernel{k}", grid, 128)
        case.buf("dlogits", "f32", [0] * (n * pitch), "inout", flat).buf("losses", "f32", [0] * n, "out", losses)
        case.buf("logits", "f32", logits).buf("dloss", "f32", dloss).buf("target", "s32", target)
        extra = () if k == 1 else (None,)
        cases.append(case.args("dlogits", "losses", *extra, "logits", "dloss", "target", 2, n // 2, vocab, pitch))

    n, c = 12, 256
    one, two, w, b = rng.grid(n * c), rng.grid(n * c), rng.grid(c), rng.grid(c)
    total = [p + q for p, q in zip(one, two)]
    out, mean, rstd = layernorm(total, w, b, n, c)
    for k, entry, grid, block, smem in ((2, "fused_residual_forward2", 1, 32, 0), (3, "fused_residual_forward3", 3, (32, 4), 0),
                                        (4, "fused_residual_forward_kernel4", 3, (32, 4), 0),
                                        (5, "fused_residual_forward_kernel5", 3, (32, 4), 6 * c * 2),
                                        (6, "fused_residual_forward_kernel6", 2, (32, 1, 4), 6 * c * 2 + 1024)):
        case = Case(f"fused_residual_forward{k}", P, "dev/cuda/fused_residual_forward.cu", entry, grid, block, smem)
        case.buf("sum", "bf16", [0] * (n * c), "out", total, (0.02, 0.01)).buf("out", "bf16", [0] * (n * c), "out", out, (0.05, 0.02))
        case.buf("mean", "bf16", [0] * n, "out", mean, (0.01, 0.01)).buf("rstd", "bf16", [0] * n, "out", rstd, (0.01, 0.01))
        for name, data in (("one", one), ("two", two), ("w", w), ("b", b)):
            case.buf(name, "bf16", data)
        cases.append(case.args("sum", "out", "mean", "rstd", "one", "two", "w", "b", n, c))

    values = rng.grid(3000)
    norm = sum(v * v for v in values)
    for k in (1, 2, 3):
        case = Case(f"global_norm{k}", P, "dev/cuda/global_norm.cu", f"norm_kernel{k}", 4, 128)
        cases.append(case.buf("out", "f32", [0], "inout", [norm]).buf("x", "bf16", values).args("out", "x", ("u64", 3000)))
    case = Case("global_norm4", P, "dev/cuda/global_norm.cu", "norm_kernel4", 4, 128).args("out", "x", ("u64", 3000))
    case.launch("global_norm_aggregate_kernel", 1, 1024).args("out", ("u64", 4))
    parts = [sum(v * v for i, v in enumerate(values) if i // 128 % 4 == b) for b in range(4)]  # elements 1 to 3: the blocks' sums
    cases.append(case.buf("out", "f32", [0] * 4, "inout", [norm] + parts[1:]).buf("x", "bf16", values))


# ------------------------------------------------------------------------------------------------ products
def product(a, b, m, n, k, b_rows_are_k):
    if b_rows_are_k:
        cols = [b[j::n] for j in range(n)]
    else:
        cols = [b[j * k:(j + 1) * k] for j in range(n)]
    return [sum(p * q for p, q in zip(a[i * k:(i + 1) * k], col)) for i in range(m) for col in cols]


def sgemm(cases):
    rng = Rng(2)
    made = {}

    def add(entry, m, n, k, grid, block):
        if (m, n, k) not in made:
            a, b, c = rng.grid(m * k), rng.grid(k * n), rng.grid(m * n)
            made[m, n, k] = a, b, c, [0.5 * p + 2 * q for p, q in zip(product(a, b, m, n, k, True), c)]
        a, b, c, want = made[m, n, k]
        case = Case(re.sub(r"I.*", "", entry.lstrip("0123456789")), "SGEMM_CUDA", "src/runner.cu", entry, grid, block)
        case.buf("a", "f32", a).buf("b", "f32", b).buf("c", "f32", c, "inout", want)
        cases.append(case.args(m, n, k, 0.5, "a", "b", 2.0, "c"))

    add("sgemm_naive", 40, 40, 24, (2, 2), (32, 32))
    add("sgemm_global_mem_coalesce", 40, 40, 24, (2, 2), 1024)
    add("sgemm_shared_mem_block", 64, 64, 64, (2, 2), 1024)
    add("sgemm1DBlocktiling", 64, 64, 32, (1, 1), 512)
    for e, block in (("sgemm2DBlocktilingILi128", 256), ("sgemmVectorizeILi128", 256), ("sgemmResolveBankConflictsILi128", 256),
                     ("sgemmResolveBankExtraColILi128", 256), ("sgemmAutotuned", 256), ("sgemmWarptiling", 128),
                     ("runSgemmDoubleBuffering2", 128)):
        add(e, 128, 128, 64, (1, 1), block)
    add("sgemmDoubleBufferingI", 128, 256, 64, (1, 1), 256)


def fast_cu(cases):
    rng = Rng(3)
    m, n, k = 256, 256, 192
    a, b = rng.grid(m * k, -4, 4), rng.grid(n * k, -4, 4)
    want = product(b, a, n, m, k, False)  # C is stored column by column

    def tensor(buf, rows, box_rows, rank, dims=None, swizzle="128B"):
        t = {"buf": buf, "offset": 0, "dtype": "bf16", "swizzle": swizzle, "interleave": "none", "fill": "zero"}
        width = m if buf == "c" else k
        if rank == 2:
            t |= {"rank": 2, "dims": [width, rows], "strides": [2 * width], "box": [64, box_rows]}
        else:
            t |= {"rank": rank, "dims": [64, rows, width // 64] + [1] * (rank - 3), "strides": [2 * width, 128] + [0] * (rank - 3),
                  "box": [64, box_rows, dims or 1] + [1] * (rank - 3)}
        return t | {"elem_strides": [1] * rank}

    stage = 3 * (128 + 256) * 64 * 2
    for i, rank, cluster in ((6, 2, 1), (7, 5, 1), (8, 3, 2), (9, 3, 2), (10, 3, 2)):
        smem = stage + (128 * 256 * 2 + 128 if i == 10 else 0)
        case = Case(f"matmul{i}", "fast.cu", "all.cu", f"matmulKernel{i}", 128, 384, smem, "sm_90a",
                    [cluster, 1, 1] if cluster > 1 else None)
        case.buf("a", "bf16", a).buf("b", "bf16", b).buf("c", "bf16", [0] * (m * n), "out", want, (0.01, 0.01))
        maps = [tensor("a", m, 128, rank), tensor("b", n, 256, rank)]
        if i == 10:
            cases.append(case.args(m, n, k, tensor("c", n, 256, 3, 2, "none"), *maps))
        else:
            cases.append(case.args(m, n, k, "c", *maps))
    a1, b1 = rng.grid(128 * 64), rng.grid(128 * 64)
    case = Case("matmul1", "fast.cu", "all.cu", "sgemmWarptiling", (1, 1), 128, 0, "sm_90a")
    case.buf("a", "bf16", a1).buf("b", "bf16", b1)
    case.buf("c", "bf16", [0] * (128 * 128), "inout", product(a1, b1, 128, 128, 64, True), (0.5, 0.02))
    cases.append(case.args(128, 128, 64, "a", "b", "c"))


# ------------------------------------------------------------------------------------------------ running
def fetch(project, sources):
    at = sources / project
    if not at.exists():
        url, commit = PROJECTS[project]
        subprocess.run(["git", "clone", "-q", url, str(at)], check=True)
        subprocess.run(["git", "-C", str(at), "checkout", "-q", commit], check=True)
    return at


def compiled(case, sources, work):
    ptx = work / f"{case.project}-{case.file.replace('/', '-')}-{case.arch}.ptx"
    if not ptx.exists():
        at = fetch(case.project, sources)
        source = at / case.file
        if case.project == "fast.cu":
            source = work / "fast_all.cu"
            source.write_text(FAST)
            copy = work / "fast"  # tiles are visited in groups of 16 x 8: of 1 x 1 here, so that small problems do
            (copy / "examples/matmul").mkdir(parents=True, exist_ok=True)
            for h in (at / "examples/matmul").glob("*.cuh"):
                text = h.read_text().replace(" 16, 8> schedule(", " 1, 1> schedule(")
                (copy / "examples/matmul" / h.name).write_text(text.replace("16/CLUSTER_M, 8/CLUSTER_N> schedule(", "1, 1> schedule("))
            at = copy
        subprocess.run(["nvcc", "-std=c++17", f"-arch={case.arch}", "-ptx", "-w", "-lineinfo", "-I", str(at), "-I", str(at / "src"),
                        "-I", str((at / case.file).parent), str(source), "-o", str(ptx)], check=True)
    return ptx


def spec_of(case, text, folder):
    entries = re.findall(r"\.entry (\w+)", text)
    launches = []
    for l in case.launches:
        name = next((e for e in entries if re.search(r"\d" + re.escape(l["entry"]), e) or e == l["entry"]), None)
        if not name:
            raise SystemExit(f"{case.name}: no entry like {l['entry']}")
        launches.append(l | {"entry": name})
    buffers = []
    for name, dtype, data, role, want, tol in case.buffers:
        (folder / f"{name}.bin").write_bytes(raw(dtype, data))
        b = {"name": name, "dtype": dtype, "count": len(data), "role": role,
             "init": {"kind": "uninit"} if role == "out" else {"kind": "file", "path": f"{name}.bin"}}
        if want is not None:
            (folder / f"{name}.want.bin").write_bytes(raw(dtype, want))
            b |= {"compare": {"kind": "abs_rel", "abs": tol[0], "rel": tol[1]},
                  "expected": {"kind": "file", "path": f"{name}.want.bin"}}
        buffers.append(b)
    return {"target": case.arch.replace("sm_", "compute_"), "nvcc_flags": [], "buffers": buffers, "launches": launches}


def run(case, cgp, ptx, work):
    folder = work / case.name
    folder.mkdir(parents=True, exist_ok=True)
    spec = folder / "spec.json"
    spec.write_text(json.dumps(spec_of(case, ptx.read_text(), folder)))
    lines, bad, classes = [], False, set()
    for asynchronous, schedule in POLICIES:
        cmd = [cgp, "run", "--spec", str(spec), "--ptx", str(ptx), "--device", f"emu:{case.arch}", "--check", "all", "--async",
               asynchronous, "--schedule", schedule, "--json"]
        r = subprocess.run(cmd, capture_output=True, text=True)
        try:
            out = json.loads(r.stdout)
        except ValueError:
            out = {"error": (r.stderr or r.stdout).strip().splitlines()[:4]}
        found = sorted({f"{f.get('class')} (PTX line {f.get('ptx_line')})" for f in out.get("findings", [])})
        errors = {f["class"] for f in out.get("findings", []) if f["class"] != "race.same_value"}
        classes |= errors
        bad = bad or (r.returncode and not errors) or r.returncode > 1
        note = f"exit {r.returncode}" if r.returncode else "right"
        lines.append(f"{asynchronous}/{schedule}: {note}" + (": " + ", ".join(found) if found else "") +
                     (f" {out['error']}" if "error" in out else ""))
    cls, why = KNOWN.get(case.name, (None, None))
    bad = bad or classes != ({cls} if cls else set())
    print(f"{case.project:11} {case.name:30} {'UNEXPECTED' if bad else f'{cls}, rightly: {why}' if cls else 'clean'}")
    if bad:
        print("    " + "\n    ".join(lines))
    sys.stdout.flush()
    return bad


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--cgp", default="build/dev/tools/cgp/cgp")
    p.add_argument("--sources", type=pathlib.Path, default=pathlib.Path("build/foreign/sources"))
    p.add_argument("--work", type=pathlib.Path, default=pathlib.Path("build/foreign"))
    p.add_argument("-k", default="", help="only cases whose project or name contains this")
    o = p.parse_args()
    o.work.mkdir(parents=True, exist_ok=True)
    cases = []
    llm_c(cases), sgemm(cases), fast_cu(cases)
    cases = [c for c in cases if o.k in c.name or o.k in c.project]
    bad = sum(run(c, o.cgp, compiled(c, o.sources, o.work), o.work) for c in cases)
    print(f"{len(cases)} kernels of {len({c.project for c in cases})} projects, {bad} with wrong results or unexpected findings")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
