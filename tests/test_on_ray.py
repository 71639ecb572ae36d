"""Ray, started for real on this machine: the table of one process, whatever worker is killed; and what is refused."""

import os
import pathlib
import signal
import socket
import sys
import threading

import numpy as np
import pytest
from child_process import ROOT
from scored_models import random_texts

import tdd
from tdd import on_ray
from tdd.cli import main
from tdd.demo.data import demo_files
from tdd.scoring.store.shards import decode_keys
from tdd.study import NormalShift
from tdd.study import run as run_study
from tdd.validate import InputError

TEXTS = random_texts(80, seed=4, shortest=5, longest=60)
OPTIONS = {"token_budget": 512, "progress": False}


@pytest.fixture(scope="module")
def ray():
    found = pytest.importorskip("ray")
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support"), str(ROOT / "tests")])
    found.init(
        address="local", num_cpus=4, include_dashboard=False, logging_level="error",
        runtime_env={"env_vars": {"PYTHONPATH": paths}},
    )  # fmt: skip
    yield found
    found.shutdown()


def assert_same(found, expected):
    assert found.ids == expected.ids
    assert found.values.keys() == expected.values.keys()
    for name, column in expected.values.items():
        np.testing.assert_array_equal(found.values[name], column)


def stored_keys(store):
    """The rows of all shards of a score store, repeated ones repeated."""
    return [key for path in pathlib.Path(store).glob("*/*.parquet") for key in decode_keys(path.read_bytes())[0]]


class KillOnce:
    """Ends its process with SIGKILL after some batches, once."""

    def __init__(self, mark, batches):
        self.mark, self.batches = mark, batches

    def __call__(self, done, total):
        if done == self.batches and not self.mark.exists():
            self.mark.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow("processes")
def test_the_table_of_one_process(ray, tmp_path):
    """With four workers; with two, one of which is killed, below."""
    model = demo_files().checkpoint
    expected = tdd.score(model, TEXTS, ["loss", "min_k"], store=tmp_path / "one", **OPTIONS)
    found = on_ray.score(model, TEXTS, ["loss", "min_k"], store=tmp_path / "ray", num_workers=4, **OPTIONS)
    assert_same(found, expected)
    keys = stored_keys(tmp_path / "ray")
    assert len(keys) == len(set(keys)) == len(stored_keys(tmp_path / "one"))


@pytest.mark.slow("processes")
def test_a_worker_that_is_killed(ray, tmp_path):
    model, mark = demo_files().checkpoint, tmp_path / "killed"
    expected = tdd.score(model, TEXTS, "loss", **OPTIONS)
    found = on_ray.score(
        model, TEXTS, "loss", store=tmp_path / "ray", num_workers=2, on_batch=KillOnce(mark, 2), **OPTIONS
    )
    assert mark.exists()  # and the run went on
    assert_same(found, expected)
    keys = stored_keys(tmp_path / "ray")
    assert len(keys) == len(set(keys))
    again = on_ray.score(model, TEXTS[:9], "loss", store=tmp_path / "ray", num_workers=1, **OPTIONS)  # other texts
    np.testing.assert_array_equal(again.values["loss"], expected.values["loss"][:9])


