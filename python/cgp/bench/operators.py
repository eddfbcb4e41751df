# SPDX-License-Identifier: Apache-2.0
"""Every operator at a few sizes, bf16: ours, PyTorch eager, torch.compile, other backends of attention (flex_attention is Triton's),
kernels in Triton (those of _triton.py, forward), and Liger and quack where they are installed. "+ gradient": forward and backward."""
import torch
import torch.nn.functional as F

from ._time import by_events


def _peer(module, name):
    """A function of a package, or None where that is not installed or has no such function."""
    import importlib
    try:
        return getattr(importlib.import_module(module), name, None)
    except Exception:  # whatever its import says
        return None


def _in_triton(compile, **contenders):
    """{"triton": ...} of name=(arguments) -> result with _triton's function of that name as its first argument, or nothing."""
    (name, f), = contenders.items()
    theirs = _peer("cgp.bench._triton", name) if compile else None
    return {"triton": lambda *a: f(theirs, *a)} if theirs else {}


def _both(f, inputs):
    """Forward and backward, with gradients of ones."""
    leaves = [t.detach().requires_grad_() for t in inputs]

    def run():
        out = f(*leaves)
        torch.autograd.grad(out, leaves, torch.ones_like(out))
    return run


def _cases(compile):
    """(name, inputs, {contender: function of the inputs}, whether there is a gradient)"""
    from cgp import ops
    bf16 = dict(device="cuda", dtype=torch.bfloat16)

    def random(*shape):
        return torch.randn(*shape, **bf16)

    for m, n, k in ((4096, 4096, 4096), (16, 14336, 4096), (1, 4096, 4096)):
        yield f"matmul {m} x {n} x {k}", (random(m, k), random(n, k)), {
            "cgp": lambda a, w: ops.matmul(a, w.mT), "eager": lambda a, w: F.linear(a, w)}, m > 16
    for m, n, k in ((4096, 4096, 1024), (2048, 3072, 768), (512, 768, 3072), (128, 768, 768)):
        yield f"matmul + bias + gelu {m} x {n} x {k}", (random(m, k), random(n, k), random(n)), {
            "cgp": lambda a, w, b: ops.matmul(a, w.mT, b, "gelu"), "eager": lambda a, w, b: F.gelu(F.linear(a, w, b)),
            **_in_triton(compile, gelu_linear=lambda f, a, w, b: f(a, w, b))}, False
    x = random(4, 2048, 32, 128)
    angle = torch.arange(2048, device="cuda")[:, None] * 10000.0**(-torch.arange(0, 128, 2, device="cuda") / 128)
    cos, sin = angle.cos(), angle.sin()

    def rotated(x):
        c, s, (p, q) = cos[:, None].to(x.dtype), sin[:, None].to(x.dtype), x.chunk(2, -1)
        return torch.cat((p * c - q * s, p * s + q * c), -1)

    yield "rope 4 x 2048 x 32 x 128", (x,), {"cgp": lambda x: ops.rope(x, cos, sin, sequence=2048), "eager": rotated,
        **_in_triton(compile, rope=lambda f, x: f(x, cos.float(), sin.float()))}, True
    for rows, n in ((8192, 4096), (1024, 32768)):
        x, r, w, b = random(rows, n), random(rows, n), random(n), random(n)
        size = f"{rows} x {n}"
        liger = _peer("liger_kernel.ops.rms_norm", "LigerRMSNormFunction")
        quack = _peer("quack", "rmsnorm")
        yield f"rms_norm {size}", (x, w), {
            "cgp": ops.rms_norm, "eager": lambda x, w: F.rms_norm(x, (n,), w, 1e-6),
            **({"liger": lambda x, w: liger.apply(x, w, 1e-6)} if liger else {}),
            **({"quack": lambda x, w: quack(x, w)} if quack else {})}, True
        yield f"rms_norm + residual {size}", (x, r, w), {
            "cgp": lambda x, r, w: ops.rms_norm(x, w, residual=r)[0],
            "eager": lambda x, r, w: F.rms_norm(x + r, (n,), w, 1e-6)}, False
        liger_layer = _peer("liger_kernel.ops.layer_norm", "LigerLayerNormFunction")
        yield f"layer_norm {size}", (x, w, b), {
            "cgp": ops.layer_norm, "eager": lambda x, w, b: F.layer_norm(x, (n,), w, b),
            **({"liger": lambda x, w, b: liger_layer.apply(x, w, b, 1e-5)} if liger_layer else {})}, True
        yield f"layer_norm + residual {size}", (x, r, w, b), {
            "cgp": lambda x, r, w, b: ops.layer_norm(x, w, b, residual=r)[0],
            "eager": lambda x, r, w, b: F.layer_norm(x + r, (n,), w, b)}, False
        quack_softmax = _peer("quack", "softmax")
        yield f"softmax {size}", (x,), {
            "cgp": ops.softmax, "eager": lambda x: x.softmax(-1),
            **({"quack": quack_softmax} if quack_softmax else {}), **_in_triton(compile, softmax=lambda f, x: f(x))}, True
        liger_silu = _peer("liger_kernel.ops.swiglu", "LigerSiLUMulFunction")
        yield f"swiglu {size}", (x, r), {
            "cgp": ops.swiglu, "eager": lambda g, u: F.silu(g) * u,
            **({"liger": lambda g, u: liger_silu.apply(g, u)} if liger_silu else {})}, True
        yield f"log_softmax {size}", (x,), {"cgp": ops.log_softmax, "eager": lambda x: x.log_softmax(-1)}, True
        yield f"geglu {size}", (x, r), {
            "cgp": lambda g, u: ops.gated(g, u, "gelu_tanh"), "eager": lambda g, u: F.gelu(g, approximate="tanh") * u}, True
        for kind, theirs in (("gelu", F.gelu), ("silu", F.silu), ("relu", F.relu)):
            yield f"{kind} {size}", (x,), {"cgp": lambda x, kind=kind: ops.activate(x, kind), "eager": theirs}, True
        yield f"bias + gelu {size}", (x, b), {
            "cgp": lambda x, b: ops.activate(x, "gelu_tanh", b), "eager": lambda x, b: F.gelu(x + b, approximate="tanh")}, True
        yield f"add {size}", (x, r), {"cgp": ops.add, "eager": torch.add}, False
        yield f"dropout {size}", (x,), {"cgp": lambda x: ops.dropout(x, 0.1, 7), "eager": lambda x: F.dropout(x, 0.1)}, True
        yield f"sum {size}", (x,), {"cgp": ops.sum, "eager": lambda x: x.sum(-1),
                                   **_in_triton(compile, sum=lambda f, x: f(x))}, True
        yield f"sum of columns {size}", (x,), {"cgp": lambda x: ops.sum(x, 0), "eager": lambda x: x.sum(0)}, False
        yield f"max {size}", (x,), {"cgp": ops.max, "eager": lambda x: x.amax(-1),
                                   **_in_triton(compile, max=lambda f, x: f(x))}, False
        yield f"transpose {size}", (x,), {"cgp": ops.transpose, "eager": lambda x: x.mT.contiguous()}, True
        yield f"argmax {size}", (x,), {"cgp": ops.argmax, "eager": lambda x: x.argmax(-1)}, False
        yield f"cumsum {size}", (x,), {"cgp": ops.cumsum, "eager": lambda x: x.cumsum(-1)}, False
        yield f"topk 50 {size}", (x,), {"cgp": lambda x: ops.topk(x, 50)[0], "eager": lambda x: x.topk(50).values}, False
    for rows, n in ((8192, 32000), (4096, 151936)):
        target = torch.randint(0, n, (rows,), device="cuda")
        liger = _peer("liger_kernel.transformers.functional", "liger_cross_entropy")
        yield f"cross_entropy {rows} x {n}", (random(rows, n),), {
            "cgp": lambda x: ops.cross_entropy(x, target), "eager": lambda x: F.cross_entropy(x, target),
            **({"liger": lambda x: liger(x, target)} if liger else {})}, True
    target = torch.randint(0, 128256, (4096,), device="cuda")
    fused = _peer("liger_kernel.ops.fused_linear_cross_entropy", "LigerFusedLinearCrossEntropyFunction")
    yield "linear_cross_entropy 4096 x 2048, 128256 classes", (random(4096, 2048), random(128256, 2048)), {
        "cgp": lambda h, w: ops.linear_cross_entropy(h, w, target), "eager": lambda h, w: F.cross_entropy(F.linear(h, w), target),
        **({"liger": lambda h, w: fused.apply(h, w, target)[0]} if fused else {})}, True
    table, index = random(128256, 2048), torch.randint(0, 128256, (8192,), device="cuda")
    yield "embedding 8192 of 128256 x 2048", (table,), {
        "cgp": lambda w: ops.embedding(index, w), "eager": lambda w: F.embedding(index, w)}, True
    yield from _attention_cases(ops, random, compile)
    yield from _page_cases(random, compile)


