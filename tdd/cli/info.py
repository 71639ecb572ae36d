"""`tdd info`: versions, devices, caches, models at hand and optional packages; or what a model needs of a device."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
import pathlib
import platform
from collections.abc import Callable
from importlib import metadata
from typing import Any

from tdd.cli.common import command, present
from tdd.cli.options import add_revision
from tdd.device_kinds import KINDS, kind_of, named_kind
from tdd.validate import InputError

_OPTIONAL = {
    "torch": "parity tests",
    "gguf": "quantised GGUF files",
    "ray": "tdd score --ray",
    "equinox": "tdd.from_equinox",
    "datasets": "texts from Hugging Face data sets",
    "pandas": "tables from data frames",
    "polars": "tables from data frames",
}


def add(commands: Any) -> None:
    """Register the command."""
    parser = command(
        commands,
        "info",
        _run,
        "show versions, devices, caches, models at hand and optional packages; with --model, estimate whether a model "
        "fits on a device and how fast it could be scored there",
    )
    parser.add_argument("--model", metavar="PATH", help="checkpoint folder, GGUF file or hub id; no weights are read")
    add_revision(parser)
    parser.add_argument(
        "--device", metavar="KIND", help=f"{', '.join(KINDS)}, or its memory such as 24GB (default: this machine's)"
    )
    parser.add_argument(
        "--dtype", choices=["float32", "bfloat16", "float16"], help="type of the parameters (default: as stored)"
    )
    parser.add_argument("--length", type=int, metavar="T", help="tokens of a text (default: the model's, at most 2048)")


def _run(arguments: argparse.Namespace) -> None:
    if arguments.model is not None:
        _run_budget(arguments)
        return
    for name in ("revision", "device", "dtype", "length"):
        if getattr(arguments, name) is not None:
            raise InputError(f"--{name} says how to estimate for a model; add --model PATH, or leave it out")
    from tdd.report.sections import Facts, Report

    found = collect()
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
    present(arguments, Report("tdd info", f"tdd {found['versions']['tdd']}", sections), record=found)


def _run_budget(arguments: argparse.Namespace) -> None:
    from tdd.report.sections import Facts, Report

    found = budget(arguments)
    needed = _size(found["params_bytes"] + found["temporary"])
    active = f" ({found['active_params']:,} for a token)" if found["active_params"] < found["num_params"] else ""
    rows = [("family", found["family"])]
    if "gguf_types" in found:
        counts = ", ".join(f"{count:,} {name}" for name, count in found["gguf_types"].items())
        rows.append(("format", f"GGUF, tensors stored as {counts}; blocks become float32 when they are read"))
    else:
        rows.append(("format", f"safetensors, {found['files']} file{'s' * (found['files'] != 1)}"))
    rows += [
        ("parameters", f"{found['num_params']:,}{active} in {found['dtype']}, {_size(found['params_bytes'])}"),
        *([("quantised", found["quantisation"])] if "quantisation" in found else []),
        ("missing", "; ".join(found["missing"]) or "nothing"),
        ("memory for JAX", _size(found["available"])),
        ("batch", f"{found['batch']} rows of {found['length']:,} tokens" if found["fits"] else "none"),
        ("memory needed", f"{needed}, of it {_size(found['temporary'])} temporary"),
        ("work", f"{found['flops_per_token'] / 1e9:.3g} GFLOP a token"),
    ]
    if found["tokens_per_second"] is not None:
        rows.append(("throughput", f"about {found['tokens_per_second']:,.0f} tokens a second"))
    verdict = "fits" if found["fits"] else "does not fit"
    sections = (
        Facts("Estimate, not a measurement", tuple(rows)),
        Facts("Assumed", tuple((str(i), text) for i, text in enumerate(found["assumptions"], 1))),
    )
    title = f"{found['model']} {verdict} on {found['device']}"
    present(arguments, Report("tdd info", title, sections), record=found)


def budget(arguments: argparse.Namespace) -> dict[str, Any]:
    """What `tdd info --model --json` prints."""
    from tdd.models.budget import ASSUMPTIONS, estimate, usable
    from tdd.models.source import resolve_config
    from tdd.scoring.buckets import default_budget
    from tdd.scoring.token_stats import tiling

    family, spec, stored, weights = _described(resolve_config(arguments.model, revision=arguments.revision))
    dtype = arguments.dtype or (stored if stored in ("float32", "bfloat16", "float16") else "float32")
    if arguments.device is None:
        import jax

        kind, device = kind_of(jax.local_devices()[0]), str(jax.local_devices()[0])
        if kind.memory is None:
            kind, device = dataclasses.replace(kind, memory=_host_memory()), "this machine's processors"
    else:
        kind, device = usable(named_kind(arguments.device)), arguments.device
    platform = kind.platform
    found = estimate(
        spec,
        dtype,
        kind,
        token_budget=default_budget(platform),
        tile=tiling(platform).chunk,
        length=arguments.length,
    )
    named = {"model": arguments.model, "family": family, "device": device, "dtype": dtype, "fits": found.fits}
    named |= weights
    return {**named, **dataclasses.asdict(found), "assumptions": list(ASSUMPTIONS)}


def _described(place: pathlib.Path) -> tuple[str, Any, Any, dict[str, Any]]:
    """A checkpoint's family, its spec, the type of its parameters, how its weights are stored, and what it lacks."""
    from tdd.models.checkpoint import check_files

    if place.is_file():
        from tdd.models.gguf import GgufFile

        file = GgufFile(place)
        family, spec = file.spec()
        faults = _faults(file.tensors, file.tokenizer) or _faults(functools.partial(check_files, place))
        stored = {"gguf_types": dict(file.types), "missing": faults}
        return family.model_type, spec, file.dtype, stored
    from tdd.models.configuration import (
        check_tokenizer_present,
        log_tokens_without_row,
        quantisation_of,
        read_config,
        read_spec,
        read_tokenizer,
    )
    from tdd.models.weights import DTYPES, StoredTensors

    family, spec = read_spec(place)
    config = read_config(place / "config.json")
    types: set[str] = set()

    def see_weights() -> None:
        with StoredTensors(place) as tensors:
            types.update(map(tensors.dtype, tensors.names()))

    def see_tokenizer() -> None:
        check_tokenizer_present(place)
        log_tokens_without_row(read_tokenizer(place).get_vocab(), spec.vocab_size, str(place))

    faults = _faults(see_weights, see_tokenizer)
    faults = faults or _faults(functools.partial(check_files, place))
    stored = {"files": sum(1 for _ in place.glob("*.safetensors")), "missing": faults}
    if (quantisation := quantisation_of(place)) is not None:
        return family.model_type, spec, "float32", {**stored, "quantisation": quantisation.description}
    text = config.get("text_config") or {}
    dtype = next((part[key] for part in (config, text) for key in ("dtype", "torch_dtype") if part.get(key)), None)
    if dtype is None and len(types) == 1 and types <= DTYPES.keys():
        dtype = DTYPES[types.pop()].name
    return family.model_type, spec, dtype, stored


def _faults(*readers: Callable[[], Any]) -> list[str]:
    """What the parts of a checkpoint cannot be read for, in the words of their readers; no weights are read."""
    found = []
    for read in readers:
        try:
            read()
        except InputError as error:
            found.append(str(error))
    return found


def _host_memory() -> int:
    """Bytes of this machine's memory, or of the share of it that a container has."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = pathlib.Path("/sys/fs/cgroup/memory.max")
    share = limit.read_text().strip() if limit.is_file() else "max"
    return min(memory, int(share)) if share.isdecimal() else memory


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
