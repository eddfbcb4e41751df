# SPDX-License-Identifier: Apache-2.0
"""Devices, streams, errors, and arrays as the C interface takes them."""
import threading

from . import _core

__version__ = _core.version()


class Error(RuntimeError):
    """Something went wrong; the message says which rule, where, why and what to do."""


class ArgumentError(Error, ValueError):
    """An argument is not what the function accepts."""


class Unsupported(Error, NotImplementedError):
    """This device or build cannot do it."""


class DriverError(Error):
    """A call of the GPU driver failed."""


class EmulatorFault(Error):
    """The emulator found that a kernel misbehaved."""


_core.set_exceptions(ArgumentError, Unsupported, DriverError, EmulatorFault, MemoryError, Error)

# cgp_dtype
DTYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "bfloat16", "float32",
          "float64", "float8_e4m3fn", "float8_e5m2")
CODES = {name: code for code, name in enumerate(DTYPES)}
CODES["bool"] = CODES["uint8"]


class Device:
    """A GPU ("cuda:0") or the emulator ("emu:sm_90a"), opened once."""

    def __init__(self, spec):
        self.spec = spec
        self._handle = _core.device_open(spec)
        (self.name, self.arch, self.compute_capability, self.sm_count, emulator,
         self.memory_bytes) = _core.device_info(self._handle)
        self.is_emulator = bool(emulator)
        self._stream = None
        self._borrowed = {}

    def __repr__(self):
        return f"cgp.Device({self.spec!r}: {self.name}, {self.arch})"

    @property
    def jit_count(self):
        """Kernels that the driver compiled so far in this process."""
        return _core.jit_count(self._handle)

    def stream(self):
        """The device's own stream, as the C interface's handle."""
        if self._stream is None:
            self._stream = _core.stream_new(self._handle)
        return self._stream

    def borrowed_stream(self, cu_stream, scratch):
        """The handle for a CUstream of another library; temporary memory comes from `scratch(bytes)`."""
        handle = self._borrowed.get(cu_stream)
        if handle is None:
            handle = _core.stream_borrow(self._handle, cu_stream)
            _core.stream_set_scratch(handle, scratch)
            self._borrowed[cu_stream] = handle
        return handle


_lock = threading.Lock()
_devices = {}
_numpy_device = "emu:sm_90a"


def device(spec="auto"):
    """The device of that name. "auto" is the first GPU, else the emulator.

    >>> cgp.device("emu:sm_80").arch
    'sm_80'

    Raises: ArgumentError for a malformed spec; Unsupported, saying why, where there is no such device.
    """
    with _lock:
        if spec not in _devices:
            _devices[spec] = Device(spec)
        return _devices[spec]


def set_numpy_device(spec):
    """Where functions run that were given NumPy arrays; "emu:sm_90a" to begin with.

    >>> cgp.set_numpy_device("emu:sm_90a")

    Raises: ArgumentError for a malformed spec; Unsupported, saying why, where there is no such device.
    """
    global _numpy_device
    device(spec)
    _numpy_device = spec


def numpy_device():
    return device(_numpy_device)


_torch_cpu_device = None


def set_torch_cpu_device(spec):
    """Where kernels run that were given PyTorch's tensors on the CPU: "emu:sm_90a", or None, which refuses them, to begin with.

    >>> cgp.set_torch_cpu_device(None)

    Raises: ArgumentError for a name that is none; Unsupported where there is no such device.
    """
    global _torch_cpu_device
    if spec is not None:
        device(spec)
    _torch_cpu_device = spec


def torch_cpu_device(who):
    """The Device for tensors on the CPU."""
    if _torch_cpu_device is None:
        raise Unsupported(f"{who} runs on CUDA tensors; these are on the CPU. To run them on the emulator: "
                          "cgp.set_torch_cpu_device('emu:sm_90a')")
    return device(_torch_cpu_device)


def describe_host(array):
    """A description of a NumPy array where it is, its elements one after the other; None stays None."""
    return None if array is None else OnDevice._describe(array.ctypes.data, _code(array.dtype), array.shape)


def _code(dtype):
    code = CODES.get(dtype.name)
    if code is None:
        raise ArgumentError(f"arrays of {dtype.name} are not supported; "
                            f"there are {', '.join(DTYPES)} (bfloat16 from the package ml_dtypes)")
    return code


class OnDevice:
    """NumPy arrays copied to a device for one call; outputs are copied back by `result`."""

    def __init__(self):
        self.device = numpy_device()
        self._memory = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for address in self._memory:
            _core.free(self.device._handle, address)
        return False

    def put(self, array):
        """A description of a copy of the array; None stays None."""
        import numpy as np
        if array is None:
            return None
        array = np.asarray(array)
        code = _code(array.dtype)
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        array = np.ascontiguousarray(array).reshape(array.shape)
        address = self._new(array.nbytes)
        _core.upload(self.device._handle, address, array.ctypes.data, array.nbytes)
        return self._describe(address, code, array.shape)

    def empty(self, shape, dtype):
        """(description, function that waits and gives the array)"""
        import numpy as np
        out = np.empty(shape, np.dtype(dtype).newbyteorder("="))
        code = _code(out.dtype)
        address = self._new(out.nbytes)

        def result():
            _core.stream_wait(self.device.stream())
            _core.download(self.device._handle, address, out.ctypes.data, out.nbytes)
            return out

        return self._describe(address, code, out.shape), result

    def fetch(self, description, dtype):
        """Waits and copies an array back that put() or empty() described."""
        import numpy as np
        out = np.empty(description[2], dtype)
        _core.stream_wait(self.device.stream())
        _core.download(self.device._handle, description[0], out.ctypes.data, out.nbytes)
        return out

    def _new(self, size):
        address = _core.alloc(self.device._handle, size)
        if address:
            self._memory.append(address)
        return address

    @staticmethod
    def _describe(address, code, shape):
        strides, step = [], 1
        for n in reversed(shape):
            strides.append(step)
            step *= n or 1
        return address, code, tuple(shape), tuple(reversed(strides))