@pytest.mark.slow("processes")
def test_a_study(ray, tmp_path):
    design, options = NormalShift(num_calibration=49, num_tests=20), {"alphas": [0.1, 0.2], "repetitions": 5_000}
    expected = run_study(design, ["ptdi/none", "ptdi/storey"], **options)
    found = on_ray.study(design, ["ptdi/none", "ptdi/storey"], folder=tmp_path / "study", num_workers=2, **options)
    for name in ("fdr", "power", "fdr_se", "repetitions"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


@pytest.mark.slow("processes")
def test_a_data_set_of_ray(ray):
    from ray.data import ActorPoolStrategy, from_items

    model = demo_files().checkpoint
    rows = from_items([{"name": i, "text": text} for i, text in enumerate(TEXTS)])
    scored = rows.map_batches(
        on_ray.Scorer,
        fn_constructor_kwargs={"model": model, "scores": ["loss"], "token_budget": 512},
        compute=ActorPoolStrategy(size=1),
        batch_size=40,
    )
    found = {row["name"]: row["loss"] for row in scored.take_all()}
    expected = tdd.score(model, TEXTS, "loss", **OPTIONS).values["loss"]
    np.testing.assert_allclose([found[i] for i in range(len(TEXTS))], expected, rtol=1e-5)


def test_a_batch_without_the_column():
    scorer = on_ray.Scorer(demo_files().checkpoint, "loss", text_column="content")
    with pytest.raises(InputError, match=r"text_column='content' is not a column of the data set; .*: text, id"):
        scorer({"text": np.array(["a"]), "id": np.array([1])})


@pytest.mark.parametrize("text", [None, float("nan"), b"bytes"])
def test_what_is_no_text(text):
    scorer = on_ray.Scorer(demo_files().checkpoint, "loss")
    with pytest.raises(InputError, match="text"):
        scorer({"text": np.array(["a", text], object)})


def test_a_column_of_the_name_of_a_score():
    scorer = on_ray.Scorer(demo_files().checkpoint, "loss")
    with pytest.raises(InputError, match="the data set has columns loss, as the scores; rename or drop them"):
        scorer({"text": np.array(["some text"], object), "loss": np.array([1.0])})


def test_a_relative_path_is_that_of_the_caller(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    assert on_ray._where("model", "model") == str(tmp_path / "model")
    assert on_ray._where("model", "openai-community/gpt2") == "openai-community/gpt2"
    with pytest.raises(InputError, match="model must be a checkpoint folder or hub id that every worker reads"):
        on_ray._where("model", (1, 2, 3))


def refusing():
    raise InputError("model=... is not what a worker can read")


@pytest.mark.slow("processes")
def test_what_a_worker_refuses_reaches_the_user(ray):
    with pytest.raises(InputError, match=r"^model=\.\.\. is not what a worker can read$"):
        on_ray.run_shards(refusing, num_workers=2)
    with pytest.raises(InputError, match=r"a worker of Ray cannot go on: .*no_such_module"):
        on_ray.run_shards(Absent(), num_workers=1)


class Absent:
    """Pickles by a module that no worker has."""

    def __call__(self):
        raise AssertionError("a worker made it")

    def __reduce__(self):
        return __import__, ("no_such_module",)


@pytest.mark.slow("processes")
def test_resources_that_ray_does_not_have(ray):
    with pytest.raises(InputError, match="3 workers with GPU=1 each do not fit: Ray has GPU=0; ask for fewer"):
        on_ray.run_shards(refusing, num_workers=3, resources={"GPU": 1})
    with pytest.raises(InputError, match="9 workers with CPU=1 each do not fit: Ray has CPU=4"):
        on_ray.run_shards(refusing, num_workers=9)
    with pytest.raises(InputError, match="Ray refuses the resources of a worker: "):
        on_ray.run_shards(refusing, num_workers=1, resources={"CPU": 0.00001})


def test_a_worker_of_another_version():
    with pytest.raises(InputError, match=rf"has tdd {tdd.__version__} where the run has 0.0.1; install the same"):
        on_ray._work("0.0.1", False, [], None)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-x", b""])
def test_an_address_where_something_else_answers(answer):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def reply():
            talk, _ = server.accept()
            with talk:
                talk.sendall(answer)

        threading.Thread(target=reply, daemon=True).start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(InputError, match=rf"what answers at address='{address}' is not Ray; give the port"):
            on_ray._check_address(address)


@pytest.mark.slow("processes")
def test_the_address_of_ray(ray):
    on_ray._check_address(ray.get_runtime_context().gcs_address)


@pytest.mark.parametrize("address", ["head", "head:", ":6379", "head:x", "head:70000", "ray://head"])
def test_an_address_that_is_none(address):
    with pytest.raises(InputError, match="must be HOST:PORT or ray://HOST:PORT, as in head:6379, or auto"):
        on_ray._check_address(address)


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_where_nobody_answers(scheme):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(InputError, match=rf"nobody answers at Ray's address='{scheme}127.0.0.1:{port}'"):
        on_ray._check_address(f"{scheme}127.0.0.1:{port}")


@pytest.mark.parametrize("resources", [{"CPU": 0}, {"GPU": -1}, {"CPU": "2"}, {"CPU": True}, {"TPU": float("nan")}])
def test_resources_that_are_none(resources):
    with pytest.raises(InputError, match="must be a number above 0, as in CPU=4 or GPU=1"):
        on_ray._resources(resources)


def test_how_many_workers(caplog):
    assert on_ray._num_workers([{"CPU": 9.0, "GPU": 4.0}], None, {"CPU": 2, "GPU": 1}, fixed=True) == 4
    assert on_ray._num_workers([{"CPU": 9.0}], 3, {"CPU": 2}, fixed=True) == 3
    assert on_ray._num_workers([{"CPU": 3.0}, {"CPU": 3.0}], None, {"CPU": 2}, fixed=True) == 2  # one a host
    with pytest.raises(InputError, match="num_workers=0 must be at least 1"):
        on_ray._num_workers([{"CPU": 9.0}], 0, {"CPU": 2}, fixed=True)
    assert on_ray._num_workers([{"CPU": 9.0}], 7, {"CPU": 2}, fixed=False) == 7
    assert "7 workers with CPU=2 each do not fit: Ray has CPU=9; the run goes on with 4" in caplog.text
    assert on_ray._num_workers([{"CPU": 9.0}], None, {"GPU": 1}, fixed=False) == 1
    assert "1 worker with GPU=1 each do not fit: Ray has GPU=0; waiting until it has more" in caplog.text


def test_ray_is_optional(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"Ray is not installed; install it with: pip install 'tdd\[ray\]'"):
        on_ray.run_shards(refusing)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--workers", "2"], "--workers has no use without --ray; add --ray, or leave it out"),
        (["--worker-resources", "GPU=1"], "--worker-resources has no use without --ray"),
        (["--ray", "--shard", "0/4"], "--shard and --ray both share out the work; give one of them"),
        (["--ray", "--worker-resources", "GPU"], "--worker-resources 'GPU' must be NAME=N, as in CPU=4 or GPU=1"),
        (["--ray", "head"], "address='head' must be HOST:PORT or ray://HOST:PORT"),
    ],
)
def test_options_that_do_not_fit(tmp_path, capsys, options, message):
    texts = tmp_path / "texts.txt"
    texts.write_text("a text\nanother text\n")
    score = ["score", str(demo_files().checkpoint), str(texts), "--out", str(tmp_path / "scores.csv"), *options]
    assert main(score) == 2
    assert message in capsys.readouterr().err
    assert main(["study", "ptdi-alpha", "--out", str(tmp_path / "study"), *options]) == 2
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["texts.txt"]


