# SPDX-License-Identifier: Apache-2.0
"""Kernels that are nearly right."""
from corpus_lib import *


def broken(entry, cls, target=80, **kw):
    c = Case("bad_" + entry, target=target, src="bad_near.cu")
    c.only = entry
    c.broken(cls, **kw)
    return c


def register(f):
    def build():
        r = f()
        r.name = f.__name__
        return r
    build.__name__ = f.__name__
    return case(build)


def through(c, n_in, n_out, block, grid=1, init=None, more=(), **kw):
    x, o = c.inp("in", "s32", n_in, init or randint(1, 9, 801)), c.out("out", "s32", n_out)
    c.launch(c.only, grid, block, [x, o, *more], **kw)
    return c


S = ["st.shared", "ld.shared"]


@register
def bad_partial_barrier():
    return through(broken("partial_barrier", "race.shared", also=["barrier.count", "barrier.divergence"], ops=S), 128, 128, 128)


@register
def bad_histogram_flush():
    return through(broken("histogram_flush", "race.shared", ops=["atom.shared", "red.shared", "ld.shared"]), 128, 32, 128)


@register
def bad_bit_flags():
    return through(broken("bit_flags", "race.shared", ops=S), 128, 16, 128)


@register
def bad_flag_in_shared():
    return through(broken("flag_in_shared", "race.shared", ops=S), 32, 32, 64)


@register
def bad_tile_sync_too_small():
    return through(broken("tile_sync_too_small", "race.shared", ops=S), 64, 64, 64)


@register
def bad_half_the_index():
    return through(broken("half_the_index", "race.global", ops=["st.global"], buffer="out"), 64, 32, 64, init=iota(1, 1))


@register
def bad_fence_before_store():
    c = broken("fence_before_store", "race.global", ops=["st.global", "ld.global"], buffer="part")
    c.launch("fence_before_store", 3, 32, [c.scratch("part", "s32", 3), c.scratch("count", "s32", 1), c.out("out", "s32", 1)])
    return c


@register
def bad_no_barrier_before_flag():
    c = broken("no_barrier_before_flag", "race.global", ops=["st.global", "ld.global"], buffer="part")
    x = c.inp("in", "s32", 64, randint(1, 9, 802))
    c.launch("no_barrier_before_flag", 2, 64, [x, c.scratch("part", "s32", 64), c.scratch("flag", "s32", 1), c.out("out", "s32", 64)])
    return c


@register
def bad_lock_without_acquire():
    c = broken("lock_without_acquire", "race.global", ops=["ld.global", "st.global"], buffer="data", byte_offset=0)
    c.launch("lock_without_acquire", 3, 32, [c.scratch("lock", "s32", 1), c.inout("data", "s32", 1, zero())])
    return c


@register
def bad_next_row_too_soon():
    c = broken("next_row_too_soon", "race.global", ops=["ld.global", "st.volatile"], buffer="x")
    c.launch("next_row_too_soon", 2, 32, [c.inp("row", "s32", 64, randint(1, 9, 803)), c.inout("x", "s32", 64, zero()), i32("n", 64)])
    return c


@register
def bad_tail_wait():
    return through(broken("tail_wait", "race.async", also=["uninit.shared"], ops=["cp.async", "ld.shared"]), 4 * 64, 64, 64, more=[i32("tiles", 4)])


@register
def bad_release_before_read():
    return through(broken("release_before_read", "race.async", also=["race.shared"], ops=["cp.async", "ld.shared", "st.shared"]), 5 * 64, 64, 64, more=[i32("rounds", 5)])


@register
def bad_ring_parity():
    return through(broken("ring_parity", "race.async", target=90, also=["mbarrier.phase", "deadlock"], ops=["cp.async.bulk", "ld.shared", "mbarrier.try_wait"]), 6 * 64, 64, 64, more=[i32("rounds", 6)])


@register
def bad_too_few_bytes():
    return through(broken("too_few_bytes", "race.async", target=90, also=["mbarrier.tx", "mbarrier.count", "uninit.shared"], ops=["cp.async.bulk", "ld.shared"]), 128, 128, 128)


@register
def bad_read_wait_only():
    c = broken("read_wait_only", "race.async", target=90, ops=["cp.async.bulk", "ld.global"], buffer="out")
    x, o, f, k = c.inp("in", "s32", 64, randint(1, 9, 804)), c.out("out", "s32", 64), c.scratch("flag", "s32", 1), c.out("copy", "s32", 64)
    c.launch("read_wait_only", 2, 64, [x, o, f, k])
    return c


@register
def bad_fence_before_copy():
    c = broken("fence_before_copy", "race.async", target=90, ops=["cp.async.bulk", "ld.global"], buffer="out")
    x, o, f, k = c.inp("in", "s32", 64, randint(1, 9, 816)), c.out("out", "s32", 64), c.scratch("flag", "s32", 1), c.out("copy", "s32", 64)
    c.launch("fence_before_copy", 2, 64, [x, o, f, k])
    return c


