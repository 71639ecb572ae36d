"""Input that a probe refuses: each message names the argument, the value, and what to do."""

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import pytest
from adapted_models import reference_logits, weights
from flax import nnx
from probed import SMALL, small_probe, token_rows
from scored_models import random_texts, small_model
from word_tokenizer import word_tokenizer

import tdd
from tdd.probe.inputs import check_reachable
from tdd.validate import InputError

ROWS = token_rows(44)
WORDS = random_texts(44, shortest=24, longest=24)


def build(suspect=ROWS[:20], reference=ROWS[20:], lm=SMALL, **options):
    return tdd.Probe(lm, suspect, reference, **{"num_draws": 199, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lm": 3}, "lm is int; pass a LanguageModel"),
        ({"alpha": 0}, "alpha"),
        ({"alpha": 1.5}, "alpha"),
        ({"every": 0}, "every must be a whole number from 1 to .*, got 0"),
        ({"every": 2.5}, "every must be a whole number from 1 .*got 2.5"),
        ({"every": True}, "every must be a whole number .*got True"),
        ({"num_steps": 0}, "num_steps must be a whole number from 1 .*got 0"),
        ({"score": "los"}, "there is no score 'los'"),
        ({"score": "zlib"}, "score='zlib' needs more than .* choose one of loss, min_k"),
        ({"score": "reference"}, "score='reference' needs more"),
        ({"score": "grad_norm"}, "score='grad_norm' needs more"),
        ({"score": "min_k:k=2"}, "k=2 is not a fraction"),
        ({"proportion": "moment"}, "proportion must be one of 'none', 'subtraction', 'storey'"),
        ({"baseline": "last"}, "baseline must be one of 'first', 'none'"),
        ({"statistic": "mean"}, "statistic must be one of"),
        ({"long_texts": "window"}, "long_texts must be one of 'error', 'truncate'"),
        ({"token_budget": 0}, "token_budget=0"),
        ({"draws": 99}, "there is no option 'draws' of a probe; there are canaries, .*num_draws, and tdd.Run's"),
        ({"dtype": "bfloat16"}, "dtype='bfloat16': of no use to a probe, which looks at the parameters where they lie"),
        ({"run": tdd.Run(devices=2, store="s")}, "devices=2, store='s': of no use to a probe"),
        ({"max_length": 1}, "max_length=1"),
        ({"num_draws": 0}, "num_draws must be a whole number from 1"),
        (
            {"num_draws": 18, "num_steps": 9},
            "num_draws=18 relabellings cannot give .* alpha=0.05 or less; use at least 19",
        ),
        ({"num_draws": 19}, "num_draws=19 relabellings cannot give .*; use at least 20, and better 399"),
        ({"alpha": 0.03, "num_draws": 99}, "reference has 24 texts, .* 0.03 or less; give at least 33 references"),
        ({"suspect": ROWS[:1], "alpha": 0.045, "reference": ROWS[23:]}, "reference has 21 texts"),
        ({"suspect": []}, "suspect is empty"),
        ({"reference": ()}, "reference is empty"),
        ({"suspect": [[]]}, "suspect: text '1' has 0 tokens; scoring needs at least two"),
        ({"reference": [*ROWS[20:43], [7]]}, "reference: text '24' has 1 token; scoring"),
        ({"suspect": [[1.5, 2.0]]}, r"suspect\[0\] must be a row of token ids"),
        ({"suspect": [[1, 2], [[3], [4]]]}, r"suspect\[1\] must be a row of token ids"),
        ({"suspect": [[1, 2**40]]}, r"suspect\[0\] holds the token id 1099511627776"),
        ({"suspect": np.arange(9)}, r"suspect\[0\] must be a row of token ids"),
        (
            {"suspect": [[1, 2], [5, -100]], "lm": reference_logits},
            r"suspect\[1\] holds the token id -100; .*without its padding",
        ),
        ({"suspect": np.ones((2, 3))}, r"suspect\[0\] must be a row of token ids"),
        ({"seed": -1}, r"seed must be a whole number from 0 to 2\^32 - 1, got -1"),
        ({"seed": 1.5}, r"seed must be a whole number from 0 to 2\^32 - 1, got 1.5"),
        (
            {"num_draws": 10**9},
            "relabellings of 44 texts take 41.0 GiB; at most 97612892 fit in 4",
        ),
        ({"suspect": [*ROWS[:3], ROWS[1]]}, "stand in one role twice: '4' of suspect is '2' again; copies score alike"),
        ({"reference": [*ROWS[20:], ROWS[43]]}, "'25' of reference is '24' again"),
        ({"lm": nn.Dense(3)}, "lm is the flax module Dense itself; pass tdd.from_linen"),
        ({"lm": nnx.Linear(2, 3, rngs=nnx.Rngs(0))}, "lm is the flax module Linear itself"),
        ({"suspect": [[1, 300]]}, "suspect: text '1' has token id 300, but the model has a vocabulary of 300"),
        ({"suspect": [[1, -1]]}, r"suspect\[0\] holds the token id -1"),
        ({"suspect": WORDS}, "suspect holds strings but no tokenizer is given"),
        ({"suspect": "nowhere.jsonl"}, "no such file"),
        ({"suspect": [ROWS[3], ROWS[25]]}, "the same tokens stand in two roles: '6' of reference is '2' of suspect"),
        ({"canaries": ROWS[:2]}, "canaries is given without canary_reference"),
        ({"canary_reference": ROWS[:2]}, "canary_reference is given without canaries"),
        (
            {"canaries": token_rows(3, 1), "canary_reference": [ROWS[30], *token_rows(3, 1)[1:]]},
            "'1' of canary_reference is '11' of reference; '2' of canary_reference is '2' of canaries; '3' of",
        ),
    ],
)
def test_refused_before_anything_is_computed(options, message):
    with pytest.raises(InputError, match=message):
        build(**options)


