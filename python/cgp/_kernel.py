# SPDX-License-Identifier: Apache-2.0
"""Kernels of the caller's own, as PTX: checked on the emulator, launched on a GPU, registered with PyTorch."""
import ctypes
import os
import re
import struct

from . import _core, _runtime
from ._runtime import DTYPES, ArgumentError, Unsupported, _code, device as open_device

_SCALAR, _POINTER, _TENSOR_MAP, _BYTES, _WORD = range(5)  # cgp_parameter_kind
_FORMATS = {"float16": "e", "float32": "f", "float64": "d", "uint8": "B", "int8": "b", "uint16": "H", "int16": "h",
            "uint32": "I", "int32": "i", "uint64": "Q", "int64": "q"}
_UNSIGNED = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}


def _is_torch(x):
    return any(c.__module__ == "torch" and c.__name__ == "Tensor" for c in type(x).__mro__)


def _is_numpy(x):
    return type(x).__module__.partition(".")[0] in ("numpy", "ml_dtypes")


class TensorMap:
    """An array as the tensor memory accelerator (TMA) reads or writes it, for a tensor map parameter of a kernel.

    array: of 1 to 5 dimensions [..., columns]; box: elements that one copy moves, in the order of the array's dimensions;
    swizzle: 0, 32, 64 or 128 bytes; l2_promotion: 0, 64, 128 or 256 bytes; nan_fill: elements outside the array are NaN, not 0.

    >>> cgp.TensorMap(np.zeros((64, 64), np.float16), (8, 64), swizzle=128).box
    (8, 64)

    Raises: ArgumentError at the launch, for what cannot be encoded.
    """

    def __init__(self, array, box, *, swizzle=0, l2_promotion=0, nan_fill=False):
        self.array, self.box = array, tuple(box)
        self.swizzle, self.l2_promotion, self.nan_fill = swizzle, l2_promotion, nan_fill


class _Host:
    """The memory of an array on the CPU, of NumPy or PyTorch."""

    def __init__(self, x, where, kernel):
        self.where = where
        where = f"kernel {kernel}: {where}"
        if _is_torch(x):
            from ._torch import CODES
            contiguous, self.address, self.nbytes, self.writable = x.is_contiguous(), x.data_ptr(), x.numel() * x.element_size(), True
            if x.dtype not in CODES:
                raise ArgumentError(f"{where} is {x.dtype}, which is not supported")
            self.code = CODES[x.dtype]
        else:
            contiguous, self.address, self.nbytes, self.writable = x.flags.c_contiguous, x.ctypes.data, x.nbytes, x.flags.writeable
            if not x.dtype.isnative:
                raise ArgumentError(f"{where} is of another byte order; pass x.astype(x.dtype.newbyteorder('='))")
            self.code = _code(x.dtype)
        if not contiguous:
            raise ArgumentError(f"{where} is not contiguous, and a kernel is given its address alone; pass a contiguous copy")
        self.shape = tuple(x.shape)


class _Copies:
    """Arrays of the CPU on a device for one launch. What shares memory there does so here, too."""

    def __init__(self, device, kernel):
        self.device, self.kernel, self.hosts, self.memory = device, kernel, [], []

    def add(self, x, where):
        self.hosts.append(_Host(x, where, self.kernel))

    def __enter__(self):
        self.regions = []  # [begin, end, address on the device, hosts]
        for h in sorted(self.hosts, key=lambda h: (h.address, -h.nbytes)):
            if self.regions and h.address < self.regions[-1][1]:
                region = self.regions[-1]
                region[1] = max(region[1], h.address + h.nbytes)
                region[3].append(h)
            else:
                self.regions.append([h.address, h.address + h.nbytes, 0, [h]])
        handle = self.device._handle
        for region in self.regions:
            begin, end, _, hosts = region
            name = " and ".join(h.where for h in hosts)
            region[2] = _core.alloc_named(handle, end - begin, name)
            self.memory.append(region[2])
            _core.upload(handle, region[2], begin, end - begin)
        return self

    def __exit__(self, *_):
        for address in self.memory:
            _core.free(self.device._handle, address)
        return False

    def describe(self, host):
        for begin, _, address, hosts in self.regions:
            if host in hosts:
                return _runtime.OnDevice._describe(address + host.address - begin if host.nbytes else 0, host.code, host.shape)

    def fetch(self):
        _core.stream_wait(self.device.stream())
        for begin, end, address, hosts in self.regions:
            if any(h.writable for h in hosts):
                _core.download(self.device._handle, address, begin, end - begin)
                continue
            after = ctypes.create_string_buffer(end - begin)
            _core.download(self.device._handle, address, ctypes.addressof(after), end - begin)
            if after.raw != ctypes.string_at(begin, end - begin):
                raise ArgumentError(f"kernel {self.kernel} wrote to {hosts[0].where}, which is a read-only array")


