# SPDX-License-Identifier: Apache-2.0
"""Functions on NumPy arrays (emulator) against NumPy, in float64, and what is said about mistakes."""
import doctest
import inspect
import math
import os
import subprocess
import sys

import numpy as np
import pytest

import cgp
from cgp.testing import check_gradient

NEED_TORCH = ("ops", "nn", "patch", "Patch", "register_attention", "Decoder", "TrainingStep", "generate", "quantize")
rng = np.random.default_rng(1)


def random(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def test_importing_needs_no_torch():
    code = "import sys, cgp; sys.exit('torch' in sys.modules)"  # another test may have imported it here
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_device():
    d = cgp.device("emu:sm_80")
    assert d.arch == "sm_80" and d.is_emulator and d is cgp.device("emu:sm_80")
    with pytest.raises(cgp.ArgumentError, match="toaster"):
        cgp.device("toaster")
    with pytest.raises(cgp.Unsupported):
        cgp.device("cuda:99")


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-4), (np.float16, 2e-2)])
def test_matmul(dtype, tolerance):
    a, b, bias = random(2, 19, 40, dtype=dtype), random(40, 24, dtype=dtype), random(24, dtype=dtype)
    want = np.maximum(a.astype(np.float64) @ b.astype(np.float64) + bias, 0)
    got = cgp.matmul(a, b, bias, activation="relu")
    assert got.dtype == dtype
    np.testing.assert_allclose(got, want, atol=tolerance, rtol=tolerance)


def test_products_of_8_bit_integers_are_32_bit_integers():
    a = np.full((2, 64), 100, np.int8)
    c = cgp.matmul(a, np.ascontiguousarray(a.T))
    assert c.dtype == np.int32 and (c == 640000).all()


def test_attention():
    q, k, v = random(1, 4, 6, 16), random(1, 2, 9, 16), random(1, 2, 9, 16)
    scores = np.einsum("bhid,bhjd->bhij", q, k.repeat(2, 1)).astype(np.float64) / 4
    scores[..., np.arange(9)[None, :] > np.arange(6)[:, None] + 3] = -np.inf
    p = np.exp(scores - scores.max(-1, keepdims=True))
    want = np.einsum("bhij,bhjd->bhid", p / p.sum(-1, keepdims=True), v.repeat(2, 1))
    np.testing.assert_allclose(cgp.attention(q, k, v, causal=True), want, atol=1e-5)


def test_rows():
    x = random(3, 7, 50)
    e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    np.testing.assert_allclose(cgp.softmax(x), e / e.sum(-1, keepdims=True), atol=1e-6)
    np.testing.assert_allclose(cgp.sum(x, 1), x.astype(np.float64).sum(1), atol=1e-5)
    np.testing.assert_array_equal(cgp.max(x), x.max(-1))
    np.testing.assert_array_equal(cgp.transpose(x), x.swapaxes(1, 2))
    np.testing.assert_array_equal(cgp.add(x, x), 2 * x)
    assert cgp.softmax(np.empty((0, 5), np.float32)).shape == (0, 5)


@pytest.mark.parametrize("layer", [False, True])
def test_norms(layer):
    x, r, w, b = random(2, 5, 48), random(2, 5, 48), random(48), random(48)
    dy, dsum = random(2, 5, 48), random(2, 5, 48)

    def norm(h, w, b):
        d = h - h.mean(-1, keepdims=True) if layer else h
        return d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-3) * w + (b if layer else 0)

    wide = [t.astype(np.float64) for t in (x + r, w, b)]
    given = (x, w, b) if layer else (x, w)
    y, h = (cgp.layer_norm if layer else cgp.rms_norm)(*given, residual=r, eps=1e-3)
    np.testing.assert_allclose(y, norm(*wide), atol=1e-5)
    np.testing.assert_array_equal(h, x + r)
    got = (cgp.layer_norm_backward if layer else cgp.rms_norm_backward)(dy, h, w, dsum=dsum, eps=1e-3)
    assert len(got) == (3 if layer else 2)
    def both(h, w, b=0):
        return norm(h, w, b), h

    check_gradient(both, wide[:len(got)], [dy, dsum], got)
    half = x.astype(np.float16)
    assert cgp.rms_norm(half, w).dtype == np.float16
    np.testing.assert_allclose(cgp.rms_norm(half), half / np.sqrt((half.astype(float)**2).mean(-1, keepdims=True) + 1e-6),
                               rtol=2e-3, atol=2e-3)


