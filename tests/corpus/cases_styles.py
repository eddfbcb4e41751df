# SPDX-License-Identifier: Apache-2.0
"""The idioms of public projects, beside twins with one slip each."""
import functools

import numpy as np

from corpus_lib import *

style = functools.partial(twins, "styles.cu")
hopper = functools.partial(twins, "styles.cu", target="90a")
S = ["st.shared", "ld.shared"]


@style("quant_row_good", {"quant_row_half_a_warp": dict(cls="sync.mask", ops=["shfl.sync"])})
def quant_row(c, entry, right):
    a, b = c.inp("a", "s32", 5 * 64, bits(2001)), c.inp("b", "s32", 64, bits(2002))
    s, o = c.inp("scale", "f32", 40, grid(-8, 8, 16, 2003)), c.out("out", "f32", 5)
    if right:
        x, y = a.data.view(np.int8).reshape(5, 8, 32).astype(int), b.data.view(np.int8).reshape(8, 32).astype(int)
        o.expect(((x * y).sum(2) * s.f.reshape(5, 8)).sum(1))
    c.launch(entry, 5, 32, [a, b, s, o])


@style("looked_back_good", {e: dict(cls="race.flag", ops=["ld.global"], buffer="value")
                            for e in ("looked_back_no_fence", "looked_back_half_a_fence")})
def looked_back(c, entry, right):
    x, v, f = c.inp("in", "s32", 6 * 32, randint(-99, 99, 2004)), c.scratch("value", "s32", 6), c.scratch("flag", "s32", 6, zero())
    o = c.out("out", "s32", 6)
    if right:
        o.expect(np.cumsum(x.data.reshape(6, 32).sum(1)))
    c.launch(entry, 6, 32, [x, v, f, o])


@style("row_moments_good", {"row_moments_one_barrier": dict(cls="race.shared", ops=S)})
def row_moments(c, entry, right):
    x, o = c.inp("in", "f32", 3 * 128, randint(-8, 8, 2005)), c.out("out", "f32", 6)
    if right:
        m = x.f.reshape(3, 128)
        o.expect(np.stack([m.mean(1), m.var(1)], 1), abs=1e-4, rel=1e-5)
    c.launch(entry, 3, 128, [x, o])


@style("stencil_tile_good", {"stencil_tile_open_edge": dict(cls="uninit.shared", ops=["ld.shared"])})
def stencil_tile(c, entry, right):
    x, o = c.inp("in", "s32", 28 * 28, randint(-99, 99, 2006)), c.out("out", "s32", 28 * 28)
    if right:
        p = np.pad(x.data.reshape(28, 28), 1)
        o.expect(4 * p[1:-1, 1:-1] - p[1:-1, :-2] - p[1:-1, 2:] - p[:-2, 1:-1] - p[2:, 1:-1])
    c.launch(entry, (2, 2), (16, 16), [x, o, i32("n", 28)])


@style("binned_good", {"binned_uncleared": dict(cls="race.shared", ops=["st.shared", "atom.shared", "red.shared"])})
def binned(c, entry, right):
    x, o = c.inp("in", "u8", 900, bits(2007)), c.inout("out", "u32", 64, zero())
    if right:
        o.expect(np.bincount(x.data % 64, minlength=64))
    c.launch(entry, 3, 128, [x, o, i32("n", 900)])


@style("pairs_added_good", {"pairs_added_and_one": dict(cls="oob.global", ops=["ld.global", "st.global"])})
def pairs_added(c, entry, right):
    x, o = c.inp("in", "s32", 300, randint(-99, 99, 2008)), c.out("out", "s32", 150)
    if right:
        o.expect(x.data.reshape(150, 2).sum(1))
    c.launch(entry, 2, 32, [x, o, i64("n", 150)])


@style("two_stages_good", {"two_stages_last_unwaited": dict(cls="race.async", ops=["cp.async", "ld.shared"])})
def two_stages(c, entry, right):
    x, o = c.inp("in", "s32", 5 * 64, randint(-99, 99, 2009)), c.out("out", "s32", 64)
    if right:
        m = x.data.reshape(5, 64)[:, np.arange(64) ^ 1]
        o.expect((m * np.arange(1, 6)[:, None]).sum(0))
    c.launch(entry, 1, 64, [x, o, i32("tiles", 5)])


@style("locked_list_good", {"locked_list_unfenced": dict(cls="race.global", ops=["ld.global", "st.global"], buffer="list")})
def locked_list(c, entry, right):
    lock, l = c.scratch("lock", "s32", 1, zero()), c.inout("list", "s32", 9, zero())
    if right:
        l.expect(np.array([8] + [100 + i for i in range(8)]))
    c.launch(entry, 8, 32, [lock, l])


@style("transposed_vectors_good", {"transposed_vectors_odd_pitch": dict(cls="misaligned", ops=["ld.shared"])})
def transposed_vectors(c, entry, right):
    x, o = c.inp("in", "f32", 1024, randint(-99, 99, 2010)), c.out("out", "f32", 1024)
    if right:
        o.expect(x.f.reshape(32, 32).T)
    c.launch(entry, 1, 32, [x, o])


@style("packed_good", {"packed_with_gaps": dict(cls="oob.global", ops=["st.global"], buffer="out")})
def packed(c, entry, right):
    x = c.inp("in", "s32", 256, randint(-99, 99, 2011))
    keep = x.data[x.data > 0]
    n, o = c.inout("count", "s32", 1, zero()), c.out("out", "s32", len(keep))
    if right:
        n.expect([len(keep)])
        o.expect(keep, multiset=True)
    c.launch(entry, 2, 128, [x, n, o, i32("n", 256)])


@hopper("bulk_tile_good", {"bulk_tile_unfenced": dict(cls="race.proxy", ops=["cp.async.bulk", "st.shared"]),
                           "bulk_tile_left": dict(cls="lifetime.store", ops=["cp.async.bulk"]),
                           "bulk_tile_part": dict(cls="uninit.shared", ops=["cp.async.bulk"], byte_offset=240)})
def bulk_tile(c, entry, right):
    x, o = c.inp("in", "s32", 192, randint(-99, 99, 2012)), c.out("out", "s32", 192)
    if right:
        o.expect(2 * x.data)
    c.launch(entry, 3, 64, [x, o])


@hopper("ring_good", {"ring_never_empty": dict(cls="race.async", also=["mbarrier.phase"], ops=["cp.async.bulk", "ld.shared"]),
                      "ring_one_parity": dict(cls="race.async", also=["mbarrier.phase", "deadlock"], ops=["cp.async.bulk", "ld.shared"]),
                      "ring_short_of_one": dict(cls="deadlock", ops=["mbarrier.try_wait"])})
def ring(c, entry, right):
    x, o = c.inp("in", "s32", 7 * 32, randint(-99, 99, 2013)), c.out("out", "s32", 32)
    if right:
        o.expect(x.data.reshape(7, 32).sum(0)[::-1])
    c.launch(entry, 1, 64, [x, o, i32("tiles", 7)])