class Parameter:
    """A parameter of a kernel as its PTX declares it: name, kind ("scalar", "pointer", "tensor_map", "bytes", or "word": PTX
    does not say whether 8 bytes are a number or an address), dtype of a scalar (None: any of that width), bytes, and the
    alignment in bytes that a pointer is declared with (0: none)."""
    __slots__ = ("name", "kind", "dtype", "bytes", "pointer_align")

    def __init__(self, name, kind, dtype, size, pointer_align):
        self.name, self.kind, self.bytes, self.pointer_align = name, ("scalar", "pointer", "tensor_map", "bytes", "word")[kind], size, pointer_align
        self.dtype = None if dtype < 0 else DTYPES[dtype]

    def __repr__(self):
        return f"{self.name}: {self.dtype or self.kind}"


class _Loaded:
    """A kernel on one device."""

    def __init__(self, module, name):
        self.module = module  # its variables
        self.handle = _core.kernel_open(module.handle, name)

    def __del__(self):
        if hasattr(self, "handle"):
            _core.kernel_free(self.handle)


class _LoadedModule:
    def __init__(self, device, text):
        self.handle = _core.module_load(device._handle, text)

    def __del__(self):
        if hasattr(self, "handle"):
            _core.module_free(self.handle)


def _three(value, what, kernel):
    """A grid, block or cluster: a number, or up to three."""
    if value is None:
        return 0, 0, 0
    try:
        extents = tuple(value)
    except TypeError:
        extents = (value,)
    try:
        extents = tuple(int(n.__index__()) for n in extents)
    except AttributeError:
        extents = ()
    if not 1 <= len(extents) <= 3 or any(not 0 < n < 1 << 32 for n in extents):
        raise ArgumentError(f"kernel {kernel}: {what} must be one to three positive integers, not {value!r}")
    return extents + (1,) * (3 - len(extents))


