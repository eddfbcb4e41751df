# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence
from typing import Any, Optional, Union

def check_gradient(f: Callable[..., Any], inputs: Sequence[Any], d_outputs: Union[Any, Sequence[Any]],
                   gradients: Sequence[Optional[Any]], *, places: int = 64, step: float = 1e-5, tolerance: float = 1e-4,
                   seed: int = 0) -> float: ...
