# SPDX-License-Identifier: Apache-2.0
"""Kernels of the caller's own: NumPy arrays and tensors on the CPU on the emulator, torch_op, what is said about mistakes."""
import os
import subprocess
import sys

import numpy as np
import pytest

import cgp

PTX = """
.version 7.0
.target sm_80
.address_size 64

// y[i] = a * x[i] for i < n
.visible .entry scale(.param .u64 .ptr .global .align 4 x, .param .u64 y, .param .f32 a, .param .u32 n) {
  .reg .pred %p; .reg .b32 %r<5>; .reg .f32 %f<3>; .reg .b64 %rd<5>;
  ld.param.u64 %rd0, [x]; ld.param.u64 %rd1, [y]; ld.param.f32 %f0, [a]; ld.param.u32 %r0, [n];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
  mad.lo.u32 %r4, %r1, %r2, %r3;
  setp.ge.u32 %p, %r4, %r0;
  @%p ret;
  mul.wide.u32 %rd2, %r4, 4; add.u64 %rd3, %rd0, %rd2; add.u64 %rd4, %rd1, %rd2;
  ld.global.f32 %f1, [%rd3];
  mul.f32 %f2, %f1, %f0;
  st.global.f32 [%rd4], %f2;
  ret;
}
// Thread 0 stores its arguments to out[0..2] of 64 bits.
.visible .entry numbers(.param .u64 out, .param .s32 i, .param .f64 d, .param .align 4 .b8 s[8]) .reqntid 32 {
  .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .f64 %fd;
  mov.u32 %r3, %tid.x; setp.ne.u32 %p, %r3, 0;
  @%p ret;
  ld.param.u64 %rd0, [out]; ld.param.s32 %r0, [i]; ld.param.f64 %fd, [d]; ld.param.u32 %r1, [s+4];
  cvt.s64.s32 %rd1, %r0; st.global.u64 [%rd0], %rd1;
  st.global.f64 [%rd0+8], %fd;
  cvt.u64.u32 %rd2, %r1; st.global.u64 [%rd0+16], %rd2;
  ret;
}
"""
MODULE = cgp.load_ptx(PTX)
SCALE = MODULE["scale"]


def scaled(x, a, n=None, **shape):
    y = np.zeros_like(x)
    SCALE(x, y, a, x.size if n is None else n, **{"grid": 4, "block": 64, **shape})
    return y


def test_a_module_is_text_bytes_or_a_path(tmp_path):
    path = tmp_path / "scale.ptx"
    path.write_text(PTX)
    for ptx in (PTX, PTX.encode(), path, str(path)):
        assert cgp.load_ptx(ptx).kernels == ("scale", "numbers")
    assert cgp.kernel(path, "numbers").block == (32, 1, 1)
    with pytest.raises(OSError):
        cgp.load_ptx("nowhere.ptx")
    with pytest.raises(cgp.ArgumentError, match="int"):
        cgp.load_ptx(7)
    with pytest.raises(cgp.ArgumentError, match="line 4.*u33"):
        cgp.load_ptx(".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry f() { mov.u33 %r, 1; }")
    with pytest.raises(cgp.ArgumentError, match="scal(.|\n)*scale"):
        MODULE["scal"]
    with pytest.raises(cgp.ArgumentError, match="scale, numbers"):
        MODULE.kernel()


def test_what_is_known_of_a_kernel():
    assert repr(SCALE) == "cgp.Kernel(scale(x: pointer, y: word, a: float32, n: uint32))"
    assert SCALE.parameters[0].pointer_align == 4 and SCALE.block is None and SCALE.registers > 0
    assert [p.bytes for p in MODULE["numbers"].parameters] == [8, 4, 8, 8]


