# SPDX-License-Identifier: Apache-2.0
"""The functions of the module: NumPy arrays here, PyTorch tensors by the operators of cgp.ops."""
import builtins
import functools

from . import _core
from ._options import ACTIVATIONS, ELEMENTWISE, PRECISIONS, ROPE_SCALINGS, check_rope, choice, fit_batches, integer
from ._quantized import QuantizedTensor, expect_plain, quantized_matmul
from ._runtime import ArgumentError, OnDevice, Unsupported
from ._score import score_formula


def is_torch(x):
    return type(x).__module__.partition(".")[0] == "torch"


def _window(window):
    """(left, right) as the C interface takes them: counts plus 1, 0 for no limit."""
    try:
        left, right = (None, None) if window is None else window
    except TypeError:
        raise ArgumentError(f"attention: window must be (left, right), not {window!r}") from None
    for name, n in (("left", left), ("right", right)):
        if n is not None and integer(n, f"attention: window's {name}") < 0:
            raise ArgumentError(f"attention: window's {name} must not be negative (None: no limit); it is {n}")
    return tuple(0 if n is None else n + 1 for n in (left, right))


def _like(x, call):
    """The result, of x's shape and type, of call(on, stream, x on the device, result)."""
    import numpy as np
    x = np.asarray(x)
    with OnDevice() as on:
        y, result = on.empty(x.shape, x.dtype)
        call(on, on.device.stream(), on.put(x), y)
        return result()


def matmul(a, b, bias=None, *, activation=None, alpha=1.0, precision="standard"):
    """activation(alpha * a @ b + bias).

    a: [..., m, k]; b: [k, n], or [..., k, n] with the leading dimensions of a (or 1); bias: [n]. float32, float16 or
    bfloat16, accumulated in float32; int8 gives int32. activation: None, "relu", "silu", "gelu", "gelu_tanh".
    b: a QuantizedTensor [n, k] gives a [..., k] times its transpose; bias, activation and alpha are not possible then.

    >>> cgp.matmul(np.eye(2, dtype=np.float32), np.array([[1, 2], [3, 4]], np.float32), activation="relu")
    array([[1., 2.],
           [3., 4.]], dtype=float32)

    Raises: ArgumentError for shapes that do not fit, mixed types, an activation or precision that there is not;
    Unsupported for a QuantizedTensor's bias, activation or alpha.
    """
    act, prec = choice(ACTIVATIONS, activation, "activation"), choice(PRECISIONS, precision, "precision")
    if isinstance(b, QuantizedTensor) and not is_torch(a):
        expect_plain(bias, activation, alpha)
        return quantized_matmul(a, b)
    if is_torch(a):
        from . import ops
        return ops.matmul(a, b, bias, activation or "", float(alpha), precision)
    import numpy as np
    a, b = np.asarray(a), np.asarray(b)
    if a.ndim < 2 or b.ndim < 2:
        raise ArgumentError(f"matmul: a and b must have at least 2 dimensions, not {a.ndim} and {b.ndim}")
    fit_batches(a.shape, b.shape)
    with OnDevice() as on:
        # Products of 8-bit integers do not fit into 8 bits.
        c, result = on.empty(a.shape[:-1] + b.shape[-1:], "int32" if a.dtype == np.int8 else a.dtype)
        _core.gemm(on.device.stream(), on.put(a), on.put(b), c, alpha, 0.0, prec, act, 0, 0, on.put(bias), None, None,
                   None, False)
        return result()


