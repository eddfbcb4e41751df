# SPDX-License-Identifier: Apache-2.0
"""Textbook ways of synchronising, right (classic_sync.cu) and with one mistake each (bad_classic.cu)."""
import numpy as np

from cases_broken import broken, register, two
from corpus_lib import *

B = "bad_classic"


def bad(entry, cls, target=90, **kw):
    return broken(B, entry, cls, target=target, **kw)


@register
def bad_warp_tail():
    return two(bad("warp_tail", "race.shared", ops=["st.shared", "ld.shared"], note="the last five steps need __syncwarp"), 64, 1, 64)


@register
def bad_scan_in_place():
    return two(bad("scan_in_place", "race.shared", ops=["st.shared", "ld.shared"], note="a step reads what the same step writes"), 128, 128, 128)


@register
def bad_shared_count():
    return two(bad("shared_count", "race.shared", ops=["st.shared", "ld.shared"], note="++ without an atomic"), 128, 16, 128)


@register
def bad_scratch_reuse():
    return two(bad("scratch_reuse", "race.shared", ops=["st.shared", "ld.shared"], note="two sums share scratch memory without a barrier between them"), 128, 128, 128)


@register
def bad_last_block_no_fence():
    c = bad("last_block_no_fence", "race.global", buffer="part", ops=["st.global", "ld.volatile.global"], note="no __threadfence between the partial sum and the ticket")
    c.launch(c.only, 4, 32, [c.inp("in", "s32", 128, randint(1, 9, 601)), c.scratch("part", "s32", 4), c.out("out", "s32", 1)])
    return c


@register
def bad_lock_no_fence():
    c = bad("lock_no_fence", "race.global", buffer="data", byte_offset=0, ops=["ld.global", "st.global"], note="a relaxed lock orders no plain data")
    c.launch(c.only, 4, 32, [c.scratch("lock", "s32", 1), c.inout("data", "s32", 1, zero())])
    return c


@register
def bad_no_grid_sync():
    c = bad("no_grid_sync", "race.global", also=["uninit.global"], buffer="tmp", ops=["ld.global", "st.global"], note="__syncthreads where the grid is meant")
    c.launch(c.only, 2, 64, [c.inp("in", "s32", 128, randint(1, 9, 603)), c.scratch("tmp", "s32", 128, uninit()), c.out("out", "s32", 128), i32("n", 128)])
    return c


def flagged(entry, cls, **kw):
    c = bad(entry, cls, buffer="data", byte_offset=0, **kw)
    c.launch(entry, 2, 32, [c.scratch("data", "s32", 1), c.scratch("flag", "s32", 1), c.out("out", "s32", 1)])
    return c


@register
def bad_relaxed_flag():
    return flagged("relaxed_flag", "race.global", ops=["st.global", "ld.global"], note="relaxed orders nothing")


@register
def bad_block_ref():
    return flagged("block_ref", "race.scope", also=["race.global"], ops=["st.global", "ld.global"], note="thread_scope_block between blocks")


@register
def bad_block_atomic():
    c = bad("block_atomic", "race.scope", also=["race.global"], buffer="counter", byte_offset=0, ops=["atom", "red"], note="atomics of .cta scope from two blocks")
    c.launch(c.only, 2, 32, [c.inout("counter", "s32", 1, zero())])
    return c


@register
def bad_no_consumer_wait():
    return two(bad("no_consumer_wait", "race.async", also=["uninit.shared"], ops=["cp.async", "ld.shared"]), 128, 64, 64)


@register
def bad_group_copy_no_wait():
    return two(bad("group_copy_no_wait", "race.async", also=["uninit.shared"], ops=["cp.async", "ld.shared"], note="block.sync() waits for no copy"), 64, 64, 64)


@register
def bad_source_rewritten():
    c = bad("source_rewritten", "race.async", buffer="in", ops=["cp.async", "st.global"], note="the source of a copy in flight is overwritten")
    c.launch(c.only, 1, 32, [c.inout("in", "s32", 32, iota(1, 1)), c.out("out", "s32", 32)])
    return c


@register
def bad_stage_overwritten():
    return two(bad("stage_overwritten", "race.async", also=["mbarrier.phase"], ops=["cp.async.bulk", "ld.shared"], note="no empty barrier before the stage is filled again"), 128, 128, 64)


@register
def bad_store_no_wait():
    c = bad("store_no_wait", "lifetime.store", also=["lifetime.shared"], ops=["cp.async.bulk"], thread=[0, 0, 0], block=[0, 0, 0], note="no wait_group.read before the block ends")
    c.launch(c.only, 1, 64, [c.out("out", "s32", 64)])
    return c


