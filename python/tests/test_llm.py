# SPDX-License-Identifier: Apache-2.0
"""cgp.LLM on a small random model."""
import pytest
from tiny_gguf import WORDS, write_model

import cgp


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


def test_a_draft_model_keeps_the_text(llm, tmp_path):
    path = write_model(tmp_path / "tiny.gguf")
    with_draft = cgp.LLM(path, cache="float32", threads=1, draft=path, draft_tokens=3)
    want, got = llm.generate("Hello", **GREEDY), with_draft.generate("Hello", **GREEDY)
    assert got.ids == want.ids and want.drafted_tokens == 0
    assert 0 < got.accepted_tokens <= got.drafted_tokens
    with pytest.raises(cgp.Error, match="none.gguf"):
        cgp.LLM(path, draft=tmp_path / "none.gguf")
    with pytest.raises(cgp.ArgumentError, match="draft_tokens = 0"):
        cgp.LLM(path, draft=path, draft_tokens=0)


def test_two_gpus_share_a_model(tmp_path):
    path = write_model(tmp_path / "tiny.gguf")
    one, two, listed = (cgp.LLM(path, sequences=1, **how) for how in
                        ({"device": "emu:sm_90a"}, {"device": "emu:sm_90a", "tensor_parallel": 2}, {"device": "emu:sm_90a,emu:sm_90a"}))
    want = one.generate("Hello", max_tokens=4, temperature=0).ids
    for llm in (two, listed):
        assert llm.backend.startswith("2 x ")
        assert llm.generate("Hello", max_tokens=4, temperature=0).ids == want
    with pytest.raises(cgp.ArgumentError, match="heads"):
        cgp.LLM(path, device="emu:sm_90a", tensor_parallel=7)
    with pytest.raises(cgp.Unsupported, match="CUDA share a model"):
        cgp.LLM(path, device="cpu", tensor_parallel=2)


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
