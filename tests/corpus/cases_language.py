# SPDX-License-Identifier: Apache-2.0
"""Irregular algorithms, locks and flags between threads, and what the C++ language turns into."""
import numpy as np

from corpus_lib import *

M32, M64 = 0xffffffff, (1 << 64) - 1


def s32(x):
    x = int(x) & M32
    return x - (1 << 32) if x >> 31 else x


def s64(x):
    x = int(x) & M64
    return x - (1 << 64) if x >> 63 else x


def cdiv(a, b):
    """C's truncating quotient."""
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def crem(a, b):
    return a - b * cdiv(a, b)


@case
def compaction():
    c = Case("compaction")
    n = 1000
    x, k = c.inp("in", "s32", n, randint(-500, 500, 101)), c.inout("count", "s32", 1, zero())
    keep = [v for v in x.data if v % 3 == 0]
    y = c.inout("out", "s32", len(keep), uninit())
    k.expect([len(keep)])
    y.expect(keep, multiset=True)
    c.launch("compaction", 4, 256, [x, y, k, i32("n", n)])
    return c


@case
def bfs():
    c = Case("bfs")
    n, deg = 150, 3
    z = splitmix(102, n * deg)
    adj = [[int(z[u * deg + j] % np.uint64(n)) for j in range(deg if u % 5 else 0)] for u in range(n)]
    ptr = np.concatenate([[0], np.cumsum([len(a) for a in adj])])
    dist, front, sizes, level = [-1] * n, [1], [1], 0
    dist[1] = 0
    while front:
        nxt = []
        for u in front:
            for v in adj[u]:
                if dist[v] < 0:
                    dist[v] = level + 1
                    nxt.append(v)
        front, level = nxt, level + 1
        sizes.append(len(nxt))
    p, a = c.given("ptr", "s32", ptr), c.given("adj", "s32", sum(adj, []))
    d = c.inout("dist", "s32", n, concat((1, fill(-1)), (1, fill(0)), (n - 2, fill(-1))))
    s = c.inout("sizes", "s32", level + 2, concat((1, fill(1)), (level + 1, zero())))
    f0, f1 = c.scratch("f0", "s32", n, concat((1, fill(1)), (n - 1, uninit()))), c.scratch("f1", "s32", n, uninit())
    d.expect(dist)
    s.expect(sizes + [0])
    for l in range(level + 1):
        c.launch("bfs_level", 2, 32, [p, a, d, (f0, f1)[l % 2], (f1, f0)[l % 2], s, i32("level", l)])
    return c


@case
def union_find():
    c = Case("union_find")
    n, m = 200, 170
    e = c.inp("edges", "s32", 2 * m, randint(0, n - 1, 103))
    p, l = c.scratch("parent", "s32", n, uninit()), c.out("label", "s32", n)
    lab = list(range(n))
    for _ in range(n):
        for u, v in e.data.reshape(m, 2):
            lab[u] = lab[v] = min(lab[u], lab[v])
    l.expect(lab)
    c.launch("uf_init", 2, 128, [p, i32("n", n)])
    c.launch("uf_hook", 3, 64, [p, e, i32("m", m)])
    c.launch("uf_flatten", 4, 64, [p, l, i32("n", n)])
    return c


@case
def hash_table():
    c = Case("hash_table")
    n, q = 400, 300
    k, t = c.inp("keys", "u32", n, randint(1, 150, 104)), c.scratch("table", "u64", 256, fill("0xffffffffffffffff"))
    qs, r = c.inp("query", "u32", q, randint(1, 200, 105)), c.out("count", "s32", q)
    r.expect([int((k.data == v).sum()) for v in qs.data])
    c.launch("hash_insert", 4, 128, [k, t, i32("mask", 255), i32("n", n)])
    c.launch("hash_lookup", 3, 128, [qs, t, r, i32("mask", 255), i32("n", q)])
    return c


@case
def locks():
    c = Case("locks")
    a, b, d = c.inout("block", "s32", 2, zero()), c.inout("lane", "s32", 1, zero()), c.inout("nested", "s32", 1, zero())
    lk = c.inout("lock", "s32", 2, zero())
    o, at = c.out("order", "s32", 24), c.inout("at", "s32", 1, zero())
    v = 0
    for _ in range(6):
        v = v * 3 + 1
    a.expect([6, v])
    b.expect([2 * sum(1 + (t & 3) for t in range(48))])
    d.expect([64])
    lk.expect([0, 0])
    o.expect(range(24))
    at.expect([24])
    c.launch("lock_block", 6, 64, [a])
    c.launch("lock_lane", 2, 48, [lk, b])
    c.launch("lock_lane_nested", 1, 64, [lk + 4, d])
    c.launch("lock_ticket", 3, 64, [o, at])
    return c


