# SPDX-License-Identifier: Apache-2.0
"""Kernels in Triton. SLIP names the one defect of a broken twin; None is the kernel as it should be."""
import triton
import triton.language as tl


@triton.jit
def add(x, y, o, n, B: tl.constexpr, SLIP: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    if SLIP == "load_unmasked":
        v = tl.load(x + i)
    else:
        v = tl.load(x + i, mask=m)
    v += tl.load(y + i, mask=m)
    if SLIP == "store_unmasked":
        tl.store(o + i, v)
    elif SLIP == "off_by_one":
        tl.store(o + i + 1, v, mask=m)
    else:
        tl.store(o + i, v, mask=m)


@triton.jit
def softmax(x, o, n, stride, B: tl.constexpr, SLIP: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    if SLIP == "row_stride":
        stride += 8
    v = tl.load(x + row * stride + i, mask=i < n, other=float("-inf"))
    e = tl.exp2((v - tl.max(v, 0)) * 1.4426950408889634)
    tl.store(o + row * stride + i, e / tl.sum(e, 0), mask=i < n)


@triton.jit
def layer_norm(x, w, b, o, mean, rstd, n, eps, B: tl.constexpr, SLIP: tl.constexpr):
    row = tl.program_id(0)
    s = tl.zeros([B], tl.float32)
    for at in range(0, n, B):
        i = at + tl.arange(0, B)
        s += tl.load(x + row * n + i, mask=i < n, other=0.0)
    mu = tl.sum(s, 0) / n
    s = tl.zeros([B], tl.float32)
    for at in range(0, n, B):
        i = at + tl.arange(0, B)
        d = tl.where(i < n, tl.load(x + row * n + i, mask=i < n, other=0.0) - mu, 0.0)
        s += d * d
    r = 1 / tl.sqrt(tl.sum(s, 0) / n + eps)
    tl.store(mean + row, mu)
    tl.store(rstd + row, r)
    for at in range(0, n, B):
        i = at + tl.arange(0, B)
        if SLIP == "weights_unmasked":
            scale = tl.load(w + i)
        else:
            scale = tl.load(w + i, mask=i < n)
        y = (tl.load(x + row * n + i, mask=i < n) - mu) * r * scale + tl.load(b + i, mask=i < n)
        tl.store(o + row * n + i, y, mask=i < n)


@triton.jit
def summed_under_locks(x, o, locks, counts, n, groups, B: tl.constexpr, SLIP: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    group = row % groups
    m = i < n
    v = tl.load(x + row * n + i, mask=m, other=0)
    if SLIP != "no_lock":
        while tl.atomic_cas(locks + group, 0, 1) == 1:
            pass
    if SLIP == "stale_count":
        count = tl.load(counts)
    else:
        count = tl.load(counts + group)
    if SLIP != "count_at_once":
        tl.debug_barrier()
    if count == 0:
        tl.store(counts + group, 1)
    else:
        v += tl.load(o + group * n + i, mask=m)
    tl.store(o + group * n + i, v, mask=m)
    tl.debug_barrier()
    if SLIP == "unlock_relaxed":
        tl.atomic_xchg(locks + group, 0, sem="relaxed")
    elif SLIP == "unlock_in_block":
        tl.atomic_xchg(locks + group, 0, scope="cta")
    elif SLIP != "no_lock":
        tl.atomic_xchg(locks + group, 0)


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SLIP: tl.constexpr):
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for at in range(0, K, BK):
        if SLIP == "rows_unmasked":
            x = tl.load(a + m[:, None] * K + (at + k)[None, :], mask=(at + k)[None, :] < K, other=0.0)
        else:
            x = tl.load(a + m[:, None] * K + (at + k)[None, :], mask=(m[:, None] < M) & ((at + k)[None, :] < K), other=0.0)
        if SLIP == "depth_unmasked":
            y = tl.load(b + (at + k)[:, None] * N + n[None, :], mask=n[None, :] < N, other=0.0)
        else:
            y = tl.load(b + (at + k)[:, None] * N + n[None, :], mask=((at + k)[:, None] < K) & (n[None, :] < N), other=0.0)
        acc = tl.dot(x, y, acc)
    if SLIP == "swapped_limits":
        inside = (m[:, None] < N) & (n[None, :] < M)
    else:
        inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(c + m[:, None] * N + n[None, :], acc, mask=inside)


@triton.jit
def matmul_int8(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SLIP: tl.constexpr):
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.int32)
    for at in range(0, K, BK):
        acc = tl.dot(tl.load(a + m[:, None] * K + (at + k)[None, :]), tl.load(b + n[None, :] * K + (at + k)[:, None]), acc)
    tl.store(c + m[:, None] * N + n[None, :], acc)


@triton.jit
def matmul_split(a, b, c, N, K, part, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SLIP: tl.constexpr):
    m, n = tl.arange(0, BM), tl.program_id(0) * BN + tl.arange(0, BN)
    first = tl.program_id(1) * part
    acc = tl.zeros((BM, BN), tl.float32)
    for at in range(first, first + part, BK):
        k = at + tl.arange(0, BK)
        acc = tl.dot(tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + n[None, :]), acc)
    to = c + m[:, None] * N + n[None, :]
    if SLIP == "plain_sum":
        tl.store(to, tl.load(to) + acc)
    else:
        tl.atomic_add(to, acc, sem="relaxed")


