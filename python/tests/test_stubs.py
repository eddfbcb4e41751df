# SPDX-License-Identifier: Apache-2.0
"""The stubs say what the package has: the same names, the same parameters, the same defaults; and every function's
documentation says what it raises. (mypy's stubtest compares more; scripts/wheel.sh runs it.)"""
import ast
import inspect
from pathlib import Path

import pytest

import cgp

RAISE_NOTHING = {"Completion.__init__", "GgufFile.close"}
MADE_BY_FUNCTIONS = {"Device.__init__", "Module.__init__", "QuantizedTensor.__init__"}  # these say what is raised
NEED_TORCH = {"distributed", "ops", "nn", "optim", "patch", "Patch", "register_attention", "Decoder", "LoRA", "lora", "TrainingStep", "generate", "quantize"}
STUB = ast.parse((Path(cgp.__file__).parent / "__init__.pyi").read_text())


def parameters_of_stub(function: ast.FunctionDef):
    a = function.args
    rows = []
    positional = a.posonlyargs + a.args
    defaults = [None] * (len(positional) - len(a.defaults)) + a.defaults
    rows += [(p.arg, "positional", d) for p, d in zip(positional, defaults)]
    if a.vararg:
        rows.append((a.vararg.arg, "*", None))
    rows += [(p.arg, "keyword", d) for p, d in zip(a.kwonlyargs, a.kw_defaults)]
    if a.kwarg:
        rows.append((a.kwarg.arg, "**", None))
    return [(name, kind, None if d is None else ast.unparse(d)) for name, kind, d in rows]


def parameters_of_function(function):
    P = inspect.Parameter
    kinds = {P.VAR_POSITIONAL: "*", P.KEYWORD_ONLY: "keyword", P.VAR_KEYWORD: "**"}
    return [(p.name, kinds.get(p.kind, "positional"), None if p.default is P.empty else repr(p.default))
            for p in inspect.signature(function).parameters.values()]


def functions():
    """(name as a user writes it, its node in the stub, the function) of everything public that needs no torch."""
    for node in STUB.body:
        if isinstance(node, ast.FunctionDef) and node.name not in NEED_TORCH and not node.name.startswith("_"):
            yield node.name, node, getattr(cgp, node.name)
        if isinstance(node, ast.ClassDef) and node.name in cgp.__all__ and node.name not in NEED_TORCH:
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and (not method.name.startswith("_") or method.name == "__init__"):
                    yield f"{node.name}.{method.name}", method, inspect.getattr_static(getattr(cgp, node.name), method.name)


FUNCTIONS = {name: (node, function) for name, node, function in functions()}


def test_names():
    stub = {node.name for node in STUB.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))
            if "type_check_only" not in map(ast.unparse, node.decorator_list)}
    stub |= {node.target.id for node in STUB.body if isinstance(node, ast.AnnAssign)} | {"distributed", "ops", "nn", "optim"}
    assert stub - set(cgp.__all__) - NEED_TORCH == set()
    assert set(cgp.__all__) - stub == set()
    exec("from cgp import *", {})  # also without PyTorch


@pytest.mark.parametrize("name", FUNCTIONS)
def test_parameters(name):
    node, function = FUNCTIONS[name]
    if isinstance(function, property):
        assert any(ast.unparse(d) == "property" for d in node.decorator_list)
        return
    if isinstance(function, (classmethod, staticmethod)):
        assert any(ast.unparse(d) == type(function).__name__ for d in node.decorator_list)
        function = function.__func__
    stub, there = parameters_of_stub(node), parameters_of_function(function)
    open_defaults = {n for n, _, default in stub if default == "..."}  # of which the stub tells only that there is one
    assert stub == [(n, kind, "..." if n in open_defaults and default is not None else default) for n, kind, default in there]


@pytest.mark.parametrize("name", [name for name, (_, function) in FUNCTIONS.items()
                                  if name not in RAISE_NOTHING | MADE_BY_FUNCTIONS and not isinstance(function, property)])
def test_documentation_says_what_is_raised(name):
    function = FUNCTIONS[name][1]
    of = getattr(cgp, name.split(".")[0]) if name.endswith(".__init__") else getattr(function, "__func__", function)
    assert "Raises" in (inspect.getdoc(of) or "")