class Kernel:
    """A kernel of a Module. Calling it launches it:

        kernel(x, y, n, grid=blocks, block=threads)

    Arguments are the parameters of the PTX in their order: arrays for addresses (None: address 0), numbers for scalars,
    NumPy's numbers for scalars of exactly that type, `bytes` for structs by value, TensorMap for tensor maps. Arrays are
    contiguous and are written in place.

    CUDA tensors of PyTorch: the launch is queued on the current stream of their device. NumPy arrays run on the emulator
    with all its checks (or the device of `load_ptx`, or of `set_numpy_device`). Tensors of PyTorch on the CPU do so where
    `load_ptx` or `set_torch_cpu_device` named a device.

    grid: in blocks, one to three numbers. block: in threads, None: as the PTX says (.reqntid). cluster: in blocks, None: as
    the PTX says. shared: bytes of dynamic shared memory of a block. cooperative: all blocks run at the same time.

    Raises: ArgumentError for an argument that does not fit its parameter, by count, kind, type, width or alignment, and for
    a shape that the kernel or the device does not allow; EmulatorFault with the findings of the emulator; Unsupported for
    PTX that the device cannot run; DriverError.
    """

    def __init__(self, module, name):
        self._module, self._name, self._loaded = module, name, {}
        first = self._load(module._first)
        self.name, parameters, self.block, self.cluster, self.max_threads, self.shared, self.registers = _core.kernel_info(first.handle)
        self.parameters = tuple(Parameter(*p) for p in parameters)
        self.block = self.block if any(self.block) else None

    def __repr__(self):
        return f"cgp.Kernel({self.name}({', '.join(map(repr, self.parameters))}))"

    def _load(self, device):
        loaded = self._loaded.get(device.spec)
        if loaded is None:
            loaded = self._loaded[device.spec] = _Loaded(self._module._load(device), self._name)
        return loaded

    def _where(self, i):
        return f"argument {i} ({self.parameters[i].name})" if i < len(self.parameters) else f"argument {i}"

    def _number(self, i, value):
        """(cgp_dtype, bytes) of a number of Python."""
        p = self.parameters[i] if i < len(self.parameters) else Parameter("", _SCALAR, -1, 8, 0)
        where = f"kernel {self.name}: {self._where(i)}"
        if p.kind not in ("scalar", "word"):
            raise ArgumentError(f"{where} is a number; the parameter is a {p.kind} of {p.bytes} bytes")
        dtype = p.dtype
        if dtype is None and isinstance(value, float):
            dtype = {4: "float32", 8: "float64"}.get(p.bytes)
        elif dtype is None:
            dtype = _UNSIGNED.get(p.bytes)
            if dtype and value < 0:
                dtype = dtype[1:]
        if dtype not in _FORMATS:
            raise ArgumentError(f"{where}: PTX does not say the type of a parameter of {p.bytes} bytes; pass a number of NumPy, or bytes")
        if isinstance(value, float) and "float" not in dtype:
            raise ArgumentError(f"{where} is {value!r}; the parameter is {dtype}")
        try:
            return DTYPES.index(dtype), struct.pack("=" + _FORMATS[dtype], value)
        except (struct.error, OverflowError):
            raise ArgumentError(f"{where} is {value!r}, which {dtype} cannot hold") from None

    def __call__(self, *args, grid, block=None, cluster=None, shared=0, cooperative=False):
        shape = (_three(grid, "grid", self.name), _three(block, "block", self.name), _three(cluster, "cluster", self.name))
        if not isinstance(shared, int) or not 0 <= shared < 1 << 32:
            raise ArgumentError(f"kernel {self.name}: shared must be a number of bytes, not {shared!r}")
        arrays = [a.array if isinstance(a, TensorMap) else a for a in args]
        on_gpu = next((a for a in arrays if _is_torch(a) and a.is_cuda), None)
        if on_gpu is not None:
            from . import _torch  # tells the core about PyTorch
            loaded = self._load(open_device(f"cuda:{on_gpu.get_device()}"))
            given = [self._argument(i, a, array) for i, (a, array) in enumerate(zip(args, arrays))]
            return _core.kernel_launch(None, loaded.handle, *shape, shared, cooperative, tuple(given))
        device = self._module._device or (_runtime.torch_cpu_device(f"kernel {self.name}") if any(map(_is_torch, arrays)) else
                                          _runtime.numpy_device())
        loaded, copies, hosts = self._load(device), _Copies(device, self.name), {}
        for i, array in enumerate(arrays):
            if _is_torch(array) or hasattr(array, "ctypes"):
                copies.add(array, self._where(i))
                hosts[i] = copies.hosts[-1]
        with copies:
            given = [self._argument(i, a, copies.describe(hosts[i]) if i in hosts else array)
                     for i, (a, array) in enumerate(zip(args, arrays))]
            _core.kernel_launch(device.stream(), loaded.handle, *shape, shared, cooperative, tuple(given))
            copies.fetch()

    def _argument(self, i, a, array):
        """An argument as _core.kernel_launch takes it; `array`: its array, if it has one, as read_tensor does."""
        where = f"kernel {self.name}: {self._where(i)}"
        if _is_torch(array) and not array.is_contiguous() and not isinstance(a, TensorMap):
            raise ArgumentError(f"{where} is not contiguous, and a kernel is given its address alone; pass x.contiguous()")
        if isinstance(a, TensorMap):
            return array, a.box, int(a.swizzle), int(a.l2_promotion), bool(a.nan_fill)
        if a is None or array is not a or _is_torch(a):
            return array
        if isinstance(a, (bytes, bytearray, memoryview)):
            return bytes(a)
        if _is_numpy(a) and hasattr(a, "dtype"):  # a number of NumPy
            return (_code(a.dtype), a.tobytes()) if a.dtype.fields is None else a.tobytes()
        if isinstance(a, (bool, int, float)):
            return self._number(i, a)
        raise ArgumentError(f"{where} is a {type(a).__name__}; a kernel takes arrays, numbers, bytes, cgp.TensorMap and None")


def _emulator_of(text):
    """The emulator of the PTX's target: what a kernel is made of is known without a GPU."""
    target = re.search(rb"^\s*\.target\s+(sm_\w+)", text, re.M)
    try:
        return open_device("emu:" + target[1].decode()) if target else _runtime.numpy_device()
    except (ArgumentError, Unsupported):
        return _runtime.numpy_device()


class Module:
    """PTX and its kernels: `module.kernels` are their names, `module["name"]` is a Kernel. Its variables (.global, .const)
    are one set for each device."""

    def __init__(self, text, device):
        self._text, self._loaded = text, {}
        self._device = None if device is None else open_device(device)
        self._first = self._device or _emulator_of(text)
        self._kernels = {}
        self.kernels = _core.module_kernels(self._load(self._first).handle)

    def __repr__(self):
        return f"cgp.Module({', '.join(self.kernels)})"

    def _load(self, device):
        loaded = self._loaded.get(device.spec)
        if loaded is None:
            loaded = self._loaded[device.spec] = _LoadedModule(device, self._text)
        return loaded

    def kernel(self, name=None):
        """The Kernel of that name; None: the only one.

        >>> cgp.load_ptx(".version 7.0\\n.target sm_80\\n.address_size 64\\n.visible .entry empty() { ret; }").kernel()
        cgp.Kernel(empty())

        Raises: ArgumentError naming the kernels there are; Unsupported for one that the device cannot run.
        """
        if name not in self._kernels:
            self._kernels[name] = Kernel(self, name)
        return self._kernels[name]

    def __getitem__(self, name):
        return self.kernel(name)


