# SPDX-License-Identifier: Apache-2.0
"""Kernels with one defect each. `later` marks the classes that need happens-before race detection."""
from corpus_lib import *


def broken(src, entry, cls, target=80, **kw):
    c = Case("bad_" + entry, target=target, src=src + ".cu")
    c.only = entry
    c.broken(cls, **kw)
    return c


def register(f):
    c = f.__name__

    def build():
        r = f()
        r.name = c
        return r
    build.__name__ = c
    return case(build)


def two(c, n_in, n_out, block, grid=1, init=None, more=(), **kw):
    """The common shape: an s32 input and an output."""
    x, o = c.inp("in", "s32", n_in, init or randint(1, 9, 501)), c.out("out", "s32", n_out)
    c.launch(c.only, grid, block, [x, o, *more], **kw)
    return c


R = "bad_race_shared"


@register
def bad_no_barrier():
    return two(broken(R, "no_barrier", "race.shared", ops=["st.shared", "ld.shared"], note="__syncthreads is missing between the write and the mirrored read"), 128, 128, 128)


@register
def bad_write_write():
    return two(broken(R, "write_write", "race.shared", ops=["st.shared"], note="four warps store different values to the same words"), 128, 128, 128, init=iota(1, 1))


@register
def bad_loop_reuse():
    c = broken(R, "loop_reuse", "race.shared", ops=["st.shared", "ld.shared"], note="a second barrier is missing at the end of the loop body")
    return two(c, 64 * 5, 64, 64, more=[i32("n", 5)])


@register
def bad_no_syncwarp():
    return two(broken(R, "no_syncwarp", "race.shared", ops=["st.shared", "ld.shared"], note="lanes of one warp exchange without __syncwarp"), 32, 32, 32)


@register
def bad_named_wrong_id():
    return two(broken(R, "named_wrong_id", "race.shared", ops=["st.shared", "ld.shared"], note="the warps synchronise on different named barriers"), 64, 64, 64)


G = "bad_race_global"


@register
def bad_blocks_overlap():
    c = broken(G, "blocks_overlap", "race.global", ops=["st.global"], buffer="out", byte_offset=240, note="elements 60..63 of each tile are stored by two blocks")
    return two(c, 244, 244, 64, grid=4, more=[i32("n", 244)])


@register
def bad_in_place_shift():
    c = broken(G, "in_place_shift", "race.global", ops=["ld.global", "st.global"], note="a neighbour's element is read while it is overwritten")
    c.launch("in_place_shift", 2, 64, [c.inout("x", "s32", 128, iota(0, 1)), i32("n", 128)])
    return c


@register
def bad_flag_without_fence():
    c = broken(G, "flag_without_fence", "race.global", also=["race.scope"], ops=["ld.global", "st.global"], buffer="data", byte_offset=0,
               note="the volatile flag orders nothing without fences")
    c.launch("flag_without_fence", 2, 32, [c.scratch("data", "s32", 1), c.scratch("flag", "s32", 1), c.out("out", "s32", 1)])
    return c


@register
def bad_lost_update():
    c = broken(G, "lost_update", "race.global", ops=["ld.global", "st.global"], buffer="counter", byte_offset=0)
    c.launch("lost_update", 2, 32, [c.inout("counter", "s32", 1, zero())])
    return c


@register
def bad_plain_and_atomic():
    c = broken(G, "plain_and_atomic", "race.global", ops=["ld.global", "atom.global", "red.global"], buffer="counter", byte_offset=0,
               note="thread 40 reads plainly what others update atomically")
    c.launch("plain_and_atomic", 1, 64, [c.inout("counter", "s32", 1, zero()), c.out("out", "s32", 1)])
    return c


@register
def bad_cta_release():
    c = broken("bad_race_scope", "cta_release", "race.scope", also=["race.global"], ops=["st.release.cta", "ld.acquire.cta"], buffer="data", byte_offset=0)
    c.launch("cta_release", 2, 32, [c.scratch("data", "s32", 1), c.scratch("flag", "s32", 1), c.out("out", "s32", 1)])
    return c


