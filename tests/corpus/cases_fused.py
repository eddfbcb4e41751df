# SPDX-License-Identifier: Apache-2.0
"""Attention by cp.async and mma.sync; rings, clusters and ping-pong of sm_90a; some with one thing wrong."""
import functools

import numpy as np

from corpus_lib import *

fused = functools.partial(twins, "fused.cu")
hopper = functools.partial(twins, "fused.cu", target="90a")


@fused("flash_good", {"flash_last_step": dict(cls="race.async", also=["uninit.shared"], ops=["cp.async", "ldmatrix"])})
def flash(c, entry, right):
    rows = keys = 128
    q, k, v = [c.inp(s, "bf16", 32 * rows, grid(-16, 16, 8, 1201 + i)) for i, s in enumerate("qkv")]
    o = c.out("o", "f32", 32 * rows)
    scale = 0.25
    if right:
        s = q.f.reshape(rows, 32) @ k.f.reshape(keys, 32).T * scale
        s[np.triu_indices(rows, 1)] = -np.inf
        p = 2.0 ** (s - s.max(1, keepdims=True))
        o.expect(p / p.sum(1, keepdims=True) @ v.f.reshape(keys, 32), abs=1e-2, rel=1e-2)
    c.launch(entry, 2, 128, [q, k, v, o, i32("keys", keys), f32("scale", scale)])


@hopper("pingpong_good", {
    "released_before_wait": dict(cls="race.async", ops=["wgmma.mma_async", "cp.async.bulk.tensor"]),
    "stored_without_fence": dict(cls="race.proxy", ops=["stmatrix", "cp.async.bulk.tensor"])})
def pingpong(c, entry, right):
    m, n, k = 128, 128, 192
    a, b, o = c.inp("a", "bf16", m * k, randint(-2, 2, 1204)), c.inp("b", "bf16", n * k, randint(-2, 2, 1205)), c.out("c", "bf16", m * n)
    if right:
        o.expect(a.f.reshape(m, k) @ b.f.reshape(n, k).T)
    maps = [tensormap("ma", a, [k, m], [2 * k], [64, 64], "128B"), tensormap("mb", b, [k, n], [2 * k], [64, 64], "128B"),
            tensormap("mc", o, [n, m], [2 * n], [64, 64])]
    c.launch(entry, 1, 384, maps + [i32("tiles_m", m // 64), i32("tiles", m * n // 4096), i32("steps", k // 64)], smem=3 * 16384 + 2 * 8192)


@hopper("cluster_depth_good", {"block_barrier_only": dict(cls="race.shared", also=["uninit.shared"], ops=["st.shared", "ld.shared", "ld"])})
def cluster_depth(c, entry, right):
    m, depth = 32, 24
    a, b, o = c.inp("a", "f32", m * depth, grid(-16, 16, 4, 1206)), c.inp("b", "f32", 16 * depth, grid(-16, 16, 4, 1207)), c.out("c", "f32", m * 16)
    if right:
        o.expect(a.f.reshape(m, depth) @ b.f.reshape(depth, 16))
    c.launch(entry, 8, 256, [a, b, o, i32("depth", depth)], cluster=(4, 1, 1))


@hopper("cluster_bitonic")
def cluster_bitonic(c, entry, right):
    d = c.inout("data", "s32", 1024, randint(-5000, 5000, 1208))
    d.expect(np.sort(d.data.reshape(2, 512), 1))
    c.launch(entry, 8, 128, [d], cluster=(4, 1, 1))


@hopper("ring_of_four_good", {"last_stage_kept": dict(cls="deadlock")})
def ring_of_four(c, entry, right):
    rounds = 10
    x, o = c.inp("in", "s32", 96 * rounds, randint(-50, 50, 1209)), c.out("out", "s32", 96 * rounds)
    if right:
        v = x.data.reshape(-1, 32)
        o.expect(v * v - v[:, np.arange(32) ^ 5])
    c.launch(entry, 1, 128, [x, o, i32("rounds", rounds)])


@hopper("halo")
def halo(c, entry, right):
    n, h, w = 2, 7, 12
    x, f, y = c.inp("x", "f32", n * h * w * 8, randint(-9, 9, 1210)), c.inp("w", "f32", 72, randint(-9, 9, 1211)), c.out("y", "f32", n * h * w * 8)
    padded = np.pad(x.f.reshape(n, h, w, 8), ((0, 0), (1, 1), (1, 1), (0, 0)))
    y.expect(sum(padded[:, t // 3:t // 3 + h, t % 3:t % 3 + w] * f.f.reshape(9, 8)[t] for t in range(9)))
    c.launch(entry, (2, 2, n), 128, [tensormap("map", x, [8, w, h, n], [32, 32 * w, 32 * w * h], [8, 10, 6, 1]), f, y,
                                     i32("height", h), i32("width", w)])


@hopper("bulk_bins_good", {"bins_cleared_early": dict(cls="race.async", ops=["cp.reduce.async.bulk", "st.shared"])})
def bulk_bins(c, entry, right):
    n = 1900
    x = c.inp("in", "u8", n, bits(1212))
    b, s, l = c.inout("bins", "u32", 32, zero()), c.inout("sums", "f32", 32, zero()), c.inout("low", "u32", 32, fill(0xffffffff))
    if right:
        at = x.data & 31
        b.expect(np.bincount(at, minlength=32))
        s.expect(np.bincount(at, weights=x.data * 0.25, minlength=32))
        l.expect(np.min([np.bincount(at[i:i + 256], minlength=32) for i in range(0, n, 256)], axis=0))
    c.launch(entry, 2, 128, [x, i32("n", n), b, s, l])


@hopper("shared_halves_good", {"own_readers_only": dict(cls="race.async", also=["mbarrier.tx", "mbarrier.phase"], ops=["cp.async.bulk", "ld.shared"])})
def shared_halves(c, entry, right):
    rounds = 5
    x, o = c.inp("in", "s32", 128 * rounds, randint(-50, 50, 1213)), c.out("out", "s32", 256)
    if right:
        v = x.data.reshape(rounds, 128)
        o.expect(np.concatenate([(np.arange(1, rounds + 1) @ v)[(np.arange(128) * 5 + me) % 128] for me in range(2)]))
    c.launch(entry, 2, 160, [x, o, i32("rounds", rounds)], cluster=(2, 1, 1))


@fused("pairs", target="100a")
def pairs(c, entry, right):
    n = 512
    x, y, o = c.inp("x", "f32", n, grid(-16, 16, 4, 1214)), c.inp("y", "f32", n, grid(-16, 16, 4, 1215)), c.out("out", "f32", n + 2)
    r = x.f * (x.f + y.f) * y.f + (x.f + y.f)
    o.expect(list(r) + [np.abs(r[b * 256:b * 256 + 256:8]).max() for b in range(2)])
    c.launch(entry, 2, 32, [x, y, o, i32("n", n)])
