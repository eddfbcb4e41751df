# SPDX-License-Identifier: Apache-2.0
"""Linear layers with quantised weights, and models whose layers become such."""
import torch

from . import _core
from ._ops_quantized import matmul
from ._quantized import TENSORS, QuantizedTensor
from ._runtime import ArgumentError


class QuantizedLinear(torch.nn.Module):
    """A linear layer with a frozen quantised weight: x w' + bias. Gradients go to x and to the bias."""

    def __init__(self, weight, bias=None):
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self._rest = weight.format, weight.shape, weight._numbers, weight._offset
        for name, t in zip(TENSORS, weight._tensors):
            self.register_buffer(name, t)
        self.bias = bias if bias is None or isinstance(bias, torch.nn.Parameter) else torch.nn.Parameter(bias)

    @property
    def weight(self):
        """The weight, of the tensors where they are now."""
        format, shape, numbers, offset = self._rest
        return QuantizedTensor(format, shape, {name: getattr(self, name) for name in TENSORS}, numbers, offset)

    def _apply(self, fn, recurse=True):  # .to(dtype) and .half() are for the bias: the weight keeps its types
        before = {name: getattr(self, name) for name in TENSORS}
        super()._apply(fn, recurse)
        for name, t in before.items():
            if t is not None and getattr(self, name).dtype != t.dtype:
                setattr(self, name, t.to(getattr(self, name).device))
        return self

    def extra_repr(self):
        return f"in_features={self.in_features}, out_features={self.out_features}, format={self._rest[0]!r}"

    def forward(self, x):
        y = matmul(x, self.weight)
        return y if self.bias is None else y + self.bias


def quantize(model, format="q4_k", *, group=128, skip=("lm_head",)):
    """Replaces the nn.Linear layers of a model, in place, by layers with quantised weights; returns the model. Layers whose name ends
    with a word of `skip` stay, as do those whose sizes the format does not have (their names are in `model.cgp_not_quantized`).

    format, group: as QuantizedTensor.quantize. Weights stay on their device.

    Raises ArgumentError for an unknown format, and weights that are NaN or infinite.
    """
    if format not in ("int4", "fp8"):
        _core.quantized_bytes(format, 0)  # is there one of that name
    left = []
    for name, module in list(model.named_modules()):
        for child, layer in list(module.named_children()):
            whole = f"{name}.{child}" if name else child
            if type(layer) is not torch.nn.Linear:
                continue
            if whole.endswith(tuple(skip)) or not _fits(layer, format, group):
                left.append(whole)
                continue
            setattr(module, child, QuantizedLinear(QuantizedTensor.quantize(layer.weight, format, group=group), layer.bias))
    model.cgp_not_quantized = left
    return model


def _fits(layer, format, group):
    rows_, cols = layer.weight.shape
    if format == "int4":
        return rows_ % 8 == 0 and cols % group == 0
    if format == "fp8":
        return True
    try:
        _core.quantized_bytes(format, cols)
    except ArgumentError:
        return False
    return True
