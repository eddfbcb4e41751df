# SPDX-License-Identifier: Apache-2.0
"""What operators for PyTorch are made of: tensors as the C interface takes them, the caller's stream, registration.

A call of an operator costs what Python costs, so that what does not change is looked up once, and calls that nothing
observes (no gradient, no mode, no tracing) go past PyTorch's dispatcher."""
import torch

from . import _core
from ._runtime import ArgumentError, Unsupported, device

CODES = {
    torch.uint8: 0, torch.int8: 1, torch.int16: 3, torch.int32: 5, torch.int64: 7, torch.float16: 8, torch.bfloat16: 9,
    torch.float32: 10, torch.float64: 11, torch.bool: 0
}
for _name, _code in (("uint16", 2), ("uint32", 4), ("uint64", 6), ("float8_e4m3fn", 12), ("float8_e5m2", 13)):
    if hasattr(torch, _name):
        CODES[getattr(torch, _name)] = _code
FLOATS = (torch.float32, torch.float16, torch.bfloat16)

# Arguments of the functions of _core after the stream, for messages.
_NAMES = {
    "gemm": "a b c alpha beta precision activation swiglu scaling bias residual scale_a scale_b",
    "attention": "q k v o lse scale causal window_left window_right soft_cap slopes mask key_lengths",
    "softmax": "x y", "reduce": "op dim x y", "transpose": "x y", "add": "x y z", "log_softmax": "x y",
    "norm": "layer x y residual weight bias sum mean rstd", "norm_backward": "layer x dy dx dsum weight mean rstd",
    "cross_entropy": "logits target loss lse dlogits scale", "count_targets": "target ignore_index scale",
    "mean_loss": "losses target ignore_index scale loss",
    "rope": "x y cos sin positions", "activate": "activation x bias y", "activate_backward": "activation x bias dy dx",
    "gated": "activation gate up out", "gated_backward": "activation gate up dout dgate dup",
    "softmax_backward": "log y dy dx",
    "attention_backward": "q k v o lse d_o d_q d_k d_v scale causal window_left window_right soft_cap slopes mask key_lengths",
    "embedding": "indices weight errors out", "embedding_backward": "indices dout padding_idx errors dweight",
    "dropout": "x p seed offset y", "argmax": "x index values", "topk": "x values index", "cumsum": "x exclusive y",
}

library = torch.library.Library("cgp", "DEF")
_scratch = []  # temporary memory of the operator that is being queued


def _lend(size):
    # The caching allocator hands memory out in stream order: it may be free for others as soon as the work that uses
    # it is queued.
    block = torch.empty(size + 256, dtype=torch.uint8, device="cuda")
    _scratch.append(block)
    return (block.data_ptr() + 255) & ~255


_tensor = torch.Tensor
_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None) or (lambda i: torch.cuda.current_stream(i).cuda_stream)
_current_device = getattr(torch._C, "_cuda_getDevice", None) or torch.cuda.current_device
_handles = {}  # (device, CUstream) -> handle of the C interface


def _refuse(function, position, t, index):
    name = function.__name__
    argument = _NAMES.get(name, "").split()[position:position + 1] or ["an argument"]
    if t.get_device() != index:
        raise ArgumentError(f"{name}: {argument[0]} is on {t.device}; all tensors must be on cuda:{index}")
    raise ArgumentError(f"{name}: {argument[0]} is {t.dtype}, which is not supported")


def queue(function, anchor, *arguments):
    """Queues a function of the C interface on the current stream of the anchor's device; tensors among the arguments
    are described as (address, dtype, shape, strides)."""
    index = anchor.get_device()
    given = []
    for a in arguments:
        if isinstance(a, _tensor):
            code = CODES.get(a.dtype)
            if code is None or a.get_device() != index:
                _refuse(function, len(given), a, index)
            a = (a.data_ptr(), code, a.shape, a.stride())
        given.append(a)
    if index != _current_device():
        with torch.cuda.device(index):
            return _queue(function, index, given)
    return _queue(function, index, given)