@case
def producer_consumer():
    c = Case("producer_consumer")
    pairs, rounds = 3, 10
    x, ring = c.inp("in", "s32", pairs * rounds * 64, randint(-100, 100, 106)), c.scratch("ring", "s32", pairs * 256, uninit())
    f, e, o = c.inout("full", "s32", pairs, zero()), c.inout("empty", "s32", pairs, zero()), c.out("out", "s32", pairs * 64)
    f.expect([rounds] * pairs)
    e.expect([rounds] * pairs)
    v = x.data.reshape(pairs, rounds, 64).astype(np.int64)
    acc = np.zeros((pairs, 64), np.int64)
    for r in range(rounds):
        acc = acc * 5 + (v[:, r] * 2 + r)[:, np.arange(64) ^ 1]
    o.expect(acc)
    c.launch("producer_consumer", 2 * pairs, 64, [x, ring, f, e, o, i32("rounds", rounds)])
    return c


@case
def grid_barrier():
    c = Case("grid_barrier")
    n = 5 * 64
    a, b = c.inout("a", "s32", n, randint(-9, 9, 107)), c.scratch("b", "s32", n, uninit())
    v = a.data.astype(int)
    for _ in range(3):
        w = np.roll(v, 1) + np.roll(v, -1)
        v = w - np.roll(w, -(n // 2))
    a.expect(v)
    c.launch("grid_barrier", 5, 64, [a, b, i32("n", n)])
    return c


@case
def message_passing():
    c = Case("message_passing")
    d, f = c.scratch("data", "s32", 64, uninit()), c.inout("flags", "s32", 3, zero())
    o0, o1, o2, o3 = c.out("o0", "s32", 64), c.out("o1", "s32", 1), c.out("o2", "s32", 1), c.out("o3", "s32", 32)
    f.expect([1, 2, 9])
    o0.expect([(t ^ 3) * 7 + 1 for t in range(64)])
    o1.expect([42 + 100 * 43])
    o2.expect([30])
    o3.expect([31 - t + 500 for t in range(32)])
    c.launch("mp_fence", 2, 64, [d, f, o0])
    c.launch("mp_release", 3, 32, [d, f + 4, o1])
    c.launch("mp_atomic_ref", 2, 32, [d, f + 8, o2])
    c.launch("mp_shared", 1, 64, [o3])
    return c


def ack(m, n):
    return n + 1 if m == 0 else ack(m - 1, 1) if n == 0 else ack(m - 1, ack(m, n - 1))


def functions_case(name, flags):
    c = Case(name, src="functions.cu", flags=flags)
    x, o, d = c.inp("in", "s32", 64, randint(-100, 100, 108)), c.out("out", "s32", 512), c.out("dout", "f64", 64)
    v = [int(k) for k in x.data]
    fib = [0, 1]
    while len(fib) < 12:
        fib.append(fib[-1] + fib[-2])
    def twist(p, k):
        a, b, s = p
        return a * k, b + a, [s[2 - i] + k for i in range(3)]
    rows, ds = [], []
    s1, s2 = sum(v), sum(t * v[t] for t in range(64))
    for t in range(64):
        p = twist((v[t], v[t] * 0.5, [v[t], v[t] + 1, v[t] + 2]), t % 5)
        if t % 2:
            p = twist(p, 3)
        ds.append(p[1])
        ops = [v[t] + t, v[t] - t, v[t] * t][t % 3]
        six = v[t ^ 1] ^ t if t >= 32 else v[t] - t
        many = v[t] + v[t] * 3 + v[t] + (1 << 20) + int(v[t] + 0.25) + int(v[t] - 0.5) + (v[t] & 255) + (v[t] & 65535) + v[t] + (v[t] > 0)
        rows.append([p[0] + p[2][0] + 10 * p[2][1] + 100 * p[2][2], fib[t % 11], ack(t % 3, t % 4), int(t % 13 % 2 == 0), s1 + s2, ops, six, many])
    o.expect(rows)
    d.expect(ds)
    c.launch("functions", 1, 64, [x, o, d])
    return c


@case
def functions():
    return functions_case("functions", [])


@case
def functions_debug():
    return functions_case("functions_debug", ["-G"])


@case
def virtuals():
    c = Case("virtuals")
    w, a, s = c.inp("which", "s32", 48, randint(0, 11, 109)), c.out("area", "f32", 48), c.out("sides", "s32", 48)
    areas, sides = [], []
    for t, k in enumerate(int(v) for v in w.data):
        sq, ci = (lambda x: 2 * x * x), (lambda x: 0.5 * x * x * 3.25)
        f, n = [(sq, 4), (ci, 0), (lambda x: sq(x) + ci(x + 1), 4)][k % 3]
        areas.append(f(t) + t * (t + 1)**2 if k & 4 else f(t))
        sides.append(n + 4 if k & 4 else n)
    a.expect(areas)
    s.expect(sides)
    c.launch("virtuals", 1, 48, [w, a, s])
    return c


def local_array_case(name, flags):
    c = Case(name, src="local_array.cu", flags=flags)
    x, o, w = c.inp("in", "s32", 512, randint(-10**6, 10**6, 110)), c.out("out", "s32", 512), c.out("words", "u64", 32)
    rows, words = [], []
    for t in range(32):
        a = sorted(int(v) for v in x.data[16 * t:16 * t + 16])
        i = int(x.data[t]) & 15
        a[i] += 1000 * i
        rows.append([a[(i + t) & 15] for i in range(16)])
        b = [((int(x.data[t]) >> (i % 4 * 8)) + i) & 255 for i in range(24)]
        b[int(x.data[t + 1]) & 7] = 0xee
        k = (t & 1) * 8
        words.append(int.from_bytes(bytes(b[k:k + 8]), "little") ^ b[16 + (t & 7)] << 32)
    o.expect(rows)
    w.expect(words)
    c.launch("local_array", 1, 32, [x, o, w])
    return c


@case
def local_array():
    return local_array_case("local_array", [])


@case
def local_array_debug():
    return local_array_case("local_array_debug", ["-G"])


@case
def jump_table():
    c = Case("jump_table")
    import random
    rng = random.Random(5)
    code, start = [], []
    for _ in range(32):
        start.append(len(code))
        for _ in range(rng.randrange(5, 30)):
            op = rng.choice([1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 200])
            if op == 10:
                code += [10, 2, 3, 4]  # skips two of three plain instructions when odd
                code += [9]
            elif op == 6:
                code += [6, 3, 7]
            else:
                code += [op] + ([rng.randrange(256)] if op == 1 else [])
        code.append(0)
    b, s, o = c.given("code", "u8", code), c.given("start", "s32", start), c.out("out", "s32", 32)
    out = []
    for t in range(32):
        pc, acc, steps, st, sp = start[t], t, 0, [0] * 8, 0
        while True:
            op = code[pc]
            pc += 1
            if op == 0:
                out.append(acc * 100 + steps)
                break
            if op == 1:
                acc, pc = acc + code[pc], pc + 1
            elif op == 2:
                acc -= 5
            elif op == 3:
                acc *= 3
            elif op == 4:
                acc ^= 0x55
            elif op == 5:
                acc = acc << 2 | (acc & M32) >> 30
            elif op == 6:
                st[sp & 7], sp = acc, sp + 1
            elif op == 7:
                sp -= 1
                acc += st[sp & 7]
            elif op == 8:
                acc = int("{:032b}".format(acc & M32)[::-1], 2)
            elif op == 9:
                acc = max(acc, 17)
            elif op == 10:
                if acc & 1:
                    pc += code[pc]
                pc += 1
            elif op == 11:
                acc = -acc
            elif op == 12:
                acc = crem(acc, 1001)
            elif op == 13:
                acc = bin(acc & M32).count("1")
            else:
                acc += op
            acc = s32(acc)
            steps += 1
    o.expect(out)
    c.launch("jump_table", 1, 32, [b, s, o])
    return c


@case
def irreducible():
    c = Case("irreducible")
    x, o = c.inp("in", "s32", 32, randint(1, 60000, 111)), c.out("out", "s32", 96)
    rows = []
    for t in range(32):
        v, n, at = int(x.data[t]), 0, "middle" if int(x.data[t]) & 1 else "top"
        while True:
            if at == "top":
                v, n = s32(v * 3 + 1), n + 1
            v >>= 1
            if v > 1 and n < 50:
                at = "middle" if v & 2 else "top"
                continue
            break
        r0, y, steps = v * 100 + n, int(x.data[t]) & 0xffff | 1, 0
        while y != 1:
            steps += 1
            if steps > 60:
                break
            y = 3 * y + 1 if y & 1 else y // 2
        last = -1
        if t % 4 != 3:
            last = sum(i * j for i in range(t % 7 + 1) for j in range(i, 5) if (i ^ j) != 3) + 5 * (t & 1)
        rows.append([r0, steps, last])
    o.expect(rows)
    c.launch("irreducible", 1, 32, [x, o])
    return c


@case
def symbols():
    c = Case("symbols")
    scale = float(c.symbol("scale", "f32", 1, values([0.75]))[0])
    lim = c.symbol("limits", "s64", 2, values([-(1 << 34), 4096]))
    o, d, e = c.out("out", "s32", 16), c.out("dout", "f64", 8), c.out("after", "s32", 6)
    primes, sq, other = [2, 3, 5, 7, 11, 13, 17, 19], [0, 1, 4, 9, 16, 25], [-7, -8, -9]
    names, by = ["alpha", "be"], [-1, 2, -3, 4, -5]
    where = [sq[2:], other, sq[1:]]
    a, b, ds = [], [], []
    for t in range(8):
        v = primes[t] + where[t % 3][t % 2]
        v = v * 10 + [other[1], sq[0], 77][t % 3]
        v += ord("xyz"[t % 3]) + ord(names[t & 1][t & 1]) + by[t % 5]
        a.append(v)
        b.append(40 + s32(int(lim[t & 1]) >> 4))
        ds.append([0.1, -1e300][t & 1] * [0.5, -2.0, 8.0][t % 3] + scale)
    o.expect(a + b)
    d.expect(ds, rel=1e-15)
    sq = [v + 100 for v in sq]
    e.expect([[sq[2], other[0], sq[1]][t % 3] + 42 for t in range(6)])
    c.launch("symbols", 1, 8, [o, d])
    c.launch("symbols_change", 1, 6, [e])
    return c


@case
def extern_shared():
    c = Case("extern_shared")
    n = 4000
    x, y = c.inp("in", "f64", n, grid(-100, 100, 4, 112)), c.out("out", "f64", n + 1)
    smem = n * 13
    r = [x.f[n - 1 - i] + (i + 1) % n % 251 + (i & 31) for i in range(n)]
    y.expect(r + [smem + 0.5])
    c.launch("extern_shared", 1, 128, [x, y, i32("n", n)], smem=smem)
    return c


@case
def struct_params():
    c = Case("struct_params")
    n = 150
    x, y = c.inp("x", "f32", n, grid(-100, 100, 4, 113)), c.out("y", "f32", n + 1)
    table = [0.5, 1, -2, 4, 8.25]
    r = []
    for i in range(n):
        v = 2 * x.f[i] - 1.5 + sum(table[(i + k) % 5] for k in range(3))
        r.append(v * 0.5 - 9)
    y.expect(r + [200 + 3.0 - 5])
    fields = [(0, x), (8, y), (16, "s32", n), (20, "s16", -9), (22, "s8", ord("k")), (24, "f64", 0.5)]
    fields += [(32 + 4 * i, "f32", table[i]) for i in range(5)]
    c.launch("struct_params", 2, 32, [struct_param("g", 56, 8, fields), struct_param("f", 8, 4, [(0, "f32", 2.0), (4, "f32", -1.5)]),
                                      scalar("two", "u8", 0), scalar("add", "u8", 200), scalar("big", "u64", (3 << 40) + 5), scalar("neg", "s16", -5)])
    return c


@case
def packed():
    c = Case("packed")
    n = 40
    rec, b = c.inp("in", "u8", 15 * n, bits(114)), c.inout("bits", "u32", 2 * n, bits(115))
    o, c3, s3 = c.out("out", "s64", n), c.inp("c3", "s8", 3 * n, bits(116)), c.out("s3", "s16", 3 * n)
    out, nb, ns = [], [], []
    for t in range(n):
        raw = rec.data[15 * t:15 * t + 15].tobytes()
        tag, value, s, big = struct.unpack("<bihq", raw)
        out.append(s64(tag + value * 3 + s + (big >> 5)))
        w0, w1 = int(b.data[2 * t]), int(b.data[2 * t + 1])
        fa, fb, fc = w0 & 7, w0 >> 3 & 2047, w0 >> 14
        fe = w1 >> 7
        fe = fe - (1 << 25) if fe >> 24 else fe
        fa, fb = (fa + 5) & 7, (fb ^ s) & 2047
        nb += [fa | fb << 3 | fc << 14, ((fe >> 3) & 127) | (-fc & 0x1ffffff) << 7]
        x, y, z = (int(v) for v in c3.data[3 * t:3 * t + 3])
        ns += [x * y, y - z, z << 4]
    o.expect(out)
    b.expect(nb)
    s3.expect(ns)
    c.launch("packed", 1, n, [rec, o, b, c3, s3])
    return c


@case
def vector_loads():
    c = Case("vector_loads")
    n = 96
    f, i, u, d = c.inp("f4", "f32", 4 * n, bits(117)), c.inp("i2", "s32", 2 * n, bits(118)), c.inp("c4", "u8", 4 * n, bits(119)), c.inp("d2", "f64", 2 * n, uniform(-1, 1, 120))
    of, oi, ou, od = c.out("of4", "f32", 4 * n), c.out("oi2", "s32", 2 * n), c.out("oc4", "u8", 4 * n), c.out("od2", "f64", 2 * n)
    of.expect(f.data.reshape(n, 4)[:, ::-1])
    I = i.data.reshape(n, 2).astype(np.int64)
    oi.expect(np.stack([I[:, 1], I[:, 0] + I[:, 1]], 1))
    U = u.data.reshape(n, 4)
    ou.expect(np.stack([U[:, 1], U[:, 2], U[:, 3], U[:, 0] ^ 0xff], 1))
    D = d.data.reshape(n, 2)
    od.expect(np.stack([D[:, 1] - D[:, 0], D[:, 0]], 1))
    c.launch("vector_loads", 3, 32, [f, i, u, d, of, oi, ou, od])
    n = 64
    a, b, l = c.inp("c2", "s8", 2 * n, bits(121)), c.inp("u4", "u16", 4 * n, bits(122)), c.inp("l2", "s64", 2 * n, bits(123))
    oa, ob, ol = c.out("oc", "s16", 2 * n), c.out("ou", "u16", 4 * n), c.out("ol", "s64", 2 * n)
    A, B, L = a.data.reshape(n, 2).astype(int), b.data.reshape(n, 4).astype(int), l.data.reshape(n, 2)
    oa.expect(np.stack([A[:, 1], A[:, 0] * 2], 1))
    ob.expect(np.stack([B[:, 3], B[:, 2], B[:, 0] + B[:, 1], B[:, 0]], 1))
    ol.expect(np.stack([L[:, 0] ^ L[:, 1], L[:, 0] >> 3], 1))
    c.launch("vector_narrow", 2, 32, [a, b, l, oa, ob, ol])
    return c


@case
def grid_stride():
    c = Case("grid_stride")
    n, first, step = 500, 5000000000, 3
    x, o = c.inp("base", "u8", 3 * n, bits(124)), c.out("out", "u32", n)
    r = []
    for i in range(n):
        pos = first + i * step
        r.append(int(x.data[pos - 5000000000]) + (pos >> 20) + pos % 1000003 + cdiv(-pos, 77))
    o.expect(r)
    c.launch("grid_stride", (3, 2), 37, [x, o, i64("first", first), i64("step", step), i32("n", n)])
    return c


@case
def block_votes():
    c = Case("block_votes")
    n = 64
    x, o = c.inp("in", "s32", n, randint(-100, 100, 125)), c.out("out", "s32", 16 * n)
    v = [int(k) for k in x.data]
    rows = []
    for t in range(n):
        w, lane = t // 32 * 32, t % 32
        W = v[w:w + 32]
        mask = lambda f: s32(sum(1 << i for i in range(32) if f(i)))
        m7 = s32(M32) if w == 0 or len(set(W)) == 1 else 0
        k = 31 - lane
        sx = (W[k] << 33 | (w + k)) if True else 0
        src = lane + 4  # down, segments of 8 starting at multiples: clamp 0x1f, mask 0x0c
        seg = 0x0c
        maxl = (lane & seg) | (0x1f & ~seg)
        ok = src <= maxl
        got = W[src] if ok else W[lane]
        hi = [i for i in range(20, 32) if W[i] >> 4 == W[lane] >> 4]
        # le ^ gt = all ones; ^ eq ^ laneid
        r15 = s32((M32 ^ (1 << lane) ^ lane) + 1)
        rows.append([sum(k > 0 for k in v), 1, 1, mask(lambda i: W[i] & 1), int(any(k > 90 for k in W)) * 2 + int(all(k > -101 for k in W)),
                     mask(lambda i: W[i] & 3 == W[lane] & 3), m7, int(m7 != 0),
                     W[lane // 8 * 8 + (lane + 3) % 8], W[lane - 3] if lane % 16 >= 3 else W[lane], W[lane + 5] if lane % 8 < 3 else W[lane],
                     W[lane // 16 * 16 + (lane % 16 ^ 9)], s32(s32(s64(sx) >> 33) ^ s32(sx)), int(ok) * 1000 + got,
                     len(hi) if lane >= 20 else 0, r15])
    o.expect(rows)
    c.launch("block_votes", 1, n, [x, o])
    return c


@case
def shared_atomics():
    c = Case("shared_atomics")
    n = 96
    x, o, f, l = c.inp("in", "s32", n, randint(-1000, 1000, 126)), c.out("out", "s32", 10), c.out("fout", "f32", 3), c.out("lout", "u64", 4)
    v = [int(k) for k in x.data]
    from functools import reduce
    inc, dec = 0, 5
    for _ in range(n):
        inc = 0 if inc >= 10 else inc + 1
        dec = 12 if dec == 0 or dec > 12 else dec - 1
    o.expect([sum(v), min(v), max(v), s32(reduce(lambda a, b: a & (b | 0xf0f0f0f0), v, M32)), reduce(lambda a, b: a | b & 0x11111111, v, 0),
              reduce(lambda a, b: a ^ b, v, 0), inc, dec, -3 * n, 1])
    l.expect([sum(v) & M64, min((k & M32) << 8 for k in v), max(max(v), 0) << 16, reduce(lambda a, b: a ^ b, [(v[t] & M32) << (t % 32) for t in range(n)])])
    f.expect([sum(v) * 0.25, max(max(v), 0) * 0.5, sum(v) * 0.125])
    c.launch("shared_atomics", 1, n, [x, o, f, l])
    return c


@case
def global_atomics():
    c = Case("global_atomics")
    n = 256
    x = c.inp("in", "s32", n, randint(-1000, 1000, 127))
    start = [0, 0, 0, 0, -2**31, 2**31 - 1, -1, 0, 0, 0, 3]
    a = c.inout("i32", "s32", 11, values(start))
    b = c.inout("i64", "u64", 5, values([0, "0x8000000000000000", "0xffffffffffffffff", 0, "0xffffffffffffffff"]))
    f, d, h, bb = c.inout("f", "f32", 4, fill(0.5)), c.inout("d", "f64", 2, zero()), c.inout("h", "f16", 4, zero()), c.inout("b", "bf16", 2, zero())
    o, h1 = c.out("order", "u32", n), c.inout("h1", "f16", 1, zero())
    v = [int(k) for k in x.data]
    bl = [sum(v[64 * k:64 * k + 64]) for k in range(4)]
    orv = andv = xorv = lor = 0
    for k in v:
        orv, xorv, lor = orv | 1 << (k & 31), xorv ^ k * 77, lor | 1 << (k & 63)
    dec = 3
    for _ in range(n):
        dec = 1000 if dec == 0 or dec > 1000 else dec - 1
    a.expect(bl + [max(v), min(v), ~orv, orv, xorv, n, dec])
    b.expect([sum(k * k << 20 for k in v) & M64, max(v) << 20, min((k + 2000) << 30 for k in v), lor, ~lor & M64])
    f.expect([0.5 + 0.5 * sum(k for k in v if k & 3 == q) for q in range(4)])
    d.expect([0.25 * sum(k for k in v if k & 1 == q) for q in range(2)])
    hs = []
    for q in range(2):
        hs += [sum((k & 7) * 0.5 for k in v if k & 1 == q), sum(1 for k in v if k & 1 == q)]
    h.expect(hs)
    bb.expect([n // 4, n // 8])
    h1.expect([n * 0.25])
    o.expect(range(n), multiset=True)
    c.launch("global_atomics", 4, 64, [x, a, b, f, d, h, bb, o, h1])
    t, e, y = c.inout("target", "f64", 1, fill(1)), c.inout("exch", "s32", 3, zero()), c.inp("y", "f64", 64, grid(-100, 100, 8, 128))
    t.expect([1 + y.f.sum()])
    e.expect([0, 9, 192])
    c.launch("cas_loop", 1, 64, [t, e, y])
    return c
