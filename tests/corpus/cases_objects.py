# SPDX-License-Identifier: Apache-2.0
"""Language features, hand-made bit work, and CUB."""
import struct

import numpy as np

from corpus_lib import *


def entry(name, src="objects", target=80, flags=()):
    c = Case(name, target=target, src=src + ".cu", flags=flags)
    c.only = name
    return c


def cub(name, target=80):
    return entry(name, "cub_blocks", target)


@case
def cub_radix_sort():
    c = cub("cub_radix_sort")
    x, k, p = c.inp("in", "s32", 512, randint(-5000, 5000, 741)), c.out("keys", "s32", 512), c.out("places", "s32", 512)
    order = [np.argsort(r, kind="stable") for r in x.data.reshape(2, 256)]
    k.expect(np.concatenate([r[o] for r, o in zip(x.data.reshape(2, 256), order)]))
    p.expect(np.concatenate(order))
    c.launch("cub_radix_sort", 2, 64, [x, k, p])
    return c


@case
def cub_merge_sort():
    c = cub("cub_merge_sort", target=90)
    x, o = c.inp("in", "f64", 350, uniform(-9, 9, 742)), c.out("out", "f64", 350)
    o.expect(np.sort(x.data))
    c.launch("cub_merge_sort", 1, 128, [x, o, i32("valid", 350)])
    return c


@case
def cub_block_mix():
    c = cub("cub_block_mix", target=75)
    x, o, s = c.inp("in", "s32", 256, randint(0, 5, 743)), c.out("out", "s32", 512), c.out("summary", "s32", 66)
    v = [int(q) for q in x.data]
    run, rows = 0, []
    for i, q in enumerate(v):
        rows.append(run * 2 + int(i == 0 or v[i - 1] != q))
        run += q
    o.expect(rows + [v[i] for i in range(256)])
    s.expect([max(v), run] + [v.count(b) for b in range(64)])
    c.launch("cub_block_mix", 1, 128, [x, o, s])
    return c


@case
def cub_warps():
    c = cub("cub_warps")
    x, o, m = c.inp("in", "f32", 128, grid(0, 64, 8, 744)), c.out("out", "f32", 256), c.out("sorted", "s32", 256)
    v, heads, sums, pairs = list(x.f), [], [], []
    for i in range(128):
        end = i + 1
        while end % 16 and not v[end] > 6:
            end += 1
        # the sum of the segment goes to its head; other lanes keep partial sums of what follows them
        heads.append(sum(v[i:end]))
    for w in range(4):
        run, keys = 0, []
        for i in range(32):
            sums.append(run)
            run += int(v[w * 32 + i])
            keys += [int(v[w * 32 + i] * 8), run]
        pairs += sorted(keys)
    o.expect(heads + sums)
    m.expect(pairs)
    c.launch("cub_warps", 1, 128, [x, o, m])
    return c


@case
def cub_lookback():
    c = Case("cub_lookback", src="cub_blocks.cu")
    c.only = "cub_lookback(?:_init)?"
    x, o, s = c.inp("in", "s32", 12 * 128, randint(-99, 99, 745)), c.out("out", "s32", 12 * 128), c.scratch("status", "u64", 12 + 32, uninit())
    o.expect(np.cumsum(x.data))
    c.launch("cub_lookback_init", 1, 64, [s, i32("tiles", 12)])
    c.launch("cub_lookback", 12, 128, [x, o, s, i32("tiles", 12)])
    return c


@case
def heap_objects():
    c = entry("heap_objects", target=75)
    x, o = c.inp("in", "f32", 60, grid(0, 64, 4, 746)), c.out("out", "f32", 60)
    area = [lambda a: a * a, lambda a: 3 * a, lambda a: 2 * a + a + a + 2]
    o.expect([area[i % 3](x.f[i]) + (i % 5) * i for i in range(60)])
    c.launch("heap_objects", 2, 32, [x, o, i32("n", 60)])
    return c


def expression_case(name, flags):
    c = Case(name, target=80, src="expressions.cu", flags=flags)
    texts = ["1+2*3", "(4+5)*-6", "((2))", "7", "10*(3+4*(2+1))+-5", "-3*-3*-3", "(1+(2+(3+(4+5))))", "9*9+8*8*(1+1)", "12345*2", "0*(7+7)+1"] * 2
    start, blob = [], ""
    for t in texts:
        start.append(len(blob))
        blob += t + "\0"
    s, a, o = c.given("text", "u8", [ord(q) for q in blob]), c.given("start", "s32", start), c.out("out", "s32", len(texts))
    o.expect([eval(t) for t in texts])
    c.launch("expressions", 1, 32, [s, a, o, i32("n", len(texts))])
    return c


