# SPDX-License-Identifier: Apache-2.0
"""Low-rank adapters of linear layers (Hu et al., arXiv:2106.09685): y = x W' + s (x A') B', with W dense or quantised, and files as PEFT's."""
import json
import math
import os
import struct

import torch

from . import _core
from ._options import PRECISIONS
from ._ops_quantized import matmul as quantized_matmul
from ._quantized_linear import QuantizedLinear
from ._runtime import ArgumentError, Unsupported
from ._torch import FLOATS, define, dense, empty, expect, gradient, queue, rows, way


def _product(a, b, c, alpha=1.0, beta=0.0, bias=None, residual=None):
    """c = alpha a b + beta c, of matrices."""
    queue(_core.gemm, a, a, b, c, alpha, beta, PRECISIONS["standard"], 0, 0, 0, bias, residual, None, None, False)
    return c


def _check(x, weight, a, b, base):
    r, k = a.shape
    n = b.shape[0]
    expect(x.dim() >= 1 and x.shape[-1] == k, "lora", "x", f"its last dimension must be {k}, as a has columns; it is {list(x.shape)}")
    expect(b.shape == (n, r), "lora", "b", f"it must have {r} columns, as a has rows; it is {list(b.shape)}")
    expect(weight is None or weight.shape == (n, k), "lora", "weight", f"it must be [{n}, {k}]")
    expect((weight is None) != (base is None), "lora", "weight", "one of weight and base must be given")
    for name, t in (("weight", weight), ("a", a), ("b", b), ("base", base)):
        expect(t is None or t.dtype == x.dtype, "lora", name, f"it must have the type of x, {x.dtype}")


def _whole(*tensors):
    """Whether one call can take them."""
    return all(t is not None and t.is_contiguous() for t in tensors)


def _lora(x, a, b, scale, weight=None, bias=None, base=None):
    _check(x, weight, a, b, base)
    flat = rows(x).reshape(-1, x.shape[-1])
    m, n = flat.shape[0], b.shape[0]
    t, y = empty(x, None, (m, a.shape[0])), empty(x, None, (m, n))
    if bias is None and _whole(flat, weight, a, b):
        queue(_core.lora_linear, flat, flat, weight, a, b, scale, 1, t, y)
        return y.view(x.shape[:-1] + (n,)), t
    _product(flat, a.mT, t, scale)
    if weight is None:
        _product(t, b.mT, y, residual=rows(base).reshape(m, n))
    else:
        _product(flat, weight.mT, y, bias=dense(bias))
        _product(t, b.mT, y, beta=1.0)
    return y.view(x.shape[:-1] + (n,)), t


def _lora_fake(x, a, b, scale, weight=None, bias=None, base=None):
    _check(x, weight, a, b, base)
    return x.new_empty(x.shape[:-1] + b.shape[:1]), x.new_empty((math.prod(x.shape[:-1]), a.shape[0]))


def _lora_backward(dy, x, t, a, b, scale, weight, with_dx):
    flat, dy = rows(x).reshape(-1, x.shape[-1]), rows(dy).reshape(-1, dy.shape[-1])
    dt, dx = empty(t, None, t.shape), empty(x, None, flat.shape) if with_dx else x.new_empty(0)
    if with_dx and _whole(dy, weight, b, a):
        queue(_core.lora_linear, dy, dy, weight, b, a, scale, 0, dt, dx)
    else:
        _product(dy, b, dt, scale)
        if with_dx:
            if weight is not None:
                _product(dy, weight, dx)
            _product(dt, a, dx, beta=0.0 if weight is None else 1.0)
    da = _product(dt.mT, flat, empty(a, None, a.shape))
    db = _product(dy.mT, t, empty(b, None, b.shape))
    return dx.view(x.shape) if with_dx else dx, da, db


def _lora_backward_fake(dy, x, t, a, b, scale, weight, with_dx):
    return x.new_empty(x.shape if with_dx else 0), a.new_empty(a.shape), b.new_empty(b.shape)


_op = define("lora(Tensor x, Tensor a, Tensor b, float scale, Tensor? weight=None, Tensor? bias=None, Tensor? base=None) -> (Tensor, Tensor)",
             _lora, _lora_fake, 1)
_backward_op = define("lora_backward(Tensor dy, Tensor x, Tensor t, Tensor a, Tensor b, float scale, Tensor? weight, bool with_dx) -> "
                      "(Tensor, Tensor, Tensor)", _lora_backward, _lora_backward_fake)


def _setup(ctx, inputs, output):
    x, a, b, ctx.scale, weight, bias, base = inputs
    if weight is not None and weight.requires_grad:
        raise Unsupported("cgp::lora has no gradient of the weight: freeze it, or train the layer without an adapter")
    ctx.save_for_backward(x, output[1], a, b, weight)
    ctx.bias, ctx.base = bias is not None and bias.requires_grad, base is not None and base.requires_grad


