"""The files of a checkpoint: a folder, a GGUF file, or a hub repository in the Hugging Face cache."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import pathlib
import re
from collections.abc import Sequence
from typing import Any

from tdd.models.weights import INDEX, SINGLE
from tdd.validate import InputError, some

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
)
_ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")
_FETCHED = ("config.json", SINGLE, INDEX, "model-*-of-*.safetensors", *_ADAPTER_FILES, *_TOKENIZER_FILES)
_COUNTED = ("config.json", INDEX, "*.safetensors", *_ADAPTER_FILES, *_TOKENIZER_FILES)
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")


@dataclasses.dataclass(frozen=True)
class ResolvedCheckpoint:
    """A checkpoint on this machine's disk."""

    folder: pathlib.Path  # folder of its files
    revision: str | None  # commit of the hub repository, or None for a plain folder
    files: tuple[str, ...]  # names of the files that decide what the model computes, sorted
    gguf: str | None = None  # name of the GGUF file that is the whole checkpoint, or None

    @property
    def path(self) -> pathlib.Path:
        """The GGUF file, or the folder."""
        return self.folder if self.gguf is None else self.folder / self.gguf


def resolve(path: str | os.PathLike[str], *, revision: str | None = None, gguf: bool = True) -> ResolvedCheckpoint:
    """Find a checkpoint: an existing folder or GGUF file as it is, anything else as a hub id.

    Hub files come from huggingface_hub's cache and are downloaded if they are absent; with HF_HUB_OFFLINE set, only
    the cache is used. Only configuration, tokenizer and safetensors files are fetched.

    Args:
      path: A folder, a GGUF file, or a hub id such as "gpt2" or "owner/name", which may end with its revision:
        "owner/name@step1000". A folder with one GGUF file and no safetensors stands for that file.
      revision: Branch, tag or commit of a hub id; None for what the id ends with, else its main branch.
      gguf: Whether a GGUF file is accepted.

    Raises:
      InputError: No such folder, not a hub id, a revision for a folder, a failed download, a pipe or a device in
        the place of a file, or several GGUF files of which one must be named.
    """
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"path must be a checkpoint folder or a hub id, got {path!r}")
    text, folder, revision = _name_and_revision(path, revision)
    file = _gguf_file(text, folder, revision) if gguf else None
    if file is not None:
        return ResolvedCheckpoint(file.parent, None, (file.name,), file.name)
    is_folder = _is_folder(text, folder, revision)
    if not is_folder:
        folder = _snapshot(text, revision)
    names = sorted(entry.name for entry in folder.iterdir() if any(entry.match(pattern) for pattern in _COUNTED))
    for name in names:
        if not (folder / name).is_file():  # reading a pipe would wait for ever for its writer
            raise InputError(f"{folder / name} is no file (a folder, a pipe or a link to nothing); download it again")
    return ResolvedCheckpoint(folder, None if is_folder else folder.name, tuple(names))


def resolve_config(path: str | os.PathLike[str], *, revision: str | None = None) -> pathlib.Path:
    """The folder of a checkpoint's config.json or its GGUF file, as `resolve` finds it, without fetching weights."""
    text, folder, revision = _name_and_revision(path, revision)
    file = _gguf_file(text, folder, revision)
    if file is not None:
        return file
    if _is_folder(text, folder, revision):
        return folder
    from huggingface_hub import try_to_load_from_cache

    # what is there stays the newest: a newer snapshot without weights would be of no use offline
    cached = try_to_load_from_cache(text, "config.json", revision=revision)
    return pathlib.Path(cached).parent if isinstance(cached, str) else _snapshot(text, revision, ("config.json",))


def gguf_file(path: Any) -> pathlib.Path | None:
    """The GGUF file that a model's name means, or None; nothing is fetched."""
    return _gguf_file(*_name_and_revision(path, None)) if isinstance(path, str | os.PathLike) else None


def at_revision(model: Any, revision: Any) -> Any:
    """The names of checkpoints at a revision: "owner/name@revision", a list of names for several models or revisions.

    None leaves `model` as it is.

    Raises:
      InputError: a revision of a model that is no hub id, several of several models, or no revision at all in the list.
    """
    if revision is None:
        return model
    if isinstance(model, list) and not isinstance(revision, str):
        raise InputError(f"revision={revision!r} names several of several models; write them as 'owner/name@revision'")
    if isinstance(model, list):
        return [at_revision(one, revision) for one in model]
    if not isinstance(revision, str):
        if not isinstance(revision, Sequence) or not revision:
            raise InputError(f"revision={revision!r} must be a branch, tag or commit, or a list of them")
        return [at_revision(model, one) for one in revision]
    if not isinstance(model, str):
        raise InputError(f"revision={revision!r} is for hub ids, and the model is {type(model).__name__}; leave it out")
    if "@" in model:
        raise InputError(f"{model!r} names a revision already, and revision={revision!r} another; give one of them")
    return f"{model}@{revision}"


