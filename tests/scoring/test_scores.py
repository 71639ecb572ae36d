"""Every score against its definition, and the errors that other tools make."""

import dataclasses
import functools
import math
import zlib
from fractions import Fraction

import jax
import numpy as np
import pytest
import rounding
from hypothesis import given, settings
from hypothesis import strategies as st
from padded_statistics import FIELDS, narrow, score_rows, stats_of

from tdd.scoring.scores.score import OWN, SCORES, parse_score
from tdd.validate import InputError

ALL = ("loss", "zlib", "lowercase", "reference", "min_k", "min_k_plus_plus", "m_entropy", "max_renyi", "grad_norm")
OTHERS = ("acmia", "surp", "dc_pdd", "camia", "diversity", "recall", "con_recall", "lira", "rmia", "fsd")
"""Scores whose tests are in test_token_scores.py, test_recall.py and test_reference_scores.py."""


def random_row(rng, n):
    return {
        "log_prob": -rng.exponential(3, n),
        "mu": -rng.exponential(3, n),
        "sigma": rng.exponential(1, n),
        **{name: rng.exponential(2, n) for name in ("renyi_half", "renyi_two", "renyi_inf", "m_entropy")},
    }


def reference(name, row, *, k=Fraction(1, 5), gamma=0.5):
    n = len(row["log_prob"])
    count = max(1, math.floor(k * n))
    if name == "min_k":
        return -np.mean(sorted(row["log_prob"])[:count])
    if name == "min_k_plus_plus":
        z = (row["log_prob"] - row["mu"]) / np.maximum(row["sigma"], 1e-6)
        return -np.mean(sorted(z)[:count])
    if name == "max_renyi":
        values = {0.5: row["renyi_half"], 1: -row["mu"], 2: row["renyi_two"], math.inf: row["renyi_inf"]}[gamma]
        return np.mean(sorted(values)[-count:])
    return {"loss": -np.mean(row["log_prob"]), "m_entropy": np.mean(row["m_entropy"])}[name]


@pytest.mark.parametrize("name", ["loss", "min_k", "min_k_plus_plus", "m_entropy", "max_renyi"])
def test_definition(name):
    rng = np.random.default_rng(0)
    rows = [random_row(rng, n) for n in (1, 2, 4, 5, 9, 10, 35, 100)]
    expected = [reference(name, row) for row in rows]
    np.testing.assert_allclose(score_rows(stats_of(rows), name), expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["loss", "min_k:k=0.3", "min_k_plus_plus", "m_entropy", "max_renyi:gamma=2"])
def test_numpy_and_jit_agree(name):
    rng = np.random.default_rng(1)
    stats = stats_of([random_row(rng, n) for n in (3, 8, 17)])
    got = jax.jit(functools.partial(score_rows, score=name))(narrow(stats))
    assert got.dtype == np.float32
    # up to 17 terms of one sign, each stored in float32, and a division; z has both signs and three roundings more
    magnitudes = np.where(stats.mask, (np.abs(stats.log_prob) + np.abs(stats.mu)) / stats.sigma, 0).max(axis=1)
    scale = magnitudes if name == "min_k_plus_plus" else None
    rounding.assert_close(got, score_rows(stats, name), roundings=17 + 5, scale=scale)


def test_min_k_of_few_tokens_is_never_empty():
    """floor(0.2 * 4) = 0: other tools return NaN, drop the text, or call it a member with score 0."""
    assert score_rows(stats_of([{"log_prob": [-1.0, -7.0, -2.0, -3.0]}]), "min_k").tolist() == [7.0]


def test_min_k_takes_the_least_likely_tokens():
    row = {"log_prob": np.log(np.linspace(0.1, 1, 10))}
    np.testing.assert_allclose(score_rows(stats_of([row]), "min_k"), -np.log([0.1, 0.2]).mean())


