"""The machine, for every command: errors of the system, and a cache of compiled programs."""

from __future__ import annotations

import argparse
import contextlib
import errno
import logging
import os
import pathlib
import re
import sys
from typing import Any

from tdd.validate import InputError

_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
"""Errors without a file name that concern the output."""

_LEAST = {
    "RLIMIT_AS": (("-v", "address space"), 4 << 30),
    "RLIMIT_DATA": (("-d", "data"), 2 << 30),
}
"""Limit -> its option of ulimit and what it is of; bytes that a small audit maps on two cores, rounded up."""

_SHORTEST = 0.1
"""Compilation time in seconds from which a program is kept; JAX's default omits most of a small model."""

_SETTING = re.compile(
    r"invalid (?:truth |integer )?value (\S+) for environment '?(JAX_\w+)'?|Invalid value (\S+) for JAX flag (jax_\w+)"
)
"""What JAX says of its environment variables when it is imported."""

_OFF = ("0", "false", "no", "off")

_logger = logging.getLogger("tdd")


def check_output_open(output: Any) -> None:
    """Standard output is open."""
    if output is None:
        raise InputError("the standard output is closed; redirect it to a file, or to /dev/null")


def check_still_there(arguments: argparse.Namespace) -> None:
    """The output folder was not removed while the command ran."""
    out = getattr(arguments, "out", None)
    if out and not getattr(arguments, "follows", False) and not os.path.exists(os.path.expanduser(out)):
        raise InputError(f"{out} was removed while the command ran; run the same command again")


def check_limits() -> None:
    """The limits of the shell leave room for what JAX maps into memory before it computes anything.

    Below them it ends the process by a signal, or waits for ever, so that nothing could be said later.
    """
    if sys.platform == "win32":
        return
    import resource

    for name, (option, least) in _LEAST.items():
        given = resource.getrlimit(getattr(resource, name))[0]
        if given != resource.RLIM_INFINITY and given < least:
            raise InputError(
                f"this shell allows {given // 1024:,} kB of {option[1]} (ulimit {option[0]}), and JAX needs "
                f"{least // 1024:,} before it computes anything; raise the limit, and bound memory by a control group "
                "(systemd-run --scope -p MemoryMax=2G ...)"
            )


def of_the_machine(error: BaseException) -> str:
    """The system's message on a file, the output or memory, in one line; "" for any other error."""
    from tdd.validate import is_memory_error

    if is_memory_error(error):
        return f"out of memory ({error}); give smaller sizes, or a machine with more of it"
    if not isinstance(error, OSError):
        return ""
    if error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if error.errno in _OUTPUT:
        drop_output()
        return f"the output cannot be written: {error.strerror}; what the command has written to files is there"
    return f"the system refuses: {error}"


def of_jax_settings(error: BaseException) -> str:
    """What is wrong with JAX's environment variables, in one line; "" for any other error.

    JAX reads them when it is imported, and looks for its backends when it is first used.
    """
    if found := _SETTING.search(str(error)):
        value, name = (found.group(1) or found.group(3)).strip("'\""), (found.group(2) or found.group(4)).upper()
        return f"{name}={value}: JAX knows no such value; leave {name} unset, or see JAX's documentation for its values"
    odd = {
        "JAX_DEFAULT_DEVICE": "jax.default_device must" in str(error),
        "JAX_DEBUG_NANS": isinstance(error, FloatingPointError),
        "JAX_COMPILATION_CACHE_DIR": isinstance(error, UnicodeEncodeError) or "DebugOptions, str" in str(error),
    }
    if name := next((name for name, fits in odd.items() if fits and os.environ.get(name)), ""):
        return f"{name}={os.environ[name]}: JAX stops for it; leave {name} unset"
    platforms = os.environ.get("JAX_PLATFORMS", "")
    if not platforms or "jax" not in sys.modules:
        return ""
    import jax

    try:
        if "initialize backend" in str(error):  # the second of two; the first one is there
            raise error
        jax.devices()
    except (RuntimeError, AssertionError) as refusal:
        reason = (str(refusal).splitlines() or ["no such device is here, or its plug-in is not installed"])[0]
        reason = reason.partition(" (set JAX_")[0].rstrip(".")
        return f"JAX_PLATFORMS={platforms}: {reason}; set JAX_PLATFORMS=cpu, or leave it unset"
    return ""


def drop_output() -> None:
    """Discard further output; Python would otherwise try to write it again at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def cache_folder() -> pathlib.Path:
    """The folder of the cache: TDD_CACHE_DIR, else the platform's cache folder of this user."""
    if given := os.environ.get("TDD_CACHE_DIR"):
        return pathlib.Path(given).expanduser() / "xla"
    if sys.platform == "darwin":
        base = pathlib.Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = pathlib.Path(os.environ.get("LOCALAPPDATA") or pathlib.Path.home() / "AppData" / "Local")
    else:
        base = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    return base / "tdd" / "xla"


def keep_compiled(enabled: bool = True) -> pathlib.Path | None:
    """Turn JAX's persistent compilation cache on, before anything is compiled; its folder, None if all stays as it was.

    JAX's own settings (JAX_COMPILATION_CACHE_DIR, JAX_ENABLE_COMPILATION_CACHE) win, and TDD_COMPILATION_CACHE=0 turns
    it off. If the folder cannot be written, everything is compiled again.
    """
    if not enabled or os.environ.get("TDD_COMPILATION_CACHE", "").lower() in _OFF:
        return None
    import jax

    settings: Any = jax.config
    if settings.jax_compilation_cache_dir is not None or not settings.jax_enable_compilation_cache:
        return None
    try:
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK | os.X_OK)
    except (OSError, RuntimeError) as error:  # RuntimeError: no home folder
        _logger.info("compiled programs are not kept: %s", error)
        return None
    if not writable:
        _logger.info("compiled programs are not kept: %s cannot be written", folder)
        return None
    settings.update("jax_compilation_cache_dir", str(folder))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        settings.update("jax_persistent_cache_min_compile_time_secs", _SHORTEST)
    return folder
