# SPDX-License-Identifier: Apache-2.0
"""Operators under PyTorch, on a GPU: results, gradients, opcheck, torch.compile, CUDA graphs, streams, mistakes."""
import types

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)
import torch.nn.functional as F

import cgp
from cgp import ops

torch.manual_seed(0)


def random(*shape, dtype=torch.bfloat16, grad=False):
    return torch.randn(*shape, device="cuda", dtype=dtype).requires_grad_(grad)


def close(got, want, tolerance=2e-2):
    torch.testing.assert_close(got.float(), want.float(), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("shape", [(64, 128, 256), (33, 77, 130), (1, 4096, 512), (0, 16, 16)])
def test_matmul(dtype, shape):
    m, n, k = shape
    a, w, bias = random(m, k, dtype=dtype), random(n, k, dtype=dtype), random(n, dtype=dtype)
    close(ops.matmul(a, w.mT, bias), F.linear(a.double(), w.double(), bias.double()), 5e-2 if dtype != torch.float32 else 1e-3)


def test_matmul_strides_and_batches():
    a = random(3, 40, 64)
    close(ops.matmul(a, random(64, 24)[:, ::1]), a @ torch.zeros(64, 24, device="cuda", dtype=a.dtype), 1e9)
    b = random(3, 64, 24)
    close(ops.matmul(a, b), a @ b, 5e-2)
    close(ops.matmul(a.mT, a), a.mT @ a, 1e-1)
    odd = random(40, 130)[:, 1:66]  # rows at odd addresses
    close(ops.matmul(odd, random(65, 8) * 0 + 1), odd.float().sum(1, keepdim=True).expand(40, 8), 1e-1)


def test_matmul_gradient():
    a, b, bias = random(20, 33, dtype=torch.float32, grad=True), random(33, 17, dtype=torch.float32, grad=True), random(
        17, dtype=torch.float32, grad=True)
    got = torch.autograd.grad(ops.matmul(a, b, bias).square().sum(), (a, b, bias))
    want = torch.autograd.grad((a @ b + bias).square().sum(), (a, b, bias))
    for g, w in zip(got, want):
        close(g, w, 1e-2)


@pytest.mark.parametrize("d", [64, 128, 80])
@pytest.mark.parametrize("causal", [False, True])
def test_attention(d, causal):
    q, k, v = random(2, 8, 300, d), random(2, 2, 300, d), random(2, 2, 300, d)
    got, lse = ops.attention(q, k, v, causal)
    want = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=causal, enable_gqa=True)
    close(got, want)
    assert lse.shape == (2, 8, 300)
    mask = torch.rand(2, 1, 300, 300, device="cuda") > 0.3
    close(cgp.nn.functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True),
          F.scaled_dot_product_attention(q.float(), k.float(), v.float(), mask, enable_gqa=True))


@pytest.mark.parametrize("d", [64, 128])
def test_attention_of_documents(d):
    """Forward and gradients of documents that lie one after the other, and of lengths of keys, against PyTorch one by one."""
    lengths = [100, 1, 0, 511, 300]
    cu = torch.tensor([0, *lengths], device="cuda").cumsum(0).int()
    q, k, v = random(912, 8, d, grad=True), random(912, 2, d, grad=True), random(912, 2, d, grad=True)
    ends = cu.tolist()

    def one_by_one(q, k, v):
        return torch.cat([F.scaled_dot_product_attention(*(x[a:b].transpose(0, 1)[None] for x in (q, k, v)), is_causal=True,
                                                         enable_gqa=True)[0].transpose(0, 1) for a, b in zip(ends, ends[1:]) if b > a])

    for longest in (0, 511):
        gradients(lambda q, k, v: ops.attention(q, k, v, True, cu_seqlens_q=cu, cu_seqlens_kv=cu, max_seqlen_q=longest,
                                                max_seqlen_kv=longest)[0], one_by_one, (q, k, v), 3e-2)
    keys = torch.tensor([70, 512, 1], device="cuda", dtype=torch.int32)
    q, k, v = random(3, 8, 60, d, grad=True), random(3, 2, 512, d, grad=True), random(3, 2, 512, d, grad=True)
    shown = (torch.arange(512, device="cuda") < keys[:, None])[:, None, None]
    gradients(lambda q, k, v: ops.attention(q, k, v, key_lengths=keys)[0],
              lambda q, k, v: F.scaled_dot_product_attention(q, k, v, shown, enable_gqa=True), (q, k, v), 3e-2)