@pytest.mark.parametrize(("k", "n", "count"), [("0.29", 100, 29), ("0.2", 35, 7), ("0.7", 10, 7), ("1", 6, 6)])
def test_share_of_tokens_is_an_exact_decimal(k, n, count):
    """int(0.29 * 100) is 28 in floating point."""
    values = -np.arange(1.0, n + 1)
    expected = -np.sort(values)[:count].mean()
    assert score_rows(stats_of([{"log_prob": values}]), f"min_k:k={k}")[0] == pytest.approx(expected)
    stats = narrow(stats_of([{"log_prob": values}]))
    assert jax.jit(functools.partial(score_rows, score=f"min_k:k={k}"))(stats)[0] == pytest.approx(expected)


def test_sigma_floor():
    row = {"log_prob": [0.0, -2.0], "mu": [0.0, -1.0], "sigma": [0.0, 0.0]}
    np.testing.assert_allclose(score_rows(stats_of([row]), "min_k_plus_plus:k=1"), 0.5e6)


def test_max_renyi_of_share_zero_is_the_largest():
    row = {"renyi_inf": [0.1, 2.5, 0.3]}
    assert score_rows(stats_of([row]), "max_renyi:gamma=inf,k=0").tolist() == [2.5]


@pytest.mark.parametrize("gamma", ["0.5", "1/2", "1", "2", "inf"])
def test_max_renyi_orders(gamma):
    row = random_row(np.random.default_rng(2), 20)
    expected = reference("max_renyi", row, gamma=0.5 if gamma == "1/2" else float(gamma), k=Fraction(1, 10))
    got = score_rows(stats_of([row]), f"max_renyi:gamma={gamma},k=0.1")
    np.testing.assert_allclose(got, expected)


def test_zlib_divides_by_the_compressed_bytes():
    compressed = np.array([float(len(zlib.compress(b"abcabc")))])
    row = {"log_prob": [-1.0, -3.0]}
    got = score_rows(stats_of([row]), "zlib", {"compressed_bytes": compressed})
    assert got.tolist() == [2.0 / compressed[0]]


def test_lowercase_is_a_ratio_guarded_at_zero():
    stats = stats_of([{"log_prob": [-3.0]}, {"log_prob": [-1e-30]}, {"log_prob": [-1e-9]}])
    got = score_rows(stats, "lowercase", {"lowercase": np.array([2.0, 0.0, 1e-12])})
    assert got.tolist() == [1.5, 1.0, 1.0]


def test_reference_is_a_difference_with_the_sign_of_a_loss():
    """A text that the model knows better than the reference does scores below 0."""
    evidence = {"reference": np.array([[3.0]])}
    assert score_rows(stats_of([{"log_prob": [-1.0, -2.0]}]), "reference", evidence).tolist() == [-1.5]


def test_reference_with_another_tokenizer_is_per_byte():
    """Two tokens of 1.5 nats on 10 bytes against 0.25 nats a byte, the mean of two models."""
    evidence = {"reference": np.array([[0.1], [0.4]]), "tokens_per_byte": np.array([0.2])}
    got = score_rows(stats_of([{"log_prob": [-1.0, -2.0]}]), "reference", evidence)
    np.testing.assert_allclose(got, 0.3 - 0.25)


@pytest.mark.parametrize("name", ["loss", "min_k", "min_k_plus_plus", "m_entropy", "max_renyi"])
def test_rows_without_tokens_and_with_nan_are_nan(name):
    rng = np.random.default_rng(3)
    spoiled = {field: np.where(np.arange(5) == 2, np.nan, values) for field, values in random_row(rng, 5).items()}
    got = score_rows(stats_of([{"log_prob": []}, random_row(rng, 5), spoiled]), name)
    assert np.isnan(got).tolist() == [True, False, True]


def test_a_loss_of_zero_is_a_value():
    """Certain tokens are real tokens, not padding."""
    assert score_rows(stats_of([{"log_prob": [0.0, 0.0, -3.0]}]), "loss").tolist() == [1.0]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), extra=st.integers(0, 9), name=st.sampled_from(ALL))
