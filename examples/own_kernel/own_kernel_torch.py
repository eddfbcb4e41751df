# SPDX-License-Identifier: Apache-2.0
"""A kernel given as PTX as an operator of PyTorch: its gradient, torch.compile. On a GPU, or the emulator where there is none."""
import os

import torch

import cgp

kernel = cgp.kernel(os.path.join(os.path.dirname(__file__), "scale.ptx"))


def save(ctx, inputs, output):
    ctx.factor = inputs[1]


def backward(ctx, dy):
    return scale(dy.contiguous(), ctx.factor), None  # of x and of factor


@cgp.torch_op("mine::scale", fake=lambda x, factor: torch.empty_like(x), backward=backward, setup_context=save)
def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    y = torch.empty_like(x)
    kernel(x, y, factor, x.numel(), grid=-(-x.numel() // 256), block=256)
    return y


device = "cuda" if torch.cuda.is_available() else "cpu"
if device == "cpu":
    cgp.set_torch_cpu_device("emu:sm_90a")
x = torch.randn(1000, device=device, requires_grad=True)
y = scale(x, 2.5)
y.sum().backward()
assert torch.equal(y, x * 2.5) and torch.equal(x.grad, torch.full_like(x, 2.5))

torch.library.opcheck(torch.ops.mine.scale.default, (x, 2.5))
compiled = torch.compile(lambda x: scale(x + 1, 2.0), backend="aot_eager", fullgraph=True)
assert torch.allclose(compiled(x), (x + 1) * 2)
print("all right")
