#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Renders a report of cgp in a headless browser and asks the browser what it sees: nothing is wider than the window,
texts of pictures do not lie on each other, pictures are not empty, the filter hides rows, nothing is fetched.

    tests/report_in_browser.py CGP TESTDATA [--keep FOLDER]

Exit code 77 (skipped) without a browser: CGP_BROWSER, chromium, chromium-headless-shell, google-chrome."""
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

CHECK = """
<script>
const problems = [];
const wide = document.documentElement.scrollWidth;
if (wide > window.innerWidth + 1) problems.push('the page is ' + wide + ' wide in a window of ' + window.innerWidth);
let pictures = 0, texts = 0;
for (const svg of document.querySelectorAll('svg')) {
  ++pictures;
  const box = svg.getBoundingClientRect();
  if (box.width < 100 || box.height < 30) problems.push('a picture of ' + box.width + ' by ' + box.height);
  const all = [...svg.querySelectorAll('text')].filter(t => t.textContent.trim());
  texts += all.length;
  const boxes = all.map(t => t.getBoundingClientRect());
  for (let i = 0; i < all.length; ++i) {
    if (boxes[i].right > box.right + 1 || boxes[i].left < box.left - 1)
      problems.push('"' + all[i].textContent + '" leaves its picture');
    for (let j = i + 1; j < all.length; ++j) {
      const w = Math.min(boxes[i].right, boxes[j].right) - Math.max(boxes[i].left, boxes[j].left);
      const h = Math.min(boxes[i].bottom, boxes[j].bottom) - Math.max(boxes[i].top, boxes[j].top);
      if (w > 2 && h > 0.3 * Math.min(boxes[i].height, boxes[j].height))
        problems.push('"' + all[i].textContent + '" lies on "' + all[j].textContent + '"');
    }
  }
}
const input = document.querySelector('details input.f') || document.querySelector('input.f');
const rows = input ? [...input.parentNode.querySelectorAll('tbody tr')] : [];
const seen = () => rows.filter(r => r.offsetParent !== null).length;
const before = seen();
if (input) { input.value = rows[rows.length - 1].cells[0].textContent; input.oninput(); }
const found = seen();
if (input) { input.value = ''; input.oninput(); }
// A box of a flame graph takes the whole width at Enter, and its own at Escape; a timeline zooms at +.
const key = (target, k) => target.dispatchEvent(new KeyboardEvent('keydown', {key: k, bubbles: true, cancelable: true}));
const width = r => +r.getAttribute('width');
let zoomed = 0;
for (const svg of document.querySelectorAll('svg.flame')) {
  const box = [...svg.querySelectorAll('g')].find(g => width(g.querySelector('rect')) < 900);
  if (!box) continue;
  const own = width(box.querySelector('rect'));
  key(box, 'Enter');
  if (width(box.querySelector('rect')) < 1170) problems.push('Enter does not zoom a flame graph');
  key(box, 'Escape');
  if (Math.abs(width(box.querySelector('rect')) - own) > 1) problems.push('Escape does not show all of a flame graph');
  ++zoomed;
}
for (const svg of document.querySelectorAll('svg.timeline')) {
  const shown = () => [...svg.querySelectorAll('rect')].filter(r => r.style.display != 'none').length;
  const all = shown();
  for (let i = 0; i < 12; ++i) key(svg, '+');
  if (shown() >= all) problems.push('+ does not zoom a timeline of ' + all + ' boxes');
  key(svg, '0');
  if (shown() != all) problems.push('0 does not show all of a timeline');
  ++zoomed;
}
const fetched = performance.getEntriesByType('resource').length;
const out = document.createElement('pre');
out.id = 'cgp-seen';
out.textContent = JSON.stringify({problems, pictures, texts, before, found, after: seen(), fetched, zoomed,
  tables: document.querySelectorAll('table').length, text: document.body.innerText.length});
