# SPDX-License-Identifier: Apache-2.0
"""Data behind flags that relaxed accesses poll, and grids that meet, beside twins without the fence or the room."""
import functools

import numpy as np

from corpus_lib import *

flag = functools.partial(twins, "flags.cu")
LOADS = ["ld.global"]
ROW = np.arange(64) * 3 + 1


def row_behind_flag(c, entry, right):
    f, row, o = c.scratch("flag", "s32", 1, zero()), c.scratch("row", "s32", 64), c.out("out", "s32", 2 * 64)
    if right:
        o.expect(np.concatenate([ROW, ROW]))
    c.launch(entry, 3, 64, [f, row, o])


flag("each_polls_good", {"each_polls_unfenced": dict(cls="race.global", ops=LOADS, buffer="row")})(row_behind_flag)
flag("one_polls_good", {s: dict(cls="race.flag", ops=LOADS, buffer="row") for s in ("one_polls_unfenced", "one_loads_unfenced")})(row_behind_flag)
flag("lane_polls_good", {"lane_polls_unfenced": dict(cls="race.flag", ops=LOADS, buffer="row")})(row_behind_flag)


@flag("last_adds_good", {"last_adds_unfenced": dict(cls="race.flag", ops=LOADS, buffer="part")})
def last_adds(c, entry, right):
    x, part = c.inp("in", "s32", 4 * 64, randint(-99, 99, 4001)), c.scratch("part", "s32", 4 * 64)
    count, o = c.scratch("count", "s32", 1, zero()), c.out("out", "s32", 64)
    if right:
        o.expect(2 * x.data.reshape(4, 64).sum(0))
    c.launch(entry, 4, 64, [x, part, count, o])


def meeting(name, blocks):
    def build():
        c = Case(name, target=90, src="flags.cu")
        c.only = "meets_and_counts"
        o = c.out("out", "s32", blocks)
        if name.startswith("bad_"):
            c.broken("deadlock", ops=["ld.volatile"], note="132 blocks fit")
        else:
            o.expect((np.arange(blocks) + 1) % blocks + 5)
        c.launch(c.only, blocks, 1, [c.scratch("count", "u32", 1, zero()), c.scratch("row", "s32", blocks), o], smem=200 * 1024)
        return c
    build.__name__ = name
    case(build)


meeting("all_meet", 132)
meeting("bad_one_finds_no_room", 133)
