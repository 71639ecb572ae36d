"""The engine for new scores against a loop that draws them."""

from fractions import Fraction

import numpy as np
import pytest

from benchmarks.throughput import joint_peer
from tdd.study.designs import JointLabels
from tdd.study.joint import _engine, simulate_joint
from tdd.validate import InputError

SIZES = {"num_models": 3, "num_calibration": 150, "num_tests": 300}


@pytest.mark.slow("long")
def test_rates_are_those_of_drawn_scores():
    """FDR, power and number selected at two levels: 6,400 repetitions here, 1,500 of the loop."""
    design = JointLabels(**SIZES, signal=3.0)
    study = simulate_joint(design, alphas=[0.2, 0.4], methods="jecs", repetitions=6_400, seed=2)
    loop = joint_peer.fresh_panels(
        np.random.default_rng(0), [Fraction(1, 5), Fraction(2, 5)], 1_500, signal=3.0, **SIZES
    )
    false, selected = (np.stack([getattr(one, name) for one in loop]) for name in ("false", "selected"))
    pure = np.array([one.pure for one in loop])[:, None]
    for name, values in (
        ("fdr", false / np.maximum(selected, 1)),
        ("power", (selected - false) / np.maximum(pure, 1)),
        ("num_selected", selected),
    ):
        error = np.hypot(getattr(study, f"{name}_se")[0], values.std(0, ddof=1) / np.sqrt(len(values)))
        assert (np.abs(getattr(study, name)[0] - values.mean(0)) < 4.5 * error).all(), name
    assert study.power[0, 1] > 0.1


@pytest.mark.slow("long")
def test_one_compilation_serves_every_signal():
    options = {"alphas": 0.2, "methods": "jmcs/bh", "repetitions": 640}
    weak = simulate_joint(JointLabels(**SIZES, signal=1.0), **options)
    before = _engine.cache_info()
    strong = simulate_joint(JointLabels(**SIZES, signal=4.0, member_share=0.1), **options)
    assert _engine.cache_info().misses == before.misses
    assert strong.power[0, 0] > weak.power[0, 0]
    assert strong.provenance["design"] != weak.provenance["design"]


def test_options_are_checked():
    with pytest.raises(InputError, match="methods"):
        simulate_joint(alphas=0.1, methods="union", repetitions=5)
