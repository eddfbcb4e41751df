#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Code blocks of the pages that say where they are from must be true.

usage: snippets.py BUILD_DIR
    <!-- from: FILE -->         the block stands in that file, which is compiled and run elsewhere
    <!-- output of: EXAMPLE --> the block is part of what BUILD_DIR/examples/EXAMPLE prints on the emulator
    <!-- run: sh|python -->     the block is run: with cgp in PATH, or with the Python package of the build
"""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BLOCK = re.compile(r"<!-- (from|output of|run): (\S+) -->\n+```\w*\n(.*?)```", re.S)


def python_with_numpy():
    for python in (sys.executable, "/usr/bin/python3"):
        if subprocess.run([python, "-c", "import numpy"], capture_output=True).returncode == 0:
            return python
    sys.exit("no Python with NumPy: scripts/setup.sh installs it")


def execute(command, build):
    """Runs in a folder of its own that has the tree's contracts and examples."""
    environment = dict(os.environ, PATH=f"{build}/tools/cgp:{os.environ['PATH']}", PYTHONPATH=f"{build}/python/stage")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("contracts", "examples"):
            (Path(folder) / name).symlink_to(ROOT / name)
        return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)


def wrong(kind, what, block, build):
    """Why a block is not true; empty: it is."""
    if kind == "from":
        return "" if block in (ROOT / what).read_text(encoding="utf-8") else f"does not stand in {what}"
    if kind == "output of":
        run = execute([build / "examples" / what, "emu:sm_90a"], build)
        return "" if block in run.stdout else f"is not what {what} prints:\n{run.stdout}"
    command = ["bash", "-euo", "pipefail", "-c", block] if what == "sh" else [python_with_numpy(), "-c", block]
    run = execute(command, build)
    return "" if run.returncode == 0 else f"exits with {run.returncode}:\n{run.stdout}{run.stderr}"


def main():
    build = Path(sys.argv[1]).resolve()
    problems = count = 0
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "python" / "README.md"]:
        text = page.read_text(encoding="utf-8")
        for m in BLOCK.finditer(text):
            count += 1
            why = wrong(m.group(1), m.group(2), m.group(3), build)
            if why:
                problems += 1
                print(f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, m.start()) + 1}: the block {why}")
    print(f"{count} blocks, {problems} problems")
    return 1 if problems or not count else 0


if __name__ == "__main__":
    sys.exit(main())
