"""The output folder of a training run: state while it runs, checkpoint and record when it is done.

Parameters, optimizer state and the record of the run travel in one safetensors file, the record as JSON in
the file's header, with a SHA-256 of them all: one rename replaces all of it, so a killed run never leaves halves
that do not belong together.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from tdd.lab.checks import check_out
from tdd.lab.lora import Lora
from tdd.lab.recipe import TrainConfig
from tdd.lab.tokens import Batches
from tdd.models.configuration import check_vocabulary
from tdd.models.weights import open_safetensors
from tdd.records import LanguageModel
from tdd.runs.atomic import disk_errors, write_atomically
from tdd.validate import InputError
from tdd.validate.files import check_choice, parse_json, reading

CHECKPOINT_FOLDER = "checkpoint"
"""Subfolder with the checkpoint of a finished run, in Hugging Face's format."""

RECORD_FILE = "training.json"
"""The record of a finished run: configuration and history."""

_STATE_FILE = "training_state.safetensors"
_HEADER_KEY = "tdd_training"


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """The progress of a run."""

    step: int = 0  # number of finished steps
    epoch_loss: float = 0.0  # loss summed over the tokens of the current epoch
    epoch_tokens: int = 0  # number of those tokens
    history: tuple[dict[str, Any], ...] = ()  # one dict per finished epoch: epoch, step, loss, eval_loss

    @property
    def recent_loss(self) -> float:
        """Mean loss of the current epoch so far, or of the last one before its first step."""
        return self.epoch_loss / self.epoch_tokens if self.epoch_tokens else self.history[-1]["loss"]

    def after_step(self, loss: float, tokens: int) -> RunRecord:
        """The record after one more step with this summed loss and number of scored tokens."""
        return RunRecord(self.step + 1, self.epoch_loss + loss, self.epoch_tokens + tokens, self.history)

    def after_epoch(self, eval_loss: float | None) -> RunRecord:
        """The record after the end of an epoch: a line is added to the history, the sums start at zero."""
        line = {
            "epoch": len(self.history) + 1,
            "step": self.step,
            "loss": self.epoch_loss / self.epoch_tokens,
            "eval_loss": eval_loss,
        }
        return RunRecord(self.step, history=(*self.history, line))


