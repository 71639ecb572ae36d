"""A probe in a training loop: three lines, no retrace, donated and traced parameters, evidence over the looks."""

import logging

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import training_settings
from adapted_models import VOCABULARY, reference_logits, weights
from probed import small_probe, token_rows

import tdd


def scores_of(record):
    return np.concatenate([record.result.suspect_scores, record.result.reference_scores])


class Model(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        return nn.Dense(VOCABULARY)(nn.Embed(VOCABULARY, 16)(tokens))


def test_settings_that_find_errors_of_a_training_do_not_stop_a_look():
    """The same records as without; and the training goes on under the settings that it chose."""
    params = weights()
    plain = small_probe(every=5, num_steps=20)
    expected = [plain(step, params) for step in (0, 5)]
    with training_settings.strict():
        probe = small_probe(every=5, num_steps=20)
        records = [probe(step, params) for step in (0, 5)]
    for ours, theirs in zip(records, expected, strict=True):
        np.testing.assert_array_equal(scores_of(ours), scores_of(theirs))
        np.testing.assert_array_equal(ours.evidence.anytime_p_value, theirs.evidence.anytime_p_value)
        np.testing.assert_array_equal(ours.adjusted, theirs.adjusted)


def test_a_look_without_compilation():
    probe, plain = (small_probe(every=5, num_steps=20) for _ in range(2))
    with jax.disable_jit():
        record = probe(0, weights())
    np.testing.assert_allclose(scores_of(record), scores_of(plain(0, weights())), rtol=1e-5)


@pytest.mark.slow("long")
def test_three_lines_in_a_flax_and_optax_loop():
    """Half of every batch are suspects. The training step donates the parameters that the probe has just been given."""
    model, optimizer, suspects = Model(), optax.adam(0.03), np.stack(token_rows(44)[:20])
    params = model.init(jax.random.key(0), suspects)
    state, batches = optimizer.init(params), np.stack(token_rows(400, 1)).reshape(20, 20, -1)

    def loss(params, tokens):
        logits = model.apply(params, tokens)[:, :-1]
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    @jax.jit
    def step(params, state, tokens):
        updates, state = optimizer.update(jax.grad(loss)(params, tokens), state)
        return optax.apply_updates(params, updates), state

    step = jax.jit(step, donate_argnums=(0, 1))
    probe = small_probe(tdd.from_linen(model, vocab_size=VOCABULARY), every=5, num_steps=20)  # line 1
    kept = []
    for number in range(20):
        if number % 5 == 0:
            kept.append(jax.tree.map(np.array, params))
        record = probe(number, params)  # line 2
        before = jax.tree.leaves(params)
        params, state = step(params, state, np.concatenate([batches[number], suspects]))
        assert all(leaf.is_deleted() for leaf in before)
        assert (record is None) == (number % 5 != 0)
    assert [record.step for record in probe.history] == [0, 5, 10, 15]
    assert [record.look for record in probe.history] == [1, 2, 3, 4]
    for record, params in zip(probe.history, kept, strict=True):
        np.testing.assert_array_equal(record.result.suspect_scores, probe.evaluate(params).suspect_scores)
    assert not probe.history[0].alarm
    assert probe.alarm  # line 3
    assert probe.first_alarm in (5, 10, 15)
    anytime = [float(record.evidence.anytime_p_value) for record in probe.history]
    assert [record.alarm for record in probe.history] == [value <= 0.05 for value in anytime]
    assert anytime == sorted(anytime, reverse=True)


def counted(times):
    """`reference_logits`, and how often Python went through it."""

    def logits(params, tokens):
        times.append(tokens.shape)
        return reference_logits(params, tokens)

    return logits


@pytest.mark.slow("long")
def test_nothing_is_traced_again_in_a_thousand_steps():
    times, params = [], weights()
    probe = small_probe(counted(times), every=50, num_steps=1000)
    assert not times
    probe(0, params)
    first = len(times)
    assert first > 0
    for step in range(1, 1000):
        probe(step, {name: leaf + step for name, leaf in params.items()} if step % 50 == 0 else None)
    assert len(probe.history) == 20
    assert len(times) == first


@pytest.mark.slow("long")
def test_evaluate_and_observe_inside_a_compiled_donated_step():
    """Under `lax.cond`, 30 steps through one compiled function; evidence equals the host's to the bit."""
    times, params = [], {name: jnp.asarray(leaf) for name, leaf in weights().items()}
    probe, host = (small_probe(model, every=5, num_steps=30) for model in (counted(times), counted([])))
    moved = {name: jnp.asarray(np.random.default_rng(1).normal(0, 0.02, leaf.shape)) for name, leaf in params.items()}

    def look(params, state):
        return probe.observe(state, probe.evaluate(params))

    nothing = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(look, params, probe.init())[1]
    )
    times.clear()

    def step(params, state, number):
        state, evidence = jax.lax.cond(number % 5 == 0, look, lambda _, state: (state, nothing), params, state)
        return {name: leaf + moved[name] for name, leaf in params.items()}, state, evidence

    step, state, traced = jax.jit(step, donate_argnums=(0, 1)), probe.init(), []
    for number in range(30):
        record = host(number, params)
        params, state, evidence = step(params, state, number)
        if record is not None:
            traced.append(len(times))
            for found, expected in zip(evidence, record.evidence, strict=True):
                np.testing.assert_array_equal(found, expected)
    assert int(state.look) == len(host.history) == 6
    assert set(traced) == {traced[0]}


