# SPDX-License-Identifier: Apache-2.0
"""cgp.patch(model): Hugging Face models with our kernels inside, and back."""
import functools
import inspect
import sys
import types
import weakref

import torch

from . import _few, _layer, _masks, _whole, ops
from ._decoder import MODELS
from ._options import activation_of
from ._runtime import ArgumentError, Unsupported
from ._torch import FLOATS, version
from .nn import functional

_NAME = _layer.NAME


def _attention(module, query, key, value, attention_mask, scaling=None, dropout=0.0, is_causal=None, softcap=None,
               sliding_window=None, **kwargs):
    """An attention function of transformers: query [batch, heads, n, d] -> ([batch, n, heads, d], None)."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    needs_grad = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    trains = (query.dtype in (torch.float16, torch.bfloat16) and query.shape[-1] <= 128 and
              not getattr(attention_mask, "requires_grad", False))  # others have kernels that are not fast
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    if kwargs.get("s_aux") is not None:
        raise Unsupported(f"{type(module).__name__}: attention sinks (s_aux) are not there: use attn_implementation=\"eager\"")
    use_causal = attention_mask is None and bool(causal) and query.shape[2] > 1
    fits = (_usable(query, key, value) and (trains or not needs_grad) and dropout == 0 and query.shape[-1] <= 256 and
            kwargs.get("position_bias") is None and query.dtype == key.dtype == value.dtype and
            not (use_causal and key.shape[2] < query.shape[2]))
    if not fits and softcap:
        return _capped(query, key, value, attention_mask, use_causal, scaling, softcap, dropout), None
    if not fits:
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling,
                                      is_causal=is_causal, **kwargs)
    mask = attention_mask
    if use_causal and key.shape[2] > query.shape[2]:
        # Without a mask "causal" is PyTorch's: query i sees keys up to i; the rest is room of a static cache.
        key, value = key[:, :, :query.shape[2]], value[:, :, :query.shape[2]]
    if mask is not None:
        mask = mask[..., :key.shape[-2]]
    left = sliding_window if sliding_window and mask is None else 0
    out, _ = ops.attention(query, key, value, use_causal, float(scaling or 0), left, 0, float(softcap or 0), None, mask)
    return out.transpose(1, 2), None


def _capped(query, key, value, mask, causal, scaling, softcap, dropout):
    """Attention with a soft cap where the kernel cannot be used: PyTorch's own has none."""
    groups = query.shape[1] // key.shape[1]
    key, value = (t.repeat_interleave(groups, 1) for t in (key, value))
    scores = query @ key.mT * (query.shape[-1]**-0.5 if scaling is None else scaling)
    scores = softcap * torch.tanh(scores / softcap)
    if causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
    if mask is not None:
        mask = mask[..., :key.shape[-2]]
        scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype is torch.bool else scores + mask
    shares = torch.nn.functional.dropout(scores.softmax(-1, dtype=torch.float32).to(query.dtype), dropout)
    return (shares @ value).transpose(1, 2).contiguous()


def register_attention():
    """Makes attn_implementation="cgp" known to transformers: attention alone, [batch, heads, n, d], of any model that uses its common
    interface, with the masks of its "sdpa". cgp.patch does that by itself.

    >>> cgp.register_attention()
    >>> model = transformers.AutoModelForCausalLM.from_pretrained(..., attn_implementation="cgp")
    """
    from transformers import AttentionInterface
    AttentionInterface.register(_NAME, _attention)
    try:
        from transformers import AttentionMaskInterface
        AttentionMaskInterface.register(_NAME, _masks.mask)
    except ImportError:  # older transformers choose masks by another way
        pass


_held = weakref.WeakKeyDictionary()  # who -> {what: [what it was, what patches made it, ...]}


def _hold(done, who, what, value, before, set_to):
    """Makes something `value` while the patch lasts. Patches of one model may end in any order: the last one that lasts counts,
    and behind all of them is what there was before. Values must not refer to `who`."""
    stack = _held.setdefault(who, {}).setdefault(what, [])
    if not stack:
        stack.append((object(), before))
    entry = (object(), value)
    stack.append(entry)
    set_to(who, value)

    def undo():
        last = stack[-1] is entry
        stack[:] = [e for e in stack if e is not entry]
        if last:
            set_to(who, stack[-1][1])
        if len(stack) == 1:
            _held[who].pop(what)
            if not _held[who]:
                del _held[who]

    done._undo.append(undo)


