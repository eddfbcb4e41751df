# SPDX-License-Identifier: Apache-2.0
"""Steps of optimizers over tables of tensors: what NumPy arrays and PyTorch's tensors on the CPU share, on a device of ours."""
import ctypes
import struct

from . import _core
from ._runtime import CODES, ArgumentError, numpy_device

RULES = {name: code for code, name in enumerate(("adamw", "adam", "sgd", "nesterov", "lion", "descent"))}
STATES = {"adamw": 2, "adam": 2, "sgd": 1, "nesterov": 1, "lion": 1, "descent": 0}
ROW, GROUP, RATES, CONTROL = 8, 6, 12, 8  # words
SCALE, NORM, FOUND = 4, 6, 7  # of the control block, f32
SIZES = {"uint32": 4, "float32": 4, "uint64": 8, "float64": 8}
FLOATS = (CODES["float32"], CODES["float16"], CODES["bfloat16"])


def group_words(lr, beta1, beta2, eps, weight_decay, maximize, who):
    """A row of the groups. Numbers that are none of a rule's are 0."""
    for name, value, end in (("lr", lr, None), ("beta1", beta1, 1), ("beta2", beta2, 1), ("eps", eps, None),
                             ("weight_decay", weight_decay, None)):
        if not (value >= 0 and (end is None or value < end)):
            raise ArgumentError(f"{who}: {name} must be at least 0{' and below 1' if end else ''}; it is {value}")
    return (float(lr), float(beta1), float(beta2), float(eps), float(weight_decay), float(bool(maximize)))


def chunks_of(lengths, counts):
    """For each bucket of `counts` rows, its (row, chunk) pairs as bytes."""
    out, first = [], 0
    for count in counts:
        out.append(_core.optimizer_chunks([0] * first + lengths[first:first + count]))
        first += count
    return out


class HostStep:
    """Copies of arrays on the host, on the device for one step; finish() copies back what was written."""

    def __init__(self, device):
        self.device, self.blocks = device, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for address, *_ in self.blocks:
            _core.free(self.device._handle, address)
        return False

    def put(self, pointer, size, written=True):
        """The device's address of `size` bytes at `pointer`."""
        if not size:
            return 0
        address = _core.alloc(self.device._handle, size)
        self.blocks.append((address, pointer, size, written))
        _core.upload(self.device._handle, address, pointer, size)
        return address

    def words(self, data, dtype, count=None):
        """A vector on the device: `count` words at the address `data`, which are written, or a copy of bytes."""
        size = SIZES[dtype]
        if count is None:
            held, count = ctypes.create_string_buffer(data, max(len(data), 1)), len(data) // size
            address = self.put(ctypes.addressof(held), len(data), False)
        else:
            address = self.put(data, size * count)
        return address, CODES[dtype], (count,), (1,)

    def finish(self):
        _core.stream_wait(self.device.stream())
        for address, pointer, size, written in self.blocks:
            if written:
                _core.download(self.device._handle, address, pointer, size)


