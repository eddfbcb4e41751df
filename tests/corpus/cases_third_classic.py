# SPDX-License-Identifier: Apache-2.0
"""Classic CUDA in idioms that the other files lack, and slips in them."""
import functools
import struct

import numpy as np

from corpus_lib import *

kind = functools.partial(twins, "third_classic.cu")
S = ["st.shared", "ld.shared"]
G = ["st.global", "ld.global"]


@kind("one_sweep")
def one_sweep(c, entry, right):
    n, shift = 128 * 6, 8
    x = c.inp("in", "u32", n, bits(2101))
    d = x.data >> shift & 15
    start = np.concatenate([[0], np.cumsum(np.bincount(d, minlength=16))[:-1]])
    o = c.out("out", "u32", n)
    o.expect(x.data[np.argsort(d, kind="stable")])
    c.launch(entry, 6, 128, [x, o, c.given("start", "u32", start), c.scratch("state", "u32", 96), c.scratch("ticket", "u32", 1), i32("shift", shift)])


@kind("handshake_good", {"handshake_no_fence": dict(cls="race.global", ops=G, buffer="mail")})
def handshake(c, entry, right):
    x, m, f, o = c.inp("in", "s32", 128, randint(-99, 99, 2102)), c.scratch("mail", "s32", 128, uninit()), c.scratch("flag", "s32", 2), c.out("out", "s32", 128)
    if right:
        o.expect((x.data.reshape(2, 64) * 7)[:, ::-1])
    c.launch(entry, 4, 64, [x, m, f, o])


@kind("opportunists")
def opportunists(c, entry, right):
    n = 150
    x = c.inp("in", "s32", n, randint(0, 255, 2103))
    made = []
    for i, v in enumerate(int(v) for v in x.data):
        while v > 0:
            if v & 1:
                made.append(v * 1000 + i)
            v >>= 2
    o, m = c.out("out", "s32", len(made)), c.inout("next", "s32", 1, zero())
    o.expect(made, multiset=True)
    m.expect([len(made)])
    c.launch(entry, 2, 64, [x, i32("n", n), o, m])


@kind("distinct")
def distinct(c, entry, right):
    pool = [int(v) for v in splitmix(2104, 9)]
    k = [pool[int(v) % 9] for v in splitmix(2105, 64)] + [pool[3]] * 32
    x, o, a = c.given("in", "u64", k), c.out("out", "u32", 96), c.out("alike", "s32", 96)
    r = []
    for w in range(3):
        row = k[w * 32:w * 32 + 32]
        r += [row.count(v) if v % 5 and row.index(v) == i else 0 for i, v in enumerate(row)]
    o.expect(r)
    a.expect([0] * 64 + [1] * 32)
    c.launch(entry, 1, 96, [x, o, a])


@kind("own_masks")
def own_masks(c, entry, right):
    x, o = c.inp("in", "s32", 64, randint(0, 60, 2106)), c.out("out", "s32", 64)
    r = []
    for w in x.data.astype(int).reshape(2, 32):
        low = [int(w[:16].sum())] * 16
        old = low[:4]
        for i in range(4):
            low[i] = old[i] ^ (old[i + 1] + i + 1 if i < 3 else old[i] + i)
        high = w[16:].copy()
        odd = int((high & 1).sum())
        while (high > 10).any():
            high = np.where(high > 10, high - 7, high)
        r += low + [int(high[i - 3] if i >= 3 else high[i]) + odd for i in range(16)]
    o.expect(r)
    c.launch(entry, 1, 64, [x, o])


@case
def own_masks_90():
    c = Case("own_masks_90", target="90", src="third_classic.cu")
    c.only = "own_masks"
    own_masks(c, "own_masks", True)
    return c