def _backward(ctx, dy, *_):
    x, t, a, b, weight = ctx.saved_tensors
    needs = ctx.needs_input_grad
    dx, da, db = _backward_op.ways[way(dy, x, t, a, b, weight)](dy, x, t, a, b, ctx.scale, weight, needs[0])
    return (dx if needs[0] else None, da if needs[1] else None, db if needs[2] else None, None, None,
            dy.flatten(0, -2).sum(0) if ctx.bias else None, dy if ctx.base else None)


gradient(_op, _backward, _setup)


def apply(x, a, b, scale, weight=None, bias=None, base=None):
    """x weight' + bias + scale (x a') b', or base + scale (x a') b'. x: [..., k]; a: [r, k]; b: [n, r]; weight: [n, k], frozen."""
    return _op.ways[way(x, a, b, weight, bias, base)](x, a, b, scale, weight, bias, base)


class LoRALinear(torch.nn.Module):
    """A frozen linear layer (nn.Linear, transformers' Conv1D, QuantizedLinear) with an adapter of rank r."""

    def __init__(self, base_layer, r, alpha, dropout, dtype):
        super().__init__()
        self.base_layer, self.r, self.scale, self.dropout, self.merged = base_layer, r, alpha / r, dropout, False
        n, k = _sizes(base_layer)
        if r > min(n, k):
            raise ArgumentError(f"cgp.lora: r is {r}, which is more than a layer of {n} x {k} has: take at most {min(n, k)}")
        tensor = next(t for t in (*base_layer.parameters(), *base_layer.buffers()) if t is not None)
        dtype = dtype or (tensor.dtype if tensor.dtype in FLOATS and not isinstance(base_layer, QuantizedLinear) else torch.bfloat16)
        self.lora_A = torch.nn.Parameter(torch.empty(r, k, dtype=dtype, device=tensor.device))
        self.lora_B = torch.nn.Parameter(torch.zeros(n, r, dtype=dtype, device=tensor.device))
        torch.nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    def forward(self, x):
        if self.merged:
            return self.base_layer(x)
        a, b = self.lora_A.to(x.dtype), self.lora_B.to(x.dtype)
        weight, bias = _weight(self.base_layer), getattr(self.base_layer, "bias", None)
        if self.training and self.dropout or weight is None or weight.dtype != x.dtype:
            base = self.base_layer(x) if weight is not None else _quantized(self.base_layer, x)
            return apply(torch.nn.functional.dropout(x, self.dropout, self.training), a, b, self.scale, base=base)
        return apply(x, a, b, self.scale, weight, bias)

    @torch.no_grad()
    def add_to_weight(self, sign):
        weight = _weight(self.base_layer)
        if weight is None:
            raise Unsupported("cgp.lora: an adapter cannot be merged into a quantised weight: dequantise the layer first")
        weight += (sign * self.scale * (self.lora_B.float() @ self.lora_A.float())).to(weight.dtype)
        self.merged = sign > 0

    def extra_repr(self):
        return f"r={self.r}, scale={self.scale}"


def _quantized(layer, x):
    y = quantized_matmul(x, layer.weight)
    return y if layer.bias is None else y + layer.bias


def _weight(layer):
    """[out, in], or None where it is quantised."""
    if isinstance(layer, QuantizedLinear):
        return None
    return layer.weight.mT if type(layer).__name__ == "Conv1D" else layer.weight


def _sizes(layer):
    return (layer.out_features, layer.in_features) if isinstance(layer, QuantizedLinear) else tuple(_weight(layer).shape)


def _is_linear(module):
    return type(module) is torch.nn.Linear or isinstance(module, QuantizedLinear) or type(module).__name__ == "Conv1D"


_TYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def _write_safetensors(path, tensors):
    names = {t: n for n, t in _TYPES.items()}
    header, at, data = {"__metadata__": {"format": "pt"}}, 0, []
    for name, t in tensors.items():
        t = t.detach().cpu().contiguous()
        size = t.numel() * t.element_size()
        header[name] = {"dtype": names[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + size]}
        at += size
        data.append(t.view(torch.uint8).numpy().tobytes())
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data))


def _read_safetensors(path):
    with open(path, "rb") as f:
        data = f.read()
    try:
        size, = struct.unpack_from("<Q", data)
        header, first = json.loads(data[8:8 + size]), 8 + size
        out = {}
        for name, t in header.items():
            if name != "__metadata__":
                a, b = t["data_offsets"]
                raw = bytearray(data[first + a:first + b])
                out[name] = torch.frombuffer(raw, dtype=_TYPES[t["dtype"]]).reshape(t["shape"]) if raw else torch.empty(t["shape"])
        return out
    except (KeyError, ValueError, TypeError, RuntimeError, struct.error) as e:
        raise ArgumentError(f"cgp.lora: {path} is no safetensors file of floats: {e}") from None


