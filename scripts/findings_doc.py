#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/findings.md from the tables of classes, cgp/emu/finding_classes.def and finding_examples.def.

    scripts/findings_doc.py            write the page
    scripts/findings_doc.py --check    change nothing; fail if the page is not what the table gives (CTest findings_doc)
"""
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "cgp" / "emu" / "finding_classes.def"
EXAMPLES = ROOT / "cgp" / "emu" / "finding_examples.def"
PAGE = ROOT / "docs" / "findings.md"
STRING = r'(?:"(?:[^"\\]|\\.)*"\s*)+'
EXAMPLE = re.compile(rf"CGP_EXAMPLE\(\s*({STRING}),\s*({STRING}),\s*({STRING})\)")
ENTRY = re.compile(rf"CGP_FINDING\(\s*({STRING}),\s*(\w+),\s*({STRING}),\s*({STRING}),\s*({STRING}),\s*({STRING})\)")

HEAD = """# Findings

What the emulator and `cgp run` report, by class. `cgp explain CLASS` prints the same. Only errors make a run fail (exit
code 1). Warnings are wrong by the letter of PTX and harmless in binaries that ship: `--check strict` makes them errors.
Notes are harmless on hardware. `--check` takes the words of the column
"check"; classes without one come from comparing runs (`--policies`).

<!-- written by scripts/findings_doc.py from cgp/emu/finding_classes.def -->

"""


def literal(text):
    """The value of C string literals that stand one after the other."""
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', text)).replace('\\"', '"').replace("\\n", "\n")


def entries():
    text = re.sub(r"^//.*$", "", TABLE.read_text(), flags=re.M)
    found = ENTRY.findall(text)
    if len(found) != text.count("CGP_FINDING("):
        sys.exit(f"{TABLE.name}: {text.count('CGP_FINDING(')} entries, {len(found)} of them can be read")
    return [(literal(n), severity, literal(c), literal(t), literal(e), literal(h)) for n, severity, c, t, e, h in found]


def examples():
    text = re.sub(r"^//.*$", "", EXAMPLES.read_text(), flags=re.M)
    return {literal(name): (literal(bad), literal(good)) for name, bad, good in EXAMPLE.findall(text)}


def code(text):
    """Words with a dot inside or a call's parentheses are PTX or C++."""
    return re.sub(r"(?<![\w`])((?:[A-Za-z_]\w*(?:::|\.))+\w+|\w+\(\)|__\w+)(?![\w`])", r"`\1`", text)


def page():
    all_entries, shown = entries(), examples()
    out = [HEAD, "| class | check | severity | what |\n|---|---|---|---|\n"]
    for name, severity, check, title, _, _ in all_entries:
        anchor = name.replace(".", "")
        out.append(f"| [`{name}`](#{anchor}) | {f'`{check}`' if check else ''} | {severity} | {code(title)} |\n")
    for name, _, _, title, explanation, hint in all_entries:
        body = textwrap.fill(code(f"{title[0].upper()}{title[1:]}. {explanation}"), 118, break_long_words=False, break_on_hyphens=False)
        mend = textwrap.fill(f"To mend it: {code(hint)}.", 118, break_long_words=False, break_on_hyphens=False)
        bad, good = shown[name]
        out.append(f"\n## {name}\n\n{body}\n\n```\n{bad}\n```\n\n{mend}\n\n```\n{good}\n```\n")
    return "".join(out)


def main():
    want = page()
    if sys.argv[1:] == ["--check"]:
        if not PAGE.exists() or PAGE.read_text() != want:
            sys.exit("docs/findings.md is not what cgp/emu/finding_classes.def gives; run scripts/findings_doc.py")
        return
    if sys.argv[1:]:
        sys.exit(__doc__)
    PAGE.write_text(want)


if __name__ == "__main__":
    main()
