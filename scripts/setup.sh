#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what the build and the tests need on a fresh Debian 12 (or Ubuntu 24.04) machine, once. Nothing is done
# when everything is there. ptxas, which only the tests use, comes from a CUDA toolkit if one is installed, else from
# PyPI into build/ptxas.
set -euo pipefail
cd "$(dirname "$0")/.."
packages=(g++ cmake ninja-build make git ccache libgtest-dev libgmock-dev librapidcheck-dev libcli11-dev libfmt-dev
          nlohmann-json3-dev libyaml-cpp-dev libevent-dev clang-format-14 clang-tidy-16 python3 python3-pip python3-dev python3-numpy python3-pytest pkg-config unzip spirv-tools mesa-vulkan-drivers
          ${PACKAGES:-})  # PACKAGES: what a command needs beyond that
missing=()
for p in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
done
if [ ${#missing[@]} -gt 0 ]; then
  as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "setup: these packages are needed, and there is no sudo: ${missing[*]}" >&2; exit 1; }
    as_root=(sudo)
  fi
  echo "setup: installing ${missing[*]}"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

ptxas_version=13.0.88
if ! command -v ptxas >/dev/null && [ ! -x "${CUDA_HOME:-/usr/local/cuda}/bin/ptxas" ] && [ ! -x build/ptxas/ptxas ]; then
  echo "setup: fetching ptxas $ptxas_version"
  mkdir -p build/ptxas
  if python3 -m pip download -q --disable-pip-version-check --no-deps -d build/ptxas "nvidia-cuda-nvcc==$ptxas_version"; then
    unzip -q -o -j build/ptxas/*.whl 'nvidia/cu13/bin/ptxas' -d build/ptxas
    rm -f build/ptxas/*.whl && chmod +x build/ptxas/ptxas
  else
    echo "setup: no ptxas; the tests that assemble PTX will say that they were skipped" >&2
  fi
fi
