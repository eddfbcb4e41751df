# SPDX-License-Identifier: Apache-2.0
"""Quantised weights: NumPy arrays on the emulator; with PyTorch tensors on the CPU and kernels on the emulator, in a process of its
own. Values against the formats' definitions in NumPy, products against float64."""
import os
import struct
import subprocess
import sys

import numpy as np
import pytest

import cgp
from cgp import QuantizedTensor

rng = np.random.default_rng(3)
NF4 = np.array([
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0
], np.float32)


def q8_0_blocks(codes, scales):
    """int8 [rows, cols] with float16 scales [rows, cols / 32]."""
    rows, cols = codes.shape
    parts = np.concatenate([scales.reshape(-1, 1).view(np.uint8), codes.reshape(-1, 32).view(np.uint8)], axis=1)
    assert parts.shape == (rows * cols // 32, 34)
    return parts.reshape(-1)


def q8_0(rows=6, cols=64):
    codes = rng.integers(-127, 128, (rows, cols)).astype(np.int8)
    scales = (rng.random((rows, cols // 32)) / 64).astype(np.float16)
    return q8_0_blocks(codes, scales), codes.astype(np.float32) * np.repeat(scales.astype(np.float32), 32, axis=1)


def gptq(rows=16, cols=64, group=32, act_order=False, minus_one=True):
    """qweight, qzeros, scales, g_idx and the values."""
    groups = cols // group
    codes, zeros = rng.integers(0, 16, (cols, rows)), rng.integers(0, 16, (groups, rows))
    scales = (rng.random((groups, rows)) + 0.5).astype(np.float16)
    g_idx = rng.permutation(np.arange(cols) // group).astype(np.int32) if act_order else np.arange(cols, dtype=np.int32) // group
    shifts = 4 * np.arange(8)
    qweight = (codes.reshape(cols // 8, 8, rows) << shifts[None, :, None]).sum(1).astype(np.uint32).view(np.int32)
    qzeros = (zeros.reshape(groups, rows // 8, 8) << shifts).sum(2).astype(np.uint32).view(np.int32)
    values = scales[g_idx].astype(np.float32) * (codes - zeros[g_idx] - minus_one).astype(np.float32)
    return qweight, qzeros, scales, g_idx if act_order else None, np.ascontiguousarray(values.T)


def awq(rows=16, cols=64, group=32):
    groups = cols // group
    codes, zeros = rng.integers(0, 16, (cols, rows)), rng.integers(0, 16, (groups, rows))
    scales = (rng.random((groups, rows)) + 0.5).astype(np.float16)
    order = [0, 2, 4, 6, 1, 3, 5, 7]  # the outputs of a word from its lowest nibble

    def pack(x):
        return (x.reshape(x.shape[0], rows // 8, 8)[:, :, order] << 4 * np.arange(8)).sum(2).astype(np.uint32).view(np.int32)

    g = np.arange(cols) // group
    return pack(codes), pack(zeros), scales, np.ascontiguousarray((scales[g].astype(np.float32) * (codes - zeros[g])).T)


def nf4(rows=4, cols=64, block=64, nested=False):
    codes = rng.integers(0, 16, rows * cols)
    packed = (codes[0::2] << 4 | codes[1::2]).astype(np.uint8)
    options = {}
    blocks = rows * cols // block
    if nested:
        absmax = rng.integers(0, 256, blocks).astype(np.uint8)
        table, scales = rng.random(256).astype(np.float32), rng.random(-(-blocks // 256)).astype(np.float32)
        options = dict(absmax_table=table, absmax_scales=scales, absmax_offset=0.25)
        wide = table[absmax] * scales[np.arange(blocks) // 256] + np.float32(0.25)
    else:
        absmax = wide = rng.random(blocks).astype(np.float32)
    return packed, absmax, options, (wide[np.arange(rows * cols) // block] * NF4[codes]).reshape(rows, cols)


def gguf(path, tensors):
    """A GGUF file of {name: (GGML type, shape, bytes)}."""
    head, data = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 0), b""
    for name, (kind, shape, content) in tensors.items():
        head += struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", len(shape))
        head += struct.pack(f"<{len(shape)}Q", *reversed(shape)) + struct.pack("<IQ", kind, len(data))
        data += content + bytes(-len(content) % 32)
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32) + data)


def check_products(w, values, tolerance=1e-5):
    np.testing.assert_array_equal(w.dequantize(), values)
    assert w.shape == values.shape
    for shape in ((values.shape[1],), (3, values.shape[1]), (2, 9, values.shape[1])):
        x = rng.standard_normal(shape).astype(np.float32)
        want = x.astype(np.float64) @ values.T.astype(np.float64)
        np.testing.assert_allclose(cgp.matmul(x, w), want, atol=tolerance * np.abs(want).max() + 1e-6)
    half = rng.standard_normal((1, values.shape[1])).astype(np.float16)
    want = half.astype(np.float64) @ values.T.astype(np.float64)
    np.testing.assert_allclose(cgp.matmul(half, w), want, atol=4e-3 * np.abs(want).max() + 4e-3)


def test_blocks_and_gguf(tmp_path):
    blocks, values = q8_0()
    check_products(QuantizedTensor.from_blocks("q8_0", (6, 64), blocks), values)
    path = tmp_path / "model.gguf"
    gguf(path, {"a.weight": (8, (6, 64), blocks.tobytes()), "experts": (8, (2, 3, 64), blocks.tobytes()),
                "norm": (0, (64,), bytes(256)), "odd": (26, (1, 4), bytes(16))})
    w = QuantizedTensor.from_gguf(path, "a.weight")
    assert w.format == "q8_0" and w.nbytes == blocks.nbytes and repr(w) == "cgp.QuantizedTensor('q8_0', shape=(6, 64))"
    check_products(w, values)
    with cgp.GgufFile(path) as file:
        assert file.tensors["experts"] == ("q8_0", (2, 3, 64)) and len(file.tensors) == 4
        assert file.weight("experts").shape == (6, 64)
        with pytest.raises(cgp.ArgumentError, match="a.weight"):
            file.weight("a.wieght")
        with pytest.raises(cgp.ArgumentError, match="a weight has rows"):
            file.weight("norm")
        with pytest.raises(cgp.ArgumentError, match="I32"):
            file.weight("odd")
    with pytest.raises(cgp.ArgumentError, match="closed"):
        file.weight("experts")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(cgp.ArgumentError):
        QuantizedTensor.from_gguf(path, "a.weight")
    with pytest.raises(cgp.ArgumentError, match="nothing.gguf"):
        QuantizedTensor.from_gguf(tmp_path / "nothing.gguf", "a.weight")


def test_gptq_and_awq():
    for options in ({}, {"act_order": True}, {"minus_one": False}, {"group": 8, "act_order": True}):
        *tensors, values = gptq(**options)
        w = QuantizedTensor.from_gptq(*tensors, zeros_minus_one=options.get("minus_one", True))
        assert w.format == "gptq"
        check_products(w, values)
        assert (w._tensors[-1] is None) == (options.get("group") == 8)  # packed on sm_90, with groups of 32, 64 or 128
    *tensors, values = awq()
    w = QuantizedTensor.from_awq(*tensors)
    check_products(w, values)
    assert w._tensors[-1] is not None


def test_group_indices_in_order_are_left_out():
    qweight, qzeros, scales, _, values = gptq(group=32)
    w = QuantizedTensor.from_gptq(qweight, qzeros, scales, np.arange(64, dtype=np.int32) // 32)
    assert w._tensors[3] is None
    x = rng.standard_normal((20, 64)).astype(np.float16)
    np.testing.assert_allclose(cgp.matmul(x, w), x.astype(np.float64) @ values.T, atol=4e-3 * 64)
    assert w._tensors[-1] is not None


def test_formats_that_are_packed_on_sm_90():
    x = rng.standard_normal((20, 128)).astype(np.float16)
    array = rng.standard_normal((16, 128)).astype(np.float32)
    codes, absmax, more, _ = nf4(rows=16, cols=128, nested=True)
    weights = [QuantizedTensor.quantize(array, format) for format in ("q4_0", "q8_0", "int4", "nf4", "mxfp4")]
    for w in (*weights, QuantizedTensor.from_bnb(codes, absmax, (16, 128), **more)):
        values = w.dequantize().astype(np.float64)
        for rows in (1, 20):
            want = x[:rows].astype(np.float64) @ values.T
            np.testing.assert_allclose(cgp.matmul(x[:rows], w), want, atol=6e-3 * np.abs(values).max() * 128 ** 0.5)
        assert w._tensors[-1] is not None, w.format
    fp8, q2_k = QuantizedTensor.quantize(array, "fp8"), QuantizedTensor.quantize(np.ones((2, 256), np.float32), "q2_k")
    assert fp8._pack() is None and q2_k._pack() is None


def test_experts_of_a_mixture():
    ends, x = np.array([3, 3, 20]), rng.standard_normal((22, 64)).astype(np.float16)
    for rows, format in ((32, "q4_0"), (8, "q8_0"), (8, "q5_1")):  # packed experts have a multiple of 32 rows
        w = QuantizedTensor.quantize(rng.standard_normal((3 * rows, 64)).astype(np.float32), format)
        values = w.dequantize().astype(np.float64).reshape(3, rows, 64)
        for numbers in (ends, ends.astype(np.int32)):
            y = cgp.grouped_matmul(x, w, numbers)
            assert y.shape == (22, rows) and y.dtype == np.float16
            np.testing.assert_allclose(y[:3], x[:3].astype(np.float64) @ values[0].T, atol=0.1)
            np.testing.assert_allclose(y[3:20], x[3:20].astype(np.float64) @ values[2].T, atol=0.1)
    with pytest.raises(cgp.ArgumentError, match="must divide the 24 rows"):
        cgp.grouped_matmul(x, w, np.array([1, 2, 3, 4, 5]))
    with pytest.raises(cgp.ArgumentError, match="its last dimension must be 64"):
        cgp.grouped_matmul(x[:, :32], w, ends)


def test_bitsandbytes():
    for options in ({}, {"nested": True}, {"rows": 3, "cols": 10, "block": 6, "nested": True}):
        codes, absmax, more, values = nf4(**options)
        check_products(QuantizedTensor.from_bnb(codes, absmax, values.shape, block=options.get("block", 64), **more), values)


def test_quantize():
    x = rng.standard_normal((16, 256)).astype(np.float32)
    errors = {"q4_0": .1, "q8_0": .006, "q2_k": .35, "q3_k": .18, "q4_k": .08, "q5_k": .04, "q6_k": .02, "nf4": .1, "mxfp4": .15, "int4": .1, "fp8": .03}
    for format, error in errors.items():
        w = QuantizedTensor.quantize(x, format, group=64)
        values = w.dequantize()
        assert np.sqrt(((values - x) ** 2).mean()) < error, format
        check_products(w, values)
    halves = QuantizedTensor.quantize(x, "q4_k").dequantize("float16")
    assert halves.dtype == np.float16
    np.testing.assert_array_equal(halves, QuantizedTensor.quantize(x, "q4_k").dequantize().astype(np.float16))


def test_other_devices():
    blocks, values = q8_0()
    w = QuantizedTensor.from_blocks("q8_0", (6, 64), blocks)
    try:
        for arch in ("sm_75", "sm_120a"):
            cgp.set_numpy_device("emu:" + arch)
            x = rng.standard_normal((1, 64)).astype(np.float16)
            np.testing.assert_allclose(cgp.matmul(x, w), x.astype(np.float64) @ values.T, atol=2e-2)
    finally:
        cgp.set_numpy_device("emu:sm_90a")


def test_what_does_not_fit_is_named():
    blocks, _ = q8_0()
    named = pytest.raises
    with named(cgp.ArgumentError, match="takes 408 bytes, there are 407"):
        QuantizedTensor.from_blocks("q8_0", (6, 64), blocks[:-1])
    with named(cgp.ArgumentError, match="whole blocks of 32"):
        QuantizedTensor.from_blocks("q8_0", (6, 60), blocks)
    with named(cgp.ArgumentError, match="q8_0"):
        QuantizedTensor.from_blocks("q8-0", (6, 64), blocks)
    bad = blocks.copy()
    bad[35] = 0x7e
    with named(cgp.ArgumentError, match="block 1"):
        QuantizedTensor.from_blocks("q8_0", (6, 64), bad)
    QuantizedTensor.from_blocks("q8_0", (6, 64), bad, check=False)
    qweight, qzeros, scales, g_idx, _ = gptq(act_order=True)
    with named(cgp.ArgumentError, match="float32; it must be float16"):
        QuantizedTensor.from_gptq(qweight, qzeros, scales.astype(np.float32), g_idx)
    with named(cgp.ArgumentError, match="groups that divide"):
        QuantizedTensor.from_gptq(qweight, qzeros[:1], scales, g_idx)
    with named(cgp.ArgumentError, match="g_idx must be 64 numbers from 0 to 2 - 1"):
        QuantizedTensor.from_gptq(qweight, qzeros, scales, g_idx + 1)
    scales[1, 2] = np.inf
    with named(cgp.ArgumentError, match="scales must be finite"):
        QuantizedTensor.from_gptq(qweight, qzeros, scales, g_idx)
    with named(cgp.ArgumentError, match="takes 20 bytes of codes"):
        QuantizedTensor.from_bnb(np.zeros(19, np.uint8), np.ones(1, np.float32), (4, 10))
    with named(cgp.ArgumentError, match="absmax_table"):
        QuantizedTensor.from_bnb(np.zeros(20, np.uint8), np.ones(1, np.uint8), (4, 10))
    with named(cgp.ArgumentError, match="decoded only"):
        QuantizedTensor.quantize(np.ones((1, 256), np.float32), "iq2_s")
    with named(cgp.ArgumentError, match="element 3"):
        QuantizedTensor.quantize(np.array([[1, 2, 3, np.nan] * 8], np.float32), "q8_0")
    with named(cgp.ArgumentError, match="group = 48"):
        QuantizedTensor.quantize(np.ones((8, 64), np.float32), "int4", group=48)
    w = QuantizedTensor.from_blocks("q8_0", (6, 64), blocks)
    with named(cgp.ArgumentError, match="its last dimension must be 64"):
        cgp.matmul(np.ones((2, 63), np.float32), w)
    with named(cgp.ArgumentError, match="bias"):
        cgp.matmul(np.ones((2, 64), np.float32), w, np.ones(6, np.float32))


def test_with_torch_in_a_process_of_its_own():
    pytest.importorskip("torch")
    done = subprocess.run([sys.executable, os.path.abspath(__file__)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def main():
    import torch
    from test_torch_emulated import dispatched, ops_for_the_cpu
    _, ops = ops_for_the_cpu()

    def torch_weight(w):
        return w.to("cpu")

    weights = [torch_weight(QuantizedTensor.from_gptq(*gptq()[:3])), torch_weight(QuantizedTensor.from_awq(*awq()[:3])),
               torch_weight(QuantizedTensor.from_blocks("q8_0", (6, 64), q8_0()[0]))]
    codes, absmax, more, values = nf4(rows=6, nested=True)
    weights.append(torch_weight(QuantizedTensor.from_bnb(codes, absmax, values.shape, **more)))
    for w in weights:
        dense = w.dequantize(torch.float32)
        assert w.device == torch.device("cpu") and dense.shape == w.shape
        for through in (False, True):
            dispatched.extend([True] * through)
            for shape in ((3,), (2, 20)):
                x = torch.randn(*shape, w.shape[1], requires_grad=True)
                got, want = ops.matmul(x, w), x @ dense.T
                torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)
                d = torch.randn_like(want)
                torch.testing.assert_close(torch.autograd.grad(got, x, d), torch.autograd.grad(want, x, d), atol=1e-4, rtol=1e-4)
            dispatched.clear()
    w = weights[0]
    x = torch.randn(2, w.shape[1], requires_grad=True)
    a = w._arguments()
    torch.library.opcheck(torch.ops.cgp.quantized_matmul.default, (x, *a[:10], list(a[10]), a[11], False))
    torch.library.opcheck(torch.ops.cgp.dequantize.default, (*a[:10], list(a[10]), a[11], torch.bfloat16))
    ends = torch.tensor([1, 2])
    parts = [x[:1].detach() @ w.dequantize(torch.float32)[:8].T, x[1:].detach() @ w.dequantize(torch.float32)[8:].T]
    torch.testing.assert_close(ops.grouped_matmul(x.detach(), w, ends), torch.cat(parts), atol=1e-4, rtol=1e-4)
    torch.library.opcheck(torch.ops.cgp.quantized_grouped_matmul.default, (x.detach(), ends, *a[:10], list(a[10]), a[11]))
    compiled = torch.compile(lambda x: ops.matmul(x, w) * 2, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x.detach()), ops.matmul(x.detach(), w) * 2)
    # A second derivative: the product is linear in x.
    y = ops.matmul(x, w).pow(2).sum()
    (dx, ) = torch.autograd.grad(y, x, create_graph=True)
    (again, ) = torch.autograd.grad(dx.sum(), x)
    dense = w.dequantize(torch.float32)
    torch.testing.assert_close(again, 2 * (torch.ones_like(x) @ dense.T @ dense), atol=1e-2, rtol=1e-3)

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 64), torch.nn.GELU(), torch.nn.Linear(64, 256, bias=False))
    model.lm_head = torch.nn.Linear(256, 32)
    x = torch.randn(5, 256)
    before = torch.nn.Sequential.forward(model, x)
    bias = model[0].bias
    assert cgp.quantize(model, "q4_k") is model
    assert model.cgp_not_quantized == ["2", "lm_head"] and model[0].bias is bias  # 64 columns are no block of 256
    cgp.quantize(model, "int4", group=32)
    assert model.cgp_not_quantized == ["lm_head"] and "q4_k" in repr(model) and "format='gptq'" in repr(model)
    after = model(x)
    assert (after - before).norm() < 0.15 * before.norm() and (after - before).norm() > 0
    after.sum().backward()
    assert bias.grad is not None and {n for n, _ in model.named_parameters()} == {"0.bias", "lm_head.weight", "lm_head.bias"}
    state = model.state_dict()
    assert state["0.codes"].dtype == torch.uint8 and state["2.scales"].dtype == torch.float16
    model.to(torch.bfloat16)
    assert model[2].scales.dtype == torch.float16 and model[0].bias.dtype == torch.bfloat16
    assert model[0](x.to(torch.bfloat16)).dtype == torch.bfloat16
    for call, text in ((lambda: cgp.quantize(model, "q4-k"), "q4_k"), (lambda: ops.matmul(torch.ones(2, 3), w), "its last dimension"),
                       (lambda: ops.matmul(torch.ones(2, 64, dtype=torch.int32), w), "int32"),
                       (lambda: ops.matmul(x, w, activation="relu"), "activation"),
                       (lambda: w.dequantize(torch.float64), "float64")):
        try:
            call()
        except cgp.ArgumentError as e:
            assert text in str(e), e
        else:
            raise AssertionError(text)


if __name__ == "__main__":
    main()