@pytest.mark.parametrize("d", [64, 128, 256])
def test_attention_of_8_bits(d):
    scales = [torch.rand(2, h, device="cuda") + 0.5 for h in (8, 2, 2)]
    q, k, v = (random(2, h, 700, d).to(torch.float8_e4m3fn) for h in (8, 2, 2))
    wide = [x.float() * s[..., None, None] for x, s in zip((q, k, v), scales)]
    want = F.scaled_dot_product_attention(*wide, is_causal=True, enable_gqa=True)
    for dtype in (torch.bfloat16, torch.float16):
        o, lse = ops.attention(q, k, v, True, q_scale=scales[0], k_scale=scales[1], v_scale=scales[2], dtype=dtype)
        assert o.dtype == dtype
        close(o, want, 8e-2)
    cu = torch.tensor([0, 300, 700], device="cuda", dtype=torch.int32)
    rows = [x[0].transpose(0, 1).contiguous() for x in (q, k, v)]
    o = ops.attention(*rows, True, cu_seqlens_q=cu, cu_seqlens_kv=cu)[0]
    close(o[:300].transpose(0, 1)[None], ops.attention(*(x[:1, :, :300] for x in (q, k, v)), True)[0], 1e-2)
    with pytest.raises(cgp.Unsupported, match="float8_e4m3fn"):
        ops.attention(q.clone().requires_grad_(), k, v)
    with pytest.raises(cgp.ArgumentError, match="e5m2"):
        ops.attention(*(x.float().to(torch.float8_e5m2) for x in (q, k, v)))


def test_rows():
    x = random(7, 1000)
    close(ops.softmax(x), x.float().softmax(-1))
    close(ops.sum(x, 0), x.float().sum(0), 1e-1)
    assert torch.equal(ops.transpose(x), x.mT.contiguous())
    assert torch.equal(ops.add(x, x), x + x)
    assert torch.equal(ops.max(x, -1), x.max(-1).values)


def gradients(ours, theirs, inputs, tolerance):
    """Results, and gradients for a random gradient, against PyTorch's in float32."""
    got = ours(*inputs)
    wide = [t.detach().float().requires_grad_() for t in inputs]
    want = theirs(*wide)
    close(got, want, tolerance)
    d = torch.randn_like(got)
    for g, w in zip(torch.autograd.grad(got, inputs, d), torch.autograd.grad(want, wide, d.float())):
        close(g, w, tolerance * max(1.0, w.abs().max().item()))


@pytest.mark.parametrize("dtype, tolerance", [(torch.bfloat16, 2e-2), (torch.float16, 4e-3), (torch.float32, 1e-4)])
@pytest.mark.parametrize("shape", [(64, 1024), (3, 77, 130), (2, 8191)])
def test_norms(dtype, tolerance, shape):
    n = shape[-1]
    x, r = random(*shape, dtype=dtype, grad=True), random(*shape, dtype=dtype, grad=True)
    w, b = random(n, dtype=dtype, grad=True), random(n, dtype=dtype, grad=True)
    gradients(lambda x, w: ops.rms_norm(x, w), lambda x, w: F.rms_norm(x, (n,), w, 1e-6), (x, w), tolerance)
    gradients(lambda x, w, b: ops.layer_norm(x, w, b), lambda x, w, b: F.layer_norm(x, (n,), w, b), (x, w, b), tolerance)
    gradients(lambda x, r, w: torch.stack(ops.rms_norm(x, w, residual=r)),
              lambda x, r, w: torch.stack((F.rms_norm((x + r).to(dtype).float(), (n,), w, 1e-6), x + r)), (x, r, w), 2 * tolerance)
    with torch.no_grad():  # past the dispatcher
        close(ops.rms_norm(x, w), F.rms_norm(x.float(), (n,), w.float(), 1e-6), tolerance)
        y, h = ops.layer_norm(x, w, b, residual=r)
        assert torch.equal(h, x + r)
        close(y, F.layer_norm((x + r).float(), (n,), w.float(), b.float()), tolerance)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy(reduction):
    x = random(50, 3001, grad=True)
    target = torch.randint(0, 3001, (50,), device="cuda")
    target[7] = -100
    gradients(lambda x: ops.cross_entropy(x, target, reduction, label_smoothing=0.1),
              lambda x: F.cross_entropy(x, target, reduction=reduction, label_smoothing=0.1), (x,), 1e-2)
    close(cgp.nn.functional.cross_entropy(x, target, reduction=reduction), F.cross_entropy(x.float(), target, reduction=reduction), 3e-2)


