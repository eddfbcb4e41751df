#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Translates every kernel that `cgp list` names to WGSL and SPIR-V, and gives the shaders to the validators that are here:
spirv-val (package spirv-tools), naga (PyPI package wgpu, which needs a Vulkan driver such as mesa-vulkan-drivers), Tint (chromium).

    scripts/validate_shaders.py --cgp build/dev/tools/cgp/cgp --arch sm_75 sm_80

Prints what a validator refuses, and fails if there is anything.
"""
import argparse
import http.server
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from pathlib import Path

PAGE = """<!doctype html><script>
(async () => {
  const say = async (what) => { await fetch('/result', {method: 'POST', body: JSON.stringify(what)}); };
  try {
    const adapter = await navigator.gpu.requestAdapter();
    if (!adapter) return await say({error: 'no adapter'});
    const device = await adapter.requestDevice();
    const refused = {};
    const shaders = await (await fetch('/shaders.json')).json();
    for (const [name, code] of Object.entries(shaders)) {
      const info = await device.createShaderModule({code}).getCompilationInfo();
      const e = info.messages.find((m) => m.type === 'error');
      if (e) refused[name] = e.lineNum + ':' + e.linePos + ' ' + e.message;
    }
    await say({refused});
  } catch (e) { await say({error: String(e)}); }
})();
</script>"""


def translate(cgp, archs, folder):
    """Files of all variants that are in the subset; the others are refused with a reason, which is not an error here."""
    listed = json.loads(subprocess.run([cgp, "list", "--json"], capture_output=True, text=True, check=True).stdout)
    refused = 0
    for kernel in listed["kernels"]:
        for target in kernel["targets"]:
            if target["arch"] not in archs:
                continue
            for variant in target["variants"]:
                for language, suffix in ("wgsl", ".wgsl"), ("spirv", ".spv"):
                    out = folder / f"{target['arch']}.{variant}{suffix}"
                    done = subprocess.run([cgp, "emit", kernel["name"], "--arch", target["arch"], "--variant", variant,
                                           "--target", language, "-o", str(out)], capture_output=True)
                    refused += done.returncode != 0
    return refused


def spirv_val(folder):
    for path in sorted(folder.glob("*.spv")):
        done = subprocess.run(["spirv-val", "--target-env", "vulkan1.2", str(path)], capture_output=True, text=True)
        if done.returncode:
            yield path.name, (done.stdout + done.stderr).strip().split("\n")[0]


def naga(folder):
    import wgpu
    adapter = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
    device = adapter.request_device_sync()
    for path in sorted(folder.glob("*.wgsl")):
        try:
            device.create_shader_module(code=path.read_text())
        except wgpu.GPUError as e:
            yield path.name, str(e).strip().replace("\n", " ")[:300]


def tint(folder, chromium):
    shaders = json.dumps({p.name: p.read_text() for p in sorted(folder.glob("*.wgsl"))}).encode()
    result, come = {}, threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "application/json" if self.path == "/shaders.json" else "text/html")
            self.end_headers()
            self.wfile.write(shaders if self.path == "/shaders.json" else PAGE.encode())

        def do_POST(self):
            result.update(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()
            come.set()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server, tempfile.TemporaryDirectory() as profile:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = subprocess.Popen([chromium, "--headless", "--remote-debugging-port=0", "--no-sandbox", "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader",
                                    f"--user-data-dir={profile}", f"http://127.0.0.1:{server.server_address[1]}/"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        come.wait(600)
        os.killpg(browser.pid, signal.SIGTERM)  # Debian's chromium is a script that starts another process
        browser.wait()
        server.shutdown()
    if "refused" not in result:
        yield "chromium", result.get("error", "no answer in ten minutes")
    yield from result.get("refused", {}).items()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cgp", default="build/dev/tools/cgp/cgp")
    parser.add_argument("--arch", nargs="+", default=["sm_75", "sm_80"])
    options = parser.parse_args()
    failures = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        outside = translate(options.cgp, options.arch, folder)
        counts = {s: len(list(folder.glob("*" + s))) for s in (".wgsl", ".spv")}
        print(f"{counts['.wgsl']} WGSL, {counts['.spv']} SPIR-V; {outside} outside of the subset")
        chromium = shutil.which("chromium-headless-shell") or shutil.which("chromium") or shutil.which("chromium-browser")
        try:
            import wgpu  # noqa: F401
            have_wgpu = True
        except ImportError:
            have_wgpu = False
        for validator, here, run in (("spirv-val", shutil.which("spirv-val"), lambda: spirv_val(folder)),
                                     ("naga", have_wgpu, lambda: naga(folder)),
                                     ("tint", chromium, lambda: tint(folder, chromium))):
            if not here:
                print(f"{validator}: not here")
                continue
            refused = list(run())
            print(f"{validator}: {len(refused)} refused")
            for shader, why in refused:
                print(f"  {shader}: {why}")
            failures += len(refused)
    return failures > 0


if __name__ == "__main__":
    os.environ.setdefault("WGPU_BACKEND_TYPE", "Vulkan")
    raise SystemExit(main())
