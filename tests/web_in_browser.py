#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the pages that `cgp web` writes in a headless Chromium, on the software GPU that it brings along, and asks them what they
found: every kernel is right and has a time, and a model generates the tokens that the processor does.

    tests/web_in_browser.py CGP [--all] [--keep FOLDER]
    tests/web_in_browser.py CGP --model FILE.gguf

--all: every problem that a page has by default, not four of them. --model: this model alone. Exit code 77 (skipped) without a
browser: CGP_BROWSER, chromium, chromium-headless-shell, google-chrome."""
import http.server
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

REPORT = """<script>document.addEventListener('cgp-done', e => fetch('/result', {method: 'POST', body: JSON.stringify(e.detail)}));</script>"""
SOME = ["softmax dtype=f32 rows=3 cols=333", "gemm dtype=f32 layout=nt m=20 n=30 k=40", "dequantize format=q4_k dtype=f32 rows=3 cols=512",
        "adamw n=1003 step=3"]


def browser():
    for name in [os.environ.get("CGP_BROWSER", ""), "chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"]:
        if name and shutil.which(name):
            return shutil.which(name)
    return None


def ask(chrome, folder, seconds):
    """What the page says of itself when it is done; None: nothing in time."""
    result, come = {}, threading.Event()
    with open(os.path.join(folder, "index.html"), encoding="utf-8") as f:
        page = f.read().replace("<body>", "<body>" + REPORT, 1).encode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            name = os.path.join(folder, os.path.basename(self.path))
            script = self.path.endswith(".js") and os.path.exists(name)
            self.send_response(200)
            self.send_header("Content-Type", "text/javascript" if script else "text/html")
            self.end_headers()
            if script:
                with open(name, "rb") as f:
                    shutil.copyfileobj(f, self.wfile)
            else:
                self.wfile.write(page)

        def do_POST(self):
            result.update(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()
            come.set()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        flags = ["--headless", "--no-sandbox", "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--no-first-run",
                 "--disable-background-networking", "--disable-dev-shm-usage", f"--user-data-dir={folder}/profile"]
        process = subprocess.Popen([chrome, *flags, "--remote-debugging-port=0", f"http://127.0.0.1:{server.server_address[1]}/#run"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        come.wait(seconds)
        os.killpg(process.pid, signal.SIGTERM)  # Debian's chromium is a script that starts another process
        process.wait()
        server.shutdown()
    return result or None


def tiny_model(cgp, folder):
    """Quantised, so that products decode their weights."""
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../python/tests"))
    from tiny_gguf import write_model
    plain, small = pathlib.Path(folder, "tiny.gguf"), os.path.join(folder, "tiny-q8_0.gguf")
    subprocess.run([cgp, "quantize", write_model(plain), small, "Q8_0"], check=True, capture_output=True)
    return small


def check_model(cgp, chrome, model):
    """0: right, 1: wrong, 77: the browser has no GPU."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([cgp, "web", folder, "--model", model, "--prompt", "It is 42 o'clock, isn't it?"], check=True, capture_output=True)
        found = ask(chrome, folder, 800)
    if found is None:
        print("the model's page gave no answer")
        return 1
    if "error" in found:
        print(found["error"])
        return 1 if found.get("wrong") else 77
    print("right" if found["pass"] else "WRONG", json.dumps(found))
    return 0 if found["pass"] and len(found["ids"]) > 1 else 1


def main():
    cgp, arguments = sys.argv[1], sys.argv[2:]
    chrome = browser()
    if not chrome:
        print("there is no Chromium here (Debian: chromium-headless-shell)")
        return 77
    if "--model" in arguments:
        return check_model(cgp, chrome, arguments[arguments.index("--model") + 1])
    code = check_kernels(cgp, chrome, arguments)
    if code:
        return code
    with tempfile.TemporaryDirectory() as folder:
        return check_model(cgp, chrome, tiny_model(cgp, folder))


def check_kernels(cgp, chrome, arguments):
    with tempfile.TemporaryDirectory() as folder:
        problems = [] if "--all" in arguments else [w for p in SOME for w in ("--kernel", p)]
        written = json.loads(subprocess.run([cgp, "web", folder, "--json", *problems], check=True, capture_output=True, text=True).stdout)
        if "--keep" in arguments:
            shutil.copy(written["page"], arguments[arguments.index("--keep") + 1])
        found = ask(chrome, folder, 400)
    if found is None:
        print("the page gave no answer")
        return 1
    if "error" in found:  # a browser that was built without the software GPU
        print(found["error"])
        return 77
    print(f"{found['adapter']}: a copy reaches {found['copy_gbps']:.1f} GB/s")
    bad = 0
    for r in found["results"]:
        if "skipped" in r and len(problems) == 0:  # the software GPU's limits are the least that WebGPU promises
            print("skipped", r["problem"], r["skipped"])
            continue
        right = r.get("pass") and r["compared"] > 0 and r["ns"] > 0 and r["gbps"] > 0
        bad += not right
        print("right" if right else "WRONG", json.dumps(r))
    if len(found["results"]) != len(written["problems"]):
        print("the page ran", len(found["results"]), "of", len(written["problems"]), "kernels")
        return 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