def test_rope_and_activations():
    x = random(2, 8, 60, 64, grad=True)  # [batch, heads, n, dim]
    angle = torch.arange(60, device="cuda")[:, None] * 10000.0**(-torch.arange(0, 64, 2, device="cuda") / 64)
    cos, sin = angle.cos(), angle.sin()

    def rotated(x):
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)

    gradients(lambda x: ops.rope(x.transpose(1, 2), cos, sin, sequence=60).transpose(1, 2), rotated, (x,), 2e-2)
    close(ops.rope(x.transpose(1, 2), sequence=60).transpose(1, 2), rotated(x.float()), 2e-2)
    both = random(33, 514, grad=True)
    gradients(lambda x: ops.swiglu(*x.chunk(2, -1)), lambda x: F.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1], (both,), 3e-2)
    bias = random(514, grad=True)
    gradients(lambda x, b: ops.activate(x, "gelu_tanh", b), lambda x, b: F.gelu(x + b, approximate="tanh"), (both, bias), 3e-2)
    gradients(ops.softmax, lambda x: x.softmax(-1), (both,), 1e-2)
    gradients(ops.log_softmax, lambda x: x.log_softmax(-1), (both,), 3e-2)


def test_opcheck():
    x = random(8, 16, dtype=torch.float32, grad=True)
    w = random(16, 24, dtype=torch.float32, grad=True)
    torch.library.opcheck(torch.ops.cgp.matmul.default, (x, w))
    torch.library.opcheck(torch.ops.cgp.softmax.default, (x,))
    torch.library.opcheck(torch.ops.cgp.add.default, (x, x.detach().clone().requires_grad_()))
    q = random(1, 2, 16, 32, dtype=torch.float16)
    torch.library.opcheck(torch.ops.cgp.attention.default, (q, q.clone(), q.clone()))
    for op in (torch.ops.cgp.sum.default, torch.ops.cgp.max.default):
        torch.library.opcheck(op, (x.detach(), 0))
    torch.library.opcheck(torch.ops.cgp.transpose.default, (x.detach(),))
    v = random(16, dtype=torch.float32, grad=True)
    target = torch.arange(8, device="cuda")
    for op, arguments in ((torch.ops.cgp.rms_norm, (x, v)), (torch.ops.cgp.add_rms_norm, (x, x.detach().clone(), v)),
                          (torch.ops.cgp.layer_norm, (x, v, v.detach().clone())), (torch.ops.cgp.cross_entropy, (x, target)),
                          (torch.ops.cgp.rope, (x.view(8, 1, 16),)), (torch.ops.cgp.activate, (x, "gelu", v)),
                          (torch.ops.cgp.gated, (x, x.detach().clone()))):
        torch.library.opcheck(op.default, arguments)


def test_compile():
    w = random(256, 128)

    @torch.compile(fullgraph=True)
    def f(x):
        return ops.softmax(ops.matmul(x * 2, w)) + 1

    x = random(64, 256) / 16
    close(f(x), (x * 2 @ w).float().softmax(-1) + 1)


def test_compiled_training_step():
    w, v = random(256, 512, dtype=torch.float32, grad=True), random(512, dtype=torch.float32, grad=True)
    x, target = random(64, 256, dtype=torch.float32), torch.randint(0, 256, (64,), device="cuda")

    def f(x, w, v):
        h = ops.rms_norm(ops.matmul(x, w) / 16, v)
        return ops.cross_entropy(ops.swiglu(*h.chunk(2, -1)), target)

    compiled = torch.compile(f, fullgraph=True)
    close(compiled(x, w, v), f(x, w, v), 1e-4)
    for g, want in zip(torch.autograd.grad(compiled(x, w, v), (w, v)), torch.autograd.grad(f(x, w, v), (w, v))):
        close(g, want, 1e-4)


def test_cuda_graph():
    x, w = random(100, 256), random(256, 130)  # rows that are not aligned: needs temporary memory
    ops.matmul(x, w)  # kernels are loaded outside of the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = ops.matmul(x, w)
    x.copy_(random(100, 256))
    graph.replay()
    torch.cuda.synchronize()
    close(y, x @ w, 1e-1)


def test_current_stream():
    side, x = torch.cuda.Stream(), random(4096, 4096)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
        x.zero_()
        y = ops.add(x, x)
    side.synchronize()
    assert not y.any()  # on another stream it would have read x before it was 0


