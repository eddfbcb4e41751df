# SPDX-License-Identifier: Apache-2.0
"""Attention in tiles as it was first written, in the tiles and the shared memory of its first descriptions."""
import numpy as np

from corpus_lib import *


def tiles(c, entry, right, dtype, d, rows, smem, causal):
    n, scale = 100, d**-0.5
    q, k, v = (c.inp(s, dtype, n * d, grid(-16, 16, 16, 1301 + i)) for i, s in enumerate("qkv"))
    o, lse = c.out("o", dtype, n * d), c.out("lse", "f32", n)
    if right:
        s = q.f.reshape(n, d) @ k.f.reshape(n, d).T * scale
        if causal:
            s[np.triu_indices(n, 1)] = -np.inf
        p = np.exp(s - s.max(1, keepdims=True))
        o.expect(p / p.sum(1, keepdims=True) @ v.f.reshape(n, d), abs=1e-3, rel=1e-3)
        lse.expect(s.max(1) + np.log(p.sum(1)), abs=1e-4, rel=1e-5)
    c.launch(entry, -(-n // rows), rows, [q, k, v, o, lse, i32("n", n), i32("causal", causal), f32("scale", scale)], smem=smem)


twins("attention_tiles.cu", "attention_f32_64")(lambda c, e, right: tiles(c, e, right, "f32", 64, 64, 49152, 1))
twins("attention_tiles.cu", "attention_f16_64")(lambda c, e, right: tiles(c, e, right, "f16", 64, 64, 24576, 0))
twins("attention_tiles.cu", "attention_f16_128", {"attention_half_a_tile": dict(cls="uninit.shared", ops=["ld.shared"])})(
    lambda c, e, right: tiles(c, e, right, "f16", 128, 32, 40960, 1))
