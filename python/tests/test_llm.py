# SPDX-License-Identifier: Apache-2.0
"""cgp.LLM on a small random model, which is written here."""
import struct

import numpy as np
import pytest

import cgp

WIDTH, INNER, HEADS, LAYERS, WORDS = 64, 96, 4, 2, 97
U32, F32, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9


def _text(s):
    raw = s.encode()
    return struct.pack("<Q", len(raw)) + raw


def _key(name, kind, value):
    body = {U32: lambda: struct.pack("<I", value), F32: lambda: struct.pack("<f", value), BOOL: lambda: struct.pack("<?", value),
            STRING: lambda: _text(value)}.get(kind)
    if kind == ARRAY:
        of, items = value
        data = struct.pack("<IQ", of, len(items)) + b"".join(_text(i) if of == STRING else struct.pack("<i", i) for i in items)
    else:
        data = body()
    return _text(name) + struct.pack("<I", kind) + data


def write_model(path, template=True):
    """A llama of two layers with a token for each printable character of ASCII, in GGUF 3."""
    rng = np.random.default_rng(3)
    words = [chr(c) for c in range(33, 127)] + ["\u0120", "\u010a", "<|end|>"]
    keys = [_key("general.architecture", STRING, "llama"), _key("general.name", STRING, "tiny")]
    for name, value in (("block_count", LAYERS), ("context_length", 128), ("embedding_length", WIDTH), ("feed_forward_length", INNER),
                        ("attention.head_count", HEADS), ("attention.head_count_kv", 2)):
        keys.append(_key("llama." + name, U32, value))
    keys += [_key("llama.attention.layer_norm_rms_epsilon", F32, 1e-5), _key("llama.rope.freq_base", F32, 1000.0),
             _key("tokenizer.ggml.model", STRING, "gpt2"), _key("tokenizer.ggml.pre", STRING, "gpt-2"),
             _key("tokenizer.ggml.tokens", ARRAY, (STRING, words)),
             _key("tokenizer.ggml.token_type", ARRAY, (5, [1] * (WORDS - 1) + [3])),
             _key("tokenizer.ggml.merges", ARRAY, (STRING, [])), _key("tokenizer.ggml.eos_token_id", U32, WORDS - 1),
             _key("tokenizer.ggml.add_bos_token", BOOL, False)]
    if template:
        keys.append(_key("tokenizer.chat_template", STRING,
                         "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"))
    tensors = {"token_embd.weight": (WORDS, WIDTH), "output_norm.weight": (WIDTH, ), "output.weight": (WORDS, WIDTH)}
    for i in range(LAYERS):
        tensors.update({f"blk.{i}.{n}.weight": shape for n, shape in (
            ("attn_norm", (WIDTH, )), ("attn_q", (WIDTH, WIDTH)), ("attn_k", (WIDTH // 2, WIDTH)), ("attn_v", (WIDTH // 2, WIDTH)),
            ("attn_output", (WIDTH, WIDTH)), ("ffn_norm", (WIDTH, )), ("ffn_gate", (INNER, WIDTH)), ("ffn_up", (INNER, WIDTH)),
            ("ffn_down", (WIDTH, INNER)))})
    infos, data = b"", b""
    for name, shape in tensors.items():
        values = np.ones(shape, "<f4") if len(shape) == 1 else (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype("<f4")
        infos += _text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape)) + struct.pack("<IQ", 0, len(data))
        data += values.tobytes() + b"\0" * (-values.nbytes % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys) + infos
    path.write_bytes(head + b"\0" * (-len(head) % 32) + data)
    return path


@pytest.fixture(scope="module")
def llm(tmp_path_factory):
    return cgp.LLM(write_model(tmp_path_factory.mktemp("llm") / "tiny.gguf"), cache="float32", threads=1)


GREEDY = {"temperature": 0, "max_tokens": 12, "ignore_end": True}


def test_what_a_model_says_of_itself(llm):
    assert (llm.architecture, llm.name, llm.context, llm.vocabulary, llm.has_chat_template) == ("llama", "tiny", 128, WORDS, True)
    assert "cpu" in llm.backend and llm.memory_bytes > 0
    assert llm.decode(llm.encode("Hello you")) == "Hello you"


def test_prompts_together_are_each_as_alone(llm):
    prompts = ["Hello", "a longer prompt", llm.encode("ids")]
    alone = [llm.generate(p, **GREEDY) for p in prompts]
    together = llm.generate(prompts, **GREEDY)
    assert [c.ids for c in together] == [c.ids for c in alone]
    assert all(len(c.ids) == 12 and c.finish_reason == "length" for c in together)
    assert together[0].text == llm.decode(together[0].ids)


def test_pieces_are_the_text(llm):
    whole = llm.generate("Hello", **GREEDY)
    assert "".join(llm.stream("Hello", **GREEDY)) == whole.text
    stream = llm.stream("Hello", **GREEDY)
    next(stream)
    stream.close()
    assert llm.generate("Hello", **GREEDY).ids == whole.ids


def test_sampling_is_the_seeds(llm):
    options = {"max_tokens": 20, "temperature": 1.5, "top_k": 0, "top_p": 1.0}
    a, b, c = (llm.generate("Hello", seed=s, **options) for s in (1, 1, 2))
    assert a.ids == b.ids != c.ids
    assert llm.generate("x", max_tokens=3, temperature=0, logit_bias={5: 100.0}).ids == [5, 5, 5]
    stop = llm.generate("Hello", **GREEDY).text[3:5]
    stopped = llm.generate("Hello", stop=stop, **GREEDY)
    assert stopped.finish_reason == "stop" and stopped.stop == stop and stop not in stopped.text


def test_log_probabilities(llm):
    done = llm.generate("Hello", top_logprobs=3, **GREEDY)
    assert len(done.logprobs) == len(done.ids)
    for token, row in zip(done.ids, done.logprobs):
        assert row[0][0] == token == row[1][0] and len(row) == 4
        assert row[1][1] >= row[2][1] >= row[3][1]


def test_a_conversation(llm):
    messages = [{"role": "user", "content": "Hi"}]
    assert llm.decode(llm.chat_prompt(messages)) == "user: Hi\nassistant:"
    assert llm.chat(messages, **GREEDY).ids == llm.generate("user: Hi\nassistant:", **GREEDY).ids


def test_perplexity(llm):
    value, error = llm.perplexity("some text that is long enough for two of them", chunk=16)
    assert 1 < value < 1e6 and error > 0


def test_mistakes_are_named(llm, tmp_path):
    with pytest.raises(cgp.Error, match="nowhere.gguf"):
        cgp.LLM(tmp_path / "nowhere.gguf")
    with pytest.raises(cgp.ArgumentError, match="tpu:0"):
        cgp.LLM(write_model(tmp_path / "y.gguf"), device="tpu:0")
    with pytest.raises(cgp.ArgumentError, match="cache = 'int3'"):
        cgp.LLM(tmp_path / "x.gguf", cache="int3")
    for options, why in (({"max_tokens": 0}, "max_tokens"), ({"temperature": -1}, "temperature"), ({"top_p": 2.0}, "top_p"),
                         ({"temperature": "hot"}, "temperature = 'hot'")):
        with pytest.raises(cgp.ArgumentError, match=why):
            llm.generate("Hello", **options)
    with pytest.raises(cgp.ArgumentError, match="at least one token"):
        llm.generate([])
    with pytest.raises(cgp.ArgumentError, match="of the vocabulary"):
        llm.generate([1, 1000])
    with pytest.raises(cgp.ArgumentError, match="leaves room"):
        llm.generate([1] * 128)
    with pytest.raises(cgp.ArgumentError, match="role"):
        llm.chat(["Hi"])
    with pytest.raises(TypeError):
        llm.generate("Hello", warmth=3)
    with pytest.raises(cgp.Unsupported, match="chat template"):
        cgp.LLM(write_model(tmp_path / "plain.gguf", template=False)).chat([{"role": "user", "content": "Hi"}])
