# SPDX-License-Identifier: Apache-2.0
"""The operators' PyTorch side without a GPU: tensors on the CPU, kernels on the emulator. Results and gradients against
PyTorch's own operations, fake implementations and registrations by opcheck, what is said about mistakes. In a process of
its own: here cgp.ops is made for the CPU."""
import os
import subprocess
import sys
import warnings

import pytest

torch = pytest.importorskip("torch")

from emulated_patched import patched_steps  # noqa: E402
from emulated_steps import training_step  # noqa: E402


def test_in_a_process_of_its_own():
    done = subprocess.run([sys.executable, os.path.abspath(__file__)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


dispatched = []  # not empty: operators go through PyTorch's dispatcher, though nobody watches


def ops_for_the_cpu():
    import cgp
    from cgp import _core, _torch
    device = cgp.device("emu:sm_90a")

    def queue(function, anchor, *arguments):
        given, memories = [], {}  # what lies in one memory does so there, too
        for a in arguments:
            if isinstance(a, torch.Tensor):
                memory = a.untyped_storage()
                if memory.data_ptr() not in memories:
                    memories[memory.data_ptr()] = memory, _core.alloc(device._handle, memory.nbytes() or 1)
                    _core.upload(device._handle, memories[memory.data_ptr()][1], memory.data_ptr(), memory.nbytes())
                offset = a.data_ptr() - memory.data_ptr() if a.numel() else 0
                a = (memories[memory.data_ptr()][1] + offset, _torch.CODES[a.dtype], a.shape, a.stride())
            given.append(a)
        result = function(device.stream(), *given)
        _core.stream_wait(device.stream())
        for memory, address in memories.values():
            _core.download(device._handle, address, memory.data_ptr(), memory.nbytes())
            _core.free(device._handle, address)
        return result

    def way(*tensors):
        observed = torch.compiler.is_compiling() or any(w() for w in _torch._watchers)
        if observed or dispatched or any(t is not None and type(t) not in (torch.Tensor, torch.nn.Parameter) for t in tensors):
            return 0
        return 2 if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors) else 1

    _torch.queue, _torch.way, _torch.backend = queue, way, "CPU"
    from cgp import ops
    return cgp, ops


def attention_and_tables(cgp, ops, random, same):
    import torch.nn.functional as F
    q, k, v = random(2, 4, 7, 16), random(2, 2, 7, 16), random(2, 2, 7, 16)

    def theirs(mask=None, causal=False):
        return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, enable_gqa=True)

    same(lambda q, k, v: ops.attention(q, k, v)[0], theirs(), q, k, v)
    same(lambda q, k, v: ops.attention(q, k, v, True)[0], theirs(causal=True), q, k, v)
    shown = torch.rand(2, 1, 7, 7) > 0.3
    shown[..., 0] = True
    same(lambda q, k, v: ops.attention(q, k, v, mask=shown)[0], theirs(shown), q, k, v)
    same(lambda q, k, v: ops.attention(q[:, :, 2:], k, v, True)[0],
         lambda q, k, v: theirs(torch.ones(5, 7, dtype=torch.bool).tril(2))(q[:, :, 2:], k, v), q, k, v)
    there = [random(2, 7, h, 16) for h in (4, 2, 2)]  # [batch, n, heads, d], a view as models make it
    same(lambda *a: ops.attention(*(x.transpose(1, 2) for x in a), True)[0].transpose(1, 2),
         lambda *a: theirs(causal=True)(*(x.transpose(1, 2) for x in a)).transpose(1, 2), *there)
    packed = random(2, 7, 8, 16)  # q, k and v of one product: gradients cannot be strided as these
    same(lambda x: ops.attention(*x.transpose(1, 2).split((4, 2, 2), 1), True)[0],
         lambda x: theirs(causal=True)(*x.transpose(1, 2).split((4, 2, 2), 1)), packed)
    assert not ops.attention(q, k, v)[1].requires_grad
    cu = torch.tensor([0, 3, 7], dtype=torch.int32)

    def documents(q, k, v):
        return torch.cat([theirs(causal=True)(*(x[a:b].transpose(0, 1)[None] for x in (q, k, v)))[0].transpose(0, 1)
                          for a, b in ((0, 3), (3, 7))])

    same(lambda q, k, v: ops.attention(q, k, v, True, cu_seqlens_q=cu, cu_seqlens_kv=cu, max_seqlen_q=4, max_seqlen_kv=4)[0],
         documents, *(x[0] for x in there))
    shown = torch.arange(7) < torch.tensor([4, 6])[:, None, None, None]
    same(lambda q, k, v: ops.attention(q, k, v, key_lengths=torch.tensor([4, 6], dtype=torch.int32))[0], theirs(shown), q, k, v)
    small, scale = [x.detach().to(torch.float8_e4m3fn) for x in (q, k, v)], torch.tensor([0.5])
    got = ops.attention(*small, True, v_scale=scale, dtype=torch.float16)
    want = theirs(causal=True)(*(x.float() for x in small)) * 0.5
    assert got[0].dtype == torch.float16
    torch.testing.assert_close(got[0].float(), want, atol=5e-2, rtol=5e-2)
    near = torch.arange(7) - torch.arange(7)[:, None]
    bias = torch.randn(4, 13)

    def scored(q, k, v):
        s = q @ k.repeat_interleave(2, 1).transpose(-1, -2) / 4
        s = torch.where(near < 3, 2 * torch.tanh(s / 2) + bias[:, near + 6], -torch.inf)
        return s.softmax(-1) @ v.repeat_interleave(2, 1)

    def score(s, b, h, i, j, data):
        return torch.where(j - i < 3, 2 * torch.tanh(s / 2) + data[h, j - i + 6], -torch.inf)

    same(lambda q, k, v: ops.attention(q, k, v, score=score, score_data=bias)[0], scored, q, k, v)
    try:
        ops.attention(q, k, v, mask=random(1, 1, 7, 7))[0].sum().backward()
        raise AssertionError("a gradient that is not there")
    except cgp.Unsupported:
        pass

    table, indices = random(9, 24), torch.tensor([[3, 3, 8], [0, 3, 1]])
    same(lambda w: ops.embedding(indices, w), lambda w: F.embedding(indices, w), table)
    same(lambda w: ops.embedding(indices, w, 3), lambda w: F.embedding(indices, w, 3), table)
    x = random(3, 40)
    kept = ops.dropout(torch.ones(3, 40), 0.4, 7, 1)
    assert 0.3 < (kept == 0).float().mean() < 0.5
    same(lambda x: ops.dropout(x, 0.4, 7, 1), lambda x: x * kept, x)
    assert torch.equal(ops.argmax(x), x.argmax(-1))
    same(lambda x: ops.topk(x, 5)[0], lambda x: x.topk(5).values, x)
    assert torch.equal(ops.topk(x, 5)[1], x.topk(5).indices)
    same(ops.cumsum, lambda x: x.cumsum(-1), x)
    same(lambda x: ops.cumsum(x, True), lambda x: x.cumsum(-1) - x, x)

    hidden, weight, target = random(2, 5, 24), random(37, 24), torch.tensor([[0, 36, 5, -100, 7], [8, 9, 1, 1, -100]])
    for reduction in ("mean", "sum"):
        for chunk in (0, 4):  # one, and three of which the last is short
            same(lambda h, w: 3 * ops.linear_cross_entropy(h, w, target, reduction, label_smoothing=0.1, chunk=chunk),
                 lambda h, w: 3 * F.cross_entropy((h @ w.mT).view(-1, 37), target.view(-1), reduction=reduction,
                                                  label_smoothing=0.1), hidden, weight)
    loss = ops.linear_cross_entropy(hidden.detach(), weight.detach(), target)
    torch.testing.assert_close(loss, ops.cross_entropy(hidden.detach() @ weight.detach().mT, target))
    frozen = ops.linear_cross_entropy(hidden, weight.detach(), target, chunk=4)
    torch.testing.assert_close(torch.autograd.grad(frozen, hidden)[0],
                               torch.autograd.grad(ops.linear_cross_entropy(hidden, weight, target), hidden)[0])

    wide, shapes = random(263, 24), []  # rows of 1052 bytes, which are put 1056 apart

    def losses(h, w):
        logits = ops.matmul(h, w.mT, aligned=True)
        logits.register_hook(lambda d: shapes.append(d.stride()))
        assert logits.stride() == (5 * 264, 264, 1) and logits.shape == (2, 5, 263)
        return ops.cross_entropy(logits, target)

    def wanted(h, w):
        return F.cross_entropy((h @ w.mT).view(-1, 263), target.view(-1))

    same(losses, wanted, hidden, wide)
    same(lambda h, w: ops.linear_cross_entropy(h, w, target), wanted, hidden, wide)
    assert (1320, 264, 1) in shapes, shapes
    check, c = torch.library.opcheck, torch.ops.cgp
    check(c.matmul.default, (hidden, wide.mT, None, "", 1.0, "standard", True))
    check(c.cross_entropy.default, (hidden @ wide.mT, target)), check(c.matmul.default, (hidden, wide.mT, wide[:, 0]))
    check(c.attention_all.default, (q, k, v, None, None, 0, 0, torch.tensor([2] * len(q), dtype=torch.int32), None, None, None, False, None,
                                    None, None, True, 0.0, 0, 0, 0.0, None, None))
    check(c.attention.default, (q, k, v, True)), check(c.attention.default, tuple(x.transpose(1, 2) for x in there))
    check(c.embedding.default, (indices, table)), check(c.dropout.default, (x, 0.4, 7)), check(c.argmax.default, (x,))
    check(c.topk.default, (x, 3)), check(c.cumsum.default, (x,))
    for chunk in (0, 4):
        check(c.linear_cross_entropy.default, (hidden, weight, target, "mean", -100, 0.0, 0.0, chunk))


