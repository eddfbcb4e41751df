#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Cuts vocabularies down to what their test texts need, for cgp/model/testdata/tokenizers.

usage: tokenizer_fixtures.py MODELS OUT     MODELS: vendor/llama.cpp/models of the sdist llama-cpp-python 0.3.36
needs: pip install gguf tokenizers

A fixture is a GGUF with the keys of the original; words that are no part of the texts are left out, which cannot change
how these texts are cut. test.texts and test.ids have llama.cpp's vectors; the last text is mixed Unicode, and its ids are
those of Hugging Face tokenizers over the whole vocabulary.
"""
import random
import re
import sys
import unicodedata
from pathlib import Path

from gguf import GGUFReader, GGUFValueType, GGUFWriter
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
PATTERNS = {
    "gpt-2": [GPT2], "mpt": [GPT2], "refact": [r"\p{N}", GPT2], "starcoder": [r"\p{N}", GPT2], "command-r": [r"\p{N}", GPT2],
    "llama-bpe": [CONTRACTIONS + "|" + WORD + r"|\p{N}{1,3}" + TAIL],
    "qwen2": [CONTRACTIONS + "|" + WORD + r"|\p{N}" + TAIL],
    "qwen35": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
}
NAMES = list(PATTERNS) + "deepseek-coder deepseek-llm falcon gemma-4 llama-spm phi-3 bert-bge nomic-bert-moe".split()
BLOCKS = [(0x20, 0x7e), (0xa0, 0x17f), (0x370, 0x3ff), (0x400, 0x52f), (0x590, 0x5ff), (0x600, 0x6ff), (0x900, 0x97f),
          (0xe00, 0xe7f), (0x1e00, 0x1fff), (0x2000, 0x206f), (0x2190, 0x23ff), (0x3000, 0x30ff), (0x4e00, 0x9fff),
          (0xac00, 0xd7a3), (0xff00, 0xffef), (0x1f300, 0x1faff), (0x1d400, 0x1d7ff), (0x300, 0x36f)]
ENGLISH = "the of and to in that it's we'LL they've I'd don't SOFTWARE license Program's terms http://x.org/a_b?c=1 3.14".split()


def mixed(size):
    random.seed(7)
    out = ""
    while len(out.encode()) < size:
        kind = random.random()
        if kind < .4:
            s = random.choice(ENGLISH) + random.choice([" ", " ", "  ", "\n", ", ", ".\n\n", "\t"])
        elif kind < .5:
            s = str(random.randrange(10 ** random.randint(1, 12))) + random.choice(["", " ", ".", ","])
        elif kind < .6:
            s = random.choice([" ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2028", "\u0085"]) * random.randint(1, 6)
        elif kind < .65:
            s = "".join(random.choice("!?.,;:-_=+*/\\|<>()[]{}\"'`~@#$%^&") for _ in range(random.randint(1, 6)))
        else:
            first, last = random.choice(BLOCKS)
            s = "".join(chr(random.randint(first, last)) for _ in range(random.randint(1, 9))) + random.choice(["", " "])
        out += "".join(c for c in s if unicodedata.category(c) not in ("Cn", "Cs", "Co"))
    return out


def gpt2_bytes():
    bytes_ = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    points, n = bytes_[:], 0
    for b in range(256):
        if b not in bytes_:
            bytes_.append(b)
            points.append(256 + n)
            n += 1
    return dict(zip(map(chr, points), bytes_))


SPELLED = gpt2_bytes()


def score_merges(words, scores):
    """The merges that SentencePiece's scores stand for, as Hugging Face converts them."""
    known, out = {w: i for i, w in enumerate(words)}, []
    for word, i in known.items():
        local = []
        for k in range(1, len(word)):
            if word[:k] in known and word[k:] in known:
                local.append((word[:k], word[k:], scores[i]))
        out += sorted(local, key=lambda m: (known[m[0]], known[m[1]]))
    return [(a, b) for a, b, _ in sorted(out, key=lambda m: -m[2])]