def test_too_many_items():
    with pytest.raises(InputError, match="5 suspects and 262144 references are too many to rank exactly"):
        check_reachable(5, 2**18, 199, 0.05, num_looks=9)


def test_texts_longer_than_the_context():
    lm = small_model()[0]
    rows = token_rows(44, longest=80, shortest=60)
    length = len(rows[0])
    assert length > 64
    with pytest.raises(
        InputError, match=rf"suspect: text '1' has {length} tokens, more than the limit of 64 \(.*'trunc"
    ):
        build(rows[:20], rows[20:], lm)
    assert build(rows[:20], rows[20:], lm, long_texts="truncate").roles["reference"].num_cut > 0
    with pytest.raises(InputError, match="more than the limit of 20"):
        build(max_length=20)
    shared = [np.append(row, 7) for row in ROWS[:24]]  # apart from the references in what is cut off alone
    with pytest.raises(InputError, match="stand in two roles"):
        build([np.append(row, 8) for row in ROWS[:20]], shared, max_length=24, long_texts="truncate")


def test_equal_texts_are_found_behind_the_tokenizer():
    tokenizer = word_tokenizer(300)
    with pytest.raises(InputError, match="'1' of reference is '2' of suspect"):
        build(WORDS[:20], ["  " + WORDS[1].replace(" ", "  "), *WORDS[20:]], tokenizer=tokenizer)


def misbehaved(kind):
    def logits(params, tokens):
        found = reference_logits(params, tokens)
        return {
            "time": lambda: found[:, 1:],
            "flat": lambda: found.reshape(-1, found.shape[-1]),
            "whole": lambda: found.astype(jnp.int32),
            "several": lambda: (found, found),
            "half": lambda: found[..., :200],
        }[kind]()

    return logits


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("time", r"'logits' returned float32 of shape \(44, 23, 300\); expected floating logits .* = \(44, 24, V\)"),
        ("flat", r"returned float32 of shape \(1056, 300\)"),
        ("whole", r"returned int32 of shape \(44, 24, 300\); expected floating"),
        ("several", "returned tuple; expected one array"),
        ("half", "the texts hold token id 299, but the logits are those of a vocabulary of 200"),
    ],
)
def test_what_the_model_returns_is_checked_while_tracing(kind, message):
    probe = build(lm=misbehaved(kind))
    with pytest.raises(InputError, match=message):
        probe.evaluate(weights())
    with pytest.raises(InputError, match=message):
        probe(0, weights())
    assert probe.history == []


def test_a_language_model_that_breaks_its_promise():
    lm = tdd.LanguageModel("broken", 200, None, logits=lambda params, tokens: reference_logits(params, tokens))
    small = [row % 200 for row in ROWS]
    with pytest.raises(InputError, match=r"str returned float32 of shape \(44, 24, 300\); .* \(44, 24, 200\)"):
        build(small[:20], small[20:], lm).evaluate(weights())


@pytest.mark.parametrize("step", [-1, 1.0, "3", None, True, np.float32(2), np.arange(2)])
def test_no_step(step):
    with pytest.raises(InputError, match="must be the number of the training step, a whole number from 0"):
        build()(step, weights())


def test_a_step_before_the_last_look():
    probe = small_probe()
    probe(20, weights())
    assert probe(15, weights()) is None  # no look was due
    with pytest.raises(InputError, match=r"step=10 comes after step 20, .*load_state_dict"):
        probe(10, weights())
    assert len(probe.history) == 1


@pytest.mark.slow("long")
def test_nothing_finite_at_the_first_look():
    probe = small_probe()
    with pytest.raises(InputError, match="none of the 44 scores at the first look is finite"):
        probe(0, {name: leaf * np.nan for name, leaf in weights().items()})
    assert probe.history == []
    assert int(probe.state.look) == 0
    assert probe(0, weights()).look == 1