def paged_cache(cgp):
    """Tensors in shared pages, of 16 and of 8 bits, and attention over them."""
    import torch.nn.functional as F
    for pages, tolerance in (("bfloat16", 2e-2), ("float8_e4m3fn", 8e-2)):
        cache = cgp.PagedKVCache(8, heads=2, d=64, pages_dtype=pages, device="cpu")
        k, v = (torch.randn(2, 40, 2, 64).bfloat16() for _ in range(2))
        first = cache.add_sequence()
        cache.append(first, k[0, :25], v[0, :25])
        second = cache.fork(first, 20)
        cache.append([first, second], k[:, 25:], v[:, 25:])
        want = {first: (k[0], v[0]), second: tuple(torch.cat((x[0, :20], x[1, 25:])) for x in (k, v))}
        moved = 0 if pages == "bfloat16" else tolerance
        for s, both in want.items():
            torch.testing.assert_close(cache.read(s), both, atol=moved, rtol=moved)
        q = torch.randn(2, 4, 2, 64).bfloat16()
        for got, x, s in zip(cache.attend(q, [first, second]), q, want):
            keys, values = (t.transpose(0, 1).float() for t in want[s])
            seen = torch.ones(2, keys.shape[1]).bool().tril(keys.shape[1] - 2)
            torch.testing.assert_close(got.float(), F.scaled_dot_product_attention(x.float(), keys, values, seen, enable_gqa=True),
                                       atol=tolerance, rtol=tolerance)
        step = cache.steps([first], longest=48)
        for x in torch.randn(3, 1, 1, 2, 64).bfloat16():
            step.advance()
            step.append(x, x)
        torch.testing.assert_close(step.attend(q[:1]), cache.attend(q[:1], [first]))
        raises(cgp.ArgumentError, "k is float16", lambda: cache.append(first, k[0].half(), v[0]))
        raises(cgp.ArgumentError, "k must be a tensor", lambda: cache.append(first, [1], v[0]))
        raises(cgp.ArgumentError, "q is on meta", lambda: cache.attend(q.to("meta"), [first, second]))


