# SPDX-License-Identifier: Apache-2.0
"""A training step as one CUDA graph: loss and gradients of a model, without the host between the kernels."""
import contextlib
import itertools

import torch

from . import _patch
from ._ops_table import _embedding_backward, _embedding_gradient_accumulate
from ._runtime import ArgumentError
from ._torch import FLOATS


_GLOBAL_HOOKS = "forward", "forward_pre", "backward", "backward_pre"


def _hooks(m):
    return m._forward_hooks or m._forward_pre_hooks or m._backward_hooks or m._backward_pre_hooks


def _watched(p):
    return p._backward_hooks or getattr(p, "_post_accumulate_grad_hooks", None)


class _Seen:
    """A model's modules and parameters, walked once: what each call asks of them must not cost the host more than the launch."""

    def __init__(self, model):
        self.modules, self.parameters = tuple(model.modules()), tuple(model.parameters())
        self.places = [d for m in self.modules for d in (m._modules, m._parameters)]
        self.there = self.now()

    def now(self):
        return tuple(map(id, itertools.chain.from_iterable(map(dict.values, self.places))))

    def memory(self):
        return [(p.data_ptr(), p.requires_grad) for p in self.parameters]

    def hooked(self):
        return any(map(_hooks, self.modules)) or any(map(_watched, self.parameters))


class _Recorded:
    """What function() queues, as a graph; function gives tensors that stay where they are."""

    def __init__(self, function, pool):
        self.graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.current_stream()
        try:
            with torch.cuda.graph(self.graph, pool=pool):
                self.result = function()
        except RuntimeError:
            # What ends a recording threw before it gave back the stream and the state of random numbers.
            torch.cuda.set_stream(stream)
            generator = torch.cuda.default_generators[stream.device_index]
            generator.graphsafe_set_state(generator.clone_state())
            raise

    def replay(self):
        self.graph.replay()


