# SPDX-License-Identifier: Apache-2.0
"""Optimizers shaped as torch.optim's: one launch for all parameters, clipping and loss scales without waiting for the device.

>>> optimizer = cgp.optim.AdamW(model.parameters(), lr=3e-4, max_norm=1.0)
>>> loss.backward()
>>> optimizer.step()                     # clips, and steps
>>> optimizer.zero_grad()
"""
import torch

from . import _core, _optimizer, _torch
from ._optimizer import CONTROL, FOUND, NORM, RATES, ROW, RULES, SCALE, STATES
from ._runtime import ArgumentError, Unsupported, torch_cpu_device
from ._torch import CODES, FLOATS

__all__ = ["Adam", "Adam8bit", "AdamW", "AdamW8bit", "GradScaler", "Lion", "Muon", "SGD", "clip_grad_norm_", "orthogonal"]


def _memory(t):
    return t.data_ptr(), t.numel() * t.element_size()


def _dense(t):
    """Whether its elements fill memory without gaps, in some order of its dimensions."""
    if t.is_contiguous():
        return True
    step = 1
    for s, n in sorted((s, n) for n, s in zip(t.shape, t.stride()) if n != 1):
        if s != step:
            return False
        step *= n
    return True


def _laid_out_as(p, g):
    """g with its elements in the order of p's."""
    if (g.is_contiguous() and p.is_contiguous()) or g.stride() == p.stride():
        return g
    return torch.empty_like(p, dtype=g.dtype).copy_(g)


def _float_bits(control):
    return control.view(torch.float32)


