# SPDX-License-Identifier: Apache-2.0
"""Steps of a small model in PyTorch, for `cgp profile python -- torch_step.py 50`. Prints the time of the loop."""
import sys
import time

import torch

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 50
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024),
                            torch.nn.LayerNorm(1024)).to(device, torch.bfloat16)
x = torch.randn(512, 1024, device=device, dtype=torch.bfloat16)
optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(steps + 3):
    if step == 3:
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
    loss = (model(x).float() ** 2).mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
if device == "cuda":
    torch.cuda.synchronize()
print(f"loop {1e3 * (time.perf_counter() - start):.3f} ms, loss {float(loss):.4f}")