class Patch:
    """What was changed; `undo()` changes it back, or the end of `with cgp.patch(model):`."""

    def __init__(self):
        self.changes = []
        self._undo = []

    def _add(self, what, undo):
        self.changes.append(what)
        self._undo.append(undo)

    def undo(self):
        while self._undo:
            self._undo.pop()()
        self.changes = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.undo()
        return False

    def __repr__(self):
        return "cgp.patch: " + ("; ".join(self.changes) or "nothing was changed")


def _misaligned_head(model):
    """The linear layer that makes 16-bit logits, if their rows are misaligned (not multiples of 16 bytes); else None."""
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    return head if type(head) is torch.nn.Linear and head.weight.element_size() == 2 and head.out_features % 8 else None


def _linear_forward(self, x):
    return functional.linear(x, self.weight, self.bias)


def _head_forward(self, x):
    """The layer of _misaligned_head() with rows of logits padded to 16 bytes: the products are several times as fast."""
    if x.dim() < 2 or x[..., 0].numel() < 16 or not _usable(x, self.weight) or x.dtype != self.weight.dtype or (
            torch.is_autocast_enabled()):
        return type(self).forward(self, x)
    return ops.matmul(x, self.weight.mT, self.bias, aligned=True)


def _conv1d_forward(self, x):  # GPT-2's linear layer: weight is [k, n]
    if not (x.is_cuda and x.dtype == self.weight.dtype) or torch.is_autocast_enabled():
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(x.size()[:-1] + (self.nf,))
    return ops.matmul(x, self.weight, self.bias)


def _usable(*tensors):
    return all(t is None or (t.is_cuda and t.dtype in FLOATS) for t in tensors)


# ---------------------------------------------------------------- norms
_RMS_NORMS = _layer.RMS_NORMS
_LAYERS = ("LlamaDecoderLayer", "Qwen2DecoderLayer", "Qwen3DecoderLayer", "MistralDecoderLayer")


def _rms_norm_forward(self, hidden_states):
    if not _usable(hidden_states, self.weight):
        return type(self).forward(self, hidden_states)
    return ops.rms_norm(hidden_states, self.weight, self.variance_epsilon)


def _layer_norm_forward(self, input):
    return functional.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


def _fused_layer_forward(self, hidden_states, attention_mask=None, **kwargs):
    """A decoder layer whose addition of the attention's result is part of the second norm."""
    norm = self.post_attention_layernorm
    attended = self.self_attn(hidden_states=self.input_layernorm(hidden_states), attention_mask=attention_mask,
                              **kwargs)[0]
    if _usable(attended, hidden_states, norm.weight):
        normed, hidden_states = ops.rms_norm(attended, norm.weight, norm.variance_epsilon, residual=hidden_states)
    else:
        hidden_states = hidden_states + attended
        normed = norm(hidden_states)
    return hidden_states + self.mlp(normed)


def _layer_forward(few, whole):
    """The same; `few`: of few tokens in inference as few calls; `whole`: in training as one function of autograd."""

    def forward(self, hidden_states, attention_mask=None, **kwargs):
        embeddings, done = kwargs.get("position_embeddings"), None
        if torch.is_grad_enabled():
            if whole:
                done = _layer.llama(self, hidden_states, attention_mask, kwargs, _half_tables, activation_of(self.mlp.act_fn),
                                    _OURS)
        elif few and embeddings is not None and hidden_states.shape[1] <= _few.MAX_ROWS and _usable(hidden_states):
            cos, sin = embeddings
            tables = (*_half_tables(cos, sin), cos.shape[1] if cos.shape[0] == 1 else 0)
            done = _few.llama(self, hidden_states, attention_mask, kwargs.get("past_key_values"), tables, _attention,
                              activation_of(self.mlp.act_fn))
        return _fused_layer_forward(self, hidden_states, attention_mask, **kwargs) if done is None else done

    return forward


def _block_forward(few, whole):
    """GPT-2's block, the same way."""

    def forward(self, hidden_states, past_key_values=None, attention_mask=None, encoder_hidden_states=None, *args, **kwargs):
        done = None
        if encoder_hidden_states is None and not args:
            if torch.is_grad_enabled():
                if whole:
                    done = _layer.gpt2(self, hidden_states, attention_mask, past_key_values, kwargs, activation_of(self.mlp.act),
                                       _OURS)
            elif few:
                done = _few.gpt2(self, hidden_states, attention_mask, past_key_values, _attention, activation_of(self.mlp.act))
        if done is not None:
            return done
        return type(self).forward(self, hidden_states, past_key_values, attention_mask, encoder_hidden_states, *args, **kwargs)

    return forward