class _Tables:
    """What the device reads, for one list of parameters that have gradients: the table of tensors, the blocks' work, the rates."""

    def __init__(self, owner, params, groups):
        self.params, self.groups, device = params, groups, params[0].device
        who = type(owner).__name__
        for p in params:
            if p.dtype not in FLOATS:
                raise ArgumentError(f"cgp.optim.{who}: a parameter is {p.dtype}; it must be float32, float16 or bfloat16")
            if p.device != device:
                raise ArgumentError(f"cgp.optim.{who}: parameters are on {device} and {p.device}; make one optimizer for each device")
            if not _dense(p):
                raise ArgumentError(f"cgp.optim.{who}: a parameter of shape {list(p.shape)} has gaps in memory: make it contiguous")
        self.rules = [owner._rule(owner.param_groups[g]) for g in groups]
        self.masters = [owner._master and p.dtype is not torch.float32 for p in params]
        self.dtypes = [p.dtype for p in params]
        self.states8 = [owner._codes(p) for p in params]
        keys = list(zip((CODES[p.dtype] for p in params), (CODES[p.grad.dtype] for p in params), self.masters, self.rules, self.states8))
        of = {}
        for i, key in enumerate(keys):
            of.setdefault(key, []).append(i)
        self.order = [i for key in of for i in of[key]]  # rows of the table
        self.buckets = [(rule, weight, gradient, master, owner._stochastic and weight == CODES[torch.bfloat16] and not master, states8,
                         len(rows)) for (weight, gradient, master, rule, states8), rows in of.items()]
        self.numbers = [owner._number(p) for p in params]
        self.key = None  # of the gradients that the table on the device names
        if device.type != "cuda":
            return
        n, chunks = len(params), _optimizer.chunks_of([params[i].numel() for i in self.order], [b[-1] for b in self.buckets])
        self.chunks = [torch.frombuffer(bytearray(c), dtype=torch.int32).to(device) if c else None for c in chunks]
        counts = [len(c) // 8 for c in chunks]
        self.partial = torch.zeros(max(sum(counts), 1), dtype=torch.float32, device=device)
        first = [sum(counts[:i]) for i in range(len(counts))]
        self.partials = [self.partial[a:a + c] for a, c in zip(first, counts)]
        self.table = torch.empty(n * ROW, dtype=torch.int64, device=device)
        self.rates = torch.zeros(n * RATES, dtype=torch.float32, device=device)
        self.spare = []  # pinned memory, for tables that a graph reads again whenever it is launched

    def rows(self, owner, gradients):
        """Words of the table, on the host."""
        words, params = [], self.params
        for i in self.order:
            p, state = params[i], owner.state[params[i]]
            moments = [state[name].data_ptr() for name in owner._names(self.rules[i], self.states8[i])] + [0, 0]
            master = state["absmax"].data_ptr() if self.states8[i] else state["master"].data_ptr() if self.masters[i] else 0
            words += [p.data_ptr(), gradients[i].data_ptr(), master, moments[0], moments[1], state["step"].data_ptr(), p.numel(),
                      self.groups[i] | self.numbers[i] << 32]
        return torch.tensor(words, dtype=torch.int64)


class _Optimizer(torch.optim.Optimizer):
    _step_supports_amp_scaling = True
    _moments = ()

    def __init__(self, params, defaults, max_norm, master, stochastic, seed):
        who = f"cgp.optim.{type(self).__name__}"
        if not max_norm >= 0:
            raise ArgumentError(f"{who}: max_norm must be at least 0; it is {max_norm}")
        for name in ("amsgrad", "differentiable"):
            if defaults.get(name):
                raise Unsupported(f"{who}: {name}=True is not there; take torch.optim's")
        self._max_norm, self._master, self._stochastic, self._seed = float(max_norm), master, stochastic, int(seed)
        self._forget()
        super().__init__(params, {**defaults, "foreach": None, "differentiable": False, "fused": None})
        for group in self.param_groups:
            self._words(group)

    def _forget(self):
        """What was made of parameters and states is made again."""
        self._kept = getattr(self, "_kept", [])
        self.generation = getattr(self, "generation", 0) + 1  # graphs that hold an earlier one's step are not for this one
        self._tables, self._control, self._groups_there, self._groups_sent, self._checks, self._numbers = None, None, None, None, False, None

    def __getstate__(self):
        state = super().__getstate__()
        state.update({name: getattr(self, name) for name in ("_max_norm", "_master", "_stochastic", "_seed")})
        return state

    def __setstate__(self, state):
        super().__setstate__(state)
        self._forget()

    def add_param_group(self, param_group):
        super().add_param_group(param_group)
        self._forget()

    # ------------------------------------------------------------ what differs between rules
    def _rule(self, group):
        raise NotImplementedError

    def _numbers_of(self, group):
        """beta1, beta2, eps"""
        return *group["betas"], group["eps"]

    def _words(self, group):
        lr = group["lr"]
        return _optimizer.group_words(0.0 if torch.is_tensor(lr) else lr, *self._numbers_of(group), group["weight_decay"],
                                      group.get("maximize", False), f"cgp.optim.{type(self).__name__}")

    def _number(self, p):
        """Of a parameter among all of them: what stochastic rounding counts it as."""
        if self._numbers is None:
            self._numbers = {id(q): i for i, q in enumerate(q for group in self.param_groups for q in group["params"])}
        return self._numbers[id(p)]

    # ------------------------------------------------------------ states
    def _codes(self, p):
        """Whether the states of p are of 8 bits."""
        return False

    def _names(self, rule, states8):
        return (("state1", "state2") if states8 else self._moments)[:STATES[rule]]

    def _prepare(self, p, rule, master, states8):
        state = self.state[p]
        step = state.get("step")
        if not torch.is_tensor(step) or step.device != p.device or step.dtype is not torch.float32 or step.dim():
            state["step"] = torch.tensor(float(step or 0), dtype=torch.float32, device=p.device)
        names = self._names(rule, states8)
        if states8 and "absmax" not in state:
            for name in names:
                state[name] = torch.zeros(p.numel(), dtype=torch.uint8, device=p.device)
            state["absmax"] = torch.zeros(len(names), -(-p.numel() // 256), dtype=torch.float32, device=p.device)
        for name in () if states8 else names:
            old = state.get(name)
            if old is None or old.dtype is not torch.float32 or old.device != p.device or old.stride() != p.stride():
                new = torch.zeros_like(p, dtype=torch.float32, memory_format=torch.preserve_format)
                state[name] = new if old is None else new.copy_(old)
        if master and "master" not in state:
            state["master"] = p.detach().to(torch.float32)

    def state_dict(self):
        """As torch.optim's, which loads it: steps are tensors on the CPU unless the group is capturable."""
        packed = super().state_dict()
        capturable = {i for group in packed["param_groups"] for i in group["params"] if group.get("capturable")}
        packed["state"] = {
            i: {name: value.detach().cpu() if name == "step" and torch.is_tensor(value) and i not in capturable else value
                for name, value in state.items()} if isinstance(state, dict) else state
            for i, state in packed["state"].items()}
        return packed

    @torch.no_grad()
    def load_state_dict(self, state_dict):
        """From an optimizer of this kind, ours or torch.optim's. Moments stay float32, whatever the parameters are."""
        super().load_state_dict(state_dict)
        saved = [i for group in state_dict["param_groups"] for i in group["params"]]
        own = [p for group in self.param_groups for p in group["params"]]
        for i, p in zip(saved, own):
            for name, value in state_dict["state"].get(i, {}).items():
                if torch.is_tensor(value) and name in ("state1", "state2", "absmax"):
                    self.state[p][name] = value.detach().to(device=p.device, copy=True)
                elif torch.is_tensor(value) and name != "step" and value.dtype is torch.float32:
                    self.state[p][name] = torch.empty_like(p, dtype=torch.float32).copy_(value)
                elif torch.is_tensor(value) and name == "step":
                    self.state[p][name] = value.detach().to(device=p.device, dtype=torch.float32, copy=True)
        self._forget()

    # ------------------------------------------------------------ the step
    @property
    def norm(self):
        """A tensor of one element: the norm of the gradients of the last step that clipped or checked them, before clipping."""
        return None if self._control is None else _float_bits(self._control)[NORM]

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        params = [p for group in self.param_groups for p in group["params"]]
        recording = bool(params) and params[0].is_cuda and torch.cuda.is_current_stream_capturing()
        key, tables = None if recording else _core.torch_key(params), self._tables
        gradients = None  # those that the device knows
        if tables is None or key is None or tables.key != key:
            tables, gradients = self._gather(params, recording)
        if tables is not None:
            self._launch(tables, gradients, key, recording)
        return loss

    def _gather(self, params, recording):
        """Tables and gradients of the parameters that have one."""
        there = [(p, p.grad, i) for i, group in enumerate(self.param_groups) for p in group["params"] if p.grad is not None]
        if not there:
            return None, None
        params, gradients, groups = map(list, zip(*there))
        who, tables = f"cgp.optim.{type(self).__name__}", self._tables
        if (tables is None or list(map(id, tables.params)) != list(map(id, params)) or tables.groups != groups or
                tables.dtypes != [p.dtype for p in params]):
            if recording:
                raise Unsupported(f"{who}: the first step with these parameters cannot be recorded: take one before the recording")
            if any(g.layout is not torch.strided for g in gradients):
                raise Unsupported(f"{who}: a gradient is sparse; take torch.optim.SparseAdam")
            tables = self._tables = _Tables(self, params, groups)
            for p, rule, master, states8 in zip(params, tables.rules, tables.masters, tables.states8):
                self._prepare(p, rule, master, states8)
        return tables, [_laid_out_as(p, g) for p, g in zip(params, gradients)]

    def _launch(self, tables, gradients, key, recording):
        device = tables.params[0].device
        if self._control is None:
            self._control = torch.zeros(CONTROL, dtype=torch.int32, device=device)
            _float_bits(self._control)[SCALE] = 1
        scale, found = getattr(self, "grad_scale", None), getattr(self, "found_inf", None)
        if scale is not None:
            _float_bits(self._control)[SCALE:SCALE + 1].copy_(scale.reshape(1))
        if found is not None:
            _float_bits(self._control)[FOUND:FOUND + 1].copy_(found.reshape(1))
        checks = self._max_norm > 0 or self._checks
        if device.type != "cuda":
            self._on_host(tables, gradients, checks, found is not None)
        elif device.index == torch.cuda.current_device():
            self._on_gpu(tables, gradients, key, recording, checks, found is not None)
        else:
            with torch.cuda.device(device):
                self._on_gpu(tables, gradients, key, recording, checks, found is not None)
        if scale is not None:
            _float_bits(self._control)[SCALE:SCALE + 1].fill_(1)

    def write_groups(self):
        """Sends learning rates and the like to the device where they changed: step() does, and a CUDA graph that holds step() finds them
        there. Not within a recording."""
        if self._control is None or self._control.device.type != "cuda":
            return
        words = [self._words(group) for group in self.param_groups]
        if self._groups_sent != words:
            if torch.cuda.is_current_stream_capturing():
                raise Unsupported(f"cgp.optim.{type(self).__name__}: rates changed in a recording: call write_groups() before it")
            values = torch.tensor(words, dtype=torch.float64).reshape(-1)
            if self._groups_there is None:
                self._groups_there = torch.empty(values.shape, dtype=torch.float64, device=self._control.device)
            self._groups_there.copy_(values.pin_memory(), non_blocking=True)
            self._groups_sent = words

    def rehearse(self):
        """A step that is left out, with the gradients that are there: what a recording of step() needs is made by it."""
        device = next(p.device for group in self.param_groups for p in group["params"] if p.grad is not None)
        self.found_inf = torch.ones(1, device=device)
        try:
            self.step()
        finally:
            del self.found_inf
        self._control[1] -= 1  # it does not count
        _float_bits(self._control)[FOUND] = 0

    def _on_gpu(self, tables, gradients, key, recording, checks, use_found):
        self.write_groups()
        for i, group in enumerate(self.param_groups):
            if torch.is_tensor(group["lr"]):
                self._groups_there[i * _optimizer.GROUP].copy_(group["lr"])
        table = tables.table
        if gradients is not None:
            rows = tables.rows(self, gradients)
            if recording:  # the graph has a table of its own, and writes it at each launch
                pinned, table = tables.spare.pop().copy_(rows), torch.empty_like(table)
                self._kept.append((pinned, table, tables))
            else:
                pinned = rows.pin_memory()
                copied = any(g is not p.grad for p, g in zip(tables.params, gradients))
                tables.key = None if copied else key
            table.copy_(pinned, non_blocking=True)
        while not recording and len(tables.spare) < 2:
            tables.spare.append(torch.empty(tables.table.shape, dtype=torch.int64, pin_memory=True))
        rates, control = tables.rates, self._control
        if checks:
            for (_, _, gradient, *_), chunks, partial in zip(tables.buckets, tables.chunks, tables.partials):
                if chunks is not None:
                    _core.optimizer_norm(None, gradient, table, chunks, partial)
        _core.optimizer_control(None, RULES[tables.buckets[0][0]], self._max_norm, int(use_found), 0, table, self._groups_there, control,
                                rates, tables.partial if checks else None)
        for (rule, weight, gradient, master, stochastic, states8, _), chunks in zip(tables.buckets, tables.chunks):
            if chunks is not None:
                _core.optimizer_update(None, RULES[rule], weight, gradient, int(master), int(stochastic), int(states8), self._seed, table,
                                       chunks, rates, control)

    def _on_host(self, tables, gradients, checks, use_found):
        params, device = tables.params, torch_cpu_device(f"cgp.optim.{type(self).__name__}")
        buckets, order = [], iter(tables.order)
        for rule, weight, gradient, master, stochastic, states8, count in tables.buckets:
            rows = []
            for _ in range(count):
                i = next(order)
                p, state = params[i], self.state[params[i]]
                moments = [_memory(state[name]) for name in self._names(rule, states8)] + [None, None]
                beside = _memory(state["absmax"]) if states8 else _memory(state["master"]) if master else None
                rows.append(((_memory(p), _memory(gradients[i]), beside, moments[0], moments[1], _memory(state["step"])), p.numel(),
                             tables.groups[i], tables.numbers[i]))
            buckets.append((rule, weight, gradient, master, stochastic, states8, self._seed, rows))
        words = [self._words(group) for group in self.param_groups]
        words = [(float(group["lr"]), *w[1:]) for group, w in zip(self.param_groups, words)]
        _optimizer.step_on_host(device, buckets, words, self._control.data_ptr(), self._max_norm, checks, use_found)


class Adam(_Optimizer):
    """torch.optim.Adam; what AdamW says holds here too."""
    _moments = ("exp_avg", "exp_avg_sq")

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, amsgrad=False, *, maximize=False, capturable=False,
                 max_norm=0.0, master=False, stochastic=False, seed=0):
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad,
                                  "maximize": maximize, "capturable": capturable}, max_norm, master, stochastic, seed)

    def _rule(self, group):
        return "adam"


