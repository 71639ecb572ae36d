"""Runs on Ray, which places the shards of a run and repeats those whose worker dies.

Needs `pip install 'tdd[ray]'`. Without an address a local Ray is started for the run. Shards leave their work in a
folder that all hosts share (`tdd.runs.shards`), so that a repeated shard computes only what is missing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import math
import os
import pathlib
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax

import tdd
from tdd.models.source import at_revision
from tdd.records import Scores
from tdd.runs.display import progress_bar
from tdd.runs.shards import Shard
from tdd.scoring.score import Scoring
from tdd.scoring.scores.score import Score, as_models, as_scores, fields_of, loaded
from tdd.validate import InputError

_logger = logging.getLogger("tdd")

_RETRIES = 4
_CONNECT = 10.0  # seconds
_GCS_PORT = 6379
_HTTP2_SETTINGS = 4  # type of the frame with which either side begins (RFC 9113, section 3.4)

Call = Callable[[Shard | None], Any]


class Scorer:
    """A loaded model that scores batches of rows, for `ray.data.Dataset.map_batches`.

    Each actor loads the model once. The rows keep their columns and get one for each score and "num_tokens". Scores
    differ from those of one call of `tdd.score` by at most 1e-5 relative, since batches have other shapes. An example
    is in tdd/runs/README.md.

    Args:
      model: A checkpoint folder or hub id that every host can read.
      scores: As in `tdd.score`; models that they were given by their paths.
      text_column: Column of the texts.
      **options: Other arguments of `tdd.score` (revision, dtype, token_budget, long_texts, store, device).

    Raises:
      InputError: As `tdd.load` and `tdd.score`; a score that cannot be computed batch by batch ("fsd", which
        fine-tunes the model, and "lira:variance=pooled"); a batch without the column.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        scores: Scoring = ("loss", "min_k_plus_plus"),
        *,
        text_column: str = "text",
        **options: Any,
    ) -> None:
        asked = _check_by_batch(scores)
        dtype = options.pop("dtype", None)
        self._model = tdd.load(model, dtype=dtype, revision=options.pop("revision", None))
        self._text_column, self._options = text_column, {"progress": False, **options}
        lm, _, tokenizer = self._model
        with_models = _with_models(asked, lambda path: tdd.load(path, dtype=dtype))
        self._scores = {label: one.bound(tokenizer, lm.vocab_size) for label, one in loaded(with_models).items()}

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """The columns of a batch, and those of its scores."""
        if self._text_column not in batch:
            raise InputError(
                f"text_column={self._text_column!r} is not a column of the data set; columns found: {', '.join(batch)}"
            )
        scores = tdd.score(self._model, list(batch[self._text_column]), self._scores, **self._options)
        added = {"num_tokens": scores.num_tokens, **scores.values}
        if clashes := sorted(batch.keys() & added.keys()):
            raise InputError(f"the data set has columns {', '.join(clashes)}, as the scores; rename or drop them")
        return {**batch, **added}


def score(
    model: str | os.PathLike[str],
    texts: Any,
    scores: Scoring = ("loss", "min_k_plus_plus"),
    *,
    store: str | os.PathLike[str],
    address: str | None = None,
    num_workers: int | None = None,
    resources: Mapping[str, float] | None = None,
    progress: bool = True,
    **options: Any,
) -> Scores:
    """`tdd.score` by the workers of a Ray cluster: the same table, to the last bit.

    Args:
      model: A checkpoint folder or hub id that every host can read.
      texts: As `tdd.score`; sent to the workers.
      scores: As `tdd.score`.
      store: Score store in a folder that all hosts share.
      address, num_workers, resources, progress: As `run_shards`.
      **options: Other arguments of `tdd.score`.

    Raises:
      InputError: As `tdd.score` and `run_shards`.
    """
    from tdd.texts import load_texts

    options = {**options, "store": pathlib.Path(store).expanduser().absolute(), "progress": False}
    options["job"] = f"{options.get('job', '')}-{secrets.token_hex(6)}"  # a store takes run after run
    model = at_revision(model, options.pop("revision", None))
    asked = loaded(_with_models(as_scores(scores), functools.partial(_where, "a model that a score was given")))
    make = functools.partial(_scoring, _where("model", model), load_texts(texts), asked, options)
    return run_shards(
        make,
        address=address,
        num_workers=num_workers,
        shards_a_worker=1,  # each shard tokenises all texts
        resources=resources,
        progress=progress,
    )