def _queue(function, index, given):
    stream = _raw_stream(index)
    handle = _handles.get((index, stream))
    if handle is None:
        handle = _handles[index, stream] = device(f"cuda:{index}").borrowed_stream(stream, _lend)
    try:
        return function(handle, *given)
    finally:
        if _scratch:
            _scratch.clear()


def describe(t):
    """A tensor as the C interface takes it. The tensor must outlive the description."""
    return t.data_ptr(), CODES[t.dtype], tuple(t.shape), tuple(t.stride())


def run(calls, index):
    """Queues ((function, described arguments), ...) on the current stream of device `index`."""
    if index != _current_device():
        with torch.cuda.device(index):
            return _queue(_core.run, index, (calls,))
    return _queue(_core.run, index, (calls,))


def define(schema, cuda, fake):
    """Registers cgp::<schema> with its CUDA and fake implementations and gives the operator."""
    name = schema.split("(")[0]
    library.define(schema)
    library.impl(name, cuda, "CUDA")

    def cpu(*args, **kwargs):
        raise Unsupported(f"cgp::{name} runs on CUDA tensors; these are on the CPU (NumPy arrays run on the emulator)")

    library.impl(name, cpu, "CPU")
    torch.library.register_fake(f"cgp::{name}", fake, lib=library)
    return getattr(torch.ops.cgp, name).default


def gradient(name, backward, setup=None):
    torch.library.register_autograd(f"cgp::{name}", backward, setup_context=setup, lib=library)


def no_second_gradient(name):
    def backward(ctx, *grads):
        raise Unsupported(f"cgp::{name} has no gradient: it is one itself, and second derivatives are not there")

    gradient(name, backward)


_dispatch_modes = getattr(torch._C, "_len_torch_dispatch_stack", None)
_function_modes = getattr(torch._C, "_len_torch_function_stack", None)
_functorch = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", None)
_can_be_direct = None not in (_dispatch_modes, _function_modes, _functorch)
_plain = (torch.Tensor, torch.nn.Parameter)
_is_compiling = torch.compiler.is_compiling
_grad_enabled = torch.is_grad_enabled
try:
    from torch.autograd import forward_ad as _forward
except ImportError:
    _forward = None


def direct(*tensors):
    """Whether a call on these may go past the dispatcher: CUDA tensors, no gradient, nobody who watches or traces."""
    if _is_compiling() or not _can_be_direct:
        return False
    grad = _grad_enabled()
    for t in tensors:
        if t is not None and (type(t) not in _plain or not t.is_cuda or (grad and t.requires_grad)):
            return False
    return not (_dispatch_modes() or _function_modes() or _functorch() is not None or
                getattr(_forward, "_current_level", 0) >= 0)


def empty(x, dtype=None):
    """An uninitialised contiguous tensor of the shape of x."""
    if dtype is None and x.is_contiguous():
        return torch.empty_like(x)
    return torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)


def rows(x):
    """x, or a copy: the last dimension contiguous, leading ones that collapse to rows at one distance."""
    if x.is_contiguous():
        return x
    shape, stride = x.shape, x.stride()
    if shape[-1] > 1 and stride[-1] != 1:
        return x.contiguous()
    step = None
    for n, s in zip(reversed(shape[:-1]), reversed(stride[:-1])):
        if n == 1:
            continue
        if s < shape[-1] if step is None else s != step:
            return x.contiguous()
        step = s * n
    return x


def expect(ok, op, argument, text):
    if not ok:
        raise ArgumentError(f"{op}: {argument}: {text}")


def expect_like(op, argument, t, shape, like):
    if t is not None and tuple(t.shape) != tuple(shape):
        raise ArgumentError(f"{op}: {argument}: its shape must be {list(shape)}, as {like} asks; it is {list(t.shape)}")


def expect_float(op, argument, t):
    if t is not None and t.dtype not in FLOATS:
        raise ArgumentError(f"{op}: {argument} is {t.dtype}; it must be float32, float16 or bfloat16")