def test_a_launch_writes_the_array():
    x = np.arange(200, dtype=np.float32)
    np.testing.assert_array_equal(scaled(x, 2.5), x * 2.5)
    np.testing.assert_array_equal(scaled(x, 2, grid=(4, 1), block=(64,)), x * 2)
    np.testing.assert_array_equal(scaled(x, np.float32(3), np.uint32(200)), x * 3)
    np.testing.assert_array_equal(scaled(x, 2, 0), x * 0)


def test_arguments_that_share_memory_do_so_on_the_device():
    x = np.arange(256, dtype=np.float32)
    SCALE(x, x, 2, 256, grid=4, block=64)
    np.testing.assert_array_equal(x, np.arange(256) * 2)
    SCALE(x[:128], x[128:], 3, 128, grid=2, block=64)
    np.testing.assert_array_equal(x[128:], x[:128] * 3)
    SCALE(x[:128], x[64:192], 1, 64, grid=1, block=64)
    np.testing.assert_array_equal(x[64:128], x[:64])


def test_numbers_and_structs():
    out = np.zeros(3, np.int64)
    MODULE["numbers"](out, -5, 0.5, np.array([1, 9], np.int32).tobytes(), grid=1)
    assert out[0] == -5 and out[1:2].view(np.float64)[0] == 0.5 and out[2] == 9
    record = np.array((1, 8), dtype=[("a", "i4"), ("b", "i4")])[()]
    MODULE["numbers"](out, 7, 1, record, grid=1)
    assert out[0] == 7 and out[2] == 8


@pytest.mark.parametrize("arguments, shape, text", [
    ((0, 1, 2), {}, "4 parameters.*3 arguments"),
    ((0, 1, 2.5, 3.5), {}, r"argument 3 \(n\) is 3.5; the parameter is uint32"),
    ((0, 1, 2.5, -1), {}, r"argument 3 \(n\) is -1, which uint32 cannot hold"),
    ((0, 1, 2.5, 1 << 32), {}, "uint32 cannot hold"),
    ((0, 1, np.float64(2.5), 3), {}, '"a" is a scalar of type f32, the argument is a scalar of type f64'),
    ((7, 1, 2.5, 3), {}, r"argument 0 \(x\) is a number; the parameter is a pointer"),
    ((0, 1, 2.5, 0), {"n": "array"}, '"n" is a scalar of type u32, the argument is a buffer'),
    ((0, 1, "a", 3), {}, r"argument 2 \(a\) is a str"),
    ((0, 1, b"1234", 3), {}, '"a" is a scalar.*struct of 4 bytes'),
    ((0, 1, 2.5, 3), {"grid": 0}, "grid must be one to three positive integers, not 0"),
    ((0, 1, 2.5, 3), {"grid": 1.5}, "grid must be"),
    ((0, 1, 2.5, 3), {"block": (1, 2, 3, 4)}, "block must be"),
    ((0, 1, 2.5, 3), {"block": 2048}, "at most 1024 threads"),
    ((0, 1, 2.5, 3), {"block": None}, "no fixed block shape"),
    ((0, 1, 2.5, 3), {"cluster": 3}, "multiple of the cluster"),
    ((0, 1, 2.5, 3), {"shared": 1 << 20}, "shared memory"),
    ((0, 1, 2.5, 3), {"shared": -1}, "shared must be"),
])
def test_mistakes_name_the_argument(arguments, shape, text):
    arrays = [np.ones(256, np.float32), np.ones(256, np.float32)]
    arguments = [arrays[a] if type(a) is int and i < 2 and a < 2 else a for i, a in enumerate(arguments)]
    shape = dict(shape)
    if shape.pop("n", None):
        arguments[3] = arrays[0]
    with pytest.raises(cgp.ArgumentError, match=text):
        SCALE(*arguments, **{"grid": 4, "block": 64, **shape})


