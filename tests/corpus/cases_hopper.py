# SPDX-License-Identifier: Apache-2.0
"""sm_90 and sm_90a: clusters, mbarriers, bulk and tensor copies, wgmma."""
import numpy as np

from corpus_lib import *
from cases_numeric import of_fp8


@case
def cluster_dsmem():
    c = Case("cluster_dsmem", target=90)
    n = 2000
    x, o = c.inp("in", "u8", n, bits(401)), c.inout("out", "u32", 256, zero())
    o.expect(np.bincount(x.data, minlength=256))
    c.launch("cluster_dsmem", 8, 64, [x, o, i32("n", n)], cluster=(4, 1, 1))
    return c


@case
def cluster_ring():
    c = Case("cluster_ring", target=90)
    ids, o = c.out("ids", "u32", 8 * 32), c.out("out", "s32", 8 * 64)
    I, O = np.zeros((8, 32), np.int64), np.zeros((8, 64), int)
    for by in range(2):
        for bx in range(4):
            b, r = by * 4 + bx, by % 2 * 2 + bx % 2
            peer = lambda q: (by // 2 * 2 + q // 2) * 4 + bx // 2 * 2 + q % 2
            I[b] = r | 4 << 4 | bx % 2 << 8 | by % 2 << 12 | 2 << 16 | 1 << 20 | bx // 2 << 24 | by // 2 << 26 | (r + 1) % 4 << 28
            for t in range(32):
                O[b, t] = peer((r + 3) % 4) * 100 + 31 - t
                O[b, 32 + t] = (peer((r + 3) % 4) * 100 + t) * 2
    ids.expect(I)
    o.expect(O)
    c.launch("cluster_ring", (4, 2), 32, [ids, o], cluster=(2, 2, 1))
    return c


@case
def mbarrier_raw():
    c = Case("mbarrier_raw", target=90)
    x, o = c.inp("in", "s32", 64 + 256, randint(-1000, 1000, 402)), c.out("out", "s32", 128)
    v = x.data.astype(int)
    rows = []
    for t in range(64):
        s = 0
        for i in range(4):
            s = s * 3 + v[64 + i * 64 + (t ^ 7)]
        rows.append([v[63 - t], s])
    o.expect(rows)
    c.launch("mbarrier_raw", 1, 64, [x, o])
    return c


@case
def bulk_copy():
    c = Case("bulk_copy", target=90)
    tiles = 7
    x, o = c.inp("in", "s32", 2 * tiles * 128, bits(403)), c.out("out", "s32", 2 * tiles * 128)
    o.expect(x.data.reshape(-1, 128)[:, ::-1].astype(np.int64) * 3)
    c.launch("bulk_copy", 2, 96, [x, o, i32("tiles", tiles)])
    s, m = c.inout("sum", "u32", 32, iota(5, 1)), c.inout("top", "s32", 20, fill(-3))
    h, l = c.inout("h", "f16", 32, fill(0.5)), c.inout("l", "u64", 32, zero())
    t = np.arange(32)
    s.expect(5 + t + t * 6)
    b = np.stack([(t - 16) * (5 if k % 2 else -7) for k in (1, 2, 3)]).max(0)
    top = np.full(20, -3)
    top[4:] = np.maximum(-3, b[4:20])
    m.expect(top)
    h.expect(0.5 + 3 * t * 0.5 + 6)
    l.expect([int(k) << 8 | int(k) << 16 | int(k) << 24 for k in t])
    c.launch("bulk_reduce", 3, 32, [s, m, h, l])
    return c


@case
def tma_2d():
    c = Case("tma_2d", target=90)
    w, h, pitch = 44, 21, 48
    x, y = c.inp("in", "f32", pitch * h, grid(-64, 64, 4, 404)), c.inout("out", "f32", pitch * h, fill(-5))
    a = c.inout("acc", "f32", 16 * 6, grid(-8, 8, 2, 405))
    X = np.zeros((24, 48))
    X[:h, :w] = x.f.reshape(h, pitch)[:, :w]
    U = X * 2 + 1
    Y = np.full((h, pitch), -5.0)
    Y[:, :w] = U[:h, :w]
    y.expect(Y)
    A = a.f.reshape(6, 16).copy()
    for by in range(3):
        for bx in range(3):
            A += U[by * 8:by * 8 + 6, bx * 16:bx * 16 + 16]
    a.expect(A)
    c.launch("tma_2d", (3, 3), 32, [tensormap("in", x, [w, h], [4 * pitch], [16, 8]), tensormap("out", y, [w, h], [4 * pitch], [16, 8]),
                                    tensormap("acc", a, [16, 6], [64], [16, 8])])
    return c


def swizzle_image(tile, width):
    """tile: rows of 2-byte elements, as bytes of one box; chunk index of 16 bytes XORed by address bits."""
    flat = np.ascontiguousarray(tile).reshape(-1).view(np.uint8)
    out = np.zeros_like(flat)
    b = {0: 0, 32: 1, 64: 2, 128: 3}[width]
    for i in range(len(flat)):
        out[i ^ ((i >> 7 & (1 << b) - 1) << 4)] = flat[i]
    return out.view(np.uint16)


@case
def tma_swizzle():
    c = Case("tma_swizzle", target=90)
    w, h = 96, 20
    x, o = c.inp("in", "u16", w * h, bits(406)), c.out("out", "u16", 2048)
    x0, y0 = 40, 6
    X = np.zeros((40, 160), np.uint16)
    X[:h, :w] = x.data.reshape(h, w)
    box = lambda n: X[y0:y0 + 16, x0:x0 + n]
    o.expect(np.concatenate([swizzle_image(box(64), 128), swizzle_image(box(32), 64), swizzle_image(box(16), 32), box(16).reshape(-1)]))
    m = lambda name, n, s: tensormap(name, x, [w, h], [2 * w], [n, 16], s)
    c.launch("tma_swizzle", 1, 64, [m("m128", 64, "128B"), m("m64", 32, "64B"), m("m32", 16, "32B"), m("m0", 16, "none"), o, i32("x", x0), i32("y", y0)])
    return c


@case
def tma_3d():
    c = Case("tma_3d", target=90)
    a, b = c.inp("a", "s32", 12 * 5 * 4, iota(1, 1)), c.inp("b", "s32", 100, iota(-50, 3))
    d, o3, o1 = c.inout("d", "s32", 12 * 3 * 3 * 2, zero()), c.out("o3", "s32", 96), c.out("o1", "s32", 64)
    A = np.zeros((10, 20, 30), int)
    A[1:5, :5, 4:16] = a.data.reshape(4, 5, 12)
    o3.expect(A[0:3, 2:6, 0:8])
    B = np.zeros(200, int)
    B[:100] = b.data
    o1.expect(B[60:124])
    D, k = np.zeros((2, 3, 3, 12), int), 1000 + np.arange(64).reshape(2, 2, 2, 8)
    for q in range(2):
        D[q, 2, 1:3, 4:12] = k[q, 0, :, :8]  # stores are whole groups of 16 bytes: 10 and 11 are written too (H200)
    d.expect(D)
    c.launch("tma_3d", 1, 32, [tensormap("m3", a, [12, 5, 4], [48, 240], [8, 4, 3]), tensormap("m1", b, [100], [], [64]),
                               tensormap("m4", d, [10, 3, 3, 2], [48, 144, 432], [8, 2, 2, 2]), o3, o1])
    return c


@case
def tma_multicast():
    c = Case("tma_multicast", target=90)
    x, o = c.inp("in", "u32", 32 * 32, bits(407)), c.out("out", "u32", 4 * 512)
    X = x.data.reshape(2, 512).astype(np.int64)
    o.expect(np.concatenate([X[0], X[0] + 1, X[1], X[1] + 1]))
    c.launch("tma_multicast", 4, 64, [tensormap("in", x, [32, 32], [128], [32, 8]), o], cluster=(2, 1, 1))
    return c


@case
def remote_async():
    c = Case("remote_async", target=90)
    o = c.out("out", "s32", 4 * 96)
    rows = []
    for b in range(4):
        r = b % 2 ^ 1
        rows += [r * 1000 + 31 - t for t in range(32)]
        rows += [sum(k + 1 for k in range(32) if k & 3 == t & 3) for t in range(32)]
        rows += [7000 + r * 100 + (t ^ 5) for t in range(32)]
    o.expect(rows)
    c.launch("remote_async", 4, 32, [o], cluster=(2, 1, 1))
    return c


@case
def wgmma_ss():
    c = Case("wgmma_ss", target="90a")
    a, b, o = c.inp("a", "f16", 64 * 32, grid(-16, 16, 4, 408)), c.inp("b", "f16", 32 * 32, grid(-16, 16, 4, 409)), c.out("c", "f32", 64 * 32)
    o.expect(a.f.reshape(64, 32) @ b.f.reshape(32, 32).T)
    c.launch("wgmma_plain", 1, 128, [a, b, o])
    a, b, o = c.inp("a2", "f16", 64 * 64, grid(-16, 16, 4, 410)), c.inp("b2", "f16", 64 * 64, grid(-16, 16, 4, 411)), c.out("c2", "f32", 64 * 32)
    o.expect(-(a.f.reshape(64, 64) @ b.f.reshape(64, 64)[:, :32]) + 0.0)  # no negative zero
    c.launch("wgmma_swizzled", 1, 128, [a, b, o])
    return c


@case
def wgmma_types():
    c = Case("wgmma_types", target="90a")
    def pairs(rows4):
        return np.tile(np.concatenate([np.tile([rows4[:2]], (8, 4)), np.tile([rows4[2:]], (8, 4))]), (4, 1))
    a, b, o = c.inp("a0", "bf16", 1024, grid(-16, 16, 4, 412)), c.inp("b0", "bf16", 128, grid(-16, 16, 4, 413)), c.out("c0", "f32", 512)
    o.expect(a.f.reshape(64, 16) @ b.f.reshape(8, 16).T + pairs([1, 2, 3, 4]))
    c.launch("wgmma_bf16_rs", 1, 128, [a, b, o])
    a, b, o = c.inp("a1", "f32", 512, grid(-16, 16, 4, 414)), c.inp("b1", "f32", 64, grid(-16, 16, 4, 415)), c.out("c1", "f32", 512)
    o.expect(-(a.f.reshape(64, 8) @ b.f.reshape(8, 8).T) + 0.0)
    c.launch("wgmma_tf32", 1, 128, [a, b, o])
    a, b, o = c.inp("a2", "s8", 2048, bits(416)), c.inp("b2", "u8", 256, bits(417)), c.out("c2", "s32", 512)
    o.expect(a.data.reshape(64, 32).astype(int) @ b.data.reshape(8, 32).astype(int).T + pairs([10, 20, 30, 40]))
    c.launch("wgmma_s8", 1, 128, [a, b, o])
    codes4 = [0x00, 0x30, 0xb0, 0x38, 0xb8, 0x40, 0xc0, 0x44, 0xc8]
    codes5 = [0x00, 0x38, 0xb8, 0x3c, 0xbc, 0x40, 0xc0, 0x42, 0xc2]
    a, b, o = c.inp("a3", "u8", 2048, choice(codes4, 418)), c.inp("b3", "u8", 256, choice(codes5, 419)), c.out("c3", "f32", 512)
    A, B = np.array([of_fp8(int(k), "e4m3") for k in a.data]), np.array([of_fp8(int(k), "e5m2") for k in b.data])
    o.expect(A.reshape(64, 32) @ B.reshape(8, 32).T)
    c.launch("wgmma_e4m3", 1, 128, [a, b, o])
    a, b, o = c.inp("a4", "f16", 1024, grid(-8, 8, 4, 420)), c.inp("b4", "f16", 128, grid(-8, 8, 4, 421)), c.out("c4", "f16", 512)
    o.expect(a.f.reshape(64, 16) @ b.f.reshape(8, 16).T + pairs([1, 1, 2, 2]))
    c.launch("wgmma_f16_acc", 1, 128, [a, b, o])
    return c


@case
def ws_gemm():
    c = Case("ws_gemm", target="90a")
    m, n, k = 128, 64, 320
    a, b, o = c.inp("a", "f16", m * k, grid(-8, 8, 4, 422)), c.inp("b", "f16", n * k, grid(-8, 8, 4, 423)), c.out("c", "f16", m * n)
    o.expect(a.f.reshape(m, k) @ b.f.reshape(n, k).T)
    maps = [tensormap("ma", a, [k, m], [2 * k], [64, 64], "128B"), tensormap("mb", b, [k, n], [2 * k], [64, 32], "128B"),
            tensormap("mc", o, [n, m], [2 * n], [32, 64])]
    c.launch("ws_gemm", (n // 32, m // 64), 256, maps + [i32("ktiles", k // 64)], smem=3 * 12288 + 4096)
    return c


@case
def hopper_misc():
    c = Case("hopper_misc", target=90)
    x, o = c.inp("in", "u32", 64, bits(424)), c.out("out", "u32", 64)
    w, v, m = c.scratch("wide", "u64", 2), c.inout("vec", "f32", 4, zero()), c.out("mat", "u16", 64)
    o.expect([17] * 64)
    v.expect([2016, 64, 1008, -2016])
    M = np.zeros((8, 8), int)
    for t in range(32):
        for h in range(2):
            M[2 * (t % 4) + h, t // 4] = int(x.data[t]) >> 16 * h & 0xffff
    m.expect(M)
    c.launch("hopper_misc", 1, 64, [x, o, w, v, m])
    codes = [0x00, 0x30, 0xb0, 0x38, 0xb8, 0x40, 0xc0, 0x44, 0xc8]
    a, b, d = c.inp("a", "u8", 512, choice(codes, 425)), c.inp("b", "u8", 256, choice(codes, 426)), c.out("d", "f32", 128)
    A, B = (np.array([of_fp8(int(k), "e4m3") for k in z.data]) for z in (a, b))
    d.expect(A.reshape(16, 32) @ B.reshape(8, 32).T)
    c.launch("mma_fp8", 1, 32, [a, b, d])
    return c