class AdamW(Adam):
    """torch.optim.AdamW in one launch for all parameters (float32, float16, bfloat16; on CUDA, or on the CPU by the emulator after
    cgp.set_torch_cpu_device). State dicts are PyTorch's, both ways; moments are float32 always. Groups, schedules, learning rates that are
    tensors, GradScaler and CUDA graphs work as PyTorch's with capturable and fused; nothing waits for the device. A graph that holds
    step() reads the rates that the last step() or write_groups() has sent.

    max_norm: gradients are clipped by the norm of all of them in the same step (.grad stays as it was), and a step whose gradients
    hold NaN or Inf is left out. master: parameters of 16 bits get a float32 copy that the steps are taken on. stochastic: bfloat16
    parameters without one are rounded up or down by Philox of (seed, step, parameter, element), so that small steps are not lost."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, amsgrad=False, *, maximize=False,
                 capturable=False, max_norm=0.0, master=False, stochastic=False, seed=0):
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, capturable=capturable, max_norm=max_norm,
                         master=master, stochastic=stochastic, seed=seed)

    def _rule(self, group):
        return "adamw"


class _States8:
    """States of 8 bits (Dettmers et al., arXiv:2110.02861): "state1" and "state2" hold codes in the order of the parameter's memory, "absmax"
    one scale for each 256 of them. Parameters of fewer than 4096 elements keep float32 states, as in bitsandbytes."""
    least = 4096

    def __init__(self, params, *arguments, **options):
        if options.get("master"):
            raise Unsupported(f"cgp.optim.{type(self).__name__}: master=True is not there: take stochastic=True, or states of 32 bits")
        super().__init__(params, *arguments, **options)

    def _codes(self, p):
        return p.numel() >= self.least


class Adam8bit(_States8, Adam):
    """Adam with states of 8 bits: 2 bytes a parameter instead of 8. Options as Adam's, without master."""


