# SPDX-License-Identifier: Apache-2.0
"""Cooperative groups and libcu++ in further idioms."""
import functools

import numpy as np

from corpus_lib import *

kind = functools.partial(twins, "third_groups.cu")
hopper = functools.partial(twins, "third_groups.cu", target="90")


@kind("power_good", {"power_one_sync": dict(cls="race.global", ops=["ld.global", "st.global"], buffer="x")})
def power(c, entry, right):
    n, steps = 200, 4
    x, y, m = c.inout("x", "f64", n, randint(-9, 9, 2001)), c.scratch("y", "f64", n, uninit()), c.inout("norm", "f64", steps, zero())
    if right:
        v, norms = x.data.copy(), []
        for _ in range(steps):
            p = np.pad(v, 1)
            w = 2 * v - p[:-2] - p[2:]
            norms.append((w * w).sum())
            v = w * (0.25 if norms[-1] > 1000 else 0.5)
        x.expect(v)
        m.expect(np.array(norms))
    c.launch(entry, 3, 64, [x, y, m, i32("n", n), i32("steps", steps)], cooperative=True)


@kind("tiles_of_eight")
def tiles_of_eight(c, entry, right):
    x, o = c.inp("in", "s32", 128, randint(0, 99, 2002)), c.out("out", "s32", 128)
    r = []
    for k, t in enumerate(x.data.reshape(-1, 8).astype(int)):
        if k % 3 == 1:
            m = t.max()
            r += [m + 1000 if m > 90 else m] * 8
        elif k % 3 == 2:
            b = sum(int(v & 1) << i for i, v in enumerate(t))
            r += [int((t % 3 == v % 3).sum()) * 100 + b for v in t]
        else:
            s = np.cumsum(t)
            r += [int(s[i] + (s[i - 2] if i >= 2 else s[i])) for i in range(8)]
    o.expect(r)
    c.launch(entry, 1, 128, [x, o])


@kind("found_by_groups")
def found_by_groups(c, entry, right):
    n = 700
    x = c.inp("in", "s32", n, randint(0, 500, 2003))
    hits = [int(v) for v in x.data if v % 3 == 0]
    o, m, s = c.out("out", "s32", len(hits)), c.inout("many", "s32", 1, zero()), c.inout("sums", "s32", 4, zero())
    o.expect(hits, multiset=True)
    m.expect([len(hits)])
    s.expect([sum(v for v in hits if v & 3 == k) for k in range(4)])
    c.launch(entry, 2, 96, [x, i32("n", n), o, m, s])


@kind("numbers_for_all")
def numbers_for_all(c, entry, right):
    m = c.inout("next", "u32", 1, zero())
    w = c.inp("want", "u8", 128, randint(0, 7, 2004))
    made = [i * 8 + k for i in range(128) for k in range(int(w.data[i]))]
    o = c.out("out", "u32", len(made))
    o.expect(made, multiset=True)
    m.expect([len(made)])
    c.launch(entry, 2, 64, [m, o, w])


@kind("meet_in_global")
def meet_in_global(c, entry, right):
    b, o = c.scratch("board", "s32", 2 * 4 * 64, uninit()), c.out("out", "s32", 4 * 64)
    t = np.arange(64)
    one = sum((k * 100 + (t ^ 1) + r) for r in range(5) for k in range(4))
    o.expect(np.tile(one, 4))
    c.launch(entry, 4, 64, [b, o, i32("rounds", 5)], cooperative=True)


@kind("own_pipeline_good", {"own_pipeline_short": dict(cls="race.async", ops=["ld.shared", "cp.async"])})
def own_pipeline(c, entry, right):
    steps = 7
    x, o = c.inp("in", "f32", 2 * steps * 64 * 4, randint(-8, 8, 2005)), c.out("out", "f32", 128)
    if right:
        v = x.f.reshape(2, steps, 64, 4)
        s = np.zeros((2, 64))
        for k in range(steps):
            s = s * 0.5 + v[:, k, :, 0] + v[:, k, :, 1] * v[:, k, :, 2] - v[:, k, :, 3]
        o.expect(s)
    c.launch(entry, 2, 64, [x, o, i32("steps", steps)])


def copies(c, entry):
    tiles = 5
    x, o = c.inp("in", "s32", 2 * tiles * 256, randint(-99, 99, 2006)), c.out("out", "s32", 256)
    v = x.data.reshape(2, tiles, 256).astype(int)
    t = np.arange(128)
    o.expect(sum(v[:, k][:, (t * 4 + j * 37) % 256] * (j + 1) for k in range(tiles) for j in range(4)))
    c.launch(entry, 2, 128, [x, o, i32("tiles", tiles)])


