#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Homemade words that the field has a name for must not come back in identifiers.

usage: terms.py [--list]     --list: the folders that are clean and not in CLEAN yet

A word is matched against the parts of an identifier: `tail_split` is in `kTailSplit` and in `gemm_tail_split_sm90`, not in
`tails`. Comments and strings are not read. To hold another folder to the rule, add a line to CLEAN.
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# ours: the field's. Words of everyday use (parts, first, sums) are meant where a kernel has them: KERNEL_TERMS.
TERMS = {
    "turned": "swap_ab, or transposed",
    "crooked": "misaligned",
    "tail_split": "stream_k",
    "few_rows": "decode_linear",
    "c_spare": "padded ldc",
    "told_as": "canonicalized",
    "reordered": "canonicalized",
    "mailbox": "work broadcast",
    "letter": "work tile",
    "shaped": "dynamic tile",
    "falsify": "self_check",
}
KERNEL_TERMS = {
    "parts": "split_k slices",
    "single": "non_persistent",
    "factors": "scales",
    "sums": "accumulators",
    "pieces": "epilogue subtiles",
    "planes": "split_bf16 terms",
    "beside": "cluster_n",
    "below": "cluster_m",
    "mine": "warpgroup tile",
    "resident": "min_blocks_per_sm",
    "stay": "persistent",
    "early": "programmatic dependent launch (PDL)",
    "turn": "rotate, pingpong order, or iteration",
}
# Folders held to TERMS, with all below them; those under cgp/kernels to KERNEL_TERMS too.
CLEAN = [
    "cgp/base",
    "cgp/capi",
    "cgp/cpu",
    "cgp/cuda",
    "cgp/dsl",
    "cgp/emu",
    "cgp/explain",
    "cgp/kernels/activation",
    "cgp/kernels/argmax",
    "cgp/kernels/attention",
    "cgp/kernels/bias_gradient",
    "cgp/kernels/bench",
    "cgp/kernels/catalog",
    "cgp/kernels/common",
    "cgp/kernels/cross_entropy",
    "cgp/kernels/cumsum",
    "cgp/kernels/decode",
    "cgp/kernels/decode_linear",
    "cgp/kernels/dropout",
    "cgp/kernels/embedding",
    "cgp/kernels/gemm",
    "cgp/kernels/gemm_ladder",
    "cgp/kernels/grouped_gemm",
    "cgp/kernels/kv_cache",
    "cgp/kernels/norm",
    "cgp/kernels/pack",
    "cgp/kernels/quantized_matmul",
    "cgp/kernels/reduce",
    "cgp/kernels/rope",
    "cgp/kernels/row",
    "cgp/kernels/schedule",
    "cgp/kernels/softmax",
    "cgp/kernels/topk",
    "cgp/kernels/transpose",
    "cgp/kernels/vecadd",
    "cgp/launch",
    "cgp/model",
    "cgp/profile",
    "cgp/ptx",
    "cgp/quant",
    "cgp/runtime",
    "cgp/selfcheck",
    "cgp/spec",
    "cgp/testing",
    "cgp/tune",
    "examples",
    "python",
    "scripts",
    "tests",
    "tools",
]
SOURCES = {".h", ".cpp", ".c", ".def", ".py"}
NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.S)
PYTHON_NOISE = re.compile(r'#[^\n]*|""".*?"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def spelled(identifier):
    """kTailSplit -> _k_tail_split_"""
    return "_" + "_".join(part.lower() for part in PART.findall(identifier)) + "_"


def words_of(folder):
    kernels = folder == "cgp/kernels" or folder.startswith("cgp/kernels/")
    return TERMS | KERNEL_TERMS if kernels else TERMS


def violations(path, words):
    """(line, identifier, word) of each old word in a file's identifiers and in its name."""
    text = path.read_text(encoding="utf-8", errors="replace")
    noise = PYTHON_NOISE if path.suffix == ".py" else NOISE
    text = noise.sub(lambda m: "\n" * m.group(0).count("\n"), text)
    found = [(1, path.name, w) for w in words if f"_{w}_" in spelled(path.stem)]
    for number, line in enumerate(text.split("\n"), 1):
        for identifier in re.findall(r"[A-Za-z_]\w*", line):
            found += [(number, identifier, w) for w in words if f"_{w}_" in spelled(identifier)]
    return found


def main():
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True,
                            check=True).stdout.split("\n")
    files = [f for f in listed if Path(f).suffix in SOURCES and "testdata" not in f and (ROOT / f).exists() and
             f != "tests/terms.py"]
    if sys.argv[1:] == ["--list"]:
        folders = sorted({str(p) for f in files for p in Path(f).parents} - {"."})
        for folder in folders:
            if not any(f.startswith(folder + "/") and violations(ROOT / f, words_of(folder)) for f in files):
                print(folder)
        return 0
    problems = 0
    if not all(f"_{w}_" in spelled(i) for i, w in (("kTailSplit", "tail_split"), ("is_turned", "turned"), ("Mailbox", "mailbox"))):
        sys.exit("the rule does not recognise its own words")
    for folder in CLEAN:
        inside = [f for f in files if f.startswith(folder + "/")]
        if not inside:
            problems += 1
            print(f"{folder}: in CLEAN, but has no sources")
        for f in inside:
            for line, identifier, word in violations(ROOT / f, words_of(folder)):
                problems += 1
                print(f"{f}:{line}: {identifier}: '{word}' is {words_of(folder)[word]}")
    print(f"{len(CLEAN)} folders, {problems} violations")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