document.body.appendChild(out);
</script>
"""


def browser():
    names = [os.environ.get("CGP_BROWSER", ""), "chromium", "chromium-headless-shell", "chromium-shell",
             "chromium-browser", "google-chrome", "chrome"]
    for name in names:
        if name and shutil.which(name):
            return shutil.which(name)
    return None


def run(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", **more)
    if done.returncode not in more.pop("codes", (0,)):
        sys.exit(f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def make_report(cgp, testdata, folder):
    """Every kind of section: emulated kernels, timed programs, a timeline, counters of ncu, a roofline."""
    def file(name):
        return os.path.join(folder, name)
    run(cgp, "profile", "kernel", "softmax", "rows=64", "cols=256", "--device", "emu", "--save", file("k.json"))
    # a program that prints its times: the same picture on every machine
    with open(file("times"), "w") as f:
        f.write("".join(f"took {10 + i * 7 % 11 / 5} ms\n" for i in range(9)))
    with open(file("next.sh"), "w") as f:
        f.write('cd "$1" && at=$(cat at 2>/dev/null || echo 0) && echo $((at + 1)) >at && sed -n "$((at + 1))p" times\n')
    run(cgp, "time", "--runs", "8", "--time-regex", "took ([0-9.]+) ms", "--save", file("t.json"), "--", "sh",
        file("next.sh"), folder)
    # samples of a processor: a file that is written, since not every machine may sample
    with open(file("cpu.json"), "w") as f:
        stacks = [{"stack": "prog;main;" + "f;" * (i % 3) + f"leaf{i}", "samples": 10 + i} for i in range(12)]
        total = sum(s["samples"] for s in stacks)
        rows = [{"line": i, "samples": 9 if i == 4 else 0, "text": "    x += y;  // " + "w" * 200} for i in range(1, 9)]
        functions = [{"name": "leaf1", "module": "prog", "self": 11, "self_pct": 6, "total": 11, "total_pct": 6,
                      "lines": [{"file": "/a.cpp", "line": 4, "samples": 9}], "source": {"file": "/a.cpp", "rows": rows}}]
        json.dump({"schema": "cgp.profile/1", "kind": "binary", "name": "prog", "time": "", "machine_key": "m",
                   "metrics": {}, "samples": [], "cpu_samples": {"samples": total, "seconds": 1, "rate_hz": 499,
                                                                  "functions": functions, "threads": [], "folded": stacks}}, f)
    # a path that is wider than the page, as a checkout deep in a tree has
    deep = os.path.join(folder, *["a_folder_with_a_name_of_some_length"] * 4)
    os.makedirs(deep, exist_ok=True)
    recording = shutil.copy(os.path.join(testdata, "torch_trace.jsonl"), deep)
    run(cgp, "trace", "--from", recording, "--save", file("trace.json"), "--flamegraph", file("flame.svg"))
    run(cgp, "roofline", "--target", "cuda", "--device", "H200", "--save", file("roof.json"), "--svg", file("roof.svg"))
    run(cgp, "report", file("k.json"), file("t.json"), file("cpu.json"), file("trace.json"), os.path.join(testdata, "ncu_raw.csv"),
        file("roof.json"), "-o", file("report.html"), "--title", "A report that is looked at")
    return file("report.html")


def look(chrome, page, folder, width, dark=False):
    with open(page, encoding="utf-8") as f:
        text = f.read()
    checked = os.path.join(folder, f"checked{width}.html")
    with open(checked, "w", encoding="utf-8") as f:
        f.write(text.replace("</body>", CHECK + "</body>") if "</body>" in text else text + CHECK)
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
             "--disable-background-networking", "--disable-dev-shm-usage", f"--user-data-dir={folder}/profile",
             f"--window-size={width},1600"]
    if dark:
        flags.append("--blink-settings=preferredColorScheme=0")
    dom = run(chrome, *flags, "--dump-dom", "file://" + checked, timeout=400)
    found = re.search(r'<pre id="cgp-seen">(.*?)</pre>', dom, re.S)
    if not found:
        sys.exit("the page's own script did not end: " + dom[-400:])
    shot = os.path.join(folder, f"report{width}.png")
    run(chrome, *flags, f"--window-size={width},4200", f"--screenshot={shot}", "file://" + page, timeout=400)
    return json.loads(html.unescape(found.group(1))), shot


def main():
    cgp, testdata = sys.argv[1:3]
    chrome = browser()
    if not chrome:
        print("skipped: no browser (chromium, or CGP_BROWSER)")
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        folder = scratch
        if "--keep" in sys.argv:
            folder = sys.argv[sys.argv.index("--keep") + 1]
            os.makedirs(folder, exist_ok=True)
        page = make_report(cgp, testdata, folder)
        bad = []
        for width in (1200, 700):
            seen, shot = look(chrome, page, folder, width)
            print(width, {k: v for k, v in seen.items() if k != "problems"})
            bad += [f"at {width}: {p}" for p in seen["problems"]]
            if seen["pictures"] < 3 or seen["tables"] < 5 or seen["text"] < 3000:
                bad.append(f"at {width}: the report has {seen['pictures']} pictures and {seen['tables']} tables")
            if not 0 < seen["found"] < seen["before"] or seen["after"] != seen["before"]:
                bad.append(f"the filter shows {seen['found']} of {seen['before']} rows, then {seen['after']}")
            if seen["zoomed"] != 2:
                bad.append(f"{seen['zoomed']} of a flame graph and a timeline were zoomed")
            if seen["fetched"]:
                bad.append(f"{seen['fetched']} resources were fetched")
            if os.path.getsize(shot) < 20000:
                bad.append(f"the picture of the page has {os.path.getsize(shot)} bytes")
        for line in bad:
            print("problem:", line)
        return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
