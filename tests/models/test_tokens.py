"""Tokens are those of tokenizer.json, whatever transformers' class of that name makes of it."""

import json
import logging
import pathlib
import shutil

import pytest
import tokenizers
from published_tokenizers import PUBLISHED, blank_model

import tdd
from tdd.models.configuration import PROBE, read_tokenizer

DEMO = pathlib.Path(tdd.__file__).parent / "demo" / "checkpoint"
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
DIGITS = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTES]}
SPLIT = {
    "type": "Sequence",
    "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}"}, "behavior": "Isolated", "invert": False},
        {**BYTES, "use_regex": False},
    ],
}
FIRST = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}},
}


def folder(place, kind, model_type="llama", **parts):
    """The packaged checkpoint with other parts of its tokenizer.json, and the class that its configuration names."""
    shutil.copytree(DEMO, place)
    for name, changes in (
        ("tokenizer.json", parts),
        ("tokenizer_config.json", {"tokenizer_class": kind}),
        ("config.json", {"model_type": model_type}),
    ):
        content = json.loads((place / name).read_text()) | changes
        (place / name).write_text(json.dumps(content))
    return place


@pytest.mark.parametrize("kind", ["GPT2Tokenizer", "LlamaTokenizer", "Qwen2Tokenizer", "GPTNeoXTokenizer"])
@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"pre_tokenizer": DIGITS},
        {"pre_tokenizer": SPLIT},
        {"normalizer": {"type": "NFC"}},
        {"normalizer": {"type": "Lowercase"}},
        {"post_processor": FIRST},
    ],
    ids=["as packaged", "digits", "split", "NFC", "lower case", "first token"],
)
def test_tokens_of_the_file(tmp_path, kind, parts):
    place = folder(tmp_path / "model", kind, **parts)
    found, own = read_tokenizer(place, 10**6), tokenizers.Tokenizer.from_file(str(place / "tokenizer.json"))
    for text in (*PROBE, "In 2023", "a<|endoftext|>b", "x" * 3_000):
        assert found(text)["input_ids"] == own.encode(text).ids
    if hasattr(found, "read_from"):  # no special token that the file lacks gets an id
        assert found.get_vocab() == own.get_vocab()
    split = found("a<|endoftext|>b", split_special_tokens=True, add_special_tokens=False)["input_ids"]
    assert 0 not in split


def published(place, one):
    """A tokenizer folder with a published pipeline over a small vocabulary."""
    parts = {name: getattr(one, name) for name in ("normalizer", "pre_tokenizer", "post_processor")}
    if one.blanks:
        parts["model"], parts["added_tokens"] = blank_model()
        parts["decoder"] = None
    folder(place, one.kind, one.model_type, **parts)
    file = place / "tokenizer.json"
    content = json.loads(file.read_text())
    content["model"]["ignore_merges"] = one.ignore_merges
    file.write_text(json.dumps(content))
    if one.blanks:
        names = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
        (place / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": one.kind, **names}))
    return file


@pytest.mark.parametrize("one", PUBLISHED, ids=lambda one: one.source)
def test_published_pipelines(tmp_path, one):
    file = published(tmp_path / "model", one)
    found, own = read_tokenizer(file.parent, 10**6), tokenizers.Tokenizer.from_file(str(file))
    for text in (*PROBE, "In 2023", "the end", "  the end", "a<s> b", "x" * 3_000):
        assert found(text)["input_ids"] == own.encode(text).ids, text


def test_a_difference_is_told_once(tmp_path, caplog):
    place = folder(tmp_path / "model", "GPT2Tokenizer", "gpt2", pre_tokenizer=DIGITS)
    with caplog.at_level(logging.WARNING, "tdd"):
        lm, params, tokenizer = tdd.load(place)
    (message,) = [record.getMessage() for record in caplog.records if "tokenizer.json" in record.getMessage()]
    assert "GPT2Tokenizer reads it otherwise" in message
    assert tokenizer("In 2023")["input_ids"] == [41, 78, 221, 18, 16, 18, 19]
    scores = tdd.score((lm, params, tokenizer), ["In 2023"], "loss")
    assert scores.provenance["tokenizer"] == "tokenizer.json; transformers' GPT2Tokenizer differs"


def test_no_merge_is_left_out_at_random(tmp_path):
    model = json.loads((DEMO / "tokenizer.json").read_text())["model"]
    place = folder(tmp_path / "model", "TokenizersBackend", model={**model, "dropout": 0.5})
    found, exact = read_tokenizer(place, 10**6), read_tokenizer(DEMO, 10**6)
    text = "Somebody wrote this sentence in the year 2023. " * 5
    assert {tuple(found(text)["input_ids"]) for _ in range(5)} == {tuple(exact(text)["input_ids"])}
