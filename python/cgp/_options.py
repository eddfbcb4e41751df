# SPDX-License-Identifier: Apache-2.0
"""Options that the functions of the module and the operators share: their names, and what is said of a wrong one."""
import operator

from ._runtime import ArgumentError

ACTIVATIONS = {None: 0, "relu": 1, "silu": 2, "gelu": 3, "gelu_tanh": 4}
ELEMENTWISE = {name: code for name, code in ACTIVATIONS.items() if name}  # of activate and gated
ROPE_SCALINGS = {"none": 0, "linear": 1, "ntk": 2, "yarn": 3, "llama3": 4}
PRECISIONS = {"standard": 0, "fast": 1, "strict": 2}


def choice(table, value, what):
    if value not in table:
        raise ArgumentError(f"{what} must be one of {', '.join(repr(v) for v in table)}, not {value!r}")
    return table[value]


def integer(value, what):
    """The integer that value is."""
    try:
        return operator.index(value)
    except TypeError:
        raise ArgumentError(f"{what} must be an integer, not {value!r}") from None


def fit_batches(a, b):
    """Says so where the leading dimensions of b are neither those of a nor all 1: what PyTorch would broadcast."""
    if len(b) > len(a) or (b[:-2] != a[:-2] and any(n != 1 for n in b[:-2])):
        raise ArgumentError(f"matmul: b: its leading dimensions must be those of a, {list(a[:-2])}, or 1, or none; "
                            f"they are {list(b[:-2])}: expand the operands first")


def check_rope(cos, sequence, offset, base, scaling, factor):
    """What the C interface takes for "not given", and what it cannot take."""
    for name, value in (("sequence", sequence), ("offset", offset)):
        if integer(value, f"rope: {name}") < 0:
            raise ArgumentError(f"rope: {name} must not be negative; it is {value}")
    if cos is not None and scaling != "none":
        raise ArgumentError(f"rope: scaling {scaling!r} is for exact angles; tables hold theirs")
    if base == 0:
        raise ArgumentError("rope: base must be above 1; it is 0")
    if factor == 0 and scaling != "none":
        raise ArgumentError(f"rope: factor must be positive for scaling {scaling!r}; it is 0")


MODULE_ACTIVATIONS = {
    "NewGELUActivation": "gelu_tanh", "FastGELUActivation": "gelu_tanh", "PytorchGELUTanh": "gelu_tanh",
    "GELUTanh": "gelu_tanh", "GELUActivation": "gelu", "GELU": "gelu", "SiLUActivation": "silu", "SiLU": "silu",
    "ReLU": "relu"
}


def activation_of(module):
    """The activation that a module of transformers or PyTorch is; None: none of ours."""
    kind = MODULE_ACTIVATIONS.get(type(module).__name__)
    return "gelu_tanh" if kind == "gelu" and getattr(module, "approximate", "none") == "tanh" else kind
