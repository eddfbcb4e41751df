# SPDX-License-Identifier: Apache-2.0
"""Score modifications of attention: a Python function, called once with symbols, becomes the formula that kernels are built
from (cgp.h, cgp_attention_options.score)."""
import inspect
import math

from ._runtime import ArgumentError

_NAMES = {"absolute": "abs", "maximum": "max", "minimum": "min"}
_OPERATORS = {"add": "+", "sub": "-", "subtract": "-", "mul": "*", "multiply": "*", "div": "/", "divide": "/",
              "true_divide": "/", "floor_divide": "//", "remainder": "%", "lt": "<", "less": "<", "le": "<=",
              "less_equal": "<=", "gt": ">", "greater": ">", "ge": ">=", "greater_equal": ">=", "eq": "==", "equal": "==",
              "ne": "!=", "not_equal": "!=", "logical_and": "and", "bitwise_and": "and", "logical_or": "or",
              "bitwise_or": "or"}
_FUNCTIONS = {"abs": 1, "floor": 1, "exp": 1, "log": 1, "sqrt": 1, "sin": 1, "cos": 1, "tanh": 1, "sigmoid": 1, "min": 2,
              "max": 2, "where": 3}


def _text(x):
    if isinstance(x, Symbol):
        return x.text
    try:
        value = float(x)
    except (TypeError, ValueError):
        raise ArgumentError(f"score: {type(x).__name__} is neither a number nor made of the function's arguments; arrays come in as "
                            "score_data, which the function gets as its last argument") from None
    if math.isnan(value):
        raise ArgumentError("score: nan is no number to compute with")
    return f"({value!r})" if value < 0 else repr(value)


def _call(name, arguments):
    name = name.strip("_").removesuffix("_")
    name = _NAMES.get(name, name)
    if name in _OPERATORS and len(arguments) == 2:
        return Symbol(f"({_text(arguments[0])} {_OPERATORS[name]} {_text(arguments[1])})")
    if name in ("neg", "negative"):
        return Symbol(f"(-{_text(arguments[0])})")
    if name in ("logical_not", "bitwise_not", "invert"):
        return Symbol(f"(not {_text(arguments[0])})")
    if _FUNCTIONS.get(name) != len(arguments):
        raise ArgumentError(f"score: {name} of {len(arguments)} arguments is not among what a score may be made of: operators, "
                            + ", ".join(_FUNCTIONS))
    return Symbol(f"{name}({', '.join(map(_text, arguments))})")


class Symbol:
    """A number or a condition that only the kernel will know. Functions of torch and of NumPy take it."""
    __slots__ = ("text",)
    __hash__ = None

    def __init__(self, text):
        self.text = text

    def __bool__(self):
        raise ArgumentError("score: a condition has no value yet: choose with where(condition, this, that); "
                            "conditions join with &, | and ~")

    def __pow__(self, n):
        if isinstance(n, int) and 1 <= n <= 16:
            return Symbol("(" + " * ".join([self.text] * n) + ")")
        if n == 0.5:
            return _call("sqrt", (self,))
        raise ArgumentError(f"score: ** {n!r} is not among what a score may be made of: exponents 1 to 16, and 0.5")

    def __abs__(self):
        return _call("abs", (self,))

    def __neg__(self):
        return _call("neg", (self,))

    def __invert__(self):
        return _call("invert", (self,))

    def __getattr__(self, name):  # score.tanh()
        if name.startswith("_") or name not in _FUNCTIONS:
            raise AttributeError(name)
        return lambda *others: _call(name, (self, *others))

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return _call(function.__name__, args)

    def __array_ufunc__(self, function, method, *inputs, **_):
        return _call(function.__name__, inputs)

    def __array_function__(self, function, types, args, kwargs):
        return _call(function.__name__, args)


def _operator(name, swapped):
    return lambda self, other: _call(name, (other, self) if swapped else (self, other))


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "and", "or"):
    _plain = {"truediv": "div", "floordiv": "floor_divide", "mod": "remainder", "and": "logical_and", "or": "logical_or"}
    setattr(Symbol, f"__{_name}__", _operator(_plain.get(_name, _name), False))
    setattr(Symbol, f"__r{_name}__", _operator(_plain.get(_name, _name), True))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Symbol, f"__{_name}__", _operator(_name, False))


class _Data:
    def __getitem__(self, index):
        return Symbol("data[" + ", ".join(map(_text, index if isinstance(index, tuple) else (index,))) + "]")


def score_formula(score):
    """The formula of a score modification: score(score, batch, head, query, key), or with one argument more, through which
    it reads score_data (float32 [n]). A string is a formula already.

    >>> cgp.score_formula(lambda score, b, h, q, k: 30 * np.tanh(score / 30))
    '(30.0 * tanh((score / 30.0)))'

    Raises: ArgumentError for a function that does what no formula can say: a condition, an array, another library's function.
    """
    if isinstance(score, str):
        return score
    arguments = [Symbol(name) for name in ("score", "b", "h", "q", "k")]
    try:
        inspect.signature(score).bind(*arguments)
    except TypeError:
        arguments.append(_Data())
    return _text(score(*arguments))