@register
def bad_block_fence():
    c = broken("bad_race_scope", "block_fence", "race.scope", also=["race.global"], ops=["membar.cta", "fence"], buffer="data", byte_offset=0)
    c.launch("block_fence", 2, 32, [c.scratch("data", "s32", 1), c.scratch("flag", "s32", 1), c.out("out", "s32", 1)])
    return c


A = "bad_race_async"


@register
def bad_no_wait():
    return two(broken(A, "no_wait", "race.async", also=["uninit.shared"], ops=["cp.async", "ld.shared"], note="no wait_group before the read"), 128, 128, 32)


@register
def bad_wait_too_few():
    return two(broken(A, "wait_too_few", "race.async", also=["uninit.shared"], ops=["cp.async", "ld.shared"], note="wait_group 1 leaves the second copy in flight"), 256, 32, 32)


@register
def bad_wait_no_barrier():
    return two(broken(A, "wait_no_barrier", "race.async", also=["race.shared", "uninit.shared"], ops=["cp.async", "ld.shared"],
                      note="each thread waits for its own copy and reads another's"), 256, 64, 64)


B = "bad_race_bulk"


@register
def bad_wrong_parity():
    return two(broken(B, "wrong_parity", "race.async", target=90, also=["uninit.shared", "deadlock"], ops=["cp.async.bulk", "ld.shared"],
                      note="parity 1 is true before phase 0 completes, and never after it"),
               64, 64, 64)


def only_out(c, n, block):
    c.launch(c.only, 1, block, [c.out("out", "s32", n)])
    return c


@register
def bad_store_reuse():
    return only_out(broken(B, "store_reuse", "race.async", target=90, ops=["cp.async.bulk", "st.shared"], note="wait_group.read is missing before the buffer is refilled"), 128, 64)


@register
def bad_no_proxy_fence():
    return only_out(broken(B, "no_proxy_fence", "race.proxy", target=90, ops=["cp.async.bulk", "st.shared"]), 64, 64)


@register
def bad_fence_too_late():
    return only_out(broken(B, "fence_too_late", "race.proxy", target=90, ops=["cp.async.bulk", "st.shared"], note="fence.proxy.async stands before the stores"), 64, 64)


def wgmma(entry, cls, **kw):
    c = broken("bad_wgmma", entry, cls, target="90a", **kw)
    a, b, o = c.inp("a", "u32", 512, fill("0x3f803f80")), c.inp("b", "u32", 64, fill("0x3f803f80")), c.out("c", "f32", 512)
    c.launch(entry, 1, 128, [a, b, o])
    return c


@register
def bad_read_early():
    return wgmma("read_early", "async.register", also=["race.async"], ops=["wgmma.mma_async", "add.f32"], note="accumulators are read before wait_group")


@register
def bad_overwrite_early():
    return wgmma("overwrite_early", "race.async", ops=["wgmma.mma_async", "st.shared"], note="the A tile is overwritten before wait_group")


@register
def bad_no_fence():
    return wgmma("no_fence", "race.proxy", ops=["wgmma.mma_async", "st.shared"], note="no fence.proxy.async between the stores and wgmma")


@register
def bad_global_read():
    c = broken("bad_oob", "global_read", "oob.global", ops=["ld.global"], buffer="in", byte_offset=400, thread=[36, 0, 0], block=[1, 0, 0])
    return two(c, 100, 101, 64, grid=2, more=[i32("n", 100)])


@register
def bad_global_write():
    c = broken("bad_oob", "global_write", "oob.global", ops=["st.global"], buffer="out", byte_offset=-4, thread=[0, 0, 0], block=[0, 0, 0])
    c.launch("global_write", 1, 32, [c.out("out", "s32", 31), i32("n", 5)])
    return c


