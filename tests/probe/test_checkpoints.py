"""Evidence over saved checkpoints: the looks of a probe, identified, resumed, and equal to the test over scores."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scored_models import random_texts, scored_model

import tdd
from tdd.probe import over_checkpoints
from tdd.report import folder_report
from tdd.report.page import to_markdown
from tdd.validate import InputError

SUSPECTS, REFERENCES, OTHERS = (random_texts(30, seed=seed, shortest=10, longest=30) for seed in (1, 2, 3))
OPTIONS = {"alpha": 0.1, "num_draws": 499, "seed": 4}
CHECKPOINTS = 4


def trained(texts):
    """Checkpoints of a run of plain gradient descent on the texts, the first before it."""
    lm, params, tokenizer = scored_model(5)
    rows = [tokenizer([text], add_special_tokens=True)["input_ids"][0] for text in texts]
    tokens = np.zeros((len(rows), 32), np.int32)
    mask = np.zeros(tokens.shape, bool)
    for i, row in enumerate(rows):
        tokens[i, : len(row)], mask[i, 1 : len(row)] = row, True
    found = [(lm, params, tokenizer)]
    for _ in range(CHECKPOINTS - 1):
        params = descended(lm, params, tokens, mask)
        found.append((lm, params, tokenizer))
    return found


@functools.partial(jax.jit, static_argnums=0)
def descended(lm, params, tokens, mask):
    """Parameters after 20 steps."""

    def loss(params):
        log_p = jax.nn.log_softmax(lm.logits(params, tokens)[:, :-1])
        chosen = jnp.take_along_axis(log_p, tokens[:, 1:, None], -1)[..., 0]
        return -jnp.where(mask[:, 1:], chosen, 0).sum() / mask.sum()

    def step(_, params):
        return jax.tree.map(lambda leaf, slope: leaf - 0.5 * slope, params, jax.grad(loss)(params))

    return jax.lax.fori_loop(0, 20, step, params)


@pytest.fixture(scope="module")
def leaking():
    return trained(SUSPECTS)


@pytest.fixture(scope="module")
def clean():
    return trained(OTHERS)


@pytest.fixture(scope="module")
def whole(leaking):
    return over_checkpoints(leaking, SUSPECTS, REFERENCES, **OPTIONS)


def test_a_leak_raises_the_alarm_and_another_training_does_not(clean, whole):
    assert [record.step for record in whole.history] == [0, 1, 2, 3]
    assert not whole.history[0].alarm
    assert whole.alarm
    assert whole.num_looks == CHECKPOINTS
    assert not over_checkpoints(clean, SUSPECTS, REFERENCES, **OPTIONS).alarm


def test_the_evidence_is_that_of_the_test_over_scores(leaking, whole):
    texts = [*SUSPECTS, *REFERENCES]
    scores = np.stack([tdd.score(model, texts, "loss", progress=False)["loss"] for model in leaking])
    # ranks are those of float32 scores, as the probe has them
    found = tdd.trajectory_test(
        np.float32(scores), np.arange(len(texts)) < len(SUSPECTS), horizon=CHECKPOINTS, **OPTIONS
    )
    ours = [float(record.evidence.anytime_p_value) for record in whole.history]
    np.testing.assert_allclose(ours, found.anytime_p_value, rtol=0.02)
    assert [record.alarm for record in whole.history] == found.alarm.tolist()


def test_an_interrupted_run_continues_and_names_its_checkpoints(leaking, clean, whole, tmp_path, monkeypatch):
    loaded = []
    find = tdd.probe.checkpoints.find_model

    def at_most(count):
        def counted(name, model, *rest):
            if len(loaded) == count:
                raise KeyboardInterrupt
            loaded.append(model)
            return find(name, model, *rest)

        return counted

    monkeypatch.setattr("tdd.probe.checkpoints.find_model", at_most(2))
    with pytest.raises(KeyboardInterrupt):
        over_checkpoints(leaking, SUSPECTS, REFERENCES, out=tmp_path / "run", **OPTIONS)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["looks"] == 2
    loaded.clear()
    monkeypatch.setattr("tdd.probe.checkpoints.find_model", at_most(9))
    probe = over_checkpoints(leaking, SUSPECTS, REFERENCES, out=tmp_path / "run", **OPTIONS)
    assert len(loaded) == 3  # the first for its program, and the two that were left
    for again, once in zip(probe.history, whole.history, strict=True):
        assert again.evidence == once.evidence
        np.testing.assert_array_equal(again.result.suspect_scores, once.result.suspect_scores)

    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert [one["sha256"] for one in run["checkpoints"]] == [one["sha256"] for one in probe.checkpoints]
    _, report = folder_report(tmp_path / "run")
    assert "| checkpoint |" in to_markdown(report)
    with pytest.raises(InputError, match="is of another probe"):
        over_checkpoints(leaking[:3], SUSPECTS, REFERENCES, out=tmp_path / "run", **OPTIONS)
    with pytest.raises(InputError, match="is of another probe"):
        over_checkpoints(clean, SUSPECTS, REFERENCES, out=tmp_path / "run", **OPTIONS)


def test_how_to_run_as_a_value_or_as_keywords(leaking, whole):
    """Keywords stand in the place of the value's fields."""
    how = tdd.Run(device="cpu", max_length=64, long_texts="truncate", token_budget=256)
    short = over_checkpoints(leaking[:2], SUSPECTS, REFERENCES, **OPTIONS, run=how, max_length=12)
    assert (short.options.max_length, short.options.token_budget) == (12, 256)
    for near, far in zip(short.history, whole.history[:2], strict=True):
        assert np.abs(near.result.suspect_scores - far.result.suspect_scores).max() > 1e-3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"models": "gpt2"}, "must be a list of at least two checkpoints"),
        ({"models": []}, "must be a list of at least two"),
        ({"every": 5}, "every is not an option here"),
        ({"tokenizer": 3}, "tokenizer is not an option here"),
        ({"alpha": 2}, "alpha"),
        ({"run": tdd.Run(devices=1, store="s")}, r"devices=1, store='s': of no use to .* checkpoints; leave them out"),
        ({"long_texts": "window"}, "long_texts must be one of"),
    ],
)
def test_messages(leaking, change, words):
    given = {"models": leaking, "suspect": SUSPECTS, "reference": REFERENCES, **OPTIONS, **change}
    with pytest.raises(InputError, match=words):
        over_checkpoints(**given)


def test_two_equal_checkpoints_and_another_architecture(leaking):
    with pytest.raises(InputError, match=r"checkpoints 0 .* and 2 .* the same to the bit"):
        over_checkpoints([*leaking[:2], leaking[0]], SUSPECTS, REFERENCES, **OPTIONS)
    with pytest.raises(InputError, match=r"checkpoint 1 .* has another architecture"):
        over_checkpoints([leaking[0], scored_model(5, width=32)], SUSPECTS, REFERENCES, **OPTIONS)
