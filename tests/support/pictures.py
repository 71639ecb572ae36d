"""Pages of runs without their pictures, which take longer to draw than the rest of a small run."""

import base64

import pytest

STAND_IN = base64.b64encode(b"<svg/>").decode()


@pytest.fixture
def pictures():
    """Asked for by tests that look at the pictures of a page, or that draw one of every kind."""


@pytest.fixture(autouse=True)
def without_pictures(request, monkeypatch):
    """In the place of each picture of a page stands an empty one, but in tests that ask for `pictures`."""
    if "pictures" not in request.fixturenames:
        monkeypatch.setattr("tdd.report.page._svg", lambda section: STAND_IN)
