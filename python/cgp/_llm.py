# SPDX-License-Identifier: Apache-2.0
"""Language models from GGUF files: text in, text out."""
import codecs
import os

from . import _core
from ._runtime import CODES, ArgumentError, Error


class Completion:
    """What came of a prompt.

    text: str, up to the stop string; ids: the tokens that were generated, with the one that ended generation; finish_reason:
    "stop", "length" or "cancelled"; stop: the stop string that was found, or ""; prompt_tokens, reused_tokens: of the prompt, and those
    of it that the cache had; drafted_tokens, accepted_tokens: of prompt lookup and the draft model; prefill_seconds, decode_seconds; logprobs: of each
    token a list of (token, natural log probability), the drawn one first, then the most likely ones; empty where they were not
    asked for.
    """

    def __init__(self, taken):
        (self.ids, text, self.finish_reason, self.stop, self.error, counts, seconds, self.logprobs) = taken
        self.text = text.decode("utf-8", "replace")
        self.prompt_tokens, self.reused_tokens, self.drafted_tokens, self.accepted_tokens = counts
        self.prefill_seconds, self.decode_seconds = seconds

    def __repr__(self):
        return f"cgp.Completion({self.text!r}, {len(self.ids)} tokens, {self.finish_reason!r})"


def _cast(kind, value, name):
    try:
        return kind(value)
    except (TypeError, ValueError):
        raise ArgumentError(f"LLM: {name} = {value!r} is no {kind.__name__}") from None


