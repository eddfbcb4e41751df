# SPDX-License-Identifier: Apache-2.0
"""What the case files are written with: buffers with generated contents, launches, and one JSON file per case.

Everything here is numpy; nothing calls the emulator. Formats are described in README.md.
"""
import json
import os
import struct
import zlib

import numpy as np

DTYPES = {"u8": "u1", "s8": "i1", "u16": "u2", "s16": "i2", "u32": "u4", "s32": "i4", "u64": "u8", "s64": "i8",
          "f16": "f2", "bf16": "u2", "f32": "f4", "f64": "f8"}
FLOATS = ("f16", "bf16", "f32", "f64")
MASK64 = (1 << 64) - 1
INLINE_VALUES = 96  # longer lists go to a .bin file beside the JSON


def itemsize(dtype):
    return np.dtype(DTYPES[dtype]).itemsize


# ------------------------------------------------------------------ bf16 and friends
def to_bf16(x):
    """Bits (uint16) of x rounded to nearest even."""
    u = np.asarray(x, dtype=np.float32).view(np.uint32).astype(np.uint64)
    r = ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(np.asarray(x, dtype=np.float32)), np.uint16(0x7FFF), r)


def from_bf16(bits):
    return (np.asarray(bits, dtype=np.uint32) << 16).view(np.float32)


def as_float(array, dtype):
    return from_bf16(array).astype(np.float64) if dtype == "bf16" else np.asarray(array, dtype=np.float64)


