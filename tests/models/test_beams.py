"""Beam search in groups, against a slow search over lists and against torch's; its penalties against torch's."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rounding
from t5_files import VOCABULARY, write_t5

from tdd.models.beams import BeamSearch, penalised, search
from tdd.models.t5 import beams, generate, load_t5
from tdd.validate import InputError

PLAIN = BeamSearch(5, 1, 0.0, 1.0, 0)
CIRCULATING = BeamSearch()
SEARCHES = {
    "plain": PLAIN,
    "circulating": CIRCULATING,
    "groups of beams": BeamSearch(6, 2, 0.7, 1.3, 2),
    "one greedy beam": BeamSearch(1, 1, 0.0, 1.0, 0),
    "n-grams of three tokens": BeamSearch(3, 1, 0.0, 1.0, 3),
    "n-grams of one token": BeamSearch(4, 2, 1.5, 1.0, 1),
}
WORDS, LONGEST, START, END, PADDING, ROWS = 9, 7, 0, 1, 2, 6
CODES = 31
TABLE = np.random.default_rng(0).normal(0, 2, (ROWS, LONGEST, CODES, WORDS)).astype(np.float32)
"""Logits of a made model, by row, position and a code of the whole sequence."""


def code_after(code, token):
    return (7 * code + token + 3) % CODES


@functools.cache
def found_sequences(how):
    """The search, on the table; the state holds the codes, so that a beam that takes another's state is seen."""
    row = jnp.repeat(jnp.arange(ROWS), how.beams)

    def advance(codes, last, position):
        codes = code_after(codes, last[None])
        return jnp.asarray(TABLE)[row, position, codes[0]], codes

    codes = jnp.zeros((1, ROWS * how.beams), jnp.int32)
    how_long = {"rows": ROWS, "longest": LONGEST, "start": START, "end": END, "padding": PADDING}
    return np.asarray(jax.jit(lambda codes: search(advance, codes, how, **how_long))(codes))


def slow_penalties(log_probs, sequence, used, how):
    scores = [value - how.diversity_penalty * used.get(token, 0) for token, value in enumerate(log_probs)]
    for token in {*sequence}:
        by = how.repetition_penalty
        scores[token] = scores[token] * by if scores[token] < 0 else scores[token] / by
    if size := how.no_repeat_ngram:
        held = {tuple(sequence[at : at + size]) for at in range(len(sequence) - size + 1)}
        newest = sequence[len(sequence) - size + 1 :] if size > 1 else []
        for token in range(len(scores)):
            if len(newest) == size - 1 and (*newest, token) in held:
                scores[token] = -math.inf
    return scores


def slow_search(row, how):
    """Lists of (score, tokens) alone: the same definition, position by position, group by group."""
    width = how.beams // how.groups
    running = [[(0.0, [START])] for _ in range(how.groups)]
    ended = [[] for _ in range(how.groups)]
    is_open = [True] * how.groups
    for position in range(LONGEST):
        used = {}
        for group in range(how.groups):
            if not is_open[group]:
                continue
            candidates = []
            for total, sequence in running[group]:
                code = 0
                for token in sequence:
                    code = code_after(code, token)
                logits = TABLE[row, position, code].astype(np.float64)
                log_probs = logits - np.log(np.exp(logits).sum())
                scores = slow_penalties(log_probs, sequence, used, how)
                candidates += [(total + score, [*sequence, token]) for token, score in enumerate(scores)]
            best = sorted(candidates, key=lambda one: -one[0])[: 2 * width]
            for score, sequence in best[:width]:
                if sequence[-1] == END or position + 1 == LONGEST:
                    ended[group].append((score / (position + 1), sequence))
            ended[group] = sorted(ended[group], key=lambda one: -one[0])[:width]
            running[group] = [one for one in best if one[1][-1] != END][:width]
            for _, sequence in running[group]:
                used[sequence[-1]] = used.get(sequence[-1], 0) + 1
            hope = running[group][0][0] / (position + 1)
            is_open[group] = len(ended[group]) < width or hope > ended[group][-1][0]
    every = sorted((one for group in ended for one in group), key=lambda one: -one[0])
    return [sequence[1:] + [PADDING] * (LONGEST + 1 - len(sequence)) for _, sequence in every]


@pytest.mark.parametrize("name", SEARCHES)
def test_the_search_is_that_over_lists(name):
    how = SEARCHES[name]
    found = found_sequences(how)
    assert found.shape == (ROWS, how.beams, LONGEST)
    np.testing.assert_array_equal(found, [slow_search(row, how) for row in range(ROWS)])
    assert (found == END).any()
    assert len({tuple(one) for one in found.reshape(-1, LONGEST).tolist()}) >= ROWS


def test_each_option_matters():
    """A reference that ignored an option would agree with a search that does."""
    base = SEARCHES["groups of beams"]
    for change in (
        {"diversity_penalty": 0.0},
        {"repetition_penalty": 1.0},
        {"no_repeat_ngram": 0},
        {"groups": 1},
        {"beams": 4},
    ):
        other = dataclasses.replace(base, **change)
        assert any(slow_search(row, other)[:4] != slow_search(row, base)[:4] for row in range(ROWS)), change


