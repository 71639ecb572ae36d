"""Models of different skill: one training run in stages, each of which ends in a model of its own."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

import jax
import numpy as np

from benchmarks.reproductions.models import Base
from tdd.lab.config import TrainConfig
from tdd.lab.corpus import generate
from tdd.lab.tokenizer import train_tokenizer
from tdd.lab.train import CHECKPOINT_FOLDER, train
from tdd.models.decoder import init_params
from tdd.models.language_model import language_model
from tdd.models.spec import DecoderSpec

__all__ = ["trained_stages"]

_CORPUS, _TOKENIZER, _PARAMETERS = 830_000, 840_000, 850_000
_WINDOW = 64


def trained_stages(
    folder: pathlib.Path | None,
    *,
    documents: int,
    stages: Sequence[int],
    width: int,
    seed: int,
    progress: bool = False,
) -> list[Base]:
    """Model i begins with the parameters of model i - 1 and is trained `stages[i]` epochs more on the same documents.

    Every stage has its own warm-up and cosine, so each model is a finished one; all share their compiled programs.

    Args:
      folder: of the run, where the models are kept as checkpoints `stage-1`, ...; None keeps nothing. Finished stages
        are read from there, and an interrupted one goes on.
      documents: synthetic documents to train on.
      stages: epochs of each stage.
      width: of the models, which have two layers.
      seed: of documents, parameters and order.
      progress: whether to show bars.
    """
    vocabulary = generate(max(64, min(4000, 8 * documents)), seed=_TOKENIZER).texts
    tokenizer = train_tokenizer(vocabulary, vocab_size=1024 if documents > 100 else 400)
    texts = generate(documents, seed=_CORPUS + seed).texts
    spec = DecoderSpec.gpt2(
        vocab_size=len(tokenizer), width=width, num_layers=2, num_heads=max(1, width // 32), max_length=128
    )
    models = [Base(language_model(spec), init_params(spec, jax.random.key(_PARAMETERS + seed)), tokenizer)]
    for i, epochs in enumerate(stages):
        out = None if folder is None else folder / f"stage-{i + 1}"
        if out is None or not (out / "training.json").exists():
            config = TrainConfig(
                epochs=epochs,
                batch_size=16,
                learning_rate=4e-3,
                warmup=0.1,
                max_length=_WINDOW,
                num_buckets=1,
                seed=int(np.random.default_rng([seed, i]).integers(2**31)),
            )
            last = models[-1]
            found = train(last.lm, last.params, tokenizer, texts, config=config, out=out, progress=progress)
            models.append(last._replace(params=found.params))
        else:
            models.append(_read(out, tokenizer))
    return models[1:]


def _read(out: pathlib.Path, tokenizer: object) -> Base:
    from tdd.models.checkpoint import load

    lm, params, _ = load(out / CHECKPOINT_FOLDER)
    return Base(lm, params, tokenizer)
