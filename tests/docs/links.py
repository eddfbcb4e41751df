#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every link and every file that a page (*.md) names must exist: [text](path#heading) and `cgp/path/of.a/file`.

NOTES.md and CHANGELOG.md tell of the past: only their links are checked.
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LINK = re.compile(r"(?<!\!)\[[^\]\[]*\]\(([^()\s]+)\)|!\[[^\]]*\]\(([^()\s]+)\)")
FILE = re.compile(r"`((?:cgp|tools|tests|docs|examples|scripts|python|cmake|contracts|results|ptx|emu|dsl|kernels|runtime)"
                  r"/[\w./-]*\.(?:cpp|h|def|c|py|sh|cmake|md|yaml|txt|svg|json))`")
FOLDER = re.compile(r"`((?:cgp|tools|tests|docs|examples|scripts|python|cmake|contracts|results)/[\w/-]*\w)/?`")
FENCE = re.compile(r"^( *)(`{3,}).*?^\1\2 *$", re.S | re.M)


def headings(page):
    """The anchors of a page, as GitHub makes them."""
    out, fenced = set(), False
    for line in page.read_text(encoding="utf-8").split("\n"):
        fenced ^= line.lstrip().startswith("```")
        m = re.match(r"#+\s+(.*)", line)
        if m and not fenced:
            title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", m.group(1)).lower()
            out.add(re.sub(r"[^\w\- ]", "", title).strip().replace(" ", "-"))
    return out


def main():
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    files = {f for f in listed if f}
    folders = {str(p) for f in files for p in Path(f).parents}
    pages = sorted(f for f in files if f.endswith(".md") and (ROOT / f).exists())
    problems = []
    for name in pages:
        page = ROOT / name
        text = FENCE.sub(lambda m: "\n" * m.group(0).count("\n"), page.read_text(encoding="utf-8"))

        def say(at, what):
            problems.append(f"{name}:{text.count(chr(10), 0, at) + 1}: {what}")

        for m in LINK.finditer(text):
            target, _, heading = (m.group(1) or m.group(2)).partition("#")
            if re.match(r"\w+:", target):
                continue
            there = (page.parent / target).resolve() if target else page
            relative = str(there.relative_to(ROOT)) if there.is_relative_to(ROOT) else str(there)
            if relative not in files | folders | {"."} or (relative in files and not there.exists()):
                say(m.start(), f"a link to {target}, which is not there")
            elif heading and there.suffix == ".md" and heading not in headings(there):
                say(m.start(), f"a link to #{heading}, which is no heading of {relative}")
        if page.name in {"NOTES.md", "CHANGELOG.md"}:
            continue
        for pattern in (FILE, FOLDER):
            for m in pattern.finditer(text):
                f = m.group(1)
                # Pages of a folder name its files from there; ptx/x.h is cgp/ptx/x.h.
                if not any(p in files | folders for p in (f, f"cgp/{f}", str(Path(name).parent / f))):
                    say(m.start(), f"names {f}, which is not there")
    for p in problems:
        print(p)
    print(f"{len(pages)} pages, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
