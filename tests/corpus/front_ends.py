# SPDX-License-Identifier: Apache-2.0
"""PTX from src/*.py, without a GPU. Needs the packages triton, numba-cuda and numba."""
import importlib
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "src"))
TRITON = {"f16": "fp16", "f32": "fp32", "f64": "fp64", "bf16": "bf16", "s8": "i8", "u8": "u8", "s32": "i32", "u32": "u32", "s64": "i64"}


def triton_ptx(module, p, ptxas):
    """p: kernel, sm, types and multiples of 16 of its arguments, constants, warps, stages. Gives PTX, bytes of shared memory."""
    for variable in ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"):  # Triton writes the PTX version of this one
        os.environ[variable] = ptxas
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    f = getattr(importlib.import_module(module), p["kernel"])
    names = [n for n in f.arg_names if n not in p["constants"]]
    assert len(names) == len(p["types"]), (names, p["types"])
    kinds = {n: ("*" if t[0] == "*" else "") + TRITON[t.lstrip("*")] for n, t in zip(names, p["types"])}
    attrs = {(f.arg_names.index(n),): [["tt.divisibility", 16]] for n, m in zip(names, p["multiples"]) if m}
    source = ASTSource(f, {n: kinds.get(n, "constexpr") for n in f.arg_names}, p["constants"], attrs)
    made = triton.compile(source, target=GPUTarget("cuda", p["sm"], 32), options={"num_warps": p["warps"], "num_stages": p["stages"]})
    assert made.metadata.num_warps == p["warps"], "warp specialisation adds warps"
    return made.asm["ptx"], made.metadata.shared


def numba_ptx(module, p, _):
    import numba
    from numba import cuda
    f = getattr(importlib.import_module(module), p["kernel"])(p["slip"])
    scalars = {"s32": numba.int32, "f32": numba.float32, "u8": numba.uint8, "s64": numba.int64, "f64": numba.float64}
    types = []
    for t, rank in p["types"]:
        s = scalars[t]
        types.append(numba.types.Array(s, rank, "C") if rank else s)
    text, _ = cuda.compile_ptx(f, numba.void(*types), cc=divmod(p["sm"], 10), device=False, lineinfo=True)
    return text, 0


def ptx(src, p, ptxas):
    """The text, with the entry's and its parameters' short names and without debug sections; bytes of shared memory."""
    text, shared = (triton_ptx if "constants" in p else numba_ptx)(src[:-3], p, ptxas)
    text = re.sub(r"\.section\s+\.debug_\w+\s*\{.*?\n\s*\}", "", text, flags=re.S)
    text = re.sub(r"(?m)^(\s*\.loc\s+\d+ \d+ \d+),[^\n/]*", r"\1", text)
    old = re.search(r"\.entry (\w+)", text)[1]
    text = re.sub(r"[^\n]*NumbaEnv[^\n]*;\n", "", text)
    text = re.sub(r"\b%s(?=\b|_param)" % old, p["entry"], text)
    for n, long in enumerate(sorted(set(re.findall(r"\b_ZZ?N\w{20,}", text)))):
        text = re.sub(r"\b%s\b" % long, "symbol_%d" % n, text)
    return text, shared