@register
def bad_plain_poll():
    c = broken("plain_poll", "race.global", also=["deadlock"], ops=["ld.global", "atom.global"], buffer="flag", note="a race by the model; the loop never ends where the load was hoisted")
    c.launch("plain_poll", 2, 32, [c.scratch("flag", "s32", 1), c.inp("in", "s32", 32, randint(1, 9, 817)), c.out("out", "s32", 32)])
    return c


@register
def bad_generic_then_bulk():
    c = broken("generic_then_bulk", "race.proxy", target=90, ops=["cp.async.bulk", "st.global"], buffer="tmp")
    x, t, o = c.inp("in", "s32", 64, randint(1, 9, 805)), c.scratch("tmp", "s32", 64), c.out("out", "s32", 64)
    c.launch("generic_then_bulk", 1, 64, [x, t, o])
    return c


@register
def bad_relaxed_cluster():
    return through(broken("relaxed_cluster", "race.shared", target=90, ops=["ld.shared", "st.shared::cluster"]), 64, 64, 32, grid=2, cluster=(2, 1, 1))


@register
def bad_cluster_scope_flag():
    c = broken("cluster_scope_flag", "race.scope", target=90, also=["race.global"], ops=["st.release.cluster", "ld.acquire.cluster", "ld.global"])
    c.launch("cluster_scope_flag", 4, 32, [c.scratch("data", "s32", 1), c.scratch("flag", "s32", 1), c.out("out", "s32", 1)], cluster=(2, 1, 1))
    return c


@register
def bad_bulk_odd_size():
    return through(broken("bulk_odd_size", "misaligned", target=90, ops=["cp.async.bulk"]), 64, 64, 64, more=[i32("n", 62)])


@register
def bad_empty_parity():
    return through(broken("empty_parity", "deadlock", target=90, ops=["mbarrier.try_wait"]), 4 * 64, 64, 96, more=[i32("rounds", 4)])


@register
def bad_wrong_pitch():
    c = broken("wrong_pitch", "oob.global", ops=["ld.global"], buffer="in")
    x, o = c.inp("in", "f32", 20 * 24, uniform(0, 1, 806)), c.out("out", "f32", 20 * 20)
    c.launch("wrong_pitch", (2, 2), (16, 16), [x, o, i32("w", 20), i32("h", 20), i32("pitch", 24)])
    return c


@register
def bad_swapped_guard():
    c = broken("swapped_guard", "oob.global", also=["race.global"], ops=["ld.global", "st.global"], buffer="in")
    x, o = c.inp("in", "s32", 12 * 20, randint(1, 9, 807)), c.out("out", "s32", 12 * 20)
    c.launch("swapped_guard", (3, 3), (8, 8), [x, o, i32("w", 20), i32("h", 12)])
    return c


@register
def bad_unsigned_wrap():
    return through(broken("unsigned_wrap", "oob.global", ops=["ld.global"], buffer="in", byte_offset=400, thread=[0, 0, 0], block=[0, 0, 0]), 100, 100, 64, grid=2, more=[u32("n", 100)])


@register
def bad_const_table():
    return through(broken("const_table", "oob.const", also=["oob.global"], ops=["ld.const"], thread=[9, 0, 0]), 32, 32, 32, init=concat((9, randint(0, 5, 808)), (1, fill(6)), (22, zero())))


@register
def bad_freed():
    return through(broken("freed", "lifetime.global", also=["oob.global"], ops=["ld.volatile"]), 32, 32, 32)


@register
def bad_deep_stack():
    c = broken("deep_stack", "oob.local", ops=["st.local"])
    c.launch("deep_stack", 1, 32, [c.out("out", "s32", 32), i32("n", 13)])
    return c


@register
def bad_bins_not_cleared():
    return through(broken("bins_not_cleared", "uninit.shared", ops=["atom.shared", "red.shared"]), 128, 64, 128, init=randint(0, 63, 809))


@register
def bad_ragged_tile():
    c = broken("ragged_tile", "uninit.shared", ops=["ld.shared"])
    a, b, o = c.inp("a", "f32", 8 * 13, uniform(0, 1, 810)), c.inp("b", "f32", 13, uniform(0, 1, 811)), c.out("c", "f32", 128)
    c.launch("ragged_tile", 1, 128, [a, b, o, i32("k", 13)])
    return c


@register
def bad_sum_not_cleared():
    c = broken("sum_not_cleared", "uninit.global", ops=["atom.global", "red.global"], buffer="sum")
    c.launch("sum_not_cleared", 2, 32, [c.inp("in", "f32", 64, uniform(0, 1, 812)), c.scratch("sum", "f32", 1, uninit())])
    return c


@register
def bad_odd_float2():
    c = broken("odd_float2", "misaligned", ops=["ld.shared.v2"], thread=[16, 0, 0])
    c.launch("odd_float2", 1, 64, [c.inp("in", "f32", 132, uniform(0, 1, 813)), c.out("out", "f32", 128)])
    return c


