"""Real processes for the tests of this folder."""

import pytest
from process_launcher import Launcher


@pytest.fixture
def launcher(tmp_path):
    folder = tmp_path / "output"
    folder.mkdir()
    launcher = Launcher(folder)
    yield launcher
    launcher.stop()
