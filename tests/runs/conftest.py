"""The runs of these tests have no pictures, unless a test asks for them."""

from small_runs import pictures, without_pictures

__all__ = ["pictures", "without_pictures"]