@case
def expressions():
    return expression_case("expressions", [])


@case
def expressions_debug():
    return expression_case("expressions_debug", ["-G"])


@case
def function_table():
    c = entry("function_table", target=86)
    import math
    x, o = c.inp("in", "s32", 64, randint(0, 40, 747)), c.out("out", "s32", 64)
    v = [int(q) for q in x.data]
    w = [[1, -2, 3, 4], [5, 6, -7, 8], [9, 10, 11, -12]]
    ops = [lambda a, b: a + b, lambda a, b: a * b, lambda a, b: a << (b & 7), math.gcd]
    rows = []
    for i in range(64):
        a, b, f = v[i] + 1, v[i ^ 1] + 1, v[0]
        for k in range(1, 5):
            f = f * 3 + v[k] * a
        rows.append(ops[v[i] & 3](a, b) + w[i % 3][v[i] & 3] + f)
    o.expect(rows)
    c.launch("function_table", 1, 64, [x, o])
    return c


@case
def wide_integers():
    c = entry("wide_integers", target=75)
    n = 40
    x, o = c.inp("x", "u64", n, bits(748)), c.out("out", "u64", 4 * n)
    v, rows, M = [int(q) for q in x.data], [], (1 << 64) - 1

    def signed(q):
        return q - (1 << 64) if q >> 63 else q
    for i in range(n):
        a, b, m = v[i], v[(i + 1) % n] | 1, v[(i + 2) % n] | 1
        s = signed(a) * signed(b)
        rem = abs(s) % 1000003 * (-1 if s < 0 else 1)
        rows += [a * b % m, ((a * b + a) // b) & M, ((s >> 67) ^ rem) & M]
        hi, q = a * b >> 64, (a * b * -pow(m, -1, 1 << 64)) & M
        r = hi + (q * m >> 64) + (1 if a * b & M else 0)
        rows.append((r - m if r >= m else r) & M)
    o.expect(rows)
    c.launch("wide_integers", 2, 32, [x, o, i32("n", n)])
    return c


@case
def odd_layouts():
    c = entry("odd_layouts", target=86)
    x, o, b = c.inp("in", "u8", 64 * 7, bits(749)), c.out("out", "u32", 128), c.out("bytes", "u8", 64 * 7)
    words, rest = [], []
    for i in range(64):
        r = bytes(x.data[7 * i:7 * i + 7])
        tag, word, half = struct.unpack("<BIH", r)
        words += [(word >> 23 & 255) * 2 + (word >> 31) + ((word & 0x7fffff) >> 20), ((word ^ half) + tag) & 0xffffffff]
        copy = struct.pack("<BIH", tag, word ^ half, half)
        rest += list(copy if i % 3 == 1 else bytes([i] * 7))
    o.expect(words)
    b.expect(rest)
    c.launch("odd_layouts", 1, 64, [x, o, b])
    return c


@case
def bytecode():
    c = entry("bytecode")
    programs = [[0, 5, 0, 7, 1, 9], [7, 4, 2, 9],
                # triangular numbers: acc i -> loop
                [0, 0, 7, 4, 6, 1, 9, 4, 8][:0] + [7, 0, 3, 2, 4, 0, 2, 3, 9],
                # count down from i + 1: dup, jump while positive
                [7, 0, 1, 1, 0, 1, 3, 4, 6, 256 - 6, 9]]
    code, start = [], []
    for p in programs:
        start.append(len(code))
        code += p
    n = 50

    def run(i):
        stack, pc, steps = [], start[i % 4], 0
        while True:
            op = code[pc]
            pc += 1
            if op == 0:
                q = code[pc]
                stack.append(q - 256 if q > 127 else q)
                pc += 1
            elif op in (1, 2, 3):
                q = stack.pop()
                stack[-1] = stack[-1] + q if op == 1 else stack[-1] * q if op == 2 else stack[-1] - q
            elif op == 4:
                stack.append(stack[-1])
            elif op == 5:
                stack[-1], stack[-2] = stack[-2], stack[-1]
            elif op == 6:
                to = code[pc]
                pc += 1
                if stack.pop() > 0:
                    pc += to - 256 if to > 127 else to
            elif op == 7:
                stack.append(i)
            else:
                return [stack[-1] if stack else 0, steps]
            steps += 1
    # the count-down leaves its last value below the copy that was tested
    k, s, o = c.given("code", "u8", code), c.given("start", "s32", [start[i % 4] for i in range(n)]), c.out("out", "s32", 2 * n)
    o.expect([q for i in range(n) for q in run(i)])
    c.launch("bytecode", 2, 32, [k, s, o, i32("n", n)])
    return c


@case
def carved():
    c = entry("carved")
    n = 1500
    x, o = c.inp("in", "f32", n, grid(-64, 64, 4, 750)), c.out("out", "f64", n)
    d = sum(x.f + k * n + np.arange(n) for k in range(8))
    o.expect((d + (x.f > 0))[::-1] + [((i + 7) % n) & 255 for i in range(n)])
    c.launch("carved", 1, 256, [x, o, i32("n", n)], smem=8 * n + 32 * n + 4 * ((n + 31) // 32) + n)
    return c


@case
def bits_mix():
    c = Case("bits_mix", target=80, src="objects.cu")
    c.only = "bits"
    x, o = c.inp("in", "u32", 192, bits(751)), c.out("out", "u32", 512)
    M, rows = 0xffffffff, []

    def s32(q):
        return (q & M) - (1 << 32) if q >> 31 & 1 else q & M

    def fns(mask, base, offset):
        if offset == 0:
            return base if mask >> base & 1 else M
        step, at, left = (1, base, offset) if offset > 0 else (-1, base, -offset)
        while 0 <= at < 32:
            if mask >> at & 1:
                left -= 1
                if left == 0:
                    return at
            at += step
        return M
    for i in range(64):
        a, b, d = [int(q) for q in x.data[3 * i:3 * i + 3]]
        lc, r = min(d & 63, 32), d & 31
        wide = b << 32 | a
        o1 = ((wide << lc) >> 32 & M) ^ (wide >> r & M)
        x96 = a ^ b ^ d
        sel = sum((wide >> 8 * (d >> 4 * k & 7) & 255) << 8 * k for k in range(4))

        def h(q, k):
            v = q >> 16 * k & 0xffff
            return v - 65536 if v >> 15 else v

        def by(q, k):
            v = q >> 8 * k & 255
            return v - 256 if v >> 7 else v
        dlo = h(a, 0) * by(b, 0) + h(a, 1) * by(b, 1) + 5
        dhi = (a & 0xffff) * (b >> 16 & 255) + (a >> 16) * (b >> 24) + d
        vab = sum(abs((a >> 8 * k & 255) - (b >> 8 * k & 255)) << 8 * k for k in range(4))
        # the average of two signed halves rounds ties away from zero

        def avg(p, q):
            t = p + q
            return (t + (1 if t >= 0 else 0)) >> 1
        vav = sum((avg(h(b, k), h(d, k)) & 0xffff) << 16 * k for k in range(2))
        relu = max(s32(a + b), s32(d), 0)
        usad = abs(a - b) + d
        mul24 = (a & 0xffffff) * (b & 0xffffff)
        rha = (s32(a) + s32(b) + 1) >> 1
        p = x96 ^ (1 if x96 != 0 or a < b else 0)
        rows += [fns(a, b & 31, d % 9 - 4), o1, (a & b) | (~a & d & M), p, (sel + int("{:032b}".format(d)[::-1], 2)) & M,
                 (dlo + dhi) & M, vab ^ vav ^ relu, (usad + mul24 + rha) & M]
    o.expect(rows)
    c.launch("bits", 1, 64, [x, o])
    return c


@case
def hints():
    c = entry("hints")
    n = 100
    x, o = c.inp("in", "f32", 4 * n, grid(-160, 160, 4, 752)), c.out("out", "f32", 4 * n)
    v = x.f.reshape(n, 4)
    w = v.copy()
    w[:, 0] += v[[i ^ 1 for i in range(n)], 3]
    w[:, 1] *= 2
    w[:, 2] = np.where(v[:, 2] < -30, 0, v[:, 2])
    o.expect(w)
    c.launch("hints", 2, 32, [x, o, i32("n", n)])
    return c


@case
def chatter():
    c = entry("chatter", target=75)
    x, o = c.inp("in", "s32", 64, randint(-9, 9, 753)), c.out("out", "s32", 64)
    o.expect(x.data)
    c.launch("chatter", 1, 64, [x, o])
    return c


@case
def big_parameter():
    c = entry("big_parameter", target=86)
    x, o = c.inp("data", "f32", 64, grid(-64, 64, 4, 754)), c.out("out", "f32", 64)
    shift = [(5 * i + 3) % 64 for i in range(32)]
    scale = [[0.5 * r - k for k in range(8)] for r in range(8)]
    fields = [(4 * i, "s32", s) for i, s in enumerate(shift)]
    fields += [(128 + 4 * (8 * r + k), "f32", scale[r][k]) for r in range(8) for k in range(8)]
    fields += [(384, x), (392, "s16", -77)]
    o.expect([x.f[(i + shift[i & 31]) & 63] * scale[i & 7][i >> 3 & 7] - 77 for i in range(64)])
    c.launch("big_parameter", 1, 64, [struct_param("p", 400, 8, fields), o])
    return c