def _check_by_batch(scores: Any) -> dict[str, Score]:
    """Check that the score of a text does not depend on the others of its batch, and needs no training."""
    asked = as_scores(scores)
    for label, one in asked.items():
        if not one.batchwise:
            raise InputError(f"the score {label!r} cannot be computed batch by batch; use tdd.on_ray.score")
    return asked


def _with_models(scores: Mapping[str, Score], fun: Callable[[Any], Any]) -> dict[str, Score]:
    """The scores with a function of each model that they were given in its place."""
    found = {}
    for label, one in scores.items():
        given = {
            name: [*map(fun, as_models(value))]
            for name, what in fields_of(one).items()
            if what is not None and what.kind == "model" and (value := getattr(one, name)) is not None
        }
        found[label] = dataclasses.replace(one, **given) if given else one
    return found


def study(
    *arguments: Any,
    folder: str | os.PathLike[str],
    address: str | None = None,
    num_workers: int | None = None,
    resources: Mapping[str, float] | None = None,
    progress: bool = True,
    **options: Any,
) -> Any:
    """`tdd.study.run` by the workers of a Ray cluster: the same numbers, to the last bit.

    Args:
      *arguments: Design and methods, as `tdd.study.run`; Ray must be able to pickle them.
      folder: Folder of the study, shared by all hosts.
      address, num_workers, resources, progress: As `run_shards`.
      **options: Other arguments of `tdd.study.run`.

    Raises:
      InputError: As `tdd.study.run` and `run_shards`.
    """
    options = {**options, "folder": pathlib.Path(folder).expanduser().absolute()}
    make = functools.partial(_running, arguments, options)
    return run_shards(make, address=address, num_workers=num_workers, resources=resources, progress=progress)


def named_study(name: str, options: Any, *, command: str, **ray_options: Any) -> Any:
    """`tdd study NAME` by the workers of a Ray cluster.

    Args:
      name: Name of the study.
      options: `tdd.study.named.record.StudyOptions`, with a folder that all hosts share.
      command: The command line, for the record.
      **ray_options: As `run_shards`.

    Returns:
      `tdd.study.named.driver.FinishedStudy`.

    Raises:
      InputError: No folder; a `target_se`, which needs the totals of all shards; as `run_shards`.
    """
    if options.folder is None:
        raise InputError("--ray needs --out: a folder that all hosts share")
    if options.target_se is not None:
        raise InputError("--target-se has no use with --ray: a shard does not know the totals of the others")
    options = dataclasses.replace(options, folder=options.folder.expanduser().absolute(), progress=False)
    return run_shards(functools.partial(_carrying_out, name, options, command), **ray_options)