@triton.jit
def attention(q, k, v, o, n, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, SLIP: tl.constexpr):
    head, d = tl.program_id(1) * n * D, tl.arange(0, D)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    x = tl.load(q + head + m[:, None] * D + d[None, :])
    top, sum_, acc = tl.full([BM], float("-inf"), tl.float32), tl.zeros([BM], tl.float32), tl.zeros([BM, D], tl.float32)
    last = (tl.program_id(0) + 1) * BM
    if SLIP == "one_tile_more":
        last += BN
    for at in range(0, last, BN):
        j = at + tl.arange(0, BN)
        s = tl.dot(x, tl.load(k + head + j[None, :] * D + d[:, None])) * scale
        s = tl.where(m[:, None] >= j[None, :], s, float("-inf"))
        t = tl.maximum(top, tl.max(s, 1))
        p, f = tl.exp2(s - t[:, None]), tl.exp2(top - t)
        sum_ = sum_ * f + tl.sum(p, 1)
        acc = tl.dot(p.to(tl.float16), tl.load(v + head + j[:, None] * D + d[None, :]), acc * f[:, None])
        top = t
    tl.store(o + head + m[:, None] * D + d[None, :], acc / sum_[:, None])


@triton.jit
def total(x, o, n, B: tl.constexpr, SLIP: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    s = tl.sum(tl.load(x + i, mask=i < n, other=0), 0)
    if SLIP == "not_atomic":
        tl.store(o, tl.load(o) + s)
    else:
        tl.atomic_add(o, s)


@triton.jit
def last_block_sums(x, parts, count, o, n, blocks, B: tl.constexpr, P: tl.constexpr, SLIP: tl.constexpr):
    p = tl.program_id(0)
    i = p * B + tl.arange(0, B)
    tl.store(parts + p, tl.sum(tl.load(x + i, mask=i < n, other=0), 0))
    if SLIP == "relaxed":
        before = tl.atomic_add(count, 1, sem="relaxed")
    elif SLIP == "in_block":
        before = tl.atomic_add(count, 1, scope="cta")
    else:
        before = tl.atomic_add(count, 1)
    if SLIP == "first_block":
        chosen = before == 0
    else:
        chosen = before == blocks - 1
    if chosen:
        j = tl.arange(0, P)
        tl.store(o, tl.sum(tl.load(parts + j, mask=j < blocks, other=0), 0))


@triton.jit
def scan_chained(x, o, sums, flags, B: tl.constexpr, SLIP: tl.constexpr):
    p = tl.program_id(0)
    i = p * B + tl.arange(0, B)
    v = tl.load(x + i)
    before = 0
    if p > 0:
        if SLIP != "no_wait":
            while tl.atomic_add(flags + p - 1, 0) == 0:
                pass
        before = tl.load(sums + p - 1)
    tl.store(o + i, tl.cumsum(v, 0) + before)
    tl.store(sums + p, before + tl.sum(v, 0))
    tl.debug_barrier()
    if SLIP == "release_missing":
        tl.atomic_xchg(flags + p, 1, sem="relaxed")
    elif SLIP == "plain_flag":
        tl.store(flags + p, 1)
    else:
        tl.atomic_xchg(flags + p, 1)


@triton.jit
def sort_rows(x, o, B: tl.constexpr, SLIP: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.sort(tl.load(x + i)))


@triton.jit
def transpose(x, o, M, N, B: tl.constexpr, SLIP: tl.constexpr):
    m, n = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B)
    v = tl.load(x + m[:, None] * N + n[None, :], mask=(m[:, None] < M) & (n[None, :] < N))
    if SLIP == "mask_not_transposed":
        tl.store(o + n[:, None] * M + m[None, :], tl.trans(v), mask=(n[:, None] < M) & (m[None, :] < N))
    elif SLIP == "in_place":
        tl.store(x + n[:, None] * M + m[None, :], tl.trans(v), mask=(n[:, None] < N) & (m[None, :] < M))
    else:
        tl.store(o + n[:, None] * M + m[None, :], tl.trans(v), mask=(n[:, None] < N) & (m[None, :] < M))