def decoding(cgp, transformers):
    """Prompts with padding on the left, then steps, against the model on whole sequences; generated tokens."""
    small = dict(num_hidden_layers=2, hidden_size=128, intermediate_size=96, num_attention_heads=2, num_key_value_heads=1,
                 vocab_size=50, max_position_embeddings=128, head_dim=64)
    configs = [transformers.LlamaConfig(**small), transformers.Qwen3Config(**small),
               transformers.Qwen2Config(**{k: v for k, v in small.items() if k != "head_dim"}),
               transformers.GPT2Config(n_layer=2, n_head=2, n_embd=128, vocab_size=50, n_positions=64, bos_token_id=0,
                                       eos_token_id=0)]
    for config, batch in [(c, 2) for c in configs] + [(configs[0], 9), (configs[3], 9)]:  # 9: more than few rows
        model = transformers.AutoModelForCausalLM.from_config(config).bfloat16().eval()
        for p in model.parameters():
            p.data += 0.05 * torch.randn_like(p)
        ids, mask = torch.randint(0, 50, (batch, 7)), torch.ones(batch, 7, dtype=torch.long)
        mask[0, :3] = 0
        decoder = cgp.Decoder(model, batch, 64)

        @torch.no_grad()
        def theirs(ids, mask):
            return model(ids, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0)).logits[:, -1]

        def close(got, want):
            torch.testing.assert_close(got, want, atol=4e-2, rtol=2e-2)

        full, seen = ids, mask
        close(decoder.prefill(ids, mask), theirs(ids, mask))
        for step in range(3 if batch == 2 else 1):
            tokens = decoder.next_tokens.clone()
            full, seen = torch.cat((full, tokens[:, None]), 1), torch.cat((seen, torch.ones(batch, 1, dtype=torch.long)), 1)
            close(decoder.step(), theirs(full, seen))
        if batch > 2:
            continue
        made = cgp.generate(model, ids, mask, max_new_tokens=4)
        assert torch.equal(made, torch.cat((full, decoder.next_tokens[:, None]), 1))
        stop = int(made[0, 8])
        ended = cgp.generate(model, ids, mask, max_new_tokens=4, eos_token_id=[stop], pad_token_id=49)
        rows = [r[:r.index(stop) + 1] if stop in r else r for r in made[:, 7:].tolist()]
        assert ended[:, 7:].tolist() == [r + [49] * (max(map(len, rows)) - len(r)) for r in rows], (made, ended)
        model.get_input_embeddings().weight.data = model.get_input_embeddings().weight.data * 1.5  # other memory
        close(decoder.prefill(ids, mask), theirs(ids, mask))
    windowed = transformers.MistralConfig(**{**small, "num_hidden_layers": 1}, sliding_window=64)
    model = transformers.AutoModelForCausalLM.from_config(windowed).bfloat16().eval()
    assert cgp.generate(model, ids[:1], max_new_tokens=1).shape == (1, 8)  # room is not made beyond the window
    raises(cgp.Unsupported, "window or positions, 64", lambda: cgp.generate(model, ids[:1], max_new_tokens=99))
    try:
        cgp.Decoder(transformers.AutoModelForCausalLM.from_config(configs[0]), 1, 64)
        raise AssertionError("float32")
    except cgp.Unsupported as e:
        assert "float16" in str(e)
    for call in (lambda: decoder.prefill(ids[:1]), lambda: decoder.generate(ids, max_new_tokens=64)):
        try:
            call()
            raise AssertionError("a wrong shape")
        except cgp.ArgumentError as e:
            assert "cgp.Decoder" in str(e)


