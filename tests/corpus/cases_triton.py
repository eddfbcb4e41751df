# SPDX-License-Identifier: Apache-2.0
"""Kernels as Triton compiles them for the targets it knows, beside twins with one slip each."""
import functools

import numpy as np

from corpus_lib import *

ALL = ("75", "80", "90a", "100a", "120a")
DOT = ("75", "80", "90a", "120a")
SHIPPED = {"as_it_ships": (("100a", ), dict(cls="race.tensor_fence", ops=["tcgen05"], note="no tcgen05.fence, which PTX asks for"))}
kind = functools.partial(python_twins, "triton")
OOB = dict(cls="oob.global", ops=["ld.global", "st.global"])
RACE = dict(cls="race.global", also=["race.flag", "race.scope", "policy.result"], ops=["ld.global", "st.global"])
FLAG = dict(cls="race.flag", also=["race.global", "race.scope"], ops=["ld.global", "st.global"])
SCOPE = dict(cls="race.scope", also=["race.global", "race.flag"], ops=["ld.global", "st.global"])


@kind("add", ALL, {s: OOB for s in ("load_unmasked", "store_unmasked", "off_by_one")})
def add(c, slip):
    x, y = c.inp("x", "f32", 200, grid(-8, 8, 16, 3001)), c.inp("y", "f32", 200, grid(-8, 8, 16, 3002))
    o = c.out("o", "f32", 200)
    o.expect(x.f + y.f)
    c.triton("add", 2, [x, y, o, i32("n", 200)], B=128, SLIP=slip)


@kind("softmax", ALL, {"row_stride": OOB})
def softmax(c, slip):
    x, o = c.inp("x", "f32", 5 * 200, grid(-4, 4, 16, 3003)), c.out("o", "f32", 5 * 200)
    e = np.exp(x.f.reshape(5, 200))
    o.expect(e / e.sum(1, keepdims=True), abs=1e-6, rel=1e-5)
    c.triton("softmax", 5, [x, o, i32("n", 200), i32("stride", 200)], B=256, SLIP=slip)


@kind("layer_norm", ALL, {"weights_unmasked": OOB})
def layer_norm(c, slip):
    x, w, b = c.inp("x", "f32", 3 * 200, grid(-4, 4, 16, 3004)), c.inp("w", "f32", 200, grid(-2, 2, 16, 3005)), c.inp("b", "f32", 200, grid(-2, 2, 16, 3006))
    o, mean, rstd = c.out("o", "f32", 600), c.out("mean", "f32", 3), c.out("rstd", "f32", 3)
    v = x.f.reshape(3, 200)
    m, r = v.mean(1, keepdims=True), 1 / np.sqrt(v.var(1, keepdims=True) + 1e-5)
    o.expect((v - m) * r * w.f + b.f, abs=1e-4, rel=1e-4)
    mean.expect(m, abs=1e-5, rel=1e-5)
    rstd.expect(r, abs=1e-5, rel=1e-5)
    c.triton("layer_norm", 3, [x, w, b, o, mean, rstd, i32("n", 200), f32("eps", 1e-5)], B=128, SLIP=slip)


@kind("summed_under_locks", ALL, {"no_lock": RACE, "unlock_relaxed": FLAG, "unlock_in_block": SCOPE, "stale_count": RACE, "count_at_once": RACE})
def summed_under_locks(c, slip):
    x, o = c.inp("x", "s32", 6 * 100, randint(-99, 99, 3007)), c.out("o", "s32", 2 * 100)
    locks, counts = c.scratch("locks", "s32", 2, zero()), c.scratch("counts", "s32", 2, zero())
    o.expect(x.data.reshape(3, 2, 100).sum(0))
    c.triton("summed_under_locks", 6, [x, o, locks, counts, i32("n", 100), i32("groups", 2)], B=128, SLIP=slip)


@kind("matmul", DOT, {**{s: (("80", "90a"), OOB) for s in ("rows_unmasked", "depth_unmasked")},
                      "swapped_limits": (("80", ), dict(OOB, also=["race.global"])), **SHIPPED})
def matmul(c, slip):
    m, n, k = 80, 72, 112
    a, b, o = c.inp("a", "f16", m * k, grid(-2, 2, 4, 3008)), c.inp("b", "f16", k * n, grid(-2, 2, 4, 3009)), c.out("c", "f32", m * n)
    o.expect(a.f.reshape(m, k) @ b.f.reshape(k, n))
    c.triton("matmul", (2, 2), [a, b, o, i32("M", m), i32("N", n), i32("K", k)], BM=64, BN=64, BK=32, SLIP=slip)