class LoRA:
    """The adapters of a model: what cgp.lora() gives."""

    def __init__(self, model, layers, config):
        self.model, self.layers, self.config = model, layers, config

    def parameters(self):
        """Those that are trained: of each layer A [r, in] and B [out, r]."""
        return [p for layer in self.layers.values() for p in (layer.lora_A, layer.lora_B)]

    def merge(self):
        """Adds the adapters to the weights, whose layers then cost what they did without. Raises Unsupported for quantised ones."""
        for layer in self.layers.values():
            if not layer.merged:
                layer.add_to_weight(1)

    def unmerge(self):
        """Takes them out of the weights again (within a rounding of the weights' type)."""
        for layer in self.layers.values():
            if layer.merged:
                layer.add_to_weight(-1)

    def undo(self):
        """Puts the model's own layers back; with merge() before, they keep what was learnt. Parameters stay frozen."""
        for name, layer in self.layers.items():
            self.model.get_submodule(name.rpartition(".")[0]).__setattr__(name.rpartition(".")[2], layer.base_layer)
        self.layers = {}

    def _named(self):
        for name, layer in self.layers.items():
            for part in ("lora_A", "lora_B"):
                yield f"base_model.model.{name}.{part}.weight", getattr(layer, part)

    def save(self, folder):
        """Writes adapter_config.json and adapter_model.safetensors as PEFT does, which loads them (PeftModel.from_pretrained)."""
        os.makedirs(folder, exist_ok=True)
        _write_safetensors(os.path.join(folder, "adapter_model.safetensors"), dict(self._named()))
        with open(os.path.join(folder, "adapter_config.json"), "w") as f:
            json.dump(self.config, f, indent=2)

    @torch.no_grad()
    def load(self, folder):
        """Reads what save() or PEFT wrote for the same layers and rank. Raises ArgumentError where they differ."""
        try:
            with open(os.path.join(folder, "adapter_config.json")) as f:
                config = json.load(f)
            found = _read_safetensors(os.path.join(folder, "adapter_model.safetensors"))
        except (OSError, json.JSONDecodeError) as e:
            raise ArgumentError(f"cgp.lora: {folder} holds no adapter: {e}") from None
        wanted = dict(self._named())
        if config.get("use_dora") or config.get("rank_pattern") or config.get("use_rslora") or config.get("alpha_pattern"):
            raise Unsupported("cgp.lora: adapters with DoRA, rank-stabilised scales or ranks of single layers are not read")
        if set(found) != set(wanted):
            odd = sorted(set(found) ^ set(wanted))[0]
            raise ArgumentError(f"cgp.lora: {odd} is {'not in the file' if odd in wanted else 'of no layer here'}: take the file's targets, "
                                f"{config.get('target_modules')}")
        for name, p in wanted.items():
            if found[name].shape != p.shape:
                raise ArgumentError(f"cgp.lora: {name} is {list(found[name].shape)} in the file, {list(p.shape)} here: take r={config.get('r')}")
        for name, p in wanted.items():
            p.copy_(found[name])
        for layer in self.layers.values():
            layer.scale = config["lora_alpha"] / layer.r
        self.config["lora_alpha"] = config["lora_alpha"]


def lora(model, r=16, alpha=32, targets=("q_proj", "v_proj"), *, dropout=0.0, dtype=None):
    """Gives linear layers adapters of rank r, scaled by alpha / r, in place, and freezes everything else; returns a LoRA with save(), load(),
    merge(), unmerge(), undo() and parameters(). targets: layers whose name is one of these, or ends with "." and one; "all-linear": all but
    lm_head. Layers of cgp.quantize stay quantised (QLoRA). r = 0 changes nothing. dropout: of the adapter's input. dtype: of A and B (of the
    weights; bfloat16 for quantised ones).

    Raises ArgumentError where no layer is meant, or r is more than a layer has.

    >>> adapters = cgp.lora(model, r=16, alpha=32, targets=("q_proj", "v_proj"))
    >>> optimizer = cgp.optim.AdamW(adapters.parameters(), lr=1e-4)
    >>> adapters.save("my_adapter")
    """
    if r < 0 or not 0 <= dropout < 1:
        raise ArgumentError(f"cgp.lora: r must be at least 0, dropout from 0 to below 1; they are {r} and {dropout}")
    if dtype is not None and dtype not in FLOATS:
        raise ArgumentError(f"cgp.lora: dtype is {dtype}; it must be float32, float16 or bfloat16")
    names = [targets] if isinstance(targets, str) else list(targets)

    def meant(name):
        if names == ["all-linear"]:
            return name.rpartition(".")[2] != "lm_head"
        return any(name == t or name.endswith("." + t) for t in names)

    found = {name: m for name, m in model.named_modules() if _is_linear(m) and meant(name)}
    if not found:
        raise ArgumentError(f"cgp.lora: the model has no linear layer named {', '.join(names)}")
    config = {"peft_type": "LORA", "base_model_name_or_path": getattr(getattr(model, "config", None), "_name_or_path", None), "r": r,
              "lora_alpha": alpha, "lora_dropout": dropout, "target_modules": names[0] if names == ["all-linear"] else names, "bias": "none",
              "fan_in_fan_out": any(type(m).__name__ == "Conv1D" for m in found.values()), "task_type": None, "inference_mode": True}
    layers = {name: LoRALinear(m, r, alpha, dropout, dtype) for name, m in found.items()} if r else {}
    if layers:
        model.requires_grad_(False)
    for name, layer in layers.items():
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, layer)
    return LoRA(model, layers, config)
