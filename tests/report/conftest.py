"""The pages of these tests have no pictures, unless a test asks for them; bounds of their audits are drawn."""

import pytest
from small_runs import pictures, without_pictures

from tdd.procedures import fdp_template

__all__ = ["pictures", "without_pictures"]


@pytest.fixture(scope="module", autouse=True)
def drawn_bounds():
    """As for large sizes: computed, their table is compiled for each size. tests/audit has both."""
    computed_up_to = fdp_template.LARGE
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fdp_template, "LARGE", 0)
        yield computed_up_to


@pytest.fixture
def computed_bounds(drawn_bounds, monkeypatch):
    """Asked for by tests whose numbers are those that users have."""
    monkeypatch.setattr(fdp_template, "LARGE", drawn_bounds)