def _is_plain_block(module):
    """Whether its arguments and its result are those we know."""
    signature = inspect.signature(type(module).forward)
    return (type(module).__name__ == "GPT2Block" and signature.return_annotation is torch.Tensor and
            list(signature.parameters)[1:5] == ["hidden_states", "past_key_values", "attention_mask", "encoder_hidden_states"])


def _is_plain_layer(module):
    """Whether forward returns the hidden states alone: that is the form we know."""
    return (type(module).__name__ in _LAYERS and inspect.signature(type(module).forward).return_annotation is torch.Tensor and
            type(getattr(module, "post_attention_layernorm", None)).__name__ in _RMS_NORMS)


# ---------------------------------------------------------------- MLP
def _gated_mlp_forward(self, x):
    gate, up = self.gate_proj(x), self.up_proj(x)
    if not _usable(gate, up):
        return self.down_proj(self.act_fn(gate) * up)
    return self.down_proj(ops.gated(gate, up, activation_of(self.act_fn)))


def _activation_forward(self, input):
    if not _usable(input):
        return type(self).forward(self, input)
    return ops.activate(input, activation_of(self))


_OURS = frozenset((_rms_norm_forward, _layer_norm_forward, _gated_mlp_forward, _activation_forward))


# ---------------------------------------------------------------- RoPE
_tables = (None, None, -1, None, None)  # of the last call: all layers of a model give the same cos and sin
recording = None  # what cgp.TrainingStep is recording: tables made meanwhile are of that graph


def _half_tables(cos, sin):
    """float32 [tokens, dim / 2] of cos and sin [batch, n, dim], whose halves are equal."""
    global _tables
    keep = not torch.compiler.is_compiling() and (recording is not None or
                                                  not (cos.is_cuda and torch.cuda.is_current_stream_capturing()))
    if keep and _tables[0] is cos and _tables[1] is sin and _tables[2] == (version(cos), version(sin), recording):
        return _tables[3:]
    half = cos.shape[-1] // 2
    tables = tuple(t[..., :half].float().reshape(-1, half).contiguous() for t in (cos, sin))
    if keep:
        _tables = (cos, sin, (version(cos), version(sin), recording), *tables)
    return tables


def _rotary(original):

    def apply_rotary_pos_emb(q, k, cos, sin, *args, **kwargs):
        unsqueeze_dim = kwargs.get("unsqueeze_dim", args[-1] if args else 1)
        fits = (_usable(q, k, cos, sin) and q.dim() == 4 and k.dim() == 4 and cos.dim() == 3 and unsqueeze_dim in (1, 2) and
                cos.shape == sin.shape and cos.shape[0] in (1, q.shape[0]) and cos.shape[-1] == q.shape[-1] == k.shape[-1] and
                not (cos.requires_grad or sin.requires_grad) and (not args or args == (unsqueeze_dim,) or args == (None,)))
        if not fits:
            return original(q, k, cos, sin, *args, **kwargs)
        table, sequence = _half_tables(cos, sin), cos.shape[1] if cos.shape[0] == 1 else 0
        if unsqueeze_dim == 2:  # [batch, n, heads, dim]
            return tuple(ops.rope(t, *table, sequence=sequence) for t in (q, k))
        return tuple(ops.rope(t.transpose(1, 2), *table, sequence=sequence).transpose(1, 2) for t in (q, k))

    return apply_rotary_pos_emb


_rotary_patches = {}  # module of transformers -> [its own function, patches that want ours]


def _patch_rope(model, done):
    names = {type(m).__module__ for m in model.modules() if type(m).__name__.endswith("Attention")}
    names = [n for n in sorted(names) if n.rpartition(".")[2] in
             ("modeling_llama", "modeling_qwen2", "modeling_qwen3", "modeling_mistral")]
    for name in names:
        source = sys.modules[name]
        if name not in _rotary_patches:
            _rotary_patches[name] = [source.apply_rotary_pos_emb, 0]
            source.apply_rotary_pos_emb = _rotary(source.apply_rotary_pos_emb)
        _rotary_patches[name][1] += 1

        def undo(name=name, source=source):
            _rotary_patches[name][1] -= 1
            if not _rotary_patches[name][1]:
                source.apply_rotary_pos_emb = _rotary_patches.pop(name)[0]
            global _tables
            _tables = (None, None, -1, None, None)

        done._add(f"RoPE of {name.rpartition('.')[2]}", undo)


