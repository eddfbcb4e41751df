# SPDX-License-Identifier: Apache-2.0
"""A small random model as a GGUF file, for tests."""
import math
import random
import struct

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
    rng = random.Random(3)
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
        count, matrix = math.prod(shape), len(shape) == 2
        values = struct.pack(f"<{count}f", *(rng.gauss(0, 1 / math.sqrt(shape[-1])) if matrix else 1.0 for _ in range(count)))
        infos += _text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape)) + struct.pack("<IQ", 0, len(data))
        data += values + b"\0" * (-len(values) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys) + infos
    path.write_bytes(head + b"\0" * (-len(head) % 32) + data)
    return path
