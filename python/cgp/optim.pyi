# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable
from typing import Any, Callable, Optional, Union

import torch
from torch import Tensor

class _Optimizer(torch.optim.Optimizer):
    generation: int
    @property
    def norm(self) -> Optional[Tensor]: ...
    def write_groups(self) -> None: ...
    def rehearse(self) -> None: ...
    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any: ...

class Adam(_Optimizer):
    def __init__(self, params: Iterable[Any], lr: Union[float, Tensor] = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0.0, amsgrad: bool = False, *, maximize: bool = False, capturable: bool = False,
                 max_norm: float = 0.0, master: bool = False, stochastic: bool = False, seed: int = 0) -> None: ...

class AdamW(Adam):
    def __init__(self, params: Iterable[Any], lr: Union[float, Tensor] = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False, capturable: bool = False,
                 max_norm: float = 0.0, master: bool = False, stochastic: bool = False, seed: int = 0) -> None: ...

class Adam8bit(Adam):
    least: int

class AdamW8bit(AdamW):
    least: int

class SGD(_Optimizer):
    def __init__(self, params: Iterable[Any], lr: Union[float, Tensor] = 1e-3, momentum: float = 0.0, dampening: float = 0.0,
                 weight_decay: float = 0.0, nesterov: bool = False, *, maximize: bool = False, max_norm: float = 0.0,
                 master: bool = False, stochastic: bool = False, seed: int = 0) -> None: ...

class Lion(_Optimizer):
    def __init__(self, params: Iterable[Any], lr: Union[float, Tensor] = 1e-4, betas: tuple[float, float] = (0.9, 0.99),
                 weight_decay: float = 0.0, *, maximize: bool = False, max_norm: float = 0.0, master: bool = False,
                 stochastic: bool = False, seed: int = 0) -> None: ...

class Muon(torch.optim.Optimizer):
    def __init__(self, params: Iterable[Any], lr: Union[float, Tensor] = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95,
                 nesterov: bool = True, ns_coefficients: tuple[float, float, float] = ..., eps: float = 1e-7, ns_steps: int = 5,
                 adjust_lr_fn: Optional[str] = None) -> None: ...
    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any: ...

def orthogonal(matrix: Tensor, coefficients: tuple[float, float, float] = ..., steps: int = 5, eps: float = 1e-7) -> Tensor: ...

class GradScaler(torch.amp.GradScaler): ...

def clip_grad_norm_(parameters: Union[Tensor, Iterable[Tensor]], max_norm: float, norm_type: float = 2.0,
                    error_if_nonfinite: bool = False, foreach: Optional[bool] = None) -> Tensor: ...