def run_shards(
    make: Callable[[], Call],
    *,
    address: str | None = None,
    num_workers: int | None = None,
    shards_a_worker: int = 4,
    resources: Mapping[str, float] | None = None,
    progress: bool = True,
) -> Any:
    """Run all shards of a call on Ray, then the call that joins them.

    Args:
      make: Called once in each worker; returns `call(shard)`, whose work goes into a folder that all hosts share.
      address: HOST:PORT or ray://HOST:PORT of a cluster, "auto" for the one of this host; None starts a local Ray for
        the run. An existing connection of this process is used as it is.
      num_workers: Workers at a time (default: as many as the resources allow).
      shards_a_worker: Number of shards per worker: more of them balance workers of different speed, and each repeats
        the preparation.
      resources: Resources of each worker, as {"CPU": 4, "GPU": 1} or {"TPU": 4} (default: one CPU).
      progress: True shows a progress bar of the shards if standard error is a terminal.

    Returns:
      The result of `call(None)`, by which one of the workers joins the shards. A shard whose worker or host dies is
      given to another one, up to four times.

    Raises:
      InputError: Ray is not installed, nobody answers at the address, the resources do not exist, a worker lacks the
        package or has another version; any error of a shard.
    """
    try:
        import ray
        from ray.exceptions import RayError, RayTaskError
    except ImportError as error:
        raise InputError("Ray is not installed; install it with: pip install 'tdd[ray]'") from error
    wanted = _resources(resources)
    if shards_a_worker < 1:
        raise InputError(f"shards_a_worker={shards_a_worker} must be at least 1")
    with _cluster(ray, address, num_workers, wanted):
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        count = _num_workers(nodes, num_workers, wanted, fixed=address is None)
        shards = [Shard(i, shards_a_worker * count) for i in range(shards_a_worker * count)]
        requests = {"num_cpus": wanted.pop("CPU", 0), "num_gpus": wanted.pop("GPU", 0), "resources": wanted}
        # a process keeps its model from shard to shard; Ray's default ends it where it holds a GPU
        task = ray.remote(max_retries=_RETRIES, max_calls=0)(_work)
        settings: Any = jax.config
        given = tdd.__version__, settings.jax_compilation_cache_dir is not None, [ray.put(make)]
        try:
            submit = task.options(**requests).remote
            waiting = [submit(*given, shard) for shard in shards[:count]]
        except ValueError as error:
            raise InputError(f"Ray refuses the resources of a worker: {_last_line(error)}") from error
        try:
            with progress_bar(f"{count} workers", len(shards), enabled=progress, unit="shards") as advance:
                for shard in [*shards[count:], *[None] * count]:
                    (done,), waiting = ray.wait(waiting, num_returns=1)
                    ray.get(done)
                    advance(1)
                    waiting += [submit(*given, shard)] if shard is not None else []
            return ray.get(submit(*given, None))
        except RayTaskError as error:
            if isinstance(error.cause, InputError):
                raise InputError(str(error.cause)) from error
            if isinstance(error.cause, (ImportError, RayError)) or "failed to import on the worker" in str(error.cause):
                raise _cannot_go_on(error) from error
            raise
        except RayError as error:
            raise _cannot_go_on(error) from error
        finally:
            for unfinished in waiting:
                ray.cancel(unfinished, force=True)


_calls: dict[str, Call] = {}  # results of `make` in this worker


def _work(version: str, keep_programs: bool, made: Sequence[Any], shard: Shard | None) -> Any:
    """Run a shard in a worker, or join them."""
    if tdd.__version__ != version:
        raise InputError(
            f"a worker on {socket.gethostname()} has tdd {tdd.__version__} where the run has {version}; "
            "install the same version on all hosts"
        )
    name = made[0].hex()
    if name not in _calls:
        import ray

        from tdd.cli.machine import keep_compiled

        keep_compiled(keep_programs)
        _calls.clear()
        make: Any = ray.get(made[0])
        _calls[name] = make()
    return _calls[name](shard)


def _where(name: str, model: Any) -> str:
    """A checkpoint as workers find it: its whole path where it is a folder, else the name of a model of the hub."""
    if not isinstance(model, (str, os.PathLike)):
        raise InputError(f"{name} must be a checkpoint folder or hub id that every worker reads, got {type(model)}")
    path = pathlib.Path(model).expanduser()
    return str(path.absolute()) if path.exists() else os.fspath(model)


def _scoring(model: str, texts: Any, scores: Mapping[str, Score], options: Mapping[str, Any]) -> Call:
    """Loads the models once for all shards of a worker."""
    from tdd.scoring.devices import find_devices
    from tdd.scoring.models import find_model

    where = find_devices(options.get("device"), options.get("devices"), shard_params=options.get("shard_params", False))
    dtype = options.get("dtype")
    with jax.default_device(where.home):
        own = find_model("model", model, None, None, dtype, where)
        asked = _with_models(scores, lambda path: find_model("reference", path, None, None, dtype, where))

    def call(shard: Shard | None) -> Any:
        arguments: dict[str, Any] = {**options, "shard": shard}
        return tdd.score(own, texts, asked, **arguments)

    return call


def _running(arguments: Sequence[Any], options: Mapping[str, Any]) -> Call:
    from tdd.study import run

    return lambda shard: run(*arguments, **options, shard=shard)


def _carrying_out(name: str, options: Any, command: str) -> Call:
    from tdd.study import named
    from tdd.study.named.driver import run_named_study, run_shard

    spec = named.load(name)

    def call(shard: Shard | None) -> Any:
        if shard is None:
            return run_named_study(spec, options, command=command)
        return run_shard(spec, dataclasses.replace(options, shard=shard))

    return call


