# SPDX-License-Identifier: Apache-2.0
"""Greedy decoding of Hugging Face models (GPT-2, Llama, Qwen2/3, Mistral) with a paged cache, few launches and a CUDA graph.

A step of one token a sequence is a fixed list of calls of the C interface on buffers that stay where they are: six launches a
layer for up to eight sequences, each begun while the one before it ends. What changes from step to step (tokens, lengths) is
on the device, so that the list can be replayed as one CUDA graph."""
import weakref

import torch

from . import _core, _torch
from ._few import LAYER as _LAYER
from ._few import MAX_ROWS as _MAX_ROWS
from ._few import RMS as _RMS
from ._few import linear_calls
from ._options import ACTIVATIONS, activation_of
from ._quantized import QuantizedTensor
from ._runtime import ArgumentError, Unsupported

_PAGE = 64
_LLAMAS = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "MistralForCausalLM")
MODELS = ("GPT2LMHeadModel", *_LLAMAS)


class _Linear:
    """Weights [n, k] whose results lie one after another, and their biases."""

    def __init__(self, weights, biases=None, gated=False, activation=0):
        self.weights, self.gated, self.activation = list(weights), gated, activation
        if any(isinstance(w, QuantizedTensor) for w in self.weights):
            raise Unsupported("cgp.Decoder: weights are float16 or bfloat16, these are quantised: use model.generate()")
        self.biases = list(biases) if biases and biases[0] is not None else [None] * len(self.weights)
        self.columns = sum(w.shape[0] for w in self.weights) // (2 if gated else 1)


class _Layer:
    __slots__ = ("norm1", "qkv", "q_norm", "k_norm", "out", "norm2", "wide", "back")


class _Shape:
    """What a step needs to know of a model."""

    def __init__(self, model):
        kind = type(model).__name__
        if kind in _LLAMAS:
            self._llama(model)
        elif kind == "GPT2LMHeadModel":
            self._gpt2(model)
        else:
            raise Unsupported(f"cgp.Decoder knows {', '.join(MODELS)}, not {kind}")
        self.vocab = self.head.weights[0].shape[0]
        dtypes = {p.dtype for p in model.parameters()}
        if dtypes not in ({torch.float16}, {torch.bfloat16}):
            raise Unsupported(f"cgp.Decoder: parameters must all be float16, or all bfloat16; there are {sorted(map(str, dtypes))}")

    def _llama(self, model):
        config, body = model.config, model.model
        self.rotary = body.rotary_emb
        kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
        windowed = kinds != {"full_attention"} or (type(model).__name__ == "MistralForCausalLM" and
                                                   getattr(config, "sliding_window", None))
        self.most = getattr(config, "sliding_window", None) if windowed else None
        if getattr(self.rotary, "rope_type", "default") in ("dynamic", "longrope"):
            raise Unsupported("cgp.Decoder: RoPE whose frequencies depend on the length")
        if model.lm_head.bias is not None:
            raise Unsupported("cgp.Decoder: an lm_head with a bias")
        self.norm, self.eps = _RMS, config.rms_norm_eps
        self.tokens, self.positions = body.embed_tokens.weight, None
        self.layers = []
        for layer in body.layers:
            a, m, s = layer.self_attn, layer.mlp, _Layer()
            activation = activation_of(m.act_fn)
            if activation is None:
                raise Unsupported(f"cgp.Decoder: the activation {type(m.act_fn).__name__}")
            s.norm1, s.norm2 = (layer.input_layernorm.weight, None), (layer.post_attention_layernorm.weight, None)
            if type(a.o_proj).__name__ == "RowParallelLinear":
                raise Unsupported("cgp.Decoder: a model shared out by cgp.distributed.tensor_parallel")
            projections = (a.q_proj, a.k_proj, a.v_proj)
            s.qkv = _Linear([p.weight for p in projections], [p.bias for p in projections])
            s.q_norm, s.k_norm = (getattr(getattr(a, n, None), "weight", None) for n in ("q_norm", "k_norm"))
            s.out = _Linear([a.o_proj.weight], [a.o_proj.bias])
            s.wide = _Linear([m.gate_proj.weight, m.up_proj.weight], [m.gate_proj.bias, m.up_proj.bias], True,
                             ACTIVATIONS[activation])
            s.back = _Linear([m.down_proj.weight], [m.down_proj.bias])
            self.layers.append(s)
        self.d, self.scale = a.head_dim, float(a.scaling)
        self.heads, self.heads_kv = a.q_proj.weight.shape[0] // self.d, a.k_proj.weight.shape[0] // self.d
        self.last_norm, self.head = (body.norm.weight, None), _Linear([model.lm_head.weight])

    def _gpt2(self, model):
        config, body = model.config, model.transformer
        if config.scale_attn_by_inverse_layer_idx or not config.scale_attn_weights or config.add_cross_attention:
            raise Unsupported("cgp.Decoder: GPT-2 with other scores than q k / sqrt(d), or cross attention")
        self.rotary, self.most = None, body.wpe.weight.shape[0]
        self.norm, self.eps = _LAYER, config.layer_norm_epsilon
        self.tokens, self.positions = body.wte.weight, body.wpe.weight

        def linear(module, activation=0):  # weights are [k, n] there: a copy
            return _Linear([module.weight.detach().t().contiguous()], [module.bias], activation=activation)

        self.layers = []
        for block in body.h:
            s, activation = _Layer(), activation_of(block.mlp.act)
            if activation is None:
                raise Unsupported(f"cgp.Decoder: the activation {type(block.mlp.act).__name__}")
            s.norm1, s.norm2 = (block.ln_1.weight, block.ln_1.bias), (block.ln_2.weight, block.ln_2.bias)
            s.qkv, s.q_norm, s.k_norm = linear(block.attn.c_attn), None, None
            s.out, s.back = linear(block.attn.c_proj), linear(block.mlp.c_proj)
            s.wide = linear(block.mlp.c_fc, ACTIVATIONS[activation])
            self.layers.append(s)
        self.heads = self.heads_kv = config.n_head
        self.d = config.n_embd // config.n_head
        self.scale = self.d**-0.5
        self.last_norm, self.head = (body.ln_f.weight, body.ln_f.bias), _Linear([model.lm_head.weight])


