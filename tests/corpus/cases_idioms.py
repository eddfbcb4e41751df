# SPDX-License-Identifier: Apache-2.0
"""Idioms of libcu++, CUB and cooperative groups, some with one thing wrong."""
import functools

import numpy as np

from corpus_lib import *

idiom = functools.partial(twins, "idioms.cu")


@idiom("completion")
def completion(c, entry, right):
    n, rounds = 12, 2
    x, o = c.inp("in", "s32", n * rounds, randint(-50, 50, 1101)), c.out("out", "s32", n * rounds)
    s = x.data.reshape(rounds, n).sum(1)
    o.expect(np.concatenate([2 * s[:r].sum() + s[r] + np.arange(n) for r in range(rounds)]))
    c.launch(entry, 1, n, [x, o, i32("rounds", rounds)])


@idiom("moving_good", {"last_tile_unawaited": dict(cls="race.async", also=["uninit.shared"], ops=["cp.async", "ld.shared"])})
def moving(c, entry, right):
    vectors = 170
    x, o = c.inp("in", "s32", vectors * 4, randint(-50, 50, 1102)), c.out("out", "s32", 192)
    if right:
        v = np.concatenate([x.data, np.zeros(88, int)]).reshape(3, 64, 4)[:, ::-1]
        o.expect(v @ np.array([1, 2, 3, 4]))
    c.launch(entry, 1, 64, [x, o, i32("vectors", vectors)])


@case
def managed():
    c = Case("managed", src="idioms.cu")
    c.only = r"managed\w*"
    n = 100
    x, o, s = c.inp("in", "s32", n, randint(-50, 50, 1103)), c.out("out", "s32", n), c.out("sums", "s64", 5)
    w = np.array([1, -2, 3, -4, 5, -6, 7, -8])
    i = np.arange(n)
    o.expect(x.data * w[i & 7] + w[2 + i % 6])
    s.expect([int(x.data[i % 3 == r].sum()) for r in range(3)] + [n + 4, n + 5])
    c.launch("managed", 2, 64, [x, o, i32("n", n)])
    c.launch("managed_read", 1, 32, [s])
    return c


@idiom("runs")
def runs(c, entry, right):
    v, n = c.inp("values", "s32", 128, randint(-20, 20, 1104)), c.inp("lengths", "s32", 128, randint(2, 5, 1105))
    flat = np.repeat(v.data, n.data).astype(int)
    o, t = c.out("decoded", "s32", len(flat)), c.out("total", "s32", 1)
    o.expect(flat)
    t.expect([len(flat)])
    d, h, b = c.out("diffs", "s32", 256), c.out("heads", "s32", 256), c.out("bins", "u32", 79)
    f = flat[:256]
    d.expect(np.concatenate([[f[0]], f[1:] - f[:-1]]))
    h.expect([1] + [int(x != y) for x, y in zip(f[1:], f)])
    b.expect(list(np.bincount(f & 15, minlength=16)) + [int(f[4 * (k + 1)]) for k in range(63)])
    c.launch(entry, 1, 64, [v, n, o, t, d, h, b])


@idiom("latched_good", {"one_count_short": dict(cls="deadlock")})
def latched(c, entry, right):
    x, o = c.inp("in", "s32", 128, randint(-50, 50, 1106)), c.out("out", "s32", 128)
    if right:
        o.expect(5 * x.data[(np.arange(128) * 37 + 11) % 128])
    c.launch(entry, 1, 128, [x, o])


@idiom("halves_good", {"read_between": dict(cls="race.global", also=["uninit.global"], ops=["ld.global", "st.global"], buffer="mid")})
def halves(c, entry, right):
    n = 192
    x, m, o = c.inp("in", "s32", n, randint(-50, 50, 1107)), c.scratch("mid", "s32", n), c.out("out", "s32", n)
    if right:
        i = np.arange(n)
        o.expect(sum(x.data[(i + k) % n] for k in range(4)) + 2 * x.data[(i + 64) % n])
    c.launch(entry, 3, 64, [x, m, o, i32("n", n)], cooperative=True)


@idiom("shapes")
def shapes(c, entry, right):
    n = 60
    k, s = c.inp("kinds", "s32", n, randint(0, 2, 1108)), c.inp("sizes", "f32", n, grid(-40, 40, 4, 1109))
    a, p = c.out("areas", "f32", n), c.out("powers", "f32", 2 * n)
    v = s.f
    area = np.where(k.data == 0, v * v, np.where(k.data == 1, 3 * v * v, np.trunc(v) * 3))
    a.expect(area + np.where(v < 0, -1, np.sqrt(np.abs(v))), rel=1e-6, abs=1e-6)
    z = (v + 1j) ** (k.data + 1)
    p.expect(np.stack([z.real, z.imag], 1), rel=1e-6, abs=1e-4)
    c.launch(entry, 1, 64, [k, s, a, p, i32("n", n)])


@idiom("append_list_good", {"append_list_relaxed": dict(cls="race.global", ops=["ld.global", "st.global"], buffer="nodes")})
def append_list(c, entry, right):
    blocks, per = 4, 5
    nodes, nxt = c.scratch("nodes", "s32", 2 * (blocks * per), uninit()), c.scratch("next", "s32", blocks * per)
    tail, head, log = c.scratch("tail", "s32", 1), c.out("head", "s32", 1), c.out("log", "s32", (blocks - 1) * per)
    if right:
        log.expect([b * 100 + k for b in range(1, blocks) for k in range(per)], multiset=True)
    c.launch(entry, blocks, 32, [nodes, nxt, tail, head, log, i32("per", per)])
