#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every file here must be refused by the compiler, with the message its first line names.

usage: run.py COMPILER SOURCE_DIR [name ...]
A file starts with `// expect: REGEX`; the regex must match the compiler's output. good*.cpp must compile: each
holds accepted twins of the refusals, so that a broken header cannot make every test pass. So must the
code blocks of docs/dsl.md and docs/tensor.md.
"""
import concurrent.futures
import pathlib
import re
import subprocess
import sys
import tempfile


def main():
    compiler, root = sys.argv[1], pathlib.Path(sys.argv[2])
    here = pathlib.Path(__file__).parent
    files = sorted(here.glob("*.cpp"))
    if len(sys.argv) > 3:
        files = [f for f in files if f.stem in sys.argv[3:]]
    base = [compiler, "-std=c++20", f"-I{root}", "-fsyntax-only"]
    gnu = "clang" not in compiler
    with tempfile.TemporaryDirectory() as scratch:
        if gnu:  # one precompiled header for all of them
            header = pathlib.Path(scratch, "all.h")
            every = [h for h in sorted((root / "cgp/dsl").rglob("*.h")) if not h.stem.endswith(("_test", "_impl"))]
            header.write_text("".join(f'#include "{h.relative_to(root)}"\n' for h in every))
            subprocess.run([compiler, "-std=c++20", f"-I{root}", "-x", "c++-header", str(header)], check=True)
            base += ["-include", str(header)]

        def check(file):
            expect = re.match(r"// expect: (.*)", file.read_text())
            run = subprocess.run(base + [str(file)], capture_output=True, text=True)
            if file.stem.startswith("good"):
                return None if run.returncode == 0 else f"{file.name} must compile:\n{run.stderr}"
            if not expect:
                return f"{file.name}: the first line must be `// expect: REGEX`"
            if run.returncode == 0:
                return f"{file.name}: the compiler accepted it"
            if not re.search(expect.group(1), run.stderr):
                return f"{file.name}: refused with another message than /{expect.group(1)}/:\n{run.stderr[:3000]}"
            return None

        def check_block(block):  # the code of the language's pages compiles
            parts = ("kernel", "pipeline/async", "mma/epilogue", "mma/mma", "mma/wgmma", "mma/umma",
                     "pipeline/cluster_launch_control")
            source = "".join(f'#include "cgp/dsl/{h}.h"\n' for h in parts) + "using namespace cgp::dsl;\n" + block
            run = subprocess.run(base + ["-x", "c++", "-"], input=source, capture_output=True, text=True)
            return None if run.returncode == 0 else f"docs: {block.splitlines()[0]}:\n{run.stderr[:3000]}"

        pages = [(root / "docs" / name).read_text() for name in ("dsl.md", "tensor.md")]
        blocks = re.findall(r"```cpp\n(.*?)```", "".join(pages), re.S)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            failures = [f for f in [*pool.map(check, files), *pool.map(check_block, blocks)] if f]
    for failure in failures:
        print("FAIL", failure)
    print(f"{len(files) - len(failures)} of {len(files)} refused as they should be")
    return 1 if failures else 0


sys.exit(main())
