#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rules of the tree that no compiler checks: who may include whom, budgets, licence lines, unfinished work.

Run by CTest as `repo_rules`. Prints each violation as file:line: rule, and fails if there is one.
"""
import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# docs/architecture.md, "Layers": an #include may only point down, along these edges.
MAY_USE = {
    "base": set(),
    "ptx": {"base"},
    "shader": {"ptx", "base"},
    "cuda": {"base"},
    "vulkan": {"base"},
    "wgpu": {"base"},
    "quant": {"base"},
    "cpu": {"quant", "base"},
    "model": {"base"},
    "emu": {"ptx", "base"},
    "dsl": {"ptx", "base"},
    "runtime": {"ptx", "emu", "cuda", "shader", "vulkan", "wgpu", "base"},
    "launch": {"dsl", "runtime", "ptx", "base"},
    "kernels": {"launch", "dsl", "runtime", "ptx", "quant", "base"},
    "engine": {"kernels", "launch", "runtime", "cpu", "model", "quant", "base"},
    "train": {"kernels", "runtime", "model", "base"},
    "serve": {"engine", "model", "base"},
    # What benchmarks of the core measure with.
    "profile/measure": {"runtime", "ptx", "emu", "cuda", "base"},
    "profile/counters": {"profile/measure", "runtime", "ptx", "emu", "cuda", "base"},
    "profile/cupti": {"profile/measure", "runtime", "ptx", "emu", "cuda", "base"},
    "profile/peers": {"profile/measure", "runtime", "ptx", "emu", "cuda", "base"},
    "spec": {"runtime", "ptx", "emu", "cuda", "base"},
    "profile": {"spec", "cpu", "quant", "runtime", "ptx", "emu", "cuda", "base"},
    "explain": {"profile", "spec", "runtime", "ptx", "emu", "base"},
    # The only part of the profiler that knows kernels.
    "profile/kernel": {"explain", "profile", "tune", "kernels", "dsl", "spec", "cpu", "runtime", "ptx", "emu", "base"},
    # Kernels and models as pages for browsers.
    "web": {"engine", "model", "kernels", "runtime", "shader", "base"},
    "tune": {"kernels", "profile/measure", "profile/counters", "profile/peers", "runtime", "ptx", "base", "spec"},
    "selfcheck": {"kernels", "launch", "profile", "spec", "cpu", "quant", "runtime", "ptx", "emu", "cuda", "base"},
    "capi": {"engine", "kernels", "runtime", "quant", "model", "ptx", "base"},
    "testing": {"kernels", "launch", "dsl", "runtime", "emu", "cuda", "ptx", "base"},
}
TEST_MAY_ALSO_USE = {"dsl": {"emu"}, "emu": {"testing"}, "kernels": {"testing", "profile", "emu"}, "runtime": {"testing", "kernels"},
                     "cpu": {"profile"}, "shader": {"kernels"}}
NAMED_ALONE = {"profile/kernel"}  # who may use "profile" may not yet use these
MAX_FILES = 45  # of a folder's own under cgp/ and tools/
MAX_LINES = 800
# Kernels speak the typed language: record:: is the inside of the DSL. Folders for which that holds already.
TYPED_KERNELS = ("cgp/kernels/",)
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|#if 0\b")
MACHINE_PATH = re.compile(r"(?<![\w.])/(work|farm|root|tmp/bash_jobs)/")


def tracked():
    out = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if out.returncode:
        sys.exit(f"git ls-files failed: {out.stderr}")
    return [ROOT / f for f in out.stdout.split("\n") if f and (ROOT / f).exists()]


def layer_of(path):
    """The entry of MAY_USE that a file belongs to: its longest one; None outside cgp/."""
    parts = path.split("/")
    if parts[0] != "cgp" or len(parts) < 3:
        return "tools" if parts[0] == "tools" else None
    return "/".join(parts[1:3]) if "/".join(parts[1:3]) in MAY_USE else parts[1]


def python_imports(path):
    """Modules of the package beside it that a module imports, at its top or in a function."""
    out = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            folder = path.parents[node.level - 1] / (node.module or "").replace(".", "/")
            names = [folder.with_suffix(".py")] if node.module else [folder / f"{a.name}.py" for a in node.names]
            names += [folder / f"{a.name}.py" for a in node.names]
            out += [str(n.relative_to(ROOT)) for n in names if n.exists()]
    return out


def include_circles(files):
    """Files that include, and Python modules that import, one another in a circle."""
    known = {str(f.relative_to(ROOT)) for f in files}
    uses = {str(f.relative_to(ROOT)): python_imports(f) for f in files if f.is_relative_to(ROOT / "python/cgp") and f.suffix == ".py"}
    for f in files:
        if f.suffix in {".h", ".cpp", ".def"}:
            found = re.findall(r'^\s*#\s*include\s+"([^"]+)"', f.read_text(encoding="utf-8"), re.M)
            uses[str(f.relative_to(ROOT))] = [u for u in found if u in known]
    done, circles = set(), []

    def visit(f, trail):
        if f in trail:
            circles.append(trail[trail.index(f):] + [f])
        elif f not in done:
            for u in uses.get(f, []):
                visit(u, trail + [f])
            done.add(f)

    for f in uses:
        visit(f, [])
    return circles


def documented_layers():
    """MAY_USE as docs/architecture.md has it."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page[page.index("## Layers"):page.index("## Folders")]
    return {name: set(used.replace("–", "").split()) for name, used in re.findall(r"^\| `([\w/]+)` \| ([^|;]*) \|", table, re.M)}


