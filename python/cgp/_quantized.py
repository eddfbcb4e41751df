# SPDX-License-Identifier: Apache-2.0
"""Quantised weights: from files and checkpoints, their values, their products. NumPy arrays on the emulator, PyTorch tensors on
their GPU."""
from . import _core
from ._runtime import ArgumentError, OnDevice, describe_host, numpy_device

TENSORS = ("codes", "scales", "zeros", "g_idx", "absmax_table", "absmax_scales", "packed")


def _is_torch(x):
    return type(x).__module__.partition(".")[0] == "torch"


def _address(a):
    return a.ctypes.data


def _is_finite(a):
    if _is_torch(a):
        return bool(a.isfinite().all())
    import numpy as np
    return bool(np.isfinite(a).all())


def _narrow(x, kinds, name, op):
    """The array as NumPy's or PyTorch's, of one of these types."""
    if not _is_torch(x):
        import numpy as np
        x = np.ascontiguousarray(x)
    kind = str(x.dtype).removeprefix("torch.")
    if kind not in kinds:
        raise ArgumentError(f"{op}: {name} is {kind}; it must be {' or '.join(kinds)}")
    return x.contiguous() if _is_torch(x) else x


def _in_order(g_idx, group):
    import numpy as np
    host = g_idx.cpu().numpy() if _is_torch(g_idx) else g_idx
    return bool((host == np.arange(len(host)) // group).all())


class QuantizedTensor:
    """A quantised weight [rows, cols], as a linear layer has it: y = x w'.

    It is made by from_gguf, from_gptq, from_awq, from_bnb, from_fp8 and quantize, holds the bytes as the file or checkpoint has them,
    in NumPy arrays or PyTorch tensors, and is used by `cgp.matmul(x, w)`, `cgp.ops.matmul(x, w)` and `dequantize()`.

    format: "q4_k", "gptq", ...; shape: (rows, cols); nbytes: bytes of weights and scales.

    >>> w = cgp.QuantizedTensor.quantize(np.eye(64, dtype=np.float32), "q8_0")
    >>> w.format, w.shape, w.nbytes
    ('q8_0', (64, 64), 4352)
    >>> cgp.matmul(np.ones((1, 64), np.float32), w).shape
    (1, 64)
    """

    def __init__(self, format, shape, tensors, numbers=(0, 1, 256, 128, 128), absmax_offset=0.0):
        # numbers: group, zeros_minus_one, absmax_block, rows and columns of a tile
        self.format, self.shape = format, (int(shape[0]), int(shape[1]))
        self._tensors = tuple(tensors.get(name) for name in TENSORS)
        self._numbers, self._offset = tuple(map(int, numbers)), float(absmax_offset)

    def __repr__(self):
        where = f", device='{self.device}'" if self.device else ""
        return f"cgp.QuantizedTensor({self.format!r}, shape={self.shape}{where})"

    @property
    def nbytes(self):
        return sum(t.nbytes for t in self._tensors[:6] if t is not None)

    @property
    def device(self):
        """Of PyTorch's tensors; None: NumPy arrays."""
        codes = self._tensors[0]
        return codes.device if _is_torch(codes) else None

    def to(self, device):
        """The weight as PyTorch tensors on a device. It is packed too for the product on sm_90, where the format and the GPU
        have one.

        Raises ArgumentError where a size does not fit the format.
        """
        import numpy as np
        import torch
        tensors = dict(zip(TENSORS, self._tensors))
        device = torch.device(device)
        packs = device.type == "cuda" and tensors["packed"] is None and torch.cuda.get_device_capability(device) == (9, 0)
        on_host = tensors["g_idx"] is not None or (tensors["absmax_table"] is not None)  # what a kernel does not pack
        if packs and on_host:
            tensors["packed"] = self._pack()
        moved = {name: t if t is None else (t if _is_torch(t) else torch.from_numpy(np.array(t))).to(device)
                 for name, t in tensors.items()}
        if packs and not on_host:
            moved["packed"] = self._pack_on(moved)
        return QuantizedTensor(self.format, self.shape, moved, self._numbers, self._offset)

    def _pack_on(self, tensors):
        """Packed by a kernel, from tensors on a GPU."""
        import torch
        from ._torch import queue
        size = self._packed_bytes()
        if not size:
            return None
        codes = tensors["codes"]
        packed = torch.empty(size, dtype=torch.uint8, device=codes.device)
        queue(_core.quantized_weight_pack_on, codes, *(tensors[name] for name in TENSORS[:6]), None, self.format, *self.shape,
              self._numbers, self._offset, packed)
        return packed

    def _packed_bytes(self):
        return 0 if self.format.startswith("fp8") else _core.quantized_weight_pack(*self._host_arguments(), 0, 0)

    def _host_arguments(self):
        host = [t.cpu().numpy() if _is_torch(t) else t for t in self._tensors[:6]]
        return (*map(describe_host, host), None, self.format, *self.shape, self._numbers, self._offset)

    def _pack(self):
        import numpy as np
        size = self._packed_bytes()
        if not size:
            return None
        packed = np.empty(size, np.uint8)
        _core.quantized_weight_pack(*self._host_arguments(), _address(packed), size)
        return packed

    # ------------------------------------------------------------ where weights come from
    @classmethod
    def _checked(cls, check, *args):
        w = cls(*args)
        names = ("scales", "absmax_table", "absmax_scales")
        for name, t in zip(TENSORS, w._tensors):
            if check and name in names and t is not None and str(t.dtype).removeprefix("torch.") != "uint8" and not _is_finite(t):
                raise ArgumentError(f"{w.format}: {name} must be finite")
        return w

    @classmethod
    def from_blocks(cls, format, shape, blocks, *, check=True):
        """A weight from the blocks of a GGUF format: uint8, as many bytes as the file has.

        Raises ArgumentError for an unknown format, rows that hold no whole blocks, a wrong number of bytes, and, with `check`,
        scales that are NaN or infinite.
        """
        blocks = _narrow(blocks, ("uint8",), "blocks", "from_blocks").reshape(-1)
        rows, cols = (int(n) for n in shape)
        need = rows * _core.quantized_bytes(format, cols)
        if blocks.nbytes != need:
            raise ArgumentError(f"from_blocks: {format} [{rows}, {cols}] takes {need} bytes, there are {blocks.nbytes}")
        if check:
            host = blocks.cpu().numpy() if _is_torch(blocks) else blocks
            _core.quantized_check(format, _address(host), need)
        return cls(format, (rows, cols), {"codes": blocks})

    @classmethod
    def from_gguf(cls, path, name, *, check=True):
        """The tensor of that name in a GGUF file (of a split model: its first file). Leading dimensions are taken as rows.

        Raises ArgumentError for a file that is damaged or not there, a name that is not in it (with the closest ones), a tensor
        without rows, and scales that are NaN or infinite.
        """
        with GgufFile(path) as file:
            return file.weight(name, check=check)

    @classmethod
    def from_gptq(cls, qweight, qzeros, scales, g_idx=None, *, zeros_minus_one=True, check=True):
        """int4 of GPTQ: qweight int32 [cols / 8, rows], qzeros int32 [groups, rows / 8], scales float16 [groups, rows], g_idx int32
        [cols] (act-order; None: groups of equal size in order). zeros_minus_one: qzeros hold zero - 1 (the format's first version).

        Raises ArgumentError for types and sizes that do not fit, group indices out of range, and scales that are NaN or infinite.
        """
        qweight, qzeros, scales = (_narrow(x, kinds, name, "from_gptq") for x, kinds, name in (
            (qweight, ("int32", "uint32"), "qweight"), (qzeros, ("int32", "uint32"), "qzeros"), (scales, ("float16",), "scales")))
        cols, rows = qweight.shape[0] * 8, qweight.shape[1]
        groups = _fits("from_gptq", rows, cols, qzeros, scales)
        if g_idx is not None:
            g_idx = _narrow(g_idx, ("int32",), "g_idx", "from_gptq")
            if tuple(g_idx.shape) != (cols,) or (cols and (int(g_idx.min()) < 0 or int(g_idx.max()) >= groups)):
                raise ArgumentError(f"from_gptq: g_idx must be {cols} numbers from 0 to {groups} - 1")
            if _in_order(g_idx, cols // groups):
                g_idx = None  # as checkpoints without act-order have it: such weights can be packed
        return cls._checked(check, "gptq", (rows, cols), {"codes": qweight, "zeros": qzeros, "scales": scales, "g_idx": g_idx},
                            (cols // groups, zeros_minus_one, 256, 128, 128))

    @classmethod
    def from_awq(cls, qweight, qzeros, scales, *, check=True):
        """int4 of AWQ: qweight int32 [cols, rows / 8], qzeros int32 [groups, rows / 8], scales float16 [groups, rows].

        Raises ArgumentError for types and sizes that do not fit, and scales that are NaN or infinite.
        """
        qweight, qzeros, scales = (_narrow(x, kinds, name, "from_awq") for x, kinds, name in (
            (qweight, ("int32", "uint32"), "qweight"), (qzeros, ("int32", "uint32"), "qzeros"), (scales, ("float16",), "scales")))
        cols, rows = qweight.shape[0], qweight.shape[1] * 8
        groups = _fits("from_awq", rows, cols, qzeros, scales)
        return cls._checked(check, "awq", (rows, cols), {"codes": qweight, "zeros": qzeros, "scales": scales},
                            (cols // groups, 0, 256, 128, 128))

    @classmethod
    def from_bnb(cls, codes, absmax, shape, *, block=64, absmax_table=None, absmax_scales=None, absmax_block=256, absmax_offset=0.0,
                 check=True):
        """NF4 of bitsandbytes: codes uint8 (two weights a byte), absmax float32, one for each `block` weights; or double quantised:
        absmax uint8, with its table float32 [256], scales float32 (one for each absmax_block) and offset. In bitsandbytes' terms of
        a QuantState s: absmax=s.absmax, block=s.blocksize, absmax_table=s.state2.code, absmax_scales=s.state2.absmax,
        absmax_block=s.state2.blocksize, absmax_offset=float(s.offset).

        Raises ArgumentError for types and sizes that do not fit, and scales that are NaN or infinite.
        """
        codes = _narrow(codes, ("uint8",), "codes", "from_bnb").reshape(-1)
        absmax = _narrow(absmax, ("float32", "uint8"), "absmax", "from_bnb").reshape(-1)
        nested = str(absmax.dtype).endswith("uint8")
        if nested and (absmax_table is None or absmax_scales is None):
            raise ArgumentError("from_bnb: absmax of uint8 needs absmax_table and absmax_scales")
        tensors = {"codes": codes, "scales": absmax}
        if nested:
            tensors["absmax_table"] = _narrow(absmax_table, ("float32",), "absmax_table", "from_bnb")
            tensors["absmax_scales"] = _narrow(absmax_scales, ("float32",), "absmax_scales", "from_bnb").reshape(-1)
        rows, cols = (int(n) for n in shape)
        if codes.nbytes * 2 != rows * cols:
            raise ArgumentError(f"from_bnb: [{rows}, {cols}] takes {rows * cols // 2} bytes of codes, there are {codes.nbytes}")
        return cls._checked(check, "bnb_nf4", (rows, cols), tensors, (block, 0, absmax_block, 128, 128), absmax_offset)

    @classmethod
    def from_fp8(cls, codes, scales, *, tile=(128, 128), check=True):
        """8-bit floats: codes [rows, cols] of float8_e4m3fn or float8_e5m2, scales float32 [ceil(rows / tile[0]), ceil(cols / tile[1])]:
        value = scale * code. tile=(1, cols): a scale a row.

        Raises ArgumentError for types and sizes that do not fit, and scales that are NaN or infinite.
        """
        codes = _narrow(codes, ("float8_e4m3fn", "float8_e5m2"), "codes", "from_fp8")
        scales = _narrow(scales, ("float32",), "scales", "from_fp8")
        format = "fp8_e4m3" if "e4m3" in str(codes.dtype) else "fp8_e5m2"
        if len(codes.shape) != 2 or min(tile) < 1:
            raise ArgumentError("from_fp8: codes must be [rows, cols], and a tile at least 1 x 1")
        need = [-(-n // t) for n, t in zip(codes.shape, tile)]
        if list(scales.shape) != need:
            raise ArgumentError(f"from_fp8: scales must be {need}; they are {list(scales.shape)}")
        return cls._checked(check, format, codes.shape, {"codes": codes, "scales": scales}, (0, 0, 256, *tile))

    @classmethod
    def quantize(cls, array, format="q4_k", *, group=128):
        """A weight [rows, cols] quantised: to a GGUF format that cgp encodes ("q4_0" to "q8_0", "q2_k" to "q6_k", "nf4", "mxfp4",
        ...), to "int4" (groups of `group` inputs with zero points, in GPTQ's layout) or to "fp8" (e4m3, a scale for 128 x 128).

        Raises ArgumentError for an unknown format, rows that hold no whole blocks or groups, and values that are NaN or infinite.
        """
        import numpy as np
        torch_device = array.device if _is_torch(array) else None
        host = array.detach().float().cpu().numpy() if torch_device is not None else array
        x = np.ascontiguousarray(host, np.float32)
        if x.ndim != 2:
            raise ArgumentError(f"quantize: a weight has 2 dimensions, this has {x.ndim}")
        rows, cols = x.shape
        if format == "int4":
            if group < 8 or group % 8 or cols % group or rows % 8:
                raise ArgumentError(f"quantize: int4 needs rows and group that are multiples of 8, cols of group; the weight is "
                                    f"{list(x.shape)}, group = {group}")
            codes = np.empty((cols // 8, rows), np.int32)
            zeros, scales = np.empty((cols // group, rows // 8), np.int32), np.empty((cols // group, rows), np.float16)
            if x.size:
                _core.quantize_int4(_address(x), rows, cols, group, _address(codes), _address(zeros), _address(scales))
            w = cls("gptq", x.shape, {"codes": codes, "zeros": zeros, "scales": scales}, (group, 0, 256, 128, 128))
        elif format == "fp8":
            codes, scales = np.empty(x.shape, np.uint8), np.empty((-(-rows // 128), -(-cols // 128)), np.float32)
            if x.size:
                _core.quantize_fp8(_address(x), rows, cols, 128, 128, _address(codes), _address(scales))
            w = cls("fp8_e4m3", x.shape, {"codes": codes, "scales": scales})
        else:
            codes = np.empty(rows * _core.quantized_bytes(format, cols), np.uint8)
            _core.quantize(format, _address(x), x.size, _address(codes), codes.nbytes)
            w = cls(format, x.shape, {"codes": codes})
        return w if torch_device is None else w.to(torch_device)

    # ------------------------------------------------------------ what is done with them
    def _arguments(self, put=None):
        tensors = self._tensors if put is None else map(put, self._tensors)
        return (*tensors, self.format, *self.shape, self._numbers, self._offset)

    def dequantize(self, dtype=None):
        """The values [rows, cols]: a NumPy array (float32, or float16 or bfloat16), or a PyTorch tensor (bfloat16, or float16 or float32).

        Raises Unsupported for a device that cannot do it.
        """
        if self.device is not None:
            from ._ops_quantized import dequantize
            return dequantize(self, dtype)
        with OnDevice() as on:
            out, result = on.empty(self.shape, dtype or "float32")
            _core.dequantize(on.device.stream(), *self._arguments(on.put), 0, None, out)
            return result()


def quantized_matmul(x, w):
    """x [..., cols] times the transposed weight, NumPy."""
    import numpy as np
    if w.device is not None:
        raise ArgumentError(f"matmul: x is a NumPy array, the weight is on {w.device}")
    x = np.asarray(x)
    if x.ndim < 1:
        raise ArgumentError("matmul: x must have a dimension")
    if numpy_device().compute_capability == 90 and w._tensors[-1] is None:
        w._tensors = (*w._tensors[:-1], w._pack())
    with OnDevice() as on:
        y, result = on.empty(x.shape[:-1] + w.shape[:1], x.dtype)
        given = on.put(x), *w._arguments(on.put), False
        missing = _core.quantized_matmul(on.device.stream(), *given, None, y)
        if missing:
            _core.quantized_matmul(on.device.stream(), *given, on.empty(missing, np.uint8)[0], y)
        return result()


def grouped_matmul(x, w, ends):
    """Experts of a mixture: y[r] = x[r] times the transposed weight of the group that row r lies in.

    x: [m, cols], NumPy or PyTorch; w: a QuantizedTensor [groups * n, cols], one expert behind the other; ends: integers [groups], rising: the
    rows of x from ends[g - 1] to ends[g] are those of group g. Rows behind the last end give no result: what y has there means nothing.
    The result is [m, n], of x's type. PyTorch: there is no gradient, and ends stay on the GPU.

    >>> w = cgp.QuantizedTensor.quantize(np.concatenate([np.eye(32), 2 * np.eye(32)]).astype(np.float32), "q8_0")
    >>> cgp.grouped_matmul(np.ones((3, 32), np.float32), w, np.array([1, 3]))[:, 0].round(2)
    array([1., 2., 2.], dtype=float32)

    Raises ArgumentError for sizes, types and devices that do not fit.
    """
    if _is_torch(x):
        from ._ops_experts import grouped_matmul as with_torch
        return with_torch(x, w, ends)
    import numpy as np
    if w.device is not None:
        raise ArgumentError(f"grouped_matmul: x is a NumPy array, the weight is on {w.device}")
    x, ends = np.ascontiguousarray(x), np.ascontiguousarray(ends)
    if x.ndim != 2 or ends.ndim != 1 or not ends.size or w.shape[0] % ends.size:
        raise ArgumentError(f"grouped_matmul: x must be [m, cols], ends [groups], and groups must divide the {w.shape[0]} rows of the "
                            f"weight; they are {list(x.shape)} and {list(ends.shape)}")
    if numpy_device().compute_capability == 90 and w._tensors[-1] is None:
        w._tensors = (*w._tensors[:-1], w._pack())
    with OnDevice() as on:
        y, result = on.empty((x.shape[0], w.shape[0] // ends.size), x.dtype)
        given = on.put(x), *w._arguments(on.put), on.put(ends)
        missing = _core.quantized_grouped_matmul(on.device.stream(), *given, None, y)
        if missing:
            _core.quantized_grouped_matmul(on.device.stream(), *given, on.empty(missing, np.uint8)[0], y)
        return result()


def expect_plain(bias, activation, alpha):
    if bias is not None or activation or alpha != 1:
        raise ArgumentError("matmul: bias, activation and alpha are not possible with a quantised weight: apply them to the product")


def _fits(op, rows, cols, qzeros, scales):
    """The number of groups."""
    groups = scales.shape[0] if len(scales.shape) == 2 else 0
    if not groups or cols % groups or tuple(scales.shape) != (groups, rows) or tuple(qzeros.shape) != (groups, rows // 8) or rows % 8:
        raise ArgumentError(f"{op}: the weight is [{rows}, {cols}]: scales must be [groups, {rows}] and qzeros [groups, {rows // 8}] with "
                            f"groups that divide {cols}; they are {list(scales.shape)} and {list(qzeros.shape)}")
    return groups


class GgufFile:
    """A GGUF file, mapped into memory: the names of its tensors, and weights from it.

    tensors: {name: (format, shape)}.

    Raises ArgumentError for a file that is damaged or not there.
    """

    _handle = None

    def __init__(self, path):
        self.path, self._handle = path, _core.gguf_open(path)
        self.tensors = {name: (format, shape) for name, format, shape in _core.gguf_tensors(self._handle)}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
        return False

    def close(self):
        handle, self._handle = self._handle, None
        if handle is not None:
            _core.gguf_free(handle)

    __del__ = close

    def weight(self, name, *, check=True):
        """The tensor of that name as a QuantizedTensor: raises as QuantizedTensor.from_gguf does.

        Raises: ArgumentError for a name that the file does not have.
        """
        if self._handle is None:
            raise ArgumentError(f"{self.path} was closed")
        import numpy as np
        (_, format, shape), data = _core.gguf_read(self._handle, name)
        if len(shape) < 2:
            raise ArgumentError(f"{self.path}: {name} has shape {list(shape)}: a weight has rows")
        rows = 1
        for n in shape[:-1]:
            rows *= n
        return QuantizedTensor.from_blocks(format, (rows, shape[-1]), np.frombuffer(data, np.uint8), check=check)
