# SPDX-License-Identifier: Apache-2.0
"""Cooperative groups and libcu++ as programs use them."""
import numpy as np

from corpus_lib import *


def entry(name, src, target=80, flags=()):
    c = Case(name, target=target, src=src + ".cu", flags=flags)
    c.only = name
    return c


def group(name, target=80, flags=()):
    return entry(name, "group_algorithms", target, flags)


def libcu(name, target=80, flags=()):
    return entry(name, "libcu", target, flags)


@case
def label_groups():
    c = group("label_groups")
    x, o = c.inp("in", "s32", 128, randint(0, 99, 701)), c.out("out", "s32", 512)
    v, rows = [int(q) for q in x.data], []
    for i in range(128):
        w = v[i // 32 * 32:i // 32 * 32 + 32]
        lane = i % 32
        same = [j for j in range(32) if w[j] % 5 == w[lane] % 5]
        side = [j for j in range(32) if (w[j] > 40) == (w[lane] > 40)]
        rows.append([sum(w[j] for j in same), same.index(lane) * 100 + len(same), max(w[j] for j in side),
                     min(w[j] for j in side if j <= lane)])
    o.expect(rows)
    c.launch("label_groups", 2, 64, [x, o])
    return c


@case
def tile_algorithms():
    c = group("tile_algorithms")
    x, s, o = c.inp("in", "s32", 96, randint(-99, 99, 702)), c.out("sums", "f64", 6), c.out("out", "s32", 96)
    v, rows = [int(q) for q in x.data], []
    for i in range(96):
        t = v[i // 8 * 8:i // 8 * 8 + 8]
        xor = 0
        for q in t:
            xor ^= q
        rows.append(sum(t[:i % 8]) * 7 + (xor & 15) + i % 16 // 8)
    s.expect(x.data.reshape(6, 16).sum(axis=1) * 0.25)
    o.expect(rows)
    c.launch("tile_algorithms", 2, 48, [x, s, o])
    return c


@case
def heat():
    c = group("heat")
    n = 150
    a, b = c.inout("a", "f32", n, grid(0, 64, 1, 704)), c.inout("b", "f32", n, uninit())
    v = [a.f]
    for _ in range(5):
        v.append(0.5 * v[-1] + 0.25 * (np.roll(v[-1], 1) + np.roll(v[-1], -1)))
    a.expect(v[4])
    b.expect(v[5])
    c.launch("heat", 3, 64, [a, b, i32("n", n), i32("steps", 5)], cooperative=True)
    return c


@case
def normalise():
    c = group("normalise", target=90)
    n = 500
    x, p, o = c.inp("in", "f32", n, concat((499, choice([1, 0.5, 2], 705)), (1, zero()))), c.scratch("part", "f32", 4, uninit()), c.out("out", "f32", n)
    o.expect((x.f.astype(np.float32) / np.float32(x.f.sum())).astype(np.float32))
    c.launch("normalise", 4, 128, [x, p, o, i32("n", n)], cooperative=True)
    return c


@case
def copy_ahead():
    c = group("copy_ahead")
    x, o = c.inp("in", "f32", 5 * 128, grid(-32, 32, 4, 706)), c.out("out", "f32", 128)
    v = x.f.reshape(5, 128)[:, ::-1]
    o.expect(sum(v[t] * (t + 1) for t in range(5)))
    c.launch("copy_ahead", 1, 128, [x, o, i32("tiles", 5)])
    return c


@case
def cluster_histogram():
    c = group("cluster_histogram", target=90)
    x, o = c.inp("in", "u8", 1000, bits(707)), c.inout("out", "u32", 256, zero())
    o.expect(np.bincount(x.data, minlength=256))
    c.launch("cluster_histogram", 4, 96, [x, o, i32("n", 1000)], cluster=(4, 1, 1))
    return c


@case
def cluster_sum():
    c = group("cluster_sum", target=90)
    x, o = c.inp("in", "f32", 256, grid(-32, 32, 4, 708)), c.out("out", "f32", 2)
    o.expect(x.f.reshape(2, 128).sum(axis=1))
    c.launch("cluster_sum", 8, 32, [x, o], cluster=(4, 1, 1))
    return c


@case
def elected():
    c = group("elected")
    x, k, o = c.inp("in", "s32", 256, randint(0, 999, 709)), c.inout("next", "s32", 1, zero()), c.inout("out", "s32", 256, zero())
    q = c.scratch("kept", "s32", 1)
    odd = [int(v) for v in x.data if v & 1]
    k.expect([len(odd)])
    o.expect(odd + [0] * (256 - len(odd)), multiset=True)
    c.launch("elected", 2, 128, [x, k, o, q])
    return c


@case
def stages():
    c = libcu("stages")
    tiles, n = 6, 5 * 256 + 131
    x, o = c.inp("in", "f32", n, grid(-32, 32, 4, 711)), c.out("out", "f32", 64)
    v = np.concatenate([x.f, np.zeros(tiles * 256 - n)]).reshape(tiles, 256)
    o.expect([sum(v[k, (t * 4 + j * 65) % 256] * (j + 1) for k in range(tiles) for j in range(4)) for t in range(64)])
    c.launch("stages", 1, 64, [x, o, i32("n", n), i32("tiles", tiles)])
    return c


@case
def block_pipeline():
    c = libcu("block_pipeline")
    x, o = c.inp("in", "s32", 7 * 64, randint(-99, 99, 712)), c.out("out", "s32", 64)
    acc = np.zeros(64, np.int64)
    for r in x.data.reshape(7, 64):
        acc = acc * 3 + r[::-1]
    o.expect(acc)
    c.launch("block_pipeline", 1, 64, [x, o, i32("batches", 7)])
    return c


@case
def barrier_parity():
    c = libcu("barrier_parity", target=90)
    x, o = c.inp("in", "s32", 6 * 32, randint(-99, 99, 713)), c.out("out", "s32", 32)
    acc = np.zeros(32, np.int64)
    for r in x.data.reshape(6, 32):
        acc = acc * 5 + r[[l ^ 1 for l in range(32)]]
    o.expect(acc)
    c.launch("barrier_parity", 1, 64, [x, o, i32("rounds", 6)])
    return c


@case
def wait_notify():
    c = libcu("wait_notify")
    t, d, o = c.inout("turn", "s32", 1, zero()), c.inout("data", "s32", 1, fill(1)), c.out("out", "s32", 6)
    v, seen = 1, []
    for b in range(6):
        seen.append(v)
        v = v * 2 + b
    t.expect([6])
    d.expect([v])
    o.expect(seen)
    c.launch("wait_notify", 6, 32, [t, d, o])
    return c


@case
def float_atomics():
    c = libcu("float_atomics", target=75)
    n = 150
    x, m, s = c.inp("in", "f32", n, grid(-640, 640, 8, 714)), c.inout("mx", "f32", 1, fill(-3)), c.inout("sum", "f64", 1, fill(0.5))
    b, f = c.inout("bits", "u32", 3, zero()), c.inout("flags", "u8", 8, zero())
    m.expect([max(-3, x.f.max())])
    s.expect([x.f.sum() + 0.5])
    b.expect([0xffffffff, 0xffffffff, (1 << 22) - 1])
    f.expect([(n - k + 6) // 7 for k in range(7)] + [0])
    c.launch("float_atomics", 3, 64, [x, m, s, b, f, i32("n", n)])
    return c


@case
def forks():
    c = libcu("forks", target=75)
    f, m = c.inout("fork", "s32", 5, zero()), c.inout("meals", "s32", 5, zero())
    f.expect([0] * 5)
    m.expect([8] * 5)
    c.launch("forks", 1, 160, [f, m, i32("rounds", 4)])
    return c


@case
def std_types():
    c = libcu("std_types")
    x, o, b = c.inp("in", "f32", 64, grid(-32, 32, 4, 715)), c.out("out", "f32", 192), c.out("bits", "u32", 64)
    m, rows, ints = x.f.reshape(8, 8), [], []
    for t in range(64):
        z = complex(m[t // 8, t % 8], m[t % 8, t // 8])
        w = z * z + complex(1, -2)
        rows.append([w.real, w.imag, m[0, t % 8]])
        u = int(x.data[t:t + 1].view(np.uint32)[0])
        rot = (u << 9 | u >> 23) & 0xffffffff
        ints.append(bin(u).count("1") + 64 * (32 - u.bit_length()) + 4096 * (rot & 255))
    o.expect(rows)
    b.expect(ints)
    c.launch("std_types", 1, 64, [x, o, b])
    return c


@case
def wide_cas():
    c = libcu("wide_cas", target=90)
    p = c.inout("p", "u64", 2, zero())
    k = 2 * 48 * 2
    p.expect([3 * k, 3 * k * (k - 1) // 2])
    c.launch("wide_cas", 2, 48, [p, i32("rounds", 2)])
    return c


@case
def tx_copy():
    c = libcu("tx_copy", target=90)
    x, o = c.inp("in", "s32", 4 * 64, randint(-99, 99, 716)), c.out("out", "s32", 4 * 64)
    v = x.data.reshape(4, 64)[:, [t ^ 1 for t in range(64)]]
    o.expect(v + np.arange(4).reshape(4, 1))
    c.launch("tx_copy", 1, 64, [x, o, i32("tiles", 4)])
    return c
