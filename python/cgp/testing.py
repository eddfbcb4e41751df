# SPDX-License-Identifier: Apache-2.0
"""Gradients against finite differences, for functions of NumPy arrays."""
import numpy as np

from ._runtime import ArgumentError


def check_gradient(f, inputs, d_outputs, gradients, *, places=64, step=1e-5, tolerance=1e-4, seed=0):
    """The largest difference of gradients from central differences of sum(f(*inputs) * d_outputs), at `places` elements of each input
    (all, where it has no more; chosen by `seed`). Above tolerance * max(1, |gradient|) it is an AssertionError that names where.

    f: a function of the inputs, taken in float64, that gives an array or several; d_outputs: of their shapes [...]; gradients: one
    array [...] of the shape of each input, or None for those that are not looked at. A function that works in float32 needs a larger
    step, of some 1e-2, and tolerance.

    >>> x = np.array([[1.0, 2.0, 4.0]])
    >>> y = cgp.softmax(x.astype(np.float32)).astype(float)
    >>> e = lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    >>> cgp.testing.check_gradient(e, [x], x, [y * (x - (x * y).sum())]) < 1e-4
    True
    """
    inputs = [np.array(x, np.float64) for x in inputs]
    if len(gradients) != len(inputs):
        raise ArgumentError(f"check_gradient: there are {len(inputs)} inputs and {len(gradients)} gradients")
    several = isinstance(d_outputs, (tuple, list))
    d_outputs = [np.asarray(d, np.float64) for d in (d_outputs if several else [d_outputs])]

    def value():
        out = f(*inputs)
        out = out if isinstance(out, (tuple, list)) else (out,)
        if [np.shape(o) for o in out] != [d.shape for d in d_outputs]:
            raise ArgumentError(f"check_gradient: d_outputs have shapes {[d.shape for d in d_outputs]}, what f gives "
                                f"{[np.shape(o) for o in out]}")
        return sum((np.asarray(o, np.float64) * d).sum() for o, d in zip(out, d_outputs))

    rng, worst = np.random.default_rng(seed), 0.0
    for which, (x, gradient) in enumerate(zip(inputs, gradients)):
        if gradient is None:
            continue
        if np.shape(gradient) != x.shape:
            raise ArgumentError(f"check_gradient: gradient {which} is {list(np.shape(gradient))}, its input {list(x.shape)}")
        at = range(x.size) if x.size <= places else rng.choice(x.size, places, replace=False)
        for place in at:
            i = np.unravel_index(int(place), x.shape)
            kept, ends = x[i], []
            for sign in (1, -1):
                x[i] = kept + sign * step
                ends.append(value())
            x[i] = kept
            got, want = float(np.asarray(gradient)[i]), float(ends[0] - ends[1]) / (2 * step)
            worst = max(worst, abs(got - want))
            if not abs(got - want) <= tolerance * max(1.0, abs(want)):
                raise AssertionError(f"gradient {which} at {tuple(map(int, i))} is {got:g}, finite differences say {want:g}")
    return worst