def _page_cases(random, compile):
    """4096 tokens of 8 heads to pages of 64 in any order, and back."""
    from cgp import _core, _torch
    pool, k, v = random(128, 2, 8, 64, 128), random(4096, 8, 128), random(4096, 8, 128)
    table = torch.randperm(128, device="cuda")[:64]
    slots = (table[:, None] * 64 + torch.arange(64, device="cuda")).reshape(-1)
    pages, places = slots // 64, slots % 64
    error_flag, scales = torch.zeros(1, dtype=torch.int32, device="cuda"), (1.0, 1.0)
    tables, lengths = table[None].int(), torch.tensor([4096], dtype=torch.int32, device="cuda")

    def append(pool, k, v):
        _torch.queue(_core.kv_append, k, k, v, slots, scales, error_flag, pool)

    def read(pool):
        k, v = (pool.new_empty(1, 8, 4096, 128) for _ in range(2))
        _torch.queue(_core.kv_gather, pool, pool, tables, lengths, scales, error_flag, k, v)
        return k, v

    def put(pool, k, v):
        pool[pages, 0, :, places], pool[pages, 1, :, places] = k, v

    yield "append to pages 4096 x 8 x 128", (pool, k, v), {
        "cgp": append, "eager": put, **_in_triton(compile, append=lambda f, pool, k, v: f(pool, slots, k, v))}, False
    yield "read from pages 4096 x 8 x 128", (pool,), {
        "cgp": read, "eager": lambda pool: (pool[pages, 0, :, places], pool[pages, 1, :, places]),
        **_in_triton(compile, read=lambda f, pool: f(pool, slots))}, False
    for batch in (1, 4, 8, 16):
        yield from _contiguous_cases(random, batch)