@register
def bad_global_vector():
    c = broken("bad_oob", "global_vector", "oob.global", ops=["ld.global.v4", "st.global.v4"], buffer="in", byte_offset=304, thread=[19, 0, 0], block=[0, 0, 0],
               note="78 floats are not a whole number of float4")
    x, o = c.inp("in", "f32", 78, uniform(0, 1, 502)), c.out("out", "f32", 80)
    c.launch("global_vector", 1, 32, [x, o, i32("n4", 20)])
    return c


@register
def bad_global_atomic():
    c = broken("bad_oob", "global_atomic", "oob.global", ops=["atom.global", "red.global"], buffer="hist", byte_offset=1020, thread=[21, 0, 0], block=[0, 0, 0])
    x = c.inp("in", "u8", 150, concat((53, randint(0, 199, 503)), (1, fill(255)), (96, randint(0, 199, 504))))
    c.launch("global_atomic", 1, 32, [x, c.inout("hist", "u32", 200, zero()), i32("n", 150)])
    return c


@register
def bad_wild():
    c = broken("bad_oob", "wild", "oob.global", also=["misaligned"], ops=["ld.global.u32"], block=[0, 0, 0], note="the pointer table holds no addresses")
    t = c.inp("table", "u64", 32, concat((3, zero()), (1, fill(64)), (28, zero())))
    c.launch("wild", 1, 32, [t, c.out("out", "s32", 32)])
    return c


@register
def bad_shared_static():
    c = broken("bad_oob", "shared_static", "oob.shared", ops=["ld.shared"], thread=[31, 0, 0], block=[0, 0, 0], note="s[32] of 32")
    return two(c, 32, 32, 32, more=[i32("k", 1)])


@register
def bad_shared_dynamic():
    c = broken("bad_oob", "shared_dynamic", "oob.shared", ops=["st.shared"], thread=[24, 0, 0], block=[0, 0, 0], note="192 bytes were given, 256 are used")
    return two(c, 32, 32, 32, smem=192)


@register
def bad_local_index():
    c = broken("bad_oob", "local_index", "oob.local", ops=["st.local"], thread=[5, 0, 0], block=[0, 0, 0], note="a[900] of 8")
    return two(c, 40, 32, 32, init=concat((8, iota(1, 1)), (5, zero()), (1, fill(900)), (26, fill(7))))


@register
def bad_bulk_past_end():
    c = broken("bad_oob_bulk", "bulk_past_end", "oob.global", target=90, ops=["cp.async.bulk"], buffer="in", thread=[0, 0, 0], block=[0, 0, 0],
               note="256 bytes are copied from a buffer of 240")
    return two(c, 60, 64, 64)


@register
def bad_early_exit():
    c = broken("bad_oob_bulk", "early_exit", "lifetime.dsmem", target=90, ops=["ld.shared::cluster"], note="block 1 of the cluster may have exited: a cluster barrier is missing")
    c.launch("early_exit", 2, 32, [c.out("out", "s32", 32)], cluster=(2, 1, 1))
    return c


@register
def bad_shared_tail():
    c = broken("bad_uninit", "shared_tail", "uninit.shared", ops=["ld.shared"], thread=[50, 0, 0], block=[0, 0, 0])
    return two(c, 64, 64, 64, more=[i32("n", 50)])


@register
def bad_global_scratch():
    c = broken("bad_uninit", "global_scratch", "uninit.global", ops=["ld.global"], buffer="acc")
    c.launch("global_scratch", 2, 32, [c.scratch("acc", "f32", 50, uninit()), c.out("out", "f32", 50), i32("n", 50)])
    return c


@register
def bad_global_hole():
    c = broken("bad_uninit", "global_hole", "uninit.global", ops=["ld.global"], buffer="tmp", byte_offset=68, thread=[16, 0, 0], block=[0, 0, 0])
    x, t, o = c.inp("in", "s32", 64, randint(1, 9, 505)), c.scratch("tmp", "s32", 64, uninit()), c.out("out", "s32", 64)
    c.launch("global_hole", 1, 64, [x, t, o])
    return c