def fingerprint(place: str | os.PathLike[str]) -> str:
    """SHA-256 over names and contents of a folder's configuration, tokenizer and weight files, or of a GGUF file.

    Hexadecimal. Reads every byte once; remembered for as long as names, sizes and modification times stay the same.
    """
    found = resolve(pathlib.Path(place))
    paths = [found.folder / name for name in found.files]
    states = tuple((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in paths)
    return _fingerprint(found.folder.resolve(), states)


@functools.lru_cache(maxsize=64)
def _fingerprint(folder: pathlib.Path, states: tuple[tuple[str, int, int], ...]) -> str:
    total = hashlib.sha256()
    for name, _, _ in states:
        with open(folder / name, "rb") as file:
            total.update(f"{name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return total.hexdigest()


def _name_and_revision(path: str | os.PathLike[str], revision: str | None) -> tuple[str, pathlib.Path, str | None]:
    """A checkpoint's name, the folder that it would be, and its revision. A folder may have an @ in its name."""
    text = os.fspath(path)
    folder = pathlib.Path(text).expanduser()
    try:
        exists = folder.exists()
    except OSError as error:
        raise InputError(f"model {text[:80]!r}: {error.strerror}; give a folder or a hub id") from None
    if "@" not in text or exists:
        return text, folder, revision
    name, _, written = text.partition("@")
    if not name or not written:
        raise InputError(f"{text!r} is neither a folder nor a hub id with a revision, as in 'owner/name@step1000'")
    if revision is not None:
        raise InputError(f"{text!r} names a revision already, and revision={revision!r} another; give one of them")
    return name, pathlib.Path(name).expanduser(), written


def _snapshot(repository: str, revision: str | None, files: Sequence[str] = _FETCHED) -> pathlib.Path:
    from huggingface_hub import constants, snapshot_download

    offline = bool(constants.HF_HUB_OFFLINE)
    try:
        folder = snapshot_download(repository, revision=revision, allow_patterns=list(files), local_files_only=offline)
    except Exception as error:  # the hub's client raises its own, the transport's and the system's errors
        wanted = repository if revision is None else f"{repository} at revision {revision!r}"
        if offline:
            raise InputError(
                f"{wanted} is neither a folder here nor in the Hugging Face cache, and HF_HUB_OFFLINE is set; "
                "download it once without that setting, or give a folder"
            ) from error
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(
            f"{wanted} is not a folder here and the Hugging Face hub did not deliver it: {reason}"
        ) from error
    return pathlib.Path(folder)


def _gguf_file(text: str, place: pathlib.Path, revision: str | None) -> pathlib.Path | None:
    """The GGUF file that `text` names, or that is all that its folder has of weights; None if it is none."""
    others = (SINGLE, INDEX, *_ADAPTER_FILES)
    file = place if text and place.suffix.lower() == ".gguf" and place.is_file() else None
    if file is None and text and place.is_dir() and not any((place / name).is_file() for name in others):
        found = sorted(path for path in place.iterdir() if path.suffix.lower() == ".gguf" and path.is_file())
        if len(found) > 1:
            raise InputError(
                f"{text!r} holds {len(found)} GGUF files, {some([f.name for f in found])}; give one of them"
            )
        file = found[0] if found else None
    if file is not None and revision is not None:
        raise InputError(f"revision={revision!r} is for hub ids, but {text!r} is a GGUF file; leave it out")
    return file


def _is_folder(text: str, folder: pathlib.Path, revision: str | None) -> bool:
    """True if `text` names an existing folder, False if it can only be a hub id."""
    if not text:
        raise InputError("the model's name is empty; give a folder, or a hub id such as 'gpt2' or 'owner/name'")
    if folder.is_dir():
        if revision is not None:
            raise InputError(f"revision={revision!r} is for hub ids, but {text!r} is a folder; leave it out")
        return True
    if folder.exists():
        raise InputError(f"{text!r} is a file; give the folder that holds config.json and safetensors, or a .gguf file")
    if _HUB_ID.fullmatch(text) is None:
        raise InputError(f"no model folder at {text!r}, and it is not a hub id such as 'gpt2' or 'owner/name'")
    return False
