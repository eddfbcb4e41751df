# SPDX-License-Identifier: Apache-2.0
"""`python -m cgp.bench`: every operator, generation and training against PyTorch eager, torch.compile and what else is installed.

Parts: operators, optimizers, adapters, generate, train. Contenders of a row run in turns in one process; times are medians with half the
interquartile range. `python -m cgp.bench --help` lists the options."""
