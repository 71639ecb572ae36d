"""`tdd.score`: the same numbers whatever the batch, the order, an interruption or the memory; few compilations."""

import dataclasses
import functools
import logging
import math
import pathlib
import zlib

import jax
import numpy as np
import pytest
from given_scores import split, with_given
from scored_models import (
    VOCABULARY,
    Stopped,
    assert_same,
    log_p_of_tokens,
    losses_of_tokens,
    random_texts,
    rows_computed,
    scored_model,
    stop_after,
)
from word_tokenizer import word_tokenizer

from tdd.models.adapters import from_function
from tdd.records import Texts
from tdd.scoring import programs
from tdd.scoring.score import score
from tdd.scoring.store.address import fingerprint
from tdd.validate import InputError

ALL = ("loss", "zlib", "lowercase", "reference", "min_k", "min_k_plus_plus", "m_entropy", "max_renyi")
SUPPORT = pathlib.Path(__file__).resolve().parents[1] / "support"


@pytest.fixture(scope="module")
def model():
    return scored_model()


@pytest.fixture(scope="module")
def other_model():
    return scored_model(7)


@pytest.fixture(scope="module")
def texts():
    return random_texts(24)


@pytest.fixture(scope="module")
def plain(model, other_model, texts):
    return run(model, texts, ALL, reference=other_model)


def run(model, texts, scores=("loss", "min_k_plus_plus"), **options):
    given, options = split(options)
    scores = with_given(scores, **given) if given else scores
    return score(model, texts, scores, **{"token_budget": 256, "progress": False, **options})


def log_probs(model, text):
    """float64 log-softmax [T - 1, V] and targets of one text, by itself."""
    ids = np.array(model[2](text)["input_ids"])
    return log_p_of_tokens(model, [], ids), ids[1:]


def loss_of(model, text):
    log_p, ids = log_probs(model, text)
    return -log_p[np.arange(len(ids)), ids].mean()