class AdamW8bit(_States8, AdamW):
    """AdamW with states of 8 bits: 2 bytes a parameter instead of 8. Options as AdamW's, without master."""


class SGD(_Optimizer):
    """torch.optim.SGD without dampening; what AdamW says holds here too."""
    _moments = ("momentum_buffer",)

    def __init__(self, params, lr=1e-3, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False, *, maximize=False,
                 max_norm=0.0, master=False, stochastic=False, seed=0):
        if dampening:
            raise Unsupported(f"cgp.optim.SGD: dampening is {dampening}; 0 alone is there: take torch.optim.SGD")
        if nesterov and not momentum > 0:
            raise ArgumentError("cgp.optim.SGD: nesterov needs a momentum")
        super().__init__(params, {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
                                  "nesterov": nesterov, "maximize": maximize}, max_norm, master, stochastic, seed)

    def _rule(self, group):
        return "descent" if not group["momentum"] else "nesterov" if group["nesterov"] else "sgd"

    def _numbers_of(self, group):
        return group["momentum"], 0.0, 0.0


class Lion(_Optimizer):
    """Lion (Chen et al., arXiv:2302.06675): the sign of a mean of gradients; what AdamW says holds here too."""
    _moments = ("exp_avg",)

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0, *, maximize=False, max_norm=0.0, master=False,
                 stochastic=False, seed=0):
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "weight_decay": weight_decay, "maximize": maximize}, max_norm, master,
                         stochastic, seed)

    def _rule(self, group):
        return "lion"

    def _numbers_of(self, group):
        return *group["betas"], 0.0