def test_mistakes():
    with pytest.raises(cgp.Unsupported, match="CPU"):
        ops.softmax(torch.zeros(3, 3))
    with pytest.raises(cgp.ArgumentError, match="matmul: b is torch.float16"):
        ops.matmul(random(4, 4), random(4, 4, dtype=torch.float16))
    with pytest.raises(cgp.ArgumentError, match="gemm: b"):
        ops.matmul(random(4, 5), random(4, 5))
    with pytest.raises(cgp.ArgumentError, match="norm: weight is on cpu"):
        ops.rms_norm(random(4, 4), torch.ones(4))
    with pytest.raises(cgp.ArgumentError, match="rms_norm: weight"):
        ops.rms_norm(random(4, 4), random(3))
    with pytest.raises(cgp.ArgumentError, match="target is torch.float32"):
        ops.cross_entropy(random(4, 4), torch.zeros(4, device="cuda"))
    with pytest.raises(cgp.Unsupported, match="activation"):
        ops.matmul(random(4, 4, grad=True), random(4, 4), None, "relu")


def test_patched_models_train_the_same():
    transformers = pytest.importorskip("transformers")
    small = dict(num_hidden_layers=2, hidden_size=128, intermediate_size=256, num_attention_heads=4, num_key_value_heads=2,
                 vocab_size=1000, head_dim=32)
    for config, parts in ((transformers.LlamaConfig(**small), 5), (transformers.Qwen3Config(**small), 5),
                          (transformers.MistralConfig(**small), 5),
                          (transformers.GPT2Config(n_layer=2, n_head=4, n_embd=128, vocab_size=1000, n_positions=128), 4)):
        model = transformers.AutoModelForCausalLM.from_config(config).cuda().eval()
        ids = torch.randint(0, 1000, (2, 40), device="cuda")

        def step():
            model.zero_grad()
            out = model(ids, labels=ids)
            out.loss.backward()
            return [out.loss.detach(), out.logits.detach()] + [p.grad.clone() for p in model.parameters()]

        want = step()
        done = cgp.patch(model)
        assert len(done.changes) >= parts, done
        for got, w in zip(step(), want):
            close(got, w, 2e-3)
        done.undo()
        close(step()[1], want[1], 1e-6)


def test_patched_models_say_the_same():
    transformers = pytest.importorskip("transformers")
    configs = [
        transformers.GPT2Config(n_layer=2, n_head=4, n_embd=256, vocab_size=1000, n_positions=256),
        transformers.LlamaConfig(num_hidden_layers=2, hidden_size=256, intermediate_size=512, num_attention_heads=8,
                                 num_key_value_heads=2, vocab_size=1000),
    ]
    for config in configs:
        model = transformers.AutoModelForCausalLM.from_config(config).cuda().half().eval()
        ids = torch.randint(0, 1000, (2, 40), device="cuda")
        attend = torch.ones_like(ids)
        attend[0, :7] = 0  # left padding
        with torch.no_grad():
            want = model(ids, attention_mask=attend).logits
            tokens = model.generate(ids, attention_mask=attend, max_new_tokens=12, do_sample=False, pad_token_id=0)
            done = cgp.patch(model, linear=True)
            assert "attention" in repr(done) and "linear layers" in repr(done)
            got = model(ids, attention_mask=attend).logits
            ours = model.generate(ids, attention_mask=attend, max_new_tokens=12, do_sample=False, pad_token_id=0)
            done.undo()
            again = model(ids, attention_mask=attend).logits
        close(got[0, 7:], want[0, 7:], 3e-2), close(got[1], want[1], 3e-2)
        assert torch.equal(again, want)
        same = (tokens == ours).float().mean()
        assert same > 0.9, same


@pytest.mark.parametrize("d", [64, 128, 80])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_gradient(d, causal):
    q, k, v = (random(2, h, 300, d, grad=True) for h in (8, 2, 2))
    gradients(lambda q, k, v: ops.attention(q, k, v, causal)[0],
              lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True), (q, k, v), 2e-2)
    torch.use_deterministic_algorithms(True)
    try:
        out = ops.attention(q, k, v, causal)[0]
        first, second = (torch.autograd.grad(out, (q, k, v), torch.ones_like(out), retain_graph=True) for _ in range(2))
        assert all(torch.equal(a, b) for a, b in zip(first, second))
    finally:
        torch.use_deterministic_algorithms(False)
    x = random(2, 300, 12, d, grad=True)  # q, k and v of one product
    gradients(lambda x: ops.attention(*x.transpose(1, 2).split((8, 2, 2), 1), causal)[0],
              lambda x: F.scaled_dot_product_attention(*x.transpose(1, 2).split((8, 2, 2), 1), is_causal=causal, enable_gqa=True),
              (x,), 2e-2)


