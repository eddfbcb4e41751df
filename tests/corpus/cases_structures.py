# SPDX-License-Identifier: Apache-2.0
"""Queues, stacks, locks, tables, single-pass algorithms written by hand."""
import numpy as np

from corpus_lib import *


def entry(name, target=80, flags=(), src="structures"):
    c = Case(name, target=target, src=src + ".cu", flags=flags)
    c.only = name
    return c


@case
def treiber():
    c = entry("treiber", target=75)
    n = 90
    h, k = c.scratch("head", "u64", 1), c.scratch("next", "u32", n, uninit())
    p, o = c.out("payload", "s32", n), c.out("out", "s32", 96)
    p.expect([3 * i + 1 for i in range(n)])
    o.expect([3 * i + 1 for i in range(n)] + [0] * 6, multiset=True)
    c.launch("treiber", 3, 32, [h, k, p, o, i32("n", n)])
    return c


@case
def mpmc():
    c = entry("mpmc")
    cells = c.scratch("cells", "u32", 16, values([v for i in range(8) for v in (i, 0)]))
    t, h = c.scratch("tail", "u32", 1), c.scratch("head", "u32", 1)
    x, o = c.inp("in", "s32", 36, randint(-999, 999, 721)), c.out("out", "s32", 36)
    o.expect(x.data, multiset=True)
    c.launch("mpmc", 6, 32, [cells, u32("mask", 7), t, h, x, o, i32("per", 12)])
    return c


@case
def steal():
    c = entry("steal", target=86)
    r = c.scratch("range", "u64", 4, values([i * 12 + (i + 1) * 12 * 2**32 for i in range(4)]))
    x, o, d = c.inp("work", "s32", 48, randint(0, 99, 722)), c.out("out", "s32", 48), c.inout("done", "s32", 1, zero())

    def run(w):
        k, q = 0, w
        while k < q % 7:
            q, k = q * 3 + 1, k + 1
        return q
    v = [run(int(w)) for w in x.data]
    o.expect(v)
    d.expect([48])
    c.launch("steal", 4, 64, [r, x, o, d])
    return c


@case
def table_add():
    c = Case("table_add", src="structures.cu")
    keys = [int(k) for k in generate(randint(0, 40, 723), "u32", 150)]
    s = c.scratch("slots", "u64", 97, fill("0xffffffffffffffff"))
    k, v = c.given("keys", "u32", [q * 7919 for q in keys]), c.inp("vals", "s32", 150, randint(0, 99, 724))
    want, sums = [q * 7919 for q in range(0, 60)], {}
    for a, b in zip(keys, v.data):
        sums[a] = sums.get(a, 0) + int(b)
    w, o = c.given("wanted", "u32", want), c.out("out", "s32", 60)
    o.expect([sums.get(q, -1) for q in range(60)])
    c.launch("table_add", 3, 64, [s, u32("size", 97), k, v, i32("n", 150)])
    c.launch("table_get", 2, 32, [s, u32("size", 97), w, o, i32("n", 60)])
    return c


@case
def ticket_lock():
    c = entry("ticket_lock", target=75)
    a, s, l, k = c.scratch("next", "u32", 1), c.scratch("serving", "u32", 1), c.out("log", "s32", 24), c.inout("count", "s32", 1, zero())
    l.expect(range(24))
    k.expect([24])
    c.launch("ticket_lock", 3, 64, [a, s, l, k])
    return c


@case
def mcs_lock():
    c = entry("mcs_lock")
    t, q, s = c.scratch("tail", "s32", 1), c.scratch("q", "s32", 12, uninit()), c.inout("sum", "s32", 2, zero())
    v = 0
    for _ in range(15):
        v = v * 3 + 1
    s.expect([3 * 15, v])
    c.launch("mcs_lock", 5, 32, [t, q, s, i32("rounds", 3)])
    return c


@case
def rw_lock():
    c = entry("rw_lock")
    l, p, o = c.scratch("lock", "s32", 1), c.inout("pair", "s32", 2, zero()), c.inout("out", "s32", 4, zero())
    p.expect([6, 60])
    o.expect([0] * 4)
    c.launch("rw_lock", 4, 32, [l, p, o, i32("rounds", 6)])
    return c


