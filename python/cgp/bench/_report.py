# SPDX-License-Identifier: Apache-2.0
"""Rows as a table, as JSON and as plots. A row is {"part", "name", "own": names of ours, "times": {contender: {"ms", "spread"} or
{"error"}}} and may have "note"; times may have more, which the JSON keeps."""
import html
import json

from ._stats import geometric_mean, ratio

_COLOURS = ("#1b6ca8", "#c44536", "#6a994e", "#bc8034", "#7d5ba6", "#5c677d", "#2a9d8f", "#a05195")


def ours_of(row):
    """Our fastest contender of a row."""
    times = [(row["times"][n]["ms"], n) for n in row["own"] if "ms" in row["times"].get(n, {})]
    return min(times)[1] if times else None


def _time(t):
    if t is None:
        return ""
    if "ms" not in t:
        return "-"
    ms = t["ms"]
    text = f"{ms * 1000:.1f} us" if ms < 0.1 else f"{ms:.3f} ms" if ms < 10 else f"{ms:.1f} ms"
    return f"{text} ±{t['spread'] * 100:.0f}%"


def table(rows):
    """One table for each part, contenders as columns, and what could not run below it."""
    out = []
    for part in dict.fromkeys(r["part"] for r in rows):
        mine = [r for r in rows if r["part"] == part]
        names = list(dict.fromkeys(n for r in mine for n in r["times"]))
        lines = [["", *names, "best peer / cgp"]]
        ratios = []
        for r in mine:
            x = ratio(r, ours_of(r)) if ours_of(r) else None
            ratios.append(x)
            lines.append([r["name"], *(_time(r["times"].get(n)) for n in names), f"{x:.2f}" if x else ""])
        mean = geometric_mean(ratios)
        if mean:
            lines.append(["geometric mean", *[""] * len(names), f"{mean:.2f}"])
        width = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        out.append(part)
        out += ["  " + "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(line, width))) for line in lines]
        for r in mine:
            out += [f"  {r['name']}: {n}: {t['error']}" for n, t in r["times"].items() if "error" in t]
            if r.get("note"):
                out.append(f"  {r['name']}: {r['note']}")
        out.append("")
    return "\n".join(out)


def as_json(rows, about):
    return json.dumps({"about": about, "rows": rows}, indent=1)


def svg(rows, title):
    """Bars of every row's times relative to the slowest; one file, nothing is loaded from elsewhere."""
    names = list(dict.fromkeys(n for r in rows for n in r["times"]))
    colour = {n: _COLOURS[i % len(_COLOURS)] for i, n in enumerate(names)}
    label = 12 + 6.2 * max((len(r["name"]) for r in rows), default=0)
    body, y, width = [], 34, 420
    body.append(f'<text x="8" y="20" font-size="15">{html.escape(title)}</text>')
    x = 8.0
    for n in names:
        body.append(f'<rect x="{x:.0f}" y="{y}" width="10" height="10" fill="{colour[n]}"/>'
                    f'<text x="{x + 14:.0f}" y="{y + 9}" font-size="11">{html.escape(n)}</text>')
        x += 26 + 6.4 * len(n)
    right = max(x, label + width + 90)
    y += 22
    for r in rows:
        times = [(n, t) for n, t in r["times"].items() if "ms" in t]
        if not times:
            continue
        slowest = max(t["ms"] for _, t in times)
        body.append(f'<text x="8" y="{y + 6 * len(times) + 4}" font-size="11">{html.escape(r["name"])}</text>')
        for n, t in times:
            w = width * t["ms"] / slowest if slowest else 0
            body.append(f'<rect x="{label:.0f}" y="{y}" width="{max(w, 1):.1f}" height="10" fill="{colour[n]}">'
                        f"<title>{html.escape(n)}: {html.escape(_time(t))}</title></rect>"
                        f'<text x="{label + w + 4:.1f}" y="{y + 9}" font-size="9">{html.escape(_time(t))}</text>')
            y += 12
        y += 8
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{right:.0f}" height="{y + 8}" viewBox="0 0 {right:.0f} {y + 8}" '
            f'font-family="sans-serif"><rect width="100%" height="100%" fill="white"/>' + "".join(body) + "</svg>\n")