def raises(kind, text, f):
    try:
        f()
    except kind as e:
        assert text in str(e), str(e)
    else:
        raise AssertionError(f"nothing was said about {text}")


def views_and_mistakes(cgp, ops, random, same):
    """Operands that repeat elements, among them gradients as PyTorch gives them; what would be broadcast; forward mode; what
    fake implementations say."""
    import torch.nn.functional as F
    from torch._subclasses import FakeTensorMode
    a, b, c = random(3, 4, 5), random(5, 6), random(6)
    same(lambda a, b, c: ops.matmul(a, b, c).sum(0), lambda a, b, c: (a @ b + c).sum(0), a, b, c)  # d: rows that repeat
    same(lambda a, b: ops.matmul(a[0], b).sum(0), lambda a, b: (a[0] @ b).sum(0), a, b)
    same(lambda a, b: ops.matmul(a[:1].expand(3, 4, 5), b), lambda a, b: a[:1].expand(3, 4, 5) @ b, a, b)
    same(lambda a, b: ops.matmul(a, b.expand(3, 5, 6)), lambda a, b: a @ b, a, b)
    same(lambda a, b: ops.matmul(a, b[None]), lambda a, b: a @ b, a, b)
    same(lambda a, b: ops.matmul(a[0, :1].expand(4, 5), b), lambda a, b: a[0, :1].expand(4, 5) @ b, a, b)
    same(lambda a, b: ops.matmul(a[0, :, :1].expand(4, 5), b), lambda a, b: a[0, :, :1].expand(4, 5) @ b, a, b)
    same(lambda a, b, c: ops.matmul(a, b, c[:1].expand(6)), lambda a, b, c: a @ b + c[:1], a, b, c)
    x, w, table = random(2, 5, 3, 6), random(12), torch.ones(5, 6)[:, ::2]  # vectors and tables with gaps
    same(lambda x, w: ops.layer_norm(x, w[::2], w[1::2]), lambda x, w: F.layer_norm(x, (6,), w[::2], w[1::2]), x, w)
    same(lambda x, w: ops.rms_norm(x, w[:1].expand(6)), lambda x, w: F.rms_norm(x, (6,), w[:1].expand(6), 1e-6), x, w)
    same(lambda x, w: ops.activate(x, "silu", w[::2]), lambda x, w: F.silu(x + w[::2]), x, w)
    same(lambda x: ops.rope(x, table, table * 0, torch.zeros(10, 2).long()[:, 0]), lambda x: x, x)
    same(lambda x: ops.attention(x, x, x, slopes=torch.zeros(10)[::2])[0],
         lambda x: F.scaled_dot_product_attention(x, x, x), x)
    plain = [t.detach() for t in (a, b, c)]
    wide = torch.randn(2, 3, 4, 5)
    for left, right in ((plain[0][0], plain[1].expand(3, 5, 6)), (plain[0][:1], plain[1].expand(3, 5, 6)),
                        (wide, wide.transpose(0, 1).mT)):
        raises(cgp.ArgumentError, "matmul: b: its leading dimensions", lambda: ops.matmul(left, right))
    raises(cgp.ArgumentError, "sum: dim", lambda: ops.sum(plain[0], 3))
    raises(cgp.ArgumentError, "linear_cross_entropy: chunk",
           lambda: ops.linear_cross_entropy(plain[0], plain[1].mT, torch.zeros(3, 4).long(), chunk=-1))
    raises(cgp.ArgumentError, "max: dim", lambda: ops.max(torch.tensor(1.0)))
    raises(cgp.ArgumentError, "transpose: x", lambda: ops.transpose(plain[2]))
    raises(cgp.ArgumentError, "softmax: x", lambda: ops.softmax(torch.tensor(1.0)))
    raises(cgp.ArgumentError, "rope: base", lambda: ops.rope(wide, base=0.0))
    dispatched.append(True)
    for f in (ops.softmax, ops.sum, lambda x: ops.rms_norm(x), lambda x: ops.matmul(x, plain[1])):
        raises(cgp.Unsupported, "forward-mode", lambda: torch.func.jvp(f, (plain[0][0],), (plain[0][1],)))
    with FakeTensorMode():
        q, k, odd = torch.empty(1, 2, 3, 8), torch.empty(1, 2, 4, 8), torch.empty(1, 2, 4, 9)
        for says, f in (("matmul: b", lambda: ops.matmul(q, odd.mT)), ("matmul: bias", lambda: ops.matmul(q, k.mT, q[0, 0, 0])),
                        ("add: y", lambda: ops.add(q, k)), ("add: y", lambda: ops.add(q, q.half())),
                        ("attention: k", lambda: ops.attention(q, odd, k)), ("attention: v", lambda: ops.attention(q, k, q)),
                        ("attention: q", lambda: ops.attention(q[0], k, k)), ("softmax: x", lambda: ops.softmax(q.int())),
                        ("topk: x", lambda: ops.topk(torch.empty(()), 1)), ("argmax: x", lambda: ops.argmax(q[..., :0]))):
            raises(cgp.ArgumentError, says, f)
    dispatched.clear()


