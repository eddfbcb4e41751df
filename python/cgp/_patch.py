# SPDX-License-Identifier: Apache-2.0
"""cgp.patch(model): Hugging Face models with our kernels inside, and back."""
import torch

from . import ops
from .nn import functional

_NAME = "cgp"


def _attention(module, query, key, value, attention_mask, scaling=None, dropout=0.0, is_causal=None, softcap=None,
               sliding_window=None, **kwargs):
    """An attention function of transformers: query [batch, heads, n, d] -> ([batch, n, heads, d], None)."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    needs_grad = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    fits = (query.is_cuda and query.dtype in (torch.float16, torch.bfloat16, torch.float32) and not needs_grad and
            dropout == 0 and query.shape[-1] <= 256)
    if not fits:
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling,
                                      is_causal=is_causal, **kwargs)
    mask, use_causal = attention_mask, False
    if mask is None:
        use_causal = bool(causal) and query.shape[2] > 1
    else:
        mask = mask[..., :key.shape[-2]]
    left = sliding_window if sliding_window and mask is None else 0
    out, _ = ops.attention(query, key, value, use_causal, float(scaling or 0), left, 0, float(softcap or 0), None, mask)
    return out.transpose(1, 2), None


def register():
    """Makes `attn_implementation="cgp"` known to transformers (with the masks of its "sdpa")."""
    from transformers import AttentionInterface
    AttentionInterface.register(_NAME, _attention)
    try:
        from transformers import AttentionMaskInterface
        from transformers.masking_utils import sdpa_mask
        AttentionMaskInterface.register(_NAME, sdpa_mask)
    except ImportError:  # older transformers choose masks by another way
        pass


class Patch:
    """What was changed; `undo()` changes it back."""

    def __init__(self):
        self.changes = []
        self._undo = []

    def add(self, what, undo):
        self.changes.append(what)
        self._undo.append(undo)

    def undo(self):
        while self._undo:
            self._undo.pop()()
        self.changes = []

    def __repr__(self):
        return "cgp.patch: " + ("; ".join(self.changes) or "nothing was changed")


def _linear_forward(self, x):
    return functional.linear(x, self.weight, self.bias)


def _conv1d_forward(self, x):  # GPT-2's linear layer: weight is [k, n]
    if not (x.is_cuda and x.dtype == self.weight.dtype):
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(x.size()[:-1] + (self.nf,))
    return ops.matmul(x, self.weight, self.bias)


def patch(model, *, attention=True, linear=False):
    """Puts our kernels into a Hugging Face model (GPT-2, Llama, Qwen2/3, Mistral and others that use the common attention
    interface). Returns a Patch: `print` it, `undo()` it.

    attention: the model's attention becomes "cgp". linear: layers nn.Linear and GPT-2's Conv1D use cgp.ops.matmul.
    """
    import types
    done = Patch()
    if attention:
        register()
        before = model.config._attn_implementation
        model.set_attn_implementation(_NAME)
        done.add(f"attention: {before} -> {_NAME}", lambda: model.set_attn_implementation(before))
    if linear:
        count = 0
        for module in model.modules():
            kind = type(module).__name__
            if kind not in ("Linear", "Conv1D"):
                continue
            module.forward = types.MethodType(_linear_forward if kind == "Linear" else _conv1d_forward, module)
            count += 1
            done._undo.append(lambda module=module: module.__dict__.pop("forward", None))
        done.changes.append(f"{count} linear layers")
    return done
