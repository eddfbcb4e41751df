# SPDX-License-Identifier: Apache-2.0
"""Matrix kernels, sm_90 and sm_100 by inline assembly, numbers."""
import numpy as np

from corpus_lib import *


def entry(name, src, target, flags=()):
    c = Case(name, target=target, src=src + ".cu", flags=flags)
    c.only = name
    return c


def tensor(name, target=80):
    return entry(name, "matrices", target)


def bulk(name, target=90):
    return entry(name, "bulk_rings", target)


def numeric(name, target=80):
    return entry(name, "numbers", target)


@case
def gemm_stages():
    c = tensor("gemm_stages")
    k = 192
    a, b, o = c.inp("a", "f16", 64 * k, randint(-4, 4, 761)), c.inp("b", "f16", k * 72, randint(-4, 4, 762)), c.out("c", "f32", 64 * 64)
    o.expect(a.f.reshape(64, k) @ b.f.reshape(k, 72)[:, :64])
    c.launch("gemm_stages", 1, 128, [a, b, o, i32("k", k), i32("ldb", 72)], smem=2 * 4 * 2 * 64 * 32)
    return c


@case
def attention():
    c = tensor("attention", target=80)
    n, keys = 64, 48
    q, k, v = [c.inp(s, "f16", 16 * m, grid(-16, 16, 8, 763 + i)) for i, (s, m) in enumerate((("q", n), ("k", keys), ("v", keys)))]
    o = c.out("out", "f16", 16 * n)
    s = q.f.reshape(n, 16) @ k.f.reshape(keys, 16).T * 0.25
    p = np.exp(s - s.max(axis=1, keepdims=True))
    o.expect(p / p.sum(axis=1, keepdims=True) @ v.f.reshape(keys, 16), abs=3e-3, rel=2e-3)
    c.launch("attention", 2, 64, [q, k, v, o, i32("keys", keys)])
    return c


@case
def wmma_kinds():
    c = tensor("wmma_kinds", target=86)
    a, b = c.inp("a", "bf16", 32 * 32, randint(-4, 4, 766)), c.inp("b", "bf16", 8 * 32, randint(-4, 4, 767))
    x, y = c.inp("x", "f32", 16 * 8, grid(-16, 16, 4, 768)), c.inp("y", "f32", 8 * 16, grid(-16, 16, 4, 769))
    o, d = c.out("c", "f32", 32 * 8), c.out("d", "f32", 256)
    o.expect(np.maximum(a.f.reshape(32, 32) @ b.f.reshape(8, 32).T + 0.5, 0).T)
    d.expect(x.f.reshape(16, 8) @ y.f.reshape(8, 16))
    c.launch("wmma_kinds", 1, 32, [a, b, x, y, o, d])
    return c


@case
def split_k():
    c = tensor("split_k", target=86)
    k = 40
    a, b = c.inp("a", "f32", 16 * k, grid(-16, 16, 4, 770)), c.inp("b", "f32", k * 8, grid(-16, 16, 4, 771))
    p, s, o = c.scratch("part", "f32", 128, uninit()), c.scratch("sem", "s32", 2), c.out("c", "f32", 128)
    o.expect(a.f.reshape(16, k) @ b.f.reshape(k, 8))
    c.launch("split_k", (2, 3), 64, [a, b, p, s, o, i32("k", k)])
    return c


@case
def sparse_mma():
    c = tensor("sparse_mma")
    a, b = c.inp("a", "f16", 16 * 16, randint(-4, 4, 772)), c.inp("b", "f16", 8 * 32, randint(-4, 4, 773))
    m, o = c.inp("meta", "u32", 32, fill("0x99999999")), c.out("c", "f32", 128)
    full = np.zeros((16, 32))
    for j in range(8):
        full[:, 4 * j + 1:4 * j + 3] = a.f.reshape(16, 16)[:, 2 * j:2 * j + 2]
    o.expect(full @ b.f.reshape(8, 32).T)
    c.launch("sparse_mma", 1, 32, [a, b, m, o])
    return c


def e4m3(x):
    """Codes of small numbers that the format has."""
    out = []
    for v in np.asarray(x, float).reshape(-1):
        s, v = (128, -v) if v < 0 else (0, v)
        if v == 0:
            out.append(s)
            continue
        e = int(np.floor(np.log2(v)))
        out.append(s | (e + 7) << 3 | int((v / 2.0**e - 1) * 8))
    return out


def e5m2(x):
    out = []
    for v in np.asarray(x, float).reshape(-1):
        s, v = (128, -v) if v < 0 else (0, v)
        if v == 0:
            out.append(s)
            continue
        e = int(np.floor(np.log2(v)))
        out.append(s | (e + 15) << 2 | int((v / 2.0**e - 1) * 4))
    return out


