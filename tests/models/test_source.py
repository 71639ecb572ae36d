"""Where checkpoints are found: folders, the hub's cache, and nothing in silence."""

import pathlib

import gpt2_files
import huggingface_hub
import pytest

from tdd.models.checkpoint import load
from tdd.models.source import at_revision, fingerprint, resolve
from tdd.validate import InputError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A hub cache in the layout of huggingface_hub that holds owner/tiny, and no network."""
    place = tmp_path / "hub" / "models--owner--tiny"
    gpt2_files.write(place / "snapshots" / COMMIT)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(COMMIT)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


def test_a_folder(tmp_path):
    folder, *_ = gpt2_files.write(tmp_path / "model", shards=2)
    (folder / "README.md").write_text("not part of the model")
    found = resolve(folder)
    assert (found.folder, found.revision) == (folder, None)
    assert found.files == (
        "config.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
        "tokenizer.json",
        "tokenizer_config.json",
    )


@pytest.mark.parametrize("revision", [None, "main", COMMIT])
def test_cached_and_offline(cache, revision):
    found = resolve("owner/tiny", revision=revision)
    assert found.revision == COMMIT
    assert found.folder == cache / "models--owner--tiny" / "snapshots" / COMMIT
    assert load("owner/tiny", revision=revision)[0].vocab_size == 48


@pytest.mark.parametrize("name", ["owner/tiny@main", f"owner/tiny@{COMMIT}"])
def test_a_revision_behind_the_name(cache, name):
    assert resolve(name).revision == COMMIT
    assert load(name)[0].vocab_size == 48


def test_a_folder_may_have_an_at_in_its_name(tmp_path):
    folder, *_ = gpt2_files.write(tmp_path / "model@home")
    assert resolve(folder).folder == folder


@pytest.mark.parametrize(
    ("path", "revision", "words"),
    [
        ("owner/tiny@v1", "v2", ("'owner/tiny@v1'", "'v2'", "one of them")),
        ("owner/tiny@", None, ("'owner/tiny@'", "owner/name@step1000")),
        ("@v1", None, ("'@v1'",)),
        ("{folder}@v1", None, ("'v1'", "is for hub ids")),
        ("owner/tiny@v2", None, ("owner/tiny at revision 'v2'", "HF_HUB_OFFLINE")),
    ],
)
def test_messages_about_revisions(cache, tmp_path, path, revision, words):
    path = path.format(folder=tmp_path)
    with pytest.raises(InputError) as error:
        resolve(path, revision=revision)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("model", "revision", "found"),
    [
        ("a/b", None, "a/b"),
        (3, None, 3),
        ("a/b", "v1", "a/b@v1"),
        ("a/b", ["v1", "v2"], ["a/b@v1", "a/b@v2"]),
        (["a/b", "c"], "v1", ["a/b@v1", "c@v1"]),
    ],
)
def test_names_at_a_revision(model, revision, found):
    assert at_revision(model, revision) == found


@pytest.mark.parametrize(
    ("model", "revision", "words"),
    [
        ("a/b@v1", "v2", "names a revision already"),
        (("lm", "params", "tokenizer"), "v1", "the model is tuple"),
        (["a", "b"], ["v1", "v2"], "several of several models"),
        ("a/b", [], "must be a branch, tag or commit"),
        ("a/b", 3, "revision=3 must be"),
    ],
)
def test_names_that_have_no_revision(model, revision, words):
    with pytest.raises(InputError, match=words):
        at_revision(model, revision)


@pytest.mark.parametrize(("name", "revision"), [("owner/other", None), ("other", None), ("owner/tiny", "v2")])
def test_not_cached_and_offline(cache, name, revision):
    with pytest.raises(InputError, match=f"{name}.* nor in the Hugging Face cache, and HF_HUB_OFFLINE is set"):
        resolve(name, revision=revision)


@pytest.mark.parametrize(
    "error",
    [ConnectionError("no route to host"), ValueError("malformed"), RuntimeError("client broke\nmore")],
)
def test_a_hub_that_does_not_deliver(monkeypatch, error):
    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    reason = str(error).splitlines()[0]
    with pytest.raises(InputError, match=f"owner/tiny at revision 'v1' .* did not deliver it: {reason}$"):
        resolve("owner/tiny", revision="v1")


def test_only_known_files_are_fetched(tmp_path, monkeypatch):
    asked = {}

    def fake(repository, **options):
        asked.update(options, repository=repository)
        return str(gpt2_files.write(tmp_path / COMMIT)[0])

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fake)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    assert resolve("owner/tiny", revision="v1").revision == COMMIT
    assert (asked["repository"], asked["revision"], asked["local_files_only"]) == ("owner/tiny", "v1", False)
    fetched = [pathlib.PurePath("x", pattern) for pattern in asked["allow_patterns"]]
    for name in ("pytorch_model.bin", "modeling.py", "onnx/model.onnx", "flax_model.msgpack"):
        assert not any(pathlib.PurePath(name).match(pattern.name) for pattern in fetched)


@pytest.mark.parametrize("text", ["./gone", "/no/such/model", "a/b/c", "~/nothing-here", "-x", "owner/tiny/"])
def test_neither_folder_nor_hub_id(text):
    with pytest.raises(InputError, match=r"no model folder at .*, and it is not a hub id"):
        resolve(text)


def test_fingerprint_follows_the_content(tmp_path):
    first, second = (gpt2_files.write(tmp_path / name)[0] for name in ("a", "b"))
    original = fingerprint(first)
    assert len(original) == 64
    assert fingerprint(second) == original
    (second / "README.md").write_text("not part of the model")
    assert fingerprint(second) == original
    content = bytearray((second / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (second / "model.safetensors").write_bytes(content)
    assert fingerprint(second) != original
    assert fingerprint(first) == original
    (first / "config.json").write_text((first / "config.json").read_text() + " ")
    assert fingerprint(first) != original


def test_fingerprint_is_remembered(tmp_path, monkeypatch):
    import hashlib

    folder, *_ = gpt2_files.write(tmp_path / "model")
    original = fingerprint(folder)
    monkeypatch.setattr(hashlib, "file_digest", None)
    assert fingerprint(folder) == original
