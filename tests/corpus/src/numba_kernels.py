# SPDX-License-Identifier: Apache-2.0
"""Kernels in Numba's CUDA dialect, made by functions whose argument names the one defect of a broken twin, or is None."""
import numba
from numba import cuda, float32, int32


def block_sums(slip):
    def kernel(x, o, n):
        part = cuda.shared.array(128, int32)
        t = cuda.threadIdx.x
        i = cuda.grid(1)
        if slip == "uncleared":
            if i < n:
                part[t] = x[i]
        else:
            part[t] = x[i] if i < n else 0
        if slip != "no_first_barrier":
            cuda.syncthreads()
        d = 64
        while d > 0:
            if t < d:
                part[t] += part[t + d]
                if slip == "barrier_of_some":
                    cuda.syncthreads()
            if slip != "no_barrier" and slip != "barrier_of_some":
                cuda.syncthreads()
            d //= 2
        if t == 0:
            o[cuda.blockIdx.x] = part[0]

    return kernel


def transposed(slip):
    def kernel(x, o):
        width = 16 if slip == "narrow" else 17
        tile = cuda.shared.array((16, 17), float32)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        c, r = cuda.blockIdx.x * 16 + tx, cuda.blockIdx.y * 16 + ty
        if r < x.shape[0] and c < x.shape[1]:
            tile[ty, tx] = x[r, c]
        if slip != "no_barrier":
            cuda.syncthreads()
        c, r = cuda.blockIdx.y * 16 + tx, cuda.blockIdx.x * 16 + ty
        if slip == "wrong_limits":
            if r < o.shape[1] and c < o.shape[0]:
                o[r, c] = tile[tx, ty]
        elif slip == "no_limits":
            o[r, c] = tile[tx, ty]
        elif r < o.shape[0] and c < o.shape[1]:
            o[r, c] = tile[tx, ty]

    return kernel


def product(slip):
    def kernel(a, b, c, n):
        x, y = cuda.shared.array((8, 8), float32), cuda.shared.array((8, 8), float32)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        col, row = cuda.grid(2)
        s = float32(0)
        for k in range(0, n, 8):
            x[ty, tx] = a[row, k + tx]
            y[ty, tx] = b[k + ty, col + 1 if slip == "wrong_column" else col]
            if slip != "no_first_barrier":
                cuda.syncthreads()
            for j in range(9 if slip == "one_too_far" else 8):
                s += x[ty, j] * y[j, tx]
            if slip != "no_second_barrier":
                cuda.syncthreads()
        c[row, col] = s

    return kernel


def binned(slip):
    def kernel(x, o, n):
        bins = cuda.shared.array(32, int32)
        t = cuda.threadIdx.x
        if t < (16 if slip == "half_cleared" else 32):
            bins[t] = 0
        if slip != "no_barrier":
            cuda.syncthreads()
        for i in range(cuda.grid(1), n, cuda.gridsize(1)):
            if slip == "not_atomic":
                bins[x[i] % 32] += 1
            else:
                cuda.atomic.add(bins, x[i] % 32, 1)
        cuda.syncthreads()
        if t < 32:
            if slip == "global_not_atomic":
                o[t] += bins[t]
            else:
                cuda.atomic.add(o, t, bins[t])

    return kernel


def scanned(slip):
    def kernel(x, o):
        s = cuda.shared.array((2, 64), int32)
        t = cuda.threadIdx.x
        s[0, t] = x[cuda.grid(1)]
        cuda.syncthreads()
        at, d = 0, 1
        while d < 64:
            to = at if slip == "one_buffer" else 1 - at
            if t >= d:
                s[to, t] = s[at, t] + s[at, t - d]
            elif slip != "not_copied":
                s[to, t] = s[at, t]
            if slip != "no_barrier":
                cuda.syncthreads()
            at, d = to, d * 2
        o[cuda.grid(1)] = s[at, t]

    return kernel