class Muon(torch.optim.Optimizer):
    """torch.optim.Muon (Jordan et al., kellerjordan.github.io/posts/muon): momentum whose matrices are made orthogonal by steps of Newton and
    Schulz in bfloat16, products by our GEMM. For matrices alone, on a GPU; give embeddings, heads and vectors to AdamW. adjust_lr_fn: "original"
    multiplies the rate by sqrt(max(1, rows / columns)), "match_rms_adamw" by 0.2 sqrt(max(rows, columns)). State dicts are PyTorch's."""

    def __init__(self, params, lr=1e-3, weight_decay=0.1, momentum=0.95, nesterov=True, ns_coefficients=(3.4445, -4.775, 2.0315), eps=1e-7,
                 ns_steps=5, adjust_lr_fn=None):
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ArgumentError(f"cgp.optim.Muon: adjust_lr_fn is {adjust_lr_fn!r}; there are 'original' and 'match_rms_adamw'")
        _optimizer.group_words(0.0 if torch.is_tensor(lr) else lr, momentum, 0.0, eps, weight_decay, False, "cgp.optim.Muon")
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov,
                                  "ns_coefficients": tuple(ns_coefficients), "eps": eps, "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn})
        for group in self.param_groups:
            for p in group["params"]:
                if p.dim() != 2 or p.dtype not in FLOATS:
                    raise ArgumentError(f"cgp.optim.Muon: a parameter is {p.dtype} {list(p.shape)}; it must be a matrix of floats: give others to AdamW")

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            there = [p for p in group["params"] if p.grad is not None]
            if not there:
                continue
            for p in there:
                if "momentum_buffer" not in self.state[p]:
                    self.state[p]["momentum_buffer"] = torch.zeros_like(p.grad)
            moments, gradients = [self.state[p]["momentum_buffer"] for p in there], [p.grad for p in there]
            torch._foreach_lerp_(moments, gradients, 1 - group["momentum"])
            updates = torch._foreach_lerp(gradients, moments, group["momentum"]) if group["nesterov"] else moments
            lr = group["lr"]
            torch._foreach_mul_(there, 1 - lr * group["weight_decay"])
            for p, u in zip(there, updates):
                rows, columns = p.shape
                ratio = (0.2 * max(rows, columns)**0.5 if group["adjust_lr_fn"] == "match_rms_adamw" else max(1, rows / columns)**0.5)
                u = orthogonal(u, group["ns_coefficients"], group["ns_steps"], group["eps"])
                p.sub_(u.to(p.dtype) * (lr * ratio))
        return loss


