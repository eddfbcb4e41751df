#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rules of the tree that no compiler checks: who may include whom, budgets, licence lines, unfinished work.

Run by CTest as `repo_rules`. Prints each violation as file:line: rule, and fails if there is one.
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# docs/architecture.md, "Layers": an #include may only point down, along these edges.
MAY_USE = {
    "base": set(),
    "ptx": {"base"},
    "cuda": {"base"},
    "simd": {"base"},
    "emu": {"ptx", "base"},
    "dsl": {"ptx", "base"},
    "runtime": {"ptx", "emu", "cuda", "base"},
    "kernels": {"dsl", "runtime", "ptx", "base"},
    "prof": {"runtime", "ptx", "emu", "cuda", "base"},
    "capi": {"kernels", "runtime", "base"},
    "testing": {"kernels", "dsl", "runtime", "emu", "cuda", "ptx", "base"},
}
TEST_MAY_ALSO_USE = {"dsl": {"emu"}, "emu": {"testing"}, "kernels": {"testing", "prof", "emu"}, "runtime": {"testing"},
                      "simd": {"prof"}}
MAX_LINES = 800
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|#if 0\b")
MACHINE_PATH = re.compile(r"(?<![\w.])/(work|farm|root|tmp/bash_jobs)/")


def tracked():
    out = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if out.returncode:
        sys.exit(f"git ls-files failed: {out.stderr}")
    return [ROOT / f for f in out.stdout.split("\n") if f and (ROOT / f).exists()]


def main():
    problems = []

    def say(path, line, rule):
        problems.append(f"{path.relative_to(ROOT)}:{line}: {rule}")

    for path in tracked():
        rel = path.relative_to(ROOT)
        if path.suffix not in {".h", ".cpp", ".def", ".py", ".sh", ".cmake", ".cu"} and rel.name not in {
                "CMakeLists.txt", "Makefile"} or "testdata" in rel.parts:
            continue
        text = path.read_text(encoding="utf-8")
        lines = text.split("\n")
        if "SPDX-License-Identifier: Apache-2.0" not in "\n".join(lines[:4]):
            say(path, 1, "the SPDX line is missing")
        if path.suffix in {".h", ".cpp"} and len(lines) > MAX_LINES:
            say(path, len(lines), f"{len(lines)} lines; the limit is {MAX_LINES}: split it by idea")
        is_test = rel.stem.endswith(("_test", "_test_kit", "_bench"))
        lib = rel.parts[1] if rel.parts[0] == "cgp" and len(rel.parts) > 2 else None
        for n, line in enumerate(lines, 1):
            if rel.name != "repo_rules.py" and UNFINISHED.search(line):
                say(path, n, "unfinished work: do it, or write it down where work is tracked")
            if rel.name != "repo_rules.py" and MACHINE_PATH.search(line):
                say(path, n, "a path of one machine")
            m = re.match(r'\s*#\s*include\s+"cgp/(\w+)/([\w/.]+)"', line)
            if m and lib:
                used = m.group(1)
                allowed = MAY_USE.get(lib, set()) | {lib}
                if is_test:
                    allowed |= TEST_MAY_ALSO_USE.get(lib, set())
                if used not in allowed:
                    say(path, n, f"layer: {lib} may not include {used} (it may use {', '.join(sorted(allowed))})")
                if m.group(2).endswith("_impl.h") and used != lib:
                    say(path, n, "a private header of another library")
            # Parts of kernels may speak the DSL in a namespace of their own, as kernels do.
            own = line == "using namespace dsl;" and re.search(r"^namespace (cgp::kernels::)?(?!cgp)\w+ \{$",
                                                               "\n".join(lines[:n]), re.M)
            if lib and path.suffix == ".h" and re.match(r"using namespace\b", line) and not own:
                say(path, n, "using namespace in a header")
    for p in problems:
        print(p)
    print(f"{len(problems)} violations")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