@triton.jit
def top_of_rows(x, value, index, n, B: tl.constexpr, SLIP: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    v, at = tl.max(tl.load(x + row * n + i, mask=i < n, other=-1000), 0, return_indices=True)
    tl.store(value + row, v)
    if SLIP == "one_row":
        tl.store(index, at)
    else:
        tl.store(index + row, at)


@triton.jit
def gather(indices, table, o, D: tl.constexpr, SLIP: tl.constexpr):
    row, d = tl.program_id(0), tl.arange(0, D)
    at = tl.load(indices + row)
    if SLIP == "one_too_far":
        at += 1
    tl.store(o + row * D + d, tl.load(table + at * D + d))


@triton.jit
def scatter(indices, x, o, D: tl.constexpr, SLIP: tl.constexpr):
    row, d = tl.program_id(0), tl.arange(0, D)
    to = o + tl.load(indices + row) * D + d
    v = tl.load(x + row * D + d)
    if SLIP == "not_atomic":
        tl.store(to, tl.load(to) + v)
    else:
        tl.atomic_add(to, v)


@triton.jit
def ema(x, o, n, decay, SLIP: tl.constexpr):
    """First-order recurrence, by an associative scan of pairs."""
    i = tl.arange(0, 128)
    row = tl.program_id(0) * 128
    a = tl.full([128], 1.0, tl.float32) * decay
    _, y = tl.associative_scan((a, tl.load(x + row + i)), 0, _compose)
    tl.store(o + row + i, y)


@triton.jit
def _compose(a, x, b, y):
    return a * b, x * b + y


@triton.jit
def stencil(x, o, n, B: tl.constexpr, SLIP: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    if SLIP == "left_edge":
        left = tl.load(x + i - 1, mask=i < n, other=0)
    else:
        left = tl.load(x + i - 1, mask=(i > 0) & (i < n), other=0)
    if SLIP == "right_edge":
        right = tl.load(x + i + 1, mask=i < n, other=0)
    else:
        right = tl.load(x + i + 1, mask=i + 1 < n, other=0)
    v = tl.load(x + i, mask=i < n, other=0)
    if SLIP == "in_place":
        tl.store(x + i, left - 2 * v + right, mask=i < n)
    else:
        tl.store(o + i, left - 2 * v + right, mask=i < n)


@triton.jit
def grid_stride(x, o, n, B: tl.constexpr, SLIP: tl.constexpr):
    s = tl.zeros([B], tl.int32)
    for at in range(tl.program_id(0) * B, n, tl.num_programs(0) * B):
        i = at + tl.arange(0, B)
        if SLIP == "tail_unmasked":
            s += tl.load(x + i)
        else:
            s += tl.load(x + i, mask=i < n, other=0)
    if SLIP == "half_stored":
        if tl.program_id(0) > 0:
            tl.store(o + tl.program_id(0), tl.sum(s, 0))
    else:
        tl.store(o + tl.program_id(0), tl.sum(s, 0))


@triton.jit
def two_phases(x, mid, arrived, o, blocks, B: tl.constexpr, SLIP: tl.constexpr):
    """A barrier of the grid by a counter, then what the neighbour wrote."""
    p, i = tl.program_id(0), tl.arange(0, B)
    tl.store(mid + p * B + i, tl.load(x + p * B + i) * 3)
    if SLIP != "no_barrier":
        tl.debug_barrier()
        if SLIP == "relaxed_arrival":
            tl.atomic_add(arrived, 1, sem="relaxed")
        else:
            tl.atomic_add(arrived, 1, sem="release")
        while tl.atomic_add(arrived, 0, sem="acquire") < blocks:
            pass
    tl.store(o + p * B + i, tl.load(mid + ((p + 1) % blocks) * B + i))