def drop_ins(cgp):
    """Functions of torch.nn.functional and ours, on CPU tensors taken for ours: the same results, or the same refusal."""
    import torch.nn.functional as F
    from cgp.nn import functional as ours
    usable, ours._usable = ours._usable, lambda t: t.dtype in ours._FLOATS and t.dim() <= 8
    random, bf16 = torch.randn, torch.bfloat16
    q, x, w, v = random(2, 3, 4, 16), random(3, 40), random(40), random(6, 40)
    small = (1e-2 * x).to(bf16)
    causal = torch.ones(4, 4).tril().bool()
    deep = random(1, 1, 1, 1, 1, 1, 1, 2, 40)
    nowhere = torch.zeros(3, dtype=torch.long)

    def attends(*a, **k):
        return "scaled_dot_product_attention", a, k

    cases = [attends(q, q, q), attends(q, q, q, scale=0.0), attends(q, q, q, scale=-1.0), attends(q, q, q, scale=0.3),
             attends(q, q, q, causal), attends(q, q, q, causal[None]), attends(q, q, q, random(2, 3, 4, 1)),
             attends(q, q, q, random(2, 2, 4, 4)), attends(q, q[:1], q[:1]), attends(q, q, q[:, :1]),
             attends(q, q[:, :1], q[:, :1], enable_gqa=True), attends(q, q[:, :2], q[:, :2], enable_gqa=True),
             attends(q[..., :0], q[..., :0], q), attends(q, q[:, :, :2], q[:, :, :2], is_causal=True)]
    cases += [("rms_norm", a, {}) for a in ((x, (40,)), (small, (40,)), (small.half(), (40,)), (x, [40], w), (x, (40,), w[:39]),
                                            (x[:, :0], (0,)), (deep, (40,), w, 1e-5))]
    cases += [("layer_norm", a, {}) for a in ((x, (40,), w, w), (x[:, :0], (0,)), (x, (39,)), (deep, (40,)))]
    cases += [("linear", a, {}) for a in ((x, v), (x[0], v), (x, w), (x, v[:, :7]), (x, v, w[0]), (x, v, w[:1]), (x, v, x[:, :6]),
                                          (x, v, w[:6].half()), (x[:0], v, w[:6]), (deep, v), (x[:, :0], v[:, :0], w[:6]))]
    cases += [(f, *rest) for f in ("softmax", "log_softmax") for rest in (
        ((x, -1), {}), ((q[0],), {}), ((x,), {}), ((x, 1, 3, torch.float64), {}), ((x, 0), {}), ((x, 7), {}), ((deep, -1), {}),
        ((x[0, 0], 0), {}), ((torch.full((2, 3), -float("inf")), -1), {}))]
    cases += [("cross_entropy", (x, nowhere), k) for k in ({}, dict(label_smoothing=0.1), dict(label_smoothing=2.0),
                                                           dict(reduction="average"), dict(ignore_index=0))]
    cases += [("cross_entropy", a, {}) for a in ((x[:, :0], nowhere - 100), (x[0], nowhere[0]), (x[:0], nowhere[:0]))]

    def outcome(module, name, a, k):
        try:
            return getattr(module, name)(*a, **k)
        except Exception as e:  # whatever PyTorch says
            return e

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in cases:
            got, want = outcome(ours, *case), outcome(F, *case)
            assert isinstance(got, Exception) == isinstance(want, Exception), (case[0], got, want)
            if not isinstance(want, Exception):
                torch.testing.assert_close(got, want, equal_nan=True, msg=lambda m: f"{case[0]}{case[2]}: {m}")
            else:
                assert type(got) is type(want), (case[0], got, want)
    mask = random(1, 1, 4, 4).requires_grad_()  # a gradient that only the mask wants is PyTorch's
    assert ours.scaled_dot_product_attention(q, q, q, mask).requires_grad
    enabled = torch.is_autocast_enabled
    torch.is_autocast_enabled = lambda *a: enabled(*(a or ("cpu",)))
    with torch.autocast("cpu", bf16):  # which chooses types
        assert ours.linear(x, v).dtype is bf16
        assert ours.softmax(x.to(bf16), -1).dtype is F.softmax(x.to(bf16), -1).dtype
    torch.is_autocast_enabled, ours._usable = enabled, usable


