# SPDX-License-Identifier: Apache-2.0
"""cgp.distributed in processes of their own. On a machine with GPUs; ranks share one where there are fewer than ranks."""
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU: memory cannot be shared between processes", allow_module_level=True)
RANKS = Path(__file__).with_name("distributed_ranks.py")


def run(size, *more):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    started = [
        subprocess.Popen([sys.executable, str(RANKS), str(r), str(size), str(port), *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         text=True, env=os.environ) for r in range(size)
    ]
    return [(p.returncode, out + err) for p in started for out, err in [p.communicate(timeout=150)]]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_ranks_agree(size):
    for rank, (code, said) in enumerate(run(size)):
        assert code == 0 and f"rank {rank}: right" in said, said


def test_a_rank_that_dies_is_named():
    (first, _), (second, said) = run(2, "die")
    assert first == 3
    assert second == 70 and "rank 0" in said, said
