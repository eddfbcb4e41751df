# SPDX-License-Identifier: Apache-2.0
"""Integer, floating-point and small-float instructions, and library-like code built of them."""
import base64
import hashlib
import math
from fractions import Fraction

import numpy as np

from corpus_lib import *
from cases_language import M32, M64, cdiv, crem, s32, s64

FORMATS = {"f16": (11, -14, 15), "bf16": (8, -126, 127), "f32": (24, -126, 127), "f64": (53, -1022, 1023),
           "e4m3": (4, -6, 8), "e5m2": (3, -14, 15)}
NAN, INF = float("nan"), float("inf")


def log2floor(v):
    n = v.numerator.bit_length() - v.denominator.bit_length()
    return n if v >= Fraction(2)**n else n - 1


def round_exact(v, fmt, mode="rn", zero_sign=1, above=None):
    """Rounds a non-negative-or-negative rational; returns a float (a double holds every format here).
    above: for irrational values, v is the truncated value and above says that there is more."""
    p, emin, emax = FORMATS[fmt]
    if v == 0 and not above:
        return math.copysign(0.0, zero_sign)
    neg = v < 0
    a = abs(v)
    e = max(log2floor(a), emin)
    ulp = Fraction(2)**(e - p + 1)
    q = a // ulp
    rest = a - q * ulp
    inexact = rest != 0 or bool(above)
    if mode == "rn":
        up = rest * 2 > ulp or (rest * 2 == ulp and (q & 1 or above))
    elif mode == "rz":
        up = False
    else:
        up = inexact and ((mode == "ru") != neg)
    r = (q + (1 if up else 0)) * ulp
    top = (2 - Fraction(2)**(1 - p)) * Fraction(2)**emax
    if fmt == "e4m3":
        top = Fraction(448)
    if r > top:
        r = INF if mode == "rn" or (mode == "ru" and not neg) or (mode == "rd" and neg) else float(top)
    return -float(r) if neg else float(r)


def special(*xs):
    return any(math.isnan(x) or math.isinf(x) for x in xs)


def add_sign(terms, mode):
    signs = {math.copysign(1, t) for t in terms}
    return signs.pop() if len(signs) == 1 else (-1 if mode == "rd" else 1)


def f_add(x, y, fmt, mode="rn"):
    if special(x, y):
        return x + y
    return round_exact(Fraction(x) + Fraction(y), fmt, mode, add_sign([x, y], mode))


def f_mul(x, y, fmt, mode="rn"):
    if special(x, y):
        return x * y
    return round_exact(Fraction(x) * Fraction(y), fmt, mode, math.copysign(1, x) * math.copysign(1, y))


def f_div(x, y, fmt, mode="rn"):
    s = math.copysign(1, x) * math.copysign(1, y)
    if math.isnan(x) or math.isnan(y) or (math.isinf(x) and math.isinf(y)) or (x == 0 and y == 0):
        return NAN
    if math.isinf(x) or y == 0:
        return s * INF
    if math.isinf(y):
        return s * 0.0
    return round_exact(Fraction(x) / Fraction(y), fmt, mode, s)


