"""A probe's folder and state: what lies in it, going on after a restart, and folders of other probes."""

import csv
import json

import jax
import numpy as np
import pytest
from adapted_models import VOCABULARY, weights
from probed import small_probe, token_rows

import tdd
from tdd.validate import InputError

ROWS = token_rows(9, 5)
OPTIONS = {"canaries": ROWS[:3], "canary_reference": ROWS[3:], "num_steps": 60}


def params_at(step):
    drift = np.random.default_rng(step).normal(0, 0.02, (16, VOCABULARY))
    return {**weights(), "head": (weights()["head"] + drift).astype(np.float32)}


@pytest.fixture(scope="module")
def halfway(tmp_path_factory):
    return tmp_path_factory.mktemp("halfway")


@pytest.fixture(scope="module")
def whole(halfway):
    """A run of seven looks that is never interrupted; its folder after the fourth is kept."""
    probe = small_probe(**OPTIONS)
    for step in range(0, 70, 10):
        probe(step, params_at(step))
        if step == 30:
            probe.save(halfway)
    return probe


def same_looks(one, other):
    """Everything but the time that it took, to the bit."""
    assert [(r.step, r.look, r.alarm, r.warnings) for r in one] == [
        (r.step, r.look, r.alarm, r.warnings) for r in other
    ]
    for a, b in zip(one, other, strict=True):
        jax.tree.map(np.testing.assert_array_equal, (a.result, a.evidence), (b.result, b.evidence))


def test_a_restarted_run_ends_with_the_same_bits(whole, halfway):
    again = small_probe(**OPTIONS)
    again.restore(halfway)
    same_looks(again.history, whole.history[:4])
    assert again(30, params_at(30)) is None  # the checkpoint was written after this look
    for step in range(31, 70):
        again(step, params_at(step) if step % 10 == 0 else None)
    same_looks(again.history, whole.history)
    jax.tree.map(np.testing.assert_array_equal, again.state, whole.state)


def test_a_probe_restored_before_its_first_look(whole, tmp_path):
    small_probe(**OPTIONS).save(tmp_path)
    again = small_probe(**OPTIONS)
    again.restore(tmp_path)
    assert again.history == []
    again(0, params_at(0))
    same_looks(again.history, whole.history[:1])
    assert json.loads((tmp_path / "run.json").read_text())["outcome"] == "No look has been taken."


def test_what_lies_in_the_folder(whole, tmp_path):
    whole.save(tmp_path)
    whole.save(tmp_path)  # the same probe again
    run = json.loads((tmp_path / "run.json").read_text())
    assert {name: run[name] for name in ("schema", "kind", "name", "seed", "looks", "first_alarm")} == {
        "schema": 2, "kind": "probe", "name": "probe", "seed": 0, "looks": 7, "first_alarm": whole.first_alarm,
    }  # fmt: skip
    assert run["options"]["num_draws"] == 199
    assert {role: part["texts"] for role, part in run["inputs"].items()} == {
        "suspect": 20, "reference": 24, "canaries": 3, "canary_reference": 6,
    }  # fmt: skip
    assert set(run["guarantees"]) == {"set", "items", "one look"}
    assert run["guarantees"]["one look"]["controls"] == "FDR <= alpha"
    history = read(tmp_path / "history.csv")
    assert [int(row["step"]) for row in history] == [record.step for record in whole.history]
    for row, record in zip(history, whole.history, strict=True):
        assert {name: float(value) for name, value in row.items()} == {
            "step": record.step, "look": record.look, **record.scalars(""),
        }  # fmt: skip
    items, result = read(tmp_path / "items.csv"), whole.history[-1].result
    assert [row["role"] for row in items] == ["suspect"] * 20 + ["reference"] * 24 + ["canaries"] * 3 + [
        "canary_reference"
    ] * 6
    assert [row["id"] for row in items[:3]] == ["1", "2", "3"]
    np.testing.assert_array_equal(np.float32([row["score"] for row in items[:20]]), result.suspect_scores)
    np.testing.assert_allclose([float(row["p_value"]) for row in items[44:47]], result.canary_p_values, rtol=1e-6)
    assert {row["adjusted"] for row in items[20:]} == {""}


def read(path):
    with open(path, newline="") as file:
        return [*csv.DictReader(file)]