@register
def bad_load_into_used():
    return two(bad("load_into_used", "race.async", also=["race.proxy"], ops=["cp.async.bulk", "ld.shared", "st.shared"], note="no barrier between the reads and the copy into the same bytes"), 64, 64, 64)


@register
def bad_cluster_no_sync():
    c = bad("cluster_no_sync", "race.shared", also=["uninit.shared"], ops=["st.shared", "ld"], note="the peer may not have written yet")
    c.launch(c.only, 2, 32, [c.out("out", "s32", 64)], cluster=(2, 1, 1))
    return c


@register
def bad_stencil_edge():
    c = bad("stencil_edge", "oob.global", buffer="in", byte_offset=-4, thread=[0, 0, 0], block=[0, 0, 0], ops=["ld.global"])
    c.launch(c.only, 2, 64, [c.inp("in", "f32", 100, uniform(0, 1, 604)), c.out("out", "f32", 100), i32("n", 100)])
    return c


@register
def bad_negative_shared():
    return two(bad("negative_shared", "oob.shared", thread=[0, 0, 0], block=[0, 0, 0], ops=["ld.shared"]), 32, 32, 32)


@register
def bad_copy_misaligned():
    c = bad("copy_misaligned", "misaligned", buffer="in", byte_offset=8, thread=[0, 0, 0], block=[0, 0, 0], ops=["cp.async"])
    c.launch(c.only, 1, 32, [c.inp("in", "u8", 544, bits(605)), c.out("out", "s32", 32)])
    return c


@register
def bad_matrix_misaligned():
    return two(bad("matrix_misaligned", "misaligned", ops=["ldmatrix"], note="rows 18 bytes apart"), 32, 32, 32)


@register
def bad_max_uninit():
    return two(bad("max_uninit", "uninit.shared", ops=["atom.shared", "red.shared"]), 64, 64, 64)


@register
def bad_reduce_wrong_mask():
    return two(bad("reduce_wrong_mask", "sync.mask", also=["deadlock"], ops=["redux.sync"]), 32, 32, 32, init=iota(0, 1))


@register
def bad_vote_in_branch():
    return two(bad("vote_in_branch", "sync.mask", also=["deadlock"], ops=["vote.sync"], note="lanes 16..31 are named and pass by"), 32, 32, 32)


@register
def bad_syncwarp_partial():
    return two(bad("syncwarp_partial", "sync.mask", also=["deadlock"], ops=["shfl.sync", "bar.warp.sync"], note="lane 31 has returned"), 32, 32, 32, init=concat((31, fill(5)), (1, fill(-1))))


@register
def bad_barrier_count():
    c = bad("barrier_count", "deadlock", ops=["mbarrier"], note="64 arrivals are expected, 32 come")
    c.launch(c.only, 1, 64, [c.out("out", "s32", 64)])
    return c


@register
def bad_grid_barrier_early():
    c = bad("grid_barrier_early", "deadlock", ops=["ld.volatile"], note="block 2 returns without arriving")
    c.launch(c.only, 3, 32, [c.scratch("arrived", "u32", 1), c.out("out", "s32", 96)])
    return c


# ------------------------------------------------------------------ working
def good(entry, target=90):
    c = Case(entry, target=target, src="classic_sync.cu")
    c.only = entry
    return c


def keep(build):
    """One entry of the file, under a case of its name."""
    return case(build)


@keep
def last_block():
    c = good("last_block")
    x, part, o = c.inp("in", "s32", 700, randint(-50, 50, 611)), c.scratch("part", "s32", 5), c.out("out", "s32", 1)
    o.expect([int(x.data.sum())])
    for _ in range(2):
        c.launch("last_block", 5, 64, [x, part, o, i32("n", 700)])
    return c


@keep
def last_block_ref():
    c = good("last_block_ref")
    x, part, k, o = c.inp("in", "s32", 256, randint(-50, 50, 612)), c.scratch("part", "s32", 256, uninit()), c.scratch("count", "s32", 1), c.out("out", "s32", 64)
    v = x.data.reshape(4, 64) * 3
    o.expect([int(sum(v[b, (t + b) % 64] for b in range(4))) for t in range(64)])
    c.launch("last_block_ref", 4, 64, [x, part, k, o])
    return c


