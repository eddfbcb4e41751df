# SPDX-License-Identifier: Apache-2.0
"""Small kernels beside twins with one slip each."""
import functools

import numpy as np

from corpus_lib import *

slip = functools.partial(twins, "slips.cu")
hopper = functools.partial(twins, "slips.cu", target="90a")
S = ["st.shared", "ld.shared"]


@slip("private_bins_good", {"bins_half_cleared": dict(cls="uninit.local", ops=["ld.local", "st.local", "st.global"])})
def private_bins(c, entry, right):
    per = 10
    x, o = c.inp("in", "u8", 64 * per, bits(1301)), c.out("out", "u32", 64 * 16)
    if right:
        o.expect(np.array([np.bincount(r & 15, weights=np.arange(1, per + 1), minlength=16) for r in x.data.reshape(64, per)], int))
    c.launch(entry, 2, 32, [x, o, i32("per", per)])


@case
def bad_rows_added():
    c = Case("bad_rows_added", src="slips.cu")
    c.only = "rows_added"
    c.broken("race.global", also=["uninit.global"], ops=["st.global", "ld.global"], buffer="sums")
    c.launch("rows_added", 4, 32, [c.inp("in", "s32", 96, randint(-9, 9, 1302)), c.out("sums", "s32", 3), i32("n", 32)])
    return c


@case
def bad_counters_behind_header():
    c = Case("bad_counters_behind_header", src="slips.cu")
    c.only = "counters_behind_header"
    c.broken("misaligned", ops=["atom.global", "red.global"], buffer="record")
    c.launch(c.only, 1, 32, [c.inp("in", "s32", 32, randint(0, 9, 1303)), c.inout("record", "u32", 10, zero())])
    return c


@slip("pairs_of_doubles_good", {"pairs_from_odd": dict(cls="misaligned", ops=["ld.global"], buffer="in")})
def pairs_of_doubles(c, entry, right):
    x, o = c.inp("in", "f64", 66, randint(-50, 50, 1304)), c.out("out", "f64", 32)
    if right:
        o.expect(x.data[2::2] * x.data[3::2])
    c.launch(entry, 1, 32, [x, o])


@slip("rounds_good", {"rounds_of_some": dict(cls="barrier.divergence", also=["barrier.count", "deadlock"], ops=["bar", "barrier"])})
def rounds(c, entry, right):
    x, o = c.inp("work", "s32", 64, randint(1, 5, 1305)), c.out("out", "s32", 64)
    if right:
        o.expect(x.data)
    c.launch(entry, 1, 64, [x, o])


@slip("bytes_of_words_good", {"bytes_lost": dict(cls="race.shared", ops=S)})
def bytes_of_words(c, entry, right):
    x, o = c.inp("in", "s32", 128, randint(0, 255, 1306)), c.out("out", "u32", 32)
    if right:
        o.expect(x.data.reshape(32, 4) @ np.array([1, 256, 65536, 1 << 24], dtype=np.int64))
    c.launch(entry, 1, 128, [x, o])


@slip("grid_in_branch_good", {"one_block_stays_away": dict(cls="deadlock")})
def grid_in_branch(c, entry, right):
    x, m, o = c.inp("in", "s32", 96, randint(-50, 50, 1307)), c.scratch("mid", "s32", 96), c.out("out", "s32", 96)
    if right:
        o.expect(x.data[(np.arange(96) + 37) % 96] + 1)
    c.launch(entry, 3, 32, [x, m, o], cooperative=True)


@slip("handed_back_good", {"handed_back_twice": dict(cls="lifetime.global")})
def handed_back(c, entry, right):
    o = c.out("out", "s32", 64)
    if right:
        o.expect(3 * np.arange(63, -1, -1))
    c.launch(entry, 1, 64, [o])


@hopper("sent_rows_good", {"row_not_awaited": dict(cls="race.async", also=["uninit.shared"], ops=["st.async", "ld.shared"])})
def sent_rows(c, entry, right):
    x, o = c.inp("in", "s32", 128, randint(-50, 50, 1308)), c.out("out", "s32", 128)
    if right:
        o.expect(x.data.reshape(2, 64)[::-1, ::-1])
    c.launch(entry, 2, 64, [x, o], cluster=(2, 1, 1))


@hopper("cluster_meets_good", {"one_block_waits_elsewhere": dict(cls="deadlock")})
def cluster_meets(c, entry, right):
    x, o = c.inp("in", "s32", 64, randint(-50, 50, 1309)), c.out("out", "s32", 1)
    if right:
        o.expect([int(x.data.sum())])
    c.launch(entry, 2, 32, [x, o], cluster=(2, 1, 1))


@slip("own_table_good", {"own_table_by_ldg": dict(cls="race.proxy", ops=["ld.global.nc", "st.global"], buffer="table")})
def own_table(c, entry, right):
    x, t, o = c.inp("in", "s32", 192, randint(-50, 50, 1340)), c.scratch("table", "s32", 192), c.out("out", "s32", 192)
    if right:
        o.expect(3 * x.data.reshape(3, 64)[:, ::-1])
    c.launch(entry, 3, 64, [x, t, o])