def test_workers_and_a_model_held_by_several_hosts(tmp_path, capsys):
    score = ["score", "model", "texts.txt", "--out", str(tmp_path / "scores.csv"), "--ray", "head:6379"]
    for name, *given in (["--distributed"], ["--process-id", "0"]):
        assert main([*score, "--shard-params", name, *given]) == 2
        assert f"{name} has no use with --ray: each of its workers holds a whole model" in capsys.readouterr().err


def test_a_study_needs_a_folder(capsys):
    assert main(["study", "ptdi-alpha", "--ray"]) == 2
    assert "--ray needs --out: a folder that all hosts share" in capsys.readouterr().err


@pytest.mark.slow("processes")
def test_the_commands(ray, tmp_path, capfd):
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(TEXTS[:30]))
    score = ["score", str(demo_files().checkpoint), str(texts), "--score", "loss", "--quiet", "--no-compilation-cache"]
    study = ["study", "ptdi-alpha", "--repetitions", "3000", "--alpha", "0.2", "--quiet"]
    for name, more in (("one", []), ("ray", ["--ray", "--workers", "2"])):
        assert main([*score, "--out", str(tmp_path / f"{name}.csv"), *more]) == 0
        assert main([*study, "--out", str(tmp_path / name), *(more and ["--ray", "--workers", "1"])]) == 0
    for path in ("one.csv", "one/results.csv"):
        assert (tmp_path / path).read_bytes() == (tmp_path / path.replace("one", "ray")).read_bytes()