def step_on_host(device, buckets, groups, control, max_norm=0.0, checks=False, use_found=False):
    """A step of arrays on the host. buckets: [(rule, weight code, gradient code, master, stochastic, 8-bit states, seed, rows)], where a
    row is ((pointer, bytes) of weight, gradient, master or scales, first, second and step, elements, group, number of the tensor); None:
    not there.
    control: the address of the control block on the host, which is written."""
    with HostStep(device) as host:
        rows = [row for bucket in buckets for row in bucket[-1]]
        table = host.words(b"".join(struct.pack("<7Q2I", *(host.put(*m) if m else 0 for m in memory), elements, group, number)
                                    for memory, elements, group, number in rows), "uint64")
        groups = host.words(struct.pack(f"<{GROUP * len(groups)}d", *(x for g in groups for x in g)), "float64")
        control = host.words(control, "uint32", CONTROL)
        rates = host.words(bytes(4 * RATES * len(rows)), "float32")
        chunks = [host.words(c, "uint32") for c in chunks_of([row[1] for row in rows], [len(b[-1]) for b in buckets])]
        partial = host.words(bytes(4 * sum(c[2][0] // 2 for c in chunks)), "float32")
        stream, first = device.stream(), 0
        for bucket, own in zip(buckets, chunks):
            count = own[2][0] // 2
            if checks and count:
                _core.optimizer_norm(stream, bucket[2], table, own, (partial[0] + 4 * first, partial[1], (count,), (1,)))
            first += count
        _core.optimizer_control(stream, RULES[buckets[0][0]], max_norm, int(use_found), 0, table, groups, control, rates,
                                partial if checks and first else None)
        for (rule, weight, gradient, master, stochastic, states8, seed, _), own in zip(buckets, chunks):
            _core.optimizer_update(stream, RULES[rule], weight, gradient, int(master), int(stochastic), int(states8), seed, table, own, rates,
                                   control)
        host.finish()


def clip_on_host(device, code, gradients, max_norm, control):
    """Clips [(pointer, bytes, elements)] of one type in place."""
    with HostStep(device) as host:
        rows = b"".join(struct.pack("<8Q", 0, host.put(p, size), 0, 0, 0, 0, n, 0) for p, size, n in gradients)
        table = host.words(rows, "uint64")
        chunks = _core.optimizer_chunks([n for *_, n in gradients])
        partial = host.words(bytes(len(chunks) // 2), "float32")
        control = host.words(control, "uint32", CONTROL)
        if chunks:
            chunks = host.words(chunks, "uint32")
            _core.optimizer_norm(device.stream(), code, table, chunks, partial)
            _core.optimizer_control(device.stream(), 0, max_norm, 0, 1, None, None, control, None, partial)
            _core.optimizer_clip(device.stream(), code, table, chunks, control)
        host.finish()


def optimizer_step(weights, gradients, state=None, *, rule="adamw", lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0,
                   momentum=0.9, max_norm=0.0, maximize=False):
    """One step of an optimizer for all arrays of a model, in place, in one launch.

    weights: [...] each, NumPy arrays of float32, float16 or bfloat16 (ml_dtypes), in a list; gradients: [...] of the same shapes,
    float32 or of the weight's type. rule: "adamw", "adam", "sgd" (with momentum), "nesterov", "lion" or "descent". Returns the
    state, which the next step takes: {"step", "first", "second"}, the moments as float32 arrays. With max_norm gradients are
    clipped by the norm of all together, and a step whose gradients hold NaN or Inf is left out. With PyTorch: cgp.optim.

    >>> w, g = np.ones(3, np.float32), np.ones(3, np.float32)
    >>> state = cgp.optimizer_step([w], [g], rule="descent", lr=0.5)
    >>> w
    array([0.5, 0.5, 0.5], dtype=float32)

    Raises: ArgumentError for arrays that do not fit, rules and numbers that are none.
    """
    import numpy as np
    who = "cgp.optimizer_step"
    if rule not in RULES:
        raise ArgumentError(f"{who}: rule is {rule!r}; there are {', '.join(RULES)}")
    if len(weights) != len(gradients):
        raise ArgumentError(f"{who}: there are {len(weights)} weights and {len(gradients)} gradients")
    if not max_norm >= 0:
        raise ArgumentError(f"{who}: max_norm must be at least 0; it is {max_norm}")
    codes = {}
    for i, (w, g) in enumerate(zip(weights, gradients)):
        for name, x in (("weights", w), ("gradients", g)):
            if not isinstance(x, np.ndarray) or CODES.get(x.dtype.name) not in FLOATS or not x.flags.c_contiguous:
                raise ArgumentError(f"{who}: {name}[{i}] must be a contiguous NumPy array of float32, float16 or bfloat16")
        if w.shape != g.shape:
            raise ArgumentError(f"{who}: weights[{i}] is {w.shape}, its gradient {g.shape}")
        if not w.flags.writeable:
            raise ArgumentError(f"{who}: weights[{i}] is read-only")
        codes.setdefault((CODES[w.dtype.name], CODES[g.dtype.name]), []).append(i)
    n = STATES[rule]
    if state is None:
        state = {"step": np.zeros(len(weights), np.float32), "first": [np.zeros(w.shape, np.float32) for w in weights if n > 0],
                 "second": [np.zeros(w.shape, np.float32) for w in weights if n > 1]}
    for name, count in (("first", n > 0), ("second", n > 1)):
        shapes = [w.shape for w in weights] if count else []
        if [x.shape for x in state[name]] != shapes or any(x.dtype != np.float32 for x in state[name]):
            raise ArgumentError(f"{who}: the state's {name!r} is not that of these weights and this rule")
    beta1, beta2 = (betas[0], betas[1]) if rule in ("adamw", "adam", "lion") else (momentum if n else 0.0, 0.0)
    group = group_words(lr, beta1, beta2, eps, weight_decay, maximize, who)

    def memory(x):
        return x.ctypes.data, x.nbytes

    control = np.zeros(CONTROL, np.uint32)
    control.view(np.float32)[SCALE] = 1
    buckets = [(rule, w, g, False, False, False, 0,
                [((memory(weights[i]), memory(gradients[i]), None, memory(state["first"][i]) if n > 0 else None,
                   memory(state["second"][i]) if n > 1 else None, (state["step"].ctypes.data + 4 * i, 4)), weights[i].size, 0, i)
                 for i in of]) for (w, g), of in codes.items()]
    if buckets:
        step_on_host(numpy_device(), buckets, [group], control.ctypes.data, max_norm, max_norm > 0)
    return state