def by_definition(model, other_model, text):
    log_p, ids = log_probs(model, text)
    p, rows = np.exp(log_p), np.arange(len(ids))
    taken, mu = log_p[rows, ids], (p * log_p).sum(-1)
    sigma = np.sqrt((p * np.square(log_p - mu[:, None])).sum(-1))
    count = max(1, len(ids) // 5)
    terms = p * np.log1p(-p)
    return {
        "loss": -taken.mean(),
        "zlib": -taken.mean() / len(zlib.compress(text.encode())),
        "lowercase": loss_of(model, text) / loss_of(model, text.lower()),
        "reference": loss_of(model, text) - loss_of(other_model, text),
        "min_k": -np.sort(taken)[:count].mean(),
        "min_k_plus_plus": -np.sort((taken - mu) / sigma)[:count].mean(),
        "m_entropy": (-(1 - p[rows, ids]) * taken - terms.sum(-1) + terms[rows, ids]).mean(),
        "max_renyi": np.sort(2 * np.log(np.sqrt(p).sum(-1)))[-count:].mean(),
    }


def test_all_scores_by_definition(plain, model, other_model, texts):
    for i in range(0, len(texts), 4):
        expected = by_definition(model, other_model, texts[i])
        got = {name: plain[name][i] for name in ALL}
        assert got == pytest.approx(expected, rel=1e-5, abs=1e-5)
    assert plain.num_tokens.tolist() == [len(text.split()) - 1 for text in texts]


def test_a_text_does_not_depend_on_its_batch(plain, model, other_model, texts):
    order = np.random.default_rng(0).permutation(len(texts))
    options = {"reference": other_model}
    shuffled = run(model, [texts[i] for i in order], ALL, token_budget=100, **options)
    alone = run(model, [texts[3]], ALL, token_budget=1, **options)
    for name in ALL:
        np.testing.assert_allclose(shuffled[name], plain[name][order], rtol=1e-5, atol=1e-6, err_msg=name)
        np.testing.assert_allclose(alone[name], plain[name][3:4], rtol=1e-5, atol=1e-6, err_msg=name)


def test_every_way_to_pass_texts_and_models(plain, model, texts):
    import pandas as pd

    lm, params, tokenizer = model
    table = Texts(ids=tuple(f"a{i}" for i in range(len(texts))), texts=tuple(texts), sha256="x")
    from_column = run(model, pd.Series(texts), "loss")
    from_records = run(lm, table, "loss", params=params, tokenizer=tokenizer)
    np.testing.assert_allclose(from_column["loss"], plain["loss"], rtol=1e-5)
    np.testing.assert_array_equal(from_records["loss"], from_column["loss"])
    assert from_records.ids == table.ids


def test_a_checkpoint_folder(plain, model, texts, tmp_path):
    from tdd.models.checkpoint import save

    save(tmp_path / "model", *model)
    got = run(tmp_path / "model", texts, "loss")
    np.testing.assert_allclose(got["loss"], plain["loss"], rtol=1e-5)
    assert got.provenance["model"] == str(tmp_path / "model")


@pytest.mark.slow("long")
def test_compilations_are_bounded_by_buckets(texts):
    """One trunk a bucket and one head for each kind of pass, partial last batches included."""
    lm, params, tokenizer = scored_model(3, width=24)
    traces = []
    spied = dataclasses.replace(lm, spec="counted", hidden=lambda p, t: traces.append(t.shape) or lm.hidden(p, t))
    heads = programs._head._cache_size()
    got = run((spied, params, tokenizer), texts, ALL, reference=(spied, params, tokenizer), token_budget=128)
    shapes = got.provenance["batch_shapes"]
    # eval_shape of a trace is no compilation: hidden is traced once a shape
    assert sorted(set(traces)) == sorted(shapes)
    assert len(traces) == len(shapes) <= 8
    new_heads = programs._head._cache_size() - heads
    assert new_heads == 2
    run((spied, params, tokenizer), texts, ALL, reference=(spied, params, tokenizer), token_budget=128)
    assert len(traces) == len(shapes)


@pytest.mark.slow("long")
def test_a_model_of_logits_alone(plain, model, texts):
    lm, params, tokenizer = model
    bare = dataclasses.replace(lm, spec="bare", hidden=None, readout=None)
    got = run((bare, params, tokenizer), texts, ("loss", "lowercase", "min_k_plus_plus"))
    for name in got.values:
        np.testing.assert_allclose(got[name], plain[name], rtol=1e-5)


@pytest.mark.parametrize("bos", [False, True])
def test_bos(bos):
    model = scored_model(bos=bos)
    got = run(model, ["w1 W2 w3"], "loss")
    assert got.provenance["prepends_bos"] is bos
    assert got.num_tokens.tolist() == [2 + bos]
    assert got["loss"][0] == pytest.approx(loss_of(model, "w1 W2 w3"), rel=1e-5)


def test_long_texts_are_scored_whole_in_windows():
    model = scored_model(positions=16)
    text = random_texts(1, seed=5, shortest=41, longest=41)[0]
    got = run(model, [text], ("loss", "min_k:k=1"), token_budget=32)
    ids = np.array(model[2](text)["input_ids"])
    taken = []
    for start, first, stop in ((0, 1, 16), (15, 16, 31), (25, 31, 41)):
        taken += [*-losses_of_tokens(model, [], ids[start:stop])[first - 1 - start :]]
    assert got.num_tokens.tolist() == [40]
    assert got.provenance["num_windows"] == 3
    assert got["loss"][0] == pytest.approx(-np.mean(taken), rel=1e-5)
    assert got["min_k:k=1"][0] == pytest.approx(got["loss"][0], rel=1e-9)


def test_truncated_texts_lose_text_and_tokens_alike():
    model = scored_model(positions=16)
    text = random_texts(1, seed=5, shortest=41, longest=41)[0]
    cut = " ".join(text.split()[:16])
    got = run(model, [text], ("loss", "zlib", "lowercase"), long_texts="truncate")
    expected = run(model, [cut], ("loss", "zlib", "lowercase"))
    assert_same(got, expected, 1e-5)
    shorter = run(model, [text], "loss", long_texts="truncate", max_length=8)
    assert shorter.num_tokens.tolist() == [7]


def test_long_texts_may_be_an_error(model):
    small = scored_model(positions=16)
    texts = ["w1 w2", *random_texts(3, seed=5, shortest=17, longest=41), "w3 w4"]
    count = len(texts[1].split())
    message = (
        rf"text '2' has {count} tokens under the tokenizer of the model, more than the limit of 16 \(2 further texts "
        r"are too long as well\); shorten it, or pass long_texts='window'"
    )
    with pytest.raises(InputError, match=message):
        run(small, texts, "loss", long_texts="error")
    with pytest.raises(InputError, match=r"tokenizer of the reference model, more than the limit of 16 \(2 further"):
        run(model, texts, "reference", reference=small, long_texts="error")
    fitting = [text for text in texts if len(text.split()) <= 16]
    assert_same(run(small, fitting, "loss", long_texts="error"), run(small, fitting, "loss"))
    with pytest.raises(InputError, match="limit of 8 "):
        run(model, texts, "loss", long_texts="error", max_length=8)


def test_a_reference_with_other_tokens_and_a_shorter_context_is_per_byte(model, texts):
    smaller = scored_model(5, positions=16, bos=True)
    got = run(model, texts, "reference", reference=smaller)
    text = texts[0]
    ids = text.split()
    own = loss_of(model, text) * (len(ids) - 1) / len(text[len(ids[0]) :].encode())
    windows = run(smaller, [text], "loss")["loss"][0] * len(ids) / len(text.encode())
    assert got["reference"][0] == pytest.approx(own - windows, rel=1e-5)


def test_scores_that_do_not_exist_are_nan_and_counted(model, caplog):
    class Shrinking:
        """Lowercased texts of this tokenizer have one token."""

        def __call__(self, texts, add_special_tokens=True):
            return {"input_ids": [[5] if text.islower() else [5, 6, 7] for text in texts]}

        def decode(self, ids, skip_special_tokens=False):
            return "W" * len(ids)

    with caplog.at_level(logging.WARNING, "tdd"):
        got = run((*model[:2], Shrinking()), ["Wxyz"], ("loss", "lowercase"))
    assert np.isfinite(got["loss"]).all()
    assert np.isnan(got["lowercase"]).all()
    assert "lowercase does not exist for 1 of 1" in caplog.text


def test_an_interrupted_run_continues_with_the_same_bits(plain, model, other_model, texts, tmp_path, monkeypatch):
    options = {"reference": other_model, "store": tmp_path}
    started = rows_computed(monkeypatch)
    with pytest.raises(Stopped):
        run(model, texts, ALL, on_batch=stop_after(5), **options)
    started.clear()
    totals = []
    got = run(model, texts, ALL, on_batch=lambda done, total: totals.append(total), **options)
    assert len(started) == totals[0] - 5
    assert_same(got, plain)
    started.clear()
    assert_same(run(model, texts, ALL, **options), plain)
    assert not started


def test_a_fingerprint_does_not_depend_on_how_it_is_read(model, monkeypatch):
    from tdd.scoring.store import address

    lm, params, _ = model
    expected = fingerprint(lm.spec, params)
    monkeypatch.setattr(address, "_PIECE", 100)
    assert fingerprint(lm.spec, params) == expected
    assert fingerprint(lm.spec, jax.tree.map(np.asarray, params)) == expected
    leaf = np.zeros((7, 5), np.float32)
    assert [piece.shape for piece in address._pieces(leaf)] == [(5, 5), (2, 5)]


@functools.cache
def real_memory_error():
    """What this machine's JAX says when it is asked for more than there is; a GPU runs no program of 2^58 numbers."""
    size = 2**58 if jax.default_backend() == "cpu" else 2**40
    try:
        jax.block_until_ready(jax.jit(lambda: jax.numpy.zeros(size, np.float32))())
    except Exception as error:
        return error
    raise AssertionError("a machine with an exbibyte of memory")


def limit_rows(monkeypatch, name, most):
    """The program fails as if out of memory where a batch has more rows; returns the rows of every call."""
    original, rows = getattr(programs, name), []

    def limited(lm, where, params, tokens, *rest, **options):
        rows.append(tokens.shape[0])
        if tokens.shape[0] > most:
            raise real_memory_error()
        return original(lm, where, params, tokens, *rest, **options)

    monkeypatch.setattr(programs, name, limited)
    return rows


def test_memory_errors_halve_the_batch(plain, model, other_model, texts, monkeypatch, caplog):
    limit_rows(monkeypatch, "_trunk", 2)
    with caplog.at_level(logging.WARNING, "tdd"):
        got = run(model, texts, ALL, reference=other_model)
    assert_same(got, plain, 1e-5)
    assert "out of memory: going on with batches of" in caplog.text


def test_memory_errors_of_a_model_of_logits_alone(plain, model, texts, monkeypatch, caplog):
    lm, params, tokenizer = model
    bare = dataclasses.replace(lm, spec="bare", hidden=None, readout=None)
    rows = limit_rows(monkeypatch, "_from_logits", 1)
    with caplog.at_level(logging.WARNING, "tdd"):
        got = run((bare, params, tokenizer), texts, ("loss", "min_k"))
    np.testing.assert_allclose(got["loss"], plain["loss"], rtol=1e-5)
    np.testing.assert_allclose(got["min_k"], plain["min_k"], rtol=1e-5)
    assert max(rows) > 1 == rows[-1]
    assert "out of memory: going on with batches of 1 row of" in caplog.text


def test_a_checkpoint_that_does_not_fit(model, texts, tmp_path, monkeypatch):
    from tdd.models.checkpoint import save

    def full(*_, **__):
        raise real_memory_error()

    save(tmp_path / "model", *model)
    monkeypatch.setattr("tdd.scoring.models.load", full)
    with pytest.raises(InputError, match=r"the parameters do not fit: each of .* must hold all of them; use dtype="):
        run(tmp_path / "model", texts, "loss")


def test_memory_errors_of_a_single_row_are_raised(model, texts, monkeypatch):
    def never(*_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: no")

    monkeypatch.setattr(programs, "_trunk", never)
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
        run(model, texts)


def test_other_errors_are_raised(model, texts, monkeypatch):
    def broken(*_):
        raise jax.errors.JaxRuntimeError("INTERNAL: broken")

    monkeypatch.setattr(programs, "_trunk", broken)
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"):
        run(model, texts)


def test_dtype_and_device(model, texts):
    narrow = run(model, texts, "loss", dtype="bfloat16", device="cpu:0")
    wide = run(model, texts, "loss")
    np.testing.assert_allclose(narrow["loss"], wide["loss"], rtol=0.02)
    assert not np.array_equal(narrow["loss"], wide["loss"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scores": ()}, "scores is empty"),
        ({"scores": None}, "scores=None is neither a name nor a sequence of names"),
        ({"scores": ("loss", "loss")}, "'loss' more than once"),
        ({"scores": ("perplexity",)}, "no score 'perplexity'; existing scores are loss"),
        ({"scores": ("reference",)}, "needs a model that was not trained on the texts: give model="),
        ({"token_budget": 0}, "token_budget=0"),
        ({"max_length": 1}, "max_length=1 must be"),
        ({"max_length": 65}, "max_length=65 exceeds the 64 positions"),
        ({"long_texts": "cut"}, "long_texts='cut' is unknown"),
        ({"device": "abacus"}, "device='abacus' is not available; JAX sees"),
        ({"device": "cpu:77"}, "device='cpu:77' is not available"),
        ({"device": "cpu:-1"}, "device='cpu:-1' is not available"),
    ],
)
def test_bad_options(model, texts, options, message):
    with pytest.raises(InputError, match=message):
        run(model, texts, **options)


def test_bad_models_and_texts(model, other_model, texts):
    lm, params, _ = model
    with pytest.raises(InputError, match=r"reference belongs to the scores that need it: .*reference:model=.*Lira\("):
        score(model, texts, reference=other_model)
    with pytest.raises(InputError, match="model is a LanguageModel without tokenizer"):
        run(lm, texts, params=params)
    with pytest.raises(InputError, match="model is int"):
        run(3, texts)
    with pytest.raises(InputError, match="tuple of 2"):
        run((lm, params), texts)
    with pytest.raises(InputError, match=r"text '2' has 1 token .*remove the text or lengthen it"):
        run(model, ["w1 w2", "w3"])
    with pytest.raises(InputError, match=rf"token id 399 \('w199'\), but the model has a vocabulary of {VOCABULARY}"):
        run((lm, params, word_tokenizer(400)), ["w1 w199 w2"])


def test_num_tokens_and_nan_free(plain):
    for name in ALL:
        assert plain[name].dtype == np.float64
        assert all(math.isfinite(value) for value in plain[name])


def test_parameters_that_are_no_arrays(tmp_path):
    """A Python number and a typed key among them: in another type, and in a store."""

    def logits(params, tokens):
        return params["e"][tokens] @ params["e"].T * params["scale"]

    table = np.random.default_rng(0).normal(size=(VOCABULARY, 4)).astype(np.float32)
    lm = from_function(logits, vocab_size=VOCABULARY, name="scaled")
    params = {"e": table, "scale": 2.0, "key": jax.random.key(0)}
    model = lm, params, scored_model()[2]
    plain = run(model, random_texts(3), "loss")
    np.testing.assert_array_equal(run(model, random_texts(3), "loss", store=tmp_path / "store")["loss"], plain["loss"])
    half = run(model, random_texts(3), "loss", dtype="bfloat16")
    np.testing.assert_allclose(half["loss"], plain["loss"], rtol=0.02)
    assert fingerprint("m", params) != fingerprint("m", params | {"key": jax.random.key(1)})


def test_a_tokenizer_that_only_encodes(model, texts):
    """A callable without `decode` suffices, but where models have other tokens."""
    lm, params, tokenizer = model
    few = texts[:3]

    def encodes(texts, add_special_tokens=True):
        return {"input_ids": tokenizer(texts, add_special_tokens=add_special_tokens)["input_ids"]}

    def halves(texts, add_special_tokens=True):
        return {"input_ids": [ids[::2] + ids[:1] for ids in encodes(texts)["input_ids"]]}

    found = run((lm, params, encodes), few, "loss")
    np.testing.assert_array_equal(found["loss"], run(model, few, "loss")["loss"])
    run((lm, params, encodes), few, "reference", reference=(lm, params, encodes))
    with pytest.raises(InputError, match="models with different tokenizers are compared per byte of text"):
        run((lm, params, encodes), few, "reference", reference=(lm, params, halves))