@case
def seqlock():
    c = entry("seqlock")
    s, d, o = c.scratch("seq", "u32", 1), c.scratch("data", "s32", 4), c.out("out", "s32", 3)
    o.expect([50] * 3)
    c.launch("seqlock", 4, 32, [s, d, o, i32("rounds", 5)])
    return c


@case
def sense_barrier():
    c = entry("sense_barrier")
    k, s = c.scratch("count", "s32", 1), c.scratch("sense", "s32", 1)
    a, o = c.inout("a", "s32", 96, randint(-99, 99, 725)), c.inout("out", "s32", 96, zero())
    v, w = a.data.astype(np.int64), np.zeros(96, np.int64)
    for p in range(3):
        v = v * 2 + p
        w = w + v[::-1]
    a.expect(v)
    o.expect(w)
    c.launch("sense_barrier", 3, 32, [k, s, a, o, i32("phases", 3)])
    return c


@case
def compact_once():
    c = entry("compact_once", target=86)
    n = 900
    x, o, t = c.inp("in", "s32", n, randint(0, 999, 726)), c.inout("out", "s32", n, fill(-1)), c.out("total", "s32", 1)
    s, k = c.scratch("state", "u64", 8), c.scratch("ticket", "u32", 1)
    kept = [int(v) for v in x.data if v % 3]
    o.expect(kept + [-1] * (n - len(kept)))
    t.expect([len(kept)])
    c.launch("compact_once", 8, 128, [x, o, t, s, k, i32("n", n)])
    return c


@case
def build_tree():
    c = Case("build_tree", src="structures.cu")
    n = 100
    k = c.inp("keys", "s32", n, perm(727, mul=7))
    ch, nk = c.scratch("child", "s32", 2 * n + 2, fill(-1)), c.scratch("node_key", "s32", n + 1, concat((1, fill(333)), (n, uninit())))
    u, o = c.inout("used", "s32", 1, fill(1)), c.out("out", "s32", n)
    u.expect([n + 1])
    o.expect(k.data)
    c.launch("build_tree", 2, 64, [k, ch, nk, u, i32("n", n)])
    c.launch("tree_depths", 1, 128, [ch, nk, k, o, i32("n", n)])
    return c


@case
def frontier():
    c = entry("frontier")
    n, deg = 120, 4
    edges = generate(randint(0, n - 1, 728), "s32", n * deg)
    row, col = c.given("row", "s32", [deg * i for i in range(n + 1)]), c.given("col", "s32", edges)
    q = c.given("queue", "s32", list(range(0, 50)))
    level = c.inout("level", "s32", n, concat((50, zero()), (n - 50, fill(-1))))
    nx, t = c.inout("next", "s32", n, fill(-5)), c.inout("tail", "s32", 1, zero())
    found = sorted(set(int(v) for v in edges[:200] if v >= 50))
    level.expect([0] * 50 + [1 if v in found else -1 for v in range(50, n)])
    nx.expect(found + [-5] * (n - len(found)), multiset=True)
    t.expect([len(found)])
    c.launch("frontier", 2, 32, [row, col, q, i32("count", 50), level, i32("next_level", 1), nx, t])
    return c


@case
def segmented():
    c = entry("segmented", target=75)
    x, s, o = c.inp("in", "s32", 512, randint(-99, 99, 729)), c.inp("start", "u8", 512, choice([0] * 39 + [1], 730)), c.out("out", "s32", 512)
    v, acc = [], 0
    for i in range(512):
        acc = int(x.data[i]) + (0 if s.data[i] or i % 256 == 0 else acc)
        v.append(acc)
    o.expect(v)
    c.launch("segmented", 2, 256, [x, s, o])
    return c


@case
def peterson():
    c = entry("peterson")
    o = c.out("out", "s32", 1)
    o.expect([15])
    c.launch("peterson", 1, 64, [o, i32("rounds", 5)])
    return c


@case
def block_predicates():
    c = entry("block_predicates", target=75)
    x, o = c.inp("in", "s32", 256, randint(0, 99, 731)), c.out("out", "s32", 192)
    rows = []
    for b in x.data.reshape(2, 128):
        rows += [int((b > 50).sum()) * 4 + 2 * int((b >= 0).all()) + int((b == 99).any())] * 96
    o.expect(rows)
    c.launch("block_predicates", 2, 128, [x, o])
    return c
