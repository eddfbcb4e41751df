#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The main job, shown once: a gemm kernel is recorded from C++, printed as PTX, executed and checked, and its result is
# compared with an oracle, on matrices in .npy files. On a machine with a GPU it runs there too.
set -euo pipefail
cgp=$1
work=$(dirname "$0")/../build/demo
mkdir -p "$work"
[ -f "$work/a.npy" ] && [ -f "$work/b.npy" ] || python3 - "$work" <<'P'
import struct, random, sys
def write(path, rows, cols, seed):  # float32, without needing NumPy
    random.seed(seed)
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }" % (rows, cols)
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        f.write(struct.pack("<%df" % (rows * cols), *(random.gauss(0, 1) for _ in range(rows * cols))))
write(sys.argv[1] + "/a.npy", 200, 136, 1)
write(sys.argv[1] + "/b.npy", 136, 264, 2)
P
say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
say "The kernels there are"
"$cgp" list
say "The kernel as PTX (first lines): recorded from a C++ function, no compiler involved"
"$cgp" emit gemm --arch sm_90a | sed -n 1,28p
say "Two float32 matrices from .npy files, multiplied on the emulator with every check on"
"$cgp" run gemm layout=nn variant=simt --in a="$work/a.npy" --in b="$work/b.npy" --out c="$work/c.npy"
say "The tensor-core kernel for Hopper (TMA, mbarriers, wgmma), random bf16 data"
"$cgp" run gemm m=256 n=512 k=192
if "$cgp" doctor 2>/dev/null | grep -qi 'cuda:0'; then
  say "The same on the GPU"
  "$cgp" run gemm m=4096 n=4096 k=4096 --device cuda
else
  say "On a machine with an NVIDIA GPU, run the same there:"
  echo "  $cgp run gemm m=4096 n=4096 k=4096 --device cuda"
fi
