#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes data/NAME.{ptx,json,*.bin} from src/*.cu and the case files. Needs nvcc 13 and numpy; run by hand.

  make_corpus.py [-k SUBSTRING] [--no-compile] [--nvcc PATH]
"""
import argparse
import collections
import functools
import glob
import importlib
import os
import re
import subprocess
import sys
import tempfile

import corpus_lib as lib
import front_ends

HERE = os.path.dirname(os.path.abspath(__file__))
SRC, DATA = os.path.join(HERE, "src"), os.path.join(HERE, "data")


def scrub_debug(text):
    """Debug sections hold strings as .b8 lines; absolute paths in them become x's of the same length."""
    def section(m):
        lines = m.group(0).split("\n")
        where = [(i, int(l.split()[1])) for i, l in enumerate(lines) if re.fullmatch(r"\.b8 \d+", l.strip())]
        data = bytes(b for _, b in where)
        def hide(p):
            return b"x" * len(p.group(0))
        data = re.sub(rb"(?<![\w.])/(?:[\w.+-]+/)+[\w.+-]*", hide, data)
        for (i, _), b in zip(where, data):
            lines[i] = ".b8 %d" % b
        return "\n".join(lines)
    return re.sub(r"\.section\s+\.debug_\w+\s*\{.*?\n\s*\}", section, text, flags=re.S)


def drop_unused_tables(text):
    """Tables of headers (curand's are 1 MB) that no entry left refers to."""
    def keep(m):
        return m.group(0) if len(m.group(0)) < 4096 or text.count(m.group(1)) > 1 else ""
    return re.sub(r"(?m)^\.(?:visible |weak )?(?:global|const) [^\n=]*?([\w$]+)\[\d*\] = \{[^}]*\};\n", keep, text)


@functools.lru_cache(None)
def compiled(nvcc, target, flags, src):
    with tempfile.TemporaryDirectory() as tmp:
        out = os.path.join(tmp, "k.ptx")
        subprocess.run([nvcc, "-arch=" + target, "-ptx", "-o", out, *flags, src], cwd=SRC, check=True)
        return open(out).read()


def compile_case(c, nvcc):
    ptx = os.path.join(DATA, c.name + ".ptx")
    if c.python:
        text, shared = front_ends.ptx(c.src, c.python, os.path.join(os.path.dirname(nvcc), "ptxas"))
        for launch in c.launches:
            launch["dynamic_smem"] = shared if launch["dynamic_smem"] is None else launch["dynamic_smem"]
    else:
        text = compiled(nvcc, c.target, tuple(c.flags), c.src)
    text = re.sub(r'(\.file\s+\d+\s+)"[^"]*/([^/"]*)"', r'\1"\2"', text)
    text = re.sub(r"\t(//[^\n]*)?\n", "\n", text)
    text = re.sub(r"^//.*\n", "", text, flags=re.M)
    text = re.sub(r"[ \t]+$", "", text, flags=re.M)
    text = re.sub(r"\n\n+", "\n\n", text).lstrip("\n")
    text = scrub_debug(text)
    if c.only:
        parts = re.split(r"(?m)^(?=\.visible \.entry )", text)
        text = parts[0] + "".join(p for p in parts[1:] if re.match(r"\.visible \.entry %s\(" % c.only, p))
        text = drop_unused_tables(text)
    assert not re.search(r"/(work|tmp|usr|root)/", text), c.name
    open(ptx, "w").write(text)


def registers(c, ptxas):
    ptx = os.path.join(DATA, c.name + ".ptx")
    arch = c.target.replace("compute", "sm")
    r = subprocess.run([ptxas, "-arch=" + arch, "-v", ptx, "-o", "/dev/null"] +
                       (["-g"] if "-G" in c.flags else []), capture_output=True, text=True)
    if r.returncode:
        raise SystemExit("%s: %s" % (c.name, r.stderr))
    found, entry = {}, None
    for line in r.stderr.split("\n"):
        m = re.search(r"Compiling entry function '(\w+)'", line)
        entry = m.group(1) if m else entry
        m = re.search(r"Used (\d+) registers", line)
        if m and entry:
            found.setdefault(entry, int(m.group(1)))
    return found


def opcodes(c):
    """Static count of every full opcode, from the text alone."""
    text = open(os.path.join(DATA, c.name + ".ptx")).read()
    text = re.sub(r"\.section\s+\.debug_\w+\s*\{.*?\n\s*\}", "", text, flags=re.S)
    text = re.sub(r"//[^\n]*", "", re.sub(r"/\*.*?\*/", "", text, flags=re.S))
    text = re.sub(r'"[^"\n]*"', '""', text)
    text = re.sub(r"(?m)^[ \t]*\.(loc|file|pragma)\b[^\n]*$", "", text)
    count = collections.Counter()
    for statement in re.split(r"[;{}]", text):
        line = re.sub(r"^([$\w]+\s*:\s*)+", "", " ".join(statement.split()))
        line = re.sub(r"^@!?%?\w+\s+", "", line)
        m = re.match(r"([a-z][a-z0-9_]*(?:[.:]+[A-Za-z0-9_]+)*)(\s|$)", line)
        if m:
            count[m.group(1)] += 1
    return dict(sorted(count.items()))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("-k", default="", help="cases whose names contain this, or NAME,NAME,...")
    ap.add_argument("--no-compile", action="store_true")
    ap.add_argument("--nvcc", default="/usr/local/cuda/bin/nvcc")
    a = ap.parse_args()
    sys.path.insert(0, HERE)
    for f in sorted(glob.glob(os.path.join(HERE, "cases_*.py"))):
        importlib.import_module(os.path.basename(f)[:-3])
    bad = []
    for name, build in lib.CASES.items():
        if name not in a.k.split(",") if "," in a.k else a.k not in name:
            continue
        try:
            c = build()
            assert c.name == name
            for old in glob.glob(os.path.join(DATA, name + ".*.bin")):
                os.remove(old)
            if c.python or not a.no_compile or not os.path.exists(os.path.join(DATA, name + ".ptx")):
                compile_case(c, a.nvcc)
            count = opcodes(c)
            for op in c.expect_error["ops"] if c.expect_error else []:
                if not any(k.startswith(op) for k in count):
                    c.expect_error["ops"] = [o for o in c.expect_error["ops"] if o != op]
            used = registers(c, os.path.join(os.path.dirname(a.nvcc), "ptxas"))  # fails where ptxas does
            extra = {"opcodes": count}
            if not c.python:  # the estimate of registers is fitted to nvcc's code
                extra = {"ptxas_registers": used, **extra}
            open(os.path.join(DATA, name + ".json"), "w").write(lib.dump(lib.to_json(c, DATA, extra)))
            print("ok", name, flush=True)
        except Exception as e:
            bad.append(name)
            print("FAILED", name, type(e).__name__, e, flush=True)
    keep = set(lib.CASES)
    for f in glob.glob(os.path.join(DATA, "*")):
        if os.path.basename(f).split(".")[0] not in keep:
            os.remove(f)
    print("%d cases, %d failed: %s" % (len(lib.CASES), len(bad), bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
