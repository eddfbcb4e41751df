# SPDX-License-Identifier: Apache-2.0
"""A paged cache of keys and values, for tensors of PyTorch on a GPU and for NumPy arrays on the emulator."""
import ctypes
import weakref

from . import _core
from ._options import integer
from ._runtime import CODES, ArgumentError, OnDevice, Unsupported, numpy_device

_BYTES = {"float16": 2, "bfloat16": 2, "float8_e4m3fn": 1}


class _Arrays(OnDevice):
    """One call on NumPy arrays."""

    def __init__(self, device):
        super().__init__()
        self.device = device

    def numbers(self, host, dtype, shape):
        import numpy as np
        return self.put(np.frombuffer(host, dtype).reshape(shape) if len(host) else np.empty(shape, dtype))

    def call(self, function, *arguments):
        return function(self.device.stream(), *arguments)


class _Numpy:
    """Where the memory of a cache for NumPy arrays is."""

    def __init__(self):
        self.device = numpy_device()

    def memory(self, shape, dtype):
        size = _BYTES.get(dtype, 8 if dtype == "int64" else 4)
        for n in shape:
            size *= n
        address = _core.alloc(self.device._handle, max(size, 1))
        zeros = ctypes.create_string_buffer(max(size, 1))
        _core.upload(self.device._handle, address, ctypes.addressof(zeros), size)
        weakref.finalize(self, _core.free, self.device._handle, address)
        return OnDevice._describe(address, CODES[dtype], shape)

    def write(self, memory, numbers):
        _core.upload(self.device._handle, memory[0], ctypes.addressof(numbers), ctypes.sizeof(numbers))

    def session(self):
        return _Arrays(self.device)

    def check(self, name, x, shape, dtype):
        import numpy as np
        x = np.asarray(x)
        _expect(name, x.dtype.name, x.shape, shape, dtype)
        return x


class _Tensors:
    """One call on tensors of PyTorch."""

    def __init__(self, device):
        self.device = device

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False

    def put(self, t):
        return t

    def empty(self, shape, dtype):
        import torch
        t = torch.empty(shape, dtype=getattr(torch, dtype), device=self.device)
        return t, lambda: t

    def numbers(self, host, dtype, shape):
        import torch
        kind = {"uint64": torch.int64, "int32": torch.int32}[dtype]
        if not len(host):
            return torch.empty(shape, dtype=kind, device=self.device)
        return torch.frombuffer(host, dtype=kind).view(shape).to(self.device)

    def call(self, function, *arguments):
        from . import _torch
        return _torch.queue(function, arguments[0], *arguments)


class _Torch:
    """Where the memory of a cache for tensors is."""

    def __init__(self, device):
        where = 'None gives NumPy arrays, on the emulator'
        try:
            import torch
            self.device = torch.device(device)
        except ImportError:
            raise Unsupported(f"PagedKVCache: device={device!r} needs PyTorch, which is not installed; {where}") from None
        except (RuntimeError, TypeError):
            raise ArgumentError(f'PagedKVCache: device must be one of PyTorch\'s, "cuda" or "cuda:1", not {device!r}; {where}') from None
        if self.device.type == "cuda" and self.device.index is None:
            self.device = torch.device("cuda", torch.cuda.current_device())

    def memory(self, shape, dtype):
        import torch
        return torch.zeros(shape, dtype=getattr(torch, dtype), device=self.device)

    def write(self, memory, numbers):
        import torch
        memory.view(-1).copy_(torch.frombuffer(numbers, dtype=memory.dtype))

    def session(self):
        return _Tensors(self.device)

    def check(self, name, x, shape, dtype):
        import torch
        if not torch.is_tensor(x):
            raise ArgumentError(f"PagedKVCache: {name} must be a tensor; it is {type(x).__name__}")
        if x.device != self.device:
            raise ArgumentError(f"PagedKVCache: {name} is on {x.device}; the cache is on {self.device}")
        _expect(name, str(x.dtype).rpartition(".")[2], tuple(x.shape), shape, dtype)
        return x.contiguous()


def _expect(name, dtype, shape, want, want_dtype):
    if dtype != want_dtype:
        raise ArgumentError(f"PagedKVCache: {name} is {dtype}; it must be {want_dtype}")
    if len(shape) != len(want) or any(w is not None and s != w for s, w in zip(shape, want)):
        text = ", ".join("n" if w is None else str(w) for w in want)
        raise ArgumentError(f"PagedKVCache: {name} must be [{text}]; it is {list(shape)}")


