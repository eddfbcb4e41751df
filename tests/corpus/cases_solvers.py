# SPDX-License-Identifier: Apache-2.0
"""Factorisations, solvers, searches and scans; some with one thing wrong."""
import functools

import numpy as np

from corpus_lib import *

solver = functools.partial(twins, "solvers.cu")
S = ["st.shared", "ld.shared"]
FLAGS = dict(cls="race.global", also=["race.scope"], ops=["ld.global", "st.global", "ld.volatile.global", "ld.relaxed", "st.relaxed"])


@solver("cholesky_good", {"trailing_too_soon": dict(cls="race.shared", ops=S)})
def cholesky(c, entry, right):
    n = 20
    r = np.random.default_rng(1001).integers(-4, 5, (n, n)).astype(float)
    m = r @ r.T + 20 * np.eye(n)
    a, o = c.given("a", "f32", m.reshape(-1)), c.out("l", "f32", n * n)
    if right:
        o.expect(np.linalg.cholesky(m), abs=2e-4, rel=1e-4)
    c.launch(entry, 1, 64, [a, o, i32("n", n)], smem=4 * n * (n + 1))


@solver("householder")
def householder(c, entry, right):
    rows, cols = 40, 16
    a, o = c.inp("a", "f32", rows * cols, grid(-32, 32, 8, 1002)), c.out("r", "f32", cols * cols)
    m = a.f.reshape(rows, cols).copy()
    for k in range(cols):
        v = m[k:, k].copy()
        v[0] += np.linalg.norm(v) * (1 if v[0] > 0 else -1)
        m[k:] -= np.outer(v, 2 * (v @ m[k:]) / (v @ v))
    o.expect(np.triu(m[:cols]), abs=5e-4, rel=1e-4)
    c.launch(entry, 1, 128, [a, o, i32("rows", rows), i32("cols", cols)])