def test_tables_and_linear_loss():
    table, index = random(1000, 256, grad=True), torch.randint(0, 1000, (7, 40), device="cuda")
    gradients(lambda w: ops.embedding(index, w), lambda w: F.embedding(index, w), (table,), 3e-2)
    x = random(50, 3001)
    assert torch.equal(ops.argmax(x), x.argmax(-1)) and torch.equal(ops.topk(x, 9)[0], x.topk(9).values)
    close(ops.cumsum(x.float()), x.double().cumsum(-1).float(), 1e-3)
    kept = ops.dropout(torch.ones_like(x), 0.25, 3) != 0
    assert 0.74 < kept.float().mean() < 0.76 and torch.equal(ops.dropout(x, 0.25, 3) != 0, kept & (x != 0))
    hidden, weight = random(600, 256, grad=True), (random(5000, 256) / 16).requires_grad_()
    target = torch.randint(0, 5000, (600,), device="cuda")
    target[5] = -100
    for chunk in (0, 256):
        gradients(lambda h, w: ops.linear_cross_entropy(h, w, target, chunk=chunk),
                  lambda h, w: F.cross_entropy(h @ w.mT, target), (hidden, weight), 1e-2)
    heads = tuple(random(1, 2, 40, 64, grad=True) for _ in range(3))
    for op, given in ((torch.ops.cgp.attention, heads + (True,)),
                      (torch.ops.cgp.attention_all, heads + (None, None, 0, 0, None, None, None, None, False, None, "score + data[h, k]",
                                                             torch.ones(2, 40, device="cuda"), False, 0.0, 0, 0, 0.0, None, None)),
                      (torch.ops.cgp.embedding, (index, table)), (torch.ops.cgp.linear_cross_entropy, (hidden, weight, target))):
        torch.library.opcheck(op.default, given)


@pytest.mark.parametrize("batch", [1, 3, 12])
def test_decoder(batch):
    transformers = pytest.importorskip("transformers")
    small = dict(num_hidden_layers=4, hidden_size=256, intermediate_size=512, num_attention_heads=4, num_key_value_heads=2,
                 vocab_size=1000, head_dim=64)
    for config in (transformers.LlamaConfig(**small), transformers.Qwen3Config(**small),
                   transformers.GPT2Config(n_layer=4, n_head=4, n_embd=256, vocab_size=1003, n_positions=256)):
        model = transformers.AutoModelForCausalLM.from_config(config).cuda().bfloat16().eval()
        ids, mask = torch.randint(0, 1000, (batch, 40), device="cuda"), torch.ones(batch, 40, dtype=torch.long, device="cuda")
        mask[0, :7] = 0
        graph, calls = (cgp.Decoder(model, batch, 128, graph=g) for g in (True, False))

        @torch.no_grad()
        def theirs(ids, mask):
            return model(ids, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0)).logits[:, -1]

        close(graph.prefill(ids, mask), theirs(ids, mask), 4e-2), calls.prefill(ids, mask)
        full, seen = ids, mask
        for step in range(40):  # tokens are given: a difference does not grow
            tokens = torch.randint(0, 1000, (batch,), device="cuda")
            full, seen = torch.cat((full, tokens[:, None]), 1), torch.cat((seen, torch.ones_like(seen[:, :1])), 1)
            want, got = theirs(full, seen), graph.step(tokens)
            close(got, want, 4e-2)
            assert torch.equal(calls.step(tokens), got), (step, type(model).__name__)
        again = cgp.Decoder(model, batch, 128)
        assert torch.equal(again.generate(ids, mask, 40), calls.generate(ids, mask, 40))


