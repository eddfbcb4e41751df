# SPDX-License-Identifier: Apache-2.0
"""Operators for PyTorch, registered as torch.ops.cgp.*: CUDA tensors, the caller's current stream, autograd,
torch.compile, CUDA graphs. Nothing is compiled against PyTorch."""
import torch

from . import _core
from ._functions import ACTIVATIONS, PRECISIONS
from ._runtime import ArgumentError, Unsupported, device

_CODES = {
    torch.uint8: 0, torch.int8: 1, torch.int16: 3, torch.int32: 5, torch.int64: 7, torch.float16: 8, torch.bfloat16: 9,
    torch.float32: 10, torch.float64: 11, torch.bool: 0
}
for _name, _code in (("uint16", 2), ("uint32", 4), ("uint64", 6), ("float8_e4m3fn", 12), ("float8_e5m2", 13)):
    if hasattr(torch, _name):
        _CODES[getattr(torch, _name)] = _code

_library = torch.library.Library("cgp", "DEF")
_scratch = []  # temporary memory of the operator that is being queued


def _lend(size):
    # The caching allocator hands memory out in stream order: it may be free for others as soon as the work that uses
    # it is queued.
    block = torch.empty(size + 256, dtype=torch.uint8, device="cuda")
    _scratch.append(block)
    return (block.data_ptr() + 255) & ~255


def _describe(t):
    if t is None:
        return None
    code = _CODES.get(t.dtype)
    if code is None:
        raise ArgumentError(f"tensors of {t.dtype} are not supported")
    return t.data_ptr(), code, tuple(t.shape), t.stride()


def _run(function, anchor, *arguments):
    """Queues a function of the C interface on the current stream; tensors among the arguments are described."""
    for t in arguments:
        if isinstance(t, torch.Tensor) and t.device != anchor.device:
            raise ArgumentError(f"{function.__name__}: all tensors must be on {anchor.device}; one is on {t.device}")
    index = anchor.device.index
    with torch.cuda.device(index):
        handle = device(f"cuda:{index}").borrowed_stream(torch.cuda.current_stream().cuda_stream, _lend)
        try:
            function(handle, *(_describe(a) if isinstance(a, torch.Tensor) else a for a in arguments))
        finally:
            _scratch.clear()


def _define(schema, cuda, fake):
    name = schema.split("(")[0]
    _library.define(schema)
    _library.impl(name, cuda, "CUDA")

    def cpu(*args, **kwargs):
        raise Unsupported(f"cgp::{name} runs on CUDA tensors; these are on the CPU (NumPy arrays run on the emulator)")

    _library.impl(name, cpu, "CPU")
    torch.library.register_fake(f"cgp::{name}", fake, lib=_library)
    return getattr(torch.ops.cgp, name)


# ---------------------------------------------------------------- matmul
def _shapes(a, b):
    if a.dim() < 2 or b.dim() < 2:
        raise ArgumentError(f"matmul: a and b must have at least 2 dimensions, not {a.dim()} and {b.dim()}")
    if a.dtype != b.dtype:
        raise ArgumentError(f"matmul: b is {b.dtype}, a is {a.dtype}")


def _usable(x):
    """x, or a copy, with one of its last two dimensions contiguous and leading ones that collapse."""
    plain = x.stride(-1) == 1 or x.stride(-2) == 1 or x.numel() == 0
    if plain and x.dim() == 2:
        return x
    if plain and x.dim() > 2:
        step, fits = None, True
        for n, s in zip(reversed(x.shape[:-2]), reversed(x.stride()[:-2])):
            if n == 1:
                continue
            fits = fits and (step is None or s == step)
            step = s * n
        if fits:
            return x
    return x.contiguous()


def _matmul(a, b, bias=None, activation="", alpha=1.0, precision="standard"):
    _shapes(a, b)
    a, b = _usable(a), _usable(b)
    if b.dim() == 2 and a.dim() > 2 and not a.is_contiguous():
        a = a.contiguous()
    c = torch.empty(a.shape[:-1] + b.shape[-1:], dtype=a.dtype, device=a.device)
    if activation and activation not in ACTIVATIONS:
        raise ArgumentError(f"matmul: there is no activation {activation!r}")
    if precision not in PRECISIONS:
        raise ArgumentError(f"matmul: there is no precision {precision!r}")
    _run(_core.gemm, a, a, b, c, alpha, 0.0, PRECISIONS[precision], ACTIVATIONS[activation or None], 0, 0, bias, None, None,
         None)
    return c


def _matmul_fake(a, b, bias=None, activation="", alpha=1.0, precision="standard"):
    _shapes(a, b)
    return a.new_empty(a.shape[:-1] + b.shape[-1:])


matmul = _define(
    "matmul(Tensor a, Tensor b, Tensor? bias=None, str activation='', float alpha=1.0, str precision='standard') -> Tensor",
    _matmul, _matmul_fake)