@kind("matmul_bf16", ("80", "90a", "120a"))
def matmul_bf16(c, slip):
    m, n, k = 128, 64, 128
    a, b, o = c.inp("a", "bf16", m * k, grid(-2, 2, 4, 3010)), c.inp("b", "bf16", k * n, grid(-2, 2, 4, 3011)), c.out("c", "f32", m * n)
    o.expect(a.f.reshape(m, k) @ b.f.reshape(k, n))
    c.triton("matmul", (1, 1), [a, b, o, i32("M", m), i32("N", n), i32("K", k)], BM=128, BN=64, BK=64, SLIP=slip)


@kind("matmul_int8", ("80", "90a", "120a"))
def matmul_int8(c, slip):
    a, b, o = c.inp("a", "s8", 64 * 128, bits(3012)), c.inp("b", "s8", 64 * 128, bits(3013)), c.out("c", "s32", 64 * 64)
    o.expect(a.data.reshape(64, 128).astype(int) @ b.data.reshape(64, 128).astype(int).T)
    c.triton("matmul_int8", (1, 1), [a, b, o, i32("N", 64), i32("K", 128)], BM=64, BN=64, BK=64, SLIP=slip)


@kind("matmul_split", DOT, {"plain_sum": (("75", "90a"), RACE)})
def matmul_split(c, slip):
    a, b = c.inp("a", "f16", 64 * 128, grid(-2, 2, 4, 3014)), c.inp("b", "f16", 128 * 64, grid(-2, 2, 4, 3015))
    o = c.inout("c", "f32", 64 * 64, zero())
    o.expect(a.f.reshape(64, 128) @ b.f.reshape(128, 64))
    c.triton("matmul_split", (1, 2), [a, b, o, i32("N", 64), i32("K", 128), i32("part", 64)], BM=64, BN=64, BK=32, SLIP=slip)


@kind("attention", DOT, {**SHIPPED, "one_tile_more": (("80", ), OOB)})
def attention(c, slip):
    n, d, h = 128, 32, 2
    q, k, v = (c.inp(x, "f16", h * n * d, grid(-2, 2, 4, 3016 + s)) for s, x in enumerate("qkv"))
    o = c.out("o", "f32", h * n * d)
    x, y, z = (t.f.reshape(h, n, d) for t in (q, k, v))
    s = np.where(np.tril(np.ones((n, n), bool)), x @ y.transpose(0, 2, 1) * 0.25, -np.inf)
    p = np.exp2(s - s.max(2, keepdims=True))
    o.expect((p / p.sum(2, keepdims=True)) @ z, abs=4e-3, rel=4e-3)
    c.triton("attention", (2, h), [q, k, v, o, i32("n", n), f32("scale", 0.25)], stages=2, D=d, BM=64, BN=32, SLIP=slip)


@kind("total", ALL, {"not_atomic": (("75", "120a"), RACE)})
def total(c, slip):
    x, o = c.inp("x", "s32", 1000, randint(-99, 99, 3019)), c.inout("o", "s32", 1, zero())
    o.expect([int(x.data.sum())])
    c.triton("total", 4, [x, o, i32("n", 1000)], B=256, SLIP=slip)


@kind("last_block_sums", ALL, {"relaxed": (("75", "90a"), FLAG), "in_block": (("80", "120a"), SCOPE), "first_block": dict(cls="uninit.global", also=["race.global", "race.flag"])})
def last_block_sums(c, slip):
    x, p, n = c.inp("x", "s32", 500, randint(-99, 99, 3020)), c.scratch("parts", "s32", 4, uninit()), c.scratch("count", "s32", 1, zero())
    o = c.out("o", "s32", 1)
    o.expect([int(x.data.sum())])
    c.triton("last_block_sums", 4, [x, p, n, o, i32("n", 500), i32("blocks", 4)], B=128, P=16, SLIP=slip)


@kind("scan_chained", ALL, {"release_missing": (("80", "100a"), FLAG), "no_wait": RACE, "plain_flag": RACE})
def scan_chained(c, slip):
    x, o = c.inp("x", "s32", 512, randint(-99, 99, 3021)), c.out("o", "s32", 512)
    s, f = c.scratch("sums", "s32", 4, zero()), c.scratch("flags", "s32", 4, zero())
    o.expect(np.cumsum(x.data))
    c.triton("scan_chained", 4, [x, o, s, f], B=128, SLIP=slip)


