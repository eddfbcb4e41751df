# SPDX-License-Identifier: Apache-2.0
"""Scans, reductions, sorts, histograms, sparse products."""
import numpy as np

from corpus_lib import *


def tiles(x, n):
    return [x[i:i + n] for i in range(0, len(x), n)]


@case
def scan_hillis():
    c = Case("scan_hillis")
    n = 700
    x, y = c.inp("in", "u32", n, bits(1)), c.out("out", "u32", n)
    y.expect(np.concatenate([np.cumsum(t, dtype=np.uint32) for t in tiles(x.data, 256)]))
    c.launch("scan_hillis", 3, 256, [x, y, i32("n", n)])
    return c


@case
def scan_blelloch():
    c = Case("scan_blelloch")
    x, y, s = c.inp("in", "s64", 1024, randint(-10**9, 10**9, 2)), c.out("out", "s64", 1024), c.out("sums", "s64", 4)
    y.expect(np.concatenate([np.cumsum(t) - t for t in tiles(x.data, 256)]))
    s.expect([t.sum() for t in tiles(x.data, 256)])
    c.launch("scan_blelloch", 4, 128, [x, y, s], smem=8 * (256 + 8))
    return c


@case
def scan_lookback():
    c = Case("scan_lookback")
    n = 1500
    x, y = c.inp("in", "s32", n, randint(-1000, 1000, 3)), c.out("out", "s32", n)
    st, tk = c.scratch("state", "u64", 12), c.inout("ticket", "u32", 1, zero())
    tk.expect([12])
    y.expect(np.cumsum(x.data))
    c.launch("scan_lookback", 12, 128, [x, y, st, tk, i32("n", n)])
    return c


@case
def reduce_shfl():
    c = Case("reduce_shfl")
    n = 3001
    x = c.inp("in", "f32", n, grid(-64, 64, 8, 4))
    s, d = c.inout("sum", "f32", 1, fill(0.5)), c.inout("dsum", "f64", 1, zero())
    s.expect([x.f.sum() + 0.5])
    d.expect([x.f.sum()])
    c.launch("reduce_shfl", 5, 160, [x, s, d, i32("n", n)])
    return c


@case
def reduce_lastblock():
    c = Case("reduce_lastblock")
    n = 2000
    x = c.inp("in", "s32", n, randint(0, 1 << 30, 5))
    p, k, o = c.scratch("part", "s32", 7), c.inout("count", "u32", 1, zero()), c.inout("out", "s32", 1, zero())
    k.expect([0])
    o.expect([int(x.data.max()) + int(x.data[:1000].max())])
    c.launch("reduce_lastblock", 7, 128, [x, p, k, o, i32("n", n)])
    c.launch("reduce_lastblock", 7, 128, [x, p, k, o, i32("n", 1000)])
    return c


