"""Groups of options that several commands have: texts, scoring, device, decision, and how the work is divided."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from tdd.cli.common import CommandParser
from tdd.validate import InputError


def add_texts(parser: argparse.ArgumentParser) -> None:
    """Add the options for reading files of texts."""
    group = parser.add_argument_group("texts")
    group.add_argument(
        "--text-field", metavar="FIELD", help="(default: text, or the only field that is known to hold texts)"
    )
    group.add_argument("--id-field", metavar="FIELD", help='(default: "id", else row numbers)')
    group.add_argument("--input-format", metavar="NAME", help="format of the files (default: by their extension)")


def add_scoring(parser: argparse.ArgumentParser, *, by_method: bool = False) -> None:
    """Add the options for scoring texts; `by_method`: the method of an audit has its own default for long texts."""
    group = parser.add_argument_group("scoring")
    add_revision(group)
    group.add_argument(
        "--dtype", choices=["float32", "bfloat16", "float16"], help="dtype of the parameters (default: as stored)"
    )
    group.add_argument("--token-budget", type=int, metavar="N", help="tokens per batch")
    group.add_argument("--max-length", type=int, metavar="N", help="longest window in tokens (default: the model's)")
    group.add_argument(
        "--long-texts",
        choices=["window", "truncate", "error"],
        default=None if by_method else "window",
        help="texts longer than that: score every token once in windows, cut them, or stop (default: "
        + ("truncate for ktd, window for the others" if by_method else "window")
        + "); the score grad_norm has no windows",
    )
    add_store(group, "beside the output, and removed when it is written" if not by_method else "scoring in --out")
    add_devices(group)


def add_revision(group: Any) -> None:
    """Add the option for the revision of a model of the hub."""
    group.add_argument(
        "--revision", metavar="NAME", help="branch, tag or commit of a hub id (default: main); also MODEL@NAME"
    )


def add_store(group: Any, default: str) -> None:
    """Add the option for the score store."""
    group.add_argument(
        "--store",
        metavar="DIR",
        help="score store: texts in it are not scored again, by any command; who can write it can forge scores: share "
        f"it with people whom you trust (default: {default})",
    )


def add_devices(group: Any) -> None:
    """Add the options for devices and compiled programs."""
    add_device(group)
    group.add_argument(
        "--devices", metavar="N", help='number of devices, each with its own batches, or "all" (default: 1)'
    )
    group.add_argument(
        "--shard-params",
        action="store_true",
        help="divide the parameters over the devices: for models that do not fit on one",
    )
    group.add_argument(
        "--no-compilation-cache",
        action="store_true",
        help="do not keep compiled programs for later runs (by default in TDD_CACHE_DIR or the user's cache folder)",
    )


def add_device(parser: Any) -> None:
    """Add the option for a single device."""
    parser.add_argument("--device", metavar="NAME", help="cpu, gpu, tpu, gpu:1 (default: JAX's first)")


def scoring(arguments: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `add_scoring` as keywords; turns the compilation cache on unless it was declined."""
    same_names = ("revision", "dtype", "token_budget", "max_length", "long_texts", "store")
    return {**{name: getattr(arguments, name) for name in same_names}, **devices(arguments)}