# ------------------------------------------------------------------ initialisers
def splitmix(seed, count):
    s = (np.uint64(seed & MASK64) + np.uint64(0x9E3779B97F4A7C15) * np.arange(1, count + 1, dtype=np.uint64))
    z = (s ^ (s >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def zero():
    return {"kind": "zero"}


def uninit():
    return {"kind": "uninit"}


def fill(value):
    return {"kind": "fill", "value": value}


def values(v):
    return {"kind": "values", "values": [x.item() if hasattr(x, "item") else x for x in v]}


def iota(start=0, step=1):
    return {"kind": "iota", "start": start, "step": step}


def concat(*parts):
    """parts: (count, init) pairs"""
    return {"kind": "concat", "parts": [dict(p, count=n) for n, p in parts]}


def bits(seed):
    return {"kind": "bits", "seed": seed}


def randint(lo, hi, seed):
    return {"kind": "randint", "lo": lo, "hi": hi, "seed": seed}


def grid(lo, hi, den, seed):
    return {"kind": "grid", "lo": lo, "hi": hi, "den": den, "seed": seed}


def uniform(lo, hi, seed):
    return {"kind": "uniform", "lo": lo, "hi": hi, "seed": seed}


def choice(of, seed):
    return {"kind": "choice", "of": list(of), "seed": seed}


def perm(seed, mul=1):
    return {"kind": "perm", "seed": seed, "mul": mul}


def cast(value, dtype):
    """One value or an array, rounded to nearest even, wrapped for integers."""
    if dtype == "bf16":
        return to_bf16(value)
    t = np.dtype(DTYPES[dtype])
    if dtype in FLOATS:
        return np.asarray(value, dtype=np.float64).astype(t)
    m = (1 << (8 * t.itemsize)) - 1
    wrapped = [int(x) & m for x in np.atleast_1d(np.asarray(value, dtype=object))]
    return np.array(wrapped, dtype="u%d" % t.itemsize).view(t)


def pattern(text, dtype):
    return np.array([int(text, 16)], dtype="u%d" % itemsize(dtype)).view(DTYPES[dtype])[0]


def element(v, dtype):
    return pattern(v, dtype) if isinstance(v, str) else cast([v], dtype)[0]


def generate(init, dtype, count, folder=None):
    k = init["kind"]
    if k == "zero":
        return np.zeros(count, DTYPES[dtype])
    if k == "uninit":
        return np.frombuffer(b"\xa5" * (count * itemsize(dtype)), DTYPES[dtype]).copy()
    if k == "fill":
        return np.full(count, element(init["value"], dtype), DTYPES[dtype])
    if k == "values":
        assert len(init["values"]) == count, (len(init["values"]), count)
        return np.array([element(v, dtype) for v in init["values"]], DTYPES[dtype])
    if k == "iota":
        return cast([init["start"] + i * init["step"] for i in range(count)], dtype)
    if k == "concat":
        return np.concatenate([generate(p, dtype, p["count"], folder) for p in init["parts"]])
    if k == "file":
        return np.fromfile(os.path.join(folder, init["path"]), DTYPES[dtype])
    z = splitmix(init["seed"], count)
    if k == "bits":
        n = itemsize(dtype)
        return (z & np.uint64((1 << (8 * n)) - 1)).astype("u%d" % n).view(DTYPES[dtype])
    if k in ("randint", "grid"):
        r = (z % np.uint64(init["hi"] - init["lo"] + 1)).astype(object) + init["lo"]
        return cast(r if k == "randint" else r.astype(np.float64) / init["den"], dtype)
    if k == "uniform":
        u = (z >> np.uint64(40)).astype(np.float64) / 2.0**24
        return cast(init["lo"] + (init["hi"] - init["lo"]) * u, dtype)
    if k == "choice":
        of = [element(v, dtype) for v in init["of"]]
        return np.array([of[int(x % np.uint64(len(of)))] for x in z], DTYPES[dtype])
    if k == "perm":
        p = list(range(count))
        for step, i in enumerate(range(count - 1, 0, -1)):
            j = int(z[step] % np.uint64(i + 1))
            p[i], p[j] = p[j], p[i]
        return cast([x * init["mul"] for x in p], dtype)
    raise ValueError(k)


# ------------------------------------------------------------------ cases
CASES = {}


def case(f):
    CASES[f.__name__] = f
    return f


def twins(src, good, bad=None, target=80):
    """Registers the case `good` and, of the same file, `bad`: {entry: what is found in it}, as bad_ENTRY. The decorated
    function gets the case, its entry and whether it is right, and adds buffers, the launch and the reference."""
    def wrap(f):
        def make(entry, found):
            def build():
                c = Case(("bad_" if found else "") + entry, target=target, src=src)
                c.only = entry
                if found:
                    c.broken(**found)
                f(c, entry, not found)
                return c
            build.__name__ = ("bad_" if found else "") + entry
            case(build)
        for entry, found in {good: None, **(bad or {})}.items():
            make(entry, found)
        return f
    return wrap


def python_twins(front_end, name, targets, bad=None):
    """Registers the cases FRONTEND_NAME_smTARGET and bad_FRONTEND_NAME_SLIP_smTARGET of src/FRONTEND_kernels.py, for
    bad: {slip: what is found} or {slip: (targets, what is found)}. The decorated function gets the case, its slip or None."""
    def wrap(f):
        def make(target, slip, found):
            full = "_".join([*(["bad"] if slip else []), front_end, name, *([slip] if slip else []), "sm" + target])

            def build():
                c = Case(full, target=target, src=front_end + "_kernels.py")
                if found:
                    c.broken(**found)
                f(c, slip)
                return c
            build.__name__ = full
            case(build)
        for t in targets:
            make(t, None, None)
        for slip, found in (bad or {}).items():
            for t in found[0] if isinstance(found, tuple) else targets[-1:]:
                make(t, slip, found[1] if isinstance(found, tuple) else found)
        return f
    return wrap


class Buffer:
    def __init__(self, name, dtype, count, role, init):
        self.name, self.dtype, self.count, self.role, self.init = name, dtype, count, role, init
        self.data = generate(init, dtype, count) if role != "out" else generate(uninit(), dtype, count)
        self.expected = None
        self.compare = None

    def __add__(self, offset):
        return {"buf": self.name, "offset": offset}

    @property
    def f(self):
        """The contents as double precision numbers."""
        return as_float(self.data, self.dtype)

    def expect(self, array, abs=None, rel=None, multiset=False):
        """array: numbers (converted to the dtype, rounded to nearest) or already the buffer's numpy type."""
        if not isinstance(array, np.ndarray):
            array = list(array)
            if all(isinstance(x, int) for x in array):
                array = np.array(array, dtype=object)  # numpy would make doubles of integers above 2^63
        a = np.asarray(array).reshape(-1)
        if a.dtype != np.dtype(DTYPES[self.dtype]):
            a = cast(a, self.dtype)
        assert len(a) == self.count, (self.name, len(a), self.count)
        self.expected = a
        if multiset:
            self.compare = {"kind": "multiset"}
        elif abs is not None or rel is not None:
            self.compare = {"kind": "abs_rel", "abs": abs or 0.0, "rel": rel or 0.0}
        else:
            self.compare = {"kind": "exact"}
        return self


class Case:
    def __init__(self, name, target=80, src=None, flags=()):
        self.sm = int(str(target).rstrip("a"))
        self.name, self.target, self.src, self.flags = name, "compute_%s" % target, src or name + ".cu", list(flags)
        self.only = None  # keep just this entry of the compiled file
        self.python = None  # what front_ends.py compiles, where src is Python
        self.buffers, self.launches, self.symbols, self.counters, self.expect_error = [], [], [], [], None

    def buf(self, name, dtype, count, role, init):
        b = Buffer(name, dtype, count, role, init)
        self.buffers.append(b)
        return b

    def inp(self, name, dtype, count, init):
        return self.buf(name, dtype, count, "in", init)

    def given(self, name, dtype, array):
        """An input with computed contents."""
        return self.inp(name, dtype, len(array), values(array))

    def out(self, name, dtype, count):
        return self.buf(name, dtype, count, "out", uninit())

    def inout(self, name, dtype, count, init):
        return self.buf(name, dtype, count, "inout", init)

    def scratch(self, name, dtype, count, init=None):
        return self.buf(name, dtype, count, "scratch", init or zero())

    def symbol(self, name, dtype, count, init):
        self.symbols.append({"name": name, "dtype": dtype, "count": count, "init": init})
        return generate(init, dtype, count)

    def launch(self, entry, grid, block, params, smem=0, cluster=None, cooperative=False):
        def three(t):
            t = (t,) if isinstance(t, int) else tuple(t)
            return list(t + (1,) * (3 - len(t)))
        ps = []
        for p in params:
            ps.append({"buf": p.name, "offset": 0} if isinstance(p, Buffer) else p)
        self.launches.append({"entry": entry, "grid": three(grid), "block": three(block),
                              "cluster": three(cluster) if cluster else None, "dynamic_smem": smem, **({"cooperative": True} if cooperative else {}),
                              "params": ps})

    def triton(self, kernel, grid, params, warps=4, stages=3, **constants):
        """Launches a Triton kernel; its shared memory is known once it is compiled."""
        def multiple(p):
            return isinstance(p, Buffer) or isinstance(p["value"], int) and p["value"] % 16 == 0
        self.python = dict(kernel=kernel, entry=kernel, sm=self.sm, constants=constants, warps=warps, stages=stages,
                           types=["*" + p.dtype if isinstance(p, Buffer) else p["type"] for p in params],
                           multiples=[multiple(p) for p in params])
        none = [scalar(n, "u64", 0) for n in ("scratch", "profile")]
        self.launch(kernel, grid, 32 * warps, [*params, *none], smem=None)

    def numba(self, kernel, slip, grid, block, params, smem=0):
        """Launches a Numba kernel. An array is (buffer, extents): two pointers, items, bytes, data, extents, strides."""
        flat, types = [], []
        for p in params:
            if isinstance(p, dict):
                types.append((p["type"], 0))
                flat.append(p)
                continue
            b, extents = p if isinstance(p, tuple) else (p, (p.count,))
            size = itemsize(b.dtype)
            strides = [size * int(np.prod(extents[k + 1:])) for k in range(len(extents))]
            types.append((b.dtype, len(extents)))
            numbers = [("meminfo", 0), ("parent", 0), ("items", int(np.prod(extents))), ("itemsize", size)]
            flat += [i64(b.name + "_" + n, v) for n, v in numbers] + [b]
            flat += [i64("%s_%s%d" % (b.name, n, k), int(v)) for n, l in (("shape", extents), ("stride", strides))
                     for k, v in enumerate(l)]
        self.python = dict(kernel=kernel, entry=kernel, sm=self.sm, slip=slip, types=types)
        self.launch(kernel, grid, block, flat, smem=smem)

    def counter(self, launch=0, **numbers):
        self.counters.append(dict(launch=launch, **numbers))

    def broken(self, cls, also=(), ops=(), note="", **first):
        """first: buffer, byte_offset, thread, block of the first offence where it is unique."""
        self.expect_error = {"class": cls, "also": list(also), "ops": list(ops), "note": note, **first}


def scalar(name, type, value):
    return {"name": name, "type": type, "value": value}


def i32(name, value):
    return scalar(name, "s32", value)


def u32(name, value):
    return scalar(name, "u32", value)


def i64(name, value):
    return scalar(name, "s64", value)


def f32(name, value):
    return scalar(name, "f32", value)


def f64(name, value):
    return scalar(name, "f64", value)


def struct_param(name, size, align, fields):
    """fields: (offset, Buffer) or (offset, type, value)"""
    fs = [{"offset": f[0], "buf": f[1].name} if len(f) == 2 else {"offset": f[0], "type": f[1], "value": f[2]}
          for f in fields]
    return {"name": name, "struct": {"size": size, "align": align, "fields": fs}}


def tensormap(name, buf, dims, strides, box, swizzle="none", elem_strides=None):
    return {"name": name, "tensormap": {"buf": buf.name, "offset": 0, "dtype": buf.dtype, "rank": len(dims),
                                        "dims": dims, "strides": strides, "box": box,
                                        "elem_strides": elem_strides or [1] * len(dims), "swizzle": swizzle,
                                        "interleave": "none", "fill": "zero"}}


# ------------------------------------------------------------------ writing
def number(v, dtype):
    """A JSON value that reads back to exactly this element: bits in hex where decimal could be ambiguous."""
    a = np.array([v], DTYPES[dtype])
    if dtype not in FLOATS:
        return int(a[0])
    x = float(as_float(a, dtype)[0])
    if np.isfinite(x) and abs(x) < 2**53 and not (x == 0 and np.signbit(x)) and x * 4096 == int(x * 4096):
        return int(x) if x == int(x) else x
    n = itemsize(dtype)
    return "0x%0*x" % (2 * n, int(a.view("u%d" % n)[0]))


def represent(case_name, buf_name, array, dtype, folder):
    flat = array.reshape(-1)
    if len(flat) and (flat.view("u%d" % flat.itemsize) == flat.view("u%d" % flat.itemsize)[0]).all():
        return fill(number(flat[0], dtype))
    if len(flat) <= INLINE_VALUES:
        return {"kind": "values", "values": [number(v, dtype) for v in flat]}
    path = "%s.%s.bin" % (case_name, buf_name)
    flat.tofile(os.path.join(folder, path))
    return {"kind": "file", "path": path}


def to_json(c, folder, extra):
    spec = {"target": c.target, "nvcc_flags": c.flags}
    if c.symbols:
        spec["symbols"] = c.symbols
    spec["buffers"] = []
    for b in c.buffers:
        init = b.init
        if init["kind"] == "values" and len(init["values"]) > INLINE_VALUES:
            init = represent(c.name, b.name + ".init", b.data, b.dtype, folder)
        d = {"name": b.name, "dtype": b.dtype, "count": b.count, "role": b.role, "init": init}
        if init["kind"] != "uninit":
            d["crc32"] = zlib.crc32(b.data.tobytes())
        if b.expected is not None:
            d["compare"] = b.compare
            d["expected"] = represent(c.name, b.name, b.expected, b.dtype, folder)
        spec["buffers"].append(d)
    spec["launches"] = c.launches
    if c.counters:
        spec["counters"] = c.counters
    spec.update(extra)
    if c.expect_error:
        spec["expect"] = c.expect_error
    spec["hw_verified"] = verified_before(spec, os.path.join(folder, c.name + ".json"))
    return spec


def verified_before(spec, path):
    """Whether scripts/verify_corpus_on_gpu.py saw this very spec right on a GPU."""
    try:
        with open(path) as file:
            old = json.load(file)
    except (OSError, ValueError):
        return False
    verified = old.pop("hw_verified", False)
    return verified and old == json.loads(json.dumps(spec))


def dump(spec):
    """One line per buffer, launch and so on: small diffs."""
    lines = []
    for k, v in spec.items():
        if isinstance(v, list) and v and isinstance(v[0], dict):
            body = ",\n".join("    " + json.dumps(e) for e in v)
            lines.append('  "%s": [\n%s\n  ]' % (k, body))
        else:
            lines.append('  "%s": %s' % (k, json.dumps(v)))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def fma32(a, b, c):
    """float32 fma: double holds the product exactly; the sum is rounded to odd first so that the final
    rounding is right."""
    p = np.asarray(a, np.float64) * np.asarray(b, np.float64)
    c = np.asarray(c, np.float64)
    s = p + c
    t = s - p
    err = (p - (s - t)) + (c - t)
    u = s.view(np.int64) if isinstance(s, np.ndarray) else np.array([s]).view(np.int64)
    inexact = (err != 0) & ((u & 1) == 0) & np.isfinite(s)
    away = (err > 0) == (s > 0)
    u2 = np.where(inexact, np.where(away, u + 1, u - 1), u)
    return u2.view(np.float64).astype(np.float32)