def test_padding_and_order_of_rows_and_tokens_change_nothing(seed, extra, name):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 30, 5)
    rows = [random_row(rng, n) for n in lengths]
    evidence = {name: rng.exponential(1, 5) for name in ("compressed_bytes", "lowercase", "reference", "gradient")}
    plain = score_rows(stats_of(rows), name, evidence)
    order = rng.permutation(5)
    shuffled = [
        {field: values[p] for field, values in rows[i].items()} for i in order for p in [rng.permutation(lengths[i])]
    ]
    reordered = {key: values[order] for key, values in evidence.items()}
    moved = score_rows(stats_of(shuffled, max(lengths) + extra), name, reordered)
    np.testing.assert_allclose(moved, plain[order], rtol=1e-12)


def test_registry_names_what_it_holds():
    assert tuple(OWN) == (*ALL, *OTHERS)
    for name, score in ((name, SCORES[name]) for name in OWN):
        assert score.name == name
        assert set(score.statistics) <= {*FIELDS, "tokens"}
        assert hash(score()) == hash(parse_score(name))
        assert score() == parse_score(score().label) == parse_score(name)


@pytest.mark.parametrize("name", ["loss", "max_renyi:gamma=1", "max_renyi:gamma=2", "acmia:beta=1", "acmia:beta=2"])
def test_options_read_what_they_say(name):
    """Statistics that are not read may be anything; any other one shows in the score."""
    row = {**random_row(np.random.default_rng(3), 9), "rank": np.zeros(9)}
    request = parse_score(name)
    tokens = {"tokens": np.arange(9)[None]} if "tokens" in request.reads else {}
    assert set(request.reads) <= set(request.computed)
    for field in FIELDS:
        spoiled = dataclasses.replace(stats_of([{**row, field: np.full(9, np.nan)}]), **tokens)
        assert np.isnan(score_rows(spoiled, name)[0]) == (field in request.reads)


def test_parsing():
    request = parse_score(" max_renyi : gamma = inf , k = 0 ".replace(" :", ":"))
    assert request.parameters == {"gamma": math.inf, "k": 0}
    assert parse_score("min_k").parameters == {"k": Fraction(1, 5)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("perplexity", "no score 'perplexity'.*loss.*min_k_plus_plus"),
        ("min_k:gamma=2", "no parameter 'gamma'; it has k"),
        ("loss:k=1", "no parameter 'k'; it has reduction"),
        ("min_k:k", "cannot read the score"),
        ("min_k:", "cannot read the score"),
        ("min_k:k=.1,k=.2", "cannot read the score"),
        ("min_k:k=0", r"k=0 is not a fraction.*\(0, 1\]"),
        ("min_k:k=20", r"k=20 is not a fraction"),
        ("min_k:k=x", "k=x is not a fraction"),
        ("min_k:k=nan", "k=nan is not a fraction"),
        ("min_k:k=0.123456", "at most four decimals"),
        ("max_renyi:k=-1", r"\[0, 1\]"),
        ("max_renyi:gamma=0", "gamma=0 is no order of a Renyi entropy; give a number above 0, or inf"),
        ("max_renyi:gamma=-1", "gamma=-1 is no order of a Renyi entropy"),
        ("max_renyi:gamma=nan", "gamma=nan is no order of a Renyi entropy"),
        ("max_renyi:gamma=word", "gamma=word is no order of a Renyi entropy"),
    ],
)
def test_bad_names(text, message):
    with pytest.raises(InputError, match=message):
        parse_score(text)


def test_loss_as_a_sum():
    """PTDI's eq. 2: the mean times the number of scored tokens; a text without any has no score."""
    found = [[-0.5, -1.5, -4.0], [-2.0], []]
    sums = score_rows(stats_of([{"log_prob": one} for one in found]), "loss:reduction=sum")
    np.testing.assert_allclose(sums, [6.0, 2.0, np.nan])
    means = score_rows(stats_of([{"log_prob": one} for one in found]), "loss")
    np.testing.assert_allclose(means, [2.0, 2.0, np.nan])
    assert parse_score("loss:reduction=sum").label == "loss:reduction=sum"
    with pytest.raises(InputError, match="reduction='max' is unknown; use 'sum'"):
        parse_score("loss:reduction=max")