def devices(arguments: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `add_devices` as keywords; turns the compilation cache on as `scoring` does."""
    from tdd.cli.machine import keep_compiled

    keep_compiled(not arguments.no_compilation_cache)
    return {
        "device": arguments.device,
        "devices": arguments.devices,
        "shard_params": arguments.shard_params,
        "progress": not arguments.quiet,
    }


_METHODS = """\
options of the methods, the default first:
  --method NAME:option=value,option=value; several numbers with colons
  ptdi         proportion=storey, subtraction, moment, moment_paper or
               none;
               eta=0.05, the region of presumed non-members;
               unit=cluster, item or drawn (with --group-field)
  best_score   rule=deterministic or randomized (more power)
  combined_score
               rule=split or cross_fit;
               learn_from=candidates or members (with --members)
  conditional  rule=simes, monte_carlo, dkwm or asymptotic;
               delta (default: --delta)
  weighted     rule=heterogeneous, homogeneous or deterministic
  ktd          rule=multi, derandomized, conformal or ktd (the paper's);
               proportion, of conformal, as of ptdi;
               offset=1 or 0
  td4eval      combine=pooled_rank (exact), cauchy (the paper's, no guarantee),
               hommel, e_values, ... (tdd guarantees); rule=sum or cauchy;
               weights=0.2:0.8, one for each detector, fixed beforehand
  jmcs         rule=bh, storey or by; eta=0.5
  jecs         grid=0.1:0.3:0.5, candidate edges of the envelope
"""


def add_decision(parser: CommandParser) -> None:
    """Add the options of a decision."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog, parser.rare_epilog = _METHODS, True
    group = parser.add_argument_group("decision")
    group.add_argument(
        "--alpha", type=float, default=0.1, help="level of the false discovery rate (default: %(default)s)"
    )
    group.add_argument(
        "--method",
        default="ptdi",
        metavar="NAME",
        help="ptdi, best_score (the best of several scores), combined_score (one learned from them), conditional "
        "(valid for this calibration sample), weighted (known density ratios), ktd (find members); td4eval, jmcs, jecs "
        "(find clean items). Options follow a colon: ptdi:proportion=none,eta=0.1 (default: %(default)s); --help-all "
        "lists them",
    )
    group.add_argument(
        "--delta",
        type=float,
        default=0.05,
        help="the simultaneous bounds hold with confidence 1 - DELTA (default: %(default)s)",
    )
    group.add_argument(
        "--seed",
        type=int,
        help="random seed (default: 0; for a randomised rule a draw from the operating system, which the run records "
        "and a run in the same folder takes again)",
    )
    group.add_argument(
        "--members",
        metavar="FILE",
        help="known members, for proportion=moment or moment_paper (ptdi, ktd) and combined_score:learn_from=members",
    )
    group.add_argument("--null", choices=["nonmember", "member"], help="check that the method tests this null")
    group.add_argument("--out", metavar="DIR", help="run folder to write; an interrupted run continues there")
    group.add_argument(
        "--fail-on-detection",
        action="store_true",
        help="exit with status 1 if something is selected (with 3 if a check failed, with or without this option)",
    )


def add_shard(parser: Any) -> None:
    """Add `--shard I/N`."""
    parser.add_argument(
        "--shard",
        metavar="I/N",
        help="compute the part I (from 0) of N alone and end: for job arrays, which start the same command N times; "
        "afterwards the command without --shard joins the parts, and computes what is missing; all of them share a "
        "folder, and who can write that folder must be trusted",
    )


def say_done(arguments: argparse.Namespace, folder: Any) -> None:
    """Report the end of a shard."""
    arguments.follows = True
    if not arguments.quiet:
        print(
            f"tdd {arguments.command}: shard {arguments.shard} is done, in {folder}; the command without --shard joins "
            "the shards",
            file=sys.stderr,
        )


def add_ray(parser: Any) -> None:
    """Add `--ray` and the options of its workers."""
    group = parser.add_argument_group("Ray", "pip install 'tdd[ray]'; tdd/runs/README.md has recipes")
    group.add_argument(
        "--ray",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="run on the workers of the Ray cluster at HOST:PORT; without an address, of a local Ray that is started "
        "for the run",
    )
    group.add_argument("--workers", type=int, metavar="N", help="workers (default: as many as fit)")
    group.add_argument(
        "--worker-resources",
        metavar="NAME=N",
        help="what each worker takes, comma-separated: CPU=4, GPU=1, TPU=4 (default: CPU=1)",
    )


def check_ray(arguments: argparse.Namespace) -> bool:
    """True if Ray is to run the command.

    Raises:
      InputError: Options of workers without --ray; --ray beside --shard or options of `jax.distributed`.
    """
    if arguments.ray is None:
        for name in ("workers", "worker_resources"):
            if getattr(arguments, name) is not None:
                raise InputError(f"--{name.replace('_', '-')} has no use without --ray; add --ray, or leave it out")
        return False
    if arguments.shard is not None:
        raise InputError("--shard and --ray both share out the work; give one of them")
    if given := _given_distributed(arguments):
        raise InputError(
            f"--{given[0].replace('_', '-')} has no use with --ray: each of its workers holds a whole model"
        )
    return True


def ray_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options as keywords of `tdd.on_ray.run_shards`."""
    resources: dict[str, float] | None = None
    if arguments.worker_resources is not None:
        resources = {}
        for part in arguments.worker_resources.split(","):
            name, _, amount = part.partition("=")
            try:
                resources[name.strip()] = float(amount)
            except ValueError:
                raise InputError(f"--worker-resources {part!r} must be NAME=N, as in CPU=4 or GPU=1") from None
    return {
        "address": arguments.ray or None,
        "num_workers": arguments.workers,
        "resources": resources,
        "progress": not arguments.quiet,
    }


def add_distributed(parser: Any) -> None:
    """Add the options by which processes that hold one model between them find one another."""
    group = parser.add_argument_group(
        "a model larger than one host",
        "with --shard-params, the same command in several processes that\njax.distributed connects; to give each "
        "process a part of the work instead,\nuse --shard",
    )
    group.add_argument(
        "--distributed",
        action="store_true",
        help="connect, with everything from the environment: SLURM, Open MPI, Kubernetes, or JAX_COORDINATOR_ADDRESS, "
        "JAX_NUM_PROCESSES and JAX_PROCESS_ID",
    )
    group.add_argument(
        "--coordinator",
        metavar="HOST:PORT",
        help="connect; process 0 listens here, and anybody who reaches the port can join: it has no authentication, "
        "so a firewall must admit the processes of the run alone",
    )
    group.add_argument("--num-processes", type=int, metavar="N", help="how many there are")
    group.add_argument("--process-id", type=int, metavar="I", help="which one this is, from 0")


def connect(arguments: argparse.Namespace) -> None:
    """Connect this process as the options of `add_distributed` say. Call it before JAX computes anything.

    Raises:
      InputError: Inconsistent options, a coordinator that does not answer, a second call, a call after JAX has
        computed something, or nothing to detect.
    """
    if given := _given_distributed(arguments):
        from tdd.cli.distributed import connect_processes

        connect_processes(arguments, given)


def _given_distributed(arguments: argparse.Namespace) -> list[str]:
    """The options of `add_distributed` that were given; 0 is a process."""
    names = ("distributed", "coordinator", "num_processes", "process_id")
    return [name for name in names if (value := getattr(arguments, name, None)) is not None and value is not False]


def leads(arguments: argparse.Namespace) -> bool:
    """True if this process writes the results; of those that hold one model between them only process 0 does."""
    import jax

    if not arguments.shard_params or jax.process_index() == 0:
        return True
    arguments.follows = True
    if not arguments.quiet:
        print(
            f"tdd {arguments.command}: process {jax.process_index()} of {jax.process_count()} is done; process 0 "
            "writes the results",
            file=sys.stderr,
        )
    return False