def attention(q, k, v, *, causal=False, scale=None, window=None, soft_cap=0.0, slopes=None, mask=None, score=None,
              score_data=None, key_lengths=None, cu_seqlens_q=None, cu_seqlens_kv=None, q_scale=None, k_scale=None,
              v_scale=None, promoted=False):
    """softmax(q k^T * scale + ...) v, without the matrix of scores in memory.

    q: [batch, heads, n_q, d]; k, v: [batch, heads_kv, n_kv, d] with heads a multiple of heads_kv. causal: the last
    query is aligned with the last key. window: (left, right): keys before and after a query's own that it sees,
    None for no limit. soft_cap: scores become c * tanh(score / c). slopes: ALiBi, float32 [heads]. mask: [batch or 1, heads or 1,
    n_q or 1, n_kv], added to the scores, or bool: False hides. score: a function (score, batch, head, query,
    key) that modifies a score, which may read score_data (float32) through one more argument, or score_formula's result for
    it. Queries that see no key give 0.

    key_lengths: int32 [batch], the keys of each sequence. cu_seqlens_q, cu_seqlens_kv: int32 [sequences + 1], for packed
    sequences of different lengths, q [rows, heads, d], k and v [rows, heads_kv, d]: the first row of each sequence and the end
    of the last. q, k and v of float8_e4m3fn give bfloat16; q_scale, k_scale, v_scale: dequantization scales (float32, one
    element or [batch, heads]; None: 1); promoted: partial sums over keys are added in float32 outside the tensor cores, whose
    accumulators keep 14 bits.

    >>> q = np.ones((1, 1, 3, 8), np.float32)
    >>> cgp.attention(q, q, q, causal=True).shape
    (1, 1, 3, 8)

    Raises: ArgumentError for shapes, types, masks or lengths that do not fit; Unsupported for combinations that no kernel
    has, naming them.
    """
    left, right = _window(window)
    if score is None and score_data is not None:
        raise ArgumentError("attention: score_data is there, and no score that reads it")
    if scale is not None and not scale > 0:
        raise ArgumentError(f"attention: scale must be positive, or None for 1 / sqrt(d); it is {scale}")
    if is_torch(q):
        from . import ops
        return ops.attention(q, k, v, causal, float(scale or 0), left, right, float(soft_cap), slopes, mask, score,
                             score_data, key_lengths, cu_seqlens_q, cu_seqlens_kv, 0, 0, q_scale, k_scale, v_scale, promoted)[0]
    import numpy as np
    q, k, v = (np.asarray(x) for x in (q, k, v))
    dims = "[batch, heads, n, d]" if cu_seqlens_q is None else "[rows, heads, d]"
    if builtins.any(x.ndim != dims.count(",") + 1 for x in (q, k, v)):
        raise ArgumentError(f"attention: q, k and v must have {dims.count(',') + 1} dimensions: {dims}")
    with OnDevice() as on:
        o, result = on.empty(q.shape[:-1] + v.shape[-1:], "bfloat16" if q.dtype.name == "float8_e4m3fn" else q.dtype)
        _core.attention(on.device.stream(), on.put(q), on.put(k), on.put(v), o, None, float(scale or 0), int(causal), left, right,
                        float(soft_cap), on.put(slopes), on.put(mask), on.put(key_lengths),
                        None if score is None else score_formula(score), on.put(score_data),
                        *map(on.put, (cu_seqlens_q, cu_seqlens_kv, q_scale, k_scale, v_scale)), 0, 0, promoted)
        return result()


def softmax(x):
    """Softmax over the last dimension; float32, float16 or bfloat16, float32 inside. x: [..., n] -> [..., n].

    >>> cgp.softmax(np.zeros((1, 2), np.float32))
    array([[0.5, 0.5]], dtype=float32)

    Raises: ArgumentError for a type that is not floating.
    """
    if is_torch(x):
        from . import ops
        return ops.softmax(x)
    return _like(x, lambda _, s, x, y: _core.softmax(s, x, y))


def _reduce(op, x, dim):
    if is_torch(x):
        from . import ops
        return (ops.max if op else ops.sum)(x, dim)
    import numpy as np
    x = np.asarray(x)
    name = "max" if op else "sum"
    if not -x.ndim <= integer(dim, f"{name}: dim") < x.ndim:
        raise ArgumentError(f"{name}: dim = {dim} is not a dimension of x, which has {x.ndim}")
    shape = list(x.shape)
    del shape[dim]
    with OnDevice() as on:
        y, result = on.empty(tuple(shape), x.dtype)
        _core.reduce(on.device.stream(), op, dim, on.put(x), y)
        return result()


def sum(x, dim=-1):
    """Sum over one dimension, in float32, rounded once. x: [..., n, ...] -> [..., ...].

    >>> cgp.sum(np.ones((2, 3), np.float32))
    array([3., 3.], dtype=float32)

    Raises: ArgumentError for a dim that x does not have.
    """
    return _reduce(0, x, dim)