def orthogonal(matrix, coefficients=(3.4445, -4.775, 2.0315), steps=5, eps=1e-7):
    """Nearly U V' of the matrix U S V', in bfloat16: steps of x <- a x + (b x x' + c (x x')^2) x, three products each, of which two add into what is
    there."""
    a, b, c = coefficients
    x = matrix.to(torch.bfloat16)
    tall = x.shape[0] > x.shape[1]
    x = (x.mT if tall else x).contiguous()
    x = x / x.norm().clamp(min=eps)

    def product(p, q, out, alpha=1.0, beta=0.0):
        _torch.queue(_core.gemm, p, p, q, out, alpha, beta, 0, 0, 0, 0, None, None, None, None, False)
        return out

    gram = x.new_empty(x.shape[0], x.shape[0])
    for _ in range(steps):
        product(x, x.mT, gram)
        x = product(product(gram, gram, gram.clone(), c, b), x, x.clone(), 1.0, a)
    return x.mT if tall else x


class GradScaler(torch.amp.GradScaler):
    """torch.amp.GradScaler whose step() with an optimizer of cgp.optim is one pass: the step itself divides by the scale, looks for NaN and Inf,
    and is left out where there are some. PyTorch's own scaler works, too, with a pass of its own for that."""

    def step(self, optimizer, *args, **kwargs):
        if not (self._enabled and isinstance(optimizer, _Optimizer)) or args or kwargs:
            return super().step(optimizer, *args, **kwargs)
        self._check_scale_growth_tracker("step")
        state = self._per_optimizer_states[id(optimizer)]
        ready = type(state["stage"]).READY
        if state["stage"] is not ready or all(p.grad is None for group in optimizer.param_groups for p in group["params"]):
            return super().step(optimizer)
        optimizer.grad_scale, optimizer._checks = self._scale, True
        try:
            result = optimizer.step()
        finally:
            del optimizer.grad_scale
            optimizer._checks = False
        found = _float_bits(optimizer._control)[FOUND:FOUND + 1]
        state["found_inf_per_device"] = {found.device: found}
        state["stage"] = type(state["stage"]).STEPPED
        return result