@pytest.mark.parametrize("batch", [1, 3])
def test_steps_past_the_modules(batch, monkeypatch):
    """Decoding by calls of a patched model: a prompt that may be padded on the left, then tokens that are given."""
    transformers = pytest.importorskip("transformers")
    small = dict(num_hidden_layers=3, hidden_size=256, intermediate_size=512, num_attention_heads=4, num_key_value_heads=2,
                 vocab_size=1000, head_dim=64)
    from cgp import _whole
    calls, run = [], _whole._run
    monkeypatch.setattr(_whole, "_run", lambda *a: calls.append(True) or run(*a))
    monkeypatch.setattr(_whole, "_MORE", 4)
    for config in (transformers.LlamaConfig(**small), transformers.Qwen3Config(**small), transformers.MistralConfig(**small),
                   transformers.GPT2Config(n_layer=3, n_head=4, n_embd=256, vocab_size=1003, n_positions=512)):
        model = transformers.AutoModelForCausalLM.from_config(config).cuda().bfloat16().eval()
        ids, mask = torch.randint(0, 1000, (batch, 40), device="cuda"), torch.ones(batch, 40, dtype=torch.long, device="cuda")
        mask[0, :7] = 0
        tokens = torch.randint(0, 1000, (50, batch, 1), device="cuda")  # more than there is room for at first

        @torch.no_grad()
        def steps(padded):
            cache, seen = transformers.DynamicCache(config=model.config), mask
            out = [model(ids, attention_mask=mask if padded else None, past_key_values=cache, use_cache=True).logits[:, -1]]
            for t in tokens:
                seen = torch.cat((seen, torch.ones_like(seen[:, :1])), 1)
                out.append(model(t, attention_mask=seen if padded else None, past_key_values=cache, use_cache=True).logits[:, -1])
            return torch.stack(out)

        for padded in (False, True):
            want = steps(padded)
            with cgp.patch(model):
                calls.clear()
                close(steps(padded), want, 4e-2)
                assert len(calls) == len(tokens), (type(model).__name__, len(calls))


def training_models():
    transformers = pytest.importorskip("transformers")
    small = dict(num_hidden_layers=2, hidden_size=256, intermediate_size=512, num_attention_heads=4, num_key_value_heads=2,
                 vocab_size=1000, head_dim=64)
    gpt2 = dict(n_layer=2, n_head=4, n_embd=256, vocab_size=1003, n_positions=256, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0)
    for config in (transformers.LlamaConfig(**small), transformers.Qwen3Config(**small), transformers.GPT2Config(**gpt2)):
        yield transformers.AutoModelForCausalLM.from_config(config).cuda().bfloat16().train()


def gradients_of(model, ids, **options):
    model.zero_grad()
    out = model(ids, labels=ids, **options)
    out.loss.backward()
    return [out.loss.detach()] + [p.grad.clone() for p in model.parameters()]


def relative(got, want):
    """The distance of all gradients from those of float32."""
    return max(((g.float() - w).norm() / w.norm().clamp(min=1e-6)).item() for g, w in zip(got, want))


@pytest.mark.parametrize("padded", [False, True])
def test_layers_in_training(padded):
    """Whole layers as functions of autograd are no further from float32 than twice PyTorch's own rounding."""
    import copy
    from cgp import _layer
    for model in training_models():
        ids = torch.randint(0, 1000, (2, 130), device="cuda")
        mask = torch.ones_like(ids)
        mask[0, :9] = 0
        options = dict(attention_mask=mask) if padded else {}
        exact = gradients_of(copy.deepcopy(model).float(), ids, **options)
        theirs = gradients_of(model, ids, **options)
        calls, plain = [], _layer._call
        _layer._call = lambda *a: calls.append(True) or plain(*a)
        try:
            done = cgp.patch(model)
            ours = gradients_of(model, ids, **options)
        finally:
            _layer._call = plain
        assert len(calls) == 2, type(model)
        assert relative(ours, exact) <= 2 * relative(theirs, exact) + 1e-3, type(model)
        done.undo()
        assert all(torch.equal(a, b) for a, b in zip(gradients_of(model, ids, **options), theirs))


@pytest.mark.parametrize("patched", [False, True])
def test_training_step(patched):
    """A graph gives what calls one by one give, also where gradients are added and where shapes change."""
    for model in training_models():
        if patched:
            cgp.patch(model)
        step = cgp.TrainingStep(model)
        batches = [torch.randint(0, 1000, s, device="cuda") for s in ((2, 128), (2, 128), (1, 64), (2, 128))]
        for first, last in ((0, 1), (1, 2), (0, 4)):
            model.zero_grad()
            losses = []
            for ids in batches[first:last]:
                out = model(input_ids=ids, labels=ids, use_cache=False)
                out.loss.backward()
                losses.append(out.loss.detach())
            want = losses + [p.grad.clone() for p in model.parameters()]
            model.zero_grad()
            got = [step(input_ids=ids, labels=ids, use_cache=False) for ids in batches[first:last]]
            got += [p.grad for p in model.parameters()]
            for g, w in zip(got, want):
                close(g, w, 2e-2 * max(1.0, w.abs().max().item()))
        assert set(step.report.values()) == {"one graph"}, step.report