def f_sqrt(x, fmt, mode="rn"):
    if math.isnan(x) or math.isinf(x) or x == 0:
        return x
    v = Fraction(x)
    shift = 2 * (130 + max(0, -log2floor(v)))
    n = int(v * 2**shift)
    root = math.isqrt(n)
    return round_exact(Fraction(root, 2**(shift // 2)), fmt, mode, above=root * root != n or v * 2**shift != n)


def f_fma(x, y, z, fmt, mode="rn"):
    if special(x, y, z):
        if special(x, y):
            return x * y + z
        return z
    p = math.copysign(1, x) * math.copysign(1, y)
    terms = [math.copysign(0.0, p) if x == 0 or y == 0 else p, z]
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    return round_exact(exact, fmt, mode, add_sign(terms, mode))


def f_min(x, y):
    if math.isnan(x) or math.isnan(y):
        return y if math.isnan(x) else x
    return x if x < y or (x == y and math.copysign(1, x) < 0) else y


def f_max(x, y):
    if math.isnan(x) or math.isnan(y):
        return y if math.isnan(x) else x
    return x if x > y or (x == y and math.copysign(1, x) > 0) else y


def to_int(x, lo, hi, mode="rz", nan=0):
    if math.isnan(x):
        return nan
    if math.isinf(x):
        return hi if x > 0 else lo
    v = Fraction(x)
    f = v.numerator // v.denominator
    r = {"rz": int(v), "rd": f, "ru": -((-v.numerator) // v.denominator), "rn": round(v)}[mode]
    return min(max(r, lo), hi)


def f32bits(x):
    with np.errstate(all="ignore"):
        return np.array([x], np.float32)


@case
def int_bits():
    c = Case("int_bits")
    n = 64
    a = c.inp("a", "u32", n, concat((3, values([0, 1, "0xffffffff"])), (n - 3, bits(201))))
    b, l = c.inp("b", "u32", n, bits(202)), c.inp("l", "u64", n, concat((2, values([0, 1 << 40])), (n - 2, bits(203))))
    o, p = c.out("out", "u32", 20 * n), c.out("lout", "u64", 6 * n)
    rows, ls = [], []
    def s24(v):
        v &= 0xffffff
        return v - (1 << 24) if v >> 23 else v
    for t in range(n):
        x, y, v = int(a.data[t]), int(b.data[t]), int(l.data[t])
        sx, sy, k = s32(x), s32(y), y << 32 | x
        perm = 0
        for i in range(4):
            sel = (t * 0x1357 & 0x7777) >> 4 * i & 7
            perm |= (k >> 8 * sel & 255) << 8 * i
        pos, ln = t, t % 13
        bfe = (x >> pos) & ((1 << ln) - 1)
        pos, ln = t % 29, t % 9
        m = ((1 << ln) - 1) << pos & M32
        bfi = (x << pos & m) | (y & ~m & M32)
        pos, ln = t // 2, t % 17
        ext = ((sx >> pos) & ((1 << ln) - 1)) if ln else 0
        if ln:
            sign = sx >> min(pos + ln - 1, 31) & 1
            ext = ext & ((1 << ln) - 1)
            ext = ext - (1 << ln) if sign and ext >> (ln - 1) & 1 else ext
        def bfind(q):
            return q.bit_length() - 1 if q else M32
        mix = (ext & M32) ^ (bfind(x >> (t & 31)) << 8) ^ (bfind(x if sx >= 0 else ~x & M32) << 16)
        c1, c2 = t & 31, min(t + 5, 32)
        rows.append([32 - x.bit_length(), bin(x).count("1"), int("{:032b}".format(x)[::-1], 2), (x & -x).bit_length(),
                     (k << c1) >> 32, k >> c1, (k << c2) >> 32, k >> c2, perm, x * y >> 32, sx * sy >> 32, s24(x) * s24(y),
                     (x & 0xffffff) * (y & 0xffffff), abs(sx - sy) + 7, abs(x - y) + 9, (sx + sy) >> 1, (x + y + 1) >> 1, bfe, bfi, mix])
        ls.append([64 - v.bit_length(), bin(v).count("1"), int("{:064b}".format(v)[::-1], 2), (v & -v).bit_length(),
                   v * ((v * 3 + 1) & M64) >> 64, s64(v) * s64(v * 5 + 1) >> 64])
    o.expect(np.array(rows, dtype=object))
    p.expect(np.array(ls, dtype=object))
    c.launch("int_bits", 1, n, [a, b, o, l, p])
    return c


@case
def int_wide():
    c = Case("int_wide")
    n = 32
    x, o = c.inp("in", "u64", 4 * n, bits(204)), c.out("out", "u64", 16 * n)
    rows = []
    for t in range(n):
        p = [int(v) for v in x.data[4 * t:4 * t + 4]]
        a, b = p[0] << 64 | p[1], p[2] << 64 | p[3]
        s, d, m, q, r = a + b, a - b, a * b, a // (b >> 40 | 1), a % (b >> 70 | 1)
        sa = a - (1 << 128) if a >> 127 else a
        sh = sa >> (t * 4 & 127)
        w = [p[i // 2] >> (i % 2 * 32) & M32 for i in range(4)]
        y = [p[2 + i // 2] >> (i % 2 * 32) & M32 for i in range(4)]
        z = sum(w[i] << 32 * i for i in range(4)) * y[0]
        s0 = y[1] + y[2]
        s1 = y[2] + y[3] + (s0 >> 32)
        row = [s, s >> 64, d, d >> 64, m, m >> 64, q, q >> 64, r, sh, sh >> 64, z, z >> 64, (s0 & M32) << 32 | z >> 128 & M32,
               (s1 >> 32) << 32 | s1 & M32, (p[0] - p[2])]
        rows.append([v & M64 for v in row])
    o.expect(np.array(rows, dtype=object))
    c.launch("int_wide", 1, n, [x, o])
    y, o, io = c.inp("din", "s64", 2 * n, bits(205)), c.out("dout", "s64", 8 * n), c.out("iout", "s32", 6 * n)
    rows, irows = [], []
    for t in range(n):
        a, b = int(y.data[2 * t]), (int(y.data[2 * t + 1]) >> (t % 50)) | 1
        ua, ub, k = a & M64, b & M64, t * 3
        rows.append([cdiv(a, b), crem(a, b), ua // ub, ua % ub, cdiv(a, 10), crem(a, -7),
                     ((ua << k) & M32 if k < 32 else 0) << 32 | (s32(a) >> min(k, 31)) & M32, ua >> k if k < 64 else 0])
        i, j = s32(a), s32(b) | 1
        s16 = lambda v: (v + 0x8000 & 0xffff) - 0x8000
        s8 = lambda v: (v + 0x80 & 0xff) - 0x80
        irows.append([cdiv(i, j), crem(i, j), (i & M32) // (j & M32), cdiv(s16(i), s16(j | 1)), crem(s8(i), 7) + (j & 255) // 3,
                      abs(i) + min(i, j) - s32(max(i & M32, j & M32))])
    o.expect(np.array(rows, dtype=object))
    io.expect(np.array(irows, dtype=object))
    c.launch("int_div", 1, n, [y, o, io])
    return c


def lanes(v, bits, signed):
    out = []
    for i in range(32 // bits):
        f = v >> bits * i & ((1 << bits) - 1)
        out.append(f - (1 << bits) if signed and f >> (bits - 1) else f)
    return out


def pack(fs, bits):
    return sum((f & ((1 << bits) - 1)) << bits * i for i, f in enumerate(fs))


@case
def simd_int():
    c = Case("simd_int")
    n = 64
    a = c.inp("a", "u32", n, concat((2, values(["0x80808080", "0x7fff8000"])), (n - 2, bits(206))))
    b, o = c.inp("b", "u32", n, concat((2, values(["0x80ff017f", "0x80007fff"])), (n - 2, bits(207)))), c.out("out", "u32", 23 * n)
    rows = []
    for t in range(n):
        x, y = int(a.data[t]), int(b.data[t])
        def each(f, w, signed, out=None):
            return pack([f(p, q) for p, q in zip(lanes(x, w, signed), lanes(y, w, signed))], out or w)
        clamp = lambda lo, hi: (lambda v: min(max(v, lo), hi))
        s8, s16 = clamp(-128, 127), clamp(-32768, 32767)
        ys = lanes(y, 8, True)
        yu = lanes(y, 8, False)
        eq = lambda p, q: int(p & 15 == q & 15)
        rows.append([each(lambda p, q: p + q, 8, False), each(lambda p, q: p - q, 16, False), each(lambda p, q: s8(p + q), 8, True),
                     each(lambda p, q: min(p + q, 65535), 16, False), each(lambda p, q: s16(p - q), 16, True), each(max, 8, True), each(min, 16, False),
                     each(lambda p, q: abs(p - q), 8, False), each(lambda p, q: abs(p - q), 16, True), each(lambda p, q: (p + q + 1) >> 1, 8, False),
                     each(lambda p, q: 255 * (p > q), 8, False), each(lambda p, q: 65535 * (p <= q), 16, True), each(eq, 8, False),
                     sum(abs(p - q) for p, q in zip(lanes(x, 8, False), lanes(y, 8, False))), each(lambda p, q: abs(p), 8, True), each(lambda p, q: -p, 16, False),
                     (sum(p * q for p, q in zip(lanes(x, 8, True), ys)) - 9) & M32, sum(p * q for p, q in zip(lanes(x, 8, False), yu)) + 5,
                     (lanes(x, 16, True)[0] * ys[0] + lanes(x, 16, True)[1] * ys[1] + 3) & M32,
                     lanes(x, 16, False)[0] * yu[2] + lanes(x, 16, False)[1] * yu[3] + 4,
                     (sum(p * q for p, q in zip(lanes(x, 8, True), yu)) + t) & M32, max(s32(x), s32(y), t) & M32, min(s32(x + y), 1000) & M32])
    o.expect(np.array(rows, dtype=object))
    c.launch("simd_int", 1, n, [a, b, o])
    return c


SPECIAL = ["0x00000000", "0x80000000", "0x7f800000", "0xff800000", "0x7fffffff", "0x00000001", "0x807fffff", "0x7f7fffff", "0x3f800000",
           "0x33800000", "0x00800000", "0xbf800001"]


@case
def float_rounding():
    c = Case("float_rounding")
    n = 160
    sp = lambda k: [SPECIAL[(i * k + i // 12) % 12] for i in range(64)]
    a = c.inp("a", "f32", n, concat((64, values(sp(1))), (64, uniform(-100, 100, 208)), (32, bits(209))))
    b = c.inp("b", "f32", n, concat((64, values(sp(5))), (64, uniform(-1e-3, 1e-3, 210)), (32, bits(211))))
    z = c.inp("c", "f32", n, concat((64, values(sp(7))), (64, uniform(-1, 1, 212)), (32, bits(213))))
    o = c.out("out", "f32", 28 * n)
    rows = []
    for t in range(n):
        x, y, w = float(a.data[t]), float(b.data[t]), float(z.data[t])
        r = [f_add(x, y, "f32", m) for m in ("rn", "rz", "ru", "rd")]
        r += [f_mul(x, y, "f32", m) for m in ("rn", "rz", "ru", "rd")]
        r += [f_div(x, y, "f32", m) for m in ("rn", "rz", "ru", "rd")]
        r += [f_sqrt(abs(x), "f32", m) for m in ("rn", "rz", "ru", "rd")]
        r += [f_div(1.0, x, "f32", m) for m in ("rn", "rz", "ru", "rd")]
        r += [f_fma(x, y, w, "f32", m) for m in ("rn", "rz", "ru", "rd")]
        r += [f_min(x, y), f_max(x, y)]
        with np.errstate(all="ignore"):
            u = np.array(r, np.float32).view(np.uint32)
        bx, by, bz = (int(q.data[t:t + 1].view(np.uint32)[0]) for q in (a, b, z))
        flags = int(math.isnan(x)) | int(math.isinf(x)) << 1 | bx >> 31 << 2 | (x < y) << 3 | (x <= y) << 4 | (x == y) << 5 | (x != y) << 6 | (not x > y) << 7
        size_y = 0x7fffffff if math.isnan(y) else by & 0x7fffffff  # a NaN becomes the canonical one
        minus_z = 0x7fffffff if math.isnan(w) else bz ^ 0x80000000
        bitsx = ((bx & 0x7fffffff) | (by & 0x80000000)) ^ size_y ^ minus_z
        rows.append(list(u) + [flags, bitsx])
    o.expect(np.array(rows, np.uint32).reshape(-1).view(np.float32))
    c.launch("float_rounding", 1, n, [a, b, z, o])
    return c


@case
def double_math():
    c = Case("double_math")
    n = 64
    a, b, o = c.inp("a", "f64", n, uniform(-1000, 1000, 214)), c.inp("b", "f64", n, uniform(-3, 3, 215)), c.out("out", "f64", 16 * n)
    def bits_of(v):
        return struct.unpack("<Q", struct.pack("<d", v))[0]
    def of_bits(v):
        return struct.unpack("<d", struct.pack("<Q", v))[0]
    rows = []
    for t in range(n):
        x, y = float(a.data[t]), float(b.data[t])
        s = k = 0.0
        for _ in range(50):
            v = x - k
            m = s + v
            k = (m - s) - v
            s = m
        away = math.copysign(math.floor(Fraction(abs(x)) + Fraction(1, 2)), x)
        m, e = math.frexp(x)
        rows.append([x / y, math.sqrt(abs(x)), f_add(x, y, "f64", "ru"), f_mul(x, y, "f64", "rd"), f_fma(x, y, -x, "f64"), 1 / y, f_div(x, y, "f64", "rz"),
                     f_sqrt(abs(y), "f64", "ru"), math.floor(x) + math.ceil(y), float(round(x)) - math.trunc(y), math.fmod(x, y), m, math.ldexp(y, e),
                     away + min(x, y) * max(x, y), s, of_bits(bits_of(x) ^ 1) + of_bits(bits_of(y) >> 32 << 32 | bits_of(x) & M32)])
    o.expect(np.array(rows))
    c.launch("double_math", 1, n, [a, b, o])
    x, o = c.inp("x", "f64", n, uniform(-6, 6, 216)), c.out("funcs", "f64", 10 * n)
    o.expect(np.array([[math.sin(v), math.cos(v * 1000), math.exp(v), math.log(abs(v) + 0.1), abs(v)**1.7, math.tanh(v), math.atan2(v, 0.3), math.erf(v),
                        float(np.cbrt(v)), 1 / math.sqrt(abs(v) + 1e-3)] for v in x.f]), abs=1e-14, rel=4e-15)
    c.launch("double_funcs", 1, n, [x, o])
    return c


def float_rows(xs):
    rows = []
    f = np.float32
    for v in xs:
        x = float(v)
        p = float(f(abs(f(x)) + f(0.05)))
        q = f(v)
        half_away = lambda u: math.copysign(math.floor(abs(float(u)) + 0.5), float(u))
        tail = math.floor(x) - math.ceil(x * 2) + half_away(q * f(3)) + math.trunc(float(q * f(5))) + float(np.rint(q * f(7)))
        rows.append([math.sin(x), math.cos(x), math.tan(x * 0.25), math.exp(x), math.log(p), p**1.5, math.tanh(x), math.sqrt(p), 1 / math.sqrt(p), 1 / p,
                     x / p, 2**x, math.log2(p), math.atan(x), math.erf(x * 0.5), math.hypot(x, 2) + tail])
    return np.array(rows)


@case
def float_funcs():
    c = Case("float_funcs")
    n = 128
    x, o = c.inp("a", "f32", n, uniform(-6, 6, 217)), c.out("out", "f32", 16 * n)
    o.expect(float_rows(x.f), abs=1e-6, rel=2e-6)
    c.launch("float_funcs", 2, 64, [x, o])
    y, p = c.inp("big", "f32", 32, concat((16, uniform(1e5, 1e6, 218)), (16, uniform(1e20, 1e30, 219)))), c.out("trig", "f32", 64)
    r = []
    for v in y.f:
        # reduce exactly with 400 bits of pi
        pi = exact_pi()
        q = Fraction(float(v))
        k = math.floor(q / (2 * pi))
        w = float(q - k * 2 * pi)
        r.append([math.sin(w), math.cos(w)])
    p.expect(np.array(r), abs=3e-7)
    c.launch("float_big", 1, 32, [y, p])
    return c


def exact_pi():
    def arctan_inv(k, one):
        total = term = one // k
        n, sign = 3, -1
        while term:
            term //= k * k
            total += sign * (term // n)
            n, sign = n + 2, -sign
        return total
    one = 1 << 460
    return Fraction(4 * (4 * arctan_inv(5, one) - arctan_inv(239, one)), one)


@case
def float_funcs_fast():
    c = Case("float_funcs_fast", src="float_funcs.cu", flags=["-use_fast_math"])
    n = 128
    x, o = c.inp("a", "f32", n, uniform(-3, 3, 220)), c.out("out", "f32", 16 * n)
    o.expect(float_rows(x.f), abs=1e-4, rel=1e-4)
    c.launch("float_funcs", 2, 64, [x, o])
    return c


@case
def approx():
    c = Case("approx")
    n = 96
    x, o = c.inp("a", "f32", n, uniform(-3, 3, 221)), c.out("out", "f32", 11 * n)
    r = []
    for v in x.f:
        p = float(np.float32(abs(np.float32(v)) + np.float32(0.01)))
        r.append([math.sin(v), math.cos(v), math.exp(v), math.log(p), p**0.75, v / p, math.log2(p), math.log10(p), math.tanh(v), 1 / p, math.sqrt(p)])
    o.expect(np.array(r), abs=2e-5, rel=2e-5)
    c.launch("approx", 1, n, [x, o])
    return c


@case
def convert():
    c = Case("convert")
    n = 64
    f = c.inp("f", "f32", n, concat((15, values([0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, "0x7f800000", "0xff800000", "0x7fffffff", "0x00000005", "0x80000007", 3e9, -3e9, 1e20])),
                                    (17, uniform(-300, 300, 222)), (16, uniform(-1e10, 1e10, 223)), (16, uniform(0, 1, 224))))
    d = c.inp("d", "f64", n, concat((10, values([0.5, 1.5, -0.5, -2.5, "0x7ff0000000000000", "0xfff0000000000000", "0x7fffffffffffffff", 1e30, 1e-45, 3.4028235677973366e38])),
                                    (54, uniform(-1e10, 1e10, 225))))
    l = c.inp("l", "s64", n, concat((4, values([-1, "0x7fffffffffffffff", "0x8000000000000000", 300])), (30, bits(226)), (30, randint(-70000, 70000, 227))))
    io, lo, fo, do = c.out("iout", "s32", 16 * n), c.out("lout", "s64", 5 * n), c.out("fout", "f32", 8 * n), c.out("dout", "f64", 2 * n)
    I32, U32, I64, U64 = (-2**31, 2**31 - 1), (0, M32), (-2**63, 2**63 - 1), (0, M64)
    A, B, C, D = [], [], [], []
    for t in range(n):
        x, y, v = float(f.data[t]), float(d.data[t]), int(l.data[t])
        clamp = lambda k, lo, hi: min(max(k, lo), hi)
        sat = 0.0 if math.isnan(x) else clamp(x, 0.0, 1.0)
        s8 = lambda k: (k + 0x80 & 0xff) - 0x80
        A.append([to_int(x, *I32), to_int(x, *U32), to_int(x, *I32, "rn"), to_int(x, *I32, "ru"), to_int(x, *I32, "rd"), to_int(x, *U32, "rn"),
                  to_int(y, *I32, "rn", nan=-2**31), to_int(y, *U32, nan=-2**31), to_int(x, 0, 255, "rn"), to_int(x, -128, 127), clamp(v, -32768, 32767), clamp(v, 0, M32),
                  min(v & M32, 2**31 - 1), clamp(s32(v), 0, 255) << 8 | clamp(s32(v >> 32), 0, 255), s8(v) + ((v & 0xffff) << 8),
                  int(np.array([sat], np.float32).view(np.uint32)[0])])
        bad = 1 << 63
        B.append([to_int(x, *I64, nan=-bad), to_int(x, *U64, "ru", nan=bad), to_int(y, *I64, nan=-bad), to_int(y, *U64, "rn", nan=bad), to_int(y, *I64, "rd", nan=-bad)])
        narrow = lambda m: y if special(y) else round_exact(Fraction(y), "f32", m, math.copysign(1, y))
        sh = (v + 0x8000 & 0xffff) - 0x8000
        ftz = 0.0 if abs(x) < 2.0**-126 else x
        C.append([narrow("rn"), narrow("ru"), narrow("rz"), round_exact(Fraction(v), "f32"), round_exact(Fraction(v), "f32", "rd"),
                  round_exact(Fraction(v & M32), "f32", "rz"), float(sh), ftz])
        D.append([round_exact(Fraction(v), "f64", "ru"), float(v & M64) + x])
    io.expect(np.array(A, dtype=object))
    lo.expect(np.array(B, dtype=object))
    fo.expect(np.array(C))
    do.expect(np.array(D))
    c.launch("convert", 1, n, [f, d, l, io, lo, fo, do])
    return c


def half(v):
    return int(np.array([v], np.float64).astype(np.float16).view(np.uint16)[0])


@case
def half_math():
    c = Case("half_math")
    n = 40
    sp = ["0x7c00", "0xfc00", "0x7fff", "0x0001", "0x83ff", "0x7bff", "0x3c00", "0xbc00", "0x3c01", "0x0400"]
    a = c.inp("a", "f16", 2 * n, concat((10, values(sp)), (70, uniform(-4, 4, 228))))
    b = c.inp("b", "f16", 2 * n, concat((10, values(sp[3:] + sp[:3])), (70, uniform(-2, 2, 229))))
    o, q = c.out("out", "f16", 24 * n), c.out("bits", "u32", 4 * n)
    rows, bs = [], []
    for t in range(n):
        X, Y = [float(v) for v in a.data[2 * t:2 * t + 2]], [float(v) for v in b.data[2 * t:2 * t + 2]]
        each = lambda f: [f(x, y) for x, y in zip(X, Y)]
        sat = lambda v: 0.0 if math.isnan(v) else min(max(v, 0.0), 1.0)
        relu = lambda v: v if math.isnan(v) else max(v, 0.0)
        f = lambda v: float(np.float32(v))
        with np.errstate(all="ignore"):
            low3, third = f(X[0] * 3.0), f(np.float32(Y[1]) / np.float32(3.0))
            m0, m1 = f(np.float32(X[0]) * np.float32(1.001)), f(np.float32(X[1]) * np.float32(1.001))
        to16 = lambda v, m="rn": v if special(v) else round_exact(Fraction(v), "f16", m, math.copysign(1, v))
        rows.append([each(lambda x, y: f_add(x, y, "f16")), each(lambda x, y: f_add(x, -y, "f16")), each(lambda x, y: f_mul(x, y, "f16")),
                     each(lambda x, y: f_fma(x, y, x, "f16")), each(lambda x, y: sat(f_add(x, y, "f16"))), each(f_min), each(f_max),
                     each(lambda x, y: relu(f_fma(x, y, -x, "f16"))), [to16(low3), to16(third)], [to16(m0, "rz"), to16(m1, "ru")], [abs(X[1]), abs(X[0])],
                     [f_add(X[0], X[1], "f16"), f_mul(Y[0], Y[1], "f16")]])
        mask = (0xffff if X[0] < Y[0] else 0) | (0xffff0000 if X[1] < Y[1] else 0)
        eq = int(X[0] == X[0] and X[1] == X[1])
        ne = int(not (X[0] == Y[0]))
        i0, i1 = to_int(X[0], -2**31, 2**31 - 1, "rn"), to_int(Y[1], -32768, 32767)
        h0 = half(round_exact(Fraction(t * 777 - 9999), "f16"))
        h1 = half(round_exact(Fraction(t * 1023 & 0xffff), "f16", "rd"))
        bs.append([mask, (i0 * 65536 + (i1 & 0xffff)) & M32, eq | int(X[0] > Y[0]) << 1 | int(math.isnan(X[1])) << 2 | ne << 3, h0 | h1 << 16])
    with np.errstate(all="ignore"):
        o.expect(np.array(rows, np.float64).reshape(-1).astype(np.float16))
    q.expect(np.array(bs, dtype=object))
    c.launch("half_math", 1, n, [a, b, o, q])
    a, b = c.inp("ba", "bf16", 2 * n, uniform(-4, 4, 230)), c.inp("bb", "bf16", 2 * n, concat((1, values(["0x7fff"])), (2 * n - 1, uniform(-4, 4, 231))))
    o, q = c.out("bout", "bf16", 16 * n), c.out("bbits", "u32", n)
    rows, bs = [], []
    for t in range(n):
        X, Y = [float(v) for v in a.f[2 * t:2 * t + 2]], [float(v) for v in b.f[2 * t:2 * t + 2]]
        each = lambda f: [f(x, y) for x, y in zip(X, Y)]
        g = np.float32
        to = lambda v, m="rn": v if special(v) else round_exact(Fraction(v), "bf16", m, math.copysign(1, v))
        nanmax = lambda x, y: NAN if math.isnan(x) or math.isnan(y) else f_max(x, y)
        rows.append([each(lambda x, y: f_add(x, y, "bf16")), each(lambda x, y: f_mul(x, y, "bf16")), each(lambda x, y: f_fma(x, y, y, "bf16")),
                     each(nanmax), each(f_min), [to(float(g(X[0]) * g(1.7))), to(float(g(Y[1]) + g(0.3)))],
                     [to(float(g(Y[0]) * g(1.7)), "rz"), to(float(g(Y[0]) * g(-1.7)))], [-abs(X[0]), -abs(X[1])]])
        mask = (0xffff if X[0] >= Y[0] else 0) | (0xffff0000 if X[1] >= Y[1] else 0)
        bs.append((mask ^ to_int(X[0], -2**31, 2**31 - 1, "rn")) & M32)
    o.expect(to_bf16(np.array(rows, np.float64).reshape(-1).astype(np.float32)))
    q.expect(np.array(bs, dtype=object))
    c.launch("bf16_math", 1, n, [a, b, o, q])
    return c


def to_fp8(v, fmt):
    """Saturating, to nearest even."""
    top = 448.0 if fmt == "e4m3" else 57344.0
    man, bias = (3, 7) if fmt == "e4m3" else (2, 15)
    s = 0x80 if math.copysign(1, v) < 0 else 0
    if math.isnan(v):
        return 0x7f
    m = abs(v)
    r = top if math.isinf(m) else min(round_exact(Fraction(m), fmt), top)
    if r == 0:
        return s
    e = max(math.frexp(r)[1] - 1, 1 - bias)
    f = int(r / 2.0**(e - man))
    return s | (((e + bias) << man) + f - (1 << man) if f >> man else f)


def of_fp8(code, fmt):
    man, bias = (3, 7) if fmt == "e4m3" else (2, 15)
    s, e, f = -1.0 if code & 0x80 else 1.0, (code & 0x7f) >> man, code & ((1 << man) - 1)
    if fmt == "e4m3" and code & 0x7f == 0x7f:
        return NAN
    if fmt == "e5m2" and e == 31:
        return NAN if f else s * INF
    return s * (f * 2.0**(1 - bias - man) if e == 0 else (f + (1 << man)) * 2.0**(e - bias - man))


def fp8_case(name, target):
    c = Case(name, target=target, src="fp8.cu")
    n = 64
    x = c.inp("in", "f32", 2 * n, concat((8, values([0, 448, 464, 465, -1000, 0.0009765625, 0.0029296875, 1e-9])), (40, uniform(-500, 500, 232)), (40, uniform(-2, 2, 233)),
                                         (40, uniform(-0.03, 0.03, 234))))
    o, codes, h = c.out("out", "u32", 4 * n), c.inp("codes", "u8", 256, iota(0, 1)), c.out("h", "f16", 512)
    rows = []
    for t in range(n):
        u, v = x.f[2 * t], x.f[2 * t + 1]
        hu, hv = float(np.float16(u)), float(np.float16(v))
        rows.append([to_fp8(u, "e4m3") | to_fp8(v, "e4m3") << 8, to_fp8(u, "e5m2") | to_fp8(v, "e5m2") << 8, to_fp8(hu, "e4m3") | to_fp8(hv, "e4m3") << 8,
                     to_fp8(hu, "e5m2") | to_fp8(hv, "e5m2") << 8])
    o.expect(np.array(rows))
    h.expect(np.array([of_fp8(k, "e4m3") for k in range(256)] + [of_fp8(k, "e5m2") for k in range(256)]).astype(np.float16))
    c.launch("fp8", 1, n, [x, o, codes, h])
    return c


@case
def fp8():
    return fp8_case("fp8", 90)


@case
def fp8_emulated():
    """On sm_80 the header does it in integer arithmetic."""
    return fp8_case("fp8_emulated", 80)


@case
def sha256():
    c = Case("sha256")
    n = 32
    m, o = c.inp("msg", "u32", 16 * n, bits(235)), c.out("out", "u32", 8 * n)
    o.expect(np.concatenate([np.frombuffer(hashlib.sha256(m.data[16 * t:16 * t + 16].tobytes()).digest(), np.uint32) for t in range(n)]))
    c.launch("sha256", 1, n, [m, o])
    return c


@case
def philox():
    c = Case("philox")
    n, seed = 128, 0x123456789ABCDEF
    o, g = c.out("out", "u32", 4 * n), c.out("normal", "f32", n)
    rows, norm = [], []
    for i in range(n):
        x, k0, k1 = [i, 0, 0x1234, ~i & M32], seed & M32, seed >> 32
        for _ in range(10):
            p, q = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
            x = [q >> 32 ^ x[1] ^ k0, q & M32, p >> 32 ^ x[3] ^ k1, p & M32]
            k0, k1 = (k0 + 0x9E3779B9) & M32, (k1 + 0xBB67AE85) & M32
        rows.append(x)
        u, v = float(np.float32((x[0] >> 8) * 2.0**-24 + 2.0**-25)), (x[1] >> 8) * 2.0**-24
        norm.append(math.sqrt(-2 * math.log(u)) * math.cos(math.pi * 2 * v))
    o.expect(np.array(rows))
    g.expect(np.array(norm), abs=4e-6, rel=4e-6)
    c.launch("philox", 4, 32, [o, g, scalar("seed", "u64", seed)])
    t, r = c.inp("text", "u8", 64 * 50, bits(236)), c.out("crc", "u32", 64)
    r.expect([zlib.crc32(t.data[50 * i:50 * i + 50].tobytes()) for i in range(64)])
    c.launch("crc32", 1, 64, [t, r, i32("len", 50)])
    return c


@case
def strings():
    c = Case("strings")
    text = ("the quick  brown fox\njumps over the lazy dog while " * 12)[:588].encode()
    n, pat = len(text), b"lazy dog"
    t, w = c.given("text", "u8", list(text)), c.inout("words", "s32", 1, zero())
    b, f, p = c.out("b64", "u8", n // 3 * 4), c.inout("found", "s32", 1, fill(2**31 - 1)), c.given("pat", "u8", list(pat))
    w.expect([len(text.split())])
    b.expect(np.frombuffer(base64.b64encode(text), np.uint8))
    f.expect([text.index(pat)])
    c.launch("strings", 1, 96, [t, i32("n", n), w, b, f, p, i32("m", len(pat))])
    return c


@case
def quicksort():
    c = Case("quicksort")
    n = 24
    d = c.inout("data", "s32", 32 * n, randint(-50, 50, 237))
    d.expect(np.sort(d.data.reshape(32, n), 1))
    c.launch("quicksort", 1, 32, [d, i32("n", n)])
    import random
    rng = random.Random(3)
    nodes = []
    def build(k):
        if k == 0:
            return -1
        left = rng.randrange(k)
        l, r = build(left), build(k - 1 - left)
        nodes.append([l, r, rng.randrange(-20, 20)])
        return len(nodes) - 1
    root = build(60)
    tr, o = c.given("tree", "s32", sum(nodes, [])), c.out("walk", "s32", 32)
    def walk(i, depth):
        l, r, v = nodes[i]
        return v * (depth + 1) + (walk(r, depth + 1) if r >= 0 else 0) + (walk(l, depth + 1) if l >= 0 and depth & 3 != 3 else 0)
    o.expect([walk(root, t) for t in range(32)])
    c.launch("tree_walk", 1, 32, [tr, i32("root", root), o])
    return c
