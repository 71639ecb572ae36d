"""ACMIA, SURP, DC-PDD and CAMIA's signals, each against its authors' formula written again over whole distributions."""

import dataclasses
import functools
import itertools
import math

import jax
import numpy as np
import padded_statistics
import pytest
from given_scores import with_given
from padded_statistics import narrow, stats_of
from scored_models import log_p_of_tokens, random_texts, scored_model

import tdd
from tdd.records import TokenStats
from tdd.scoring.corpus import Corpus, read_corpus
from tdd.scoring.scores.score import parse_score
from tdd.validate import InputError

NAMES = (
    "acmia", "acmia:beta=1", "acmia:beta=2", "surp", "surp:k=0.5,entropy=3", "dc_pdd", "dc_pdd:cap=0.5", "diversity",
    *(f"camia:signal={signal},first=60" for signal in
      ("loss", "above", "above_prefix", "slope", "lempel_ziv", "approximate_entropy")),
)  # fmt: skip
V = 12


@pytest.fixture(scope="module")
def tiny_model():
    return scored_model(3)


def sequence(seed, n):
    """Distributions [n, V] and targets [n]: sometimes certain, often repeated."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, V)) * rng.choice([0.5, 2.0, 5.0], (n, 1))
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return log_p, rng.integers(0, V, n)


def stats_row(log_p, targets):
    p = np.exp(log_p)
    mu = (p * log_p).sum(-1)
    return {
        "log_prob": log_p[np.arange(len(targets)), targets],
        "mu": mu,
        "sigma": np.sqrt((p * (log_p - mu[:, None]) ** 2).sum(-1)),
        "renyi_half": 2 * np.log(np.sqrt(p).sum(-1)),
        "renyi_two": -np.log((p**2).sum(-1)),
    }


def stats(rows, length=None):
    """Padded statistics, with tempting ids in the padding."""
    found = stats_of([stats_row(*row) for row in rows], length)
    tokens = np.zeros(found.mask.shape, int)
    for row, (_, targets) in zip(tokens, rows, strict=True):
        row[: len(targets)] = targets
        row[len(targets) :] = targets[0]
    return TokenStats(**{**vars(found), "tokens": tokens})


def first_indices(targets):
    return [i for i, target in enumerate(targets) if target not in targets[:i]]


def phrases(symbols):
    """The phrases of the Lempel-Ziv parsing, as a set of strings."""
    found, begin, width = set(), 0, 1
    while begin + width <= len(symbols):
        phrase = tuple(symbols[begin : begin + width])
        if phrase in found:
            width += 1
        else:
            found.add(phrase)
            begin, width = begin + width, 1
    return len(found)


def approximate_entropy(x, m, r):
    n = len(x)
    if n <= m + 1:
        return 0.0

    def phi(m):
        runs = [x[i : i + m] for i in range(n - m + 1)]
        shares = [np.mean([np.abs(a - b).max() <= r * np.std(x) for b in runs]) for a in runs]
        return np.mean(np.log(shares))

    return abs(phi(m) - phi(m + 1))


def expected(name, log_p, targets, log_frequency):
    request = parse_score(name)
    options, n = request.parameters, len(targets)
    chosen = log_p[np.arange(n), targets]
    first = first_indices(targets.tolist())
    if request.name == "acmia":
        beta = options["beta"]
        if beta == 1:
            return -np.mean((chosen - (np.exp(log_p) * log_p).sum(-1))[first])
        tempered = beta * log_p
        tempered = tempered - np.log(np.exp(tempered).sum(-1, keepdims=True))
        gap = tempered[np.arange(n), targets] - chosen
        return -np.mean(gap[first]) * (1 if beta > 1 else -1)
    if request.name == "surp":
        least = np.argsort(chosen)[: max(1, math.floor(options["k"] * n))]
        certain = [i for i in least if -(np.exp(log_p[i]) * log_p[i]).sum() < options["entropy"]]
        return -np.mean(chosen[certain] if certain else chosen[least])
    if request.name == "dc_pdd":
        divergence = np.exp(chosen) * np.log(1 / np.exp(log_frequency[targets]))
        return -np.mean(np.minimum(divergence, options["cap"])[first])
    if request.name == "diversity":
        return -np.mean(chosen) / (len(set(targets.tolist())) / n)
    x = chosen[: options["first"]]
    if options["signal"] == "slope":
        return -np.polyfit(range(len(x)), x, 1)[0] if len(x) > 1 else np.nan
    if options["signal"] == "lempel_ziv":
        level = np.digitize(x, np.linspace(x.min(), 0, 100), right=True)
        edges = np.linspace(level.min(), level.max(), 4)[1:]
        return phrases(np.searchsorted(edges, level, side="left").tolist()) / len(x)
    if options["signal"] == "approximate_entropy":
        return approximate_entropy(x, 8, 0.8)
    if options["signal"] == "above_prefix":
        return -np.mean([x[t] > np.mean(x[:t]) for t in range(1, len(x))]) if len(x) > 1 else np.nan
    return {"loss": -np.mean(x), "above": -np.mean(x >= -1)}[options["signal"]]


LENGTHS = (1, 2, 3, 9, 10, 11, 31, 59, 60, 61, 100)
FREQUENCY = np.log(np.arange(1, V + 1) / np.arange(1, V + 1).sum())


def score_rows(stats, name, log_frequency=None):
    score = parse_score(name)
    if score.name == "dc_pdd":
        score = dataclasses.replace(score, corpus=Corpus(log_frequency, V, tdd.load_texts(["a"])))
    return padded_statistics.score_rows(stats, score)


@pytest.mark.parametrize("name", NAMES)
def test_definition(name):
    rows = [sequence(seed, n) for seed, n in enumerate(LENGTHS)]
    found = score_rows(stats(rows), name, FREQUENCY)
    np.testing.assert_allclose(found, [expected(name, *row, FREQUENCY) for row in rows], rtol=1e-9, atol=1e-12)


def test_no_definition_is_another():
    values = [expected(name, *sequence(3, 80), FREQUENCY) for name in NAMES]
    assert all(abs(a - b) > 1e-3 for a, b in itertools.combinations(values, 2))


@pytest.mark.parametrize("name", NAMES)
def test_padding_gaps_and_order_of_rows_change_nothing(name):
    rows = [sequence(seed, n) for seed, n in enumerate((5, 40, 12))]
    plain = score_rows(stats(rows), name, FREQUENCY)
    wide = stats(rows[::-1], 64)
    np.testing.assert_allclose(score_rows(wide, name, FREQUENCY)[::-1], plain, rtol=1e-12)
    # columns that are not scored before and between the scored ones, as the first token of a text is
    spread = np.flatnonzero(np.arange(80) % 3 > 0)[:40]
    apart = stats(rows)
    given = {key: value for key, value in vars(apart).items() if key != "renyi"}  # none is asked for
    fields = {key: np.full((3, 80), 7 if key == "tokens" else 0.5, value.dtype) for key, value in given.items()}
    for key, value in given.items():
        fields[key][:, spread] = value
    fields["mask"] = np.zeros((3, 80), bool)
    fields["mask"][:, spread] = apart.mask
    np.testing.assert_allclose(score_rows(TokenStats(**fields), name, FREQUENCY), plain, rtol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_numpy_and_jit_agree(name):
    rows = [sequence(seed, n) for seed, n in enumerate((3, 20, 50))]
    given = stats(rows)
    traced = narrow(given)
    traced = TokenStats(**{**vars(traced), "tokens": np.int32(given.tokens)})
    found = jax.jit(functools.partial(score_rows, name=name, log_frequency=np.float32(FREQUENCY)))(traced)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, score_rows(given, name, FREQUENCY), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_rows_without_tokens_and_with_nan_are_nan(name):
    rows = [sequence(1, 8), sequence(2, 8), sequence(3, 8)]
    given = stats(rows)
    given.mask[0] = False
    given.log_prob[1, 2] = np.nan
    assert np.isnan(score_rows(given, name, FREQUENCY)).tolist() == [True, True, False]


def test_without_ids_the_message_says_what_is_missing():
    with pytest.raises(InputError, match=r"TokenStats\.tokens"):
        score_rows(stats_of([{"log_prob": [-1.0]}]), "diversity")


def test_token_stats_carries_the_ids(tiny_model):
    lm, params, _ = tiny_model
    tokens = np.array([[1, 2, 2, 3, 0]], np.int32)
    found = jax.tree.map(np.asarray, jax.jit(tdd.token_stats, static_argnums=0)(lm, params, tokens, tokens > 0))
    assert found.tokens.tolist() == [[0, 2, 2, 3, 0]]
    rest = found.log_prob[0, 1:4]
    np.testing.assert_allclose(score_rows(found, "diversity")[0], -rest.mean() / (2 / 3), rtol=1e-5)


def test_all_at_once_are_what_the_model_says(tiny_model):
    """`tdd.score` against the formulas on the model's whole distributions; windows are joined before."""
    lm, _, tokenizer = tiny_model
    texts = random_texts(12, seed=2, shortest=5)
    corpus = random_texts(30, seed=9, shortest=5)
    table = tdd.score(tiny_model, texts, with_given(NAMES, corpus=corpus), progress=False)
    counts = np.zeros(lm.vocab_size)
    for text in corpus:
        np.add.at(counts, tokenizer([text], add_special_tokens=False)["input_ids"][0], 1)
    log_frequency = np.log((counts + 1) / (counts.sum() + lm.vocab_size))
    for i, text in enumerate(texts):
        ids = np.array(tokenizer([text], add_special_tokens=True)["input_ids"][0])
        log_p = log_p_of_tokens(tiny_model, [], ids)
        for name in NAMES:
            np.testing.assert_allclose(
                table[name][i], expected(name, log_p, ids[1:], log_frequency), rtol=1e-5, atol=1e-5, err_msg=name
            )
    assert table.provenance["corpus"]["tokens"] == counts.sum()
    assert table.provenance["corpus"]["texts"] == 30


