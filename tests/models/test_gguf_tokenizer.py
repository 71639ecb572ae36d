"""Tokenizers of GGUF files: tokens of the published pipelines whose rules the files name."""

import json
import pathlib

import gguf_files
import numpy as np
import pytest
import tokenizers
from published_tokenizers import PUBLISHED, blank_model

import tdd
from tdd.models.configuration import PROBE
from tdd.models.gguf.tokenizer import RULES, read_tokenizer
from tdd.validate import InputError

DEMO = pathlib.Path(tdd.__file__).parent / "demo" / "checkpoint" / "tokenizer.json"
TEXTS = (*PROBE, "In 2023", "the end", "  the end", "the    end", "x" * 300, "HTTPServer isn't McDonald's 1234 \u00bd")


def by_source(source):
    return next(one for one in PUBLISHED if one.source == source)


def own_pipeline(one):
    """The published pipeline over a small vocabulary, without normalisation to composed characters."""
    content = json.loads(DEMO.read_text())
    if one.blanks:
        content["model"], content["added_tokens"] = blank_model()
        content["decoder"] = None
    content["model"]["ignore_merges"] = one.ignore_merges
    normalizer = None if one.normalizer == {"type": "NFC"} else one.normalizer
    content |= {"normalizer": normalizer, "pre_tokenizer": one.pre_tokenizer, "post_processor": one.post_processor}
    return tokenizers.Tokenizer.from_str(json.dumps(content))


def metadata(own, pre, **changes):
    """What a GGUF file says of a byte-level tokenizer."""
    model = json.loads(own.to_str())["model"]
    special = {str(token) for token in own.get_added_tokens_decoder().values()}
    tokens = sorted(own.get_vocab(), key=own.token_to_id)
    kinds = np.array([3 if token in special else 1 for token in tokens], np.int32)
    merges = [" ".join(pair) for pair in model["merges"]]
    found = {"model": "gpt2", "pre": pre, "tokens": tokens, "token_type": kinds, "merges": merges, **changes}
    return {f"tokenizer.ggml.{key}": value for key, value in found.items()}


@pytest.mark.parametrize(
    ("source", "pre"),
    [
        ("openai-community/gpt2", "gpt-2"),
        ("allenai/OLMo-1B-hf", "olmo"),
        ("allenai/OLMo-2-1124-7B", "dbrx"),
        ("meta-llama/Meta-Llama-3-8B", "llama-bpe"),
        ("Qwen/Qwen2.5-7B", "qwen2"),
        ("HuggingFaceTB/SmolLM2-135M", "smollm"),
        ("bigcode/starcoder2-3b", "starcoder"),
    ],
)
def test_words_of_published_pipelines(source, pre):
    own = own_pipeline(by_source(source))
    begins = {"bos_token_id": 0} if own.encode("a").ids[0] == 0 else {}
    found = read_tokenizer(metadata(own, pre, **begins), "llama", "file")
    for text in (*TEXTS, "a<|endoftext|>b"):
        assert found(text)["input_ids"] == own.encode(text).ids, text
        assert found.decode(found(text, add_special_tokens=False)["input_ids"]) == text
    assert found.get_vocab() == own.get_vocab()


def test_words_that_begin_at_capitals():
    own = own_pipeline(by_source("openai-community/gpt2"))
    cut = {
        pre: read_tokenizer(metadata(own, pre), "llama", "file").backend_tokenizer.pre_tokenizer.pre_tokenize_str
        for pre in ("tekken", "gpt-4o")
    }
    words = {pre: [word for word, _ in cut[pre]("McDonald's 12345/\n")] for pre in cut}
    assert words == {
        "tekken": ["Mc", "Donald", "'s", "\u0120", "1", "2", "3", "4", "5", "/\u010a"],
        "gpt-4o": ["Mc", "Donald's", "\u0120", "123", "45", "/\u010a"],
    }


def with_blanks(**changes):
    """What a GGUF file says of `blank_model`: scores in the order of its merges."""
    model, _ = blank_model()
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    rank = {pair.replace(" ", ""): number for number, pair in enumerate(model["merges"])}
    kinds = [2, 3, 3, *[6] * 256, *[1] * (len(tokens) - 259)]
    scores = [-float(rank.get(token, 1000)) for token in tokens]
    found = {
        "model": "llama", "tokens": tokens, "scores": np.array(scores, np.float32), "bos_token_id": 1,
        "eos_token_id": 2, "unknown_token_id": 0, "token_type": np.array(kinds, np.int32), **changes,
    }  # fmt: skip
    return {f"tokenizer.ggml.{key}": value for key, value in found.items()}