@kind("recursive")
def recursive(c, entry, right):
    x, o = c.inp("in", "s32", 32, randint(0, 30, 2107)), c.out("out", "u32", 128)
    r = []

    def moves(n, a, b, cc, st):
        if n:
            moves(n - 1, a, cc, b, st)
            st[0] = (st[0] * 31 + a * 3 + cc) & 0xffffffff
            st[1] += 1
            moves(n - 1, b, a, cc, st)

    def ack(m, n):
        return n + 1 if m == 0 else ack(m - 1, 1) if n == 0 else ack(m - 1, ack(m, n - 1))
    for v in (int(v) for v in x.data):
        st = [1, 0]
        moves(v % 5, 0, 1, 2, st)
        r += [st[1], st[0], int(v % 2 == 0), ack(v % 3, v % 4)]
    o.expect(r)
    c.launch(entry, 1, 32, [x, o])


@kind("erased")
def erased(c, entry, right):
    x, o = c.inp("in", "s32", 64, randint(-50, 50, 2108)), c.out("out", "s32", 64)
    v = [int(k) for k in x.data]
    r = []
    for i in range(64):
        j = (i * 7 + 3) % 64
        a, b = v[j], v[63 - j]
        r.append([i * a, i + a - b, i if a > b else -i][j % 3])
    o.expect(r)
    c.launch(entry, 1, 64, [x, o])


@kind("diamond")
def diamond(c, entry, right):
    x, o = c.inp("in", "s32", 16, randint(1, 40, 2109)), c.out("out", "s32", 32)
    v = [int(k) for k in x.data]
    value = [v[i] * v[i + 8] + i if i % 2 else v[i] * 3 for i in range(8)]
    extra = [v[i] * 2 + v[i + 8] * 3 if i % 2 else 5 for i in range(8)]
    o.expect([value[i % 8] * 100 + extra[(i + 1) % 8] + (i + 2) % 8 for i in range(32)])
    c.launch(entry, 1, 32, [x, o])


@kind("heaps")
def heaps(c, entry, right):
    x, o = c.inp("in", "s32", 64 * 21, randint(-999, 999, 2110)), c.out("out", "s32", 64 * 21)
    o.expect(np.sort(x.data.reshape(64, 21), axis=1))
    c.launch(entry, 1, 64, [x, o, i32("per", 21)])


@kind("said")
def said(c, entry, right):
    x, o = c.inp("in", "s32", 8, randint(0, 99, 2111)), c.out("out", "s32", 8)
    o.expect([7 + (0 if v <= 50 else 0) for v in x.data])
    c.launch(entry, 1, 8, [x, o])


@case
def cuckoo():
    c = Case("cuckoo")
    n, size = 150, 199
    k = c.given("keys", "u32", sorted({int(v) & 0xffffffff for v in splitmix(2112, n)}, key=lambda v: v * 7919 % 65537))
    t, l, o = c.scratch("table", "u64", 2 * size), c.inout("lost", "s32", 1, zero()), c.out("out", "s32", n)
    o.expect(np.arange(n))
    l.expect([0])
    c.launch("cuckoo_put", 3, 64, [k, i32("n", n), t, u32("size", size), l])
    c.launch("cuckoo_get", 3, 64, [k, i32("n", n), t, u32("size", size), o])
    return c


@kind("red_black_good", {"red_black_no_corners": dict(cls="uninit.shared", ops=["ld.shared"]),
                         "red_black_by_warp": dict(cls="race.shared", ops=S)})
def red_black(c, entry, right):
    w, h, rounds = 40, 25, 2
    x, o = c.inp("in", "f32", w * h, randint(-64, 64, 2113)), c.out("out", "f32", w * h)
    if right:
        a = x.f.reshape(h, w)
        r = np.zeros((h, w))
        big = np.zeros((h + 64, w + 64))
        big[1:h + 1, 1:w + 1] = a
        for y0 in range(0, h, 16):
            for x0 in range(0, w, 16):
                s = big[y0:y0 + 18, x0:x0 + 18].copy()
                yy, xx = np.mgrid[0:16, 0:16]
                for _ in range(rounds):
                    for colour in range(2):
                        n = 0.25 * (s[:-2, 1:-1] + s[2:, 1:-1] + s[1:-1, :-2] + s[1:-1, 2:])
                        s[1:-1, 1:-1] = np.where((xx + yy) % 2 == colour, n, s[1:-1, 1:-1])
                v = s[1:-1, 1:-1] + s[:-2, :-2] - s[2:, 2:]
                r[y0:y0 + 16, x0:x0 + 16] = v[:h - y0, :w - x0]
        o.expect(r)
    c.launch(entry, (3, 2), (16, 16), [x, o, i32("w", w), i32("h", h), i32("rounds", rounds)])


