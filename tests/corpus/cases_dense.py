# SPDX-License-Identifier: Apache-2.0
"""Stencils, transposes, matrix products, convolutions, and other dense numerics."""
import numpy as np

from corpus_lib import *


@case
def stencil1d():
    c = Case("stencil1d")
    n = 500
    x, y = c.inp("in", "f32", n, grid(-64, 64, 8, 21)), c.out("out", "f32", n)
    coef = [0.125, -0.5, 1.25, 2, 1.25, -0.5, 0.125]
    idx = np.arange(n)
    y.expect(sum(coef[j] * x.f[np.clip(idx + j - 3, 0, n - 1)] for j in range(7)))
    c.launch("stencil1d", 4, 128, [x, y, i32("n", n)])
    return c


@case
def stencil2d():
    c = Case("stencil2d")
    w, h = 37, 21
    x, t, y = c.inp("in", "f64", w * h, grid(-64, 64, 8, 22)), c.scratch("tmp", "f64", w * h, uninit()), c.out("out", "f64", w * h)
    a = x.f.reshape(h, w)
    for _ in range(2):
        p = np.pad(a, 1)
        a = 0.25 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:])
    y.expect(a)
    c.launch("jacobi", (3, 3), (16, 8), [x, t, i32("w", w), i32("h", h)])
    c.launch("jacobi", (3, 3), (16, 8), [t, y, i32("w", w), i32("h", h)])
    l0, l1 = c.inp("cells", "u8", w * h, randint(0, 1, 23)), c.out("next", "u8", w * h)
    b = l0.data.reshape(h, w).astype(int)
    nb = sum(np.roll(b, (dy, dx), (0, 1)) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if dx or dy)
    l1.expect(((nb == 3) | ((nb == 2) & (b == 1))).astype(int))
    c.launch("life", (3, 6), (16, 4), [l0, l1, i32("w", w), i32("h", h)])
    return c