def small(count, hi, seed):
    return generate(randint(-hi, hi, seed), "s32", count).astype(float)


@case
def fp8_mma():
    c = tensor("fp8_mma", target=89)
    x, y = small(16 * 32, 8, 774), small(8 * 32, 4, 775)
    a, b, o = c.given("a", "u8", e4m3(x)), c.given("b", "u8", e5m2(y)), c.out("c", "f32", 128)
    o.expect(x.reshape(16, 32) @ y.reshape(8, 32).T)
    c.launch("fp8_mma", 1, 32, [a, b, o])
    return c


@case
def scaled_mma():
    c = tensor("scaled_mma", target="120a")
    x, y = small(16 * 32, 8, 776), small(8 * 32, 4, 777)
    a, b, o = c.given("a", "u8", e4m3(x)), c.given("b", "u8", e5m2(y)), c.out("c", "f32", 128)
    sa, sb = c.inp("sa", "u8", 16, randint(124, 130, 778)), c.inp("sb", "u8", 8, randint(124, 130, 779))
    pa, pb = 2.0 ** (sa.data.astype(float) - 127), 2.0 ** (sb.data.astype(float) - 127)
    o.expect((x.reshape(16, 32) @ y.reshape(8, 32).T) * pa[:, None] * pb[None, :])
    c.launch("scaled_mma", 1, 32, [a, b, sa, sb, o])
    return c


@case
def bulk_roles():
    c = bulk("bulk_roles")
    x, o = c.inp("in", "f32", 2 * 9 * 96, grid(-32, 32, 4, 781)), c.inout("sum", "f32", 96, fill(1))
    o.expect(1 + x.f.reshape(18, 96).sum(axis=0)[::-1])
    c.launch("bulk_roles", 2, 128, [x, o, i32("rounds", 9)])
    return c


@case
def multicast_rows():
    c = bulk("multicast_rows")
    x, o = c.inp("in", "s32", 7 * 64, randint(-99, 99, 782)), c.out("out", "s32", 256)
    v, rows = x.data.reshape(7, 64).astype(np.int64), []
    for rank in range(4):
        acc = np.zeros(64, np.int64)
        for r in range(7):
            acc = acc * 3 + v[r, [t ^ rank for t in range(64)]]
        rows.append(acc)
    o.expect(np.concatenate(rows))
    c.launch("multicast_rows", 4, 64, [x, o, i32("rounds", 7)], cluster=(4, 1, 1))
    return c


@case
def push_rows():
    c = bulk("push_rows")
    x, o = c.inp("in", "s32", 128, randint(-99, 99, 783)), c.out("out", "s32", 128)
    v = x.data.reshape(2, 64)[:, [t ^ 1 for t in range(64)]].astype(np.int64)
    o.expect(np.concatenate([(v[0] + to) * 2 + v[1] + to + 21 for to in range(2)]))
    c.launch("push_rows", 2, 64, [x, o], cluster=(2, 1, 1))
    return c