def peer(name, model, words, scores, types, merges, charsmap):
    """The tokenizer of Hugging Face over the whole vocabulary; None where it needs more than the file has."""
    known = {w: i for i, w in enumerate(words)}
    if name in PATTERNS:
        t = Tokenizer(models.BPE(vocab=known, merges=merges, ignore_merges=name == "llama-bpe"))
        t.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(p), "isolated") for p in PATTERNS[name]]
            + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        t.add_tokens([AddedToken(w, normalized=False) for i, w in enumerate(words) if types[i] == 4])
        return t
    if model == "llama":
        normal = [w if types[i] in (1, 4, 6) else f"\0{i}" for i, w in enumerate(words)]
        t = Tokenizer(models.BPE(vocab={w: i for i, w in enumerate(normal)}, merges=score_merges(normal, scores), unk_token=normal[0],
                                 byte_fallback=True, fuse_unk=True))
        t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        return t
    if model == "bert":
        spelled = {(w[1:] if w.startswith("▁") else w if types[i] == 3 else "##" + w): i for i, w in enumerate(words)}
        t = Tokenizer(models.WordPiece(vocab=spelled, unk_token="[UNK]", max_input_chars_per_word=10000))
        t.normalizer = normalizers.BertNormalizer(lowercase=True)
        t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return t
    if model == "t5":
        t = Tokenizer(models.Unigram(list(zip(words, scores)), unk_id=3, byte_fallback=False))
        t.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap), normalizers.Replace(Regex(" {2,}"), " "),
                                             normalizers.Strip()])
        t.pre_tokenizer = pre_tokenizers.Metaspace()
        return t
    return None


def main():
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        reader = GGUFReader(folder / f"ggml-vocab-{name}.gguf")
        fields = {k: f.contents() for k, f in reader.fields.items() if k.startswith("tokenizer.ggml.") or k in (
            "general.architecture", "general.name")}
        key = "tokenizer.ggml."
        words, types, model = fields[key + "tokens"], fields[key + "token_type"], fields[key + "model"]
        scores = fields.get(key + "scores")
        merges = [tuple(m.split(" ")) for m in fields.get(key + "merges", [])]
        charsmap = bytes(b & 255 for b in fields.get(key + "precompiled_charsmap", []))
        source = folder / f"ggml-vocab-{name}.gguf.inp"
        texts, ids = [], []
        if source.exists():
            texts = source.read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n")
            lines = (folder / f"ggml-vocab-{name}.gguf.out").read_text().split("\n")
            ids = [[int(i) for i in line.split()] for line in lines[: len(texts)]]
        if p := peer(name, model, words, scores, types, merges, charsmap):
            texts.append(mixed(4000))
            ids.append(p.encode(texts[-1], add_special_tokens=False).ids)

        escaped = model in ("llama", "gemma4", "t5", "bert")
        corpus = "\n".join(" " + t for t in texts)
        if model == "bert":
            corpus = p.normalizer.normalize_str(corpus)
        if model == "t5":
            corpus = " " + re.sub(r"\s+", " ", p.normalizer.normalize_str(corpus))
        corpus = corpus.replace(" ", "▁").encode() if escaped else corpus.encode()

        def needed(i, word):
            if types[i] != 1:
                return (word.encode() in corpus or types[i] in (2, 6)
                        or i in [v for k, v in fields.items() if k.endswith("_token_id")])
            if escaped:
                spelled = (word[1:] if model == "bert" and word.startswith("▁") else word).encode()
            else:
                spelled = bytes(SPELLED[c] for c in word) if all(c in SPELLED for c in word) else word.encode()
            return spelled in corpus or len(spelled) == 1

        kept = [i for i, w in enumerate(words) if needed(i, w)]
        used = {i for line in ids for i in line}
        if model == "t5":
            kept.append(min((i for i in range(len(words)) if types[i] == 1), key=lambda i: scores[i]))
        kept = sorted(set(kept) | used)
        new = {old: i for i, old in enumerate(kept)}
        known = {words[i] for i in kept}
        writer = GGUFWriter(out / f"{name}.gguf", fields["general.architecture"])
        for k, v in fields.items():
            if k == "general.architecture":
                continue
            if k == key + "tokens":
                writer.add_array(k, [words[i] for i in kept])
            elif k == key + "token_type":
                writer.add_array(k, [types[i] for i in kept])
            elif k == key + "scores":
                writer.add_array(k, [float(scores[i]) for i in kept])
            elif k == key + "merges":
                writer.add_array(k, [" ".join(m) for m in merges if m[0] in known and m[1] in known and m[0] + m[1] in known])
            elif k == key + "precompiled_charsmap":
                writer.add_key_value(k, charsmap, GGUFValueType.ARRAY, GGUFValueType.UINT8)
            elif k.endswith("_token_id"):
                writer.add_uint32(k, new[v])
            elif isinstance(v, bool):
                writer.add_bool(k, v)
            elif isinstance(v, str):
                writer.add_string(k, v)
        writer.add_array("test.texts", texts)
        writer.add_array("test.ids", [" ".join(str(new[i]) for i in line) for line in ids])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        print(name, len(words), "->", len(kept), (out / f"{name}.gguf").stat().st_size)


main()
