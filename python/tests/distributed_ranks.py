# SPDX-License-Identifier: Apache-2.0
"""One rank of test_distributed.py: distributed_ranks.py RANK SIZE PORT. Ranks share a GPU where there are fewer."""
import os
import sys

import torch
import torch.distributed

import cgp

rank, size, port = (int(a) for a in sys.argv[1:4])
torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
gpu = rank % torch.cuda.device_count()
torch.cuda.set_device(gpu)
all = cgp.distributed.Communicator(bytes=8 << 20, may_share=torch.cuda.device_count() < size)


def of(rank, *shape, dtype=torch.float32):
    g = torch.Generator(device="cuda").manual_seed(rank + 1)
    return torch.randint(-8, 8, shape, generator=g, device="cuda").to(dtype)


def same(got, want):
    assert torch.equal(got, want), (rank, got, want)


for dtype in (torch.float32, torch.bfloat16):
    for n in (1, 3000, 300_001):
        x, want = of(rank, n, dtype=dtype), sum(of(r, n, dtype=torch.float32) for r in range(size)).to(dtype)
        same(all.all_reduce(x), want)
        same(all.all_reduce(x, out=x), want)
x = of(rank, 4, 6)
same(all.all_gather(x), torch.cat([of(r, 4, 6) for r in range(size)]))
x = of(rank, 5 * size, 3)
same(all.reduce_scatter(x), sum(of(r, 5 * size, 3) for r in range(size))[5 * rank:5 * rank + 5])
same(all.all_to_all(x), torch.cat([of(r, 5 * size, 3)[5 * rank:5 * rank + 5] for r in range(size)]))
same(all.broadcast(of(rank, 7), root=size - 1), of(size - 1, 7))
all.barrier()

graph, x, y = torch.cuda.CUDAGraph(), of(rank, 1000), torch.empty(1000, device="cuda")
all.all_reduce(x, y)
torch.cuda.synchronize()
with torch.cuda.graph(graph):
    all.all_reduce(x, y)
for _ in range(3):
    graph.replay()
same(y, sum(of(r, 1000) for r in range(size)))

bf16 = torch.bfloat16
for m in (1, 6, 40 * size, 41):
    x, w = of(rank, m, 64, dtype=bf16), of(rank, 48, 64, dtype=bf16)
    want = sum(of(r, m, 64) @ of(r, 48, 64).T for r in range(size))
    torch.testing.assert_close(all.linear_all_reduce(x, w).float(), want, rtol=0.02, atol=4)
if torch.cuda.get_device_capability()[0] == 9:
    x, w = of(rank, 40, 64, dtype=bf16), of(rank, 48, 64, dtype=bf16)
    want = torch.cat([of(r, 40, 64) for r in range(size)]) @ w.float().T
    torch.testing.assert_close(all.all_gather_linear(x, w).float(), want, rtol=0.02, atol=4)
    x = of(rank, 40 * size, 64, dtype=bf16)
    want = sum(of(r, 40 * size, 64) @ of(r, 48, 64).T for r in range(size))[40 * rank:40 * rank + 40]
    torch.testing.assert_close(all.linear_reduce_scatter(x, w).float(), want, rtol=0.02, atol=4)

try:
    from transformers import LlamaConfig, LlamaForCausalLM
except ImportError:
    print("no transformers")
else:
    torch.manual_seed(5)
    config = LlamaConfig(vocab_size=320, hidden_size=384 if size == 3 else 256, intermediate_size=768, num_hidden_layers=2, num_attention_heads=12 if size == 3 else 8,
                         num_key_value_heads=3 if size == 3 else 4, max_position_embeddings=256)
    model = LlamaForCausalLM(config).to("cuda", bf16).eval()
    ids = torch.arange(32, device="cuda").view(2, 16) * 7 % 320
    with torch.no_grad():
        want = model(ids).logits.float()
        cgp.distributed.tensor_parallel(model, all)
        got = model(ids).logits.float()
        torch.testing.assert_close(got, want, rtol=0.05, atol=0.03)
        same(all.all_gather(got.flatten()).view(size, -1)[0], got.flatten())  # all ranks have the same bits
        cgp.patch(model)
        torch.testing.assert_close(model(ids).logits.float(), want, rtol=0.05, atol=0.03)
        ids = model.generate(ids, max_new_tokens=8, do_sample=False)
        same(all.all_gather(ids.flatten()).view(size, -1)[0], ids.flatten())
if len(sys.argv) > 4 and rank == 0:  # a rank that dies
    sys.stdout.flush()
    os._exit(3)
if len(sys.argv) > 4:
    all.all_reduce(of(rank, 100))
    torch.cuda.synchronize()
all.close()
try:
    all.barrier()
except cgp.ArgumentError:
    print(f"rank {rank}: right")
