"""Compositions of single selections, joint metrics, and the synthetic set-up."""

import inspect
import json
import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references as ref

from tdd.study import JointLabels, baselines
from tdd.validate import InputError


@pytest.mark.slow("long")
def test_each_model_selects_alone():
    sample = JointLabels(num_models=3, num_calibration=39, num_tests=30, signal=3.0).draw(jax.random.key(0))
    selected = baselines.selected_by_each(sample.calibration, sample.scores, alpha=0.3)
    for own, tested, got in zip(sample.calibration, sample.scores, selected, strict=True):
        reject = ref.ptdi(-np.asarray(own), -np.asarray(tested), 0.3, "storey", 0.5)[0]
        assert got.tolist() == reject
    assert selected.any()


def test_each_model_selects_by_bh():
    sample = jax.jit(JointLabels(num_models=2, num_calibration=39, num_tests=30, signal=3.0).draw)(jax.random.key(0))
    select = jax.jit(baselines.selected_by_each, static_argnames=("alpha", "step"))
    selected = select(sample.calibration, sample.scores, alpha=0.3, step="bh")
    for own, tested, got in zip(sample.calibration, sample.scores, selected, strict=True):
        assert got.tolist() == ref.ptdi(-np.asarray(own), -np.asarray(tested), 0.3, "none", 0.5)[0]
    assert selected.any()
    with pytest.raises(InputError, match="step must be one of 'storey', 'bh'"):
        baselines.selected_by_each(sample.calibration, sample.scores, alpha=0.3, step="by")  # pyright: ignore


def test_calibration_and_candidates_are_drawn_apart():
    sample = JointLabels(num_calibration=400, num_tests=400, member_share=0.0, signal=0.0).draw(jax.random.key(1))
    assert abs(np.corrcoef(np.ravel(sample.calibration), np.ravel(sample.scores))[0, 1]) < 0.1


def test_union_and_intersection():
    selected = jnp.array([[True, True, False], [True, False, False]])
    assert baselines.composed(selected, "union").tolist() == [True, True, False]
    assert baselines.composed(selected, "intersection").tolist() == [True, False, False]
    with pytest.raises(ValueError, match="'both'"):
        baselines.composed(selected, "both")


@pytest.mark.parametrize(
    ("selected", "contaminated", "gcp", "power"),
    [
        ([1, 1, 0, 1], [1, 0, 0, 0], 1 / 3, 2 / 3),
        ([0, 0], [1, 0], 0, 0),
        ([1, 1], [1, 1], 1, 0),
        ([], [], 0, 0),
    ],
)
def test_joint_metrics(selected, contaminated, gcp, power):
    found = baselines.joint_metrics(jnp.array(selected, bool), ~jnp.array(contaminated, bool))
    assert float(found.gcp) == pytest.approx(gcp)
    assert float(found.power) == pytest.approx(power)


def test_the_docstring_quotes_what_was_measured():
    """The paper's row of table 1, then the intersections of the benchmark's first setting."""
    place = pathlib.Path(__file__).parents[2] / "benchmarks" / "results" / "jecs_synthetic.json"
    rows = json.loads(place.read_text())["settings"][0]["rows"]
    measured = [row["gcr"] for name in ("intersection", "intersection, BH") for row in rows if row["procedure"] == name]
    quoted = [float(number) for number in re.findall(r"\.\d{3}\b", inspect.getdoc(baselines.selected_by_each) or "")]
    assert quoted[:3] == [0.366, 0.614, 0.757]
    assert quoted[3:] == [round(value, 3) for value in measured]
