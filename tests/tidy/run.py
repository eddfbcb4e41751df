#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""clang-tidy's use-after-move check must report every `// expect: REGEX` of the files here, and nothing else.

usage: run.py CLANG_TIDY SOURCE_DIR
A file without an expect line must be clean.
"""
import pathlib
import re
import subprocess
import sys


def main():
    tidy, root = sys.argv[1], pathlib.Path(sys.argv[2])
    failures = []
    files = sorted(pathlib.Path(__file__).parent.glob("*.cpp"))
    for file in files:
        run = subprocess.run(
            [tidy, "-checks=-*,bugprone-use-after-move", str(file), "--", "-std=c++20", f"-I{root}"],
            capture_output=True, text=True)
        said = [line for line in run.stdout.splitlines() if "bugprone-use-after-move" in line]
        expect = re.match(r"// expect: (.*)", file.read_text())
        broken = [l for l in run.stdout.splitlines() if "error:" in l and l not in said]
        if broken:
            failures.append(f"{file.name} does not compile:\n{broken}")
        elif expect and not any(re.search(expect.group(1), line) for line in said):
            failures.append(f"{file.name}: nothing matches /{expect.group(1)}/ in {said}")
        elif not expect and said:
            failures.append(f"{file.name} must be clean: {said}")
    for failure in failures:
        print("FAIL", failure)
    print(f"{len(files) - len(failures)} of {len(files)} as expected")
    return 1 if failures else 0


sys.exit(main())
