"""The laboratory's byte-level BPE."""

import pytest
from transformers import AutoTokenizer

from tdd import InputError
from tdd.lab.corpus import generate
from tdd.lab.tokens import END_OF_TEXT, train_tokenizer

TEXTS = generate(150, seed=1).texts


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, vocab_size=500)


@pytest.mark.parametrize("text", [*TEXTS[:5], "naïve café — 東京 🦉", " leading\n\ttabs ", "a", "can't , wo n't ."])
def test_round_trip(tokenizer, text):
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_vocabulary_is_compact_and_adds_nothing_to_a_text(tokenizer):
    assert len(tokenizer) == 500
    assert sorted(tokenizer.get_vocab().values()) == list(range(500))
    end = tokenizer.convert_tokens_to_ids(END_OF_TEXT)
    assert end not in tokenizer(TEXTS[0])["input_ids"]
    assert len(tokenizer("z")["input_ids"]) == 1
    assert len(tokenizer(TEXTS[0])["input_ids"]) < len(TEXTS[0]) / 1.5


def test_training_is_reproducible(tokenizer):
    again = train_tokenizer(TEXTS, vocab_size=500)
    assert again.backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()


def test_saved_tokenizer_loads_without_network(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
    assert loaded.is_fast
    for text in TEXTS[:20]:
        assert loaded(text)["input_ids"] == tokenizer(text)["input_ids"]


@pytest.mark.parametrize(
    ("texts", "vocab_size", "named"),
    [
        ([], 500, "texts"),
        ("one text", 500, "single str"),
        (["a", ""], 500, r"texts\[1\]"),
        (["a"], 256, "256"),
    ],
)
def test_bad_arguments_are_named(texts, vocab_size, named):
    with pytest.raises(InputError, match=named):
        train_tokenizer(texts, vocab_size=vocab_size)
