#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""clang-tidy's bugprone-use-after-move over every production source of a build.

usage: production.py CLANG_TIDY BUILD_DIR [--only FOLDER...] [--shard I/N] [--jobs N] [--checks LIST] [--all]

Sources and options come from BUILD_DIR/compile_commands.json; unity files are checked as they are compiled. A source
without std::move and std::forward, its repository headers included, cannot break this rule and is left out (--all: it is
checked too, which other --checks need). What was found clean is remembered in BUILD_DIR/tidy by the content of the
source, of the repository's headers that it includes, and of the options: only what changed is checked again.
"""
import argparse
import concurrent.futures
import hashlib
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
NOT_PRODUCTION = re.compile(r"(_test|_test_kit|_bench|_main|_fuzz|fake_driver|fake_cupti)\.(cpp|h)$")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
MOVES = re.compile(r"\bstd::(move|forward)\b")
_texts, _closures = {}, {}


def text(path):
    if path not in _texts:
        _texts[path] = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    return _texts[path]


def closure(path):
    """The file and the files of the repository that it includes, directly or not."""
    if path not in _closures:
        _closures[path] = {path}
        for name in INCLUDE.findall(text(path)):
            for found in (Path(name), ROOT / name, path.parent / name):
                if found.is_absolute() and found.is_file():
                    _closures[path] |= closure(found)
                    break
    return _closures[path]


def sources_of(path):
    """A unity file's sources, or the source itself."""
    if path.name.startswith("unity_"):
        return [Path(p) for p in INCLUDE.findall(text(path)) if p.endswith(".cpp")]
    return [path]


def is_production(path):
    try:
        folder = path.resolve().relative_to(ROOT).parts[0]
    except ValueError:
        return False
    return folder in {"cgp", "tools", "examples"} and path.suffix == ".cpp" and not NOT_PRODUCTION.search(path.name)


def options(entry):
    """What clang needs of the compiler's command line."""
    words, kept = shlex.split(entry["command"])[1:], []
    skip = False
    for n, word in enumerate(words):
        if skip:
            skip = False
        elif word in {"-o", "-c"}:
            skip = word == "-o"
        elif word == "-include" and "cmake_pch" in words[n + 1]:
            skip = True
        elif word != entry["file"] and not word.startswith(("-W", "--param", "-O", "-g", "-fsanitize", "-fuse-ld")):
            kept.append(word)
    return kept


def units(build):
    """(file, options, key), one for each compiled production source or unity of them."""
    seen, out = set(), []
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = Path(entry["file"])
        sources = sources_of(path)
        if path in seen or not sources or not all(is_production(s) for s in sources):
            continue
        seen.add(path)
        out.append((path, sources, options(entry)))
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tidy")
    parser.add_argument("build", type=Path)
    parser.add_argument("--only", nargs="+", default=[], help="folders of the repository: sources elsewhere are left out")
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--checks", default="-*,bugprone-use-after-move")
    parser.add_argument("--all", action="store_true")
    args = parser.parse_args()
    version = subprocess.run([args.tidy, "--version"], capture_output=True, text=True).stdout
    cache = args.build / "tidy"
    cache.mkdir(exist_ok=True)
    every = units(args.build.resolve())
    if not every:
        sys.exit(f"{args.build}/compile_commands.json has no production source")
    if args.only:
        folders = [ROOT / f for f in args.only]
        every = [u for u in every if any(f in s.resolve().parents for f in folders for s in u[1])]
    shard, shards = (int(n) for n in args.shard.split("/"))

    def check(unit):
        path, sources, flags = unit
        digest = hashlib.sha256("\0".join([version, args.checks, *flags]).encode())
        for file in sorted(closure(path)):
            digest.update(f"{file}\0{text(file)}\0".encode())
        mark = cache / digest.hexdigest()
        if mark.exists():
            return "kept", ""
        command = [args.tidy, "--quiet", f"-checks={args.checks}", "--warnings-as-errors=*", "--header-filter=.*", str(path), "--",
                   *flags, "-Wno-everything"]
        run = subprocess.run(command, capture_output=True, text=True, cwd=args.build)
        if run.returncode:
            return "bad", f"{path}\n{run.stdout}{run.stderr}"
        mark.touch()
        return "checked", ""

    # By size, dealt round: the shards take about the same time.
    chosen = [u for u in every if args.all or any(MOVES.search(text(s)) for s in u[1])]
    chosen.sort(key=lambda u: -sum(len(text(s)) for s in u[1]))
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(check, chosen[shard::shards]))
    for _, message in results:
        if message:
            print(message)
    count = {kind: sum(1 for r in results if r[0] == kind) for kind in ("checked", "kept", "bad")}
    files = sum(len(u[1]) for u in every)
    print(f"{files} production sources; units of this shard: {count['checked']} checked, {count['kept']} unchanged since they "
          f"were found clean, {count['bad']} with findings")
    return 1 if count["bad"] else 0


if __name__ == "__main__":
    sys.exit(main())
