#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the measured tables of the READMEs and the plot docs/gemm_h200.svg from results/h200/*.json.

    scripts/result_tables.py            rewrite what stands between the markers, and the plot
    scripts/result_tables.py --check    change nothing; fail if something is not what the JSON gives (CTest result_tables)

A table stands between the lines `<!-- results: PREFIX... -->` and `<!-- /results -->` and holds the rows whose names start
with one of the prefixes, in the order of the prefixes and then of the names. Where several files hold a row, the last file
in the order of names, which are dates, counts.
"""
import json
import math
import re
import sys
from pathlib import Path

import gemm_names
import kernel_names

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results" / "h200"
PLOT = ROOT / "docs" / "gemm_h200.svg"
PLOTTED = re.compile(r"gemm/bf16/nt/(\d+)x\1x\1$")
PEERS = {
    "cublas": "cuBLAS", "cublaslt": "best of cuBLASLt", "copy": "copy", "cudnn": "cuDNN", "flash": "flash", "cudnn_bf16": "cuDNN in bf16",
    "cgp_bf16": "cgp in bf16",
    "torch._grouped_mm": "torch._grouped_mm", "torch.mm loop": "a loop of torch.mm"
}
TABLE = re.compile(r"(?P<open><!-- results: (?P<prefixes>[^>]*?) -->\n)(?P<body>.*?)(?P<close><!-- /results -->)", re.S)


class Bad(Exception):
    """A file that is not what this script can use; the text is for people."""


class Timing:
    """Median and quartiles of the milliseconds of one contender, interpolated as cgp/profile/measure/stats.cpp does."""

    def __init__(self, name, milliseconds):
        if not milliseconds or min(milliseconds) <= 0:
            raise Bad(f"{name}: times must be positive, and at least one")
        self.name, self.samples = name, sorted(milliseconds)
        self.median = self.quantile(0.5)
        self.spread = (self.quantile(0.75) - self.quantile(0.25)) / 2 / self.median

    def quantile(self, q):
        position = q * (len(self.samples) - 1)
        below = math.floor(position)
        above = min(below + 1, len(self.samples) - 1)
        return self.samples[below] + (position - below) * (self.samples[above] - self.samples[below])


class Row:
    def __init__(self, row, run):
        self.name, self.run = row["name"], run
        self.variant = kernel_names.current(gemm_names.current(row.get("variant", "")))
        self.timings = [Timing(t["name"], t["ms"]) for t in row["timings"]]
        if not self.timings:
            raise Bad(f"{self.name} has no timings")
        self.unit = "TFLOP/s" if row["flops"] > 0 else "GB/s"
        self.work = row["flops"] / 1e9 if row["flops"] > 0 else row["bytes"] / 1e6  # per millisecond: the unit

    ours = property(lambda self: self.timings[0])
    peer = property(lambda self: self.timings[1] if len(self.timings) > 1 else None)

    def rate(self, t):
        return self.work / t.median

    def cell(self, t):
        rate = self.rate(t)
        spread = f" ± {100 * t.spread:.1f} %" if len(t.samples) > 1 else ""  # of a median alone nothing is known
        return (f"{rate:.0f}" if rate >= 100 else f"{rate:.1f}") + spread


def read_rows():
    """Rows by name, in the order of the newest file that has them."""
    rows = {}
    files = sorted(RESULTS.glob("*.json"))
    if not files:
        raise Bad(f"there is no {RESULTS.relative_to(ROOT)}/*.json")
    for path in files:
        file = path.relative_to(ROOT).as_posix()
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            run = {"gpu": data["gpu"], "driver": data["driver"], "date": data.get("date", path.stem), "file": file,
                   "commit": data.get("commit")}
            read = {r["name"]: Row(r, run) for r in data["rows"]}
        except (ValueError, KeyError, TypeError) as e:
            raise Bad(f"{file} is not a file of cgp_kernel_bench --json: {e!r}") from e
        except Bad as e:
            raise Bad(f"{file}: {e}") from e
        rows = {**{k: v for k, v in rows.items() if k not in read}, **read}
    return list(rows.values())


def source_line(run, link):
    commit = f", commit {run['commit']}" if run["commit"] else ""
    return f"{run['gpu']}, driver {run['driver']}, {run['date']}{commit}: [{run['file']}]({link})"


def table(rows, where):
    units = {r.unit for r in rows}
    if len(units) > 1:
        raise Bad(f"{where}: rows in GB/s and rows in TFLOP/s do not share a table; give narrower prefixes")
    unit = units.pop()
    peers = sorted({PEERS.get(r.peer.name, r.peer.name) for r in rows if r.peer})
    with_variant = any(r.variant for r in rows)
    head = ["problem", f"cgp, {unit}", f"{' or '.join(peers) or 'peer'}, {unit}", "ratio"] + ["variant"] * with_variant
    lines = ["| " + " | ".join(head) + " |", "|---|---:|---:|---:|" + "---|" * with_variant]
    for r in rows:
        cells = [f"`{r.name}`", r.cell(r.ours), r.cell(r.peer) if r.peer else "",
                 f"{r.peer.median / r.ours.median:.3f}" if r.peer else ""]
        if with_variant:
            cells.append(r.variant.replace("|", "\\|"))
        lines.append("| " + " | ".join(cells) + " |")
    up = "../" * len(where.parent.parts)
    runs = {r.run["file"]: r.run for r in rows}
    lines += ["", "Median ± half the interquartile range; ratio: the peer's median time over ours. "
              + "; ".join(source_line(runs[f], up + f) for f in sorted(runs)) + "."]
    return "\n".join(lines) + "\n"


def order(name, prefixes):
    """As the prefixes are given, numbers by their size."""
    first = next(i for i, p in enumerate(prefixes) if name.startswith(p))
    return first, [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def filled(path, rows):
    """The text of a README with its tables as the rows give them."""
    where = path.relative_to(ROOT)
    text = path.read_text(encoding="utf-8")
    if text.count("<!-- results:") != len(TABLE.findall(text)) or text.count("<!-- /results -->") != len(
            TABLE.findall(text)):
        raise Bad(f"{where}: each `<!-- results: PREFIX -->` needs its `<!-- /results -->`")

    def fill(m):
        prefixes = m["prefixes"].split()
        mine = [r for r in rows if any(r.name.startswith(p) for p in prefixes)]
        mine.sort(key=lambda r: order(r.name, prefixes))
        if not mine:
            raise Bad(f"{where}: no result starts with {' or '.join(prefixes) or 'nothing: the prefix is missing'}")
        return m["open"] + table(mine, where) + m["close"]

    return TABLE.sub(fill, text)


# ---------------------------------------------------------------- the plot
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 400, 64, 24, 56, 56
INK, GRID = "#24292f", "#d0d7de"
COLOURS = ["#0969da", "#bc4c00"]


def plot(rows):
    points = sorted((int(PLOTTED.match(r.name)[1]), r) for r in rows if PLOTTED.match(r.name))
    if len(points) < 2:
        raise Bad("the plot needs two or more rows gemm/bf16/nt/NxNxN")
    most = max(r.rate(t) for _, r in points for t in r.timings)
    top = math.ceil(most / 200) * 200
    first, last = math.log2(points[0][0]), math.log2(points[-1][0])

    def x(n):
        return LEFT + (math.log2(n) - first) / (last - first) * (WIDTH - LEFT - RIGHT)

    def y(rate):
        return HEIGHT - BOTTOM - rate / top * (HEIGHT - TOP - BOTTOM)

    run = points[-1][1].run
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
           f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13" fill="{INK}">',
           "<title>bf16 gemm, cgp and cuBLAS</title>",
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
           f'<text x="{LEFT}" y="22" font-size="15">bf16 gemm, C = A Bᵀ, m = n = k, TFLOP/s ({run["gpu"]}, '
           f'driver {run["driver"]}, {run["date"]})</text>']
    for rate in range(0, top + 1, 200):
        out.append(f'<line x1="{LEFT}" y1="{y(rate):.1f}" x2="{WIDTH - RIGHT}" y2="{y(rate):.1f}" stroke="{GRID}"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y(rate) + 4:.1f}" text-anchor="end">{rate}</text>')
    for n, _ in points:
        out.append(f'<text x="{x(n):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{n}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.1f}" y="{HEIGHT - 12}" text-anchor="middle">m = n = k</text>')
    series = {}
    for n, r in points:
        for t in r.timings:
            series.setdefault(t.name, []).append((n, r, t))
    for i, (name, of) in enumerate(series.items()):
        colour = COLOURS[i % len(COLOURS)]
        label = PEERS.get(name, name)
        out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="'
                   + " ".join(f"{x(n):.1f},{y(r.rate(t)):.1f}" for n, r, t in of) + '"/>')
        for n, r, t in of:
            out.append(f'<circle cx="{x(n):.1f}" cy="{y(r.rate(t)):.1f}" r="4" fill="{colour}">'
                       f"<title>{label}, {n}: {r.rate(t):.0f} TFLOP/s</title></circle>")
        at = LEFT + 110 * i
        out.append(f'<circle cx="{at + 5}" cy="40" r="4" fill="{colour}"/><text x="{at + 15}" y="44">{label}</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        print(__doc__)
        return 2
    check = bool(sys.argv[1:])
    try:
        rows = read_rows()
        pages = [p for p in [ROOT / "README.md", ROOT / "docs" / "results.md", *sorted(ROOT.glob("cgp/kernels/*/README.md"))] if p.exists()]
        want = {p: filled(p, rows) for p in pages}
        want[PLOT] = plot(rows)
    except Bad as e:
        print(e)
        return 1
    stale = [p for p, text in want.items() if not p.exists() or p.read_text(encoding="utf-8") != text]
    for p in stale:
        print(f"{p.relative_to(ROOT)}: " + ("not what results/h200 gives; run scripts/result_tables.py" if check
                                            else "written"))
        if not check:
            p.write_text(want[p], encoding="utf-8")
    print(f"{len(rows)} results, {len(want)} files, {len(stale)} {'stale' if check else 'changed'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