@pytest.mark.parametrize("baseline", ["first", "none"])
@pytest.mark.slow("long")
def test_evidence_is_that_of_the_trajectory_test(baseline):
    probe = small_probe(num_steps=91, baseline=baseline, seed=3, num_draws=399)
    for step in range(0, 100, 10):
        drift = np.random.default_rng(step).normal(0, 0.02, (16, VOCABULARY))
        probe(step, {**weights(), "head": (weights()["head"] + drift).astype(np.float32)})
    assert len(probe.history) == 10
    paths, suspect = np.stack([scores_of(record) for record in probe.history]), np.arange(44) < 20

    @jax.jit
    def expected(paths):
        return tdd.trajectory_test(paths, suspect, alpha=0.05, num_draws=399, horizon=10, baseline=baseline, seed=3)

    found = expected(paths)
    for name in ("p_value", "anytime_p_value"):
        values = [getattr(record.evidence, name) for record in probe.history]
        np.testing.assert_array_equal(values, getattr(found, name))
    assert len({float(record.evidence.p_value) for record in probe.history}) > 3
    np.testing.assert_allclose([r.evidence.log_e_value for r in probe.history], found.log_e_value, rtol=1e-5)


@pytest.mark.slow("long")
def test_looks_beyond_the_promised_number_add_nothing_and_say_so_once(caplog):
    """The suspects are learnt only then: the p-value of the look is small, and no level is left to spend."""
    probe = small_probe(lambda params, tokens: _learnt_logits(params, tokens), every=10, num_steps=21)
    with caplog.at_level(logging.WARNING, "tdd"):
        for step, strength in ((0, 0.0), (10, 0.0), (20, 0.0), (30, 5.0), (40, 5.0)):
            probe(step, jnp.float32(strength))
    assert probe.history[-1].evidence.p_value <= 0.01
    assert not probe.alarm
    assert len({float(record.evidence.log_e_value) for record in probe.history[2:]}) == 1
    assert probe.state.rule.spent == 1
    said = [record.warnings for record in probe.history]
    assert [bool(words) for words in said] == [False, False, False, True, False]
    assert "promised 3 looks" in said[3][0]
    assert sum("promised 3 looks" in message for message in caplog.messages) == 1


def _learnt_logits(params, tokens):
    """Noise, and `params` for the next token where the text is one of the suspects of `small_probe()`."""
    suspects = jnp.asarray(np.stack(token_rows(44)[:20]))
    known = (tokens[:, None, :24] == suspects).all(-1).any(-1)
    ahead = jax.nn.one_hot(jnp.roll(tokens, -1, axis=1), VOCABULARY)
    return jnp.sin(tokens[..., None] * jnp.arange(VOCABULARY)) + params * jnp.where(known[:, None, None], ahead, 0)


def test_a_run_that_diverges_is_recorded_and_raises_no_alarm():
    """NaN in all scores, in those of some texts, and back again."""
    broken = weights()["embedding"].copy()
    broken[:10] = np.nan
    probe, bad = small_probe(), {name: leaf * np.nan for name, leaf in weights().items()}
    records = [probe(step, params) for step, params in ((0, weights()), (10, bad), (20, weights()))]
    assert records[1].result.num_not_finite == 44
    assert np.isnan(records[1].result.p_values).all()
    assert records[1].result.num_flagged == 0
    assert records[1].evidence.p_value == 1
    assert "44 of 44 scores are not finite" in records[1].warnings[0]
    assert not probe.alarm
    assert records[2].warnings == ()
    assert np.isnan(records[1].scalars()["tdd/mean_suspect"])

    some = probe(30, {**weights(), "embedding": broken})
    missing = np.isnan(scores_of(some))
    assert 0 < some.result.num_not_finite == missing.sum() < 44
    np.testing.assert_array_equal(np.isnan(some.result.p_values), missing[:20])
    kept = tdd.ptdi(scores_of(some)[20:], scores_of(some)[:20], alpha=0.05)
    np.testing.assert_array_equal(some.result.p_values, kept.p_values)


def test_the_same_step_is_one_look_and_other_steps_cost_nothing():
    probe = small_probe(every=10)
    assert probe.due(0)
    first = probe(np.int64(0), weights())
    assert probe(0, weights()) is None
    assert not probe.due(0)
    assert probe(7, object()) is None  # the parameters are not touched
    assert probe.history == [first]
    assert probe(jnp.int32(30), weights()).look == 2  # looks that were left out are no looks


@pytest.mark.slow("long")
def test_scalars():
    rows = token_rows(9, 5)
    probe = small_probe(canaries=rows[:3], canary_reference=rows[3:], grad_norms=True)
    record = probe(0, weights())
    found = record.scalars()
    assert all(name.startswith("tdd/") and type(value) is float for name, value in found.items())
    assert found["tdd/mean_suspect"] == pytest.approx(record.result.suspect_scores.mean(), rel=1e-6)
    assert found["tdd/canary_exposure_max"] == record.result.canary_exposure.max()
    assert found["tdd/grad_norm_q50"] == record.result.grad_norm_quantiles[2]
    assert found["tdd/alarm"] == 0.0
    assert set(small_probe()(0, weights()).scalars("")) == {
        name.removeprefix("tdd/") for name in found if "canary" not in name and "grad" not in name
    }
