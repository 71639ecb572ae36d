"""`tdd info` and completions for shells."""

import json
import subprocess

import jax
import pytest

from tdd.cli import main


def test_info_names_versions_devices_and_caches(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("TDD_CACHE_DIR", str(tmp_path))
    (tmp_path / "xla").mkdir()
    (tmp_path / "xla" / "program").write_bytes(b"x" * 2**20)
    assert main(["info", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["versions"]["jax"] == jax.__version__
    assert len(shown["devices"]) == jax.device_count()
    assert shown["compilation_cache"] == {"folder": str(tmp_path / "xla"), "programs": 1, "bytes": 2**20}
    assert main(["info"]) == 0
    assert "1.0 MiB in 1 files" in " ".join(capsys.readouterr().out.replace("│", " ").split())


def test_models_of_the_hub_cache_are_listed(capsys, tmp_path, monkeypatch):
    from huggingface_hub import constants

    folder = tmp_path / "models--some--model"
    (folder / "blobs").mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "blobs" / "abc").write_bytes(b"x" * 100)
    snapshot = folder / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").symlink_to("../../blobs/abc")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    assert main(["info", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["models"] == [
        {"name": "some/model", "bytes": 100, "revisions": ["0" * 40]}
    ]


def test_completions_know_commands_and_options(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--print-completion", "bash"])
    assert end.value.code == 0
    script = capsys.readouterr().out
    assert "--alpha" in script
    assert "exchange" in script
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_help_shows_the_usual_options_and_help_all_every_option(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["audit", "--help"])
    usual = capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["audit", "--help-all"])
    whole = capsys.readouterr().out
    assert "--candidates" in usual
    assert "--token-budget" not in usual
    assert "jax.distributed" not in usual
    assert "tdd audit --help-all" in usual
    assert "--candidates" in whole
    assert "--token-budget" in whole
    assert "--coordinator" in whole