def _contiguous_cases(random, batch):
    """A cache of 1024 tokens a sequence in pages, and as contiguous memory."""
    import cgp
    cache = cgp.PagedKVCache(batch * 17, heads=8, d=128, page_size=64, device="cuda")
    of = [cache.add_sequence() for _ in range(batch)]
    cache.append(of, random(batch, 1023, 8, 128), random(batch, 1023, 8, 128))
    steps = cache.steps(of, longest=1024)
    steps.advance()
    keys, values = random(batch, 8, 1024, 128), random(batch, 8, 1024, 128)
    k, v, q = random(batch, 1, 8, 128), random(batch, 1, 8, 128), random(batch, 32, 1, 128)

    def put(k, v):
        keys[:, :, 1023], values[:, :, 1023] = k[:, 0], v[:, 0]

    size = f"{batch} x 1024"
    yield f"cache of {size}: append", (k, v), {"cgp": steps.append, "contiguous": put}, False
    yield f"cache of {size}: attention", (q,), {
        "cgp": steps.attend, "contiguous": lambda q: F.scaled_dot_product_attention(q, keys, values, enable_gqa=True)}, False
    yield f"cache of {size}: read", (), {"cgp": steps.read, "contiguous": lambda: (keys.clone(), values.clone())}, False


def _flex(n, causal):
    """Triton's attention."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    run = torch.compile(flex_attention, dynamic=False)
    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, n, n, device="cuda") if causal else None
    return lambda q, k, v: run(q, k, v, block_mask=mask)


def _attention_cases(ops, random, compile):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def backend(which, causal):
        def run(q, k, v):
            with sdpa_kernel(which):
                return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return run

    for n, d in ((1024, 64), (4096, 64), (4096, 128)):
        for causal in (True, False):
            shape = (16384 // n, 2048 // d, n, d)
            yield f"attention {n}, d {d}{', causal' if causal else ''}", tuple(random(*shape) for _ in range(3)), {
                "cgp": lambda q, k, v, causal=causal: ops.attention(q, k, v, causal)[0],
                "eager": lambda q, k, v, causal=causal: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
                "flash": backend(SDPBackend.FLASH_ATTENTION, causal),
                "cudnn": backend(SDPBackend.CUDNN_ATTENTION, causal), **({"flex": _flex(n, causal)} if compile else {}),
                **_in_triton(compile, attention=lambda f, q, k, v, causal=causal: f(q, k, v, causal)[0])}, True


def run(options):
    rows = []
    for name, inputs, contenders, differentiable in _cases(options.compile):
        if options.only and not any(o in name for o in options.only):
            continue
        if options.compile and "eager" in contenders:
            contenders["torch.compile"] = torch.compile(contenders["eager"], dynamic=False)
        with torch.no_grad():
            forward = {n: (lambda f=f: f(*inputs)) for n, f in contenders.items()}
            rows.append(dict(part="operators", name=name, own=["cgp"], times=by_events(forward, options.rounds, options.seconds)))
        if differentiable:
            both = {n: _both(f, inputs) for n, f in contenders.items() if n != "triton"}
            rows.append(dict(part="operators", name=name + " + gradient", own=["cgp"],
                             times=by_events(both, options.rounds, options.seconds)))
        if options.compile:
            torch.compiler.reset()
    return rows