# ---------------------------------------------------------------- cross-entropy
def _causal_loss(logits, labels, vocab_size, num_items_in_batch=None, ignore_index=-100, shift_labels=None, **kwargs):
    """transformers' loss of causal models, without a float32 copy of the logits."""
    if shift_labels is None:
        shift_labels = torch.nn.functional.pad(labels, (0, 1), value=ignore_index)[..., 1:]
    logits = logits.reshape(-1, vocab_size)
    target = shift_labels.reshape(-1).to(logits.device)
    reduction = "mean" if num_items_in_batch is None else "sum"
    if _usable(logits):
        loss = ops.cross_entropy(logits, target, reduction, ignore_index)
    else:
        loss = torch.nn.functional.cross_entropy(logits.float(), target, ignore_index=ignore_index, reduction=reduction)
    if num_items_in_batch is None:
        return loss
    return loss / (num_items_in_batch.to(loss.device) if torch.is_tensor(num_items_in_batch) else num_items_in_batch)


def _linear_loss(self, args, labels=None, **kwargs):
    """Where there are labels and gradients: the loss straight from the hidden states; the result has no logits. Else None."""
    body = getattr(self, self.base_model_prefix)
    weight, bias = self.lm_head.weight, getattr(self.lm_head, "bias", None)
    fits = (labels is not None and torch.is_grad_enabled() and len(args) < 2 and bias is None and weight.dtype in FLOATS and
            kwargs.get("logits_to_keep", 0) in (0, None) and not torch.is_autocast_enabled() and kwargs.get("return_dict") is not
            False)
    if not fits or not _usable(weight):
        return None
    kwargs.pop("logits_to_keep", None)
    count, shifted = kwargs.pop("num_items_in_batch", None), kwargs.pop("shift_labels", None)
    out = body(*args, **kwargs)
    if shifted is None:
        shifted = torch.nn.functional.pad(labels, (0, 1), value=-100)[..., 1:]
    loss = ops.linear_cross_entropy(out.last_hidden_state, weight, shifted.to(weight.device), "mean" if count is None else "sum")
    if count is not None:
        loss = loss / (count.to(loss.device) if torch.is_tensor(count) else count)
    from transformers.modeling_outputs import CausalLMOutputWithPast
    return CausalLMOutputWithPast(loss=loss, past_key_values=out.past_key_values, hidden_states=out.hidden_states,
                                  attentions=out.attentions)


def _model_forward(kind, few, linear):
    """forward of a model with its last layer: steps of decoding and the loss without logits past the modules."""

    @functools.wraps(kind.forward)  # transformers looks at its arguments
    def forward(self, *args, **kwargs):
        done = _whole.step(self, args, kwargs) if few and not torch.compiler.is_compiling() else None
        if done is None and linear:
            done = _linear_loss(self, args, **kwargs)
        return type(self).forward(self, *args, **kwargs) if done is None else done

    return forward


def _set_loss(model, function):
    if function is None:
        model.__dict__.pop("_loss_function", None)
    else:
        model.loss_function = function


def _set_forward(module, forward):
    if forward is None:
        module.__dict__.pop("forward", None)
    else:
        module.forward = types.MethodType(forward, module) if isinstance(forward, types.FunctionType) else forward


def _replace(model, done, what, forward_of):
    """Gives every module for which forward_of(module) is not None that forward."""
    count = 0
    for module in model.modules():
        forward = forward_of(module)
        if forward is None:
            continue
        # Pickled, a method is the module's attribute of this name: a saved model is its own again when it is loaded.
        forward.__name__ = "forward"
        _hold(done, module, "forward", forward, module.__dict__.get("forward"), _set_forward)
        count += 1
    if count:
        done.changes.append(f"{count} {what}")