@kind("block_copies")
def block_copies(c, entry, right):
    copies(c, entry)


@case
def block_copies_bulk():
    c = Case("block_copies_bulk", target="90", src="third_groups.cu")
    c.only = "block_copies"
    copies(c, "block_copies")
    return c


@kind("by_reference")
def by_reference(c, entry, right):
    n = 300
    x = c.inp("in", "s32", n, randint(-5000, 5000, 2007))
    g, l, p = c.inout("great", "s32", 1, fill(-1000000)), c.inout("least", "s32", 1, fill(1000000)), c.inout("product", "f32", 1, fill(1))
    g.expect([int(x.data.max())])
    l.expect([int(x.data.min())])
    odd = int((x.data & 1).sum())
    p.expect([2.0 ** (odd - (n - odd))])
    c.launch(entry, 3, 64, [x, i32("n", n), g, l, p])


@kind("ring_of_warps_good", {"ring_head_relaxed": dict(cls="race.shared", ops=["st.shared", "ld.shared"])})
def ring_of_warps(c, entry, right):
    n = 20
    x, o = c.inp("in", "s32", n * 32, randint(0, 999, 2008)), c.out("out", "s32", n * 32)
    if right:
        o.expect((x.data.reshape(n, 32) + np.arange(n)[:, None])[:, ::-1])
    c.launch(entry, 1, 64, [x, o, i32("n", n)])


@kind("chain_good", {"chain_of_block_fences": dict(cls="race.scope", also=["race.global"], ops=["ld.global", "st.global"], buffer="state")})
def chain(c, entry, right):
    s, f, o = c.inout("state", "s32", 64, randint(0, 9, 2009)), c.inout("flag", "s32", 1, zero()), c.out("out", "s32", 5 * 64)
    if right:
        v, rows = s.data.astype(np.int64), []
        for b in range(5):
            seen = np.roll(v, -1)
            rows.append(seen[::-1])
            v = seen * 3 + b
        s.expect(v)
        o.expect(np.array(rows))
        f.expect([5])
    c.launch(entry, 5, 64, [s, f, o])


@kind("cached")
def cached(c, entry, right):
    n = 200
    a, b, o, d = c.inp("a", "f32", n, randint(-99, 99, 2010)), c.inp("b", "f32", n, randint(-99, 99, 2011)), c.out("c", "f32", n), c.out("d", "f32", 2 * n)
    i = np.arange(n)
    x = a.f + b.f
    y = a.f[::-1] + b.f[::-1] + a.f[i // 2] + b.f[i // 3] + a.f
    o.expect(x)
    d.expect(np.concatenate([y, x - y]))
    c.launch(entry, 4, 64, [a, b, o, d, i32("n", n)])


@kind("locked_good", {"locked_by_block": dict(cls="race.scope", also=["race.global"], ops=["ld.global", "st.global", "atom"])})
def locked(c, entry, right):
    l, s, x = c.inout("lock", "s32", 1, zero()), c.inout("sum", "s32", 1, zero()), c.inp("in", "s32", 6, randint(1, 99, 2012))
    if right:
        s.expect([int(x.data.sum())])
        l.expect([0])
    c.launch(entry, 6, 32, [l, s, x])


@kind("staged_good", {"staged_released_early": dict(cls="race.async", ops=["ld.shared", "cp.async"])})
def staged(c, entry, right):
    tiles = 6
    x, o = c.inp("in", "s32", tiles * 128, randint(-9, 9, 2013)), c.out("out", "s32", 128)
    if right:
        s = np.zeros(128, int)
        for k in range(tiles):
            s = s * 3 + x.data.reshape(tiles, 128)[k, ::-1]
        o.expect(s)
    c.launch(entry, 1, 128, [x, o, i32("tiles", tiles)])


@case
def bad_left_untold():
    c = Case("bad_left_untold", src="third_groups.cu")
    c.only = "left_untold"
    c.broken("deadlock", ops=["mbarrier"])
    c.launch(c.only, 1, 64, [c.inp("in", "s32", 64, iota()), c.out("out", "s32", 64), i32("n", 40)])
    return c


@kind("through_tiles_good", {"through_halves": dict(cls="race.shared", ops=["st.shared", "ld.shared"])})
def through_tiles(c, entry, right):
    x, o = c.inp("in", "s32", 64, randint(0, 99, 2014)), c.out("out", "s32", 64)
    if right:
        o.expect(x.data[np.arange(64) ^ 31])
    c.launch(entry, 1, 64, [x, o])
