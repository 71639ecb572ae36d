"""The runs of these tests have no pictures, unless a test asks for them; bounds of their audits are drawn."""

from small_runs import pictures, without_pictures

from tests.report.conftest import computed_bounds, drawn_bounds

__all__ = ["computed_bounds", "drawn_bounds", "pictures", "without_pictures"]
