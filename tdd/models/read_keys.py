"""Which keys of a config.json transformers reads for a type of model, by its own source files.

A key that is read neither there nor by this package cannot change what the model computes. Counted as read are all
words of the type's own configuration; in the type's own model, and in the files that all models share, attributes of a
configuration and names given to `getattr`; in the base of all configurations its fields and the names that it takes
out of a file. Nothing is imported: torch is not needed.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import pathlib
import re
from collections.abc import Iterator

_SHARED = ("modeling_*.py", "*mask*_utils.py", "cache_utils.py", "activations.py", "pytorch_utils.py",
           "integrations/*.py")  # fmt: skip
_BASE = ("configuration_utils.py", "modeling_rope_utils.py")
_ATTRIBUTE = re.compile(r"""config\w*(?:\([^()]*\))?\.(\w+)|attr\(\s*[\w.()]*config[\w.()]*,\s*["'](\w+)""")
_FIELD = re.compile(r"""(?m)^    (\w+)\s*:|self\.(\w+)|attr\(\s*self,\s*["'](\w+)|(?:pop|get)\(\s*["'](\w+)""")
_WORD = re.compile(r"(\w+)")


def is_read(key: str, model_type: str, version: object = None) -> bool:
    """Whether transformers reads the key for the type of model; True where its files cannot tell.

    They cannot where a newer transformers, of that `version`, wrote the configuration.
    """
    names = None if _numbers(version) > _numbers(importlib.metadata.version("transformers")) else _names(model_type)
    return names is None or key in names


def _numbers(version: object) -> tuple[int, ...]:
    """Major and minor number of a version; none of anything else."""
    found = re.match(r"(\d+)\.(\d+)", version) if isinstance(version, str) else None
    return tuple(map(int, found.groups())) if found else ()


@functools.cache
def _names(model_type: str) -> frozenset[str] | None:
    from transformers.models.auto.configuration_auto import model_type_to_module_name

    spec = importlib.util.find_spec("transformers")
    home = pathlib.Path(spec.origin).parent if spec is not None and spec.origin else pathlib.Path()
    folder = home / "models" / model_type_to_module_name(model_type)
    if not [*folder.glob("configuration_*.py")] or not [*folder.glob("modeling_*.py")]:
        return None
    own = [*_found(folder, ("configuration_*.py",), _WORD), *_found(folder, ("modeling_*.py",), _ATTRIBUTE)]
    return frozenset([*own, *_found(home, _SHARED, _ATTRIBUTE), *_found(home, _BASE, _FIELD)])


def _found(folder: pathlib.Path, files: tuple[str, ...], pattern: re.Pattern[str]) -> Iterator[str]:
    for name in files:
        for file in folder.glob(name):
            for match in pattern.finditer(file.read_text("utf-8")):
                yield from filter(None, match.groups())
