# SPDX-License-Identifier: Apache-2.0
"""Models of transformers from configurations, with random weights: nothing is loaded."""
import torch

from ._shapes import MODELS


def make(name, layers=0, **changes):
    import transformers
    kind, arguments = MODELS[name]
    arguments = {**arguments, **changes}
    if layers:
        arguments["n_layer" if name == "gpt2" else "num_hidden_layers"] = layers
    config = getattr(transformers, kind)(**arguments)
    before = torch.get_default_dtype()
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            model = transformers.AutoModelForCausalLM.from_config(config)
    finally:
        torch.set_default_dtype(before)
    return model.cuda().eval()