def _matmul_setup(ctx, inputs, output):
    a, b, bias, activation, alpha, precision = inputs
    if activation:
        raise Unsupported("cgp::matmul has no gradient through a fused activation: apply the activation to its result")
    ctx.save_for_backward(a, b)
    ctx.alpha, ctx.precision, ctx.bias = alpha, precision, bias is not None


def _matmul_backward(ctx, grad):
    a, b = ctx.saved_tensors
    da = db = dbias = None
    if ctx.needs_input_grad[0]:
        da = torch.ops.cgp.matmul(grad, b.mT, None, "", ctx.alpha, ctx.precision)
    if ctx.needs_input_grad[1]:
        left, right = (a.flatten(0, -2), grad.flatten(0, -2)) if b.dim() == 2 else (a, grad)
        db = torch.ops.cgp.matmul(left.mT, right, None, "", ctx.alpha, ctx.precision)
    if ctx.bias and ctx.needs_input_grad[2]:
        dbias = grad.flatten(0, -2).sum(0)
    return da, db, dbias, None, None, None


torch.library.register_autograd("cgp::matmul", _matmul_backward, setup_context=_matmul_setup, lib=_library)


# ---------------------------------------------------------------- attention
def _last_contiguous(x):
    broadcast = any(s == 0 and n > 1 for n, s in zip(x.shape, x.stride()))
    return x if x.stride(-1) == 1 and not broadcast else x.contiguous()


def _attention(q, k, v, causal=False, scale=0.0, window_left=0, window_right=0, soft_cap=0.0, slopes=None, mask=None):
    q, k, v = (_last_contiguous(x) for x in (q, k, v))
    o = torch.empty(q.shape[:-1] + v.shape[-1:], dtype=q.dtype, device=q.device)
    if q.dim() == 4 and q.stride(1) < q.stride(2):  # [batch, n, heads, d] seen as [batch, heads, n, d]: so is the result
        o = torch.empty((q.shape[0], q.shape[2], q.shape[1], v.shape[-1]), dtype=q.dtype, device=q.device).transpose(1, 2)
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    _run(_core.attention, q, q, k, v, o, lse, scale, int(causal), window_left, window_right, soft_cap, slopes, mask, None)
    return o, lse


def _attention_fake(q, k, v, causal=False, scale=0.0, window_left=0, window_right=0, soft_cap=0.0, slopes=None, mask=None):
    o = q.new_empty(q.shape[:-1] + v.shape[-1:])
    if q.dim() == 4 and q.stride(1) < q.stride(2):
        o = q.new_empty((q.shape[0], q.shape[2], q.shape[1], v.shape[-1])).transpose(1, 2)
    return o, q.new_empty(q.shape[:-1], dtype=torch.float32)


attention = _define(
    "attention(Tensor q, Tensor k, Tensor v, bool causal=False, float scale=0.0, int window_left=0, int window_right=0, "
    "float soft_cap=0.0, Tensor? slopes=None, Tensor? mask=None) -> (Tensor, Tensor)", _attention, _attention_fake)


# ---------------------------------------------------------------- rows and elements
def _rows(x):
    return x if x.stride(-1) == 1 or x.numel() == 0 else x.contiguous()


def _softmax(x):
    x = _rows(x)
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _run(_core.softmax, x, x if x.is_contiguous() or x.dim() == 2 else x.contiguous(), y)
    return y


softmax = _define("softmax(Tensor x) -> Tensor", _softmax, lambda x: x.new_empty(x.shape))


def _softmax_setup(ctx, inputs, output):
    ctx.save_for_backward(output)


def _softmax_backward(ctx, grad):
    (y,) = ctx.saved_tensors
    product = grad * y
    return product - y * product.sum(-1, keepdim=True)


torch.library.register_autograd("cgp::softmax", _softmax_backward, setup_context=_softmax_setup, lib=_library)


def _without(x, dim):
    shape = list(x.shape)
    del shape[dim]
    return shape


def _reduction(op):
    def run(x, dim=-1):
        y = torch.empty(_without(x, dim), dtype=x.dtype, device=x.device)
        _run(_core.reduce, x, op, dim, x.contiguous(), y)
        return y
    return run


sum = _define("sum(Tensor x, int dim=-1) -> Tensor", _reduction(0), lambda x, dim=-1: x.new_empty(_without(x, dim)))
max = _define("max(Tensor x, int dim=-1) -> Tensor", _reduction(1), lambda x, dim=-1: x.new_empty(_without(x, dim)))


def _transpose(x):
    y = torch.empty(x.mT.shape, dtype=x.dtype, device=x.device)
    _run(_core.transpose, x, x.contiguous(), y)
    return y


transpose = _define("transpose(Tensor x) -> Tensor", _transpose, lambda x: x.new_empty(x.mT.shape))


def _add(x, y):
    z = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _run(_core.add, x, x.contiguous(), y.contiguous(), z)
    return z


add = _define("add(Tensor x, Tensor y) -> Tensor", _add, lambda x, y: x.new_empty(x.shape))
torch.library.register_autograd("cgp::add", lambda ctx, grad: (grad, grad), lib=_library)