@case
def stencil3d():
    c = Case("stencil3d")
    nx, ny, nz = 40, 13, 6
    x, y, idx = c.inp("in", "f32", nx * ny * nz, grid(-64, 64, 8, 24)), c.out("out", "f32", nx * ny * nz), c.out("idx", "u32", 2 * 3 * 2 * 30)
    p = np.pad(x.f.reshape(nz, ny, nx), 1)
    m = p[1:-1, 1:-1, 1:-1]
    y.expect(p[:-2, 1:-1, 1:-1] + p[2:, 1:-1, 1:-1] + p[1:-1, :-2, 1:-1] + p[1:-1, 2:, 1:-1] + p[1:-1, 1:-1, :-2] + p[1:-1, 1:-1, 2:] - 6 * m)
    r = []
    for b in range(12):
        for t in range(30):
            r.append(b % 2 | b // 2 % 3 << 4 | b // 6 << 8 | t % 3 << 12 | t // 3 % 5 << 16 | t // 15 << 20 | 1 << 31)
    idx.expect(r)
    c.launch("stencil3d_march", (2, 2), (32, 8), [x, y, i32("nx", nx), i32("ny", ny), i32("nz", nz)])
    c.launch("index3d", (2, 3, 2), (3, 5, 2), [idx])
    return c


def sectors(addresses, size):
    return len({(a + b) // 32 for a in addresses for b in (0, size - 1)})


def conflicts(words):
    """Passes beyond the first for one group of 32-bit accesses, by word address."""
    banks = {}
    for x in set(words):
        banks.setdefault(x % 32, set()).add(x)
    return max(len(v) for v in banks.values()) - 1


@case
def transpose():
    c = Case("transpose")
    w, h = 64, 96
    x = c.inp("in", "f32", w * h, uniform(-1, 1, 25))
    want = x.data.reshape(h, w).T.reshape(-1)
    outs = [c.out("out%d" % i, "f32", w * h).expect(want) for i in range(4)]
    p = lambda o: [x, o, i32("w", w), i32("h", h)]
    c.launch("transpose_naive", (w // 32, h // 8), (32, 8), p(outs[0]))
    for i, e in enumerate(("transpose_tiled", "transpose_conflicts", "transpose_swizzled")):
        c.launch(e, (w // 32, h // 32), (32, 8), p(outs[i + 1]))
    warps = [(bx * 32, y) for bx in range(w // 32) for y in range(h)]
    loads = sum(sectors([(y * w + x0 + l) * 4 for l in range(32)], 4) for x0, y in warps)
    naive = sum(sectors([((x0 + l) * h + y) * 4 for l in range(32)], 4) for x0, y in warps)
    tiled = sum(sectors([(y * h + x0 + l) * 4 for l in range(32)], 4) for x0 in range(0, h, 32) for y in range(w))
    n = len(warps)
    base = dict(global_load_requests=n, global_load_sectors=loads, global_store_requests=n)
    c.counter(0, **base, global_store_sectors=naive, shared_load_conflicts=0, shared_store_conflicts=0)
    lanes = range(32)
    column = {"tiled": [l * 33 for l in lanes], "conflicts": [l * 32 for l in lanes], "swizzled": None}
    c.counter(1, **base, global_store_sectors=tiled, shared_store_conflicts=sum(conflicts([r * 33 + l for l in lanes]) for r in range(32)) * n // 32,
              shared_load_conflicts=conflicts(column["tiled"]) * n)
    c.counter(2, **base, global_store_sectors=tiled, shared_store_conflicts=0, shared_load_conflicts=conflicts(column["conflicts"]) * n)
    c.counter(3, **base, global_store_sectors=tiled, shared_store_conflicts=0,
              shared_load_conflicts=sum(conflicts([l * 32 + (j ^ l) for l in lanes]) for j in range(32)) * n // 32)
    return c


def product(c, name, m, n, k, seed, grid_x, block, **extra):
    a, b, o = c.inp("a", "f32", m * k, grid(-16, 16, 4, seed)), c.inp("b", "f32", k * n, grid(-16, 16, 4, seed + 1)), c.out("c", "f32", m * n)
    o.expect(a.f.reshape(m, k) @ b.f.reshape(k, n))
    c.launch(name, grid_x, block, [a, b, o, i32("m", m), i32("n", n), i32("k", k)])
    return c


@case
def matmul_naive():
    return product(Case("matmul_naive"), "matmul_naive", 33, 45, 29, 31, (3, 5), (16, 8))


@case
def matmul_tiled():
    c = Case("matmul_tiled")
    m, n, k = 50, 70, 37
    a, b = c.inp("a", "f32", m * k, grid(-16, 16, 4, 33)), c.inp("b", "f32", k * n, grid(-16, 16, 4, 34))
    o = c.inout("c", "f32", m * n, grid(-8, 8, 2, 35))
    o.expect(0.5 * (a.f.reshape(m, k) @ b.f.reshape(k, n)) - 2 * o.f.reshape(m, n))
    c.launch("matmul_tiled", (3, 2), 64, [a, b, o, i32("m", m), i32("n", n), i32("k", k), f32("alpha", 0.5), f32("beta", -2.0)])
    return c


@case
def matmul_cp_async():
    return product(Case("matmul_cp_async"), "matmul_cp_async", 32, 48, 41, 36, (3, 2), (16, 16))


@case
def cuda_pipeline():
    c = Case("cuda_pipeline")
    x, y = c.inp("in", "s32", 2 * 5 * 128, randint(-1000, 1000, 38)), c.out("out", "s32", 256)
    r = np.zeros((2, 128), int)
    for b in range(5):
        r = r * 3 + x.data.reshape(2, 5, 128)[:, b, ::-1]
    y.expect(r)
    c.launch("cuda_pipeline", 2, 128, [x, y, i32("batches", 5)])
    return c


@case
def wmma_f16():
    c = Case("wmma_f16")
    k = 48
    a, b, ci, d = c.inp("a", "f16", 16 * k, grid(-16, 16, 4, 41)), c.inp("b", "f16", 32 * k, grid(-16, 16, 4, 42)), c.inp("c", "f32", 512, grid(-16, 16, 4, 43)), c.out("d", "f32", 512)
    d.expect(a.f.reshape(16, k) @ b.f.reshape(32, k).T + 2 * ci.f.reshape(16, 32))
    c.launch("wmma_f16", 1, 64, [a, b, ci, d, i32("k", k)])
    e, f, g = c.inp("a2", "f16", 512, grid(-4, 4, 2, 44)), c.inp("b2", "f16", 128, grid(-4, 4, 2, 45)), c.out("d2", "f16", 256)
    g.expect((e.f.reshape(16, 32).T @ f.f.reshape(16, 8) + 0.25).T)
    c.launch("wmma_f16_acc", 1, 32, [e, f, g])
    return c


@case
def wmma_int():
    c = Case("wmma_int")
    a, b, d = c.inp("a", "s8", 512, bits(46)), c.inp("b", "s8", 512, bits(47)), c.out("d", "s32", 256)
    d.expect(a.data.reshape(16, 32).astype(int) @ b.data.reshape(16, 32).astype(int).T + 7)
    c.launch("wmma_s8", 1, 32, [a, b, d])
    a, b, d = c.inp("ua", "u8", 128, bits(48)), c.inp("ub", "u8", 512, bits(49)), c.out("ud", "s32", 256)
    d.expect(a.data.reshape(8, 16).astype(int) @ b.data.reshape(16, 32).astype(int))
    c.launch("wmma_u8", 1, 32, [a, b, d])
    a, b, d = c.inp("ba", "bf16", 256, grid(-16, 16, 4, 50)), c.inp("bb", "bf16", 256, grid(-16, 16, 4, 51)), c.out("bd", "f32", 256)
    d.expect((a.f.reshape(16, 16).T @ b.f.reshape(16, 16)).T)
    c.launch("wmma_bf16", 1, 32, [a, b, d])
    a, b, d = c.inp("ta", "f32", 128, grid(-16, 16, 4, 52)), c.inp("tb", "f32", 128, grid(-16, 16, 4, 53)), c.out("td", "f32", 256)
    d.expect(a.f.reshape(16, 8) @ b.f.reshape(16, 8).T - 1)
    c.launch("wmma_tf32", 1, 32, [a, b, d])
    a, b, d = c.inp("da", "f64", 32, grid(-16, 16, 4, 54)), c.inp("db", "f64", 32, grid(-16, 16, 4, 55)), c.out("dd", "f64", 64)
    d.expect(a.f.reshape(8, 4) @ b.f.reshape(8, 4).T)
    c.launch("wmma_f64", 1, 32, [a, b, d])
    return c


@case
def mma_ldmatrix():
    c = Case("mma_ldmatrix")
    a, b, d = c.inp("a", "f16", 1024, grid(-16, 16, 4, 56)), c.inp("b", "f16", 512, grid(-16, 16, 4, 57)), c.out("c", "f32", 512)
    d.expect(a.f.reshape(32, 32) @ b.f.reshape(32, 16))
    c.launch("mma_ldmatrix", 1, 32, [a, b, d])
    return c


def nibbles(words):
    n = np.stack([(words >> (4 * i)) & 15 for i in range(8)], -1).reshape(-1).astype(int)
    return np.where(n > 7, n - 16, n)


@case
def mma_types():
    c = Case("mma_types")
    a, b, d = c.inp("a0", "bf16", 256, grid(-16, 16, 4, 60)), c.inp("b0", "bf16", 128, grid(-16, 16, 4, 61)), c.out("d0", "f32", 128)
    init = np.tile([[1, 2]], (8, 4)), np.tile([[3, 4]], (8, 4))
    d.expect(a.f.reshape(16, 16) @ b.f.reshape(8, 16).T + np.concatenate(init))
    c.launch("mma_bf16", 1, 32, [a, b, d])
    a, b, d = c.inp("a1", "f16", 128, grid(-8, 8, 4, 62)), c.inp("b1", "f16", 64, grid(-8, 8, 4, 63)), c.out("d1", "f16", 128)
    d.expect(a.f.reshape(16, 8) @ b.f.reshape(8, 8).T + 1)
    c.launch("mma_f16acc", 1, 32, [a, b, d])
    a, b, d = c.inp("a2", "f32", 128, grid(-16, 16, 4, 64)), c.inp("b2", "f32", 64, grid(-16, 16, 4, 65)), c.out("d2", "f32", 128)
    d.expect(a.f.reshape(16, 8) @ b.f.reshape(8, 8).T)
    c.launch("mma_tf32", 1, 32, [a, b, d])
    a, b, d = c.inp("a3", "s8", 512, bits(66)), c.inp("b3", "s8", 256, bits(67)), c.out("d3", "s32", 128)
    init = np.concatenate([np.tile([[-5, 6]], (8, 4)), np.tile([[-7, 8]], (8, 4))])
    d.expect(a.data.reshape(16, 32).astype(int) @ b.data.reshape(8, 32).astype(int).T + init)
    c.launch("mma_s8", 1, 32, [a, b, d])
    a, b, d = c.inp("a4", "u8", 256, bits(68)), c.inp("b4", "s8", 128, bits(69)), c.out("d4", "s32", 128)
    d.expect(a.data.reshape(16, 16).astype(int) @ b.data.reshape(8, 16).astype(int).T)
    c.launch("mma_u8s8", 1, 32, [a, b, d])
    a, b, d = c.inp("a5", "f64", 32, uniform(-1, 1, 70)), c.inp("b5", "f64", 32, uniform(-1, 1, 71)), c.out("d5", "f64", 64)
    d.expect(a.f.reshape(8, 4) @ b.f.reshape(8, 4).T + np.tile([[0.5, -0.5]], (8, 4)), abs=1e-14)
    c.launch("mma_f64", 1, 32, [a, b, d])
    a, b, d = c.inp("a6", "u32", 64, bits(72)), c.inp("b6", "u32", 32, bits(73)), c.out("d6", "s32", 128)
    d.expect(nibbles(a.data).reshape(16, 32) @ nibbles(b.data).reshape(8, 32).T)
    c.launch("mma_s4", 1, 32, [a, b, d])
    a, b, d = c.inp("a7", "u32", 64, bits(74)), c.inp("b7", "u32", 32, bits(75)), c.out("d7", "s32", 128)
    A, B = a.data.reshape(16, 4), b.data.reshape(8, 4)
    d.expect([sum(bin(int(A[i, w] & B[j, w])).count("1") for w in range(4)) for i in range(16) for j in range(8)])
    c.launch("mma_b1", 1, 32, [a, b, d])
    return c


def fused_sum(a, b, acc, F=25):
    """Hopper's mma for f16 inputs: products and addend aligned to the largest exponent, truncated to F fractional
    bits, added exactly, result truncated to 24 significant bits. Exact rational arithmetic, one output element."""
    from fractions import Fraction
    import math
    def split(x):  # significand in [1,2) or smaller for subnormals of f16, exponent
        if x == 0:
            return Fraction(0), -10**6
        m, e = math.frexp(x)
        return Fraction(m) * 2, e - 1
    terms = []
    for x, y in list(zip(a, b)):
        (mx, ex), (my, ey) = split(x), split(y)
        ex, ey = max(ex, -14) if x else ex, max(ey, -14) if y else ey
        terms.append((Fraction(x) * Fraction(y), ex + ey))
    terms.append((Fraction(acc), split(acc)[1]))
    E = max(e for v, e in terms if v != 0)
    q = Fraction(2) ** (E - F)
    total = sum(int(v / q) for v, e in terms)  # int() truncates towards zero
    if total == 0:
        return 0.0
    n = abs(total).bit_length()
    if n > 24:
        total = (1 if total > 0 else -1) * ((abs(total) >> (n - 24)) << (n - 24))
    return float(total * q)


@case
def mma_numerics():
    c = Case("mma_numerics", target=90)
    a, b = c.inp("a", "f16", 256, uniform(-4, 4, 76)), c.inp("b", "f16", 128, concat((64, uniform(-0.01, 0.01, 77)), (64, uniform(-100, 100, 78))))
    ci, d = c.inp("c", "f32", 128, concat((64, uniform(-0.001, 0.001, 79)), (64, uniform(-1e5, 1e5, 80)))), c.out("d", "f32", 128)
    A, B, C = a.f.reshape(16, 16), b.f.reshape(8, 16), ci.f.reshape(16, 8)
    d.expect([fused_sum(A[i], B[j], C[i, j]) for i in range(16) for j in range(8)])
    c.launch("mma_numerics", 1, 32, [a, b, ci, d])
    return c


@case
def conv2d():
    c = Case("conv2d")
    w, h = 30, 17
    f = c.symbol("filt", "f32", 25, grid(-8, 8, 4, 81)).astype(np.float64).reshape(5, 5)
    x, y = c.inp("in", "f32", w * h, grid(-16, 16, 4, 82)), c.out("out", "f32", w * h)
    p = np.pad(x.f.reshape(h, w), 2)
    y.expect(sum(f[i, j] * p[i:i + h, j:j + w] for i in range(5) for j in range(5)))
    c.launch("conv2d", (2, 3), (16, 8), [x, y, i32("w", w), i32("h", h)])
    w, h, ch = 6, 5, 32
    x, k, y = c.inp("nhwc", "f32", (w + 2) * (h + 2) * ch, grid(-16, 16, 4, 83)), c.inp("k", "f32", 9 * ch, grid(-16, 16, 4, 84)), c.out("dw", "f32", w * h * ch)
    X, K = x.f.reshape(h + 2, w + 2, ch), k.f.reshape(3, 3, ch)
    y.expect(sum(K[i, j] * X[i:i + h, j:j + w] for i in range(3) for j in range(3)))
    c.launch("depthwise", (w, h), ch // 4, [x, k, y, i32("w", w), i32("h", h), i32("c4", ch // 4)])
    return c


@case
def nbody():
    c = Case("nbody")
    n = 100
    p, v = c.inp("pos", "f32", 4 * n, uniform(0.1, 2, 85)), c.inout("vel", "f32", 4 * n, uniform(-1, 1, 86))
    P, V = p.f.reshape(n, 4), v.f.reshape(n, 4).copy()
    d = P[None, :, :3] - P[:, None, :3]
    r = 1 / np.sqrt((d * d).sum(-1) + np.float64(np.float32(0.01)))
    V[:, :3] += np.float64(np.float32(0.001)) * ((P[None, :, 3] * r**3)[..., None] * d).sum(1)
    v.expect(V, abs=2e-5, rel=1e-5)
    c.launch("nbody", 4, 32, [p, v, f32("dt", 0.001), i32("n", n)], smem=512)
    return c


@case
def mandelbrot():
    c = Case("mandelbrot")
    w, h, f = 60, 30, np.float32
    o = c.out("out", "u16", w * h)
    step = 0.0625
    px, py = np.meshgrid(np.arange(w, dtype=f), np.arange(h, dtype=f))
    cx, cy = f(-2.5) + px * f(step), f(-1) + py * f(step)
    x, y, it, live = np.zeros((h, w), f), np.zeros((h, w), f), np.zeros((h, w), int), np.ones((h, w), bool)
    for _ in range(200):
        with np.errstate(all="ignore"):
            xx, yy = x * x, y * y
            live &= ~(xx + yy > f(4))
            y, x = np.where(live, f(2) * (x * y) + cy, y), np.where(live, (xx - yy) + cx, x)
        it += live
    o.expect(it)
    c.launch("mandelbrot", (2, 4), (32, 8), [o, i32("w", w), i32("h", h), f32("x0", -2.5), f32("y0", -1.0), f32("step", step)])
    return c


@case
def fft():
    c = Case("fft")
    x, y = c.inp("in", "f32", 1024, uniform(-1, 1, 87)), c.out("out", "f32", 1024)
    z = np.fft.fft(x.f.reshape(2, 256, 2) @ [1, 1j])
    y.expect(np.stack([z.real, z.imag], -1), abs=2e-5)
    c.launch("fft", 2, 128, [x, y])
    return c


@case
def softmax_norm():
    c = Case("softmax_norm")
    r, n = 5, 77
    x, y, z = c.inp("in", "f32", r * n, uniform(-6, 6, 88)), c.out("soft", "f32", r * n), c.out("norm", "f32", r * n)
    g, b = c.inp("gamma", "f32", n, uniform(0.5, 2, 89)), c.inp("beta", "f32", n, uniform(-1, 1, 90))
    X = x.f.reshape(r, n)
    e = np.exp(X - X.max(1, keepdims=True))
    y.expect(e / e.sum(1, keepdims=True), abs=1e-8, rel=2e-5)
    m = X.mean(1, keepdims=True)
    z.expect((X - m) / np.sqrt(((X - m)**2).mean(1, keepdims=True) + 1e-5) * g.f + b.f, abs=1e-5, rel=1e-5)
    c.launch("softmax", r, 32, [x, y, i32("n", n)])
    c.launch("layernorm", r, 32, [x, g, b, z, i32("n", n)])
    return c


@case
def lu():
    c = Case("lu")
    n = 24
    a, p = c.inout("a", "f64", 2 * n * n, uniform(-1, 1, 91)), c.out("piv", "s32", 2 * n)
    M, piv = a.f.reshape(2, n, n).copy(), np.zeros((2, n), int)
    for q in range(2):
        m = M[q]
        for k in range(n):
            best = k + int(np.argmax(np.abs(m[k:, k])))
            piv[q, k] = best
            m[[k, best]] = m[[best, k]]
            m[k + 1:, k] /= m[k, k]
            m[k + 1:, k + 1:] -= np.outer(m[k + 1:, k], m[k, k + 1:])
    a.expect(M)
    p.expect(piv)
    c.launch("lu", 2, 96, [a, p, i32("n", n)], smem=8 * n * n)
    return c
