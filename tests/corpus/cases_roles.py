# SPDX-License-Identifier: Apache-2.0
"""Warps and blocks with roles, right and with one thing left out."""
import numpy as np

from corpus_lib import *


def both(good, bad, cls, target=80, **kw):
    return twins("roles.cu", good, {entry: dict(cls=c, **kw) for entry, c in zip(bad, cls)}, target)


@both("two_buffers_good", ["filled_not_awaited"], ["race.shared"], also=["uninit.shared"], ops=["ld.shared", "st.shared"])
def two_buffers(c, entry, right):
    x, o = c.inp("in", "s32", 6 * 64, randint(-50, 50, 901)), c.out("out", "s32", 64)
    if right:
        o.expect(x.data.reshape(6, 64)[:, ::-1].sum(0))
    c.launch(entry, 1, 128, [x, o, i32("rounds", 6)])


@both("neighbours_good", ["neighbour_not_there"], ["race.async"], also=["uninit.shared"], ops=["cp.async", "ld.shared"])
def neighbours(c, entry, right):
    x, o = c.inp("in", "s32", 256, randint(-50, 50, 902)), c.out("out", "s32", 256)
    if right:
        v = x.data.reshape(2, 128)
        o.expect((np.roll(v, -1, 1) - v).reshape(-1))
    c.launch(entry, 1, 128, [x, o])


@both("three_stages_good", ["one_group_too_many"], ["race.async"], also=["uninit.shared"], ops=["cp.async", "ld.shared"])
def three_stages(c, entry, right):
    x, o = c.inp("in", "s32", 7 * 128, randint(-50, 50, 903)), c.out("out", "s32", 128)
    if right:
        o.expect(x.data.reshape(7, 128)[:, np.arange(128) ^ 5].sum(0))
    c.launch(entry, 1, 128, [x, o, i32("rounds", 7)])


@both("by_counter_good", ["number_overwritten"], ["race.shared"], ops=["ld.shared", "st.shared"])
def by_counter(c, entry, right):
    x, o = c.inp("in", "s32", 5 * 64, randint(-50, 50, 904)), c.out("out", "s32", 5 * 64)
    n = c.scratch("next", "s32", 1)
    if right:
        o.expect(x.data.reshape(5, 64)[:, np.arange(64) ^ 1].reshape(-1) * 2)
    c.launch(entry, 2, 64, [x, o, n, i32("tiles", 5)])


@both("block_to_block_good", ["published_relaxed", "published_to_the_block"], ["race.global", "race.scope"], ops=["ld.global", "st.global", "ld", "st"])
def block_to_block(c, entry, right):
    ring, head, tail, o = c.scratch("ring", "s32", 4), c.scratch("head", "s32", 1), c.scratch("tail", "s32", 1), c.out("out", "s32", 10)
    if right:
        o.expect(np.arange(10) ** 2 + 1)
    c.launch(entry, 2, 32, [ring, head, tail, o, i32("n", 10)])


@both("own_grid_barrier_good", ["arrives_for_others"], ["race.global"], ops=["ld.global", "st.global"])
def own_grid_barrier(c, entry, right):
    a, b, n = c.inout("a", "s32", 192, randint(-50, 50, 905)), c.inout("b", "s32", 192, zero()), c.scratch("count", "u32", 1)
    if right:
        v = [a.data]
        for _ in range(3):
            v.append(np.roll(v[-1], -1) + np.roll(v[-1], 1))
        a.expect(v[2])
        b.expect(v[3])
    c.launch(entry, 3, 64, [a, b, n])


@both("one_barrier_good", ["one_buffer"], ["race.shared"], ops=["ld.shared", "st.shared"])
def one_barrier(c, entry, right):
    x, o = c.inp("in", "s32", 256, randint(-50, 50, 906)), c.out("out", "s32", 256)
    if right:
        o.expect(np.cumsum(x.data))
    c.launch(entry, 1, 256, [x, o])


@both("append_good", ["counted_too_early"], ["race.shared"], also=["uninit.shared"], ops=["ld.shared", "st.shared", "atom.shared"])
def append(c, entry, right):
    x, o, n = c.inp("in", "s32", 128, randint(-50, 50, 907)), c.scratch("out", "s32", 1), c.out("count", "s32", 1)
    if right:
        n.expect([int((x.data > 0).sum())])
    c.launch(entry, 1, 128, [x, o, n])


