"""A tokenizer.json from a stranger: what makes a text fill the memory is refused before it is asked for tokens."""

import json

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import AutoTokenizer

from tdd.demo.data import demo_files
from tdd.models.configuration import read_tokenizer
from tdd.models.tokenizer_limits import check_tokenizer_file
from tdd.validate import InputError


def written(folder, **parts):
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "[B]": 1}, "a"))
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


GROWING = {
    "one": {"normalizer": normalizers.Replace("a", "b" * 10**6)},
    "pattern": {"normalizer": normalizers.Replace(Regex("x*"), "b" * 1000)},
    "sequence": {"normalizer": normalizers.Sequence([normalizers.Replace("a", "a" * 200)] * 4)},
    "nested": {"normalizer": normalizers.Sequence([normalizers.Sequence([normalizers.Replace("a", "a" * 40)])] * 2)},
    "prepend": {"normalizer": normalizers.Prepend("b" * 1001)},
    "decoder": {"decoder": decoders.Sequence([decoders.Replace("a", "a" * 40)] * 2)},
}


@pytest.mark.parametrize("name", GROWING)
def test_what_lengthens_a_text_without_bound_is_refused(name, tmp_path):
    file = written(tmp_path, **GROWING[name])
    with pytest.raises(InputError, match=r"tokenizer\.json: its \w+ can (make a text|add) [\d,]+ .* at most 1,000"):
        check_tokenizer_file(file)
    with pytest.raises(InputError, match="at most 1,000"):
        read_tokenizer(tmp_path)


@pytest.mark.parametrize("value", ["", "x", [], {"a": 1}, True])
def test_a_longest_text_that_is_no_number_is_refused(value, tmp_path):
    written(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": value}))
    with pytest.raises(InputError, match=r"model_max_length=.*, which is no number"):
        read_tokenizer(tmp_path)


def test_a_template_of_many_tokens_is_refused(tmp_path):
    template = processors.TemplateProcessing(single="[B] " * 1001 + "$A", special_tokens=[("[B]", 1)])
    with pytest.raises(InputError, match=r"its post_processor can add 1,002 tokens to a text"):
        check_tokenizer_file(written(tmp_path, post_processor=template))


def test_usual_parts_are_read(tmp_path):
    usual = normalizers.Sequence([
        normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581"), normalizers.Replace("``", '"'),
        normalizers.Replace(Regex(" {2,}"), " "), normalizers.NFKC(), normalizers.Lowercase(),
    ])  # fmt: skip
    template = processors.TemplateProcessing(single="[B] $A [B]", special_tokens=[("[B]", 1)])
    parts = {"normalizer": usual, "post_processor": template, "pre_tokenizer": pre_tokenizers.Metaspace()}
    check_tokenizer_file(written(tmp_path, **parts))
    check_tokenizer_file(demo_files().checkpoint / "tokenizer.json")
    assert AutoTokenizer.from_pretrained(demo_files().checkpoint) is not None


@pytest.mark.parametrize("content", ["", "[]", '{"normalizer": 1}', '{"normalizer": {"normalizers": [[], null]}}', "{"])
def test_damaged_files_are_left_to_who_reads_them(content, tmp_path):
    (tmp_path / "tokenizer.json").write_text(content)
    check_tokenizer_file(tmp_path / "tokenizer.json")
    odd = {"post_processor": {"special_tokens": {"x": 1}, "single": [3, {"SpecialToken": []}], "processors": [None]}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(odd))
    check_tokenizer_file(tmp_path / "tokenizer.json")
    check_tokenizer_file(tmp_path / "absent.json")
