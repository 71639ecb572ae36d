"""`tdd info`: versions, devices, caches, models at hand and optional packages."""

from __future__ import annotations

import argparse
import os
import pathlib
import platform
from importlib import metadata
from typing import Any

from tdd.cli.common import command, console, print_json

__all__ = ["add"]

_OPTIONAL = {
    "torch": "parity tests",
    "ray": "tdd score --ray",
    "equinox": "tdd.from_equinox",
    "dm-haiku": "tdd.from_haiku",
    "datasets": "texts from Hugging Face data sets",
    "pandas": "tables from data frames",
    "polars": "tables from data frames",
}


def add(commands: Any) -> None:
    """Register the command."""
    command(commands, "info", _run, "show versions, devices, caches, models at hand and optional packages")


def _run(arguments: argparse.Namespace) -> None:
    found = collect()
    if arguments.json:
        print_json(found)
        return
    from tdd.report.sections import Facts, Report, to_terminal

    models = [f"{model['name']} ({_size(model['bytes'])})" for model in found["models"]]
    cache = found["compilation_cache"]
    rows = [
        *found["versions"].items(),
        ("platform", found["platform"]),
        ("devices", ", ".join(found["devices"])),
        ("compiled programs", f"{cache['folder']} ({_size(cache['bytes'])} in {cache['programs']:,} files)"),
        ("models in the hub cache", ", ".join(models) or f"none in {found['hub_cache']}"),
    ]
    optional = [
        (name, found["optional"][name] or f"not installed (for {purpose})") for name, purpose in _OPTIONAL.items()
    ]
    sections = (Facts("Installation", tuple(rows)), Facts("Optional packages", tuple(optional)))
    console().print(to_terminal(Report("tdd info", f"tdd {found['versions']['tdd']}", sections)))


def collect() -> dict[str, Any]:
    """What `tdd info --json` prints."""
    import jax
    from huggingface_hub import constants

    from tdd.cli.machine import cache_folder
    from tdd.runs.folder import versions

    folder = cache_folder()
    programs = [path for path in folder.glob("*") if path.is_file()] if folder.is_dir() else []
    return {
        "versions": versions(),
        "platform": platform.platform(),
        "devices": [f"{device} ({device.device_kind})" for device in jax.devices()],
        "cores": os.cpu_count(),
        "compilation_cache": {
            "folder": str(folder),
            "programs": sum(not path.name.endswith("-atime") for path in programs),
            "bytes": sum(path.stat().st_size for path in programs),
        },
        "hub_cache": constants.HF_HUB_CACHE,
        "models": _models(pathlib.Path(constants.HF_HUB_CACHE)),
        "optional": {name: _version(name) for name in _OPTIONAL},
    }


def _models(cache: pathlib.Path) -> list[dict[str, Any]]:
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repositories = scan_cache_dir(cache).repos
    except CacheNotFound:
        return []
    models = [
        {
            "name": repository.repo_id,
            "bytes": repository.size_on_disk,
            "revisions": sorted(revision.commit_hash for revision in repository.revisions),
        }
        for repository in repositories
        if repository.repo_type == "model"
    ]
    return sorted(models, key=lambda model: model["name"])


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"
