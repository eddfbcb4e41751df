# SPDX-License-Identifier: Apache-2.0
"""What one writes in Triton for the same work, as peers: reductions, attention, a linear layer with GELU, RoPE, a paged cache's append
and read. bfloat16 or float16, contiguous; products and attention choose among eight configurations. On the CPU with
TRITON_INTERPRET=1."""
import os

import torch
import triton
import triton.language as tl


def _choices(*configs):
    made = [triton.Config(dict(zip(("M", "N", "K"), c[:-2])), num_warps=c[-2], num_stages=c[-1]) for c in configs]
    return made[:1] if os.environ.get("TRITON_INTERPRET") == "1" else made


@triton.jit
def _reduce_kernel(x, y, n, MAX: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    kept = tl.full([BLOCK], float("-inf") if MAX else 0.0, tl.float32)
    for first in range(0, n, BLOCK):
        at = first + tl.arange(0, BLOCK)
        v = tl.load(x + row * n + at, mask=at < n, other=float("-inf") if MAX else 0.0).to(tl.float32)
        kept = tl.maximum(kept, v) if MAX else kept + v
    tl.store(y + row, tl.max(kept, 0) if MAX else tl.sum(kept, 0))


def _reduce(x, largest):
    y = x.new_empty(x.shape[:-1])
    n = x.shape[-1]
    _reduce_kernel[(y.numel(),)](x, y, n, MAX=largest, BLOCK=min(4096, triton.next_power_of_2(n)), num_warps=8)
    return y


def sum(x):
    return _reduce(x, False)


def max(x):
    return _reduce(x, True)


@triton.jit
def _softmax_kernel(x, y, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=float("-inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + row * n + at, e / tl.sum(e, 0), mask=at < n)


def softmax(x):
    y, n = torch.empty_like(x), x.shape[-1]
    _softmax_kernel[(x.numel() // n,)](x, y, n, BLOCK=triton.next_power_of_2(n), num_warps=8 if n <= 8192 else 16)
    return y


@triton.autotune(_choices((64, 64, 64, 4, 4), (128, 64, 64, 4, 4), (64, 128, 64, 4, 4), (128, 128, 64, 4, 4), (128, 128, 64, 8, 3),
                          (128, 256, 64, 8, 3), (256, 128, 64, 8, 3), (64, 64, 32, 4, 5)), key=["m", "n", "k"])
@triton.jit
def _gelu_linear_kernel(x, w, b, y, m, n, k, TANH: tl.constexpr, BIAS: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
                        K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    cols = tl.program_id(1) * N + tl.arange(0, N)
    sums = tl.zeros([M, N], tl.float32)
    for first in range(0, k, K):
        at = first + tl.arange(0, K)
        a = tl.load(x + rows[:, None] * k + at[None, :], mask=(rows[:, None] < m) & (at[None, :] < k), other=0.0)
        c = tl.load(w + cols[None, :] * k + at[:, None], mask=(cols[None, :] < n) & (at[:, None] < k), other=0.0)
        sums = tl.dot(a, c, sums)
    if BIAS:
        sums += tl.load(b + cols, mask=cols < n, other=0.0).to(tl.float32)[None, :]
    if TANH:
        sums = sums * tl.sigmoid(1.5957691216057308 * (sums + 0.044715 * sums * sums * sums))
    else:
        sums = 0.5 * sums * (1.0 + tl.erf(sums * 0.7071067811865476))
    tl.store(y + rows[:, None] * n + cols[None, :], sums, mask=(rows[:, None] < m) & (cols[None, :] < n))


def gelu_linear(x, weight, bias=None, tanh=False):
    """gelu(x weight^T + bias); x [m, k], weight [n, k]"""
    (m, k), n = x.shape, weight.shape[0]
    y = x.new_empty((m, n))
    _gelu_linear_kernel[lambda c: (triton.cdiv(m, c["M"]), triton.cdiv(n, c["N"]))](
        x, weight, bias, y, m, n, k, TANH=tanh, BIAS=bias is not None)
    return y


@triton.autotune(_choices((64, 32, 4, 3), (64, 64, 4, 3), (128, 32, 4, 3), (128, 64, 4, 3), (128, 64, 8, 3), (128, 128, 8, 2),
                          (128, 128, 8, 3), (64, 128, 4, 3)), key=["n_q", "n_kv", "D", "CAUSAL"])
@triton.jit
def _attention_kernel(q, k, v, o, lse, n_q, n_kv, scale, D: tl.constexpr, CAUSAL: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    head = tl.program_id(1).to(tl.int64)
    rows, d = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, D)
    mine = tl.load(q + head * n_q * D + rows[:, None] * D + d[None, :], mask=rows[:, None] < n_q, other=0.0)
    best, total = tl.full([M], float("-inf"), tl.float32), tl.zeros([M], tl.float32)
    sums = tl.zeros([M, D], tl.float32)
    end = tl.minimum(n_kv, tl.program_id(0) * M + M + n_kv - n_q) if CAUSAL else n_kv
    for first in range(0, end, N):
        at = first + tl.arange(0, N)
        keys = tl.load(k + head * n_kv * D + at[None, :] * D + d[:, None], mask=at[None, :] < n_kv, other=0.0)
        s = tl.dot(mine, keys) * (scale * 1.4426950408889634)
        seen = at[None, :] < n_kv
        if CAUSAL:
            seen = seen & (at[None, :] <= rows[:, None] + n_kv - n_q)
        s = tl.where(seen, s, float("-inf"))
        now = tl.maximum(best, tl.max(s, 1))
        shrink, p = tl.exp2(best - now), tl.exp2(s - now[:, None])
        values = tl.load(v + head * n_kv * D + at[:, None] * D + d[None, :], mask=at[:, None] < n_kv, other=0.0)
        sums = tl.dot(p.to(values.dtype), values, sums * shrink[:, None])
        total, best = total * shrink + tl.sum(p, 1), now
    tl.store(o + head * n_q * D + rows[:, None] * D + d[None, :], sums / total[:, None], mask=rows[:, None] < n_q)
    tl.store(lse + head * n_q + rows, (best + tl.log2(total)) * 0.6931471805599453, mask=rows < n_q)


def attention(q, k, v, causal=False):
    """q [batch, heads, n_q, d], k and v [batch, heads, n_kv, d], n_q <= n_kv, d a power of 2 -> (o, lse)"""
    b, heads, n_q, d = q.shape
    o, lse = torch.empty_like(q), q.new_empty(q.shape[:-1], dtype=torch.float32)
    _attention_kernel[lambda c: (triton.cdiv(n_q, c["M"]), b * heads)](q, k, v, o, lse, n_q, k.shape[2], d**-0.5, D=d, CAUSAL=causal)
    return o, lse


@triton.jit
def _rope_kernel(x, cos, sin, y, sequence, heads, HALF: tl.constexpr, BLOCK: tl.constexpr):
    token, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    angle = (token // heads) % sequence * HALF + at
    c, s = tl.load(cos + angle, mask=at < HALF), tl.load(sin + angle, mask=at < HALF)
    first = token * 2 * HALF + at
    a = tl.load(x + first, mask=at < HALF).to(tl.float32)
    b = tl.load(x + first + HALF, mask=at < HALF).to(tl.float32)
    tl.store(y + first, a * c - b * s, mask=at < HALF)
    tl.store(y + first + HALF, a * s + b * c, mask=at < HALF)


def rope(x, cos, sin):
    """x [batch, n, heads, d], cos and sin float32 [n, d / 2]: halves"""
    y, half = torch.empty_like(x), x.shape[-1] // 2
    _rope_kernel[(x.numel() // x.shape[-1],)](x, cos, sin, y, x.shape[1], x.shape[2], HALF=half,
                                              BLOCK=triton.next_power_of_2(half), num_warps=1)
    return y


@triton.jit
def _pages_kernel(k, v, pool, slots, heads, page, d, READ: tl.constexpr, BLOCK: tl.constexpr):
    token, row = tl.program_id(0).to(tl.int64), heads * d
    slot = tl.load(slots + token).to(tl.int64)
    base = slot // page * 2 * page * row + slot % page * d
    for first in range(0, row, BLOCK):
        at = first + tl.arange(0, BLOCK)
        there, inside = base + at // d * page * d + at % d, at < row
        if READ:
            tl.store(k + token * row + at, tl.load(pool + there, mask=inside), mask=inside)
            tl.store(v + token * row + at, tl.load(pool + there + page * row, mask=inside), mask=inside)
        else:
            tl.store(pool + there, tl.load(k + token * row + at, mask=inside), mask=inside)
            tl.store(pool + there + page * row, tl.load(v + token * row + at, mask=inside), mask=inside)


def append(pool, slots, k, v):
    """k and v [tokens, heads, d] to the slots (page * page_size + place) of pool [pages, 2, heads, page_size, d]"""
    _, _, heads, page, d = pool.shape
    _pages_kernel[(k.shape[0],)](k, v, pool, slots, heads, page, d, READ=False, BLOCK=1024)


def read(pool, slots):
    """k and v [tokens, heads, d] of these slots"""
    _, _, heads, page, d = pool.shape
    k, v = (pool.new_empty((slots.shape[0], heads, d)) for _ in range(2))
    _pages_kernel[(k.shape[0],)](k, v, pool, slots, heads, page, d, READ=True, BLOCK=1024)
    return k, v
