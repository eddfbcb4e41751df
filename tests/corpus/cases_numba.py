# SPDX-License-Identifier: Apache-2.0
"""Kernels as Numba compiles them, beside twins with one slip each."""
import functools

import numpy as np

from corpus_lib import *

ONE, TWO = ("80", ), ("75", "90")
kind = functools.partial(python_twins, "numba")
OOB = dict(cls="oob.global", ops=["ld.global", "st.global"])
SHARED = dict(cls="race.shared", ops=["ld.shared", "st.shared"])
FAR = dict(cls="oob.shared", also=["uninit.shared"], ops=["ld.shared", "st.shared"])
UNINIT = dict(cls="uninit.shared", ops=["ld.shared"])
RACE = dict(cls="race.global", also=["race.flag", "race.scope", "race.same_value"], ops=["ld.global", "st.global"])
FLAG = dict(cls="race.flag", also=["race.global", "race.scope"], ops=["ld.global", "st.global"])


@kind("block_sums", TWO, {"uncleared": UNINIT, "no_first_barrier": SHARED, "no_barrier": SHARED, "barrier_of_some": dict(cls="barrier.divergence", also=["deadlock", "race.shared"])})
def block_sums(c, slip):
    x, o = c.inp("x", "s32", 300, randint(-99, 99, 3101)), c.out("o", "s32", 3)
    o.expect(np.pad(x.data, (0, 84)).reshape(3, 128).sum(1))
    c.numba("block_sums", slip, 3, 128, [x, o, i32("n", 300)])


@kind("transposed", TWO, {"no_barrier": SHARED, "wrong_limits": OOB, "no_limits": OOB})
def transposed(c, slip):
    x, o = c.inp("x", "f32", 40 * 24, grid(-8, 8, 16, 3102)), c.out("o", "f32", 40 * 24)
    o.expect(x.f.reshape(40, 24).T.reshape(-1))
    c.numba("transposed", slip, (2, 3), (16, 16), [(x, (40, 24)), (o, (24, 40))])


@kind("product", TWO, {"no_first_barrier": SHARED, "no_second_barrier": SHARED, "one_too_far": FAR, "wrong_column": OOB})
def product(c, slip):
    a, b, o = c.inp("a", "f32", 576, grid(-2, 2, 4, 3103)), c.inp("b", "f32", 576, grid(-2, 2, 4, 3104)), c.out("c", "f32", 576)
    o.expect(a.f.reshape(24, 24) @ b.f.reshape(24, 24))
    c.numba("product", slip, (3, 3), (8, 8), [(a, (24, 24)), (b, (24, 24)), (o, (24, 24)), i32("n", 24)])


@kind("binned", TWO, {"half_cleared": dict(UNINIT, ops=[]), "no_barrier": dict(SHARED, ops=[]), "not_atomic": SHARED, "global_not_atomic": RACE})
def binned(c, slip):
    x, o = c.inp("x", "s32", 500, randint(0, 999, 3105)), c.inout("o", "s32", 32, zero())
    o.expect(np.bincount(x.data % 32, minlength=32))
    c.numba("binned", slip, 2, 64, [x, o, i32("n", 500)])


@kind("scanned", TWO, {"one_buffer": SHARED, "not_copied": UNINIT, "no_barrier": SHARED})
def scanned(c, slip):
    x, o = c.inp("x", "s32", 128, randint(-99, 99, 3106)), c.out("o", "s32", 128)
    o.expect(np.cumsum(x.data.reshape(2, 64), 1))
    c.numba("scanned", slip, 2, 64, [x, o])


@kind("heat", TWO, {"no_right_halo": UNINIT, "no_barrier": SHARED})
def heat(c, slip):
    x, o = c.inp("x", "f32", 150, grid(-8, 8, 16, 3107)), c.out("o", "f32", 150)
    p = np.pad(x.f, 1)
    o.expect(p[:-2] - 2 * p[1:-1] + p[2:])
    c.numba("heat", slip, 3, 64, [x, o, i32("n", 150)])


@kind("warp_sums", TWO, {"under_condition": dict(cls="sync.mask", also=["deadlock"], ops=["shfl.sync"]), "not_atomic": RACE})
def warp_sums(c, slip):
    x, o = c.inp("x", "s32", 150, randint(-99, 99, 3108)), c.inout("o", "s32", 1, zero())
    o.expect([int(x.data.sum())])
    c.numba("warp_sums", slip, 3, 64, [x, o, i32("n", 150)])


@kind("last_block", TWO, {"no_fence": FLAG, "fence_of_block": FLAG, "no_barrier": SHARED})
def last_block(c, slip):
    x, p, n, o = c.inp("x", "s32", 192, randint(-99, 99, 3109)), c.scratch("parts", "s32", 3, zero()), c.scratch("count", "s32", 1, zero()), c.out("o", "s32", 1)
    o.expect([int(x.data.sum())])
    c.numba("last_block", slip, 3, 64, [x, p, n, o])


@kind("locked", TWO, {"no_lock": RACE, "no_fences": FLAG, "plain_unlock": RACE})
def locked(c, slip):
    x, l, o = c.inp("x", "s32", 5, randint(1, 99, 3110)), c.scratch("lock", "s32", 1, zero()), c.inout("o", "s32", 2, zero())
    o.expect([int(x.data.sum()), int(x.data.max())])
    c.numba("locked", slip, 5, 32, [x, l, o])