def _state_of(model):
    """What the calls of a step hold on to: addresses, and for copies what they were made of."""
    copied = type(model).__name__ == "GPT2LMHeadModel"
    return tuple((p.data_ptr(), _torch.version(p) if copied else 0) for p in model.parameters())


class Decoder:
    """A model's decoding of `batch` sequences of up to `capacity` tokens.

    Parameters are used where they are (GPT-2's linear layers, stored the other way round, are copied); after they were
    replaced or, with GPT-2, changed, the next `prefill` starts afresh. Memory: 2 * layers * batch * capacity * heads_kv * d
    elements for the cache, the logits of a step, and with graph=True what PyTorch keeps for a CUDA graph.

    graph: steps are captured as a CUDA graph at the first one, and replayed.

    >>> decoder = cgp.Decoder(model, batch=1, capacity=1024)
    >>> tokens = decoder.generate(ids, max_new_tokens=128)
    """

    def __init__(self, model, batch, capacity, graph=True):
        if batch < 1 or capacity < 1:
            raise ArgumentError(f"cgp.Decoder: batch = {batch} and capacity = {capacity} must be at least 1")
        self._model = weakref.ref(model)
        self.batch, self.capacity, self._use_graph = batch, -(-capacity // _PAGE) * _PAGE, graph
        self._build()

    # ------------------------------------------------------------ buffers and the list of calls
    def _build(self):
        model = self._model()
        if model is None:
            raise ArgumentError("cgp.Decoder: its model is gone")
        s = self._shape = _Shape(model)
        if s.d % 64 or s.d > 256:
            raise Unsupported(f"cgp.Decoder: heads of {s.d} elements; multiples of 64 up to 256 are possible")
        if s.most and self.capacity > -(-s.most // _PAGE) * _PAGE:
            raise Unsupported(f"cgp.Decoder: capacity = {self.capacity} is above the model's window or positions, {s.most}")
        self._made_for, self._graph = _state_of(model), None
        like, m = s.tokens, self.batch
        device, columns = like.device, self.capacity // _PAGE

        def new(*shape, dtype=like.dtype):
            return torch.zeros(shape, dtype=dtype, device=device)

        width = s.tokens.shape[1]
        self._tokens, self._state = new(m, dtype=torch.int64), new(2, m, dtype=torch.int32)
        self._table = torch.arange(m * columns, dtype=torch.int32, device=device).view(m, columns)
        self._wrong = new(1, dtype=torch.int32)
        self._pools = new(len(s.layers), m * columns, 2, s.heads_kv, _PAGE, s.d)
        self._x, self._qkv = new(m, width), new(m, s.layers[0].qkv.columns)
        self._attended, self._wide = new(m, s.heads * s.d), new(m, max(l.wide.columns for l in s.layers))
        self._normed = new(m, width)
        self._pair = [new(m, s.layers[0].wide.columns) for _ in range(2)] if m > _MAX_ROWS and s.layers[0].wide.gated else None
        self._embedded = [new(m, width) for _ in range(2)] if s.positions is not None else None
        self.logits = new(m, s.vocab)
        self._cos = self._sin = None
        if s.rotary is not None:
            places = torch.arange(self.capacity, device=device)[None]
            cos, sin = s.rotary(like[:1, :1].detach(), places)
            self._cos, self._sin = (t[0, :, :s.d // 2].float().contiguous() for t in (cos, sin))
            if self._cos.shape[1] * 2 != s.d:
                raise Unsupported("cgp.Decoder: RoPE of a part of each head")
        heads = self._qkv.view(m, 1, s.heads + 2 * s.heads_kv, s.d)
        self._q = heads[:, :, :s.heads].transpose(1, 2)
        self._o = self._attended.view(m, 1, s.heads, s.d).transpose(1, 2)
        size = _torch.queue(_core.paged_attention_workspace, like, self._q, self._pools[0], self._table, s.scale, True,
                            self.capacity, None, 0)
        self._workspace = new((size + 3) // 4, dtype=torch.int32)
        self._step_calls = self._prepared(self._step_list(heads))
        self._head_calls = self._prepared(self._head_list())

    def _step_list(self, heads):
        s, lengths, positions = self._shape, self._state[0], self._state[1]
        calls = []
        if s.positions is None:
            calls.append((_core.embedding, (self._tokens, s.tokens, None, self._x)))
        else:
            calls.append((_core.embedding, (self._tokens, s.tokens, None, self._embedded[0])))
            calls.append((_core.embedding, (positions, s.positions, None, self._embedded[1])))
            calls.append((_core.add, (*self._embedded, self._x)))
        for layer, pool in zip(s.layers, self._pools):
            calls += self._linear(self._x, layer.qkv, self._qkv, norm=layer.norm1)
            calls.append((_core.qkv_append, (heads, self._cos, self._sin, layer.q_norm, layer.k_norm, lengths, 0, s.eps, True,
                                             self._table, self._wrong, pool)))
            calls.append((_core.paged_attention, (self._q, pool, self._table, lengths, s.scale, True, self.capacity,
                                                  self._workspace, self._wrong, self._o, None, 0, None)))
            calls += self._linear(self._attended, layer.out, self._x, residual=self._x)
            wide = self._wide[:, :layer.wide.columns]
            calls += self._linear(self._x, layer.wide, wide, norm=layer.norm2)
            calls += self._linear(wide, layer.back, self._x, residual=self._x)
        return calls + self._head_list()

    def _head_list(self):
        return self._linear(self._x, self._shape.head, self.logits, norm=self._shape.last_norm) + [
            (_core.argmax, (self.logits, self._tokens, None))]

    def _linear(self, x, linear, y, norm=None, residual=None):
        s, calls = self._shape, []
        if self.batch <= _MAX_ROWS:
            return linear_calls(x, linear.weights, linear.biases, y, norm=norm, kind=s.norm, eps=s.eps, residual=residual,
                                activation=linear.activation, gated=linear.gated, pdl=True, normed=self._normed)
        if norm:
            calls.append((_core.norm, (s.norm == _LAYER, x, self._normed, None, *norm, None, None, None, s.eps, 0.0)))
            x = self._normed

        def product(w, b, to, activation=0):
            in_place = residual is not None and b is None and not activation
            return (_core.gemm, (x, w.mT, to, 1.0, 1.0 if in_place else 0.0, 0, activation, 0, 0, b,
                                 None if in_place else residual, None, None, False))

        if linear.gated:
            calls += [product(w, b, to) for w, b, to in zip(linear.weights, linear.biases, self._pair)]
            return calls + [(_core.gated, (linear.activation, *self._pair, y))]
        first = 0
        for w, b in zip(linear.weights, linear.biases):
            calls.append(product(w, b, y[:, first:first + w.shape[0]], linear.activation))
            first += w.shape[0]
        return calls

    def _prepared(self, calls):
        """Tensors as the C interface takes them; the tensors themselves are held by this object and the model."""
        if not self._x.is_cuda:
            return calls
        return tuple((f, tuple(_torch.describe(a) if isinstance(a, torch.Tensor) else a for a in arguments))
                     for f, arguments in calls)

    def _run(self, calls):
        if self._x.is_cuda:
            return _torch.run(calls, self._x.get_device())
        for f, arguments in calls:
            _torch.queue(f, self._x, *arguments)

    # ------------------------------------------------------------ prompts
    @torch.no_grad()
    def prefill(self, ids, attention_mask=None):
        """Reads the prompts: ids [batch, n]; attention_mask [batch, n]: 0 for padding, on either side. Forgets what was there.
        -> logits of the first new token, [batch, vocab], valid until the next call."""
        model = self._model()
        if model is None or _state_of(model) != self._made_for:
            self._build()
        s = self._shape
        if ids.dim() != 2 or ids.shape[0] != self.batch:
            raise ArgumentError(f"cgp.Decoder: ids must be [{self.batch}, n]; they are {list(ids.shape)}")
        b, n = ids.shape
        if not 0 < n <= self.capacity:
            raise ArgumentError(f"cgp.Decoder: prompts of {n} tokens; 1 to {self.capacity} are possible")
        ids = ids.to(self._tokens.device)
        if attention_mask is not None:
            _torch.expect_like("cgp.Decoder", "attention_mask", attention_mask, ids.shape, "ids")
            keep = attention_mask.to(ids.device) != 0
            lengths = keep.sum(1)
            # Tokens that count come first, in their order: what follows them is never read.
            ids = ids.gather(1, (~keep).to(torch.int8).argsort(dim=1, stable=True))
        else:
            lengths = torch.full((b,), n, dtype=torch.int64, device=ids.device)
        x, pending = self._prefill_layers(ids)
        rows = (lengths - 1).clamp(min=0) + torch.arange(b, device=ids.device) * n
        self._x.copy_(x.index_select(0, rows) + pending.index_select(0, rows))
        self._state[0].copy_(lengths), self._state[1].copy_(lengths - 1)
        self._longest = n
        self._run(self._head_calls)
        return self.logits

    def _prefill_layers(self, ids):
        """The residual stream [tokens, width] and what the last MLP adds to it."""
        s, (b, n) = self._shape, ids.shape
        queue, tokens = _torch.queue, b * n

        def new(columns):
            return torch.empty((tokens, columns), dtype=s.tokens.dtype, device=s.tokens.device)

        def linear(x, l):
            if l.gated:
                pair = [linear(x, _Linear([w], [c])) for w, c in zip(l.weights, l.biases)]
                queue(_core.gated, x, l.activation, *pair, pair[0])
                return pair[0]
            y, first = new(l.columns), 0
            for w, c in zip(l.weights, l.biases):
                queue(_core.gemm, x, x, w.mT, y[:, first:first + w.shape[0]], 1.0, 0.0, 0, l.activation, 0, 0, c, None, None, None,
                      False)
                first += w.shape[0]
            return y

        def norm(x, residual, parameters):
            y, h = torch.empty_like(x), x if residual is None else torch.empty_like(x)
            queue(_core.norm, x, s.norm == _LAYER, x, y, residual, *parameters, None if residual is None else h, None, None,
                  s.eps, 0.0)
            return y, h

        x = torch.nn.functional.embedding(ids, s.tokens).view(tokens, -1)
        if s.positions is not None:
            x = (x.view(b, n, -1) + s.positions[:n]).view(tokens, -1)
        pending = None
        for layer, pool in zip(s.layers, self._pools):
            y, x = norm(x, None, layer.norm1) if pending is None else norm(pending, x, layer.norm1)
            qkv = linear(y, layer.qkv).view(b, n, -1, s.d)
            queue(_core.qkv_append, x, qkv, self._cos, self._sin, layer.q_norm, layer.k_norm, None, 0, s.eps, False, self._table,
                  self._wrong, pool)
            q, k, v = qkv.transpose(1, 2).split((s.heads, s.heads_kv, s.heads_kv), 1)
            o = new(s.heads * s.d)
            queue(_core.attention, x, q, k, v, o.view(b, n, s.heads, s.d).transpose(1, 2), None, s.scale, 1, 0, 0, 0.0, None,
                  None, None, None, None)
            y, x = norm(linear(o, layer.out), x, layer.norm2)
            pending = linear(linear(y, layer.wide), layer.back)
        return x, pending

    # ------------------------------------------------------------ steps
    def _one(self):
        self._state.add_(1)
        self._run(self._step_calls)

    def _capture(self):
        """The step as a CUDA graph. A step outside of it loads the kernels; what it changes is put back."""
        kept = self._tokens.clone(), self._state.clone(), self._x.clone()
        stream = torch.cuda.Stream(self._x.device)
        stream.wait_stream(torch.cuda.current_stream(self._x.device))
        with torch.cuda.stream(stream):
            self._one()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            self._one()
        self._tokens.copy_(kept[0]), self._state.copy_(kept[1]), self._x.copy_(kept[2])
        self._graph = graph

    @torch.no_grad()
    def step(self, tokens=None):
        """One token more: `tokens` [batch], or the best of the logits before. -> logits of the next one, [batch, vocab], valid
        until the next call; `next_tokens` are their best."""
        if self._longest >= self.capacity:
            raise ArgumentError(f"cgp.Decoder: {self.capacity} tokens are there, which is the capacity")
        if tokens is not None:
            _torch.expect_like("cgp.Decoder", "tokens", tokens, (self.batch,), "the batch")
            self._tokens.copy_(tokens)
        if self._use_graph and self._x.is_cuda:
            if self._graph is None:
                self._capture()
            self._graph.replay()
        else:
            self._one()
        self._longest += 1
        return self.logits

    _longest = 0

    @property
    def next_tokens(self):
        """int64 [batch]: the best token of the last logits; valid until the next call."""
        return self._tokens

    @torch.no_grad()
    def generate(self, ids, attention_mask=None, max_new_tokens=20, eos_token_id=None, pad_token_id=None):
        """Greedy decoding: ids [batch, n] -> [batch, n + new]. It ends when every sequence has had one of eos_token_id (a
        number or a list), behind which stands pad_token_id (else the first eos_token_id)."""
        if ids.shape[-1] + max_new_tokens > self.capacity + 1:
            raise ArgumentError(f"cgp.Decoder: {ids.shape[-1]} + {max_new_tokens} tokens; the capacity is {self.capacity}")
        if max_new_tokens < 1:
            return ids
        self.prefill(ids, attention_mask)
        out = torch.empty((self.batch, max_new_tokens), dtype=torch.int64, device=self._tokens.device)
        out[:, 0] = self._tokens
        ends = None
        if eos_token_id is not None:
            ends = torch.as_tensor(eos_token_id, device=out.device).reshape(-1)
        made = 1
        while made < max_new_tokens:
            # Looking at tokens waits for the device: only now and then.
            if ends is not None and made % 16 == 0 and bool(torch.isin(out[:, :made], ends).any(1).all()):
                break
            self.step()
            out[:, made] = self._tokens
            made += 1
        out = out[:, :made]
        if ends is not None:
            over = torch.isin(out, ends).cumsum(1)
            behind = torch.zeros_like(over, dtype=torch.bool)
            behind[:, 1:] = over[:, :-1] > 0
            out = out.masked_fill(behind, int(ends[0]) if pad_token_id is None else pad_token_id)
            out = out[:, :int((~behind).sum(1).max())]
        return torch.cat((ids.to(out.device), out), 1)


_decoders = weakref.WeakKeyDictionary()  # model -> the decoder that was used last


def generate(model, input_ids, attention_mask=None, *, max_new_tokens=20, eos_token_id=None, pad_token_id=None, graph=True):
    """Greedy decoding of a GPT-2, Llama, Qwen2/3 or Mistral model of transformers on a GPU, patched or not: input_ids
    [batch, n] -> [batch, n + new], the tokens that model.generate(do_sample=False) gives within rounding. A Decoder is kept for
    the model until a call needs another batch or more room; see there what it takes.

    >>> cgp.generate(model, ids, max_new_tokens=128).shape
    torch.Size([1, 160])
    """
    if input_ids.dim() != 2:
        raise ArgumentError(f"generate: input_ids must be [batch, n]; they are {list(input_ids.shape)}")
    if not isinstance(model, torch.nn.Module) or not hasattr(model, "config"):
        raise ArgumentError(f"generate: model must be a model of transformers, not {type(model).__name__}")
    batch, need = input_ids.shape[0], input_ids.shape[1] + max_new_tokens
    decoder = _decoders.get(model)
    if decoder is None or decoder.batch != batch or decoder.capacity < need or decoder._use_graph != graph:
        _decoders.pop(model, None)
        most = min(getattr(model.config, name, None) or float("inf") for name in ("max_position_embeddings", "sliding_window"))
        decoder = _decoders[model] = Decoder(model, batch, max(need, min(-(-need // 256) * 256, most)), graph)
    return decoder.generate(input_ids, attention_mask, max_new_tokens, eos_token_id, pad_token_id)