@kind("product_good", {"product_one_barrier": dict(cls="race.shared", ops=S)})
def product(c, entry, right):
    m, n, k = 37, 29, 53
    a, b, o = c.inp("a", "f32", m * k, randint(-4, 4, 2114)), c.inp("b", "f32", n * k, randint(-4, 4, 2115)), c.out("c", "f32", m * n)
    if right:
        o.expect(a.f.reshape(m, k) @ b.f.reshape(n, k).T)
    c.launch(entry, (2, 3), (16, 16), [a, b, o, i32("m", m), i32("n", n), i32("k", k)])


@kind("greatest")
def greatest(c, entry, right):
    n = 300
    x, o = c.inp("in", "s32", 2 * n, randint(0, 99999, 2116)), c.out("out", "s32", 64)
    o.expect(np.sort(x.data.reshape(2, n), axis=1)[:, ::-1][:, :32].copy())
    c.launch(entry, 2, 128, [x, i32("n", n), o])


@kind("packed_structs")
def packed_structs(c, entry, right):
    n = 50
    rows = [(int(v) & 127, int(v >> np.uint64(8)) & 0xffffff, (int(v >> np.uint64(40)) - 99999) / 8) for v in splitmix(2117, n)]
    x = c.given("in", "u8", list(b"".join(struct.pack("<bid", *r) for r in rows)))
    o = c.out("out", "u8", n * 13)
    after = [(k, a + 1 if k % 2 else a ^ 0x55, b * 2 + k) for k, a, b in rows]
    o.expect(list(b"".join(struct.pack("<bid", *r) for r in reversed(after))))
    c.launch(entry, 1, 64, [x, o, i32("n", n)])