@pytest.mark.slow("long")
def test_other_probes_and_damage(whole, tmp_path):
    whole.save(tmp_path)
    other = small_probe(**{**OPTIONS, "alpha": 0.1})
    with pytest.raises(InputError, match="of another probe: its texts or options differ"):
        other.restore(tmp_path)
    with pytest.raises(InputError, match="holds a run of other inputs or options"):
        other.save(tmp_path)
    with pytest.raises(InputError, match="of another probe"):
        other.load_state_dict(whole.state_dict())
    texts = small_probe(suspects=19, references=25, **OPTIONS)
    with pytest.raises(InputError, match="of another probe"):
        texts.load_state_dict(whole.state_dict())
    with pytest.raises(InputError, match=r"no state\.npz"):
        whole.restore(tmp_path / "elsewhere")
    state = tmp_path / "state.npz"
    state.write_bytes(state.read_bytes()[:-200])
    with pytest.raises(InputError, match="damaged"):
        whole.restore(tmp_path)
    with pytest.raises(InputError, match=r"holds no array"):
        whole.load_state_dict({"fingerprint": whole.state_dict()["fingerprint"]})
    with pytest.raises(InputError, match=r"holds no array"):
        whole.load_state_dict({})


def test_a_state_that_lacks_an_array_changes_nothing(whole):
    probe, state = small_probe(**OPTIONS), whole.state_dict()
    for name in state:
        lacking = "history/result/grad_norm_quantiles" if name == "empty" else name
        with pytest.raises(InputError, match=f"holds no array '{lacking}'"):
            probe.load_state_dict({other: array for other, array in state.items() if other != name})
    assert probe.history == []
    assert probe.state.look == 0


def test_as_many_looks_as_planned_are_not_the_plan(tmp_path):
    """The third of three planned looks selects by itself; a third look in place of one that was left out does not."""
    probe = small_probe(num_steps=30)
    fresh = probe.state_dict()
    for name, steps in (("planned", (0, 10, 20)), ("late", (0, 20, 30))):
        probe.load_state_dict(fresh)
        for step in steps:
            probe(step, params_at(step))
        probe.save(tmp_path / name)
        outcome = json.loads((tmp_path / name / "run.json").read_text())["outcome"]
        assert ("of the plan selects" in outcome) == (name == "planned")


def test_a_state_goes_on_where_another_machine_takes_other_micro_batches(whole, monkeypatch):
    monkeypatch.setattr("tdd.probe.probe.default_platform", lambda: "gpu")
    other = small_probe(**OPTIONS)
    assert other.options.token_budget != whole.options.token_budget
    other.load_state_dict(whole.state_dict())
    assert [record.step for record in other.history] == [record.step for record in whole.history]


def test_the_fingerprint_is_of_texts_and_options():
    prints = [
        small_probe(**options).fingerprint
        for options in ({}, {"name": "other"}, {"alpha": 0.1}, {"suspects": 19, "references": 25}, {"seed": 1})
    ]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 4
    rows = token_rows(44)
    rows[3] = rows[3][::-1]
    assert (
        tdd.Probe(lambda p, t: p, rows[:20], rows[20:], num_draws=199, every=10, num_steps=100).fingerprint
        not in prints
    )


def test_a_state_of_double_precision_keeps_its_level(whole):
    """A level that is rounded anew on the way must not rise above alpha: an alarm at exactly alpha would be lost."""
    wide = whole.state_dict()
    names = [name for name, values in wide.items() if values.dtype == np.float32 and name.startswith("state/")]
    levels = next(name for name in names if wide[name].shape == whole.state.rule.levels.value.shape)
    wide |= {name: wide[name].astype(np.float64) for name in names}
    wide[levels] = np.nextafter(wide[levels], 1)
    again = small_probe(**OPTIONS)
    again.load_state_dict(wide)
    np.testing.assert_array_equal(again.state.rule.levels.value, whole.state.rule.levels.value)
    assert whole.alpha >= np.max(again.state.rule.levels.value[again.state.rule.levels.value < 1.01 * whole.alpha])


def test_open_points(tmp_path):
    """199 relabellings at alpha = 0.05 give 10 slots at the end: of 100 looks the tenth has the first."""

    def points(**options):
        probe = small_probe(**options)
        probe.save(tmp_path / str(len(options)))
        return " ".join(json.loads((tmp_path / str(len(options)) / "run.json").read_text())["open_points"])

    assert "no look before number 10 can raise an alarm" in points(num_steps=1000)
    assert "0 of 100 looks" in points(num_steps=1000)
    unknown = points(num_steps=None, num_draws=399, proportion="none", max_length=20, long_texts="truncate")
    assert "num_steps was not given" in unknown
    assert "no look before number 2 can raise" in unknown  # 20 slots: 20/21 of one at the first look
    assert "With 24 references, either no suspect is flagged or at least 16 are" in unknown
    assert "20 of 20 texts of suspect are longer" in unknown
