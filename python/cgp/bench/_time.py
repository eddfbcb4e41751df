# SPDX-License-Identifier: Apache-2.0
"""How contenders of a row are measured: in turns, after L2 was filled with other data."""
import time

import torch

from ._stats import summary

_flush = []
# Cycles that the device waits before each measurement, so that what the host does to queue the work is over before it begins:
# times by events are the device's.
_AHEAD = 4_000_000


def cold():
    """Fills L2 (of up to 128 MB) with something else."""
    if not _flush:
        _flush.append(torch.empty(128 << 18, dtype=torch.int32, device="cuda"))
    _flush[0].zero_()


def by_events(contenders, rounds, seconds):
    """{name: callable} -> {name: {"ms", "spread", "rounds", "peak_mb"} or {"error"}}, by CUDA events, one call each; peak_mb: what a
    call allocates, with its results."""
    times, alive, peaks = {}, {}, {}
    for name, f in contenders.items():
        try:
            f()
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            held = torch.cuda.memory_allocated()
            f()
            torch.cuda.synchronize()
            alive[name], times[name], peaks[name] = f, [], (torch.cuda.max_memory_allocated() - held) / 2**20
        except Exception as e:  # a peer that cannot do it is said so, and the others go on
            times[name] = f"{type(e).__name__}: {str(e).strip().splitlines()[0] if str(e).strip() else ''}"[:200]
    end = time.monotonic() + seconds
    for i in range(rounds):
        if i >= 3 and time.monotonic() > end:
            break
        for name, f in alive.items():
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            cold()
            torch.cuda._sleep(_AHEAD)
            start.record()
            f()
            stop.record()
            stop.synchronize()
            times[name].append(start.elapsed_time(stop))
    return {n: summary(t) | {"peak_mb": peaks[n]} if isinstance(t, list) else {"error": t} for n, t in times.items()}


def by_clock(contenders, rounds, seconds):
    """The same for what the host takes part in: from the call until the device is done."""
    times, end = {}, None
    for name, f in contenders.items():
        try:
            f()
            torch.cuda.synchronize()
            times[name] = []
        except Exception as e:
            times[name] = f"{type(e).__name__}: {str(e).strip().splitlines()[0] if str(e).strip() else ''}"[:200]
    end = time.monotonic() + seconds
    for i in range(rounds):
        if i >= 1 and time.monotonic() > end:
            break
        for name, f in contenders.items():
            if isinstance(times[name], list):
                torch.cuda.synchronize()
                start = time.perf_counter()
                f()
                torch.cuda.synchronize()
                times[name].append((time.perf_counter() - start) * 1e3)
    return {n: summary(t) if isinstance(t, list) else {"error": t} for n, t in times.items()}