def heat(slip):
    def kernel(x, o, n):
        row = cuda.shared.array(66, float32)
        t, i = cuda.threadIdx.x, cuda.grid(1)
        row[t + 1] = x[i] if i < n else float32(0)
        if t == 0:
            row[0] = x[i - 1] if i > 0 else float32(0)
        if t == 63 and slip != "no_right_halo":
            row[65] = x[i + 1] if i + 1 < n else float32(0)
        if slip != "no_barrier":
            cuda.syncthreads()
        if i < n:
            o[i] = row[t] - 2 * row[t + 1] + row[t + 2]

    return kernel


def warp_sums(slip):
    def kernel(x, o, n):
        i = cuda.grid(1)
        v = x[i] if i < n else 0
        if slip == "under_condition":
            if cuda.laneid < 24:
                for d in (16, 8, 4, 2, 1):
                    v += cuda.shfl_down_sync(0xFFFFFFFF, v, d)
        else:
            for d in (16, 8, 4, 2, 1):
                v += cuda.shfl_down_sync(0xFFFFFFFF, v, d)
        if cuda.laneid == 0:
            if slip == "not_atomic":
                o[0] += v
            else:
                cuda.atomic.add(o, 0, v)

    return kernel


def last_block(slip):
    def kernel(x, parts, count, o):
        last = cuda.shared.array(1, int32)
        t = cuda.threadIdx.x
        cuda.atomic.add(parts, cuda.blockIdx.x, x[cuda.grid(1)])
        if slip == "fence_of_block":
            cuda.threadfence_block()
        elif slip != "no_fence":
            cuda.threadfence()
        cuda.syncthreads()
        if t == 0:
            last[0] = 1 if cuda.atomic.add(count, 0, 1) == cuda.gridDim.x - 1 else 0
        if slip != "no_barrier":
            cuda.syncthreads()
        if last[0] == 1 and t == 0:
            cuda.threadfence()
            s = 0
            for b in range(cuda.gridDim.x):
                s += parts[b]
            o[0] = s

    return kernel


def locked(slip):
    def kernel(x, lock, o):
        if cuda.threadIdx.x == 0:
            if slip != "no_lock":
                while cuda.atomic.cas(lock, 0, 0, 1) != 0:
                    pass
                if slip != "no_fences":
                    cuda.threadfence()
            o[0] += x[cuda.blockIdx.x]
            o[1] = max(o[1], x[cuda.blockIdx.x])
            if slip != "no_lock":
                if slip != "no_fences":
                    cuda.threadfence()
                if slip == "plain_unlock":
                    lock[0] = 0
                else:
                    cuda.atomic.exch(lock, 0, 0)

    return kernel


def bitonic(slip):
    def kernel(x, o):
        s = cuda.shared.array(128, int32)
        t = cuda.threadIdx.x
        s[t] = x[t]
        cuda.syncthreads()
        k = 2
        while k <= 128:
            j = k // 2
            while j > 0:
                other = t ^ j
                if other > t or slip == "both_swap":
                    a, b = s[t], s[other]
                    if (a > b) == ((t & k) == 0):
                        s[t], s[other] = b, a
                if slip != "no_barrier":
                    cuda.syncthreads()
                j //= 2
            k *= 2
        o[t] = s[t]

    return kernel


def compacted(slip):
    def kernel(x, o, count, n):
        i = cuda.grid(1)
        keep = i < n and x[i] > 0
        votes = cuda.ballot_sync(0xFFFFFFFF, keep)
        first = 0
        if cuda.laneid == 0:
            if slip == "not_atomic":
                first = count[0]
                count[0] = first + cuda.popc(votes)
            else:
                first = cuda.atomic.add(count, 0, cuda.popc(votes))
        first = cuda.shfl_sync(0xFFFFFFFF, first, 0)
        if keep:
            o[first + cuda.popc(votes & ((1 << cuda.laneid) - 1)) + (1 if slip == "off_by_one" else 0)] = x[i]

    return kernel