def test_arrays_that_are_refused():
    x = np.ones((8, 8), np.float32)
    with pytest.raises(cgp.ArgumentError, match=r"argument 0 \(x\) is not contiguous"):
        SCALE(x.T[:4], x, 1, 1, grid=1, block=32)
    with pytest.raises(cgp.ArgumentError, match="complex64"):
        SCALE(x.astype(np.complex64), x, 1, 1, grid=1, block=32)
    with pytest.raises(cgp.ArgumentError, match="byte order"):
        SCALE(x.astype(">f4"), x, 1, 1, grid=1, block=32)
    wide, y = cgp.load_ptx(PTX.replace(".align 4 x", ".align 16 x"))["scale"], np.ones(65, np.float32)
    with pytest.raises(cgp.ArgumentError, match=r"argument 0 \(x\)(.|\n)*\.ptr \.align 16"):
        wide(y[1:], y, 1, 1, grid=1, block=32)


def test_a_kernel_must_not_write_a_read_only_array():
    x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
    x.flags.writeable = False
    SCALE(x, y, 2, 64, grid=1, block=64)
    assert (y == 2).all()
    y.flags.writeable = False
    with pytest.raises(cgp.ArgumentError, match=r"wrote to argument 1 \(y\), which is a read-only array"):
        SCALE(x, y, 3, 64, grid=1, block=64)
    assert (y == 2).all()


def test_findings_of_the_emulator_are_exceptions_that_name_the_argument():
    with pytest.raises(cgp.EmulatorFault, match=r"scale(.|\n)*argument 0 \(x\)"):
        scaled(np.ones(100, np.float32), 2, 101)
    with pytest.raises(cgp.EmulatorFault):
        SCALE(None, np.ones(4, np.float32), 2, 4, grid=1, block=32)
    np.testing.assert_array_equal(scaled(np.ones(8, np.float32), 2), 2)  # the next launch is as if nothing had been


def test_a_device_that_cannot_run_the_target():
    later = PTX.replace("sm_80", "sm_100a").replace(".version 7.0", ".version 8.7")
    x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
    with pytest.raises(cgp.Unsupported, match="sm_100a"):
        cgp.load_ptx(later)["scale"](x, y, 2, 64, grid=1, block=64)
    cgp.load_ptx(later, device="emu:sm_100a")["scale"](x, y, 2, 64, grid=1, block=64)
    assert (y == 2).all()


TMA = """
.version 8.0
.target sm_90a
.address_size 64
// The box [4, 8] of f32 that begins at (0, column) of a tensor, to out.
.visible .entry box(.param .align 64 .b8 map[128], .param .u64 out, .param .u32 column) .reqntid 32 {
  .shared .align 128 .b8 tile[128]; .shared .align 8 .b64 full;
  .reg .pred %p, %q; .reg .b32 %r<6>; .reg .b64 %rd<6>;
  mov.u32 %r0, %tid.x; mov.u32 %r1, full; mov.u32 %r2, tile;
  ld.param.u32 %r3, [column]; ld.param.u64 %rd0, [out];
  setp.ne.u32 %p, %r0, 0;
  @%p bra ready;
  mbarrier.init.shared::cta.b64 [%r1], 1;
  fence.proxy.async.shared::cta;
ready:
  bar.sync 0;
  @%p bra wait;
  mov.b64 %rd5, map; cvta.param.u64 %rd1, %rd5;
  mov.b32 %r4, 0;
  mbarrier.arrive.expect_tx.shared::cta.b64 %rd2, [%r1], 128;
  cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%rd1, {%r3, %r4}], [%r1];
wait:
  mbarrier.try_wait.parity.shared::cta.b64 %q, [%r1], 0;
  @!%q bra wait;
  shl.b32 %r5, %r0, 2; add.u32 %r2, %r2, %r5; ld.shared.u32 %r4, [%r2];
  cvt.u64.u32 %rd3, %r5; add.u64 %rd4, %rd0, %rd3; st.global.u32 [%rd4], %r4;
  ret;
}
"""