@case
def reduce_cg():
    c = Case("reduce_cg")
    n = 192
    x, y, m = c.inp("in", "s32", n, randint(-5000, 5000, 6)), c.out("out", "s32", 6 * n), c.out("meta", "u32", n)
    v = x.data
    r = np.zeros((n, 6), np.int32)
    meta = np.zeros(n, np.uint32)
    for i in range(n):
        w4, w16, w32 = v[i // 4 * 4:i // 4 * 4 + 4], v[i // 16 * 16:i // 16 * 16 + 16], v[i // 32 * 32:i // 32 * 32 + 32]
        r[i, :5] = [w4.sum(), w16.min(), w32.max(), np.bitwise_xor.reduce(w32), v[i // 16 * 16:i + 1].sum()]
        if v[i] & 1:
            odd = [j for j in range(i // 32 * 32, i // 32 * 32 + 32) if v[j] & 1]
            r[i, 5] = sum(v[j] for j in odd) * 64 + odd.index(i)
        lab = [j for j in range(i // 32 * 32, i // 32 * 32 + 32) if int(v[j]) % 2**32 % 3 == int(v[i]) % 2**32 % 3]
        meta[i] = len(lab) * 256 + lab.index(i) * 8 + (i % 64) // 4 % 8
    y.expect(r)
    m.expect(meta)
    c.launch("reduce_cg", 3, 64, [x, y, m])
    return c


@case
def redux_sync():
    c = Case("redux_sync")
    x, y = c.inp("in", "u32", 64, bits(7)), c.out("out", "u32", 9 * 64)
    r = np.zeros((64, 9), np.uint32)
    for w in range(2):
        v = x.data[32 * w:32 * w + 32]
        s = v.view(np.int32)
        sel = np.arange(32) % 3 == 1
        row = [v.sum(dtype=np.uint32), v.min(), v.max(), np.uint32(int(s.min()) & 0xffffffff), np.uint32(int(s.max()) & 0xffffffff),
               np.bitwise_and.reduce(v | 0xff), np.bitwise_or.reduce(v & 0xff00ff), np.bitwise_xor.reduce(v)]
        r[32 * w:32 * w + 32, :8] = row
        r[32 * w:32 * w + 32, 8] = np.where(sel, v[sel].sum(dtype=np.uint32), v[~sel].sum(dtype=np.uint32))
    y.expect(r)
    c.launch("redux_sync", 1, 64, [x, y])
    return c


@case
def sort_bitonic():
    c = Case("sort_bitonic")
    k, v = c.inp("key", "u32", 1024, perm(8, 2654435761)), c.inp("val", "u16", 1024, iota(7, 3))
    ok, ov = c.out("ok", "u32", 1024), c.out("ov", "u16", 1024)
    order = np.concatenate([np.argsort(k.data[:512]), 512 + np.argsort(k.data[512:])])
    ok.expect(k.data[order])
    ov.expect(v.data[order])
    c.launch("sort_bitonic", 2, 256, [k, v, ok, ov])
    return c


@case
def sort_radix():
    c = Case("sort_radix")
    n = 500
    a = c.inout("a", "u32", n, randint(0, 0xfff, 9))
    b, h = c.scratch("b", "u32", n), c.scratch("hist", "u32", 64, uninit())
    src, dst = a, b
    for shift in (0, 4, 8, 12):
        c.launch("radix_hist", 4, 128, [src, h, i32("n", n), i32("shift", shift)])
        c.launch("radix_scan", 1, 32, [h, i32("n", 64)])
        c.launch("radix_scatter", 4, 128, [src, dst, h, i32("n", n), i32("shift", shift)])
        src, dst = dst, src
    a.expect(np.sort(a.data))
    return c


@case
def sort_merge_path():
    c = Case("sort_merge_path")
    a = c.given("a", "f32", np.sort(generate(grid(-500, 500, 4, 10), "f32", 301)))
    b = c.given("b", "f32", np.sort(generate(grid(-500, 500, 4, 11), "f32", 198)))
    o = c.out("out", "f32", 499)
    o.expect(np.sort(np.concatenate([a.data, b.data])))
    c.launch("sort_merge_path", 2, 64, [a, i32("na", 301), b, i32("nb", 198), o])
    return c


@case
def sort_odd_even():
    c = Case("sort_odd_even")
    n = 101
    d, p = c.inout("data", "s16", n, randint(-3000, 3000, 12)), c.out("passes", "s32", 1)
    x, passes, changed = [int(v) for v in d.data], 0, True
    while changed:
        changed = False
        for phase in (0, 1):
            for i in range(phase, n - 1, 2):
                if x[i] > x[i + 1]:
                    x[i], x[i + 1], changed = x[i + 1], x[i], True
        passes += 1
    d.expect(x)
    p.expect([passes])
    c.launch("sort_odd_even", 1, 51, [d, i32("n", n), p], smem=2 * n)
    return c


@case
def histogram():
    c = Case("histogram")
    n = 3000
    x = c.inp("in", "u8", n, bits(13))
    a, b, m = c.inout("h0", "u32", 256, zero()), c.inout("h1", "u64", 256, fill(1)), c.inout("h2", "s32", 8, zero())
    h = np.bincount(x.data, minlength=256)
    a.expect(h)
    b.expect(h + 1)
    m.expect(np.bincount(x.data & 7, minlength=8))
    c.launch("hist_shared", 3, 192, [x, a, i32("n", n)])
    c.launch("hist_global", 3, 256, [x, b, i32("n4", n // 4)])
    c.launch("hist_match", 24, 128, [x, m, i32("n", n)])
    return c


@case
def spmv():
    c = Case("spmv")
    rows, cols = 70, 90
    lens = (splitmix(14, rows) % np.uint64(12)).astype(int)
    lens[3], lens[10] = 75, 0
    ptr = np.concatenate([[0], np.cumsum(lens)])
    nnz = int(ptr[-1])
    p, k = c.given("ptr", "s32", ptr), c.inp("col", "s32", nnz, randint(0, cols - 1, 15))
    v, x = c.inp("val", "f32", nnz, grid(-20, 20, 4, 16)), c.inp("x", "f32", cols, grid(-20, 20, 4, 17))
    y0, y1, y2 = c.out("y0", "f32", rows), c.out("y1", "f32", rows), c.out("y2", "f32", rows)
    y = np.array([np.sum(v.f[ptr[r]:ptr[r + 1]] * x.f[k.data[ptr[r]:ptr[r + 1]]]) for r in range(rows)])
    width = 11
    ec, ev = np.full((width, rows), -1), np.zeros((width, rows))
    ye = np.zeros(rows)
    for r in range(rows):
        for j in range(min(width, lens[r])):
            ec[j, r], ev[j, r] = k.data[ptr[r] + j], v.f[ptr[r] + j]
            ye[r] += ev[j, r] * x.f[ec[j, r]]
    e0, e1 = c.given("ell_col", "s32", ec.reshape(-1)), c.given("ell_val", "f32", ev.reshape(-1))
    y0.expect(y)
    y1.expect(y)
    y2.expect(ye)
    c.launch("spmv_csr_scalar", 2, 48, [p, k, v, x, y0, i32("rows", rows)])
    c.launch("spmv_csr_vector", 18, 128, [p, k, v, x, y1, i32("rows", rows)])
    c.launch("spmv_ell", 3, 32, [e0, e1, x, y2, i32("rows", rows), i32("width", width)])
    return c
