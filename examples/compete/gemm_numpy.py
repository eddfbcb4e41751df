# SPDX-License-Identifier: Apache-2.0
"""The same by NumPy and the BLAS that it was built with: python3 gemm_numpy.py 512"""
import statistics
import sys
import time

import numpy as np

n = int(sys.argv[1]) if len(sys.argv) > 1 else 512
i = np.arange(n * n)
a = ((i % 13) * np.float32(0.1)).astype(np.float32).reshape(n, n)
b = ((i % 17) * np.float32(0.1)).astype(np.float32).reshape(n, n)
c = np.empty_like(a)
ms = []
for _ in range(7):
    start = time.perf_counter()
    np.matmul(a, b, out=c)
    ms.append(1e3 * (time.perf_counter() - start))
print(f"time: {statistics.median(ms):.4f} ms")
