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

# Arguments of the functions of _core that messages name otherwise.
_NAMES = {("gemm", "a_tensor"): "a", ("attention", "out"): "o", ("attention_backward", "out"): "o",
          ("cross_entropy", "targets"): "target", ("count_targets", "targets"): "target", ("mean_loss", "targets"): "target"}

library = torch.library.Library("cgp", "DEF")
backend = "CUDA"  # the dispatch key that implementations are registered for


def _private(path):
    """Something of torch._C that may not be there."""
    found = torch._C
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


# What compiled programs of PyTorch allocate with: a third of what torch.empty costs the caller.
_empty_strided = _private("_dynamo.guards._empty_strided_cuda")


def _lend(size):
    # The caching allocator hands memory out in stream order: it may be free for others as soon as the work that uses
    # it is queued.
    size += 256
    block = (torch.empty(size, dtype=torch.uint8, device="cuda") if _empty_strided is None else
             _empty_strided((size,), (1,), torch.uint8))
    return (block.data_ptr() + 255) & ~255, block


def _open_stream(index, stream):
    return device(f"cuda:{index}").borrowed_stream(stream, _lend)


def _refuse(function, argument, t, index):
    argument = _NAMES.get((function, argument), argument)
    if t.get_device() != index or index < 0:
        raise ArgumentError(f"{function}: {argument} is on {t.device}; all tensors must be on "
                            f"{f'cuda:{index}' if index >= 0 else 'one GPU'}")
    raise ArgumentError(f"{function}: {argument} is {t.dtype}, which is not supported")


def _empty(x, asked, shape, dtype):
    if asked is True:
        return torch.empty_strided(shape, x.stride(), dtype=dtype, device=x.device)
    return torch.empty(shape, dtype=dtype, device=x.device)


# What a call asks of PyTorch: functions that the checks and the queue in C call.
_tensor = torch.Tensor
_raw_stream = _private("_cuda_getCurrentRawStream") or (lambda i: torch.cuda.current_stream(i).cuda_stream)
_current_device = _private("_cuda_getDevice") or torch.cuda.current_device
_exchange_device = _private("_cuda_exchangeDevice") or torch.cuda._exchange_device
# Who may watch or trace: modes, functorch, torch.jit.trace. Where one cannot be asked, calls go through the dispatcher.
_watchers = tuple(map(_private, ("_len_torch_dispatch_stack", "_len_torch_function_stack", "_functorch.peek_interpreter_stack",
                                 "_get_tracing_state")))
if None in _watchers:
    _watchers = (lambda: True,)
_is_compiling = torch.compiler.is_compiling
try:
    from torch.autograd import forward_ad as _forward
    _forward._current_level
except (ImportError, AttributeError):
    _forward = None

_core.torch_use(_tensor, torch.nn.Parameter, CODES, _tensor.data_ptr, _tensor.stride, _tensor.get_device, _tensor.is_contiguous,
                _raw_stream, _current_device, _exchange_device, _open_stream, _refuse, torch.is_grad_enabled, _watchers, _forward,
                _empty_strided, _empty)


def queue(function, anchor, *arguments):
    """Queues a function of the C interface on the current stream of the device of its tensors (of which the anchor is one)."""
    return function(None, *arguments)


def version(t):
    """What changes when the tensor's values do; those of inference mode do not say."""
    return -1 if t.is_inference() else t._version


def describe(t):
    """A tensor as the C interface takes it. The tensor must outlive the description."""
    return t.data_ptr(), CODES[t.dtype], tuple(t.shape), tuple(t.stride())


def run(calls, index):
    """Queues ((function, described arguments), ...) on the current stream of device `index`."""
    if index != _current_device():
        with torch.cuda.device(index):
            return _core.run(_core.torch_stream(index), calls)
    return _core.run(_core.torch_stream(index), calls)


class Operator:
    """An operator and the ways to call it, by way(tensors): the registered one, through PyTorch's dispatcher; its
    implementation; and a function of autograd around that. All give `results` outputs: all (None), the first (1), a tuple."""
    __slots__ = ("name", "registered", "implementation", "results", "ways")

    def __init__(self, name, registered, implementation, results, plain):
        self.name, self.registered, self.implementation, self.results = name, registered, implementation, results

        def through(*a):
            if _forward is not None and not _is_compiling() and _forward._current_level >= 0:
                self.refuse_tangents(a)
            return self.shown(registered(*a))

        self.ways = (through, plain or (implementation if results is None else lambda *a: self.shown(implementation(*a))), through)

    def refuse_tangents(self, arguments):
        """PyTorch would go on without them, and give zeros for the derivative."""
        for t in arguments:
            if isinstance(t, _tensor) and _forward.unpack_dual(t).tangent is not None:
                raise Unsupported(f"cgp::{self.name} has no forward-mode derivative (torch.func.jvp, jacfwd, hessian): use "
                                  "reverse mode, or PyTorch's own operation")

    def shown(self, outputs):
        return outputs if self.results is None else outputs[0] if self.results == 1 else outputs[:self.results]