def main():
    problems = []

    def say(path, line, rule):
        problems.append(f"{path.relative_to(ROOT)}:{line}: {rule}")

    documented = documented_layers()
    for name in sorted(MAY_USE.keys() | documented.keys()):
        if MAY_USE.get(name) != documented.get(name):
            say(ROOT / "docs" / "architecture.md", 1, f"layers: {name} may use {sorted(MAY_USE.get(name, []))}; the table says otherwise")
    files = tracked()
    for circle in include_circles(files):
        say(ROOT / circle[0], 1, "a circle of includes: " + " -> ".join(circle))
    folders = Counter(f.parent for f in files if f.relative_to(ROOT).parts[0] in {"cgp", "tools"})
    for folder, count in folders.items():
        if count > MAX_FILES:
            say(folder, 0, f"{count} files of its own; the limit is {MAX_FILES}: give its parts folders of their own")
    for path in files:
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
        lib = layer_of(str(rel))
        for n, line in enumerate(lines, 1):
            if rel.name != "repo_rules.py" and UNFINISHED.search(line):
                say(path, n, "unfinished work: do it, or write it down where work is tracked")
            if rel.name != "repo_rules.py" and MACHINE_PATH.search(line):
                say(path, n, "a path of one machine")
            if str(rel).startswith(TYPED_KERNELS) and "record::" in line:
                say(path, n, "record:: is the inside of the DSL: use, or add, a typed function of cgp/dsl")
            m = re.match(r'\s*#\s*include\s+"((cgp|tools)/[\w/.]+)"', line)
            if m and lib and lib != "tools":  # the command may use everything, and nothing may use it
                used = layer_of(m.group(1))
                allowed = MAY_USE.get(lib, set()) | {lib}
                if lib.startswith("profile"):  # its folders see one another as far as this table lets them
                    allowed |= {"profile"} if lib == "profile" else set()
                if is_test:
                    allowed |= TEST_MAY_ALSO_USE.get(lib.split("/")[0], set())
                if used not in allowed and (used in NAMED_ALONE or used.split("/")[0] not in allowed):
                    say(path, n, f"layer: {lib} may not include {used} (it may use {', '.join(sorted(allowed))})")
                if m.group(1).endswith("_impl.h") and used.split("/")[0] != lib.split("/")[0]:
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