@contextlib.contextmanager
def _cluster(ray: Any, address: str | None, num_workers: int | None, wanted: Mapping[str, float]) -> Iterator[None]:
    """A connection to Ray: the existing one, the cluster at the address, or a local one that ends with the run."""
    if address is not None:
        _check_address(address)
    if ray.is_initialized():
        yield
        return
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": True}
    if address is None:
        cpus = max(os.cpu_count() or 1, math.ceil((num_workers or 1) * wanted.get("CPU", 0)))
        options |= {"address": "local", "num_cpus": cpus, "include_dashboard": False}
    else:
        options["address"] = address
    try:
        ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise InputError(f"Ray at address={address or 'local'!r} cannot be used: {_last_line(error)}") from error
    try:
        yield
    finally:
        ray.shutdown()


def _check_address(address: str) -> None:
    """A gRPC server such as Ray's listens there; Ray itself would go on trying."""
    if address in ("auto", "local"):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise InputError(f"address={address!r} must be HOST:PORT or ray://HOST:PORT, as in head:6379, or auto")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT) as talk:
            is_ray = os.environ.get("RAY_USE_TLS") == "1" or _speaks_http2(talk)
    except OSError as error:
        raise InputError(
            f"nobody answers at Ray's address={address!r} ({error}); start a head there with: ray start --head, or "
            "leave the address out for a local Ray"
        ) from error
    if not is_ray:
        raise InputError(
            f"what answers at address={address!r} is not Ray; give the port of the head ({_GCS_PORT} unless it was "
            "started with another), or ray:// and that of Ray's client server"
        )


def _speaks_http2(talk: socket.socket) -> bool:
    """True if the peer begins as a server of HTTP/2 does, and so of gRPC."""
    talk.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, _HTTP2_SETTINGS, 0, 0, 0, 0, 0]))
    try:
        header = talk.recv(9, socket.MSG_WAITALL)
    except OSError:
        return False
    return len(header) == 9 and header[3] == _HTTP2_SETTINGS


def _resources(given: Mapping[str, float] | None) -> dict[str, float]:
    """Resources of a worker; a GPU or TPU worker needs no CPU of its own."""
    wanted = {"CPU": 1.0} if given is None else {str(name): amount for name, amount in given.items()}
    for name, amount in wanted.items():
        if isinstance(amount, bool) or not isinstance(amount, (int, float)) or not 0 < amount < math.inf:
            raise InputError(f"resources: {name}={amount!r} must be a number above 0, as in CPU=4 or GPU=1")
    if not wanted:
        raise InputError("resources is empty; name what a worker takes, as in CPU=4 or GPU=1")
    return wanted


def _num_workers(
    nodes: Sequence[Mapping[str, float]], asked: int | None, wanted: Mapping[str, float], *, fixed: bool
) -> int:
    """Number of workers: as asked, else as many as fit; at least one must fit into a cluster that cannot grow."""
    if asked is not None and asked < 1:
        raise InputError(f"num_workers={asked} must be at least 1")
    fit = sum(int(min(node.get(name, 0) / amount + 1e-9 for name, amount in wanted.items())) for node in nodes)
    if fit < (asked or 1):
        needs = ", ".join(f"{name}={amount:g}" for name, amount in wanted.items())
        existing = "; ".join(", ".join(f"{name}={node.get(name, 0):g}" for name in wanted) for node in nodes[:4])
        text = f"{asked or 1} worker{'s' if (asked or 1) > 1 else ''} with {needs} each do not fit: Ray has {existing}"
        if fixed:
            raise InputError(f"{text}; ask for fewer workers or for less")
        _logger.warning("%s; %s", text, f"the run goes on with {fit}" if fit else "waiting until it has more")
    return asked or max(fit, 1)


def _cannot_go_on(error: BaseException) -> InputError:
    return InputError(
        f"a worker of Ray cannot go on: {_last_line(error)}. Every host needs tdd {tdd.__version__} and what it "
        "depends on, and memory for the model; what is finished is kept, and the same command goes on"
    )


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__).rstrip(".")