def _name_of(dtype):
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or str(dtype).rpartition(".")[2]
    if name not in _BYTES:
        raise ArgumentError(f"PagedKVCache: dtype is {name}; there are {', '.join(_BYTES)}")
    return name


class PagedKVCache:
    """Keys and values of many sequences, in `pages` pages of page_size tokens (a power of two, 16 to 256) that sequences take as
    they grow and give back. Forked sequences share pages until one of them writes.

    heads, d: of keys and values; d a multiple of 8, for attend() of 64. dtype: of the tokens, float16 or bfloat16; pages_dtype:
    of the pages, the same or float8_e4m3fn, which hold x / key_scale and x / value_scale. device: a device of PyTorch ("cuda"),
    whose tensors are taken and given; None: NumPy arrays, on the emulator (or cgp.set_numpy_device's). Memory: memory_total_mb.

    Misuse is named and changes nothing: a sequence that was freed (also twice) or never was is an ArgumentError, no free page
    is a MemoryError.

    Raises: ArgumentError for a type that there is not and numbers out of range; DriverError where the device has no room
    for the pages.

    >>> cache = cgp.PagedKVCache(8, heads=1, d=8, dtype="float16")
    >>> s = cache.add_sequence()
    >>> cache.append(s, np.ones((3, 1, 8), np.float16), np.zeros((3, 1, 8), np.float16))
    >>> cache.get_seq_len(s), cache.num_free_pages
    (3, 7)
    """

    def __init__(self, pages, heads, d, *, page_size=16, dtype="bfloat16", pages_dtype=None, key_scale=1.0, value_scale=1.0,
                 device=None):
        for name, value in (("pages", pages), ("heads", heads), ("d", d), ("page_size", page_size)):
            if integer(value, f"PagedKVCache: {name}") < 1:
                raise ArgumentError(f"PagedKVCache: {name} = {value} must be at least 1")
            if value >= 2**32:
                raise ArgumentError(f"PagedKVCache: {name} = {value} must be below 2^32")
        if d % 8:
            raise ArgumentError(f"PagedKVCache: d = {d} must be a multiple of 8")
        if key_scale <= 0 or value_scale <= 0:
            raise ArgumentError(f"PagedKVCache: key_scale = {key_scale} and value_scale = {value_scale} must be positive")
        self.dtype, self.pages_dtype = _name_of(dtype), _name_of(pages_dtype or dtype)
        if self.dtype == "float8_e4m3fn" or self.pages_dtype not in (self.dtype, "float8_e4m3fn"):
            raise ArgumentError(f"PagedKVCache: tokens of {self.dtype} in pages of {self.pages_dtype}: tokens are float16 or bfloat16, "
                                "pages of the same type or float8_e4m3fn")
        self.pages, self.heads, self.d, self.page_size = pages, heads, d, page_size
        self._scales = float(key_scale), float(value_scale)
        self._handle, self._sequences = _core.kv_pages_new(pages, page_size), set()
        weakref.finalize(self, _core.kv_pages_free, self._handle)
        self._where = _Numpy() if device is None else _Torch(device)
        self._pool = self._where.memory((pages, 2, heads, page_size, d), self.pages_dtype)
        self._wrong, self._workspace = self._where.memory((1,), "int32"), (0, None)

    def __repr__(self):
        return (f"cgp.PagedKVCache({self.pages} pages of {self.page_size} tokens, {self.heads} heads of {self.d}, {self.pages_dtype}; "
                f"{self.num_free_pages} free)")

    # ------------------------------------------------------------ sequences
    def add_sequence(self):
        """A new sequence without tokens -> its number.

        >>> cgp.PagedKVCache(4, 1, 8).add_sequence()
        1

        Raises: MemoryError where the host has no memory left. A sequence without tokens needs no page.
        """
        return self._begun(_core.kv_add(self._handle))

    def _begun(self, sequence):
        self._sequences.add(sequence)
        return sequence

    def fork(self, sequence, tokens=None):
        """A sequence that begins with the first `tokens` (None: all) of another, whose pages it shares -> its number.

        >>> cache = cgp.PagedKVCache(4, 1, 8)
        >>> cache.fork(cache.add_sequence())
        2

        Raises: ArgumentError for a sequence that there is not, or more tokens than it has.
        """
        tokens = self.get_seq_len(sequence) if tokens is None else integer(tokens, "fork: tokens")
        return self._begun(_core.kv_fork(self._handle, sequence, tokens))

    def truncate(self, sequence, length):
        """Takes back the last tokens: `length` remain.

        >>> cache = cgp.PagedKVCache(4, 1, 8)
        >>> cache.truncate(cache.add_sequence(), 0)

        Raises: ArgumentError for a sequence that there is not, or a length beyond its own.
        """
        _core.kv_truncate(self._handle, sequence, integer(length, "truncate: length"))

    def free_sequence(self, sequence):
        """Gives its pages back; its number is never used again.

        >>> cache = cgp.PagedKVCache(4, 1, 8)
        >>> cache.free_sequence(cache.add_sequence())

        Raises: ArgumentError for a sequence that there is not.
        """
        _core.kv_free(self._handle, sequence)
        self._sequences.discard(sequence)

    def get_seq_len(self, sequence):
        """Its tokens.

        >>> cache = cgp.PagedKVCache(4, 1, 8)
        >>> cache.get_seq_len(cache.add_sequence())
        0

        Raises: ArgumentError for a sequence that there is not.
        """
        return _core.kv_length(self._handle, sequence)

    @property
    def num_free_pages(self):
        """Pages that no sequence has."""
        return _core.kv_pages_left(self._handle)

    @property
    def memory_total_mb(self):
        """Megabytes (2^20 bytes) of all pages."""
        return self.pages * 2 * self.heads * self.page_size * self.d * _BYTES[self.pages_dtype] / 2**20

    @property
    def memory_used_mb(self):
        """Of the pages that sequences have."""
        return self.memory_total_mb * (self.pages - self.num_free_pages) / self.pages

    def memory_report(self, longest=(256, 512, 1024, 2048, 4096)):
        """What the pages of all sequences take, with tables of 4 bytes a page, beside caches that have room for `longest` tokens of
        each -> [{"longest", "paged_mb", "contiguous_mb", "saved"}], saved: the share that is not needed.

        >>> cache = cgp.PagedKVCache(64, heads=2, d=64)
        >>> s = cache.add_sequence()
        >>> cache.memory_report([4096])[0]["saved"]
        1.0

        Raises: TypeError for what is no list of numbers.
        """
        page = self.memory_total_mb / self.pages
        tables = sum(-(-self.get_seq_len(s) // self.page_size) for s in self._sequences)
        paged = self.memory_used_mb + tables * 4 / 2**20
        room = [(n, len(self._sequences) * -(-n // self.page_size) * page) for n in longest]
        return [{"longest": n, "paged_mb": paged, "contiguous_mb": mb, "saved": 1 - paged / mb if mb else 0.0} for n, mb in room]

    # ------------------------------------------------------------ tokens
    def append(self, sequences, k, v):
        """Adds tokens. One sequence: k, v [tokens, heads, d]; a list of them: [sequences, tokens, heads, d].

        >>> cache = cgp.PagedKVCache(4, heads=2, d=8, dtype="float16")
        >>> cache.append(cache.add_sequence(), np.ones((5, 2, 8), np.float16), np.ones((5, 2, 8), np.float16))

        Raises: ArgumentError for a sequence that there is not or shapes and types that do not fit; MemoryError
        without enough free pages: nothing is appended.
        """
        several = not isinstance(sequences, int)
        of = list(sequences) if several else [sequences]
        lead = (len(of),) if several else ()
        k = self._where.check("k", k, (*lead, None, self.heads, self.d), self.dtype)
        v = self._where.check("v", v, tuple(k.shape), self.dtype)
        slots = self._extend(of, k.shape[len(lead)])
        with self._where.session() as on:
            self._append(on, k, v, on.numbers(slots, "uint64", (len(slots),)))

    def _extend(self, of, tokens):
        """Room for so many more tokens in each of these, or in none -> where they go."""
        if len(set(of)) != len(of):
            raise ArgumentError("PagedKVCache: a sequence is named twice")
        lengths, copies, slots = [self.get_seq_len(s) for s in of], [], (ctypes.c_uint64 * (len(of) * tokens))()
        try:
            for i, s in enumerate(of):
                copies.append(_core.kv_extend(self._handle, s, tokens, ctypes.addressof(slots) + 8 * tokens * i))
        except BaseException:
            self._copy(copies)
            for s, n in zip(of[:len(copies)], lengths):
                _core.kv_truncate(self._handle, s, n)
            raise
        self._copy(copies)
        return slots

    def _append(self, on, k, v, slots):
        flat = (-1, self.heads, self.d)
        on.call(_core.kv_append, on.put(k.reshape(flat)), on.put(v.reshape(flat)), slots, self._scales, self._wrong, self._pool)

    def _copy(self, copies):
        with self._where.session() as on:
            for c in copies:
                if c[2]:
                    on.call(_core.kv_copy, self._pool, c)

    def _tables(self, of, share=0, columns=0):
        """(tables [sequences, columns], lengths, the tokens that each `share` neighbours have in common), on the host."""
        lengths = (ctypes.c_int32 * len(of))(*(self.get_seq_len(s) for s in of))
        columns = columns or max(-(-max(lengths, default=0) // self.page_size), 1)
        named, tables = (ctypes.c_uint64 * len(of))(*of), (ctypes.c_int32 * (len(of) * columns))()
        _core.kv_tables(self._handle, ctypes.addressof(named), len(of), columns, ctypes.addressof(tables))
        common = []
        for first in range(0, len(of), share) if share else ():
            group = [tables[i * columns:(i + 1) * columns] for i in range(first, min(first + share, len(of)))]
            same = next((c for c, pages in enumerate(zip(*group)) if len(set(pages)) > 1), columns)
            common.append(min(same * self.page_size, *lengths[first:first + share], max(lengths)))
        return tables, lengths, (ctypes.c_int32 * len(common))(*common)

    def _on_device(self, on, tables, lengths, common):
        return (on.numbers(tables, "int32", (len(lengths), len(tables) // max(len(lengths), 1))),
                on.numbers(lengths, "int32", (len(lengths),)), on.numbers(common, "int32", (len(common),)) if len(common) else None)

    def read(self, sequences):
        """(k, v) of one sequence [tokens, heads, d]; of a list of them [sequences, heads, longest, d], with zeros behind the shorter.

        >>> cache = cgp.PagedKVCache(4, heads=1, d=8, dtype="float16")
        >>> cache.read(cache.add_sequence())[0].shape
        (0, 1, 8)

        Raises: ArgumentError for a sequence that there is not.
        """
        several = not isinstance(sequences, int)
        of = list(sequences) if several else [sequences]
        tables, lengths, _ = self._tables(of)
        with self._where.session() as on:
            table, there, _ = self._on_device(on, tables, lengths, ())
            k, v = self._gather(on, table, there, (len(of), self.heads, max(lengths, default=0), self.d))
        return (k, v) if several else (k[0].swapaxes(0, 1), v[0].swapaxes(0, 1))

    def _gather(self, on, table, lengths, shape):
        (k, k_result), (v, v_result) = on.empty(shape, self.dtype), on.empty(shape, self.dtype)
        on.call(_core.kv_gather, self._pool, table, lengths, self._scales, self._wrong, k, v)
        return k_result(), v_result()

    def attend(self, q, sequences, scale=0.0, share=0):
        """Attention of the last tokens of each sequence over all of its tokens, straight from the pages: query i of n sees keys up to
        length - n + i. q: [sequences, heads of queries, n, d] -> the same shape. scale 0: 1 / sqrt(d). share: so many neighbours in
        `sequences` (of the last group fewer) were forked from one another: the pages that all of them begin with are read once for
        several of them, in the same launch. That pays where they have most of their tokens in common.

        >>> cache = cgp.PagedKVCache(4, heads=1, d=64, dtype="float16")
        >>> s, x = cache.add_sequence(), np.ones((1, 1, 64), np.float16)
        >>> cache.append(s, x, x)
        >>> float(cache.attend(x[None], [s])[0, 0, 0, 0])
        1.0

        Raises: ArgumentError for a sequence that there is not or a query that does not fit; Unsupported for head
        dimensions that no kernel has.
        """
        of, share = list(sequences), self._share(share, len(sequences))
        q = self._query(q, of)
        tables, lengths, common = self._tables(of, share)
        with self._where.session() as on:
            return self._attend(on, q, *self._on_device(on, tables, lengths, common), scale, share, max(lengths, default=0))

    @staticmethod
    def _share(share, count):
        if integer(share, "share") < 0:
            raise ArgumentError(f"PagedKVCache: share = {share} must be at least 0")
        return share if share > 1 and count > 1 else 0

    def _query(self, q, of):
        q = self._where.check("q", q, (len(of), None, None, self.d), self.dtype)
        if q.shape[1] % self.heads:
            raise ArgumentError(f"PagedKVCache: q has {q.shape[1]} heads, which are no multiple of the cache's {self.heads}")
        for s in of:
            if self.get_seq_len(s) < q.shape[2]:
                raise ArgumentError(f"PagedKVCache: q has {q.shape[2]} queries, sequence {s} has {self.get_seq_len(s)} tokens")
        return q

    def _attend(self, on, q, table, lengths, common, scale, share, longest):
        scales = self._scales if self.pages_dtype != self.dtype else None
        put, (o, result) = on.put(q), on.empty(tuple(q.shape), self.dtype)
        if q.shape[0] and q.shape[1] and q.shape[2]:
            size = on.call(_core.paged_attention_workspace, put, self._pool, table, scale, False, longest, scales, share)
            if self._workspace[1] is None or self._workspace[0] < size:
                self._workspace = size, self._where.memory((-(-size // 4) or 1,), "int32")
            on.call(_core.paged_attention, put, self._pool, table, lengths, scale, False, longest, self._workspace[1], self._wrong, o,
                    scales, share, common)
        return result()

    def steps(self, sequences, longest, tokens=1, share=0):
        """Steps that append `tokens` to each of these sequences, none of which gets longer than `longest`, and attend over them: what
        append() and attend() of the result read stays where it is, so that they can be captured in a CUDA graph and replayed
        after each advance(), which makes room and tells the device about it.

        >>> cache = cgp.PagedKVCache(4, heads=1, d=64, dtype="float16")
        >>> step, x = cache.steps([cache.add_sequence()], longest=32), np.ones((1, 1, 1, 64), np.float16)
        >>> for _ in range(3):
        ...     step.advance()
        ...     step.append(x, x)
        >>> float(step.attend(x)[0, 0, 0, 0])
        1.0

        Raises: ArgumentError for a sequence that there is not, or longest or tokens below 1.
        """
        return PagedSteps(self, sequences, longest, tokens, share)


class PagedSteps:
    """What PagedKVCache.steps() gives. Call append() and attend() once before they are captured: kernels and memory are made then.

    Raises: what PagedKVCache.steps() raises.
    """

    def __init__(self, cache, sequences, longest, tokens, share):
        self._cache, self._of = cache, list(sequences)
        self.longest, self.tokens, self._shared = integer(longest, "steps: longest"), integer(tokens, "steps: tokens"), None
        if self.longest < 1 or self.tokens < 1:
            raise ArgumentError(f"PagedKVCache: longest = {longest} and tokens = {tokens} must be at least 1")
        for s in self._of:
            cache.get_seq_len(s)
        self.share, memory, n = cache._share(share, len(self._of)), cache._where.memory, len(self._of)
        self._columns = -(-self.longest // cache.page_size)
        self._table, self._lengths = memory((n, self._columns), "int32"), memory((n,), "int32")
        self._slots = memory((n * self.tokens,), "int64")
        if self.share:
            self._shared = memory((-(-n // self.share),), "int32")

    def advance(self):
        """Room for the next tokens of every sequence; nothing happens where there is none.

        Raises: ArgumentError where a sequence would be longer than `longest`; MemoryError without enough free pages.
        """
        cache = self._cache
        for s in self._of:
            if cache.get_seq_len(s) + self.tokens > self.longest:
                raise ArgumentError(f"PagedKVCache: sequence {s} would have {cache.get_seq_len(s) + self.tokens} tokens, longest is "
                                    f"{self.longest}")
        slots = cache._extend(self._of, self.tokens)
        tables, lengths, common = cache._tables(self._of, self.share, self._columns)
        for memory, numbers in ((self._slots, slots), (self._table, tables), (self._lengths, lengths), (self._shared, common)):
            if len(numbers):
                cache._where.write(memory, numbers)

    def append(self, k, v):
        """The tokens that advance() made room for: k, v [sequences, tokens, heads, d].

        Raises: ArgumentError for shapes and types that do not fit.
        """
        cache = self._cache
        shape = (len(self._of), self.tokens, cache.heads, cache.d)
        k, v = (cache._where.check(name, x, shape, cache.dtype) for name, x in (("k", k), ("v", v)))
        with cache._where.session() as on:
            cache._append(on, k, v, self._slots)

    def read(self):
        """(k, v) [sequences, heads, longest, d], with zeros behind the tokens that there are.

        Raises: DriverError from a GPU.
        """
        cache = self._cache
        with cache._where.session() as on:
            return cache._gather(on, self._table, self._lengths, (len(self._of), cache.heads, self.longest, cache.d))

    def attend(self, q, scale=0.0):
        """PagedKVCache.attend() over these sequences: q [sequences, heads of queries, n, d].

        Raises: what PagedKVCache.attend() raises.
        """
        cache = self._cache
        q = cache._query(q, self._of)
        with cache._where.session() as on:
            return cache._attend(on, q, self._table, self._lengths, self._shared, scale, self.share, self.longest)