@case
def tensor_add():
    c = bulk("tensor_add")
    o = c.inout("out", "s32", 32 * 24, fill(5))
    want = np.full((24, 32), 5)
    for b in range(6):
        t = b // 2
        rows = min(16, 24 - t // 2 * 16)
        want[t // 2 * 16:t // 2 * 16 + rows, t % 2 * 16:t % 2 * 16 + 16] += (np.arange(256).reshape(16, 16) + b)[:rows]
    o.expect(want)
    c.launch("tensor_add", 6, 64, [tensormap("map", o, [32, 24], [128], [16, 16]), i32("blocks_per_tile", 2)])
    return c


@case
def store_then_reduce():
    c = bulk("store_then_reduce")
    x, o, f = c.inp("in", "s32", 128, randint(-99, 99, 784)), c.out("out", "s32", 64), c.scratch("flag", "s32", 1)
    o.expect(x.data.reshape(2, 64).sum(axis=0))
    c.launch("store_then_reduce", 2, 64, [x, o, f])
    return c


@case
def store_then_read():
    c = bulk("store_then_read")
    x, o, f, k = c.inp("in", "s32", 64, randint(-99, 99, 800)), c.out("out", "s32", 64), c.scratch("flag", "s32", 1), c.out("copy", "s32", 64)
    o.expect(x.data)
    k.expect(x.data)
    c.launch("store_then_read", 2, 64, [x, o, f, k])
    return c


@case
def copy_then_flag():
    c = bulk("copy_then_flag")
    x, o = c.inp("in", "s32", 9 * 32, randint(-99, 99, 799)), c.out("out", "s32", 32)
    acc = np.zeros(32, np.int64)
    for r in x.data.reshape(9, 32):
        acc = acc * 3 + r
    o.expect(acc)
    c.launch("copy_then_flag", 1, 64, [x, o, i32("rounds", 9)])
    return c


@case
def dependent():
    c = bulk("dependent")
    x, m, o = c.inp("in", "s32", 64, randint(-99, 99, 785)), c.out("mid", "s32", 64), c.out("out", "s32", 64)
    m.expect(x.data * 2)
    o.expect(x.data * 4)
    c.launch("dependent", 1, 64, [x, m])
    c.launch("dependent", 1, 64, [m, o])
    return c


@case
def copy_arrive():
    c = bulk("copy_arrive")
    x, o = c.inp("in", "s32", 384, randint(-99, 99, 786)), c.out("out", "s32", 384)
    o.expect([x.data[i * 7 % 384] for i in range(384)])
    c.launch("copy_arrive", 1, 64, [x, o])
    return c


@case
def tcgen05_tile():
    c = bulk("tcgen05_tile", target="100a")
    a, b, d = c.inp("a", "f16", 128 * 64, randint(-4, 4, 787)), c.inp("b", "f16", 64 * 64, randint(-4, 4, 788)), c.out("d", "f32", 128 * 64)
    d.expect(a.f.reshape(128, 64) @ b.f.reshape(64, 64).T)
    c.launch("tcgen05_tile", 1, 128, [a, b, d])
    return c


@case
def take_over():
    c = bulk("take_over", target=100)
    x, o = c.inp("in", "s32", 12 * 32, randint(-99, 99, 789)), c.out("out", "s32", 12 * 32)
    o.expect(x.data * 3)
    c.launch("take_over", 12, 32, [x, o])
    return c


def philox(counter, key):
    c, k, M = list(counter), list(key), 0xffffffff
    for r in range(10):
        if r:
            k = [(k[0] + 0x9E3779B9) & M, (k[1] + 0xBB67AE85) & M]
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(q >> 32) ^ c[1] ^ k[0], q & M, (p >> 32) ^ c[3] ^ k[1], p & M]
    return c


@case
def monte_carlo():
    c = numeric("monte_carlo", target=75)
    n, per = 64, 8
    h, f = c.inout("hits", "u64", 1, zero()), c.out("first", "u32", n)
    hits, first = 0, []
    for i in range(n):
        # an offset of 5 is one block of four and one number more
        words = [w for k in range(1, per + 3) for w in philox([k, 0, i, 0], [1234567, 0])][1:]
        for k in range(per):
            r = words[4 * k:4 * k + 4]
            if k == 0:
                first.append(r[0] ^ r[1] ^ r[2] ^ r[3])
            x, y = (r[0] + 0.5) * 2.3283064365386963e-10, (r[2] + 0.5) * 2.3283064365386963e-10
            hits += x * x + y * y <= 1
    h.expect([hits])
    f.expect(first)
    c.launch("monte_carlo", 2, 32, [h, f, i32("per", per)])
    return c


def bf(v):
    return from_bf16(to_bf16(np.asarray(v, np.float64).astype(np.float32))).astype(np.float64)


@case
def packed_halves():
    c = numeric("packed_halves")
    a, b = c.inp("a", "f16", 64, grid(-32, 32, 8, 791)), c.inp("b", "bf16", 64, grid(-16, 16, 4, 792))
    x, y, m = c.out("x", "f16", 256), c.out("y", "bf16", 192), c.out("m", "u32", 32)
    p = a.f.reshape(32, 2)
    q = p[[i ^ 1 for i in range(32)]]
    r = b.f.reshape(32, 2)
    s = r[[i ^ 1 for i in range(32)]]
    x.expect(np.stack([p * q + 0.5, np.maximum(p * q + p, 0), np.clip(p + q, 0, 1), np.maximum(np.abs(p), -q)], axis=1))
    u, w = bf(r * s), r[:, [0, 0]] * np.array([1, 1])
    w[:, 1] = s[:, 0]
    least = np.where((u == 0) & (w == 0) & np.signbit(u), u, np.minimum(w, u))  # of two zeros the negative one
    y.expect(bf(np.stack([r * s + r, r - s, least], axis=1)))
    gt, eq = p > q, r == s
    m.expect([(0xffff * int(gt[i, 0]) + 0xffff0000 * int(gt[i, 1])) ^ (0xffff * int(eq[i, 0]) + 0xffff0000 * int(eq[i, 1])) ^ 1 for i in range(32)])
    c.launch("packed_halves", 1, 32, [a, b, x, y, m])
    return c


@case
def compensated():
    from fractions import Fraction
    c = numeric("compensated", target=75)
    n = 100
    x, y = c.inp("x", "f64", n, uniform(-1, 1, 793)), c.inp("y", "f64", n, uniform(-1e8, 1e8, 794))
    d, z, s = c.out("dot", "f64", 1), c.inp("z", "f32", n, uniform(0, 1, 795)), c.out("sum", "f32", 1)
    d.expect([float(sum(Fraction(float(p)) * Fraction(float(q)) for p, q in zip(x.data, y.data)))], abs=1e-8)
    k = comp = np.float32(0)
    for v in z.data:
        w = v - comp
        t = k + w
        k, comp = t, (t - k) - w
    s.expect(np.array([k], np.float32))
    c.launch("compensated", 1, 32, [x, y, d, z, s, i32("n", n)])
    return c


@case
def all_atomics():
    c = numeric("all_atomics", target=86)
    x = c.inp("in", "s32", 128, randint(-99, 99, 796))
    v = [int(q) for q in x.data]
    i, u = c.inout("i32", "s32", 4, values([50, -50, 0, 7])), c.inout("u32", "u32", 3, values([0, 5, "0xffffffff"]))
    s, w = c.inout("s64", "s64", 2, zero()), c.inout("u64", "u64", 2, zero())
    f, d = c.inout("f", "f32", 2, values([0, -1000])), c.inout("d", "f64", 2, values([0.5, -1e9]))
    h, b, us = c.inout("h", "f16", 2, zero()), c.inout("b", "bf16", 2, zero()), c.inout("us", "u16", 2, values([9, 1]))
    xor = [0, 7]
    for t in range(128):
        xor[t // 64] ^= v[t]
    i.expect([min(v + [50]), max(v + [-50])] + xor)
    down = 5
    mask = 0xffffffff
    for q in v:
        down = 12 if down == 0 or down > 12 else down - 1
        mask &= ~(1 << (q & 31))
    u.expect([128 % 10, down, mask])
    s.expect([min(v + [0]) << 33, max(v + [0]) << 33])
    bits64 = 0
    for q in v:
        bits64 |= 1 << (q & 63)
    w.expect([sum(v) & MASK64, bits64])
    f.expect([sum(v) * 0.5, max(v)])
    d.expect([0.5 + sum(v) * 0.25, max(v) + 0.125])
    h.expect([128, sum(q & 3 for q in v)])
    b.expect([sum(q & 1 for q in v), 0])
    us.expect([9 + 3 * 128, 1])
    c.launch("all_atomics", 2, 64, [x, i, u, s, w, f, d, h, b, us])
    return c


@case
def vector_atomics():
    c = numeric("vector_atomics", target=90)
    n = 60
    x, s = c.inp("in", "f32", 4 * n, randint(-16, 16, 797)), c.inout("sum", "f32", 8, fill(2))
    e, h = c.out("e4", "u8", 2 * n), c.out("back", "f16", 2 * n)
    v = x.f.reshape(n, 4)
    t = v.sum(axis=0)
    s.expect(list(t + 2) + [t[2] + 2, t[3] + 2, 2, 2])
    e.expect(e4m3(v[:, :2]))
    h.expect(v[:, :2])
    c.launch("vector_atomics", 2, 32, [x, s, e, h, i32("n", n)])
    return c


@case
def integers():
    import math
    c = numeric("integers", target=75)
    x, o = c.inp("in", "u64", 64, bits(798)), c.out("out", "u64", 512)
    v, rows, M = [int(q) for q in x.data], [], MASK64

    def s64(q):
        return q - (1 << 64) if q >> 63 else q

    def s32(q):
        q &= 0xffffffff
        return q - (1 << 32) if q >> 31 else q

    def tdiv(p, q):
        return abs(p) // abs(q) * (-1 if (p < 0) != (q < 0) else 1)
    for i in range(64):
        a, b = v[i], v[i ^ 1] | 1
        t = s64(b) >> 20 | 1
        rows += [math.isqrt(a), a // 1000000007 + a % 97, a // (b >> 40 | 1) ^ a % b, ((a * b >> 64) + (s64(a) * s64(b) >> 64)) & M,
                 int("{:064b}".format(a)[::-1], 2) ^ a ^ a >> 1,
                 (64 - a.bit_length()) * 100 + (a & -a).bit_length() + bin(a).count("1") * 10000,
                 sum((a >> k & 1) << 2 * k for k in range(16)) | ((a & 0xffffffff) * (b & 0xffffffff) >> 32) << 32,
                 (tdiv(s64(a), t) + (s64(a) - tdiv(s64(a), 1000) * 1000) + tdiv(s32(a), s32(t) | 1)) & M]
    o.expect(rows)
    c.launch("integers", 1, 64, [x, o])
    return c
