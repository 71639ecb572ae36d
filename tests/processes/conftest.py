"""Real processes for the tests of this folder."""

import pytest
from process_launcher import Launcher
from process_runs import exchanges


@pytest.fixture
def launcher(tmp_path):
    folder = tmp_path / "output"
    folder.mkdir()
    launcher = Launcher(folder)
    yield launcher
    launcher.stop()


@pytest.fixture(scope="session")
def exchanges_alone(tmp_path_factory):
    """What one process finds."""
    return exchanges(tmp_path_factory.mktemp("alone"))
