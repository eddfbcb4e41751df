# SPDX-License-Identifier: Apache-2.0
"""Counterparts of torch.nn."""
from . import functional

__all__ = ["functional"]
