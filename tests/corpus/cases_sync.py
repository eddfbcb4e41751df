# SPDX-License-Identifier: Apache-2.0
"""Barriers, groups and other thread-level services below sm_90."""
import numpy as np

from corpus_lib import *


@case
def named_barriers():
    c = Case("named_barriers")
    rounds = 9
    x, o = c.inp("in", "s32", rounds * 32, randint(-100, 100, 301)), c.out("out", "s32", 96)
    v, acc = x.data.reshape(rounds, 32).astype(np.int64), np.zeros(32, np.int64)
    for r in range(rounds):
        acc = acc * 3 + v[r, ::-1] + 1
    n = int((x.data[64:128] > 10).sum())
    o.expect(list(acc) + [2 * n + 1] * 64)
    c.launch("named_barriers", 1, 128, [x, o, i32("rounds", rounds)])
    return c


@case
def print_assert():
    c = Case("print_assert")
    x, o = c.inp("in", "s32", 64, randint(0, 1000, 302)), c.out("out", "s32", 64)
    o.expect(x.data + 1)
    c.launch("print_assert", 1, 64, [x, o])
    return c


def cg_case(name, flags):
    c = Case(name, src="cg_groups.cu", flags=flags)
    n = 128
    x, o, k = c.inp("in", "s32", n, randint(-100, 100, 303)), c.out("out", "s32", 6 * n), c.inout("counter", "s32", 1, zero())
    v = [int(q) for q in x.data]
    rows = []
    for i in range(n):
        t8, w, b, lane = i // 8 * 8, i // 32 * 32, i // 64 * 64, i % 32
        T, W = v[t8:t8 + 8], v[w:w + 32]
        r = [T[3] + (lane // 8) * 1000 + 2 * 100000, (T[i % 8 + 2] if i % 8 < 6 else v[i]) + sum(1 << j for j in range(8) if T[j] > 0) * 4096,
             int(any(q > 95 for q in T)) * 2 + int(all(q > -90 for q in T)) + 16 * sum(1 << j for j in range(8) if (T[j] & 1) == (v[i] & 1)), -1, -1]
        if v[i] % 3 == 0:
            g = [j for j in range(32) if W[j] % 3 == 0]
            rank = g.index(lane)
            r[3] = W[g[-1]] * 64 + rank
            r[4] = W[g[rank - 1]] if rank else 0
        block_rank = i - b
        r.append(sum(v[b:b + 16]) if block_rank == 0 else 16 if block_rank < 16 else 0)
        rows.append(r)
    o.expect(rows)
    k.expect([sum(q % 3 == 0 for q in v)])
    c.launch("cg_groups", 2, 64, [x, o, k])
    return c


@case
def cg_groups():
    return cg_case("cg_groups", [])


@case
def cg_groups_lineinfo():
    return cg_case("cg_groups_lineinfo", ["-lineinfo"])


@case
def cuda_barrier():
    c = Case("cuda_barrier")
    rounds = 7
    x, o = c.inp("in", "s32", rounds * 64, randint(-100, 100, 304)), c.out("out", "s32", 64)
    v, acc = x.data.reshape(rounds, 64).astype(np.int64), np.zeros(64, np.int64)
    for r in range(rounds):
        acc = acc * 7 + v[r, ::-1] * 2
    o.expect(acc)
    y, p = c.inp("y", "s32", 288, bits(305)), c.out("p", "s32", 288)
    p.expect(y.data.reshape(3, 96)[:, ::-1])
    c.launch("cuda_barrier", 1, 128, [x, o, i32("rounds", rounds)])
    c.launch("barrier_copy", 1, 32, [y, p])
    return c


@case
def alloca_misc():
    c = Case("alloca_misc")
    n = 48
    x, o = c.inp("in", "s32", n, randint(-100, 100, 306)), c.out("out", "s32", 2 * n)
    v = [int(q) for q in x.data]
    rows = []
    for t in range(n):
        k = 1 + t % 5
        dyn = [v[(t + i) % n] for i in range(k)]
        p = [v[(t + 1) % n], v[t // 2], t][t % 3]
        rows.append([p + sum(dyn[(i + t) % k] * (i + 1) for i in range(k)), [1, 2, 4][t % 3] + 48])
    o.expect(rows)
    c.launch("alloca_misc", 1, n, [x, o, i32("n", n)])
    return c


@case
def early_return():
    c = Case("early_return")
    n = 41
    x, o, l = c.inp("in", "s32", n, randint(-20, 100, 307)), c.inout("out", "s32", n, fill(-7)), c.out("left", "s32", 64 - n)
    v = [int(q) for q in x.data]
    w = v[::-1]
    kept = [w[t] if w[t] >= 0 else v[t] for t in range(n)]
    o.expect([sum(max(k, 0) for k in kept[:t + 1]) if w[t] >= 0 else -7 for t in range(n)])
    l.expect([-t for t in range(n, 64)])
    c.launch("early_return", 1, 64, [x, o, l, i32("n", n)])
    return c