@keep
def lookback_words():
    c = good("lookback_words")
    n = 40 * 64
    x, a, p = c.inp("in", "s32", n, randint(-9, 9, 613)), c.scratch("aggregate", "s32", 40, uninit()), c.scratch("prefix", "s32", 40, uninit())
    s, k, o = c.scratch("status", "s32", 40), c.scratch("next", "u32", 1), c.out("out", "s32", n)
    o.expect(np.cumsum(x.data))
    c.launch("lookback_words", 40, 64, [x, a, p, s, k, o])
    return c


@keep
def lock_ref():
    c = good("lock_ref")
    l, d = c.scratch("lock", "s32", 1), c.inout("data", "s32", 2, zero())
    d.expect([12, 78])
    c.launch("lock_ref", 3, 128, [l, d])
    return c


@keep
def semaphores():
    c = good("semaphores")
    x, o = c.inp("data", "s32", 4, values([3, 10, 200, 4000])), c.out("out", "s32", 128)
    o.expect([4213] * 128)
    c.launch("semaphores", 1, 128, [x, o])
    return c


@keep
def block_queue():
    c = good("block_queue")
    x, ring = c.inp("in", "s32", 11 * 32, randint(-99, 99, 614)), c.scratch("ring", "s32", 128, uninit())
    h, t, o = c.scratch("head", "s32", 1), c.scratch("tail", "s32", 1), c.out("out", "s32", 11 * 32)
    v = x.data.reshape(11, 32) + 1
    o.expect(v[:, [l ^ 5 for l in range(32)]])
    c.launch("block_queue", 2, 32, [x, ring, h, t, o, i32("n", 11)])
    return c


@keep
def pipeline_roles():
    c = good("pipeline_roles")
    x, o = c.inp("in", "s32", 7 * 32, randint(-99, 99, 615)), c.out("out", "s32", 32)
    acc = np.zeros(32, np.int64)
    for r in range(7):
        acc = acc * 5 + x.data[r * 32:r * 32 + 32][::-1]
    o.expect(acc)
    c.launch("pipeline_roles", 1, 64, [x, o, i32("rounds", 7)])
    return c


@keep
def group_copy():
    c = good("group_copy")
    x, o = c.inp("in", "s32", 5 * 64, randint(-99, 99, 616)), c.out("out", "s32", 64)
    acc = np.zeros(64, np.int64)
    for r in range(5):
        acc = acc * 3 + x.data[r * 64:r * 64 + 64][::-1]
    o.expect(acc)
    c.launch("group_copy", 1, 64, [x, o, i32("rounds", 5)])
    return c


@keep
def barrier_drop():
    c = good("barrier_drop")
    o = c.out("out", "s32", 64)
    s = [63 - t for t in range(48)]
    o.expect([2 * (63 - t) + s[(t + 1) % 48] for t in range(48)] + [int(v) for v in np.frombuffer(b"\xa5" * 64, "<i4")])
    c.launch("barrier_drop", 1, 64, [o])
    return c


@keep
def work_counter():
    c = good("work_counter")
    x, k, o = c.inp("in", "s32", 13 * 32, randint(-99, 99, 617)), c.scratch("next", "s32", 1), c.out("out", "s32", 13)
    o.expect(x.data.reshape(13, 32).sum(axis=1))
    c.launch("work_counter", 3, 64, [x, k, o, i32("rows", 13)])
    return c


@keep
def cluster_bins():
    c = good("cluster_bins")
    x, o = c.inp("in", "s32", 128, randint(0, 99, 618)), c.out("out", "s32", 16)
    o.expect(np.bincount(x.data & 15, minlength=16))
    c.launch("cluster_bins", 2, 64, [x, o], cluster=(2, 1, 1))
    return c


@keep
def bulk_ring():
    c = good("bulk_ring")
    x, o = c.inp("in", "s32", 6 * 64, randint(-99, 99, 619)), c.out("out", "s32", 6 * 64)
    o.expect(x.data.reshape(6, 64)[:, [t ^ 1 for t in range(64)]] * 2)
    c.launch("bulk_ring", 1, 96, [x, o, i32("rounds", 6)])
    return c


@keep
def grid_phases():
    c = good("grid_phases")
    n = 200
    a, b = c.inout("a", "s32", n, randint(-99, 99, 620)), c.scratch("b", "s32", n, uninit())
    v = a.data.astype(np.int64)
    for _ in range(3):
        v = np.roll(np.roll(v, -1) + v, 1)
    a.expect(v)
    c.launch("grid_phases", 3, 64, [a, b, i32("n", n)], cooperative=True)
    return c
