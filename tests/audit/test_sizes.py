from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tdd.audit.checks import effective_calibration_size, resolution
from tdd.records import Texts

NAN = float("nan")


@given(
    st.integers(0, 60),
    st.integers(0, 60),
    st.integers(1, 99),
    st.integers(0, 100),
)
def test_resolution_is_the_definition(n, m, per_cent, nulls_per_cent):
    level, proportion = Fraction(per_cent, 100), Fraction(nulls_per_cent, 50)
    found = resolution(n, m, per_cent / 100, nulls_per_cent / 50, 1, "nonmember")
    assert found.smallest_p_value == 1 / (n + 1)
    needed = found.calibration_for_one
    if m:
        assert proportion * m <= level * (needed + 1)
        assert needed == 0 or proportion * m > level * needed


def test_equality_counts_and_decimals_are_exact():
    # 0.07 * 100 is 7.000000000000001 in floats: 1/(99 + 1) <= 0.07 * 1/7 holds with equality.
    assert resolution(99, 7, np.float64(0.07), 1, 1, "nonmember").calibration_for_one == 99
    assert resolution(49, 7, 0.07, 0.5, 1, "nonmember").calibration_for_one == 49


def test_warnings_of_the_resolution():
    assert resolution(999, 100, 0.1, 1, 1, "nonmember").warning == ""
    assert "either none or at least 100 of 1000 candidates" in resolution(99, 1000, 0.1, 1, 100, "nonmember").warning
    assert "so that fewer members are likely to be missed" in resolution(99, 1000, 0.1, 1, 100, "nonmember").warning
    assert "so that fewer clean items are likely to be missed" in resolution(99, 1000, 0.1, 1, 100, "member").warning
    assert (
        "9999 calibration items would allow a single selection"
        in resolution(99, 1000, 0.1, 1, 100, "nonmember").warning
    )
    assert resolution(199, 1000, 0.1, 1, 50, "nonmember").warning == ""
    scaled = resolution(8, 20, 0.1, 1.5, 23, "nonmember").warning
    assert "at level 0.1 after the estimate of the null proportion multiplies p-values by 1.5 at least 14" in scaled
    nothing = resolution(8, 20, 0.1, 1, 23, "nonmember")
    assert nothing.min_selections == 21
    assert "nothing can be selected: 8 calibration items" in nothing.warning
    assert "at least 9 are needed to select all 20 candidates, 199 to select a single one" in nothing.warning


def test_effective_calibration_size():
    scores = [1.0, NAN, 2.0, 2.0, 5.0, 6.0]
    found = effective_calibration_size(scores, Texts(tuple("123456"), ("a", "b", "c", "  C ", "e", "B")))
    assert (found.num_given, found.num_missing, found.num_repeated) == (6, 1, 1)
    assert (found.size, found.num_distinct) == (4, 4)
    assert "1 of 6 calibration items have no score" in found.warning
    assert "1 calibration items are copies" in found.warning
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
