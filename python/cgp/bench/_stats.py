# SPDX-License-Identifier: Apache-2.0
"""Numbers of a row: what several measurements of one contender say."""
import math


def quantile(values, q):
    """By linear interpolation between the sorted values."""
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    low = math.floor(place)
    return ordered[low] + (ordered[min(low + 1, len(ordered) - 1)] - ordered[low]) * (place - low)


def summary(values):
    """{"ms": median, "spread": half the interquartile range over it, "rounds": how many}"""
    middle = quantile(values, 0.5)
    return {"ms": middle, "spread": (quantile(values, 0.75) - quantile(values, 0.25)) / 2 / middle if middle else 0.0,
            "rounds": len(values)}


def ratio(row, ours):
    """The best peer's time over ours: above 1 we are faster. None without a peer."""
    times = row["times"]
    peers = [t["ms"] for name, t in times.items() if name not in row["own"] and "ms" in t]
    mine = times.get(ours, {}).get("ms")
    return min(peers) / mine if peers and mine else None


def geometric_mean(values):
    values = [v for v in values if v]
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None
