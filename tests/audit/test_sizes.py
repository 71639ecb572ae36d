from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdd.audit.checks import effective_calibration_size, resolution
from tdd.audit.decide import decide
from tdd.procedures.procedure import as_procedure
from tdd.procedures.values import PTDI
from tdd.records import Evidence, Texts

NAN = float("nan")


@given(
    st.integers(0, 60),
    st.integers(0, 60),
    st.integers(1, 99),
    st.integers(0, 100),
)
def test_resolution_is_the_definition(n, m, per_cent, nulls_per_cent):
    level, proportion = Fraction(per_cent, 100), Fraction(nulls_per_cent, 50)
    found = resolution(PTDI(), n, m, per_cent / 100, nulls_per_cent / 50, 1)
    assert found.smallest_p_value == 1 / (n + 1)
    needed = found.calibration_for_one
    assert (needed is None) == (m == 0)
    if needed is not None:
        assert proportion * m <= level * (needed + 1)
        assert needed == 0 or proportion * m > level * needed


def test_equality_counts_and_decimals_are_exact():
    # 0.07 * 100 is 7.000000000000001 in floats: 1/(99 + 1) <= 0.07 * 1/7 holds with equality.
    assert resolution(PTDI(), 99, 7, np.float64(0.07), 1, 1).calibration_for_one == 99
    assert resolution(PTDI(), 49, 7, 0.07, 0.5, 1).calibration_for_one == 49


def test_warnings_of_the_resolution():
    joint, learning = as_procedure("jmcs"), as_procedure("combined_score")
    assert resolution(PTDI(), 999, 100, 0.1, 1, 1).warning == ""
    said = resolution(PTDI(), 99, 1000, 0.1, 1, 100).warning
    assert "either none or at least 100 of 1000 candidates" in said
    assert "so that fewer members are likely to be missed" in said
    assert "so that fewer clean items are likely to be missed" in resolution(joint, 99, 1000, 0.1, 1, 100).warning
    assert said.endswith("; a single selection needs at least 9999 calibration items")
    assert resolution(learning, 50, 1000, 0.1, 1, 200, num_learned=49).warning.endswith(
        "needs at least 19997 calibration items, those included that are learned from"
    )
    assert resolution(PTDI(), 199, 1000, 0.1, 1, 50).warning == ""
    scaled = resolution(PTDI(), 8, 20, 0.1, 1.5, 23).warning
    same = "; with the same estimate of the null proportion, "  # it changes with the calibration items
    assert (
        f"at level 0.1 after the estimate of the null proportion multiplies p-values by 1.5{same}at least 14" in scaled
    )
    halved = resolution(PTDI(), 19, 20, 0.1, 1.05, 20).warning
    assert halved.endswith(f"{same}a single selection needs at least 209 calibration items")
    nothing = resolution(PTDI(), 8, 20, 0.1, 1, 23)
    assert nothing.min_selections == 21
    assert "nothing can be selected: 8 calibration items give no p-value below 0.111 at level 0.1" in nothing.warning
    assert "at least 9 are needed to select all 20 candidates, 199 to select a single one" in nothing.warning
    unknown = resolution(as_procedure("td4eval:combine=hommel"), 8, 20, 0.1, 1, 23).warning
    assert unknown == "nothing can be selected: 8 calibration items are too few at level 0.1"


FOR_ONE = {
    "ptdi": 1199,
    "ptdi:proportion=none": 1199,
    "conditional": 7188,
    "conditional:rule=dkwm": 2159284,
    "conditional:rule=monte_carlo": None,
    "jmcs": 1199,
    "jmcs:rule=by": 6442,
    "jecs": None,
    "combined_score": 2397,
    "combined_score:rule=cross_fit": 2398,
    "best_score": None,
    "td4eval": 1199,
    "td4eval:combine=hommel": None,
    "td4eval:combine=split_weights": None,
    "weighted": None,
    "ktd:rule=conformal,proportion=none": 1199,
}
"""Calibration items, as they are given, that a single selection among 120 candidates needs at level .1."""


def test_each_procedure_tells_what_a_single_selection_needs():
    for method, needed in FOR_ONE.items():
        found = resolution(as_procedure(method), 200, 120, 0.1, 1, 50)
        assert found.calibration_for_one == needed, method
        assert ("a single selection needs" in found.warning) == (needed is not None), method


@pytest.mark.parametrize(
    "method",
    [
        "ptdi:proportion=none",
        *(pytest.param(method, marks=pytest.mark.slow("long")) for method in (
            "conditional", "jmcs", "jmcs:rule=by", "combined_score", "combined_score:rule=cross_fit", "td4eval",
        )),
    ],
)  # fmt: skip
def test_its_decisions_agree(method):
    """With so many items one can be selected, with one fewer not; and no p-value lies below the smallest."""
    procedure, rng = as_procedure(method), np.random.default_rng(0)
    needed = procedure.least_calibration(1, 12, 0.1)
    rows, far = (() if procedure.columns == "one" else (2,)), 50 if procedure.null == "member" else -50
    for n, possible in ((needed, True), (needed - 1, False)):
        known, tested = rng.normal(size=(*rows, n)), far + rng.normal(size=(*rows, 12))
        decision = decide(Evidence(known, tested, names=("a", "b")[: len(rows) + 1]), procedure, 0.1)
        assert (decision.min_selections == 1) == possible
        smallest = procedure.smallest_p_value(decision.num_calibration)
        assert smallest is None or np.nanmin(decision.p_values) == pytest.approx(smallest, rel=1e-5)


def test_effective_calibration_size():
    scores = [1.0, NAN, 2.0, 2.0, 5.0, 6.0]
    found = effective_calibration_size(scores, Texts(tuple("123456"), ("a", "b", "c", "  C ", "e", "B")))
    assert (found.num_given, found.num_missing, found.num_repeated) == (6, 1, 1)
    assert (found.size, found.num_distinct) == (4, 4)
    assert "1 of 6 calibration items have no score" in found.warning
    assert "1 calibration item is a copy of another and adds no information" in found.warning
    assert "different values" not in found.warning
    fine = effective_calibration_size(np.arange(10.0))
    assert (fine.size, fine.num_distinct, fine.warning) == (10, 10, "")


def test_ties_and_nothing():
    tied = effective_calibration_size([1.0, 1.0, 1.0, 2.0, 2.0])
    assert "the 5 calibration scores take only 2 different values" in tied.warning
    none = effective_calibration_size([NAN, NAN])
    assert (none.size, none.num_distinct) == (0, 0)
    assert "no calibration item has a score" in none.warning
    assert effective_calibration_size([]).size == 0