@register
def bad_packed_record():
    c = broken("packed_record", "misaligned", ops=["ld.global"], buffer="in", byte_offset=2, thread=[0, 0, 0])
    c.launch("packed_record", 1, 32, [c.inp("in", "u8", 200, bits(814)), c.out("out", "s32", 32)])
    return c


@register
def bad_barrier_in_call():
    return through(broken("barrier_in_call", "barrier.divergence", also=["race.shared", "uninit.shared"], ops=["bar.sync"]), 64, 64, 64)


@register
def bad_leaving_lanes():
    return through(broken("leaving_lanes", "sync.mask", also=["deadlock"], ops=["shfl.sync"]), 80, 32, 32, more=[i32("n", 80)])


@register
def bad_stale_mask():
    return through(broken("stale_mask", "sync.mask", also=["deadlock"], ops=["redux.sync"]), 32, 32, 32, init=randint(0, 99, 815))


@register
def bad_group_of_fewer():
    return through(broken("group_of_fewer", "sync.mask", also=["deadlock"], ops=["shfl.sync", "redux.sync", "bar.warp.sync"]), 32, 32, 32)


@register
def bad_grid_too_large():
    c = broken("grid_too_large", "deadlock", target=90, ops=["ld.volatile"])
    c.launch("grid_too_large", 140, 32, [c.scratch("count", "s32", 1), c.out("out", "s32", 140)], smem=200 * 1024)
    return c


@register
def bad_flag_behind_barrier():
    c = broken("flag_behind_barrier", "deadlock", also=["barrier.divergence"], ops=["ld.volatile", "bar.sync"])
    c.launch("flag_behind_barrier", 1, 64, [c.out("out", "s32", 64)])
    return c


@register
def bad_warp_out_of_turn():
    return through(broken("warp_out_of_turn", "deadlock", ops=["bar.sync"]), 96, 96, 96)


@register
def bad_lost_arrival():
    return through(broken("lost_arrival", "deadlock", ops=["mbarrier.test_wait", "mbarrier.try_wait", "ld.volatile", "ld.relaxed", "ld.acquire"]), 64, 64, 64, init=concat((40, zero()), (1, fill(77)), (23, zero())))


@register
def bad_failing_assert():
    return through(broken("failing_assert", "assert", thread=[9, 0, 0], block=[1, 0, 0]), 64, 64, 32, grid=2, init=concat((41, zero()), (1, fill(50)), (22, zero())), more=[i32("n", 50)])


@register
def bad_refill_under_wgmma():
    c = broken("refill_under_wgmma", "race.async", target="90a", ops=["wgmma.mma_async", "st.shared"])
    a, b, o = c.inp("a", "u32", 512, fill("0x3f803f80")), c.inp("b", "u32", 64, fill("0x3f803f80")), c.out("c", "f32", 512)
    c.launch("refill_under_wgmma", 1, 128, [a, b, o, i32("rounds", 4)])
    return c


def tmem(entry, cls, tiles=1, **kw):
    c = broken(entry, cls, target="100a", **kw)
    a, b, o = c.inp("a", "u32", 1024, fill("0x3c003c00")), c.inp("b", "u32", 64, fill("0x3c003c00")), c.out("d", "f32", 256 * tiles)
    c.launch(entry, 1, 128, [a, b, o])
    return c


@register
def bad_tmem_no_commit_wait():
    return tmem("tmem_no_commit_wait", "race.async", also=["uninit.tensor"], ops=["tcgen05.mma", "tcgen05.ld"])


@register
def bad_tmem_no_wait_ld():
    return tmem("tmem_no_wait_ld", "async.tensor_load", ops=["tcgen05.ld", "st.global"])


@register
def bad_tmem_no_proxy_fence():
    return tmem("tmem_no_proxy_fence", "race.proxy", ops=["tcgen05.mma", "st.shared"])


@register
def bad_tmem_leak():
    return tmem("tmem_leak", "lifetime.tensor", ops=["tcgen05.alloc"])


@register
def bad_tmem_no_fence_after():
    return tmem("tmem_no_fence_after", "race.tensor_fence", ops=["tcgen05.ld"])


@register
def bad_tmem_no_fence_before():
    return tmem("tmem_no_fence_before", "race.tensor_fence", tiles=2, ops=["tcgen05.mma"])


@register
def bad_tmem_no_fence_reuse():
    return tmem("tmem_no_fence_reuse", "race.tensor_fence", tiles=2, ops=["tcgen05.mma"])


@case
def tmem_reused():
    c = Case("tmem_reused", target="100a", src="bad_near.cu")
    c.only = "tmem_reused"
    a, b, d = c.inp("a", "u32", 1024, fill("0x3c003c00")), c.inp("b", "u32", 64, fill("0x3c003c00")), c.out("d", "f32", 512)
    d.expect([16.0] * 512)  # the products of 16 ones, twice
    c.launch("tmem_reused", 1, 128, [a, b, d])
    return c