@both("two_doors_good", ["doors_crossed"], ["deadlock"], ops=["mbarrier.test_wait", "mbarrier.try_wait", "ld", "nanosleep"])
def two_doors(c, entry, right):
    x, o = c.inp("in", "s32", 64, randint(-50, 50, 908)), c.out("out", "s32", 64)
    if right:
        o.expect(x.data[::-1] + 1)
    c.launch(entry, 1, 64, [x, o])


@both("vector_tail_good", ["tail_in_one_piece"], ["oob.global"], ops=["ld.global.v4", "st.global.v4"])
def vector_tail(c, entry, right):
    x, o = c.inp("in", "f32", 250, randint(-50, 50, 909)), c.out("out", "f32", 250)
    if right:
        o.expect(x.f + 1)
    c.launch(entry, 2, 32, [x, o, i32("n", 250)])


@both("behind_header_good", ["header_of_six"], ["misaligned"], ops=["ld.shared"])
def behind_header(c, entry, right):
    x, o = c.inp("in", "u8", 136, bits(910)), c.out("out", "s32", 32)
    if right:
        o.expect(x.data[8:136].view("<i4"))
    c.launch(entry, 1, 32, [x, o], smem=160)


@both("strips_good", ["strips_apart"], ["race.shared"], target=90, ops=["ld", "st.shared", "ld.shared"])
def strips(c, entry, right):
    x, o = c.inp("in", "s32", 256, randint(-50, 50, 911)), c.out("out", "s32", 256)
    if right:
        v = x.data
        for _ in range(3):
            v = np.roll(v, -1) + np.roll(v, 1)
        o.expect(v)
    c.launch(entry, 4, 64, [x, o, i32("steps", 3)], cluster=4)


@both("into_the_first_good", ["first_has_left"], ["lifetime.dsmem"], target=90, also=["race.shared", "deadlock"], ops=["atom", "red"])
def into_the_first(c, entry, right):
    x, o = c.inp("in", "s32", 128, randint(0, 99, 912)), c.out("out", "s32", 32)
    if right:
        o.expect(np.bincount(x.data & 31, minlength=32))
    c.launch(entry, 2, 64, [x, o], cluster=2)


# Copies that land before the arrivals leave a phase that never ends; those that land later are not waited for.
@both("told_bytes_good", ["told_no_bytes"], ["deadlock"], target=90, also=["race.async", "uninit.shared"], ops=["mbarrier.try_wait"])
def told_bytes(c, entry, right):
    x, o = c.inp("in", "s32", 512, randint(-50, 50, 913)), c.out("out", "s32", 256)
    if right:
        v = x.data.reshape(2, 256)
        o.expect((v[:, :128] + v[:, ::-1][:, :128]).reshape(-1))
    c.launch(entry, 2, 128, [x, o])


@both("by_key_good", ["two_warps_count"], ["race.shared"], ops=["ld.shared", "st.shared"])
def by_key(c, entry, right):
    x, o = c.inp("in", "s32", 64, randint(0, 99, 914)), c.out("out", "s32", 16)
    if right:
        o.expect(np.bincount(x.data & 15, minlength=16))
    c.launch(entry, 1, 64, [x, o])


@both("parted_barrier_good", ["before_the_wait"], ["race.shared"], target=90, ops=["ld", "st.shared"])
def parted_barrier(c, entry, right):
    x, o = c.inp("in", "s32", 128, randint(-50, 50, 915)), c.out("out", "s32", 128)
    if right:
        v = x.data.reshape(2, 64)
        o.expect((v * 3 + v[::-1, ::-1]).reshape(-1))
    c.launch(entry, 2, 64, [x, o], cluster=2)


@both("cluster_lock_good", ["unlocked_relaxed"], ["race.shared"], target=90, ops=["ld", "st"])
def cluster_lock(c, entry, right):
    x, o = c.inp("in", "s32", 4, randint(-50, 50, 916)), c.out("out", "s32", 1)
    if right:
        o.expect([int(x.data.sum())])
    c.launch(entry, 4, 32, [x, o], cluster=4)