def bodies(slip):
    def kernel(p, f, n):
        near = cuda.shared.array((32, 2), float32)
        t, i = cuda.threadIdx.x, cuda.grid(1)
        fx, fy = float32(0), float32(0)
        for tile in range(0, n, 32):
            near[t, 0] = p[tile + t, 0]
            near[t, 1] = p[tile + t, 1]
            if slip != "no_first_barrier":
                cuda.syncthreads()
            for j in range(32):
                dx, dy = near[j, 0] - p[i, 0], near[j, 1] - p[i, 1]
                w = dx * dx + dy * dy
                fx += w * dx
                fy += w * dy
            if slip != "no_second_barrier":
                cuda.syncthreads()
        f[i, 0] = fx
        f[i, 1] = fy

    return kernel


def life(slip):
    def kernel(x, o, h, w):
        c, r = cuda.grid(2)
        if r < h and c < w:
            s = 0
            for dr in range(-1, 2):
                for dc in range(-1, 2):
                    if dr != 0 or dc != 0:
                        if slip == "no_wrap":
                            s += x[(r + dr) * w + c + dc]
                        else:
                            s += x[((r + dr + h) % h) * w + (c + dc + w) % w]
            alive = s == 3 or (s == 2 and x[r * w + c] == 1)
            if slip == "in_place":
                x[r * w + c] = 1 if alive else 0
            else:
                o[r * w + c] = 1 if alive else 0

    return kernel


def rows_times_vector(slip):
    def kernel(start, column, value, x, o, rows):
        r = cuda.grid(1)
        if r < rows or slip == "all_rows":
            s = 0
            for k in range(start[r], start[r + 1] + (1 if slip == "one_too_far" else 0)):
                s += value[k] * x[column[k]]
            o[r] = s

    return kernel


def digits(slip):
    def kernel(x, o):
        count = cuda.local.array(10, int32)
        for k in range(10):
            count[k] = 0
        i = cuda.grid(1)
        v = x[i]
        while v > 0:
            count[v % 10 + (1 if slip == "one_too_far" else 0)] += 1
            v //= 10
        most = 0
        for k in range(10):
            if count[k] > count[most]:
                most = k
        o[i] = most

    return kernel


def dynamic(slip):
    def kernel(x, o):
        s = cuda.shared.array(0, int32)
        t = cuda.threadIdx.x
        s[t] = x[cuda.grid(1)]
        s[t + 64 + (64 if slip == "beyond" else 0)] = t
        if slip != "no_barrier":
            cuda.syncthreads()
        o[cuda.grid(1)] = s[63 - t] + s[64 + (t + 1) % 64]

    return kernel


def escape(slip):
    def kernel(o, w, h, most):
        c, r = cuda.grid(2)
        if c < w and (r < h or slip == "rows_unchecked"):
            x, y, n = float32(0), float32(0), 0
            p, q = float32(c) / 16 - float32(1.5), float32(r) / 8 - float32(1)
            while n < most and x * x + y * y < 4:
                x, y = x * x - y * y + p, 2 * x * y + q
                n += 1
            o[r, c] = n

    return kernel


def ring(slip):
    """A producer warp and a consumer warp over a slot in shared memory."""
    def kernel(x, o, n):
        slot, flag = cuda.shared.array(32, int32), cuda.shared.array(1, int32)
        lane, warp = cuda.laneid, cuda.threadIdx.x // 32
        if cuda.threadIdx.x == 0:
            flag[0] = 0
        cuda.syncthreads()
        for k in range(n):
            if warp == 0:
                slot[lane] = x[k * 32 + lane]
            if slip != "no_first_barrier":
                cuda.syncthreads()
            if warp == 1:
                o[k * 32 + lane] = slot[31 - lane]
            if slip != "no_second_barrier":
                cuda.syncthreads()

    return kernel
