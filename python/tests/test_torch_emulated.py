# SPDX-License-Identifier: Apache-2.0
"""The operators' PyTorch side without a GPU: tensors on the CPU, kernels on the emulator. Results and gradients against
PyTorch's own operations, fake implementations and registrations by opcheck, what is said about mistakes. In a process of
its own: here cgp.ops is made for the CPU."""
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")


def test_in_a_process_of_its_own():
    done = subprocess.run([sys.executable, os.path.abspath(__file__)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def ops_for_the_cpu():
    import cgp
    from cgp import _core, _torch
    device = cgp.device("emu:sm_90a")

    def copy(t, address, direction):
        extent = sum((n - 1) * s for n, s in zip(t.shape, t.stride())) + 1 if t.numel() else 0
        if direction is _core.upload:
            _core.upload(device._handle, address, t.data_ptr(), extent * t.element_size())
        else:
            _core.download(device._handle, address, t.data_ptr(), extent * t.element_size())

    def queue(function, anchor, *arguments):
        given, tensors = [], []
        for a in arguments:
            if isinstance(a, torch.Tensor):
                address = _core.alloc(device._handle, (a.untyped_storage().nbytes() or 1))
                tensors.append((a, address))
                copy(a, address, _core.upload)
                a = (address, _torch.CODES[a.dtype], a.shape, a.stride())
            given.append(a)
        function(device.stream(), *given)
        _core.stream_wait(device.stream())
        for t, address in tensors:
            copy(t, address, _core.download)
            _core.free(device._handle, address)

    def define(schema, implementation, fake):
        name = schema.split("(")[0]
        _torch.library.define(schema)
        _torch.library.impl(name, implementation, "CPU")
        torch.library.register_fake(f"cgp::{name}", fake, lib=_torch.library)
        return getattr(torch.ops.cgp, name).default

    _torch.queue, _torch.define = queue, define
    from cgp import ops
    return cgp, ops


def main():
    import torch.nn.functional as F
    cgp, ops = ops_for_the_cpu()
    torch.manual_seed(0)

    def random(*shape, dtype=torch.float32, grad=True):
        return torch.randn(*shape, dtype=dtype).requires_grad_(grad)

    def same(ours, theirs, *inputs, tolerance=2e-5):
        """Results, and gradients for a random gradient of every result."""
        got, want = ours(*inputs), theirs(*inputs)
        got, want = (t if isinstance(t, tuple) else (t,) for t in (got, want))
        for g, w in zip(got, want):
            torch.testing.assert_close(g, w, atol=tolerance, rtol=tolerance)
        d = [torch.randn_like(w) for w in want]
        leaves = [t for t in inputs if isinstance(t, torch.Tensor) and t.requires_grad]
        for g, w in zip(torch.autograd.grad(got, leaves, d), torch.autograd.grad(want, leaves, d)):
            torch.testing.assert_close(g, w, atol=tolerance, rtol=tolerance)

    x, r, w, b = random(2, 3, 40), random(2, 3, 40), random(40), random(40)
    same(lambda *a: ops.rms_norm(*a), lambda x, w: F.rms_norm(x, (40,), w, 1e-6), x, w)
    same(lambda x: ops.rms_norm(x), lambda x: F.rms_norm(x, (40,), None, 1e-6), x)
    same(lambda x, w: ops.rms_norm(x, w, 1e-6, 1.0), lambda x, w: F.rms_norm(x, (40,), w + 1, 1e-6), x, w)
    same(lambda x, r, w: ops.rms_norm(x, w, residual=r), lambda x, r, w: (F.rms_norm(x + r, (40,), w, 1e-6), x + r), x, r, w)
    same(ops.layer_norm, lambda x, w, b: F.layer_norm(x, (40,), w, b), x, w, b)
    same(lambda x, r, w, b: ops.layer_norm(x, w, b, residual=r),
         lambda x, r, w, b: (F.layer_norm(x + r, (40,), w, b), x + r), x, r, w, b)
    y, h = ops.rms_norm(x, w, residual=r)
    assert torch.equal(torch.autograd.grad(h.sum(), r)[0], torch.ones_like(r))  # nothing reached y
    sliced = random(4, 3, 64)
    same(lambda x, w: ops.rms_norm(x[..., 8:48], w), lambda x, w: F.rms_norm(x[..., 8:48], (40,), w, 1e-6), sliced, w)
    same(lambda x, w: ops.rms_norm(x.transpose(0, 1), w), lambda x, w: F.rms_norm(x.transpose(0, 1), (40,), w, 1e-6), x, w)
    wide = random(1, 40).detach()
    assert torch.equal(ops.rms_norm(wide.expand(3, 40)), ops.rms_norm(wide).expand(3, 40))  # rows that repeat

    logits, target = random(7, 33), torch.tensor([0, 32, 5, -100, 7, 8, 9])
    for reduction in ("mean", "sum", "none"):
        same(lambda x: ops.cross_entropy(x, target, reduction, label_smoothing=0.1),
             lambda x: F.cross_entropy(x, target, reduction=reduction, label_smoothing=0.1), logits)
    same(lambda x: ops.cross_entropy(x, target, "none", z_loss=0.01),
         lambda x: F.cross_entropy(x, target, reduction="none") + 0.01 * (target != -100) * x.logsumexp(-1)**2, logits)

    heads = random(2, 5, 3, 16)  # [batch, n, heads, dim]
    angle = torch.arange(5)[:, None] * 10000.0**(-torch.arange(0, 16, 2) / 16)
    cos, sin = angle.cos(), angle.sin()

    def turned(x):
        a, c = x.chunk(2, -1)
        cs, sn = cos[:, None], sin[:, None]
        return torch.cat((a * cs - c * sn, a * sn + c * cs), -1)

    same(lambda x: ops.rope(x, cos, sin, None, 5), turned, heads)
    same(lambda x: ops.rope(x, sequence=5), turned, heads)
    same(lambda x: ops.rope(x.transpose(1, 2).contiguous().transpose(1, 2), cos, sin, torch.arange(5).repeat(2)), turned, heads)

    for kind, theirs in (("silu", F.silu), ("gelu", F.gelu), ("relu", F.relu),
                         ("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"))):
        same(lambda x, b: ops.activate(x, kind, b), lambda x, b: theirs(x + b), x, b)
        same(lambda g, u: ops.gated(g, u, kind), lambda g, u: theirs(g) * u, x, r)
    both = random(3, 80)
    same(lambda x: ops.swiglu(*x.chunk(2, -1)), lambda x: F.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1], both)
    same(ops.softmax, lambda x: x.softmax(-1), x)
    same(ops.log_softmax, lambda x: x.log_softmax(-1), x)
    same(ops.sum, lambda x: x.sum(-1), x)
    same(ops.transpose, lambda x: x.mT.contiguous(), x)

    check = torch.library.opcheck
    c = torch.ops.cgp
    check(c.rms_norm.default, (x, w)), check(c.add_rms_norm.default, (x, r, w))
    check(c.layer_norm.default, (x, w, b)), check(c.add_layer_norm.default, (x, r, w, b))
    for reduction in ("mean", "sum", "none"):
        check(c.cross_entropy.default, (logits, target, reduction))
    check(c.rope.default, (heads, cos, sin, None, 5)), check(c.activate.default, (x, "gelu", b))
    check(c.gated.default, (x, r)), check(c.softmax.default, (x,)), check(c.log_softmax.default, (x,))

    def refuses(text, f):
        try:
            f()
        except cgp.ArgumentError as e:
            assert text in str(e), str(e)
        else:
            raise AssertionError(f"nothing was said about {text}")

    refuses("rms_norm: weight", lambda: ops.rms_norm(x.detach(), w.detach()[:7]))
    refuses("rms_norm: residual", lambda: ops.rms_norm(x.detach(), residual=r.detach()[:1]))
    refuses("target is torch.float32", lambda: ops.cross_entropy(logits, target.float()))
    refuses("cross_entropy: target", lambda: ops.cross_entropy(logits, target[:3]))
    refuses("reduction must be one of", lambda: ops.cross_entropy(logits, target, "median"))
    refuses("activation must be one of", lambda: ops.activate(x, "tanh"))
    refuses("gated: up", lambda: ops.gated(x.detach(), r.detach()[:1]))
    refuses("rope: cos", lambda: ops.rope(heads.detach(), cos[:, :3], sin[:, :3]))
    try:
        torch.autograd.grad(ops.softmax(x).square().sum(), x, create_graph=True)[0].sum().backward()
        raise AssertionError("a second derivative of softmax")
    except cgp.Unsupported:
        pass

    try:
        import transformers
    except ImportError:
        return
    from cgp import _patch
    _patch._usable = lambda *tensors: all(t is None or t.dtype in (torch.float32, torch.bfloat16) for t in tensors)
    small = dict(num_hidden_layers=2, hidden_size=32, intermediate_size=48, num_attention_heads=2, num_key_value_heads=1,
                 vocab_size=50, max_position_embeddings=64, head_dim=16, attn_implementation="sdpa")
    configs = [transformers.LlamaConfig(**small), transformers.Qwen3Config(**small), transformers.MistralConfig(**small),
               transformers.Qwen2Config(**{k: v for k, v in small.items() if k != "head_dim"}),
               transformers.GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=50, n_positions=64)]
    ids = torch.randint(0, 50, (2, 9))
    for config in configs:
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        for p in model.parameters():  # weights of norms that are not 1
            p.data += 0.1 * torch.randn_like(p)

        def step():
            model.zero_grad()
            out = model(ids, labels=ids)
            out.loss.backward()
            return [out.loss.detach(), out.logits.detach()] + [p.grad.clone() for p in model.parameters()]

        want = step()
        done = cgp.patch(model, attention=False)
        for part in ("Norm", "cross-entropy"):
            assert part in repr(done), done
        assert ("RoPE" in repr(done) and "gated" in repr(done)) or "2 activations" in repr(done), done
        for g, w in zip(step(), want):
            torch.testing.assert_close(g, w, atol=2e-4, rtol=2e-3)
        done.undo()
        assert all(torch.equal(g, w) for g, w in zip(step(), want)) and "nothing" in repr(done)
        assert not _patch._rotary_patches


if __name__ == "__main__":
    main()
