# SPDX-License-Identifier: Apache-2.0
"""GPU kernels without a toolchain, for PyTorch tensors and NumPy arrays.

Importing needs neither PyTorch nor a GPU. Functions of this module take CUDA tensors of PyTorch, and run on the
caller's current stream, or NumPy arrays, and run on the emulator (or the device that `set_numpy_device` names):

>>> import numpy as np, cgp
>>> x = np.ones((2, 4), np.float32)
>>> cgp.softmax(x)[0]
array([0.25, 0.25, 0.25, 0.25], dtype=float32)

With PyTorch installed, `cgp.ops` are operators that work under autograd, `torch.compile` and CUDA graphs,
`cgp.nn.functional` has drop-ins for functions of `torch.nn.functional`, `cgp.optim` optimizers, `cgp.patch(model)` puts them into a
Hugging Face model, and `cgp.distributed` shares one out to several GPUs.
"""
from importlib.util import find_spec

from ._runtime import (ArgumentError, Device, DriverError, EmulatorFault, Error, Unsupported, __version__, device,
                       set_numpy_device, set_torch_cpu_device)
from ._functions import (activate, add, argmax, attention, cross_entropy, cumsum, dropout, embedding, gated, layer_norm,
                         layer_norm_backward, log_softmax, matmul, max, rms_norm, rms_norm_backward, rope, softmax, sum, swiglu,
                         topk, transpose)
from ._cache import PagedKVCache, PagedSteps
from ._kernel import Kernel, Module, TensorMap, kernel, load_ptx, torch_op
from ._llm import LLM, Completion
from ._optimizer import optimizer_step
from ._quantized import GgufFile, QuantizedTensor, grouped_matmul
from ._score import score_formula

__all__ = [
    "ArgumentError", "Completion", "Device", "DriverError", "EmulatorFault", "Error", "GgufFile", "Kernel", "LLM", "Module",
    "PagedKVCache", "PagedSteps", "QuantizedTensor", "TensorMap", "Unsupported", "activate", "add", "argmax", "attention",
    "cross_entropy", "cumsum", "device", "dropout", "embedding", "gated", "grouped_matmul", "kernel", "layer_norm", "layer_norm_backward",
    "load_ptx", "log_softmax", "matmul", "max", "optimizer_step", "rms_norm", "rms_norm_backward", "rope", "score_formula", "set_numpy_device",
    "set_torch_cpu_device", "softmax", "sum", "swiglu", "topk", "torch_op", "transpose", "__version__"
]
if find_spec("torch"):
    __all__ += ["Decoder", "LoRA", "Patch", "TrainingStep", "distributed", "generate", "lora", "nn", "ops", "optim", "patch", "quantize", "register_attention"]


def __getattr__(name):  # what needs PyTorch is imported when it is asked for
    import importlib
    if name in ("distributed", "ops", "nn", "optim", "testing"):
        return importlib.import_module("." + name, __name__)
    if name in ("patch", "Patch", "register_attention"):
        return getattr(importlib.import_module("._patch", __name__), name)
    if name == "quantize":
        return importlib.import_module("._quantized_linear", __name__).quantize
    if name in ("LoRA", "lora"):
        return getattr(importlib.import_module("._lora", __name__), name)
    if name == "TrainingStep":
        return importlib.import_module("._step", __name__).TrainingStep
    if name in ("Decoder", "generate"):
        return getattr(importlib.import_module("._decoder", __name__), name)
    raise AttributeError(f"module 'cgp' has no attribute {name!r}")