def patch(model, *, attention=True, norms=True, mlp=True, rope=True, loss=True, linear=False, few=True, layers=True):
    """Puts our kernels into a Hugging Face model (GPT-2, Llama, Qwen2/3, Mistral; attention alone into others that use the
    common attention interface). Returns a Patch: `print` it, `undo()` it. What a kernel cannot do (tensors on the CPU, dropout
    inside attention) goes on as before.

    attention: the model's attention becomes "cgp". norms: RMSNorm and LayerNorm, in Llama's kind of layer with the addition
    before the second one. mlp: activations, gated ones with their product. rope: apply_rotary_pos_emb of the model's module in
    transformers, for all models of that kind while the patch lasts. loss: cross-entropy without a float32 copy of the logits,
    whose rows are put to multiples of 16 bytes where they have 16 bits and would not begin there (GPT-2's 50257; logits are then not
    contiguous); "linear": in training straight from the hidden states, without any logits (the result has none).
    linear: layers nn.Linear and GPT-2's Conv1D use cgp.ops.matmul. few: in inference, layers of up to 8 tokens (decoding) are
    a few calls, linear layers among them, and behind a DynamicCache the whole model is one list of calls, after which the cache's
    tensors are the first part of memory with room behind it; hooks, other modules, hidden states that are asked for make a step go
    layer by layer, hooks inside a layer and norms of q and k the usual way, and GPT-2 keeps transposed copies of its linear
    layers. layers: in training, layers of half precision are one
    function of autograd each (no dropout, no cache, heads of up to 128; hooks and other modules as above); a layer of which a
    part asks for something else goes the usual way.

    >>> done = cgp.patch(model)
    >>> done
    cgp.patch: attention: sdpa -> cgp; 5 RMSNorm; 2 layers with a fused addition; 2 gated MLPs; RoPE of modeling_llama; cross-entropy; steps of decoding
    >>> done.undo()                             # or: with cgp.patch(model): ...

    A model may be patched again; each patch ends by itself. A copy of a patched model is patched as that was. What is saved
    (torch.save, pickle) is the model without the patch, but for its choice of attention, loss and masks.
    """
    if not isinstance(model, torch.nn.Module):
        raise ArgumentError(f"patch: model must be a torch.nn.Module, not {type(model).__name__}")
    if attention and not hasattr(model, "set_attn_implementation"):
        raise ArgumentError(f"patch: model must be a model of transformers for attention=True; {type(model).__name__} is none")
    done = Patch()
    if attention:
        register_attention()
        before = model.config._attn_implementation
        _hold(done, model, "attention", _NAME, before, lambda model, name: model.set_attn_implementation(name))
        done.changes.append(f"attention: {before} -> {_NAME}")
        _masks.patch(model, done)
    whole_layer, whole_block = _layer_forward(few, layers), _block_forward(few, layers)
    if norms:
        _replace(model, done, "RMSNorm", lambda m: _rms_norm_forward if type(m).__name__ in _RMS_NORMS else None)
        _replace(model, done, "LayerNorm", lambda m: _layer_norm_forward if type(m) is torch.nn.LayerNorm else None)
        _replace(model, done, "layers with a fused addition", lambda m: (
            whole_layer if attention else _fused_layer_forward) if _is_plain_layer(m) else None)
    if mlp:
        parts = ("gate_proj", "up_proj", "down_proj", "act_fn")
        _replace(model, done, "gated MLPs", lambda m: _gated_mlp_forward if type(m).__name__ in
                 _layer.MLPS and all(hasattr(m, p) for p in parts) and activation_of(
                     m.act_fn) else None)
        mlps = {id(m.act) for m in model.modules() if type(m).__name__ == "GPT2MLP"}
        _replace(model, done, "activations", lambda m: _activation_forward if id(m) in mlps and activation_of(m) else None)
    if rope:
        _patch_rope(model, done)
    causal = hasattr(type(model), "loss_function") and type(model).__name__.endswith(("ForCausalLM", "LMHeadModel"))
    head = _misaligned_head(model) if loss else None
    if loss and causal:
        _hold(done, model, "loss", _causal_loss, model.__dict__.get("_loss_function"), _set_loss)
        done.changes.append("cross-entropy")
    _replace(model, done, "last linear layer", lambda m: _head_forward if m is head else None)
    if (few or layers) and attention:
        _replace(model, done, "whole blocks", lambda m: whole_block if _is_plain_block(m) else None)
        done._undo.append(lambda: (_few.forget(model), _layer.forget(model), _whole.forget(model)))
    steps = few and attention and norms and mlp and type(model).__name__ in MODELS
    linear_loss = loss == "linear" and causal
    if steps or linear_loss:
        whole = _model_forward(type(model), steps, linear_loss)
        _hold(done, model, "forward", whole, model.__dict__.get("forward"), _set_forward)
        done.changes += ["steps of decoding"] * steps + ["linear layer with its loss"] * linear_loss
    if linear:
        kinds = {"Linear": _linear_forward, "Conv1D": _conv1d_forward}
        _replace(model, done, "linear layers", lambda m: None if m is head else kinds.get(type(m).__name__))
    return done


if "transformers" in sys.modules:  # a model that was saved while it was patched asks for it when it is loaded
    register_attention()