def test_texts_of_the_corpus_are_not_scored(tiny_model):
    texts = random_texts(4, seed=2, shortest=5)
    with pytest.raises(InputError, match=r"1 of the texts to score is in corpus: '2'"):
        tdd.score(tiny_model, texts, tdd.scores.DcPdd(corpus=["other words", f" {texts[1]}\n"]), progress=False)


@pytest.mark.parametrize(
    ("scores", "options", "message"),
    [
        ("dc_pdd", {}, "'dc_pdd' needs a corpus of texts: give corpus="),
        ("dc_pdd", {"corpus": Corpus(np.zeros(3), 3, tdd.load_texts(["a"]))}, "frequencies of 3 tokens"),
        ("acmia:beta=3", {}, "beta='3' is unknown; the inverse temperatures are"),
        ("surp:entropy=-1", {}, "entropy=-1 must be a finite number above 0"),
        ("surp:entropy=x", {}, "entropy=x must be"),
        ("dc_pdd:cap=0", {}, "cap=0 must be"),
        ("camia:signal=mean", {}, "signal='mean' is unknown; the signals are loss, above"),
        ("camia:first=1", {}, "first=1 is not a number of tokens"),
        ("camia:first=x", {}, "first=x is not"),
    ],
)  # fmt: skip
def test_messages(tiny_model, scores, options, message):
    with pytest.raises(InputError, match=message):
        tdd.score(tiny_model, ["one two three"], with_given(scores, **options), progress=False)


def test_a_counted_corpus_is_taken_as_it_is(tiny_model):
    lm, _, tokenizer = tiny_model
    counted = read_corpus(tdd.load_texts(random_texts(5, seed=1)), tokenizer, lm.vocab_size)
    assert read_corpus(counted, tokenizer, lm.vocab_size) is counted
    assert math.isclose(np.exp(counted.log_frequency).sum(), 1)