@kind("bitonic", TWO, {"no_barrier": SHARED, "both_swap": SHARED})
def bitonic(c, slip):
    x, o = c.inp("x", "s32", 128, randint(-999, 999, 3111)), c.out("o", "s32", 128)
    o.expect(np.sort(x.data))
    c.numba("bitonic", slip, 1, 128, [x, o])


@kind("compacted", TWO, {"not_atomic": RACE, "off_by_one": dict(OOB, also=["race.global"])})
def compacted(c, slip):
    x, n = c.inp("x", "s32", 150, randint(-99, 99, 3112)), c.inout("count", "s32", 1, zero())
    kept = x.data[x.data > 0]
    o = c.out("o", "s32", len(kept))
    o.expect(kept, multiset=True)
    n.expect([len(kept)])
    c.numba("compacted", slip, 3, 64, [x, o, n, i32("n", 150)])


@kind("bodies", TWO, {"no_first_barrier": dict(SHARED, also=["uninit.shared"]), "no_second_barrier": SHARED})
def bodies(c, slip):
    p, f = c.inp("p", "f32", 128, grid(-2, 2, 4, 3113)), c.out("f", "f32", 128)
    v = p.f.reshape(64, 2)
    d = v[None] - v[:, None]
    f.expect(((d**2).sum(2, keepdims=True) * d).sum(1), abs=1e-3, rel=1e-5)
    c.numba("bodies", slip, 2, 32, [(p, (64, 2)), (f, (64, 2)), i32("n", 64)])


@kind("life", TWO, {"no_wrap": OOB, "in_place": RACE})
def life(c, slip):
    x, o = c.inout("x", "s32", 20 * 24, randint(0, 1, 3114)), c.out("o", "s32", 20 * 24)
    v = x.data.reshape(20, 24)
    s = sum(np.roll(v, (a, b), (0, 1)) for a in (-1, 0, 1) for b in (-1, 0, 1)) - v
    o.expect(((s == 3) | ((s == 2) & (v == 1))).astype(int))
    c.numba("life", slip, (3, 3), (8, 8), [x, o, i32("h", 20), i32("w", 24)])


@kind("rows_times_vector", TWO, {"all_rows": OOB, "one_too_far": OOB})
def rows_times_vector(c, slip):
    start = [0, 2, 2, 5, 9, 10]
    s, i = c.given("start", "s32", start), c.given("column", "s32", [0, 3, 1, 2, 4, 0, 1, 2, 3, 4])
    v, x, o = c.inp("value", "s32", 10, randint(-9, 9, 3115)), c.inp("x", "s32", 5, randint(-9, 9, 3116)), c.out("o", "s32", 5)
    t = v.data * x.data[i.data]
    o.expect([int(t[a:b].sum()) for a, b in zip(start, start[1:])])
    c.numba("rows_times_vector", slip, 1, 32, [s, i, v, x, o, i32("rows", 5)])


@kind("digits", TWO, {"one_too_far": dict(cls="oob.local", also=["uninit.local"])})
def digits(c, slip):
    x, o = c.inp("x", "s32", 64, randint(0, 99999999, 3117)), c.out("o", "s32", 64)

    def most(v):
        n = [0] * 10
        while v:
            n[v % 10] += 1
            v //= 10
        return n.index(max(n))
    o.expect([most(int(v)) for v in x.data])
    c.numba("digits", slip, 1, 64, [x, o])


@kind("dynamic", TWO, {"beyond": FAR, "no_barrier": dict(SHARED, also=["uninit.shared"])})
def dynamic(c, slip):
    x, o = c.inp("x", "s32", 128, randint(-99, 99, 3118)), c.out("o", "s32", 128)
    o.expect(x.data.reshape(2, 64)[:, ::-1] + (np.arange(64) + 1) % 64)
    c.numba("dynamic", slip, 2, 64, [x, o], smem=512)


@kind("escape", TWO, {"rows_unchecked": OOB})
def escape(c, slip):
    o = c.out("o", "s32", 20 * 40)
    r, k = np.mgrid[0:20, 0:40]
    p, q = (k / 16 - 1.5).astype(np.float32), (r / 8 - 1).astype(np.float32)
    x, y, n = np.zeros_like(p), np.zeros_like(p), np.zeros((20, 40), int)
    for _ in range(4):
        go = x * x + y * y < 4
        x, y = np.where(go, x * x - y * y + p, x), np.where(go, 2 * x * y + q, y)
        n += go
    o.expect(n)
    c.numba("escape", slip, (3, 3), (16, 8), [(o, (20, 40)), i32("w", 40), i32("h", 20), i32("most", 4)])


@kind("ring", TWO, {"no_first_barrier": SHARED, "no_second_barrier": SHARED})
def ring(c, slip):
    x, o = c.inp("x", "s32", 128, randint(-99, 99, 3119)), c.out("o", "s32", 128)
    o.expect(x.data.reshape(4, 32)[:, ::-1])
    c.numba("ring", slip, 1, 64, [x, o, i32("n", 4)])