def max(x, dim=-1):
    """Maximum over one dimension; NaN wins. x: [..., n, ...] -> [..., ...].

    >>> cgp.max(np.array([[1, 3], [2, 0]], np.float32))
    array([3., 2.], dtype=float32)

    Raises: ArgumentError for a dim that x does not have.
    """
    return _reduce(1, x, dim)


def transpose(x):
    """The last two dimensions exchanged, as a new contiguous array. x: [..., m, n] -> [..., n, m].

    >>> cgp.transpose(np.ones((2, 3), np.float32)).shape
    (3, 2)

    Raises: ArgumentError for less than two dimensions.
    """
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
    """x + y, of one shape and type. x, y: [...] -> [...].

    >>> cgp.add(np.ones(2, np.float32), np.ones(2, np.float32))
    array([2., 2.], dtype=float32)

    Raises: ArgumentError for operands of two shapes or types.
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


def log_softmax(x):
    """x - log sum exp(x) over the last dimension. x: [..., n] -> [..., n].

    >>> cgp.log_softmax(np.zeros((1, 1), np.float32))
    array([[0.]], dtype=float32)

    Raises: ArgumentError for a type that is not floating.
    """
    if is_torch(x):
        from . import ops
        return ops.log_softmax(x)
    return _like(x, lambda _, s, x, y: _core.log_softmax(s, x, y))


def _norm(layer, x, residual, weight, bias, eps, weight_offset):
    import numpy as np
    x = np.asarray(x)
    with OnDevice() as on:
        y, result = on.empty(x.shape, x.dtype)
        h, sum_result = (None, None) if residual is None else on.empty(x.shape, np.asarray(residual).dtype)
        _core.norm(on.device.stream(), layer, on.put(x), y, on.put(residual), on.put(weight), on.put(bias), h, None, None, eps,
                   weight_offset)
        return result() if residual is None else (result(), sum_result())


def rms_norm(x, weight=None, *, residual=None, eps=1e-6, weight_offset=0.0):
    """h / sqrt(mean(h^2) + eps) * (weight + weight_offset), over the last dimension, with h = x + residual.

    x, residual: [..., n]; weight: [n] -> y [..., n], and h too (in the type of residual) where a residual is given.

    >>> cgp.rms_norm(np.full((1, 2), 3, np.float32), eps=7.0)
    array([[0.75, 0.75]], dtype=float32)

    Raises: ArgumentError for a weight or residual that does not fit, or an eps that is negative or NaN.
    """
    if is_torch(x):
        from . import ops
        return ops.rms_norm(x, weight, eps, weight_offset, residual)
    return _norm(False, x, residual, weight, None, eps, weight_offset)


def layer_norm(x, weight=None, bias=None, *, residual=None, eps=1e-5):
    """(h - mean(h)) / sqrt(var(h) + eps) * weight + bias, over the last dimension, with h = x + residual.

    x, residual: [..., n]; weight, bias: [n] -> y [..., n], and h too (in the type of residual) where a residual is given.

    >>> cgp.layer_norm(np.array([[1, 3]], np.float32), eps=0.0)
    array([[-1.,  1.]], dtype=float32)

    Raises: ArgumentError for a weight, bias or residual that does not fit, or an eps that is negative or NaN.
    """
    if is_torch(x):
        from . import ops
        return ops.layer_norm(x, weight, bias, eps, residual)
    return _norm(True, x, residual, weight, bias, eps, 0.0)


def _norm_backward(layer, dy, h, weight, bias, dsum, eps, weight_offset):
    import numpy as np
    dy, h = np.asarray(dy), np.asarray(h)
    kind = h.dtype if weight is None else np.asarray(weight).dtype
    with OnDevice() as on:
        stream, given, scale = on.device.stream(), on.put(h), on.put(weight)
        mean = on.empty(h.shape[:-1], np.float32)[0] if layer else None
        rstd = on.empty(h.shape[:-1], np.float32)[0]
        _core.norm(stream, layer, given, on.empty(h.shape, h.dtype)[0], None, None, None, None, mean, rstd, eps, 0.0)
        outputs = [on.empty(h.shape, h.dtype)]
        outputs.append(on.empty(h.shape[-1:], kind) if weight is not None else (None, lambda: None))
        outputs.append(on.empty(h.shape[-1:], kind) if bias else (None, lambda: None))
        dx, dweight, dbias = (o[0] for o in outputs)
        _core.norm_backward(stream, layer, given, on.put(dy), dx, on.put(dsum), scale, mean, rstd, dweight, dbias,
                            weight_offset)
        return tuple(result() for _, result in (outputs if layer else outputs[:2]))


def rms_norm_backward(dy, h, weight=None, *, dsum=None, eps=1e-6, weight_offset=0.0):
    """(gradient of h, gradient of weight or None) of rms_norm, given dy: [..., n], that of its result. h: [..., n] is what was
    normalised (x, or x + residual); dsum: [..., n] is a gradient that reached h by itself, and is added. NumPy arrays;
    PyTorch does this by itself.

    >>> cgp.rms_norm_backward(np.ones((1, 2), np.float32), np.ones((1, 2), np.float32), eps=0.0)[0]
    array([[0., 0.]], dtype=float32)

    Raises: ArgumentError for operands that do not fit.
    """
    return _norm_backward(False, dy, h, weight, False, dsum, eps, weight_offset)


def layer_norm_backward(dy, h, weight=None, *, bias=True, dsum=None, eps=1e-5):
    """(gradient of h, gradient of weight or None, gradient of bias or None) of layer_norm; see rms_norm_backward.
    dy, h, dsum: [..., n]; weight: [n].

    >>> cgp.layer_norm_backward(np.ones((2, 4), np.float32), np.eye(2, 4, dtype=np.float32))[2]
    array([2., 2., 2., 2.], dtype=float32)

    Raises: ArgumentError for operands that do not fit.
    """
    return _norm_backward(True, dy, h, weight, bias, dsum, eps, 0.0)


def cross_entropy(logits, target, *, reduction="mean", ignore_index=-100, label_smoothing=0.0, z_loss=0.0, gradient=False):
    """log sum exp(logits) - logits[target], with label smoothing and z_loss * (log sum exp)^2 added; float32.

    logits: [..., n]; target: integers [...] -> a scalar, or [...] for reduction="none". gradient (NumPy arrays): the pair of
    the loss and its gradient by the logits, from one launch.

    >>> float(cgp.cross_entropy(np.zeros((1, 1), np.float32), np.array([0])))
    0.0

    Raises: ArgumentError for shapes that do not fit, targets that are not integers, or a reduction that there is not.
    """
    if is_torch(logits):
        from . import ops
        return ops.cross_entropy(logits, target, reduction, ignore_index, label_smoothing, z_loss)
    import numpy as np
    logits, target = np.asarray(logits), np.asarray(target)
    choice({"mean": 0, "sum": 1, "none": 2}, reduction, "cross_entropy: reduction")
    if target.dtype.name not in ("int32", "int64"):
        raise ArgumentError(f"cross_entropy: target is {target.dtype}; it must be int32 or int64")
    with OnDevice() as on:
        stream = on.device.stream()
        losses, loss_result = on.empty(target.shape, np.float32)
        d, d_result = on.empty(logits.shape, logits.dtype) if gradient else (None, None)
        error_flag = on.put(np.zeros(1, np.uint32))
        targets, scale, scale_result = on.put(target), None, None
        if reduction == "mean":
            scale, scale_result = on.empty(1, np.float32)
            _core.count_targets(stream, targets, ignore_index, scale)
        _core.cross_entropy(stream, on.put(logits), targets, losses, None, d, scale, error_flag, ignore_index, label_smoothing,
                            z_loss)
        if on.fetch(error_flag, np.uint32)[0]:
            raise ArgumentError(f"cross_entropy: target has values that are neither columns (0 to {logits.shape[-1] - 1}) nor "
                                f"ignore_index = {ignore_index}")
        loss = loss_result()
        if reduction == "mean":
            with np.errstate(invalid="ignore"):  # nothing to take the mean of: NaN, as PyTorch has it
                loss = loss.sum(dtype=np.float32) * scale_result()[0]
        elif reduction == "sum":
            loss = loss.sum(dtype=np.float32)
        return (loss, d_result()) if gradient else loss


def rope(x, cos=None, sin=None, *, positions=None, sequence=0, offset=0, rotary=0, interleaved=False, inverse=False,
         base=10000.0, scaling="none", factor=1.0, original_positions=0.0):
    """Turns pairs of elements of each head by their position: (a, b) -> (a cos - b sin, a sin + b cos).

    x: [..., heads, dim], leading dimensions are tokens -> the same shape. Pair i is (i, i + rotary / 2), or (2 i, 2 i + 1)
    when interleaved; rotary = 0 is dim. cos, sin: float32 [positions, rotary / 2], or neither: then angles are
    position * base^(-2 i / rotary), exactly, scaled by "linear", "ntk", "yarn" or "llama3" with factor. positions: int32 or
    int64, one a token; else offset + token % sequence (0: the tokens are one sequence). The gradient is `inverse`.

    >>> cgp.rope(np.ones((1, 1, 2), np.float32))                # position 0 turns nothing
    array([[[1., 1.]]], dtype=float32)

    Raises: ArgumentError for shapes that do not fit, tables together with scaling, or a rotary part that is odd or larger
    than a head.
    """
    kind = choice(ROPE_SCALINGS, scaling, "rope: scaling")
    check_rope(cos, sequence, offset, base, scaling, factor)
    if is_torch(x):
        from . import ops
        return ops.rope(x, cos, sin, positions, sequence, offset, rotary, interleaved, inverse, base, scaling, factor,
                        original_positions)
    import numpy as np
    x = np.asarray(x)
    with OnDevice() as on:
        y, result = on.empty(x.shape, x.dtype)
        _core.rope(on.device.stream(), on.put(x), y, on.put(cos), on.put(sin), on.put(positions), sequence, offset, rotary,
                   interleaved, inverse, kind, base, factor, original_positions)
        return result()


def activate(x, activation, bias=None):
    """f(x + bias) for activation "relu", "silu", "gelu" or "gelu_tanh". x: [..., n]; bias: [n] -> [..., n].

    >>> cgp.activate(np.array([[-1, 2]], np.float32), "relu")
    array([[0., 2.]], dtype=float32)

    Raises: ArgumentError for an activation that there is not, or a bias that does not fit.
    """
    if is_torch(x):
        from . import ops
        return ops.activate(x, activation, bias)
    kind = choice(ELEMENTWISE, activation, "activation")
    return _like(x, lambda on, s, x, y: _core.activate(s, kind, x, on.put(bias), y))


def gated(gate, up, activation="silu"):
    """f(gate) * up: SwiGLU for "silu", GeGLU for "gelu" and "gelu_tanh", ReGLU for "relu". gate, up: [..., n] -> [..., n].

    >>> cgp.gated(np.ones((1, 1), np.float32), np.full((1, 1), 2, np.float32), "relu")
    array([[2.]], dtype=float32)

    Raises: ArgumentError for an activation that there is not, or operands of two shapes.
    """
    if is_torch(gate):
        from . import ops
        return ops.gated(gate, up, activation)
    import numpy as np
    gate, kind = np.asarray(gate), choice(ELEMENTWISE, activation, "activation")
    with OnDevice() as on:
        out, result = on.empty(gate.shape, gate.dtype)
        _core.gated(on.device.stream(), kind, on.put(gate), on.put(up), out)
        return result()


def swiglu(gate, up):
    """silu(gate) * up. gate, up: [..., n] -> [..., n].

    >>> cgp.swiglu(np.zeros((1, 1), np.float32), np.ones((1, 1), np.float32))
    array([[0.]], dtype=float32)

    Raises: ArgumentError for operands of two shapes.
    """
    return gated(gate, up, "silu")


def embedding(indices, weight):
    """Rows of weight. indices: int32 or int64 [...]; weight: [vocab, n] -> [..., n].

    >>> cgp.embedding(np.array([1]), np.array([[1], [2]], np.float32))
    array([[2.]], dtype=float32)

    Raises: ArgumentError for indices that are not integers or a weight that is not [rows, columns].
    """
    if is_torch(weight):
        from . import ops
        return ops.embedding(indices, weight)
    import numpy as np
    indices, weight = np.asarray(indices), np.asarray(weight)
    if weight.ndim != 2:
        raise ArgumentError(f"embedding: weight must be [vocab, n]; it is {list(weight.shape)}")
    with OnDevice() as on:
        out, result = on.empty(indices.shape + weight.shape[1:], weight.dtype)
        error_flag = on.put(np.zeros(1, np.uint32))
        _core.embedding(on.device.stream(), on.put(indices), on.put(weight), error_flag, out)
        if on.fetch(error_flag, np.uint32)[0]:
            raise ArgumentError(f"embedding: indices has values that are no rows (0 to {weight.shape[0] - 1})")
        return result()


def dropout(x, p, seed, offset=0):
    """x / (1 - p) where an element is kept, else 0: a function of (seed, offset, number of the element), by Philox4x32-10.
    x: [...] -> [...].

    >>> cgp.dropout(np.ones(1, np.float32), 0.0, 1)
    array([1.], dtype=float32)

    Raises: ArgumentError for p outside 0 to 1.
    """
    if is_torch(x):
        from . import ops
        return ops.dropout(x, p, seed, offset)
    return _like(x, lambda _, s, x, y: _core.dropout(s, x, p, seed, offset, y))


def argmax(x):
    """The place of the largest element of each row, the first of several; NaN is larger than everything. [..., n] -> [...].

    >>> cgp.argmax(np.array([[1, 3, 3]], np.float32))
    array([1])

    Raises: ArgumentError for rows without elements.
    """
    if is_torch(x):
        from . import ops
        return ops.argmax(x)
    import numpy as np
    x = np.asarray(x)
    with OnDevice() as on:
        index, result = on.empty(x.shape[:-1], np.int64)
        _core.argmax(on.device.stream(), on.put(x), index, None)
        return result()


def topk(x, k):
    """(The k largest elements of each row, descending, and their places); k at most 1024. [..., n] -> [..., k] both.

    >>> cgp.topk(np.array([1, 3, 2], np.float32), 2)[1]
    array([1, 2])

    Raises: ArgumentError for k above 1024 or the row's length.
    """
    if is_torch(x):
        from . import ops
        return ops.topk(x, k)
    import numpy as np
    x = np.asarray(x)
    if integer(k, "topk: k") < 0:
        raise ArgumentError(f"topk: k must not be negative; it is {k}")
    with OnDevice() as on:
        values, result = on.empty(x.shape[:-1] + (k,), x.dtype)
        index, places = on.empty(x.shape[:-1] + (k,), np.int64)
        _core.topk(on.device.stream(), on.put(x), values, index)
        return result(), places()


def cumsum(x, exclusive=False):
    """Running sums along the last dimension, in float32, rounded once; exclusive: without the element itself.
    x: [..., n] -> [..., n].

    >>> cgp.cumsum(np.ones(3, np.float32))
    array([1., 2., 3.], dtype=float32)

    Raises: ArgumentError for a type that is not floating.
    """
    if is_torch(x):
        from . import ops
        return ops.cumsum(x, exclusive)
    return _like(x, lambda _, s, x, y: _core.cumsum(s, x, exclusive, y))


# ---------------------------------------------------------------- arrays of other libraries
_PLAIN = ("builtins", "numpy", "torch")
_CPU, _CUDA, _CUDA_HOST = 1, 2, 3  # DLDeviceType


def _imported(x):
    """x; an array of another library, by DLPack and without a copy, as NumPy's or, on a GPU, as PyTorch's."""
    kind = type(x)
    if kind.__module__.partition(".")[0] in _PLAIN or not hasattr(kind, "__dlpack__") or not hasattr(kind, "__dlpack_device__"):
        return x
    where = int(x.__dlpack_device__()[0])
    if where in (_CPU, _CUDA_HOST):
        import numpy as np
        return np.from_dlpack(x)
    if where != _CUDA:
        raise ArgumentError(f"an array of {kind.__module__}.{kind.__name__} is on a device of DLPack's type {where}; it must be on the CPU "
                            "or a CUDA device")
    try:
        import torch
    except ImportError:
        raise Unsupported(f"an array of {kind.__module__}.{kind.__name__} on a GPU is taken by way of PyTorch, which is not "
                          "installed") from None
    return torch.from_dlpack(x)


def _taking_others(f):

    @functools.wraps(f)
    def taking_others(*arguments, **options):
        return f(*map(_imported, arguments), **{k: _imported(v) for k, v in options.items()})

    return taking_others


for _name in ("activate", "add", "argmax", "attention", "cross_entropy", "cumsum", "dropout", "embedding", "gated", "layer_norm",
              "layer_norm_backward", "log_softmax", "matmul", "max", "rms_norm", "rms_norm_backward", "rope", "softmax", "sum", "swiglu",
              "topk", "transpose"):
    globals()[_name] = _taking_others(globals()[_name])