_clipped = {}  # tables of clip_grad_norm_ that were made last


@torch.no_grad()
def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """torch.nn.utils.clip_grad_norm_ in three launches: multiplies the gradients in place so that the norm of all together is at most max_norm;
    where it is already, they are only read. Returns the norm before, a tensor. max_norm of an optimizer of cgp.optim saves a pass."""
    who = "cgp.optim.clip_grad_norm_"
    if norm_type != 2.0:
        raise Unsupported(f"{who}: norm_type is {norm_type}; 2 alone is there: take torch.nn.utils.clip_grad_norm_")
    if not max_norm > 0:
        raise ArgumentError(f"{who}: max_norm must be above 0; it is {max_norm}")
    parameters = [parameters] if torch.is_tensor(parameters) else list(parameters)
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return torch.tensor(0.0)
    device, dtype = gradients[0].device, gradients[0].dtype
    for g in gradients:
        if g.dtype is not dtype or dtype not in FLOATS or g.device != device or not _dense(g):
            raise ArgumentError(f"{who}: gradients must have one type (float32, float16 or bfloat16) and one device, and fill their memory")
    control = torch.zeros(CONTROL, dtype=torch.int32, device=device)
    _float_bits(control)[SCALE] = 1
    if device.type != "cuda":
        _optimizer.clip_on_host(torch_cpu_device(who), CODES[dtype], [(*_memory(g), g.numel()) for g in gradients], float(max_norm),
                                control.data_ptr())
    else:
        key = device, dtype, tuple((g.data_ptr(), g.numel()) for g in gradients)
        tables = _clipped.get(key)
        if tables is None:
            if torch.cuda.is_current_stream_capturing():
                raise Unsupported(f"{who}: the first call with these gradients cannot be recorded: clip by max_norm of an optimizer of cgp.optim")
            rows = torch.zeros(len(gradients), ROW, dtype=torch.int64)
            rows[:, 1] = torch.tensor([g.data_ptr() for g in gradients])
            rows[:, 6] = torch.tensor([g.numel() for g in gradients])
            chunks = torch.frombuffer(bytearray(_core.optimizer_chunks([g.numel() for g in gradients])), dtype=torch.int32)
            tables = (rows.reshape(-1).to(device), chunks.to(device), torch.empty(chunks.numel() // 2, dtype=torch.float32, device=device))
            while len(_clipped) >= 8:
                _clipped.pop(next(iter(_clipped)))
            _clipped[key] = tables
        table, chunks, partial = tables
        with torch.cuda.device(device):
            _core.optimizer_norm(None, CODES[dtype], table, chunks, partial)
            _core.optimizer_control(None, 0, float(max_norm), 0, 1, None, None, control, None, partial)
            _core.optimizer_clip(None, CODES[dtype], table, chunks, control)
    norm = _float_bits(control)[NORM].clone()
    if error_if_nonfinite and not torch.isfinite(norm):
        raise RuntimeError(f"{who}: the norm of the gradients is {float(norm)}")
    return norm