def patches(cgp, transformers, configs):
    """Patches end in any order; saved models; room of a static cache; soft caps where the kernel cannot be used."""
    import io
    from cgp import _patch
    cgp.register_attention()
    named = transformers.AutoModelForCausalLM.from_config(configs[0], attn_implementation="cgp").eval()
    ids = torch.randint(1, 50, (2, 9))
    got = named(ids).logits
    named.set_attn_implementation("sdpa")
    torch.testing.assert_close(got, named(ids).logits, atol=2e-4, rtol=2e-3)
    raises(cgp.ArgumentError, "patch: model", lambda: cgp.patch("gpt2"))
    raises(cgp.ArgumentError, "patch: model", lambda: cgp.patch(torch.nn.Linear(2, 2)))
    raises(cgp.ArgumentError, "generate: model", lambda: cgp.generate(torch.nn.Linear(2, 2), torch.zeros(1, 1)))
    for config in configs:
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        for p in model.parameters():
            p.data += 0.1 * torch.randn_like(p)
        ids = torch.randint(1, 50, (2, 9))
        tokens = dict(max_new_tokens=4, do_sample=False, pad_token_id=0, eos_token_id=None, cache_implementation="static")
        want = model(ids).logits.detach()
        chosen = model.generate(ids, **tokens)
        before = {name: set(vars(m)) for name, m in model.named_modules()}
        first = cgp.patch(model)
        second = cgp.patch(model, loss="linear")
        assert torch.equal(model.generate(ids, **tokens), chosen)
        kept = io.BytesIO()
        torch.save(model, kept)
        kept.seek(0)
        again = torch.load(kept, weights_only=False)
        torch.testing.assert_close(again(ids).logits, want, atol=2e-4, rtol=2e-3)
        assert again(ids, labels=ids).logits is not None  # without what loss="linear" does
        first.undo()
        assert model.config._attn_implementation == "cgp" and model(ids, labels=ids).logits is None
        second.undo()
        assert model.config._attn_implementation == "sdpa" and not _patch._held
        assert {name: set(vars(m)) for name, m in model.named_modules()} == before
        with cgp.patch(model) as done:
            assert "cgp" in repr(done)
        assert model.config._attn_implementation == "sdpa" and torch.equal(model(ids).logits, want)

    q, k, v = (torch.randn(1, h, 5, 300) for h in (4, 2, 2))  # wider than the kernel's heads
    layer = torch.nn.Module()
    layer.num_key_value_groups = 2
    got, _ = _patch._attention(layer, q, k, v, None, softcap=2.0, is_causal=True)
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
    scores = 2 * torch.tanh(q @ k.repeat_interleave(2, 1).mT * 300**-0.5 / 2)
    want = scores.masked_fill(hidden, -float("inf")).softmax(-1) @ v.repeat_interleave(2, 1)
    torch.testing.assert_close(got, want.transpose(1, 2), atol=1e-5, rtol=1e-5)
    given, _ = _patch._attention(layer, q, k, v, ~hidden[None, None], softcap=2.0)
    torch.testing.assert_close(given, got)
    bias = torch.randn(1, 4, 5, 5)
    biased, _ = _patch._attention(layer, q[..., :16], k[..., :16], v[..., :16], None, is_causal=False, position_bias=bias)
    plain, _ = _patch._attention(layer, q[..., :16], k[..., :16], v[..., :16], bias, is_causal=False)
    torch.testing.assert_close(biased, plain, atol=1e-5, rtol=1e-5)
    raises(cgp.Unsupported, "s_aux", lambda: _patch._attention(layer, q, k, v, None, s_aux=torch.zeros(4)))