def test_training_step_that_waits():
    """What waits for the device cannot be recorded: it runs as usual, and leaves the stream, random numbers and later graphs alone."""
    class Model(torch.nn.Module):
        def __init__(self, waits):
            super().__init__()
            self.linear, self.waits = torch.nn.Linear(64, 64, device="cuda"), waits

        def forward(self, x):
            y = torch.nn.functional.dropout(self.linear(x), 0.5, self.training)
            if self.waits and y.sum().item() > 1e9:
                y = y / 2
            return types.SimpleNamespace(loss=y.square().mean())

    x, stream = torch.randn(32, 64, device="cuda"), torch.cuda.current_stream()
    waiting, fine = Model(True), Model(False)
    steps = cgp.TrainingStep(waiting), cgp.TrainingStep(fine)
    for _ in range(2):
        losses = [step(x=x) for step in steps]
        assert all(torch.isfinite(l) for l in losses) and all(m.linear.weight.grad.abs().max() > 0 for m in (waiting, fine))
        assert torch.cuda.current_stream() == stream and torch.rand(3, device="cuda").max() < 1
    assert all("cannot be recorded" in why for why in steps[0].report.values())
    assert list(steps[1].report.values()) == ["one graph"]


def test_gradients_past_the_dispatcher():
    """The same gradients where a mode watches, and another thread's stream is the one that is used."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):
        seen = []

        def __torch_dispatch__(self, f, types, args=(), kwargs=None):
            self.seen.append(str(f))
            return f(*args, **(kwargs or {}))

    x, w = random(64, 512, grad=True), random(512, grad=True)
    d = random(64, 512)
    direct = torch.autograd.grad(ops.rms_norm(x, w), (x, w), d)
    with Watch():
        watched = torch.autograd.grad(ops.rms_norm(x, w), (x, w), d)
    assert any("cgp.rms_norm" in s for s in Watch.seen) and all(torch.equal(a, b) for a, b in zip(direct, watched))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        beside = torch.autograd.grad(ops.rms_norm(x, w), (x, w), d)
    torch.cuda.current_stream().wait_stream(stream)
    assert all(torch.equal(a, b) for a, b in zip(direct, beside))
    compiled = torch.compile(lambda x, w: ops.rms_norm(x, w).square(), fullgraph=True)
    close(torch.autograd.grad(compiled(x, w), x, d)[0], torch.autograd.grad(ops.rms_norm(x, w).square(), x, d)[0])


@pytest.mark.parametrize("pages, tolerance", [("bfloat16", 2e-2), ("float8_e4m3fn", 8e-2)])
def test_paged_cache(pages, tolerance):
    """Pages that are shared, copied and rolled back; attention over them against PyTorch's over what was appended."""
    cache = cgp.PagedKVCache(64, heads=2, d=128, page_size=32, pages_dtype=pages, device="cuda")
    k, v = random(2, 300, 2, 128), random(2, 300, 2, 128)
    first = cache.add_sequence()
    cache.append(first, k[0, :250], v[0, :250])
    second = cache.fork(first, 200)
    cache.append([first, second], k[:, 250:], v[:, 250:])
    cache.truncate(second, 240)
    want = {first: (k[0], v[0]), second: tuple(torch.cat((t[0, :200], t[1, 250:290])) for t in (k, v))}
    for s in (first, second):
        for got, w in zip(cache.read(s), want[s]):
            close(got, w, tolerance if pages != "bfloat16" else 0)
    for n in (1, 4):
        q = random(2, 8, n, 128)
        for got, queries, s in zip(cache.attend(q, [first, second]), q, (first, second)):
            keys, values = (t.transpose(0, 1).float() for t in want[s])
            hidden = torch.ones(n, keys.shape[1], device="cuda", dtype=torch.bool).tril(keys.shape[1] - n)
            close(got, F.scaled_dot_product_attention(queries.float(), keys, values, hidden, enable_gqa=True), tolerance)
        close(cache.attend(q, [first, second], share=2), cache.attend(q, [first, second]), tolerance)
    before = repr(cache)
    for kind, call in ((cgp.ArgumentError, lambda: cache.append(first, k[0].cpu(), v[0])), (cgp.ArgumentError, lambda: cache.append(first, k[0].half(), v[0])),
                       (MemoryError, lambda: cache.append(first, k.repeat(1, 20, 1, 1)[0], v.repeat(1, 20, 1, 1)[0]))):
        with pytest.raises(kind):
            call()
    cache.free_sequence(second)
    with pytest.raises(cgp.ArgumentError, match="freed"):
        cache.free_sequence(second)
    assert repr(cache) != before and cache.num_free_pages == 64 - 10


