"""What small runs spend their time on beside what is tested: threads that wait for one another, and pictures."""

import base64

import numpy as np  # noqa: F401  (its BLAS must be loaded before its threads can be counted)
import pytest
import threadpoolctl

threadpoolctl.threadpool_limits(1, user_api="blas")
"""Of products of small matrices, of which the blind baseline has hundreds, two threads take longer than one; beside
other work on the same cores, fifty times as long."""

STAND_IN = base64.b64encode(b"<svg/>").decode()


@pytest.fixture
def pictures():
    """Asked for by tests that look at the pictures of a page, or that draw one of every kind."""


@pytest.fixture(autouse=True)
def without_pictures(request, monkeypatch):
    """In the place of each picture of a page stands an empty one, but in tests that ask for `pictures`."""
    if "pictures" not in request.fixturenames:
        monkeypatch.setattr("tdd.report.page._svg", lambda section: STAND_IN)