@kind("sort_rows", ALL)
def sort_rows(c, slip):
    x, o = c.inp("x", "s32", 256, randint(-999, 999, 3023)), c.out("o", "s32", 256)
    o.expect(np.sort(x.data.reshape(2, 128), 1))
    c.triton("sort_rows", 2, [x, o], B=128, SLIP=slip)


@kind("transpose", ALL, {"mask_not_transposed": dict(OOB, also=["race.global"]), "in_place": RACE})
def transpose(c, slip):
    x, o = c.inout("x", "f32", 40 * 70, grid(-8, 8, 16, 3024)), c.out("o", "f32", 40 * 70)
    o.expect(x.f.reshape(40, 70).T.reshape(-1))
    c.triton("transpose", (2, 3), [x, o, i32("M", 40), i32("N", 70)], B=32, SLIP=slip)


@kind("top_of_rows", ALL, {"one_row": dict(cls="race.global", also=["race.same_value", "policy.result"])})
def top_of_rows(c, slip):
    x, v, i = c.inp("x", "s32", 4 * 90, perm(3025)), c.out("value", "s32", 4), c.out("index", "s32", 4)
    r = x.data.reshape(4, 90)
    v.expect(r.max(1))
    i.expect(r.argmax(1))
    c.triton("top_of_rows", 4, [x, v, i, i32("n", 90)], B=128, SLIP=slip)


@kind("gather", ALL, {"one_too_far": OOB})
def gather(c, slip):
    i, t, o = c.given("indices", "s32", [3, 0, 7, 7, 2]), c.inp("table", "f32", 8 * 64, grid(-8, 8, 16, 3026)), c.out("o", "f32", 5 * 64)
    o.expect(t.f.reshape(8, 64)[[3, 0, 7, 7, 2]])
    c.triton("gather", 5, [i, t, o], D=64, SLIP=slip)


@kind("scatter", ALL, {"not_atomic": RACE})
def scatter(c, slip):
    to = [3, 0, 3, 1, 3]
    i, x, o = c.given("indices", "s32", to), c.inp("x", "f32", 5 * 64, grid(-8, 8, 16, 3027)), c.inout("o", "f32", 4 * 64, zero())
    r = np.zeros((4, 64))
    np.add.at(r, to, x.f.reshape(5, 64))
    o.expect(r)
    c.triton("scatter", 5, [i, x, o], D=64, SLIP=slip)


@kind("ema", ALL)
def ema(c, slip):
    x, o = c.inp("x", "f32", 256, grid(-8, 8, 16, 3028)), c.out("o", "f32", 256)
    y, r = x.f.reshape(2, 128), np.zeros((2, 128))
    s = np.zeros(2)
    for t in range(128):
        s = r[:, t] = 0.5 * s + y[:, t]
    o.expect(r, abs=1e-4, rel=1e-5)
    c.triton("ema", 2, [x, o, i32("n", 128), f32("decay", 0.5)], SLIP=slip)


@kind("stencil", ALL, {"left_edge": OOB, "right_edge": OOB, "in_place": RACE})
def stencil(c, slip):
    x, o = c.inout("x", "s32", 300, randint(-99, 99, 3029)), c.out("o", "s32", 300)
    p = np.pad(x.data, 1)
    o.expect(p[:-2] - 2 * p[1:-1] + p[2:])
    c.triton("stencil", 3, [x, o, i32("n", 300)], B=128, SLIP=slip)


@kind("grid_stride", ALL, {"tail_unmasked": OOB})
def grid_stride(c, slip):
    x, o = c.inp("x", "s32", 700, randint(-99, 99, 3030)), c.out("o", "s32", 2)
    v = np.pad(x.data, (0, 68)).reshape(3, 2, 128)
    o.expect(v.sum((0, 2)))
    c.triton("grid_stride", 2, [x, o, i32("n", 700)], B=128, SLIP=slip)


@kind("two_phases", ALL, {"no_barrier": RACE, "relaxed_arrival": FLAG})
def two_phases(c, slip):
    x, m, a = c.inp("x", "s32", 256, randint(-99, 99, 3031)), c.scratch("mid", "s32", 256, zero()), c.scratch("arrived", "s32", 1, zero())
    o = c.out("o", "s32", 256)
    o.expect(np.roll(x.data * 3, -64))
    c.triton("two_phases", 4, [x, m, a, o, i32("blocks", 4)], B=64, SLIP=slip)