@pytest.mark.parametrize("share", [0, 3])
def test_steps_over_a_paged_cache_as_a_graph(share):
    """A captured step, replayed while the sequences grow over pages, gives the bits of the same calls issued one by one."""
    def start():
        cache = cgp.PagedKVCache(64, heads=2, d=128, page_size=16, device="cuda")
        first = cache.add_sequence()
        cache.append(first, k0, k0 * 0.5)
        of = [first, cache.fork(first), cache.fork(first, 70)]
        return cache, of, cache.steps(of, longest=160, share=share)

    k0 = random(90, 2, 128)
    inputs = [(random(3, 1, 2, 128), random(3, 1, 2, 128), random(3, 8, 1, 128)) for _ in range(40)]
    _, _, plain = start()
    want = []
    for k, v, q in inputs:
        plain.advance()
        plain.append(k, v)
        want.append(plain.attend(q))
    cache, of, steps = start()
    k, v, q = (t.clone() for t in inputs[0])
    steps.advance()
    steps.append(k, v)
    got = [steps.attend(q)]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        steps.append(k, v)
        o = steps.attend(q)
    for new in inputs[1:]:
        steps.advance()
        for t, n in zip((k, v, q), new):
            t.copy_(n)
        graph.replay()
        got.append(o.clone())
    assert all(torch.equal(a, b) for a, b in zip(got, want))
    close(got[-1], cache.attend(q, of), 1e-2)
    assert torch.equal(cache.read(of[0])[0][-1], inputs[-1][0][0, 0])


def test_rows_of_logits_end_where_they_end():
    """aligned=True: what lies behind a row is written by the product, and nothing else is."""
    a, w = random(300, 256), random(1003, 256)
    c = ops.matmul(a, w.mT, aligned=True)
    assert c.stride() == (1008, 1) and not c._is_view()
    close(c, a.float() @ w.float().mT, 1e-1)
    assert c.untyped_storage().nbytes() == 300 * 1008 * 2
    close(c, ops.matmul(a, w.mT), 1e-1)


def test_peers_in_triton(monkeypatch):
    """cgp.bench's Triton kernels against PyTorch, on sizes that no block divides."""
    pytest.importorskip("triton", reason="Triton is not installed")
    from cgp.bench import _triton
    for kernel in (_triton._gelu_linear_kernel, _triton._attention_kernel):  # one of eight: nothing is timed
        monkeypatch.setattr(kernel, "configs", kernel.configs[:1])
    x = random(5, 5000)
    close(_triton.sum(x), x.float().sum(-1)), close(_triton.max(x), x.amax(-1)), close(_triton.softmax(x), x.float().softmax(-1))
    a, w, b = random(70, 100), random(37, 100) / 10, random(37)
    for tanh in (False, True):
        for bias in (b, None):
            linear = F.linear(a.float(), w.float(), None if bias is None else b.float())
            close(_triton.gelu_linear(a, w, bias, tanh), F.gelu(linear, approximate="tanh" if tanh else "none"))
    q, k, v = random(2, 3, 70, 32), random(2, 3, 90, 32), random(2, 3, 90, 32)
    for causal in (False, True):
        seen = torch.ones(70, 90, dtype=torch.bool, device="cuda").tril(20) if causal else None
        o, lse = _triton.attention(q, k, v, causal)
        close(o, F.scaled_dot_product_attention(q.float(), k.float(), v.float(), seen))
        s = q.float() @ k.float().mT * 32**-0.5
        close(lse, (s if seen is None else s.masked_fill(~seen, -torch.inf)).logsumexp(-1))
    heads = random(2, 7, 3, 48)
    angle = torch.randn(7, 24, device="cuda")
    c, s = angle.cos()[:, None], angle.sin()[:, None]
    p, r = heads.float().chunk(2, -1)
    close(_triton.rope(heads, angle.cos(), angle.sin()), torch.cat((p * c - r * s, p * s + r * c), -1))
    pool, slots = torch.zeros(4, 2, 3, 16, 48, device="cuda", dtype=torch.bfloat16), torch.tensor([63, 0, 17, 18, 40], device="cuda")
    k, v = random(5, 3, 48), random(5, 3, 48)
    _triton.append(pool, slots, k, v)
    assert torch.equal(pool[slots // 16, 0, :, slots % 16], k) and torch.equal(pool[slots // 16, 1, :, slots % 16], v)
    assert pool.count_nonzero() <= 2 * k.numel() and all(map(torch.equal, _triton.read(pool, slots), (k, v)))
