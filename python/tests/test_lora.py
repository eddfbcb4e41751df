# SPDX-License-Identifier: Apache-2.0
"""cgp.lora: values, gradients, training, files. On the CPU by the emulator in a process of its own, and on a GPU where there is one."""
import copy
import json
import os
import subprocess
import sys
import tempfile

import pytest

torch = pytest.importorskip("torch")


def test_on_the_emulator():
    done = subprocess.run([sys.executable, os.path.abspath(__file__)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu():
    import cgp
    everything(cgp, "cuda")


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj, self.v_proj, self.lm_head = torch.nn.Linear(24, 40), torch.nn.Linear(40, 24, bias=False), torch.nn.Linear(24, 7)

    def forward(self, x):
        return self.lm_head(self.v_proj(self.q_proj(x).tanh()))


def wanted(model, x, adapters):
    """The same by PyTorch's own products."""
    F = torch.nn.functional
    for name in ("q_proj", "v_proj", "lm_head"):
        layer = getattr(model, name)
        if name in adapters:
            a, b, scale = adapters[name]
            y = F.linear(x, layer.base_layer.weight, layer.base_layer.bias) + scale * F.linear(F.linear(x, a), b)
        else:
            y = layer(x)
        x = y.tanh() if name == "q_proj" else y
    return x


def raises(error, text, f):
    try:
        f()
    except error as e:
        assert text in str(e), e
        return
    raise AssertionError(f"nothing was raised: {text}")


def everything(cgp, device):
    torch.manual_seed(0)
    model = Model().to(device)
    plain = copy.deepcopy(model)
    assert not cgp.lora(model, 0).layers and all(p.requires_grad for p in model.parameters())
    adapters = cgp.lora(model, r=4, alpha=8)
    assert list(adapters.layers) == ["q_proj", "v_proj"] and [p.shape for p in adapters.parameters()] == [(4, 24), (40, 4), (4, 40), (24, 4)]
    assert [n for n, p in model.named_parameters() if p.requires_grad] == [f"{m}.lora_{x}" for m in ("q_proj", "v_proj") for x in "AB"]
    x = torch.randn(3, 5, 24, device=device)
    torch.testing.assert_close(model(x), plain(x), atol=1e-4, rtol=1e-4)  # B begins as zeros
    for p in adapters.parameters():
        p.data += 0.1 * torch.randn_like(p)
    of = {n: (l.lora_A, l.lora_B, l.scale) for n, l in adapters.layers.items()}
    x.requires_grad_(True)
    got, want = model(x), wanted(model, x, of)
    torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)
    d = torch.randn_like(got)
    for g, w in zip(*(torch.autograd.grad(y, [x, *adapters.parameters()], d) for y in (got, want))):
        torch.testing.assert_close(g, w, atol=1e-4, rtol=1e-3)
    torch.library.opcheck(torch.ops.cgp.lora.default, (x, *(t.detach() for t in of["q_proj"][:2]), 0.5, model.q_proj.base_layer.weight))

    # training: the loss falls, the base does not move
    optimizer = torch.optim.AdamW(adapters.parameters(), lr=1e-2)
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        loss = model(x.detach()).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    assert losses[-1] < losses[0]
    assert torch.equal(model.q_proj.base_layer.weight, plain.q_proj.weight)

    # files
    with tempfile.TemporaryDirectory() as folder:
        adapters.save(folder)
        config = json.load(open(os.path.join(folder, "adapter_config.json")))
        assert config["peft_type"] == "LORA" and config["r"] == 4 and config["target_modules"] == ["q_proj", "v_proj"]
        from cgp._lora import _read_safetensors
        file = _read_safetensors(os.path.join(folder, "adapter_model.safetensors"))
        assert "base_model.model.q_proj.lora_A.weight" in file and file["base_model.model.v_proj.lora_B.weight"].shape == (24, 4)
        again = cgp.lora(copy.deepcopy(plain), r=4, alpha=1)
        again.load(folder)
        torch.testing.assert_close(again.model(x), model(x))
        raises(cgp.ArgumentError, "r=4", lambda: cgp.lora(copy.deepcopy(plain), r=3).load(folder))
        raises(cgp.ArgumentError, "targets", lambda: cgp.lora(copy.deepcopy(plain), r=4, targets="q_proj").load(folder))
        with open(os.path.join(folder, "adapter_model.safetensors"), "r+b") as f:
            f.truncate(40)
        raises(cgp.ArgumentError, "safetensors", lambda: again.load(folder))
        raises(cgp.ArgumentError, "no adapter", lambda: again.load(os.path.join(folder, "none")))

    # merged
    before = model(x).detach()
    adapters.merge()
    torch.testing.assert_close(model(x), before, atol=1e-4, rtol=1e-3)
    adapters.unmerge()
    torch.testing.assert_close(model.q_proj.base_layer.weight, plain.q_proj.weight)
    adapters.merge(), adapters.undo()
    assert type(model.q_proj) is torch.nn.Linear
    torch.testing.assert_close(model(x), before, atol=1e-4, rtol=1e-3)

    # a quantised base
    small = Model().to(device)
    small.q_proj = torch.nn.Linear(64, 40).to(device)
    cgp.quantize(small, "nf4", skip=("v_proj", "lm_head"))
    decoded = torch.as_tensor(small.q_proj.weight.dequantize()).float().to(device)
    bias = small.q_proj.bias.detach().clone()
    quantised = cgp.lora(small, r=4, alpha=4, targets="q_proj", dtype=torch.float32)
    layer = quantised.layers["q_proj"]
    layer.lora_B.data.normal_()
    y = torch.randn(6, 64, device=device, requires_grad=True)
    got, want = layer(y), y @ decoded.T + bias + y @ layer.lora_A.T @ layer.lora_B.T
    torch.testing.assert_close(got, want, atol=5e-2, rtol=2e-2)
    d = torch.randn_like(got)
    for g, w in zip(*(torch.autograd.grad(v, [y, layer.lora_A, layer.lora_B], d) for v in (got, want))):
        torch.testing.assert_close(g, w, atol=0.2, rtol=5e-2)
    raises(cgp.Unsupported, "quantised", quantised.merge)

    raises(cgp.ArgumentError, "more than", lambda: cgp.lora(Model(), r=25))
    raises(cgp.ArgumentError, "no linear layer", lambda: cgp.lora(Model(), targets="k_proj"))
    raises(cgp.ArgumentError, "dropout", lambda: cgp.lora(Model(), dropout=1.0))
    assert list(cgp.lora(Model(), r=2, targets="all-linear").layers) == ["q_proj", "v_proj"]


if __name__ == "__main__":
    from test_torch_emulated import ops_for_the_cpu
    everything(ops_for_the_cpu()[0], "cpu")