def main():
    import torch.nn.functional as F
    cgp, ops = ops_for_the_cpu()
    torch.manual_seed(0)

    def random(*shape, dtype=torch.float32, grad=True):
        return torch.randn(*shape, dtype=dtype).requires_grad_(grad)

    def same(*arguments, **options):
        """Results, and gradients for a random gradient of every result, past PyTorch's dispatcher and through it."""
        same_one_way(*arguments, **options)
        dispatched.append(True)
        same_one_way(*arguments, **options)
        dispatched.clear()

    def same_one_way(ours, theirs, *inputs, tolerance=2e-5):
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

    def rotated(x):
        a, c = x.chunk(2, -1)
        cs, sn = cos[:, None], sin[:, None]
        return torch.cat((a * cs - c * sn, a * sn + c * cs), -1)

    same(lambda x: ops.rope(x, cos, sin, None, 5), rotated, heads)
    same(lambda x: ops.rope(x, sequence=5), rotated, heads)
    same(lambda x: ops.rope(x.transpose(1, 2).contiguous().transpose(1, 2), cos, sin, torch.arange(5).repeat(2)), rotated, heads)

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

    paged_cache(cgp)
    attention_and_tables(cgp, ops, random, same)
    views_and_mistakes(cgp, ops, random, same)
    drop_ins(cgp)
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
    for through in (False, True):
        dispatched[:] = [True] * through
        assert type(ops.softmax(x).grad_fn).__name__.startswith("Generated") == through, type(ops.softmax(x).grad_fn)
        try:
            torch.autograd.grad(ops.softmax(x).square().sum(), x, create_graph=True)[0].sum().backward()
            raise AssertionError("a second derivative of softmax")
        except cgp.Unsupported as e:
            assert "second derivatives" in str(e)
    dispatched.clear()

    try:
        import transformers
    except ImportError:
        return
    decoding(cgp, transformers)
    from cgp import _few, _patch
    _few._there = lambda t: True
    cuda_or_cpu = torch.is_autocast_enabled
    torch.is_autocast_enabled = lambda *a: cuda_or_cpu(*(a or ("cpu",)))
    _patch._usable = lambda *tensors: all(t is None or t.dtype in (torch.float32, torch.bfloat16) for t in tensors)
    small = dict(num_hidden_layers=2, hidden_size=32, intermediate_size=48, num_attention_heads=2, num_key_value_heads=1,
                 vocab_size=50, max_position_embeddings=64, head_dim=16, attn_implementation="sdpa")
    configs = [transformers.LlamaConfig(**small), transformers.Qwen3Config(**{**small, "head_dim": 64}), transformers.MistralConfig(**small),
               transformers.Qwen2Config(**{k: v for k, v in small.items() if k != "head_dim"}),
               transformers.GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=50, n_positions=64)]
    ids = torch.randint(0, 50, (2, 9))
    patches(cgp, transformers, (configs[0], configs[-1]))
    misaligned_head(cgp, transformers)
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
        done = cgp.patch(model, attention=False, loss="linear")
        model.zero_grad()
        out = model(ids, labels=ids)
        out.loss.backward()
        assert out.logits is None and "with its loss" in repr(done)
        for g, w in zip([out.loss.detach()] + [p.grad for p in model.parameters()], [want[0]] + want[2:]):
            torch.testing.assert_close(g, w, atol=2e-4, rtol=2e-3)
        with torch.no_grad():
            torch.testing.assert_close(model(ids, labels=ids).logits, want[1], atol=2e-4, rtol=2e-3)
        done.undo()
        done = cgp.patch(model, attention=False)
        for part in ("Norm", "cross-entropy"):
            assert part in repr(done), done
        assert ("RoPE" in repr(done) and "gated" in repr(done)) or "2 activations" in repr(done), done
        for g, w in zip(step(), want):
            torch.testing.assert_close(g, w, atol=2e-4, rtol=2e-3)
        done.undo()
        assert all(torch.equal(g, w) for g, w in zip(step(), want)) and "nothing" in repr(done)
        assert not _patch._rotary_patches
        whole_layers(cgp, model, step, want, ids)
        if config is configs[0] or config is configs[2]:
            masks(cgp, model)
        if config is configs[0] or config is configs[-1]:
            training_step(cgp, model, ids)
        patched_steps(cgp, transformers, model.bfloat16())


def misaligned_head(cgp, transformers):
    """Logits of 16 bits whose rows do not begin at multiples of 16 bytes, with the patch and as they are."""
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=32, vocab_size=523, n_positions=64)
    model = transformers.AutoModelForCausalLM.from_config(config).bfloat16().eval()
    ids = torch.randint(0, 523, (2, 9))

    def step():
        model.zero_grad()
        out = model(ids, labels=ids)
        out.loss.backward()
        return [out.logits.detach().float(), out.loss.detach()] + [p.grad.float() for p in model.parameters()]

    want, few = step(), model(ids[:1, :3]).logits
    done = cgp.patch(model, attention=False)
    assert "1 last linear layer" in repr(done) and model(ids).logits.stride() == (9 * 528, 528, 1)
    for g, w in zip(step(), want):
        torch.testing.assert_close(g, w, atol=2e-2 * w.abs().max().item(), rtol=2e-2)
    torch.testing.assert_close(model(ids[:1, :3]).logits, few, atol=2e-2, rtol=2e-2)
    done.undo()
    assert model(ids).logits.is_contiguous()