@pytest.mark.parametrize(
    ("source", "changes"),
    [
        ("meta-llama/Llama-2-7b-hf", {}),
        ("microsoft/Phi-3-mini-4k-instruct", {"add_bos_token": False}),
        ("google/gemma-2-2b", {"add_space_prefix": False}),
    ],
)
def test_merges_by_score(source, changes):
    own, found = own_pipeline(by_source(source)), read_tokenizer(with_blanks(**changes), "llama", "file")
    for text in (*TEXTS, "a<s> b"):
        assert found(text)["input_ids"] == own.encode(text).ids, text
        if "\u0000" not in text and "<" not in text:
            assert found.decode(found(text, add_special_tokens=False)["input_ids"]) == text


def test_special_tokens():
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    values = gguf_files.byte_level(add_bos_token=True, add_eos_token=True, padding_token_id=0, unknown_token_id=2)
    found = read_tokenizer({**values, "tokenizer.chat_template": template}, "gpt2", "file")
    assert found("!").input_ids == [1, 3, 0]
    assert found("!", add_special_tokens=False).input_ids == [3]
    assert found("!<think>!<|end|>", add_special_tokens=False).input_ids == [3, 2, 3, 0]
    assert found.special_tokens_map == {
        "bos_token": "<|start|>", "eos_token": "<|end|>", "unk_token": "<think>", "pad_token": "<|end|>",
    }  # fmt: skip
    assert found.chat_template == template
    assert found.decode([1, 3, 0], skip_special_tokens=True) == "!"


def test_a_rule_that_says_how_texts_begin():
    plain = gguf_files.byte_level("llama-bpe")
    assert read_tokenizer(plain, "llama", "file")("!").input_ids == [1, 3]
    assert read_tokenizer(gguf_files.byte_level("qwen2"), "llama", "file")("!").input_ids == [3]
    silent = {**plain, "tokenizer.ggml.add_bos_token": False}
    assert read_tokenizer(silent, "llama", "file")("!").input_ids == [3]


def test_whole_words_before_merges():
    tokens = ["a", "b", "c", "ab", "abc"]
    values = {"tokens": tokens, "token_type": None, "merges": ["a b"], "bos_token_id": None, "eos_token_id": None}
    found = {
        pre: read_tokenizer(gguf_files.byte_level(pre, **values), "llama", "file")("abc").input_ids
        for pre in ("llama-bpe", "dbrx")
    }
    assert found == {"llama-bpe": [4], "dbrx": [3, 2]}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "bert"}, "tokenizer.ggml.model = 'bert', which is not supported; supported: gpt2, llama"),
        ({"model": None}, "tokenizer.ggml.model = None"),
        ({"pre": "klingon"}, "tokenizer.ggml.pre = 'klingon', a rule for words that is not known; known: gpt-2"),
        ({"pre": None}, "tokenizer.ggml.pre = None"),
        ({"tokens": None}, "no list tokenizer.ggml.tokens"),
        ({"tokens": ["a", "b", "a"]}, "the token 'a' twice"),
        ({"token_type": np.ones(3, np.int32)}, "one number a token"),
        ({"merges": None}, "no list tokenizer.ggml.merges"),
        ({"merges": ["a q"]}, "the merge 'a q', whose parts or whole are no tokens"),
        ({"merges": ["ab"]}, "the merge 'ab '"),
        ({"eos_token_id": 10**6}, "eos_token_id = 1000000, but"),
        ({"bos_token_id": -1}, "bos_token_id = -1, but"),
        ({"add_bos_token": 1}, "add_bos_token = 1; it must be true or false"),
        ({"model": "llama"}, "no tokenizer.ggml.scores"),
        ({"model": "llama", "scores": np.ones(2, np.float32)}, "in tokenizer.ggml.scores"),
    ],
)
def test_lists_that_do_not_fit(changes, words):
    with pytest.raises(InputError) as error:
        read_tokenizer(gguf_files.byte_level(**changes), "llama", "model.gguf")
    assert str(error.value).startswith("model.gguf ")
    assert words in str(error.value)


def test_every_rule_builds_a_tokenizer():
    for pre in RULES:
        found = read_tokenizer(gguf_files.byte_level(pre), "llama", "file")
        text = "".join(gguf_files.ALPHABET[:90])
        assert found.decode(found(text, add_special_tokens=False).input_ids) == text


@pytest.mark.parametrize(
    ("pre", "words"),
    [
        ("deepseek-coder", "ab| | cd|1|2| | |\u4f60\u597d|?!|\n|\u10d0\u10d1| x|=|y"),
        ("deepseek-llm", "ab| | cd|12|  |\u4f60\u597d|?!|\n|\u10d0\u10d1| x|=|y"),
    ],
)
def test_words_of_several_expressions(pre, words):
    own = own_pipeline(by_source("openai-community/gpt2"))
    cut = read_tokenizer(metadata(own, pre), "llama", "x").backend_tokenizer.pre_tokenizer
    text = words.replace("|", "")
    assert "|".join(text[start:stop] for _, (start, stop) in cut.pre_tokenize_str(text)) == words
