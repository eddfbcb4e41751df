# SPDX-License-Identifier: Apache-2.0
"""Functions on NumPy arrays (emulator) against NumPy, in float64, and what is said about mistakes."""
import sys

import numpy as np
import pytest

import cgp

rng = np.random.default_rng(1)


def random(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def test_importing_needs_no_torch():
    assert "torch" not in sys.modules


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