def whole_layers(cgp, model, step, want, ids):
    """Layers in training as one function of autograd: results and gradients, with a mask, with frozen parameters, and what makes
    them go the usual way."""
    from cgp import _layer
    before, plain, calls = _layer.DTYPES, _layer._Layer, []

    class Counted:
        @staticmethod
        def apply(*arguments):
            calls.append(True)
            return plain.apply(*arguments)

    _layer.DTYPES, _layer._Layer = (torch.float32,), Counted

    def close(got, want):
        for g, w in zip(got, want):
            torch.testing.assert_close(g, w, atol=2e-4, rtol=2e-3)

    def count():
        made = len(calls)
        calls.clear()
        return made

    mask = torch.ones_like(ids)
    mask[0, :3] = 0
    frozen = [p for n, p in model.named_parameters() if "norm" in n or "ln_1" in n or "o_proj" in n or "bias" in n]

    def others():
        """With a mask that hides, then with parameters that need no gradient."""
        out = []
        for options in (dict(attention_mask=mask), {}):
            for p in frozen:
                p.requires_grad_(bool(options))
            model.zero_grad()
            loss = model(ids, labels=ids, **options).loss
            loss.backward()
            out += [loss.detach()] + [p.grad.clone() for p in model.parameters() if p.requires_grad]
            assert all((p.grad is None) == (not p.requires_grad) for p in model.parameters())
        for p in frozen:
            p.requires_grad_(True)
        return out

    def cached():
        """What a cache was given brings gradients back."""
        model.zero_grad()
        out = model(ids, use_cache=True)
        (out.logits.square().mean() + out.past_key_values.layers[0].keys.square().sum() +
         out.past_key_values.layers[1].values.square().sum()).backward()
        return [p.grad.clone() for p in model.parameters()]

    masked, filled = others(), cached()
    done = cgp.patch(model)
    close(cached(), filled)
    assert count() == 2
    close(step(), want)
    assert count() == 2, type(model)
    close(others(), masked)
    assert count() == 4
    layers = [m for m in model.modules() if type(m).__name__.endswith(("DecoderLayer", "Block"))]
    inner = next(m for m in layers[0].modules() if type(m).__name__ in ("Linear", "Conv1D"))
    seen = []
    hook = inner.register_forward_hook(lambda *_: seen.append(True))
    close(step(), want)
    assert count() == 1 and seen
    hook.remove()
    inner.weight = torch.nn.Parameter(inner.weight.detach() * 1.5)  # another parameter: what was kept is not used
    got = step()
    assert count() == 2
    loss = model(ids, labels=ids).loss
    try:
        torch.autograd.grad(torch.autograd.grad(loss, inner.weight, create_graph=True)[0].sum(), inner.weight)
        raise AssertionError("a second derivative of a layer")
    except cgp.Unsupported as e:
        assert "second derivatives" in str(e)
    count()
    with torch.no_grad():
        model(ids)
    model.train()
    if type(model).__name__.startswith("GPT2"):  # dropout
        step()
    with torch.autocast("cpu", torch.bfloat16):
        model(ids, labels=ids)
    model.eval()
    assert not calls
    done.undo()
    close(got, step())
    done = cgp.patch(model, layers=False)
    close(step(), got)
    assert not calls
    done.undo()
    assert not any("_cgp_layer" in m.__dict__ for m in model.modules())
    _layer.DTYPES, _layer._Layer = before, plain


def masks(cgp, model):
    """Masks are made where there is something to say: padding, packed sequences. Others cost the host or the device nothing."""
    seen, ids = [], torch.randint(0, 50, (2, 9))
    layer = [m for m in model.modules() if type(m).__name__ in ("LlamaDecoderLayer", "Qwen3DecoderLayer", "MistralDecoderLayer")][0]
    hook = layer.register_forward_pre_hook(lambda m, a, k: seen.append(k["attention_mask"]), with_kwargs=True)
    packed = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]]).expand(2, -1)
    counted = torch.arange(9)[None].expand(2, -1)
    from cgp import _masks
    from transformers import masking_utils
    before = masking_utils.is_tracing, _masks._recorded
    given = dict(none={}, packed=dict(position_ids=packed), counted=dict(position_ids=counted),
                 full=dict(attention_mask=torch.ones_like(ids)))

    def made(recorded):
        masking_utils.is_tracing, _masks._recorded = lambda *a: recorded, lambda: recorded
        for options in given.values():
            model(ids, use_cache=False, **options)
        masking_utils.is_tracing, _masks._recorded = before
        got = {name: m is not None for name, m in zip(given, seen)}
        seen.clear()
        return got

    own = made(False), made(True)
    assert own == (dict(none=False, packed=True, counted=False, full=False), dict.fromkeys(given, True)), own
    done = cgp.patch(model)
    ours = made(False), made(True)
    assert ours == (own[0], dict(none=False, packed=True, counted=True, full=True)), ours
    equal, item = [], torch.Tensor.__bool__
    torch.Tensor.__bool__ = lambda t: equal.append(t) or item(t)
    model(ids, use_cache=False)
    torch.Tensor.__bool__ = item
    assert not equal  # nothing waits for the device
    seen.clear()
    done.undo()
    assert made(True) == own[1]
    hook.remove()


if __name__ == "__main__":
    main()