def load_ptx(ptx, *, device=None):
    """The kernels of PTX text [str or bytes], or of a file [path], checked and ready to be launched.

    device: where NumPy arrays and tensors on the CPU run: "emu:sm_100a" for PTX of that target, "cuda:0" for copies on a GPU.
    None: where `set_numpy_device` and `set_torch_cpu_device` say.

    >>> module = cgp.load_ptx('''
    ... .version 7.0
    ... .target sm_80
    ... .address_size 64
    ... .visible .entry fill(.param .u64 .ptr .global y, .param .u32 value) .reqntid 32 {
    ...   .reg .b32 %r<2>; .reg .b64 %rd<3>;
    ...   ld.param.u64 %rd0, [y];
    ...   ld.param.u32 %r0, [value];
    ...   mov.u32 %r1, %tid.x;
    ...   mul.wide.u32 %rd1, %r1, 4;
    ...   add.u64 %rd2, %rd0, %rd1;
    ...   st.global.u32 [%rd2], %r0;
    ...   ret;
    ... }''')
    >>> y = np.zeros(32, np.int32)
    >>> module["fill"](y, 7, grid=1)
    >>> int(y.sum())
    224

    Raises: ArgumentError for malformed PTX, with line and column; Unsupported for what the device cannot run; OSError for a file
    that cannot be read.
    """
    if isinstance(ptx, os.PathLike) or isinstance(ptx, str) and "\n" not in ptx and ".version" not in ptx:
        with open(ptx, "rb") as file:
            ptx = file.read()
    if isinstance(ptx, str):
        ptx = ptx.encode()
    if not isinstance(ptx, (bytes, bytearray)):
        raise ArgumentError(f"load_ptx: ptx must be text or a path, not {type(ptx).__name__}")
    return Module(bytes(ptx).rstrip(b"\0"), device)


def kernel(ptx, name=None, *, device=None):
    """load_ptx(ptx).kernel(name): one kernel of PTX text [str or bytes] or of a file [path]; name None: the only one.

    >>> cgp.kernel(".version 7.0\\n.target sm_80\\n.address_size 64\\n.visible .entry empty() { ret; }")
    cgp.Kernel(empty())

    Raises: ArgumentError, Unsupported, OSError as load_ptx and Module.kernel.
    """
    return load_ptx(ptx, device=device).kernel(name)


def torch_op(name, function=None, *, fake, backward=None, setup_context=None, mutates_args=()):
    """Registers a function that launches kernels as the operator torch.ops.<name>, or decorates one.

    function: takes and returns tensors, with type annotations; allocates its results and launches kernels. name:
    "library::operator". fake: a function of the same arguments that returns empty tensors of the results' shapes [...] and types,
    for `torch.compile` and `torch.export`. backward(ctx, *gradients of the results): the gradients of the arguments, as of
    torch.autograd.Function; setup_context(ctx, inputs, output) saves what it needs. mutates_args: names of the arguments that are
    written in place. The result is called like the function.

        @cgp.torch_op("mine::double", fake=torch.empty_like, backward=lambda ctx, dy: 2 * dy)
        def double(x: torch.Tensor) -> torch.Tensor:
            y = torch.empty_like(x)
            kernel(x, y, x.numel(), grid=-(-x.numel() // 256), block=256)
            return y

    >>> cgp.torch_op("no library", fake=None)
    Traceback (most recent call last):
    ...
    cgp._runtime.ArgumentError: torch_op: name must be "library::operator", not 'no library'

    Raises: ArgumentError; Unsupported without torch.library.custom_op (PyTorch 2.4).
    """
    library, colons, operator = str(name).partition("::")
    if not colons or not library.isidentifier() or not operator.isidentifier():
        raise ArgumentError(f"torch_op: name must be \"library::operator\", not {name!r}")
    if not callable(fake):
        raise ArgumentError("torch_op: fake must be a function that gives empty tensors of the results' shapes and types")
    if function is None:
        return lambda f: torch_op(name, f, fake=fake, backward=backward, setup_context=setup_context, mutates_args=mutates_args)
    if setup_context is not None and backward is None:
        raise ArgumentError("torch_op: setup_context is there, and no backward that reads it")
    import torch
    if not hasattr(torch.library, "custom_op"):
        raise Unsupported(f"torch_op needs torch.library.custom_op, of PyTorch 2.4; this is {torch.__version__}")
    try:
        registered = torch.library.custom_op(name, function, mutates_args=mutates_args)
    except ValueError as e:  # no annotations, or unknown ones
        raise ArgumentError(f"torch_op: {name}: {e}") from None
    registered.register_fake(fake)
    if backward is not None:
        registered.register_autograd(backward, setup_context=setup_context)
    return registered
