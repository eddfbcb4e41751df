# SPDX-License-Identifier: Apache-2.0
"""The functions of the module: NumPy arrays here, PyTorch tensors by the operators of cgp.ops."""
import builtins

from . import _core
from ._runtime import ArgumentError, OnDevice

ACTIVATIONS = {None: 0, "relu": 1, "silu": 2, "gelu": 3, "gelu_tanh": 4}
PRECISIONS = {"standard": 0, "fast": 1, "strict": 2}


def is_torch(x):
    return type(x).__module__.partition(".")[0] == "torch"


def choice(table, value, what):
    if value not in table:
        raise ArgumentError(f"{what} must be one of {', '.join(repr(v) for v in table)}, not {value!r}")
    return table[value]


def matmul(a, b, bias=None, *, activation=None, alpha=1.0, precision="standard"):
    """activation(alpha * a @ b + bias).

    a: [..., m, k]; b: [k, n], or [..., k, n] with the leading dimensions of a; bias: [n]. float32, float16 or
    bfloat16, sums in float32. activation: None, "relu", "silu", "gelu", "gelu_tanh".

    >>> cgp.matmul(np.eye(2, dtype=np.float32), np.array([[1, 2], [3, 4]], np.float32), activation="relu")
    array([[1., 2.],
           [3., 4.]], dtype=float32)
    """
    act, prec = choice(ACTIVATIONS, activation, "activation"), choice(PRECISIONS, precision, "precision")
    if is_torch(a):
        from . import ops
        return ops.matmul(a, b, bias, activation or "", float(alpha), precision)
    import numpy as np
    a, b = np.asarray(a), np.asarray(b)
    if a.ndim < 2 or b.ndim < 2:
        raise ArgumentError(f"matmul: a and b must have at least 2 dimensions, not {a.ndim} and {b.ndim}")
    with OnDevice() as on:
        c, result = on.empty(a.shape[:-1] + b.shape[-1:], a.dtype)
        _core.gemm(on.device.stream(), on.put(a), on.put(b), c, alpha, 0.0, prec, act, 0, 0, on.put(bias), None, None,
                   None)
        return result()


def attention(q, k, v, *, causal=False, scale=None, window=None, soft_cap=0.0, slopes=None, mask=None):
    """softmax(q k^T * scale + ...) v, without the matrix of scores in memory.

    q: [batch, heads, n_q, d]; k, v: [batch, heads_kv, n_kv, d] with heads a multiple of heads_kv. causal: the last
    query is aligned with the last key. window: (left, right) keys beside its own that a query sees, None for no
    limit. soft_cap: scores become c * tanh(score / c). slopes: ALiBi, float32 [heads]. mask: [batch or 1, heads or 1,
    n_q or 1, n_kv], added to the scores, or bool: False hides. Rows that see nothing are 0.

    >>> q = np.ones((1, 1, 3, 8), np.float32)
    >>> cgp.attention(q, q, q, causal=True).shape
    (1, 1, 3, 8)
    """
    left, right = (0 if w is None else w + 1 for w in (window or (None, None)))
    if is_torch(q):
        from . import ops
        return ops.attention(q, k, v, causal, float(scale or 0), left, right, float(soft_cap), slopes, mask)[0]
    import numpy as np
    q, k, v = (np.asarray(x) for x in (q, k, v))
    if builtins.any(x.ndim != 4 for x in (q, k, v)):
        raise ArgumentError("attention: q, k and v must have 4 dimensions: [batch, heads, n, d]")
    with OnDevice() as on:
        o, result = on.empty(q.shape[:3] + v.shape[3:], q.dtype)
        _core.attention(on.device.stream(), on.put(q), on.put(k), on.put(v), o, None, float(scale or 0), int(causal), left,
                        right, float(soft_cap), on.put(slopes), on.put(mask), None)
        return result()


def softmax(x):
    """Softmax over the last dimension; float32, float16 or bfloat16, float32 inside.

    >>> cgp.softmax(np.zeros((1, 2), np.float32))
    array([[0.5, 0.5]], dtype=float32)
    """
    if is_torch(x):
        from . import ops
        return ops.softmax(x)
    import numpy as np
    x = np.asarray(x)
    with OnDevice() as on:
        y, result = on.empty(x.shape, x.dtype)
        _core.softmax(on.device.stream(), on.put(x), y)
        return result()


def _reduce(op, x, dim):
    if is_torch(x):
        from . import ops
        return (ops.max if op else ops.sum)(x, dim)
    import numpy as np
    x = np.asarray(x)
    if not -x.ndim <= dim < x.ndim:
        raise ArgumentError(f"dim = {dim} is not a dimension of an array with {x.ndim}")
    shape = list(x.shape)
    del shape[dim]
    with OnDevice() as on:
        y, result = on.empty(tuple(shape), x.dtype)
        _core.reduce(on.device.stream(), op, dim, on.put(x), y)
        return result()


def sum(x, dim=-1):
    """Sum over one dimension, in float32, rounded once.

    >>> cgp.sum(np.ones((2, 3), np.float32))
    array([3., 3.], dtype=float32)
    """
    return _reduce(0, x, dim)


def max(x, dim=-1):
    """Maximum over one dimension; NaN wins."""
    return _reduce(1, x, dim)


def transpose(x):
    """The last two dimensions exchanged, as a new contiguous array."""
    if is_torch(x):
        from . import ops
        return ops.transpose(x)
    import numpy as np
    x = np.asarray(x)
    if x.ndim < 2:
        raise ArgumentError(f"transpose: x must have at least 2 dimensions, not {x.ndim}")
    with OnDevice() as on:
        y, result = on.empty(x.shape[:-2] + (x.shape[-1], x.shape[-2]), x.dtype)
        _core.transpose(on.device.stream(), on.put(x), y)
        return result()


def add(x, y):
    """x + y, of one shape and type.

    >>> cgp.add(np.ones(2, np.float32), np.ones(2, np.float32))
    array([2., 2.], dtype=float32)
    """
    if is_torch(x):
        from . import ops
        return ops.add(x, y)
    import numpy as np
    x, y = np.asarray(x), np.asarray(y)
    with OnDevice() as on:
        z, result = on.empty(x.shape, x.dtype)
        _core.add(on.device.stream(), on.put(x), on.put(y), z)
        return result()
