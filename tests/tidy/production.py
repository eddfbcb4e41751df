#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""clang-tidy's bugprone-use-after-move over every production source of a build.

usage: production.py CLANG_TIDY BUILD_DIR [--shard I/N] [--jobs N] [--checks LIST] [--all]

Sources and options come from BUILD_DIR/compile_commands.json. A source without std::move and std::forward cannot break this
rule and is left out (--all: it is checked too, which other --checks need). The sources of a folder are checked together, as
one file that includes them, so that their headers are parsed once; where that does not compile, each is checked alone. What
was found clean is remembered in BUILD_DIR/tidy by the content of the sources, of the repository's headers that they include,
and of the options: only what changed is checked again.
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
TOGETHER = 14
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


def units(build, wanted):
    """(sources, options): production sources of one folder of cgp/, tools/ or examples/ that are compiled alike, at most
    TOGETHER; and how many production sources there are."""
    groups, seen = {}, set()
    for entry in json.loads((build / "compile_commands.json").read_text()):
        flags = tuple(options(entry))
        for source in sources_of(Path(entry["file"])):
            if source not in seen and is_production(source):
                folder = source.resolve().relative_to(ROOT).parts[:2]
                groups.setdefault((folder, flags), []).append(source)
            seen.add(source)
    out, count = [], 0
    for (_, flags), sources in sorted(groups.items()):
        count += len(sources)
        chosen = sorted(s for s in sources if wanted(s))
        number = -(-len(chosen) // TOGETHER)
        out += [(chosen[i::number], list(flags)) for i in range(number)]
    return out, count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tidy")
    parser.add_argument("build", type=Path)
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--checks", default="-*,bugprone-use-after-move")
    parser.add_argument("--all", action="store_true")
    args = parser.parse_args()
    version = subprocess.run([args.tidy, "--version"], capture_output=True, text=True).stdout
    cache = args.build / "tidy"
    cache.mkdir(exist_ok=True)
    every, files = units(args.build.resolve(), lambda source: args.all or MOVES.search(text(source)))
    if not files:
        sys.exit(f"{args.build}/compile_commands.json has no production source")
    shard, shards = (int(n) for n in args.shard.split("/"))

    def tidy(path, flags):
        command = [args.tidy, "--quiet", f"-checks={args.checks}", "--warnings-as-errors=*", "--header-filter=.*", str(path), "--",
                   *flags, "-Wno-everything"]
        return subprocess.run(command, capture_output=True, text=True, cwd=args.build)

    def check(unit):
        sources, flags = unit
        digest = hashlib.sha256("\0".join([version, args.checks, *flags]).encode())
        for file in sorted(set().union(*(closure(s) for s in sources))):
            digest.update(f"{file}\0{text(file)}\0".encode())
        mark = cache / digest.hexdigest()
        if mark.exists():
            return "kept", ""
        unity = mark.with_suffix(".cpp")
        unity.write_text("".join(f'#include "{s.resolve()}"\n' for s in sources))
        run = tidy(unity.resolve(), flags)
        unity.unlink()
        messages = []
        if run.returncode and len(sources) > 1:  # each by itself: what is left are findings
            runs = [(s, tidy(s, flags)) for s in sources]
            messages = [f"{s}\n{r.stdout}{r.stderr}" for s, r in runs if r.returncode]
        elif run.returncode:
            messages = [run.stdout + run.stderr]
        if messages:
            return "bad", "\n".join(messages)
        mark.touch()
        return "apart" if run.returncode else "checked", ""

    # By size, dealt round: the shards take about the same time.
    chosen = sorted(every, key=lambda u: -sum(len(text(s)) for s in u[0]))
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(check, chosen[shard::shards]))
    for _, message in results:
        if message:
            print(message)
    count = {kind: sum(1 for r in results if r[0] == kind) for kind in ("checked", "apart", "kept", "bad")}
    print(f"{files} production sources; units of this shard: {count['checked']} checked, {count['apart']} checked source by "
          f"source, {count['kept']} unchanged since they were found clean, {count['bad']} with findings")
    return 1 if count["bad"] else 0


if __name__ == "__main__":
    sys.exit(main())
