# SPDX-License-Identifier: Apache-2.0
"""Tensor parallelism on the GPUs of one host, with torch.distributed's processes as they are (torchrun, mpirun):

>>> torch.distributed.init_process_group("gloo")                      # doctest: +SKIP
>>> all = cgp.distributed.Communicator()                              # doctest: +SKIP
>>> cgp.distributed.tensor_parallel(model, all)                       # doctest: +SKIP

All processes make the same calls in the same order. Collectives run on the current stream and may be captured in CUDA graphs."""
import torch
import torch.distributed

from . import _core
from ._runtime import ArgumentError, Unsupported, device
from ._torch import expect, queue

__all__ = ["Communicator", "ColumnParallelLinear", "RowParallelLinear", "tensor_parallel"]


class Communicator:
    """The ranks of a process group, whose GPUs read each other's memory. 1 to 16 ranks, all on one host.

    group: of torch.distributed; None: the default one. It is used here alone, to exchange addresses. cuda_device: this rank's GPU; None: the
    current one. bytes: of staging memory that each rank gives; what is longer goes in pieces. may_share: ranks may have one GPU, to try
    programs.

    If a process ends without close(), the others notice at once, say so and end.

    Raises: ArgumentError where ranks do not agree or share a GPU; Unsupported where they are on several hosts or memory cannot be shared.
    """

    def __init__(self, group=None, *, cuda_device=None, bytes=64 << 20, may_share=False):
        if not torch.distributed.is_initialized():
            raise ArgumentError("Communicator: torch.distributed has no process group; call torch.distributed.init_process_group first")
        self.rank, self.size = torch.distributed.get_rank(group), torch.distributed.get_world_size(group)
        if self.rank < 0:
            raise ArgumentError("Communicator: this process is no member of the group")
        if not torch.cuda.is_available():
            raise Unsupported("Communicator: PyTorch sees no GPU, and memory of others cannot be shared between processes")
        index = torch.cuda.current_device() if cuda_device is None else torch.device(cuda_device).index or 0
        self.device = torch.device("cuda", index)

        def all_gather(own):
            everyone = [None] * self.size
            torch.distributed.all_gather_object(everyone, own, group)
            return b"".join(everyone)

        self._handle = None
        with torch.cuda.device(index):
            self._handle = _core.communicator_new(device(f"cuda:{index}")._handle, self.rank, self.size, all_gather, bytes, may_share)

    def close(self):
        """Waits for this rank's work and leaves. The others go on without it, as long as they make no call that needs it.

        Raises: DriverError for what went wrong before."""
        if self._handle is not None:
            torch.cuda.synchronize(self.device)
            _core.communicator_free(self._handle)
            self._handle = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _open(self):
        if self._handle is None:
            raise ArgumentError("this Communicator is closed")
        return self._handle

    def _like(self, op, x, out, size):
        expect(x.is_contiguous(), op, "x", "it must be contiguous")
        if out is None:
            return x.new_empty(size)
        expect(out.is_contiguous(), op, "out", "it must be contiguous")
        return out

    def all_reduce(self, x, out=None):
        """The sum of x over the ranks, in f32 in their order, rounded once; all get the same bits. out may be x.

        Raises: ArgumentError for tensors that do not fit each other, are not contiguous, or not of float32, float16 or bfloat16."""
        out = self._like("all_reduce", x, out, x.shape)
        queue(_core.all_reduce, x, self._open(), x, out)
        return out

    def all_gather(self, x, out=None):
        """x of all ranks, one behind the other along dimension 0. x may be this rank's part of out.

        Raises: ArgumentError for tensors that do not fit each other or are not contiguous."""
        out = self._like("all_gather", x, out, (self.size * x.shape[0],) + tuple(x.shape[1:]) if x.dim() else (self.size,))
        queue(_core.all_gather, x, self._open(), x, out)
        return out

    def _part(self, op, x):
        expect(x.dim() >= 1 and x.shape[0] % self.size == 0, op, "x",
               f"dimension 0 must be a multiple of the {self.size} ranks; it is {list(x.shape)}")
        return (x.shape[0] // self.size,) + tuple(x.shape[1:])

    def reduce_scatter(self, x, out=None):
        """This rank's part, along dimension 0, of the sum of x over the ranks.

        Raises: ArgumentError for tensors that do not fit each other, are not contiguous, or not of float32, float16 or bfloat16."""
        out = self._like("reduce_scatter", x, out, self._part("reduce_scatter", x))
        queue(_core.reduce_scatter, x, self._open(), x, out)
        return out

    def all_to_all(self, x, out=None):
        """Part `rank` of x of every rank, one behind the other along dimension 0.

        Raises: ArgumentError for tensors that do not fit each other or are not contiguous."""
        self._part("all_to_all", x)
        out = self._like("all_to_all", x, out, x.shape)
        queue(_core.all_to_all, x, self._open(), x, out)
        return out

    def broadcast(self, x, root=0):
        """x becomes that of rank `root`; returns it.

        Raises: ArgumentError for a root that is none, or a tensor that is not contiguous."""
        queue(_core.broadcast, x, self._open(), root, self._like("broadcast", x, x, None))
        return x

    def barrier(self):
        """What comes behind it on the current stream runs once all ranks have come to it.

        Raises: ArgumentError when closed."""
        with torch.cuda.device(self.device):
            _core.barrier(_core.torch_stream(self.device.index), self._open())

    def _product(self, function, x, weight, rows):
        flat = x.reshape(-1, x.shape[-1]).contiguous()
        y = x.new_empty((rows(flat.shape[0]), weight.shape[0]))
        queue(function, flat, self._open(), flat, weight, y)
        return y

    def all_gather_linear(self, x, weight):
        """(x of all ranks, rows one under the other) weight', in one launch: x [..., k], weight [n, k], result [ranks * rows, n].

        Raises: ArgumentError for tensors that do not fit; Unsupported off sm_90a, or for n or k that are no multiples of 8."""
        return self._product(_core.all_gather_gemm, x, weight, lambda m: m * self.size)

    def linear_reduce_scatter(self, x, weight):
        """This rank's rows of the sum over the ranks of x weight', in one launch: x [..., k], result [rows / ranks, n].

        Raises: ArgumentError for tensors that do not fit; Unsupported off sm_90a, or for n or k that are no multiples of 8."""
        self._part("linear_reduce_scatter", x.reshape(-1, x.shape[-1]))
        return self._product(_core.gemm_reduce_scatter, x, weight, lambda m: m // self.size)

    def linear_all_reduce(self, x, weight):
        """The sum over the ranks of x weight', on all ranks: x [..., k], weight [n, k], result [..., n]. Any shape.

        Raises: ArgumentError for tensors that do not fit; Unsupported for tensors that do not begin at multiples of 16 bytes."""
        return self._product(_core.gemm_all_reduce, x, weight, lambda m: m).view(x.shape[:-1] + weight.shape[:1])


def _share(what, extent, all):
    if extent % all.size:
        raise ArgumentError(f"tensor_parallel: {what} are {extent}, which {all.size} ranks cannot share evenly")
    each = extent // all.size
    return slice(all.rank * each, (all.rank + 1) * each)


class ColumnParallelLinear(torch.nn.Linear):
    """This rank's outputs of a linear layer: y = x W[part]' + b[part]. For inference.

    Raises: ArgumentError where the ranks cannot share its outputs evenly."""

    def __init__(self, linear, all):
        part = _share(f"outputs of a layer of {linear.in_features} x {linear.out_features}", linear.out_features, all)
        torch.nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, part.stop - part.start
        self.weight = torch.nn.Parameter(linear.weight.detach()[part].clone(), requires_grad=False)
        self.bias = None if linear.bias is None else torch.nn.Parameter(linear.bias.detach()[part].clone(), requires_grad=False)


class RowParallelLinear(torch.nn.Module):
    """A linear layer whose inputs are shared out: y = the sum over the ranks of x W[:, part]' + b, on all ranks. For inference.

    Raises: ArgumentError where the ranks cannot share its inputs evenly."""

    def __init__(self, linear, all):
        super().__init__()
        part = _share(f"inputs of a layer of {linear.in_features} x {linear.out_features}", linear.in_features, all)
        self.in_features, self.out_features, self._all = part.stop - part.start, linear.out_features, all
        self.weight = torch.nn.Parameter(linear.weight.detach()[:, part].clone(), requires_grad=False)
        self.bias = None if linear.bias is None else torch.nn.Parameter(linear.bias.detach().clone(), requires_grad=False)

    def forward(self, x):
        """y as above.

        Raises: ArgumentError for another number of inputs."""
        y = self._all.linear_all_reduce(x, self.weight)
        return y if self.bias is None else y + self.bias


_COLUMNS, _ROWS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"), ("o_proj", "down_proj")


def tensor_parallel(model, all):
    """Shares the layers of a Hugging Face model out to the ranks, in place: attention by heads, the MLP by its inner size (Shoeybi et al.,
    arXiv:1909.08053). For models with layers named q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj and down_proj: Llama, Qwen, Mistral and
    their like. f16 or bf16; every rank has loaded the whole model. Then cgp.patch(model) may follow. Returns the model.

    Raises: ArgumentError where heads or sizes cannot be shared evenly, and for models without such layers; nothing is changed then."""
    heads = getattr(model.config, "num_attention_heads", None), getattr(model.config, "num_key_value_heads", None)
    for count, what in zip(heads, ("attention heads", "key and value heads")):
        if count is not None:
            _share(what, count, all)
    found = []
    for name, module in model.named_modules():
        for child, linear in module.named_children():
            if child in _COLUMNS + _ROWS:
                if type(linear) is not torch.nn.Linear:
                    raise ArgumentError(f"tensor_parallel: {name}.{child} is {type(linear).__name__}; it must be torch.nn.Linear")
                found.append((module, child, (ColumnParallelLinear if child in _COLUMNS else RowParallelLinear)(linear, all)))
    if not found:
        raise ArgumentError(f"tensor_parallel: {type(model).__name__} has no layers named {', '.join(_COLUMNS + _ROWS)}")
    for module, child, parallel in found:
        setattr(module, child, parallel)
    return model
