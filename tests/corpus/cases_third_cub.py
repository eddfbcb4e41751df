# SPDX-License-Identifier: Apache-2.0
"""CUB's block and warp primitives that the other files leave out."""
import functools

import numpy as np

from corpus_lib import *

kind = functools.partial(twins, "third_cub.cu")


@kind("loads_and_stores")
def loads_and_stores(c, entry, right):
    n = 431
    x, o = c.inp("in", "s32", n, randint(0, 99, 2201)), c.out("out", "s32", n)
    v = np.concatenate([x.data.astype(int), -np.ones(480 - n, int)])
    o.expect((np.cumsum(v) - v + v.sum())[:n])
    c.launch(entry, 1, 96, [x, o, i32("n", n)])


@kind("heads_and_differences")
def heads_and_differences(c, entry, right):
    x = c.inp("in", "s32", 192, randint(0, 40, 2202))
    h, d, t = c.out("heads", "s32", 192), c.out("differences", "s32", 192), c.out("turned", "s32", 192)
    v = x.data.astype(int)
    h.expect(np.concatenate([[1], (v[1:] // 10 != v[:-1] // 10).astype(int)]))
    d.expect(np.concatenate([[v[0]], np.diff(v)]))
    t.expect(v * 2)
    c.launch(entry, 1, 64, [x, h, d, t])


@kind("bins_and_ranks")
def bins_and_ranks(c, entry, right):
    x, b, r = c.inp("in", "u8", 512, randint(0, 31, 2203)), c.out("bins", "u32", 32), c.out("ranks", "s32", 512)
    b.expect(np.bincount(x.data, minlength=32))
    rank = np.empty(512, int)
    rank[np.argsort(x.data, kind="stable")] = np.arange(512)
    r.expect(rank)
    c.launch(entry, 1, 128, [x, b, r])


@kind("warps_of_cub")
def warps_of_cub(c, entry, right):
    x, f = c.inp("in", "s32", 256, randint(-99, 99, 2204)), c.inp("flags", "u8", 64, choice([0, 0, 0, 1], 2205))
    s, o, a = c.out("sums", "s32", 64), c.out("sorted", "s32", 256), c.out("far", "s32", 64)
    v = x.data.astype(int)
    heads = [t for t in range(64) if t % 16 == 0 or f.data[t]] + [64]
    r = [-1] * 64
    for p, q in zip(heads, heads[1:]):
        r[p] = int(v[p * 4:q * 4:4].sum())
    s.expect(r)
    w = np.sort(v.reshape(2, 128), axis=1).reshape(-1)
    o.expect(w)
    a.expect([int(w[(t - 3) * 4]) if t >= 3 else -7 for t in range(64)])
    c.launch(entry, 1, 64, [x, f, s, o, a])


@kind("reduced_twice_good", {"reduced_twice_at_once": dict(cls="race.shared", ops=["st.shared", "ld.shared"])})
def reduced_twice(c, entry, right):
    x, o = c.inp("in", "s32", 192, randint(0, 99, 2206)), c.out("out", "s32", 192)
    if right:
        v = x.data.reshape(2, 96).astype(int)
        o.expect(v.sum(1, keepdims=True) * 1000 + v.max(1, keepdims=True) - v)
    c.launch(entry, 2, 96, [x, o])