@kind("scaled_good", {"scaled_rounded_up": dict(cls="oob.global", ops=["ld.global", "st.global"])})
def scaled(c, entry, right):
    n = 535
    x, o, a = c.inp("in", "f32", n, randint(0, 99, 2118)), c.out("out", "f32", n), c.out("any", "s32", 2)
    if right:
        o.expect(x.f * 2)
        big = [0, 0]
        for b in range(2):
            for t in range(64):
                big[b] += any(x.f[4 * i] > 90 for i in range(b * 64 + t, n // 4, 128))
        a.expect([v + 3000 for v in big])
    c.launch(entry, 2, 64, [x, o, i32("n", n), a])


def slip(entry, cls, grid, block, make, smem=0, **more):
    def build():
        c = Case("bad_" + entry, src="third_classic.cu")
        c.only = entry
        c.broken(cls, **more)
        c.launch(entry, grid, block, make(c), smem=smem)
        return c
    build.__name__ = "bad_" + entry
    case(build)


slip("last_warp_in_step", "race.shared", 1, 128, lambda c: [c.inp("in", "s32", 128, iota()), c.out("out", "s32", 1)], ops=S)
slip("two_buffers_wrong_turn", "race.shared", 1, 64, lambda c: [c.inp("in", "s32", 64 * 6, iota()), c.out("out", "s32", 64), i32("rounds", 6)], ops=S)
slip("smoothed_in_place", "race.global", 4, 64, lambda c: [c.inout("a", "f32", 250, iota()), i32("n", 250)], ops=G, buffer="a")
slip("any_parent", "race.global", 2, 64, lambda c: [c.inp("edges", "s32", 240, concat(
    *[(2, values([k % 10, 10 + k * 7 % 13])) for k in range(120)])), i32("n", 120), c.inp("level", "s32", 23, concat((10, fill(1)), (13, fill(-1)))),
    c.inout("parent", "s32", 23, fill(-1))], ops=["st.global"], buffer="parent")
slip("look_back_two_words", "race.global", 5, 32, lambda c: [c.inp("in", "s32", 160, iota()), c.scratch("value", "s32", 5, uninit()), c.scratch("status", "s32", 5),
                                                            c.out("out", "s32", 160)], ops=G, buffer="value")
slip("blurred", "oob.global", (2, 2), (16, 16), lambda c: [c.inp("in", "u8", 30 * 20, bits(2119)), c.out("out", "u8", 600), i32("w", 30), i32("h", 20)],
     ops=["ld.global"], buffer="in")
slip("dynamic_two_arrays", "oob.shared", 1, 64, lambda c: [c.inp("in", "f32", 64, iota()), c.out("out", "f32", 64), i32("n", 64)], smem=256, ops=S)
slip("column_of_tile", "oob.shared", 1, (16, 16), lambda c: [c.inp("in", "f32", 256, iota()), c.out("out", "f32", 256)], ops=["ld.shared"])
slip("stack_of_values", "oob.local", 1, 32, lambda c: [c.inp("in", "u8", 32 * 20, bits(2120)), c.out("out", "s32", 32), i32("n", 20)], ops=["st.local", "ld.local"])
slip("sum_of_seventy", "uninit.shared", 1, 70, lambda c: [c.inp("in", "s32", 70, iota()), c.out("out", "s32", 1)], ops=["ld.shared"])
slip("added_to_nothing", "uninit.global", 1, 40, lambda c: [c.inp("in", "s32", 200, iota()), c.out("out", "s32", 40), i32("rows", 5), i32("cols", 40)],
     ops=["ld.global"], buffer="out")
slip("wide_from_bytes", "misaligned", 1, 32, lambda c: [c.inp("in", "u8", 260, bits(2121)), c.out("out", "f64", 32)], ops=["ld.shared"])
slip("copy_from_half", "misaligned", 1, 32, lambda c: [c.inp("in", "f32", 130, iota()), c.out("out", "f32", 32)], ops=["cp.async"], buffer="in")
slip("rounds_of_each", "barrier.divergence", 1, 32, lambda c: [c.inp("many", "s32", 32, randint(1, 4, 2122)), c.inp("in", "s32", 32, iota()), c.out("out", "s32", 32)],
     also=["deadlock"], ops=["bar", "barrier"])
slip("by_case", "barrier.divergence", 1, 64, lambda c: [c.inp("kind", "s32", 64, randint(0, 2, 2123)), c.out("out", "s32", 64)], ops=["bar", "barrier"])
slip("sum_of_tail", "sync.mask", 1, 64, lambda c: [c.inp("in", "s32", 50, iota()), i32("n", 50), c.out("out", "s32", 2)], ops=["shfl"])
slip("mask_of_others", "sync.mask", 1, 32, lambda c: [c.inp("in", "s32", 32, iota()), c.out("out", "s32", 32)], ops=["shfl"])
slip("after_you", "deadlock", 2, 32, lambda c: [c.scratch("flags", "s32", 2), c.inp("in", "s32", 32, iota()), c.out("out", "s32", 64)])
slip("barriers_crossed", "deadlock", 1, 64, lambda c: [c.inp("in", "s32", 64, iota()), c.out("out", "s32", 64)], ops=["bar", "barrier"])
slip("row_times_pitch", "oob.global", 2, 32, lambda c: [c.inp("in", "s32", 4000, iota()), c.out("out", "s32", 64), i32("pitch", 100000)], ops=["ld.global"])
slip("sorted_across", "race.global", 2, 32, lambda c: [c.inout("a", "s32", 128, perm(2124)), i32("n", 128), i32("rounds", 8)], ops=G, buffer="a")
slip("bins_read_at_once", "race.shared", 1, 64, lambda c: [c.inp("in", "u8", 500, bits(2125)), c.out("out", "s32", 64), i32("n", 500)], ops=["ld.shared", "atom.shared", "red.shared"])