class RunFolder:
    """The files of one run.

    Raises:
      InputError: The folder is a file or holds another run or a finished one, or the model cannot be saved.
    """

    def __init__(
        self, out: str | os.PathLike[str], lm: LanguageModel, tokenizer: Any, dtype: str, fingerprint: str
    ) -> None:
        from tdd.models.spec import DecoderSpec

        self.path = pathlib.Path(out).expanduser()
        self.lm, self.tokenizer, self.dtype = lm, tokenizer, dtype
        self.fingerprint = fingerprint
        if not isinstance(lm.spec, DecoderSpec):
            raise InputError(
                f"out needs a model whose spec is a DecoderSpec, got {type(lm.spec).__name__}; train without out and "
                "save the returned params yourself"
            )
        check_choice("save_dtype", dtype, ("float32", "bfloat16", "float16"))
        check_vocabulary(tokenizer.get_vocab(), lm.vocab_size, "tokenizer")
        check_out(self.path)
        with disk_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        self._check_not_finished(RECORD_FILE)

    def open(self, state: Any) -> tuple[Any, RunRecord]:
        """The saved state, in the structure of `state`, and its record; `state` itself at step 0 if none was saved.

        Raises:
          InputError: The saved state is damaged, of another run, or of a model with other parameters.
        """
        path = self.path / _STATE_FILE
        if not path.exists():
            self._check_not_finished(CHECKPOINT_FOLDER)
            return state, RunRecord()
        with reading(path, "a training state"), open_safetensors(path) as file:
            header = parse_json((file.metadata() or {})[_HEADER_KEY])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if header.pop("sha256") != _digest(header, tensors):
                raise InputError(
                    f"training state {str(path)!r} is damaged: it does not fit its SHA-256; delete the file to start "
                    "anew"
                )
        if header.pop("run") != self.fingerprint:
            raise InputError(
                f"out={str(self.path)!r} holds a training run of another model, other texts or another configuration; "
                "choose another folder or delete it"
            )
        expected = _named_leaves(state)
        _check_layout(path, tensors, expected)
        leaves = [jax.numpy.array(tensors[name]) for name in expected]
        history = tuple(header.pop("history"))
        return jax.tree.unflatten(jax.tree.structure(state), leaves), RunRecord(**header, history=history)

    def save(self, state: Any, record: RunRecord) -> None:
        """Replace the saved state."""
        from safetensors.numpy import save

        header = {"run": self.fingerprint, **dataclasses.asdict(record)}
        tensors = {name: np.asarray(leaf, order="C") for name, leaf in _named_leaves(state).items()}
        sealed = json.dumps({**header, "sha256": _digest(header, tensors)})
        write_atomically(self.path / _STATE_FILE, save(tensors, metadata={_HEADER_KEY: sealed}))

    def finish(self, params: Any, config: TrainConfig, lora: Lora | None, record: RunRecord) -> None:
        """Write checkpoint and record, then remove the state."""
        from tdd.models import checkpoint

        unfinished = self.path / CHECKPOINT_FOLDER
        if unfinished.exists():  # of this same run, killed between its checkpoint and its record
            shutil.rmtree(unfinished)
        checkpoint.save(unfinished, self.lm, params, self.tokenizer, dtype=self.dtype)
        summary = {
            "run": self.fingerprint,
            "config": dataclasses.asdict(config),
            "lora": None if lora is None else dataclasses.asdict(lora),
            "steps": record.step,
            "history": record.history,
        }
        write_atomically(self.path / RECORD_FILE, (json.dumps(summary, indent=2) + "\n").encode())
        (self.path / _STATE_FILE).unlink(missing_ok=True)

    def _check_not_finished(self, evidence: str) -> None:
        """The folder holds no finished run, which would have left `evidence`."""
        if (self.path / evidence).exists():
            raise InputError(
                f"out={str(self.path)!r} holds a finished training run; load its checkpoint, or choose another out"
            )


def run_fingerprint(
    lm: LanguageModel,
    params: Any,
    config: TrainConfig,
    texts: Batches,
    held_out: Batches | None,
    lora: Lora | None = None,
) -> str:
    """SHA-256 of everything that decides a run: architecture, first parameters, configuration, token ids."""
    digest = hashlib.sha256(repr((lm.spec, config, lora)).encode())
    _add_arrays(digest, _named_leaves(params))
    for rows in (texts.rows, held_out.rows if held_out is not None else ()):
        digest.update(len(rows).to_bytes(8, "little"))
        for row in rows:
            digest.update(len(row).to_bytes(8, "little"))
            digest.update(row.tobytes())
    return digest.hexdigest()


def _digest(header: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of a saved state."""
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    _add_arrays(digest, dict(sorted(tensors.items())))
    return digest.hexdigest()


def _add_arrays(digest: Any, arrays: Mapping[str, np.ndarray]) -> None:
    for name, array in arrays.items():
        digest.update(f"{name}{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())


def _named_leaves(tree: Any) -> dict[str, np.ndarray]:
    """Arrays by their path in the tree, in the tree's order."""
    return {
        jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]
    }


def _check_layout(path: Any, tensors: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    """A saved training state has exactly the tensors that the run needs."""
    for name in sorted(tensors.keys() ^ expected.keys()):
        where = "lacks" if name in expected else "has an unknown"
        raise InputError(f"training state {str(path)!r} {where} tensor {name!r}; delete the file to start anew")
    for name in expected:
        layout, wanted = ((array.shape, str(array.dtype)) for array in (tensors[name], expected[name]))
        if layout != wanted:
            raise InputError(
                f"training state {str(path)!r}: tensor {name!r} is {layout}, expected {wanted}; "
                "delete the file to start anew"
            )