class LLM:
    """A model file and what runs it.

    path: a GGUF file or a Hugging Face folder. context: tokens of a sequence at most, 0: those of the model, at most 8192. sequences: prompts that run at
    the same time. chunk: tokens of a step at most. device: "cpu", "cuda:0", or "emu:sm_90a", the emulator. tensor_parallel: GPUs that
    share the model, from device on; or list them: device="cuda:0,cuda:1". threads: 0: all. cache: type of keys and values, "float16",
    "bfloat16" or "float32". activations: bits of the inputs of products, 8, 16 or 32; 0: the fastest of at least 16.
    batch_invariant: the same bits whatever else runs, for every format. lookup_tokens: that prompt lookup tries at once; draft: a
    smaller model of the same vocabulary, a file or folder, which writes up to draft_tokens tokens ahead. Results change with neither.

    Raises Error where the file cannot be read or does not fit into memory, ParseError's text as Error where it is malformed,
    Unsupported for an architecture or a device that is not here, ArgumentError for an option that is none.

    An object is used by one thread at a time.

    >>> llm = cgp.LLM("model.gguf")                                               # doctest: +SKIP
    >>> llm.generate("The capital of France is", max_tokens=8, temperature=0).text  # doctest: +SKIP
    ' Paris.'
    """

    def __init__(self, path, *, context=0, sequences=8, chunk=512, device="cpu", threads=0, cache="float16", activations=0,
                 batch_invariant=False, lookup_tokens=0, draft=None, draft_tokens=4, tensor_parallel=1):
        self._handle = None
        if cache not in ("float16", "bfloat16", "float32"):
            raise ArgumentError(f"LLM: cache = {cache!r} is none of 'float16', 'bfloat16' and 'float32'")
        numbers = [_cast(int, v, n) for n, v in (("context", context), ("sequences", sequences), ("chunk", chunk),
                                                 ("lookup_tokens", lookup_tokens), ("threads", threads))]
        ahead = _cast(int, draft_tokens, "draft_tokens")
        if ahead < 1:
            raise ArgumentError(f"LLM: draft_tokens = {draft_tokens!r} must be positive")
        gpus = _cast(int, tensor_parallel, "tensor_parallel")
        if not 1 <= gpus <= 16:
            raise ArgumentError(f"LLM: tensor_parallel = {tensor_parallel!r} is not in [1, 16]")
        self._handle = _core.llm_load(os.fspath(path), str(device).encode(),
                                      (*numbers, CODES[cache], _cast(int, activations, "activations"), bool(batch_invariant),
                                       b"" if draft is None else os.fsencode(draft), 0 if draft is None else ahead, gpus))
        (self.architecture, self.name, self.backend, self.context, self.vocabulary, self.memory_bytes,
         self.has_chat_template) = _core.llm_info(self._handle)
        self.has_chat_template = bool(self.has_chat_template)

    def __del__(self):
        if getattr(self, "_handle", None):
            _core.llm_free(self._handle)

    def __repr__(self):
        return f"cgp.LLM({self.name!r}: {self.architecture}, {self.backend})"

    def encode(self, text, parse_special=False):
        """The ids of a text, with those that the model wants before and after. parse_special: "<|im_end|>" is that token.

        Raises: ArgumentError for bytes that are no text of the tokenizer.
        """
        return _core.llm_encode(self._handle, text.encode() if isinstance(text, str) else bytes(text), parse_special)

    def decode(self, ids, skip_special=False):
        """The text of ids. Raises ArgumentError for an id that is not in the vocabulary."""
        return _core.llm_decode(self._handle, [int(i) for i in ids], skip_special).decode("utf-8", "replace")

    def chat_prompt(self, messages):
        """Ids of a conversation through the model's chat template, ready for its answer. messages: dicts with "role" and
        "content". Raises Unsupported where the file has no template."""
        try:
            roles, contents = [m["role"].encode() for m in messages], [m["content"].encode() for m in messages]
        except (TypeError, KeyError, AttributeError):
            raise ArgumentError("LLM: messages are dicts with the strings \"role\" and \"content\"") from None
        return _core.llm_chat_prompt(self._handle, roles, contents)

    def _submit(self, prompt, max_tokens=256, temperature=0.7, top_k=40, top_p=0.9, min_p=0.0, typical_p=1.0, repetition_penalty=1.0,
                frequency_penalty=0.0, presence_penalty=0.0, penalty_window=64, seed=42, stop=(), logit_bias=None, logprobs=False,
                top_logprobs=0, ignore_end=False):
        ids = self.encode(prompt) if isinstance(prompt, (str, bytes)) else [int(i) for i in prompt]
        stops = [stop] if isinstance(stop, str) else list(stop)
        bias = dict(logit_bias or {})
        real = [_cast(float, v, n) for n, v in (("top_p", top_p), ("min_p", min_p), ("typical_p", typical_p),
                                                ("repetition_penalty", repetition_penalty), ("frequency_penalty", frequency_penalty),
                                                ("presence_penalty", presence_penalty))]
        # The C interface reads 0 as "not given" in these.
        for name, value in (("max_tokens", max_tokens), ("top_p", top_p), ("typical_p", typical_p),
                            ("repetition_penalty", repetition_penalty)):
            if not value > 0:
                raise ArgumentError(f"LLM: {name} = {value!r} must be positive")
        numbers = (_cast(int, max_tokens, "max_tokens"), _cast(float, temperature, "temperature"), _cast(int, top_k, "top_k"), *real,
                   _cast(int, penalty_window, "penalty_window"), _cast(int, seed, "seed") & (2**64 - 1), bool(logprobs),
                   _cast(int, top_logprobs, "top_logprobs"), bool(ignore_end))
        return _core.llm_submit(self._handle, ids, numbers, [s.encode() for s in stops], [int(i) for i in bias],
                                tuple(float(v) for v in bias.values()))

    def _take(self, request):
        taken = _core.llm_take(self._handle, request)
        if taken is None:
            return None
        done = Completion(taken)
        if done.finish_reason == "error":
            raise Error(done.error)
        return done

    def generate(self, prompt, **options):
        """A prompt continued: a str, or a list of ids. A list of prompts: a list of completions, computed together; each is what it would
        be alone.

        max_tokens, temperature (0: the most likely token), top_k (0: all), top_p, min_p, typical_p, repetition_penalty,
        frequency_penalty, presence_penalty, penalty_window (-1: all), seed, stop (a str or several), logit_bias ({id: added}), logprobs,
        top_logprobs, ignore_end.

        Raises ArgumentError for an option that is none, and a prompt that does not fit into the context.
        """
        several = isinstance(prompt, (list, tuple)) and bool(prompt) and isinstance(prompt[0], (str, bytes, list, tuple))
        requests = []
        try:
            for p in prompt if several else [prompt]:
                requests.append(self._submit(p, **options))
            while _core.llm_step(self._handle):
                pass
        except BaseException:  # KeyboardInterrupt too: nothing stays behind
            for r in requests:
                _core.llm_cancel(self._handle, r)
                _core.llm_take(self._handle, r)
            raise
        done = [self._take(r) for r in requests]
        return done if several else done[0]

    def stream(self, prompt, **options):
        """The text as it comes, piece by piece; options as generate() has them. The generator may be closed early.

        Raises: as generate().
        """
        request = self._submit(prompt, **options)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        try:
            busy = True
            while busy:
                busy = _core.llm_step(self._handle)
                piece = decoder.decode(_core.llm_text(self._handle, request))
                if piece:
                    yield piece
        finally:
            _core.llm_cancel(self._handle, request)
            taken = _core.llm_take(self._handle, request)
        if taken and taken[2] == "error":
            raise Error(taken[4])

    def chat(self, messages, **options):
        """The answer to a conversation, a Completion; options as generate() has them.

        Raises: ArgumentError for a model without a chat template; else as generate().
        """
        return self.generate(self.chat_prompt(messages), **options)

    def perplexity(self, text, chunk=512):
        """(exp of the mean negative log probability, its standard error) of a text in chunks, of which the second half is predicted, as
        llama.cpp defines it. Raises ArgumentError for a text shorter than two chunks."""
        return _core.llm_perplexity(self._handle, text.encode() if isinstance(text, str) else bytes(text), chunk)
