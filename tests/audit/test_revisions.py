"""Revisions of models of the hub: in every command, in the record, and in the identity of a run."""

import json

import gpt2_files
import numpy as np
import pytest
from huggingface_hub import constants

import tdd
from tdd.cli import main
from tdd.validate import InputError

COMMITS = {"step1": "1" * 40, "step2": "2" * 40, "step3": "3" * 40}


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """The cache of the hub with owner/tiny at three steps of its training, the first as main."""
    folder = tmp_path_factory.mktemp("hub")
    place = folder / "models--owner--tiny"
    (place / "refs").mkdir(parents=True)
    rng = np.random.default_rng(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HUB_CACHE", str(folder))
        patch.setattr(constants, "HF_HUB_OFFLINE", True)
        for name, commit in COMMITS.items():
            tensors = {key: value + 0.1 * rng.normal(size=value.shape) for key, value in _tensors().items()}
            gpt2_files.write(place / "snapshots" / commit, stored=tensors)
            (place / "refs" / name).write_text(commit)
        (place / "refs" / "main").write_text(COMMITS["step1"])
        yield folder


def _tensors():
    return gpt2_files.tensors(gpt2_files.CONFIG)


def texts(count, seed):
    rng = np.random.default_rng(seed)
    return [" ".join(f"w{k}" for k in rng.integers(0, 40, rng.integers(5, 20))) for _ in range(count)]


def write(path, lines):
    path.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    return str(path)


def test_scores_follow_the_revision(hub):
    plain = tdd.score("owner/tiny", texts(4, 0), "loss", progress=False)
    columns = [tdd.score("owner/tiny", texts(4, 0), "loss", revision=name, progress=False)["loss"] for name in COMMITS]
    np.testing.assert_array_equal(plain["loss"], columns[0])
    assert not np.isclose(columns[1], columns[2]).any()
    behind = tdd.score("owner/tiny@step2", texts(4, 0), "loss", progress=False)
    np.testing.assert_array_equal(behind["loss"], columns[1])
    assert behind.provenance["model"] == "owner/tiny@step2"
    reference = tdd.score("owner/tiny@step3", texts(4, 0), tdd.scores.Reference("owner/tiny@step2"), progress=False)[
        "reference"
    ]
    np.testing.assert_array_equal(reference, columns[2] - columns[1])


def test_an_audit_records_the_commit_and_is_another_run_at_another(hub, tmp_path, capsys):
    files = write(tmp_path / "c.jsonl", texts(6, 1)), write(tmp_path / "k.jsonl", texts(30, 2))
    command = ["audit", "owner/tiny", "--candidates", files[0], "--calibration", files[1], "--alpha", "0.2"]
    command += ["--score", "loss", "--out", str(tmp_path / "run")]
    assert main([*command, "--revision", "step2"]) == 0
    model = json.loads((tmp_path / "run" / "run.json").read_text())["model"]
    assert (model["name"], model["revision"]) == ("owner/tiny@step2", COMMITS["step2"])
    assert COMMITS["step2"] in capsys.readouterr().out
    assert main([*command, "--revision", "step3"]) == 2
    assert "a run of other inputs or options" in capsys.readouterr().err
    assert main([*command, "--revision", "step9"]) == 2
    assert "owner/tiny at revision 'step9'" in capsys.readouterr().err


def test_several_revisions_are_one_joint_audit(hub):
    audit = tdd.run_audit(
        "owner/tiny", texts(6, 1), texts(40, 2), alpha=0.2, score="loss", method="jmcs", progress=False,
        revision=["step1", "step2"],
    )  # fmt: skip
    assert [model["revision"] for model in audit.run["model"]["models"]] == [COMMITS["step1"], COMMITS["step2"]]
    with pytest.raises(InputError, match="2 models were given"):
        tdd.run_audit("owner/tiny", texts(6, 1), texts(40, 2), alpha=0.2, revision=["step1", "step2"])


def test_a_test_of_order_at_a_revision(hub, tmp_path):
    data = write(tmp_path / "d.jsonl", texts(12, 3))
    options = {"num_shards": 3, "num_shuffles": 9, "progress": False}
    first = tdd.run_exchange("owner/tiny", data, revision="step2", **options)
    assert first.run["model"]["revision"] == COMMITS["step2"]
    command = ["exchange", "owner/tiny", data, "--shards", "3", "--shuffles", "9", "--revision", "step2", "--quiet"]
    assert main([*command, "--out", str(tmp_path / "run")]) == 0
    assert json.loads((tmp_path / "run" / "run.json").read_text())["model"]["revision"] == COMMITS["step2"]