def test_gradients_against_finite_differences():
    x, dy = random(3, 40), random(3, 40)
    y = cgp.softmax(x)
    right = y * (dy - (dy * y).sum(-1, keepdims=True))
    for f, step, tolerance in ((lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True), 1e-5, 1e-4),
                               (lambda x: cgp.softmax(x.astype(np.float32)), 1e-2, 1e-3)):
        assert check_gradient(f, [x], dy, [right], places=8, step=step, tolerance=tolerance) < tolerance
        with pytest.raises(AssertionError, match=r"gradient 0 at \("):
            check_gradient(f, [x], dy, [right + 0.1], places=8, step=step, tolerance=tolerance)
    assert check_gradient(lambda x, y: x, [x, x], dy, [dy, None]) < 1e-4
    for text, wrong in (("1 inputs and 2", (x, dy, [dy, dy])), ("d_outputs have", (x, dy[:2], [dy])), ("gradient 0 is", (x, dy, [dy[0]]))):
        with pytest.raises(cgp.ArgumentError, match=text):
            check_gradient(lambda x: x, [wrong[0]], *wrong[1:])


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy(reduction):
    x, target = random(4, 3, 29), np.array([[0, 28, 3], [-100, 7, 1], [2, 2, 2], [9, -100, 0]])
    e = np.exp(x.astype(np.float64))
    p = e / e.sum(-1, keepdims=True)
    kept = target >= 0
    one = np.eye(29)[np.where(kept, target, 0)]
    loss = -(np.log(p) * (0.9 * one + 0.1 / 29)).sum(-1) * kept
    gradient = (p - 0.9 * one - 0.1 / 29) * kept[..., None]
    factor = 1 / kept.sum() if reduction == "mean" else 1
    got, d = cgp.cross_entropy(x, target, reduction=reduction, label_smoothing=0.1, gradient=True)
    np.testing.assert_allclose(got, loss if reduction == "none" else loss.sum() * factor, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(d, gradient * factor, atol=1e-6)


@pytest.mark.parametrize("interleaved", [False, True])
def test_rope(interleaved):
    x = random(2, 6, 3, 10)  # [batch, n, heads, dim], 8 of 10 turn
    positions = np.array([[0, 1, 2, 3, 4, 5], [7, 8, 9, 10, 11, 1000]])
    angle = (positions[..., None] * 500.0**(-np.arange(4) / 4))[:, :, None]
    first, second = (np.arange(0, 8, 2), np.arange(1, 8, 2)) if interleaved else (np.arange(4), np.arange(4, 8))
    want = x.astype(np.float64)
    want[..., first] = x[..., first] * np.cos(angle) - x[..., second] * np.sin(angle)
    want[..., second] = x[..., first] * np.sin(angle) + x[..., second] * np.cos(angle)
    options = dict(positions=positions, rotary=8, interleaved=interleaved)
    got = cgp.rope(x, base=500.0, **options)
    np.testing.assert_allclose(got, want, atol=1e-5)
    np.testing.assert_allclose(cgp.rope(got, base=500.0, inverse=True, **options), x, atol=1e-5)
    table = np.arange(1001)[:, None] * 500.0**(-np.arange(4) / 4)
    np.testing.assert_allclose(
        cgp.rope(x, np.cos(table).astype(np.float32), np.sin(table).astype(np.float32), **options), want, atol=1e-5)


def test_activations():
    x, u, b = random(3, 41), random(3, 41), random(41)
    wide = x.astype(np.float64)
    erf = np.vectorize(math.erf)
    functions = {
        "relu": lambda x: np.maximum(x, 0), "silu": lambda x: x / (1 + np.exp(-x)),
        "gelu": lambda x: x / 2 * (1 + erf(x / np.sqrt(2))),
        "gelu_tanh": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    }
    for name, f in functions.items():
        np.testing.assert_allclose(cgp.activate(x, name, b), f(wide + b), atol=2e-6)
        np.testing.assert_allclose(cgp.gated(x, u, name), f(wide) * u, atol=4e-6)
    np.testing.assert_array_equal(cgp.swiglu(x, u), cgp.gated(x, u, "silu"))
    np.testing.assert_allclose(cgp.log_softmax(x), wide - np.log(np.exp(wide).sum(-1, keepdims=True)), atol=2e-6)


def test_examples_of_docstrings():
    for name in cgp.__all__:
        value = getattr(cgp, name) if name not in NEED_TORCH else None
        if callable(value) and not isinstance(value, type):
            assert ">>>" in value.__doc__, name
            assert "[" in value.__doc__.partition(">>>")[0] or name in ("device", "set_numpy_device", "set_torch_cpu_device"), name  # shapes
            for example in doctest.DocTestFinder(recurse=False).find(value, name, globs={"np": np, "cgp": cgp}):
                result = doctest.DocTestRunner(verbose=False).run(example)
                assert not result.failed, name
    for example in doctest.DocTestFinder().find(check_gradient, globs={"np": np, "cgp": cgp}):
        assert not doctest.DocTestRunner(verbose=False).run(example).failed
    for method in ("__doc__", *(m for m in vars(cgp.PagedKVCache) if not m.startswith("_"))):
        of = cgp.PagedKVCache if method == "__doc__" else vars(cgp.PagedKVCache)[method]
        assert ">>>" in of.__doc__ or isinstance(of, property), method
        for example in doctest.DocTestFinder(recurse=False).find(of, method, globs={"np": np, "cgp": cgp}):
            assert not doctest.DocTestRunner(verbose=False).run(example).failed, method


def test_stubs_name_what_there_is():
    """Every public name has a stub with the arguments of the function."""
    import ast
    folder = os.path.dirname(cgp.__file__)

    def functions(path):
        tree = ast.parse(open(os.path.join(folder, path)).read())
        return {n.name: n.args for n in tree.body if isinstance(n, ast.FunctionDef)}, tree

    def classes(path):
        tree = ast.parse(open(os.path.join(folder, path)).read())
        return {c.name: {n.name: n.args for n in c.body if isinstance(n, ast.FunctionDef)} for c in tree.body
                if isinstance(c, ast.ClassDef)}

    def names(a):
        return [x.arg for x in a.posonlyargs + a.args + a.kwonlyargs]

    stubs, typed = functions("__init__.pyi")[0], classes("__init__.pyi")
    for source, what in (("_cache.py", ["PagedKVCache", "PagedSteps"]), ("_kernel.py", ["Kernel", "Module", "TensorMap"]), ("_step.py", ["TrainingStep"]),
                         ("_quantized.py", ["QuantizedTensor", "GgufFile"]), ("_llm.py", ["LLM", "Completion"]), ("_quantized_linear.py", ["quantize"]),
                         ("_decoder.py", ["Decoder", "generate"]), ("_patch.py", ["Patch", "patch", "register_attention"])):
        there, made = functions(source)[0], classes(source)
        for name in what:
            if name in there:
                assert names(stubs[name]) == names(there[name]), name
                continue
            assert {m for m in made[name] if not m.startswith("_")} == {m for m in typed[name] if not m.startswith("_")}
            for method, arguments in typed[name].items():
                assert names(arguments) == names(made[name][method]), (name, method)
    for name in cgp.__all__:
        value = getattr(cgp, name) if name not in NEED_TORCH else None
        if inspect.isfunction(value):
            arguments = stubs[name].posonlyargs + stubs[name].args + stubs[name].kwonlyargs
            assert [a.arg for a in arguments] == list(inspect.signature(value).parameters), name
    operators = ["ops.py"] + ["_ops_%s.py" % n for n in ("attention", "elements", "experts", "linear_loss", "rows", "table")]
    for sources, stub in ((operators, "ops.pyi"), (("nn/functional.py",), "nn/functional.pyi")):
        there = {}
        for source in sources:
            there.update(functions(source)[0])
        for name, arguments in functions(stub)[0].items():
            assert [a.arg for a in arguments.args] == [a.arg for a in there[name].args], name
        public = [n for n in there if not n.startswith("_")]
        assert set(public) == set(functions(stub)[0])


def test_tables_and_choices():
    weight, indices = random(7, 24), np.array([[3, 0], [6, 3]], np.int32)
    np.testing.assert_array_equal(cgp.embedding(indices, weight), weight[indices])
    x = random(4, 50, dtype=np.float16)
    np.testing.assert_array_equal(cgp.argmax(x), x.argmax(-1))
    values, places = cgp.topk(x, 5)
    np.testing.assert_array_equal(values, -np.sort(-x, -1)[:, :5])
    np.testing.assert_array_equal(np.take_along_axis(x, places, -1), values)
    running = x.astype(np.float64).cumsum(-1)
    np.testing.assert_allclose(cgp.cumsum(x), running, rtol=1e-3, atol=1e-2)
    np.testing.assert_allclose(cgp.cumsum(x, True), running - x, rtol=1e-3, atol=1e-2)
    y = cgp.dropout(x, 0.25, 1)
    assert set(np.unique(np.isclose(y, x / 0.75, rtol=2e-3) | (y == 0))) == {True} and 20 < (y == 0).sum() < 80


def test_mistakes_name_the_argument():
    x = random(4, 5)
    with pytest.raises(cgp.ArgumentError, match="gemm: b.*5 rows"):
        cgp.matmul(x, x)
    with pytest.raises(cgp.ArgumentError, match="activation"):
        cgp.matmul(x, x.T, activation="tanh")
    with pytest.raises(cgp.ArgumentError, match="complex64"):
        cgp.softmax(x.astype(np.complex64))
    with pytest.raises(cgp.ArgumentError, match="softmax: x.*dtype"):
        cgp.softmax(x.astype(np.float64))
    with pytest.raises(ValueError):  # they are ValueErrors too
        cgp.sum(x, 7)
    with pytest.raises(cgp.ArgumentError, match="nothing to reduce"):
        cgp.max(x[:0], 0)
    with pytest.raises(cgp.ArgumentError, match="rms_norm: weight.*5"):
        cgp.rms_norm(x, np.ones(4, np.float32))
    with pytest.raises(cgp.ArgumentError, match="layer_norm: residual"):
        cgp.layer_norm(x, residual=x[:2])
    with pytest.raises(cgp.ArgumentError, match="target has values"):
        cgp.cross_entropy(x, np.array([0, 1, 5, 2]))
    with pytest.raises(cgp.ArgumentError, match="cross_entropy: target is int16"):
        cgp.cross_entropy(x, np.zeros(4, np.int16))
    with pytest.raises(cgp.ArgumentError, match="reduction must be one of"):
        cgp.cross_entropy(x, np.zeros(4, int), reduction="median")
    with pytest.raises(cgp.ArgumentError, match="activation must be one of"):
        cgp.activate(x, "tanh")
    with pytest.raises(cgp.ArgumentError, match="gated: up"):
        cgp.gated(x, x[:1])
    with pytest.raises(cgp.ArgumentError, match="embedding: indices has values"):
        cgp.embedding(np.array([0, 4]), x)
    with pytest.raises(cgp.ArgumentError, match="p must be from 0 to 1"):
        cgp.dropout(x, 2.0, 1)
    with pytest.raises(cgp.ArgumentError, match="scaling must be one of"):
        cgp.rope(x.reshape(2, 1, 10), scaling="more")
    batch = random(3, 4, 5)
    for a, b in ((x, batch.swapaxes(1, 2)), (batch[:1], batch.swapaxes(1, 2)), (random(2, 3, 4, 5), random(3, 2, 5, 4))):
        with pytest.raises(cgp.ArgumentError, match="matmul: b: its leading dimensions"):  # what NumPy would broadcast
            cgp.matmul(a, b)
    with pytest.raises(cgp.ArgumentError, match="sum: dim must be an integer"):
        cgp.sum(x, None)
    with pytest.raises(cgp.ArgumentError, match="argmax: x.*dtype"):
        cgp.argmax(x.astype(int))
    with pytest.raises(cgp.ArgumentError, match="topk: k must not be negative"):
        cgp.topk(x, -1)
    heads = x.reshape(2, 1, 10)
    for wrong, says in ((dict(base=0), "base must be above 1"), (dict(scaling="linear", factor=0), "factor must be positive"),
                        (dict(offset=-1), "offset must not be negative"), (dict(sequence=-1), "sequence must not be negative")):
        with pytest.raises(cgp.ArgumentError, match=f"rope: {says}"):
            cgp.rope(heads, **wrong)
    q = random(1, 1, 3, 8)
    for wrong, says in ((dict(scale=0.0), "scale must be positive"), (dict(scale=float("nan")), "scale must be positive"),
                        (dict(window=3), "window must be"), (dict(window=(-1, 0)), "left must not be negative")):
        with pytest.raises(cgp.ArgumentError, match=f"attention: .*{says}"):
            cgp.attention(q, q, q, **wrong)
    with pytest.raises(cgp.ArgumentError, match="head dimensions are 1 to 256"):
        cgp.attention(*(q[..., :0],) * 3)


def test_arrays_of_the_other_byte_order():
    x = random(3, 5)
    there = x.astype(x.dtype.newbyteorder("S"))
    assert np.array_equal(cgp.softmax(there), cgp.softmax(x)) and cgp.softmax(there).dtype == np.float32
    assert np.array_equal(cgp.matmul(there, x.T), cgp.matmul(x, x.T))
    target = np.array([1, 4, 0])
    assert cgp.cross_entropy(there, target.astype(target.dtype.newbyteorder("S"))) == cgp.cross_entropy(x, target)


def test_attention_with_a_score_of_ones_own():
    q, k, v, bias = random(2, 3, 5, 8), random(2, 3, 7, 8), random(2, 3, 7, 8), random(3, 7)

    def score(s, b, h, i, j, data):
        shown = (j < 3) | ~(i // 2 == j % 4)
        return np.where(shown, 2 * np.tanh(s / 2) + data[h, j] - abs(i - j) * 0.125 - s**2 / 8, -np.inf)

    s = np.einsum("bhid,bhjd->bhij", q, k) / np.sqrt(8)
    i, j = np.arange(5)[:, None], np.arange(7)
    s = 2 * np.tanh(s / 2) + bias[:, None] - abs(i - j) * 0.125 - s**2 / 8
    s = np.where((j < 3) | (i // 2 != j % 4), s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    want = p / p.sum(-1, keepdims=True) @ v
    np.testing.assert_allclose(cgp.attention(q, k, v, score=score, score_data=bias), want, atol=1e-5)
    formula = cgp.score_formula(score)
    assert cgp.score_formula(formula) == formula and formula.startswith("where(((k < 3.0) or (not")
    np.testing.assert_allclose(cgp.attention(q, k, v, score=formula, score_data=bias), want, atol=1e-5)
    for wrong, says in ((dict(score=lambda s, b, h, i, j: s if s > 0 else 0), "a condition has no value yet"),
                        (dict(score=lambda s, b, h, i, j: s + bias), "score: .* neither a number"),
                        (dict(score=lambda s, b, h, i, j: np.arctan(s)), "score: arctan of 1 arguments"),
                        (dict(score=lambda s, b, h, i, j: s**0.3), "exponents 1 to 16"),
                        (dict(score=lambda s, b, h, i, j: s * np.nan), "nan is no number"),
                        (dict(score="scores"), "'scores' is neither score"), (dict(score_data=bias), "no score that reads it"),
                        (dict(score="data[0, 0]", score_data=bias.astype(np.float16)), "score_data")):
        with pytest.raises(cgp.ArgumentError, match=says):
            cgp.attention(q, k, v, **wrong)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_documents_and_of_some_keys(causal):
    cu_seqlens_q, cu_seqlens_kv = (np.array(n, np.int32) for n in ((0, 3, 3, 10), (0, 5, 9, 13)))
    q, k, v = random(10, 4, 8), random(13, 2, 8), random(13, 2, 8)
    got = cgp.attention(q, k, v, causal=causal, cu_seqlens_q=cu_seqlens_q, cu_seqlens_kv=cu_seqlens_kv)
    padded_k, padded_v, lengths = random(3, 2, 6, 8), random(3, 2, 6, 8), np.diff(cu_seqlens_kv).astype(np.int32)
    for d in range(3):
        mine, keys = slice(*cu_seqlens_q[d:d + 2]), slice(*cu_seqlens_kv[d:d + 2])
        alone = [x[None].swapaxes(1, 2) for x in (q[mine], k[keys], v[keys])]
        np.testing.assert_allclose(got[mine][None].swapaxes(1, 2), cgp.attention(*alone, causal=causal), atol=1e-6)
        padded_k[d, :, :lengths[d]], padded_v[d, :, :lengths[d]] = alone[1][0], alone[2][0]
    queries = random(3, 4, 2, 8)
    got = cgp.attention(queries, padded_k, padded_v, causal=causal, key_lengths=lengths)
    for d in range(3):
        there = slice(None), slice(None), slice(0, lengths[d])
        np.testing.assert_allclose(got[d:d + 1], cgp.attention(queries[d:d + 1], padded_k[d:d + 1][there], padded_v[d:d + 1][there],
                                                               causal=causal), atol=1e-6)
    packed = dict(cu_seqlens_q=cu_seqlens_q, cu_seqlens_kv=cu_seqlens_kv)
    for wrong, says in ((packed | dict(cu_seqlens_kv=None), "attention: cu_seqlens_kv"),
                        (packed | dict(cu_seqlens_kv=cu_seqlens_kv[:3]), "cu_seqlens_q is of 3 sequences, cu_seqlens_kv of 2"),
                        (packed | dict(cu_seqlens_q=cu_seqlens_q.astype(np.int64)), "cu_seqlens_q"),
                        (packed | dict(q_scale=q[:1, 0, 0]), "e4m3"), (packed | dict(key_lengths=lengths), "key_lengths must be false")):
        with pytest.raises(cgp.ArgumentError, match=says):
            cgp.attention(q, k, v, **wrong)


def test_attention_of_nothing():
    q, none = random(2, 3, 4, 8), random(2, 3, 0, 8)
    assert np.array_equal(cgp.attention(q, none, none), np.zeros_like(q))
    assert cgp.attention(none, q, q).shape == (2, 3, 0, 8)
    assert cgp.attention(q[:0], q[:0], q[:0]).shape == (0, 3, 4, 8)


def attended(q, k, v):
    """Attention of the last queries of a sequence: q [heads, n, d]; k, v [tokens, heads of keys, d]."""
    k, v = (np.repeat(t.swapaxes(0, 1).astype(np.float64), len(q) // t.shape[1], 0) for t in (k, v))
    scores = q.astype(np.float64) @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])
    hidden = np.tril(np.ones(scores.shape[1:]), k.shape[1] - q.shape[1]) == 0
    p = np.exp(np.where(hidden, -np.inf, scores - scores.max(-1, keepdims=True)))
    return p / p.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize("pages, tolerance", [("float16", 2e-3), ("float8_e4m3fn", 4e-2)])
def test_paged_cache(pages, tolerance):
    cache = cgp.PagedKVCache(8, heads=2, d=64, dtype="float16", pages_dtype=pages, key_scale=0.5)
    tokens = {}

    def grow(*sequences, n):
        k, v = (random(len(sequences), n, 2, 64, dtype=np.float16) / 4 for _ in range(2))
        one = len(sequences) == 1
        cache.append(sequences[0] if one else sequences, *((k[0], v[0]) if one else (k, v)))
        for i, s in enumerate(sequences):
            tokens[s] = [np.concatenate((a, b[i])) for a, b in zip(tokens[s], (k, v))]

    first = cache.add_sequence()
    tokens[first] = [np.zeros((0, 2, 64), np.float16)] * 2
    grow(first, n=21)
    second = cache.fork(first)  # shares a page that is full and one that it will copy
    tokens[second] = list(tokens[first])
    assert cache.num_free_pages == 6
    grow(second, n=3)
    assert cache.num_free_pages == 5
    grow(first, second, n=1)
    third = cache.fork(first, 16)
    tokens[third] = [t[:16] for t in tokens[first]]
    cache.truncate(second, 20)
    tokens[second] = [t[:20] for t in tokens[second]]
    grow(second, n=2)
    for s in (first, second, third):
        for got, want in zip(cache.read(s), tokens[s]):
            np.testing.assert_allclose(got, want, atol=tolerance, rtol=7e-2 if pages != "float16" else 0)
    k, _ = cache.read([third, second])
    assert k.shape == (2, 2, 22, 64) and not k[0, :, 16:].any()
    assert cache.memory_used_mb == cache.memory_total_mb * (8 - cache.num_free_pages) / 8 > 0
    used, page = 8 - cache.num_free_pages, cache.memory_total_mb / 8
    assert page * 2**20 == 2 * 2 * 16 * 64 * (2 if pages == "float16" else 1)
    report = cache.memory_report((256, 4096))
    assert [r["longest"] for r in report] == [256, 4096] and report[1]["contiguous_mb"] == 3 * 256 * page
    assert report[0]["paged_mb"] == pytest.approx(used * page + (2 + 2 + 1) * 4 / 2**20)
    assert report[0]["saved"] == pytest.approx(1 - report[0]["paged_mb"] / (48 * page))
    for n in (1, 2):
        q = random(2, 4, n, 64, dtype=np.float16)
        for got, s in zip(cache.attend(q, [second, first]), (second, first)):
            np.testing.assert_allclose(got, attended(q[0 if s == second else 1], *tokens[s]), atol=2 * tolerance)
    q = random(3, 4, 1, 64, dtype=np.float16)
    for share in (2, 3, 9):  # the first page is everybody's
        for got, x, s in zip(cache.attend(q, [first, third, second], share=share), q, (first, third, second)):
            np.testing.assert_allclose(got, attended(x, *tokens[s]), atol=2 * tolerance)


@pytest.mark.parametrize("share", [0, 2])
def test_steps_over_a_paged_cache(share):
    cache = cgp.PagedKVCache(16, heads=2, d=64, dtype="float16")
    first, (k, v) = cache.add_sequence(), (random(32, 2, 64, dtype=np.float16) for _ in range(2))
    cache.append(first, k, v)
    of = [first, cache.fork(first)]
    tokens, steps = {s: [k, v] for s in of}, cache.steps(of, longest=36, tokens=2, share=share)
    for _ in range(2):
        k, v, q = (random(2, *shape, 64, dtype=np.float16) for shape in ((2, 2), (2, 2), (4, 2)))
        steps.advance()
        steps.append(k, v)
        for s, a, b, x, got in zip(of, k, v, q, steps.attend(q)):
            tokens[s] = [np.concatenate(both) for both in zip(tokens[s], (a, b))]
            np.testing.assert_allclose(got, attended(x, *tokens[s]), atol=2e-3)
    for s in of:
        for got, want in zip(cache.read(s), tokens[s]):
            np.testing.assert_array_equal(got, want)
    for got, want in zip(steps.read(), cache.read(of)):
        np.testing.assert_array_equal(got, want)
    with pytest.raises(cgp.ArgumentError, match="would have 38 tokens, longest is 36"):
        steps.advance()
    assert [cache.get_seq_len(s) for s in of] == [36, 36]


def test_paged_cache_names_a_device_that_is_none():
    with pytest.raises(cgp.Error, match="PagedKVCache: device.*'tpu'.*None gives NumPy arrays"):
        cgp.PagedKVCache(4, heads=1, d=64, device="tpu")


def test_paged_cache_names_mistakes():
    cache, x = cgp.PagedKVCache(4, heads=1, d=64, dtype="float16"), random(1, 1, 64, dtype=np.float16)
    gone, there = cache.add_sequence(), cache.add_sequence()
    cache.free_sequence(gone)
    cache.append(there, x, x)
    before = repr(cache)
    long = random(2, 80, 1, 64, dtype=np.float16)
    for kind, text, call in (
            (cgp.ArgumentError, "was freed", lambda: cache.free_sequence(gone)), (cgp.ArgumentError, "was freed", lambda: cache.append(gone, x, x)),
            (cgp.ArgumentError, "no sequence 99", lambda: cache.read(99)), (MemoryError, "free pages", lambda: cache.append(there, long[0], long[0])),
            (MemoryError, "free pages", lambda: cache.append([there, cache.add_sequence()], long[:, :33], long[:, :33])),
            (cgp.ArgumentError, "k must be [n, 1, 64]", lambda: cache.append(there, x[0], x)),
            (cgp.ArgumentError, "v must be [1, 1, 64]", lambda: cache.append(there, x, long[0])),
            (cgp.ArgumentError, "k is float32", lambda: cache.append(there, x.astype(np.float32), x)),
            (cgp.ArgumentError, "named twice", lambda: cache.append([there, there], long[:, :1], long[:, :1])),
            (cgp.ArgumentError, "truncate", lambda: cache.truncate(there, 2)), (cgp.ArgumentError, "fork", lambda: cache.fork(there, 2)),
            (cgp.ArgumentError, "2 queries", lambda: cache.attend(long[None, 0, :2].swapaxes(1, 2), [there])),
            (cgp.ArgumentError, "share = -1", lambda: cache.attend(x[None], [there], share=-1)),
            (cgp.ArgumentError, "no power of two", lambda: cgp.PagedKVCache(4, 1, 64, page_size=17)),
            (cgp.ArgumentError, "d = 7", lambda: cgp.PagedKVCache(4, 1, 7)), (cgp.ArgumentError, "pages = 0", lambda: cgp.PagedKVCache(0, 1, 8)),
            (cgp.ArgumentError, "float32", lambda: cgp.PagedKVCache(4, 1, 8, dtype="float32")),
            (cgp.ArgumentError, "key_scale", lambda: cgp.PagedKVCache(4, 1, 8, key_scale=0))):
        with pytest.raises(kind, match=text.replace("[", r"\[")):
            call()
        assert repr(cache) == before and cache.get_seq_len(there) == 1


class Foreign:
    """An array of a library that is neither NumPy nor PyTorch."""

    def __init__(self, array, where=(1, 0)):
        self.array, self.where = array, where

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.where


def test_arrays_of_other_libraries():
    a, b = random(3, 5), random(5, 4)
    np.testing.assert_array_equal(cgp.matmul(Foreign(a), Foreign(b)), cgp.matmul(a, b))
    np.testing.assert_array_equal(cgp.rms_norm(Foreign(a), weight=Foreign(b[:, 0].copy())), cgp.rms_norm(a, b[:, 0]))
    with pytest.raises(cgp.ArgumentError, match="Foreign is on a device of DLPack's type 8"):
        cgp.softmax(Foreign(a, (8, 0)))
    code = ("import sys; sys.modules['torch'] = None\nimport cgp, test_numpy as t\ntry: cgp.softmax(t.Foreign(t.random(1, 2), (2, 0)))\n"
            "except cgp.Unsupported as e: assert 'PyTorch' in str(e)\nelse: sys.exit(1)")
    assert subprocess.run([sys.executable, "-c", code], cwd=os.path.dirname(os.path.abspath(__file__))).returncode == 0
