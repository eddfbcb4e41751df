# SPDX-License-Identifier: Apache-2.0
"""Hopper by cuda::ptx and by hand, tensor cores, and slips in them."""
import functools

import numpy as np

from corpus_lib import *

hopper = functools.partial(twins, "third_hopper.cu", target="90a")
ampere = functools.partial(twins, "third_mma.cu")
late = functools.partial(twins, "third_blackwell.cu", target="100a")
S = ["st.shared", "ld.shared"]


@hopper("bulk_ptx_ring")
def bulk_ptx_ring(c, entry, right):
    tiles = 11
    x, o = c.inp("in", "s32", 2 * tiles * 128, randint(-9, 9, 2301)), c.out("out", "s32", 256)
    v = x.data.reshape(2, tiles, 128).astype(int)
    s = np.zeros((2, 128), int)
    for k in range(tiles):
        s = s * 2 + v[:, k][:, np.arange(128) ^ 64] - v[:, k]
    o.expect(s)
    c.launch(entry, 2, 160, [x, o, i32("tiles", tiles)])


@hopper("added_tiles_good", {"added_tiles_no_fence": dict(cls="race.proxy", ops=["st.shared", "cp.reduce.async.bulk"]),
                            "map_anywhere": dict(cls="misaligned", ops=["cp.reduce.async.bulk"])})
def added_tiles(c, entry, right):
    h, w = 20, 36
    o, x = c.inout("sums", "f32", h * w, iota()), c.inp("in", "f32", 4 * 512, randint(-9, 9, 2302))
    if right:
        r = o.f.reshape(h, w).copy()
        for b in range(4):
            y0, x0 = b // 2 * 4, b % 2 * 8
            r[y0:y0 + 16, x0:x0 + 32] += 2 * x.f[b * 512:b * 512 + 512].reshape(16, 32)[:, :w - x0]
        o.expect(r)
    c.launch(entry, 4, 64, [tensormap("map", o, [w, h], [w * 4], [32, 16]), x])


@hopper("filtered")
def filtered(c, entry, right):
    n, h, w = 2, 7, 13
    x, g, o = c.inp("image", "f32", n * h * w * 8, randint(-9, 9, 2303)), c.inp("weight", "f32", 72, randint(-3, 3, 2304)), c.out("out", "f32", n * h * w * 8)
    v = np.pad(x.f.reshape(n, h, w, 8), ((0, 0), (1, 1), (1, 1), (0, 0)))
    k = g.f.reshape(3, 3, 8)
    o.expect(sum(v[:, dy:dy + h, dx:dx + w] * k[dy, dx] for dy in range(3) for dx in range(3)))
    c.launch(entry, (2, 2, n), 64, [tensormap("map", x, [8, w, h, n], [32, 32 * w, 32 * w * h], [8, 10, 6, 1]), g, o, i32("h", h), i32("w", w)])


@hopper("cluster_total_good", {"cluster_left_early": dict(cls="lifetime.dsmem")})
def cluster_total(c, entry, right):
    x, o = c.inp("in", "s32", 256, randint(-50, 50, 2305)), c.out("out", "s32", 256)
    if right:
        v = x.data.reshape(2, 4, 32).astype(int)
        r = np.roll(v, -1, axis=1) ** 2 + v[:, :, ::-1] * 10
        r[:, 0] += v.sum((1, 2))[:, None] * 1000
        o.expect(r)
    c.launch(entry, 8, 32, [x, o], cluster=4)


@hopper("all_gather")
def all_gather(c, entry, right):
    x, o = c.inp("in", "s32", 512, randint(-99, 99, 2306)), c.out("out", "s32", 512)
    v = x.data.reshape(2, 4, 64).astype(int) + np.arange(4)[:, None]
    s = 0
    for i in range(4):
        s = s * 5 + v[:, i, ::-1]
    o.expect(np.repeat(s[:, None], 4, axis=1))
    c.launch(entry, 8, 64, [x, o], cluster=4)


@hopper("attend_good", {"attend_no_fence": dict(cls="race.proxy", ops=["st.shared", "wgmma"]),
                        "attend_sums_early": dict(cls="async.register", ops=["wgmma"]),
                        "attend_values_under_product": dict(cls="race.async", ops=["st.shared", "wgmma"])})
def attend(c, entry, right):
    keys = 128
    q, k, v = c.inp("q", "bf16", 4096, grid(-16, 16, 8, 2307)), c.inp("k", "bf16", keys * 64, grid(-16, 16, 8, 2308)), c.inp("v", "bf16", keys * 64, grid(-16, 16, 8, 2309))
    o = c.out("out", "f32", 4096)
    if right:
        s = q.f.reshape(64, 64) @ k.f.reshape(keys, 64).T * 0.125
        p = np.exp(s - s.max(1, keepdims=True))
        o.expect(p / p.sum(1, keepdims=True) @ v.f.reshape(keys, 64), abs=2e-2, rel=1e-2)
    c.launch(entry, 1, 128, [q, k, v, o, i32("keys", keys)])


@hopper("fp8_in_flight")
def fp8_in_flight(c, entry, right):
    k = 160
    e4m3 = {0x00: 0.0, 0x38: 1.0, 0x40: 2.0, 0xb8: -1.0, 0x30: 0.5, 0xc0: -2.0}
    a, b, o = c.inp("a", "u8", 64 * k, choice(list(e4m3), 2310)), c.inp("b", "u8", 8 * k, choice(list(e4m3), 2311)), c.out("out", "f32", 512)
    f = np.vectorize(lambda x: e4m3[int(x)])
    o.expect(f(a.data).reshape(64, k) @ f(b.data).reshape(8, k).T)
    c.launch(entry, 1, 128, [a, b, o, i32("k", k)])