def way(*tensors):
    """Which of an operator's ways a call with these tensors may go: past the dispatcher where nobody watches or traces."""
    return 0 if _is_compiling() else _core.torch_way(*tensors)


def define(schema, implementation, fake, results=None, plain=None):
    """Registers cgp::<schema> with its implementation for CUDA tensors and its fake one. `results`: how many outputs callers
    get; `plain`: a cheaper implementation of those, where no gradient will be asked for."""
    name = schema.split("(")[0]
    library.define(schema)
    library.impl(name, implementation, backend)

    def cpu(*args, **kwargs):
        raise Unsupported(f"cgp::{name} runs on CUDA tensors; these are on the CPU (NumPy arrays run on the emulator)")

    if backend != "CPU":
        library.impl(name, cpu, "CPU")
    torch.library.register_fake(f"cgp::{name}", fake, lib=library)
    return Operator(name, getattr(torch.ops.cgp, name).default, implementation, results, plain)


def gradient(operator, backward, setup=None):
    """Gives an operator its gradient, in both its ways. Only the outputs that callers get bring gradients to backward()."""
    torch.library.register_autograd(f"cgp::{operator.name}", backward, setup_context=setup, lib=library)
    implementation, shown = operator.implementation, operator.shown

    def forward(ctx, *inputs):
        outputs = implementation(*inputs)
        if setup is not None:
            setup(ctx, inputs, outputs)
        return shown(outputs)

    function = type(f"cgp_{operator.name}", (torch.autograd.Function,), {"forward": staticmethod(forward),
                                                                        "backward": staticmethod(backward)})
    # Function.apply looks for transforms of functorch first: way() did.
    base = getattr(_private("_FunctionBase"), "__dict__", {}).get("apply")
    apply = base.__get__(None, function) if base is not None else function.apply
    operator.ways = (*operator.ways[:2], apply)


def no_second_gradient(operator):
    def backward(ctx, *grads):
        raise Unsupported(f"cgp::{operator.name} has no gradient: it is one itself, and second derivatives are not there")

    torch.library.register_autograd(f"cgp::{operator.name}", backward, lib=library)


def empty(x, dtype=None, shape=None):
    """An uninitialised contiguous tensor like x, but for what is given; shape=True: of its strides, too."""
    return _core.torch_empty(x, shape, dtype)


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


def aligned_rows(x, shape):
    """An uninitialised tensor like x of this shape whose rows begin at multiples of 16 bytes: where they do not by themselves, and are
    a kilobyte or more, it is a part of a wider one. Products with such a matrix are several times as fast."""
    n, size = shape[-1], x.element_size()
    if n * size < 1024 or n * size % 16 == 0:
        return x.new_empty(shape)
    step, strides = -(-n * size // 16) * 16 // size, [1]
    for extent in reversed(shape[1:]):
        strides.insert(0, strides[0] * (extent if len(strides) > 1 else step))
    if type(x) is not _tensor:  # a fake one: what counts is the strides
        return x.new_empty_strided(shape, strides)
    # What lies behind the last row is there, too: products write it.
    return x.new_empty(0).set_(x.new_empty(strides[0] * shape[0]).untyped_storage(), 0, shape, strides)


def dense(t):
    """A vector or table (or None), without gaps."""
    return t if t is None or t.is_contiguous() else t.contiguous()


def expect(ok, op, argument, text):
    if not ok:
        raise ArgumentError(f"{op}: {argument}: {text}")


def expect_like(op, argument, t, shape, like):
    if t is not None and tuple(t.shape) != tuple(shape):
        raise ArgumentError(f"{op}: {argument}: its shape must be {list(shape)}, as {like} asks; it is {list(t.shape)}")


def expect_row(op, x):
    expect_float(op, "x", x)
    expect(x.dim() >= 1, op, "x", "it must have a dimension")


def expect_float(op, argument, t):
    if t is not None and t.dtype not in FLOATS:
        raise ArgumentError(f"{op}: {argument} is {t.dtype}; it must be float32, float16 or bfloat16")