def test_a_tensor_map():
    x, out = np.arange(4 * 16, dtype=np.float32).reshape(4, 16), np.zeros((4, 8), np.float32)
    kernel = cgp.kernel(TMA)
    kernel(cgp.TensorMap(x, (4, 8)), out, 8, grid=1)
    np.testing.assert_array_equal(out, x[:, 8:])
    for wrong, text in ((cgp.TensorMap(x, (4,)), "2 dimensions"), (cgp.TensorMap(x, (4, 8), swizzle=48), "swizzle must be 0, 32, 64, 128"),
                        (cgp.TensorMap(x, (4, 300)), "box"), (x, "tensor map")):
        with pytest.raises(cgp.ArgumentError, match=text):
            kernel(wrong, out, 8, grid=1)


# ---- PyTorch
def test_tensors_on_the_cpu_run_on_request():
    torch = pytest.importorskip("torch")
    x, y = torch.arange(100.), torch.zeros(100)
    with pytest.raises(cgp.Unsupported, match="set_torch_cpu_device"):
        SCALE(x, y, 2, 100, grid=2, block=64)
    cgp.load_ptx(PTX, device="emu:sm_80")["scale"](x, y, 2, 100, grid=2, block=64)
    assert torch.equal(y, 2 * x)
    cgp.set_torch_cpu_device("emu:sm_90a")
    try:
        SCALE(x, y, 3, 100, grid=2, block=64)
        assert torch.equal(y, 3 * x)
        with pytest.raises(cgp.ArgumentError, match="not contiguous"):
            SCALE(x.view(10, 10).T, y, 3, 100, grid=2, block=64)
    finally:
        cgp.set_torch_cpu_device(None)


def test_torch_op():
    torch = pytest.importorskip("torch")
    if not hasattr(torch.library, "custom_op"):
        pytest.skip("torch.library.custom_op is not there")
    kernel = cgp.load_ptx(PTX, device="emu:sm_90a")["scale"]

    def setup(ctx, inputs, output):
        ctx.factor = inputs[1]

    @cgp.torch_op("cgp_test::scale", fake=lambda x, factor: torch.empty_like(x), setup_context=setup,
                  backward=lambda ctx, dy: (scale(dy.contiguous(), ctx.factor), None))
    def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
        y = torch.empty_like(x)
        kernel(x, y, factor, x.numel(), grid=-(-x.numel() // 64), block=64)
        return y

    x = torch.randn(5, 7, requires_grad=True)
    y = scale(x, 2.5)
    assert torch.equal(y, x * 2.5) and torch.equal(torch.ops.cgp_test.scale(x, 2.5), y)
    y.sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 2.5))
    torch.library.opcheck(torch.ops.cgp_test.scale.default, (x, 2.5))
    compiled = torch.compile(lambda x: scale(x + 1, 2.0) * 3, backend="aot_eager", fullgraph=True)
    assert torch.allclose(compiled(x), (x + 1) * 6)


def test_the_example():
    pytest.importorskip("torch")
    path = os.path.join(os.path.dirname(__file__), "..", "..", "examples", "own_kernel", "own_kernel_torch.py")
    done = subprocess.run([sys.executable, path], capture_output=True, text=True)
    assert done.stdout == "all right\n", done.stdout + done.stderr


def test_torch_op_says_what_it_needs():
    for name in ("scale", "a b::c", 7):
        with pytest.raises(cgp.ArgumentError, match="library::operator"):
            cgp.torch_op(name, fake=lambda: None)
    with pytest.raises(cgp.ArgumentError, match="fake"):
        cgp.torch_op("cgp_test::none", fake=None)
    with pytest.raises(cgp.ArgumentError, match="setup_context"):
        cgp.torch_op("cgp_test::none", lambda x: x, fake=lambda x: x, setup_context=lambda *a: None)
    pytest.importorskip("torch")
    with pytest.raises(cgp.ArgumentError, match="cgp_test::none"):
        cgp.torch_op("cgp_test::none", lambda x: x, fake=lambda x: x)