def test_penalties_by_hand():
    """After 0 3 4 3: 0 and 3 stand there already, 4 would repeat the pair 3 4, two earlier groups have chosen 2."""
    log_probs = np.log(np.full((1, 1, 5), 0.2, np.float32))
    written = np.array([[[0, 3, 4, 3, 1, 1]]])  # the last two are not written yet
    used = np.array([[0.0, 0.0, 2.0, 0.0, 0.0]], np.float32)
    found = jax.jit(penalised, static_argnums=4)(log_probs, written, 3, used, BeamSearch())
    found = np.asarray(found)[0, 0] / np.log(0.2)
    rounding.assert_close(found, [10, 1, 1 - 6 / np.log(0.2), 10, np.inf], roundings=8)  # two logarithms of up to four


@pytest.mark.torch
@pytest.mark.parametrize("size", [1, 2, 3])
def test_penalties_are_those_of_torch(size):
    import torch
    from transformers.generation.logits_process import NoRepeatNGramLogitsProcessor, RepetitionPenaltyLogitsProcessor

    rng = np.random.default_rng(size)
    rows, width, words = 5, 3, 6
    for step in range(8):
        scores = rng.normal(-1, 1, (rows, width, words)).astype(np.float32)
        written = rng.integers(0, words, (rows, width, 8))
        ids = torch.tensor(written.reshape(-1, 8)[:, : step + 1])
        expected = RepetitionPenaltyLogitsProcessor(10.0)(ids, torch.tensor(scores.reshape(-1, words)))
        expected = NoRepeatNGramLogitsProcessor(size)(ids, expected).numpy().reshape(scores.shape)
        how = BeamSearch(diversity_penalty=0.0, no_repeat_ngram=size)
        found = penalised(jnp.asarray(scores), jnp.asarray(written), step, jnp.zeros((rows, words)), how)
        rounding.assert_close(found, expected, roundings=2)  # one product or quotient, here and there


SOURCE = np.random.default_rng(3).integers(2, VOCABULARY, (3, 19)).astype(np.int32)
MASK = np.arange(19) < np.array([[19], [12], [7]])


@pytest.mark.torch
@pytest.mark.parametrize(
    "how", [PLAIN, BeamSearch(5, 1, 0.0, 10.0, 2), BeamSearch(3, 1, 0.0, 1.5, 3)], ids=["plain", "penalties", "mild"]
)
def test_parity_with_torch(tmp_path, how):
    """From the perturbed T5, whose sequences end at different lengths."""
    import torch
    import transformers
    from family_files import word_tokenizer

    torch.manual_seed(0)
    write_t5(tmp_path / "start")
    model = transformers.T5ForConditionalGeneration.from_pretrained(tmp_path / "start", dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.08 * torch.randn_like(parameter))
        model.lm_head.weight[1] *= 1.5  # so that some end
    model.save_pretrained(tmp_path / "saved")
    word_tokenizer(VOCABULARY - 3).save_pretrained(tmp_path / "saved")
    spec, params, _ = load_t5(tmp_path / "saved")
    found = np.asarray(beams(spec, params, SOURCE, MASK, how, longest=20))
    with torch.no_grad():
        expected = model.generate(
            input_ids=torch.tensor(SOURCE, dtype=torch.long), attention_mask=torch.tensor(MASK, dtype=torch.long),
            max_new_tokens=20, do_sample=False, num_beams=how.beams, num_return_sequences=how.beams,
            repetition_penalty=how.repetition_penalty, no_repeat_ngram_size=how.no_repeat_ngram,
        ).numpy()  # fmt: skip
    padded = np.full((len(expected), 20), spec.padding)
    padded[:, : expected.shape[1] - 1] = expected[:, 1:]
    over = np.cumsum(padded == spec.end, 1) - (padded == spec.end) > 0
    padded[over] = spec.padding  # torch repeats the end where the padding has id 0
    np.testing.assert_array_equal(found.reshape(-1, 20), padded)
    assert len({*(found == spec.end).argmax(-1).ravel().tolist()}) > 1 or how is not PLAIN


def test_one_plain_beam_is_greedy(tmp_path):
    spec, params, _ = load_t5(write_t5(tmp_path))
    keys = jax.random.split(jax.random.key(0), len(SOURCE))
    greedy = generate(spec, params, SOURCE, MASK, keys, longest=12, temperature=0.0)
    found = beams(spec, params, SOURCE, MASK, BeamSearch(1, 1, 0.0, 1.0, 0), longest=12)
    np.testing.assert_array_equal(found[:, 0], greedy)


def test_padding_and_other_rows_change_nothing(tmp_path):
    spec, params, _ = load_t5(write_t5(tmp_path))
    whole = np.asarray(beams(spec, params, SOURCE, MASK, CIRCULATING, longest=12))
    garbled = np.where(MASK, SOURCE, 5)[::-1]
    np.testing.assert_array_equal(
        whole, np.asarray(beams(spec, params, garbled, MASK[::-1], CIRCULATING, longest=12))[::-1]
    )
    assert len({tuple(one) for one in whole[0].tolist()}) == 5  # no two are the same


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beams": 5, "groups": 2}, "beams=5 must be a multiple of groups=2"),
        ({"beams": 0}, "beams must be a positive number"),
        ({"diversity_penalty": -1.0}, "diversity_penalty=-1.0"),
        ({"no_repeat_ngram": -1}, "no_repeat_ngram=-1"),
    ],
)
def test_options_that_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        BeamSearch(**options)