@contextlib.contextmanager
def _beside():
    """Another stream than the current one: where work is tried before it is recorded."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream().wait_stream(stream)


class _Looked(torch.autograd.Function):
    """Rows of a table, whose gradient is noted: that of a table which is the last layer's weight, too, need not be as large as the
    table to be added."""

    @staticmethod
    def forward(ctx, weight, indices, padding, notes):
        ctx.save_for_backward(indices)
        ctx.padding, ctx.notes = -1 if padding is None else padding, notes
        ctx.set_materialize_grads(False)
        return torch.nn.functional.embedding(indices, weight, padding)

    @staticmethod
    def backward(ctx, d):
        if d is not None:
            ctx.notes.append((d, *ctx.saved_tensors, ctx.padding))
        return None, None, None, None


def _is_table(module):
    """Whether it is an embedding as PyTorch makes it, of a kind that our gradient is for."""
    weight = module._parameters.get("weight")
    return (type(module) is torch.nn.Embedding and "forward" not in module.__dict__ and module.max_norm is None and
            not module.scale_grad_by_freq and not module.sparse and type(weight) is torch.nn.Parameter and weight.requires_grad and
            weight.dtype in FLOATS and weight.is_contiguous() and _there(weight))


@contextlib.contextmanager
def _noted_tables(model, notes):
    """Embeddings put what their gradients are made of into notes: {table: [(of the result, indices, padding), ...]}."""
    tables = [m for m in model.modules() if _is_table(m)]

    def noting(m):
        return lambda indices: _Looked.apply(m.weight, indices, m.padding_idx, notes.setdefault(m._parameters["weight"], []))

    try:
        for m in tables:
            m.forward = noting(m)
        yield
    finally:
        for m in tables:
            del m.forward


@contextlib.contextmanager
def _stand_ins(model):
    """In the model's modules, another parameter over the same memory in place of each: {parameter: stand-in}. Autograd runs what
    ends at a parameter on the stream where that end was first made, and keeps it while any earlier loss is alive: on the legacy
    stream, which a recording must not wait for. Stand-ins have ends of their own."""
    stand_ins, places = {}, []
    for module in model.modules():
        for name, p in module._parameters.items():
            if p is not None and type(p) is torch.nn.Parameter:
                if p not in stand_ins:
                    stand_ins[p] = torch.nn.Parameter(p.detach(), p.requires_grad)
                places.append((module, name, p))
    try:
        for module, name, p in places:
            module._parameters[name] = stand_ins[p]
        yield stand_ins
    finally:
        for module, name, p in places:
            module._parameters[name] = p


def _gradients(loss, seed, parameters, stand_ins, notes):
    """Of each parameter, through its stand-in and where a module holds on to the parameter itself, in memory of its own; None: it
    has no part."""
    of = [p for p in parameters if p in stand_ins]
    found = torch.autograd.grad(loss, [*parameters, *(stand_ins[p] for p in of)], seed, allow_unused=True)
    through = dict(zip(of, found[len(parameters):]))
    both = zip(found, map(through.get, parameters))
    gradients = _apart(parameters, [other if own is None else own if other is None else own + other for own, other in both])
    for i, p in enumerate(parameters):
        for d, indices, padding in notes.get(stand_ins.get(p), ()):
            if gradients[i] is None:
                gradients[i] = _embedding_backward(d, indices, p.shape[0], padding)
            else:
                _embedding_gradient_accumulate(gradients[i], d, indices, padding)
    return gradients


def _there(t):
    return t.is_cuda


def _pool():
    return torch.cuda.graph_pool_handle()


def _dense(t):
    return t.is_contiguous() or (t.dim() == 2 and t.t().is_contiguous())


def _apart(parameters, gradients):
    """Each gradient in memory of its own, laid out as its parameter, as backward() leaves them."""
    seen, out = {}, []
    for p, g in zip(parameters, gradients):
        if g is not None:
            if g.layout is not torch.strided:
                raise RuntimeError("gradients are sparse")
            first, last = (g.storage_offset(), g.storage_offset() + g.numel()) if _dense(g) else (0, g.untyped_storage().nbytes())
            others = seen.setdefault(g.untyped_storage().data_ptr(), [])
            if g.stride() != p.stride() or any(first < b and a < last for a, b in others):
                g = torch.empty_like(p).copy_(g)
            else:
                others.append((first, last))
        out.append(g)
    return out


class _Entry:
    """A recorded step: what is copied in, what comes out."""
    __slots__ = ("recorded", "inputs", "loss", "parameters", "gradients", "memory", "generation")


class TrainingStep:
    """loss = step(**inputs) does what `loss = model(**inputs).loss; loss.backward()` does, as one CUDA graph for each set of
    shapes: the host queues a copy of the inputs and one launch. For models of transformers, patched by cgp.patch or not, and
    for every module whose result has a `loss` (or that `loss_of` finds one in).

    Gradients are added to those that are there, as backward() adds them; after zero_grad(set_to_none=True), which is PyTorch's
    default and costs nothing, the parameters' .grad are tensors of the graph, which the next step with these shapes writes. The
    optimizer stays outside. The loss that is returned is detached, and a copy.

    What cannot be recorded runs as usual: modules or parameters with hooks (also those of DistributedDataParallel), a forward
    pass that waits for the device, more than `most` sets of shapes. `step.report` says for each set of shapes which it was.
    A graph is recorded again when parameters were replaced, after the model ran `warmup` times; what Python decides in the forward
    pass is that of the recording, also what cgp.patch put there: patch first. Memory: that of a step, for all graphs together, and gradients for each.

    step.scale = 1 / 8 multiplies gradients (not the loss returned), without another recording.

    >>> step = cgp.TrainingStep(model)
    >>> for ids in batches:
    ...     loss = step(input_ids=ids, labels=ids)
    ...     optimizer.step()
    ...     optimizer.zero_grad()

    With an optimizer of cgp.optim (whose max_norm clips) the graph holds its step, too, and parameters have no .grad afterwards. With
    accumulate=n every n-th call takes the step, with the mean of the gradients of n calls (added up in float32); `schedule` (of torch.optim.lr_scheduler) goes on
    after each step, and its rates are sent to the device before the next.

    >>> optimizer = cgp.optim.AdamW(model.parameters(), lr=3e-4, max_norm=1.0)
    >>> step = cgp.TrainingStep(model, optimizer=optimizer, accumulate=4, schedule=schedule)
    >>> for ids in batches:
    ...     loss = step(input_ids=ids, labels=ids)
    """

    def __init__(self, model, *, loss_of=lambda out: out.loss, warmup=2, most=4, optimizer=None, accumulate=1, schedule=None):
        if warmup < 1 or most < 1 or accumulate < 1:
            raise ArgumentError(f"cgp.TrainingStep: warmup, most and accumulate must be at least 1; they are {warmup}, {most} and {accumulate}")
        if optimizer is not None and not hasattr(optimizer, "rehearse"):
            raise ArgumentError(f"cgp.TrainingStep: the optimizer is a {type(optimizer).__name__}; it must be one of cgp.optim")
        if optimizer is None and (accumulate > 1 or schedule is not None):
            raise ArgumentError("cgp.TrainingStep: accumulate and schedule are for steps with an optimizer; without one gradients are added to "
                                "those that are there")
        self._optimizer, self._schedule, self._accumulate, self._calls, self._sums = optimizer, schedule, accumulate, 0, {}
        self.model, self.report, self.scale = model, {}, 1.0
        self._loss_of, self._warmup, self._most = loss_of, warmup, most
        self._entries, self._why, self._pool, self._seed, self._seen = {}, {}, None, None, None

    def __call__(self, *arguments, **inputs):
        if arguments:
            raise ArgumentError("cgp.TrainingStep: inputs are given by name: step(input_ids=ids, labels=ids)")
        if not torch.is_grad_enabled():
            raise ArgumentError("cgp.TrainingStep: gradients are switched off here (torch.no_grad)")
        seen = self._look()
        takes = self._optimizer is not None and self._calls % self._accumulate == self._accumulate - 1
        key, why = (self._key(inputs), takes), self._hooked(seen) or self._asked(inputs)
        entry = None if why else self._entries.get(key)
        generation = self._optimizer.generation if takes else 0
        if entry is not None and (entry.memory != seen.memory() or entry.generation != generation):
            entry = self._entries.pop(key)  # and its memory may go
            entry = None
        if entry is None and not why:
            entry, why = self._record(key, inputs, seen)
        self.report[self._named(inputs)] = why or "one graph"
        if takes:
            self._optimizer.write_groups()
        loss = self._usual(inputs, takes) if entry is None else self._replay(entry, inputs)
        if self._optimizer is not None:
            self._calls += 1
        if takes and self._schedule is not None:
            self._schedule.step()
        return loss

    # ------------------------------------------------------------ what a graph is for
    def _key(self, inputs):
        def one(value):
            if torch.is_tensor(value):
                return tuple(value.shape), value.dtype
            if value is None or isinstance(value, (bool, int, float, str)):
                return value
            return type(value), id(value)

        modes = (self.model.training, torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda"),
                 torch.are_deterministic_algorithms_enabled())
        return modes, tuple((name, one(inputs[name])) for name in sorted(inputs))

    @staticmethod
    def _named(inputs):
        return ", ".join(f"{name} {list(v.shape) if torch.is_tensor(v) else v}" for name, v in sorted(inputs.items()))

    def _look(self):
        """The model's modules and parameters as they are now."""
        if self._seen is None or self._seen.there != self._seen.now():
            self._seen = _Seen(self.model)
        return self._seen

    def _hooked(self, seen):
        if any(getattr(torch.nn.modules.module, f"_global_{kind}_hooks") for kind in _GLOBAL_HOOKS):
            return "there are hooks for all modules"
        if not seen.hooked():
            return ""
        for name, m in self.model.named_modules():
            if _hooks(m):
                return f"module {name or 'model'} has hooks"
        for name, p in self.model.named_parameters():
            if _watched(p):
                return f"parameter {name} has hooks"
        return "there are hooks"

    @staticmethod
    def _asked(inputs):
        for name, value in inputs.items():
            if torch.is_tensor(value) and value.requires_grad:
                return f"input {name} asks for a gradient"
        return ""

    # ------------------------------------------------------------ the usual way
    def _usual(self, inputs, takes):
        parameters = self._look().parameters
        if self._optimizer is not None:
            for p in parameters:
                p.grad = None
        loss = self._loss(inputs)
        loss.backward(torch.full_like(loss, self.scale / self._accumulate))
        if self._optimizer is not None:
            gradients = [p.grad for p in parameters]
            for p in parameters:
                p.grad = None
            self._stepped(parameters, gradients, self._optimizer.step if takes else None)
        return loss.detach()

    def _sum(self, p):
        """Where the gradients of several calls are added: float32 for parameters of 16 bits, too."""
        dtype = torch.promote_types(p.dtype, torch.float32)
        held = self._sums.get(p)
        if held is None or held.shape != p.shape or held.dtype is not dtype or held.device != p.device:
            held = self._sums[p] = torch.zeros_like(p, dtype=dtype, memory_format=torch.preserve_format)
        return held

    @torch.no_grad()
    def _stepped(self, parameters, gradients, step):
        """Adds gradients up and lets step() use them; both where there are such."""
        there = [(p, g) for p, g in zip(parameters, gradients) if g is not None]
        if self._accumulate > 1:
            torch._foreach_add_([self._sum(p) for p, _ in there], [g for _, g in there])
        if step is None:
            return
        if self._accumulate > 1:
            there = [(p, t.to(p.dtype)) for p, t in self._sums.items()]
        before = [p.grad for p, _ in there]
        for p, g in there:
            p.grad = g
        step()
        for (p, _), g in zip(there, before):
            p.grad = g
        if self._accumulate > 1:
            torch._foreach_zero_(list(self._sums.values()))

    def _loss(self, inputs):
        loss = self._loss_of(self.model(**inputs))
        if not torch.is_tensor(loss) or loss.dim():
            raise ArgumentError("cgp.TrainingStep: the model's loss must be a scalar: give it labels, or say where it is (loss_of)")
        return loss

    # ------------------------------------------------------------ graphs
    def _record(self, key, inputs, seen):
        """(entry, "") or (None, why not)"""
        if key in self._why:
            return None, self._why[key]
        if len(self._entries) >= self._most * (2 if self._accumulate > 1 else 1):
            return None, f"there are {self._most} graphs already (most)"
        if not (seen.parameters and all(map(_there, seen.parameters))):
            return None, "the model is not on a GPU"
        device = seen.parameters[0].device
        entry = _Entry()
        entry.inputs = {n: torch.empty_like(v, device=device).copy_(v) if torch.is_tensor(v) else v for n, v in inputs.items()}
        entry.parameters, entry.memory = [p for p in seen.parameters if p.requires_grad], seen.memory()
        buffers = [(b, b.clone()) for b in self.model.buffers()]
        cache = torch.is_autocast_cache_enabled()
        self._seeded(device)

        takes = key[1]
        entry.generation = 0

        def run():
            notes = {}
            with _stand_ins(self.model) as stand_ins, _noted_tables(self.model, notes):
                loss = self._loss(entry.inputs)
                seed = self._seed.to(loss.dtype) if self._seed.dtype is not loss.dtype else self._seed
                return loss.detach(), _gradients(loss, seed, entry.parameters, stand_ins, notes)

        def whole():
            loss, gradients = run()
            if self._optimizer is not None:
                self._stepped(entry.parameters, gradients, self._optimizer.step if takes else None)
            return loss, gradients

        try:
            torch.set_autocast_cache_enabled(False)  # a cast of a weight belongs into the graph
            states = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
            with _beside():
                for _ in range(self._warmup):
                    _, gradients = run()
                if self._optimizer is not None:  # nothing changes, but that all is there
                    sums = {p: t.clone() for p, t in self._sums.items()}
                    self._stepped(entry.parameters, gradients, self._optimizer.rehearse if takes else None)
                    for p, t in self._sums.items():
                        t.copy_(sums[p]) if p in sums else t.zero_()
                    entry.generation = self._optimizer.generation if takes else 0
            for b, was in buffers:
                b.copy_(was)
            if states is not None:
                torch.cuda.set_rng_state(states, device)
            if self._pool is None:
                self._pool = _pool()
            _patch.recording = object()
            entry.recorded = _Recorded(whole, self._pool)
            entry.loss, entry.gradients = entry.recorded.result
        except ArgumentError:
            raise
        except RuntimeError as e:  # what PyTorch says of work that cannot be recorded
            first = e.__context__ if isinstance(e.__context__, RuntimeError) else e
            self._pool = None  # it may wait for the rest of the recording
            self._why[key] = f"it cannot be recorded: {(str(first).strip() or type(first).__name__).splitlines()[0]}"
            return None, self._why[key]
        finally:
            _patch.recording = None
            torch.set_autocast_cache_enabled(cache)
        self._entries[key] = entry
        return entry, ""

    def _seeded(self, device):
        if self._seed is None:
            self._seed, self._seed_is = torch.empty((), device=device), None
        if self._seed_is != self.scale:
            self._seed.fill_(self.scale / self._accumulate)
            self._seed_is = self.scale

    def _replay(self, entry, inputs):
        for name, to in entry.inputs.items():
            if torch.is_tensor(to):
                to.copy_(inputs[name], non_blocking=True)
        self._seeded(entry.loss.device)
        if self._optimizer is not None:
            entry.recorded.replay()
            return entry.loss.clone()
        before, kept = [p.grad for p in entry.parameters], {}
        for i, (g, own) in enumerate(zip(before, entry.gradients)):
            if g is not None and own is not None and g is own:  # of an earlier step, and now to be added to
                kept[i] = g.clone()
        entry.recorded.replay()
        for i, (p, g, own) in enumerate(zip(entry.parameters, before, entry.gradients)):
            if own is None:
                continue
            if i in kept:
                own.add_(kept[i])
            elif g is None:
                p.grad = own
            else:
                g.add_(own)
        return entry.loss.clone()