@hopper("written_back_good", {"written_back_two_left": dict(cls="race.async", ops=["stmatrix", "cp.async.bulk"])})
def written_back(c, entry, right):
    tiles = 6
    x, o = c.inp("in", "bf16", tiles * 256, grid(-64, 64, 1, 2312)), c.out("out", "bf16", tiles * 256)
    if right:
        o.expect(x.data.reshape(-1, 2)[:, ::-1].copy())
    c.launch(entry, 1, 32, [x, tensormap("map", o, [16, tiles * 16], [32], [16, 16]), i32("tiles", tiles)])


@hopper("sent_on_good", {"sent_on_no_wait": dict(cls="race.async", ops=["ld.shared", "st.async"])})
def sent_on(c, entry, right):
    x, o = c.inp("in", "s32", 128, randint(-99, 99, 2313)), c.out("out", "s32", 128)
    if right:
        o.expect(x.data.reshape(2, 2, 32)[:, ::-1, ::-1] * 3)
    c.launch(entry, 4, 32, [x, o], cluster=2)


@hopper("told_by_flag_good", {"told_within_block": dict(cls="race.scope", also=["race.shared"], ops=["st", "ld"])})
def told_by_flag(c, entry, right):
    x, o = c.inp("in", "s32", 64, randint(-99, 99, 2314)), c.out("out", "s32", 64)
    if right:
        o.expect(x.data.reshape(2, 32)[::-1, ::-1] + 5)
    c.launch(entry, 2, 32, [x, o], cluster=2)


@ampere("ragged_product")
def ragged_product(c, entry, right):
    m, n, k, ld = 45, 37, 70, 72
    a, b, o = c.inp("a", "f16", m * ld, grid(-16, 16, 4, 2315)), c.inp("b", "f16", n * ld, grid(-16, 16, 4, 2316)), c.out("c", "f32", m * n)
    o.expect(a.f.reshape(m, ld)[:, :k] @ b.f.reshape(n, ld)[:, :k].T)
    c.launch(entry, (2, 2), 128, [a, b, o, i32("m", m), i32("n", n), i32("k", k), i32("ld", ld)])


@ampere("requantised")
def requantised(c, entry, right):
    k = 96
    a, b, o = c.inp("a", "s8", 16 * k, randint(-20, 20, 2317)), c.inp("b", "s8", 24 * k, randint(-20, 20, 2318)), c.out("c", "s8", 16 * 24)
    v = a.data.reshape(16, k).astype(int) @ b.data.reshape(24, k).astype(int).T
    o.expect(np.minimum(127, np.maximum(0, v) >> 6))
    c.launch(entry, 3, 32, [a, b, o, i32("k", k)])


@ampere("doubles_and_tf32")
def doubles_and_tf32(c, entry, right):
    k = 24
    a, b, o = c.inp("a", "f64", 8 * k, grid(-99, 99, 8, 2319)), c.inp("b", "f64", 8 * k, grid(-99, 99, 8, 2320)), c.out("c", "f64", 64)
    x, y, z = c.inp("x", "f32", 16 * k, grid(-99, 99, 8, 2321)), c.inp("y", "f32", 16 * k, grid(-99, 99, 8, 2322)), c.out("z", "f32", 256)
    o.expect((a.f.reshape(8, k) @ b.f.reshape(8, k).T + 0.5).T)
    z.expect(x.f.reshape(16, k) @ y.f.reshape(k, 16))
    c.launch(entry, 1, 32, [a, b, o, x, y, z, i32("k", k)])


@ampere("half_sums")
def half_sums(c, entry, right):
    x = c.inp("in", "f32", 64, randint(-40, 40, 2323))
    h2, b2, h, t = c.inout("h2", "f16", 8, zero()), c.inout("b2", "bf16", 8, zero()), c.inout("h", "f16", 4, zero()), c.inout("top", "u16", 4, zero())
    s = x.f.reshape(16, 4).sum(0)
    h2.expect(np.stack([s, -s], 1))
    b2.expect(np.stack([s * 0.5, np.full(4, 16.0)], 1), abs=2, rel=0.02)
    h.expect(s * 2)
    t.expect(x.data.reshape(16, 4).max(0).astype(int) + 100)
    c.launch(entry, 1, 64, [x, h2, b2, h, t])


@late("packed_singles")
def packed_singles(c, entry, right):
    n = 8 * 50
    a, b, o = c.inp("a", "f32", n, grid(-64, 64, 8, 2324)), c.inp("b", "f32", n, grid(-64, 64, 8, 2325)), c.out("c", "f32", n)
    s = a.f + b.f
    o.expect(a.f * s * b.f + s)
    c.launch(entry, 1, 64, [a, b, o, i32("n", n)])


@late("of_three")
def of_three(c, entry, right):
    x, o = c.inp("a", "f32", 32, randint(-60, 60, 2326)), c.out("c", "f32", 32)
    i = np.arange(32)
    low = np.minimum(np.minimum(x.f, x.f[i ^ 1]), x.f[i ^ 2])
    o.expect(low + 256 * np.maximum(np.maximum(x.f, x.f[i ^ 1]), x.f[i ^ 4]) + 65536 * low.max())
    c.launch(entry, 1, 32, [x, o])