@register
def bad_vector_global():
    c = broken("bad_misaligned", "vector_global", "misaligned", ops=["ld.global.v4"], buffer="in", byte_offset=4, thread=[0, 0, 0], block=[0, 0, 0])
    c.launch("vector_global", 1, 32, [c.inp("in", "f32", 132, uniform(0, 1, 506)), c.out("out", "f32", 128)])
    return c


@register
def bad_word_shared():
    c = broken("bad_misaligned", "word_shared", "misaligned", ops=["ld.shared"], thread=[9, 0, 0], block=[0, 0, 0])
    c.launch("word_shared", 1, 32, [c.inp("in", "s8", 136, bits(507)), c.out("out", "s32", 32)])
    return c


@register
def bad_atomic_global():
    c = broken("bad_misaligned", "atomic_global", "misaligned", ops=["atom.global", "red.global"], buffer="p", byte_offset=4, thread=[0, 0, 0], block=[0, 0, 0])
    c.launch("atomic_global", 1, 32, [c.inout("p", "u8", 272, zero())])
    return c


@register
def bad_in_branch():
    c = broken("bad_barrier", "in_branch", "barrier.divergence", also=["race.shared"], ops=["bar.sync"], note="the two halves of each warp stand at different bar.sync instructions")
    return two(c, 64, 64, 64)


@register
def bad_in_loop():
    c = broken("bad_barrier", "in_loop", "barrier.divergence", also=["race.shared", "deadlock", "uninit.shared"], ops=["bar.sync"], note="lanes leave the loop at different iterations")
    return two(c, 64, 64, 64, init=concat((7, fill(3)), (57, fill(2))))


@register
def bad_half_a_warp():
    c = broken("bad_barrier", "half_a_warp", "barrier.divergence", also=["race.shared"], ops=["bar.sync"], note="lanes 16..31 of warp 1 skip the barrier that the others execute")
    return two(c, 64, 64, 64)


@register
def bad_full_mask_in_branch():
    return two(broken("bad_mask", "full_mask_in_branch", "sync.mask", also=["deadlock"], ops=["shfl.sync"], note="lanes 16..31 are named but return without executing it"), 32, 32, 32)


@register
def bad_not_in_mask():
    return two(broken("bad_mask", "not_in_mask", "sync.mask", ops=["vote.sync"], note="lanes 16..31 call with a mask that does not name them"), 32, 32, 32)


@register
def bad_exited_source():
    return two(broken("bad_mask", "exited_source", "sync.mask", ops=["shfl.sync"], note="lanes 24..31 have returned"), 32, 32, 32)


@register
def bad_named_count():
    c = broken("bad_deadlock", "named_count", "deadlock", ops=["bar.sync"], note="barrier 1 awaits 96 threads and 64 can come")
    c.launch("named_count", 1, 64, [c.out("out", "s32", 64)])
    return c


@register
def bad_missing_bytes():
    return two(broken("bad_deadlock", "missing_bytes", "deadlock", target=90, ops=["mbarrier.try_wait"], note="512 bytes are expected, 256 arrive"), 64, 128, 128)


@register
def bad_flag_never():
    c = broken("bad_deadlock", "flag_never", "deadlock", ops=["ld.volatile"], note="each block waits for the other's flag first")
    c.launch("flag_never", 2, 32, [c.inout("flag", "s32", 2, zero()), c.out("out", "s32", 2)])
    return c


@register
def bad_two_locks():
    c = broken("bad_deadlock", "two_locks", "deadlock", ops=["atom"], note="block 0 holds lock 0 and wants 1, block 1 the reverse")
    c.launch("two_locks", 2, 32, [c.inout("lock", "s32", 2, zero()), c.inout("both", "s32", 2, zero())])
    return c


@register
def bad_greedy():
    c = broken("bad_setmaxnreg", "greedy", "deadlock", target="90a", ops=["setmaxnreg"], note="three warpgroups raise themselves to 240 registers a thread; the block owns fewer")
    c.launch("greedy", 1, 384, [c.out("out", "s32", 384)])
    return c