@solver("triangular_good", {"triangular_no_fence": dict(buffer="x", **FLAGS)})
def triangular(c, entry, right):
    n, g = 24, np.random.default_rng(1003)
    ptr, col, val = [0], [], []
    for i in range(n):
        for j in sorted(g.choice(i, min(i, int(g.integers(0, 6))), replace=False)) if i else []:
            col.append(int(j)), val.append(int(g.integers(-2, 3)))
        ptr.append(len(col))
    p, k, v = c.given("ptr", "s32", ptr), c.given("col", "s32", col), c.given("val", "s32", val)
    b, x, f = c.inp("b", "s32", n, randint(-5, 5, 1004)), c.out("x", "s32", n), c.scratch("ready", "s32", n)
    if right:
        want = []
        for i in range(n):
            want.append(int(b.data[i]) - sum(val[e] * want[col[e]] for e in range(ptr[i], ptr[i + 1])))
        x.expect(want)
    c.launch(entry, n // 4, 128, [p, k, v, b, x, f, i32("n", n)])


@solver("align_good", {"others_run_ahead": dict(buffer="border", **FLAGS)})
def align(c, entry, right):
    rows, blocks = 48, 3
    s, t = c.inp("s", "s8", rows, choice([65, 67, 71, 84], 1005)), c.inp("t", "s8", blocks * 32, choice([65, 67, 71, 84], 1006))
    border, done, best = c.scratch("border", "s32", blocks * (rows + 1)), c.scratch("done", "s32", blocks), c.inout("best", "s32", 1, zero())
    if right:
        h = np.zeros((rows + 1, blocks * 32 + 1), int)
        for i in range(rows):
            for j in range(blocks * 32):
                h[i + 1, j + 1] = max(0, h[i, j] + (3 if s.data[i] == t.data[j] else -2), h[i, j + 1] - 1, h[i + 1, j] - 1)
        best.expect([int(h.max())])
    c.launch(entry, blocks, 32, [s, t, i32("rows", rows), border, done, best])


@solver("bellman_good", {"one_flag": dict(cls="race.global", ops=["ld.global", "st.global", "ld.volatile", "st.volatile"], buffer="changed")})
def bellman(c, entry, right):
    n, edges, g = 60, 240, np.random.default_rng(1007)
    f, t, w = [g.integers(lo, hi, edges) for lo, hi in ((0, n), (0, n), (1, 20))]
    a, b, k = c.given("from", "s32", f), c.given("to", "s32", t), c.given("weight", "s32", w)
    d = c.inout("dist", "s32", n, concat((1, fill(0)), (n - 1, fill(0x7fffffff))))
    if right:
        best = [0] + [0x7fffffff] * (n - 1)
        for _ in range(n):
            for x, y, z in zip(f, t, w):
                if best[x] != 0x7fffffff:
                    best[y] = min(best[y], best[x] + int(z))
        d.expect(best)
    c.launch(entry, 2, 64, [a, b, k, i32("edges", edges), d, c.scratch("changed", "s32", 3)], cooperative=True)


@solver("stream_k_good", {"handed_to_the_block": dict(cls="race.scope", also=["race.global"], ops=["ld.global", "st.global"], buffer="parts")})
def stream_k(c, entry, right):
    tiles_m, tiles_n, steps, blocks = 2, 2, 5, 3
    m, n, k = tiles_m * 16, tiles_n * 16, steps * 16
    a, b, o = c.inp("a", "s32", m * k, randint(-9, 9, 1008)), c.inp("b", "s32", k * n, randint(-9, 9, 1009)), c.out("c", "s32", m * n)
    if right:
        o.expect(a.data.reshape(m, k) @ b.data.reshape(k, n))
    c.launch(entry, blocks, (16, 16), [a, b, o, i32("tiles_n", tiles_n), i32("tiles", tiles_m * tiles_n), i32("steps", steps),
                                       c.scratch("parts", "s32", blocks * 256, uninit()), c.scratch("flags", "s32", blocks)])


@solver("queens_good", {"stack_too_shallow": dict(cls="oob.local", ops=["st.local", "ld.local"])})
def queens(c, entry, right):
    o = c.inout("count", "u32", 1, zero())
    if right:
        o.expect([40])
    c.launch(entry, 1, 64, [i32("n", 7), o])


@solver("machine_good", {"whole_warp_of_four": dict(cls="sync.mask", also=["deadlock"], ops=["shfl"])})
def machine(c, entry, right):
    n = 300
    text = c.inp("text", "u8", n, bits(1010))
    rows = np.random.default_rng(1011).integers(0, 4, (4, 4))
    table = c.given("table", "u32", [int(sum(int(rows[s, q]) << 8 * q for q in range(4))) for s in range(4)])
    o = c.out("states", "u8", n)
    if right:
        want, state = [], 0
        for i in range(n):
            state = int(rows[text.data[i] & 3, 0 if i % 128 == 0 else state])
            want.append(state)
        o.expect(want)
    c.launch(entry, 3, 128, [text, table, o, i32("n", n)])


@solver("life_good", {"life_no_wrap": dict(cls="oob.global", ops=["ld.global"], buffer="in")})
def life(c, entry, right):
    rows = 10
    x, o = c.inp("in", "u32", rows * 32, bits(1012)), c.out("out", "u32", rows * 32)
    if right:
        cells = np.array([[int(x.data[r * 32 + i // 32]) >> i % 32 & 1 for i in range(1024)] for r in range(rows)])
        near = sum(np.roll(np.roll(cells, dy, 0), dx, 1) for dy in (-1, 0, 1) for dx in (-1, 0, 1)) - cells
        new = (near == 3) | (cells & (near == 2))
        o.expect([int(sum(int(b) << i for i, b in enumerate(new[r, w * 32:w * 32 + 32]))) for r in range(rows) for w in range(32)])
    c.launch(entry, 3, 128, [x, o, i32("rows", rows)])


@solver("route_good", {"experts_not_cleared": dict(cls="uninit.shared", ops=["atom.shared", "red.shared", "ld.shared"])})
def route(c, entry, right):
    tokens = 40
    x = c.inp("logits", "f32", tokens * 16, perm(1013))
    e, p, s = c.out("experts", "s32", tokens * 2), c.out("places", "s32", tokens * 2), c.out("starts", "s32", 17)
    if right:
        best = np.argsort(-x.f.reshape(tokens, 16), axis=1)[:, :2]
        e.expect(best)
        p.expect(np.argsort(best.reshape(-1), kind="stable"), multiset=True)
        s.expect([0] + list(np.cumsum(np.bincount(best.reshape(-1), minlength=16))))
    c.launch(entry, 1, 128, [x, i32("tokens", tokens), e, p, s])


def quantised_case(name, pitch_more, bad):
    def build():
        c = Case(name, src="solvers.cu")
        c.only = "quantised"
        if bad:
            c.broken("misaligned", ops=["ld.global"], buffer="w")
        k, rows = 1024, 8
        pitch = k // 8 + pitch_more
        w, s = c.inp("w", "u32", rows * pitch, bits(1014)), c.inp("scales", "f16", rows * k // 64, choice([0.25, 0.5, 1, 2], 1015))
        x, y = c.inp("x", "f16", k, randint(-4, 4, 1016)), c.out("y", "f32", rows)
        if not bad:
            q = np.array([[int(w.data[r * pitch + i // 8]) >> 4 * (i % 8) & 15 for i in range(k)] for r in range(rows)]) - 8.0
            y.expect((q * np.repeat(s.f.reshape(rows, -1), 64, 1)) @ x.f)
        c.launch("quantised", 2, 128, [w, s, x, y, i32("k", k), i32("pitch", pitch)], smem=2 * k)
        return c
    build.__name__ = name
    return case(build)


quantised_case("quantised", 0, False)
quantised_case("bad_pitch_of_words", 1, True)


@solver("rotary")
def rotary(c, entry, right):
    tokens, n = 3, 144
    x, g, y = c.inp("x", "bf16", tokens * n, grid(-16, 16, 8, 1017)), c.inp("g", "bf16", n, grid(4, 12, 8, 1018)), c.out("y", "bf16", tokens * n)
    v = x.f.reshape(tokens, n)
    v = v / np.sqrt((v * v).mean(1, keepdims=True) + 1e-5) * g.f
    angle = np.arange(tokens)[:, None] * 2.0 ** (-13.287712 * 2 * np.arange(n // 2) / n)
    a, b = v[:, 0::2], v[:, 1::2]
    y.expect(np.stack([a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)], 2), abs=1e-2, rel=1e-2)
    c.launch(entry, tokens, 64, [x, g, y, i32("n", n), f32("eps", 1e-5)])


@solver("varint")
def varint(c, entry, right):
    numbers = [int(v) >> int(s) for v, s in zip(generate(bits(1019), "u32", 50), generate(randint(0, 31, 1020), "s32", 50))]
    text = []
    for v in numbers:
        while v > 127:
            text.append(v & 127 | 128)
            v >>= 7
        text.append(v)
    b, o, n = c.given("bytes", "u8", text), c.out("numbers", "u32", len(numbers)), c.out("count", "s32", 1)
    o.expect(numbers)
    n.expect([len(numbers)])
    c.launch(entry, 1, 32, [b, i32("n", len(text)), o, n])


@case
def sparse_transpose():
    c = Case("sparse_transpose", src="solvers.cu")
    c.only = r"transpose_\w+"
    rows, cols, g = 50, 40, np.random.default_rng(1021)
    m = g.integers(1, 9, (rows, cols)) * (g.random((rows, cols)) < 0.1)
    ptr = np.concatenate([[0], np.cumsum((m != 0).sum(1))])
    col, val, nnz = np.nonzero(m)[1], m[m != 0], int((m != 0).sum())
    p, k, v = c.given("ptr", "s32", ptr), c.given("col", "s32", col), c.given("val", "s32", val)
    n, tp, tr, tv = c.scratch("counts", "s32", cols), c.out("t_ptr", "s32", cols + 1), c.out("t_row", "s32", nnz), c.out("t_val", "s32", nnz)
    tp.expect(np.concatenate([[0], np.cumsum((m != 0).sum(0))]))
    tr.expect(np.nonzero(m.T)[1])
    tv.expect(m.T[m.T != 0])
    c.launch("transpose_count", 2, 64, [k, i32("nnz", nnz), n])
    c.launch("transpose_scan", 1, 32, [n, tp, i32("n", cols)])
    c.launch("transpose_scatter", 1, 64, [p, k, v, i32("rows", rows), n, tr, tv])
    c.launch("transpose_order", 2, 32, [tp, i32("n", cols), tr, tv])
    return c


@solver("kmeans_good", {"barrier_per_point": dict(cls="barrier.divergence", also=["barrier.count", "deadlock"], ops=["bar", "barrier"])})
def kmeans(c, entry, right):
    n, k = 300, 5
    p, m = c.inp("p", "f32", 2 * n, grid(-64, 64, 4, 1022)), c.inp("centres", "f32", 2 * k, grid(-64, 64, 4, 1023))
    s, t = c.inout("sums", "f32", 2 * k, zero()), c.inout("counts", "s32", k, zero())
    if right:
        x, y = p.f.reshape(n, 2), m.f.reshape(k, 2)
        at = ((x[:, None] - y[None]) ** 2).sum(2).argmin(1)
        s.expect(np.array([x[at == j].sum(0) for j in range(k)]))
        t.expect(np.bincount(at, minlength=k))
    c.launch(entry, 2, 64, [p, i32("n", n), m, i32("k", k), s, t])


@solver("gathered")
def gathered(c, entry, right):
    h, w = 8, 16
    x, f, y = c.inp("x", "f16", h * w * 16, randint(-4, 4, 1024)), c.inp("w", "f16", 9 * 256, randint(-4, 4, 1025)), c.out("y", "f32", h * w * 16)
    padded = np.pad(x.f.reshape(h, w, 16), ((1, 1), (1, 1), (0, 0)))
    y.expect(sum(padded[t // 3:t // 3 + h, t % 3:t % 3 + w] @ f.f.reshape(9, 16, 16)[t] for t in range(9)))
    c.launch(entry, 2, 128, [x, f, y, i32("height", h), i32("width", w)])


@solver("three_warps_good", {"middle_without_fence": dict(cls="race.shared", ops=S)})
def three_warps(c, entry, right):
    n = 2
    x, o = c.inp("in", "s32", n * 32, randint(-50, 50, 1026)), c.out("out", "s32", n * 32)
    if right:
        i = np.arange(32)
        o.expect(np.concatenate([3 * r[i ^ 3] + 1 - i for r in x.data.reshape(n, 32)]))
    c.launch(entry, 1, 96, [x, o, i32("n", n)])
