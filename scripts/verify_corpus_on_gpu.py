#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the working cases of tests/corpus on a GPU: does hardware give what the specs expect?

    scripts/verify_corpus_on_gpu.py [--cgp BINARY] [--device cuda:0] [--jobs 8] [--result FILE] [NAME ...]
    scripts/verify_corpus_on_gpu.py --apply FILE      write what a result says into hw_verified of the specs

Broken cases (with "expect") are left out: on hardware they may hang or pass by luck. Exit code 0: all agree; 1: not all;
3: there is no GPU. About two minutes for all.
"""
import argparse
import concurrent.futures
import datetime
import json
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "corpus" / "data"
SECONDS = 60  # a case that takes longer hangs
MARK = re.compile(r'("hw_verified":\s*)(true|false)')


def working_cases(names):
    cases = []
    for path in sorted(DATA.glob("*.json")):
        if "expect" not in json.loads(path.read_text()) and (not names or path.stem in names):
            cases.append(path)
    unknown = set(names) - {p.stem for p in cases}
    if unknown:
        sys.exit(f"no working case is called {', '.join(sorted(unknown))}")
    return cases


def run_case(options, path):
    """(name, exit code, one line of why, milliseconds on the GPU, what the device is)"""
    command = [options.cgp, "run", "--spec", str(path), "--device", options.device, "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return path.stem, 1, f"did not end within {SECONDS} s", None, None
    try:
        report = json.loads(done.stdout)
    except ValueError:
        return path.stem, done.returncode or 1, (done.stderr.strip() or "no JSON").splitlines()[0], None, None
    if "error" in report:
        return path.stem, done.returncode, f"{report['error']['rule']}: {report['error']['why']}", None, None
    wrong = [f"{b['name']}: {b['wrong']} of {b['count']} wrong, element {b['first']['index']} is {b['first']['got']}, "
             f"expected {b['first']['want']}" for b in report["buffers"] if b["compared"] and not b["equal"]]
    why = report["fault"] or "; ".join(wrong)
    if report["device"]["kind"] != "cuda":
        return path.stem, 3, f"ran on {report['device']['name']}", None, None
    if done.returncode == 0 and not any(b["compared"] for b in report["buffers"]):
        return path.stem, 1, "nothing was compared", None, None
    return (path.stem, done.returncode, " ".join(why.split()),
            sum(launch["gpu_ms"] or 0 for launch in report["launches"]), report["device"]["name"])


def verify(options):
    cases = working_cases(options.names)
    start = time.monotonic()
    result = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"), "device": None, "cases": {}}
    codes = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for name, code, why, ms, device in pool.map(lambda p: run_case(options, p), cases):
            codes.append(code)
            result["device"] = result["device"] or device
            result["cases"][name] = {"pass": code == 0, "why": why}
            print(f"{'ok  ' if code == 0 else 'BAD '} {name:<34} {'' if ms is None else f'{ms:9.4f} ms'}  {why}", flush=True)
    passed = sum(c["pass"] for c in result["cases"].values())
    print(f"{passed} of {len(cases)} cases agree on {result['device']} in {time.monotonic() - start:.0f} s")
    if options.result:
        Path(options.result).write_text(json.dumps(result, indent=2) + "\n")
    if codes and all(c == 3 for c in codes):
        return 3
    return 0 if passed == len(cases) else 1


def apply(file):
    result = json.loads(Path(file).read_text())
    if not result["device"]:
        sys.exit(f"{file}: nothing ran on a GPU")
    for name, case in result["cases"].items():
        path = DATA / f"{name}.json"
        text = path.read_text()
        new, count = MARK.subn(lambda m: m[1] + ("true" if case["pass"] else "false"), text)
        if count != 1:
            sys.exit(f"{path} has {count} fields hw_verified")
        if new != text:
            path.write_text(new)
            print(f"{name}: hw_verified is now {str(case['pass']).lower()}")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cgp", default=str(ROOT / "build" / "dev" / "tools" / "cgp" / "cgp"))
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--result", help="write the outcome of each case to this file")
    parser.add_argument("--apply", metavar="FILE", help="mark the specs as this result says, and run nothing")
    parser.add_argument("names", nargs="*", help="cases; all without")
    options = parser.parse_args()
    return apply(options.apply) if options.apply else verify(options)


if __name__ == "__main__":
    sys.exit(main())
