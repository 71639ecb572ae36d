"""Train the demonstration again: corpus, tokenizer, split, training. Everything follows from the seeds below."""

from __future__ import annotations

import os

from tdd.demo.data import DemoFiles, demo_files
from tdd.lab.corpus import generate
from tdd.lab.plant import Planted, csv_bytes, jsonl_bytes, plant
from tdd.lab.recipe import TrainConfig
from tdd.runs.atomic import write_atomically
from tdd.validate.arrays import key_of_seed

CORPUS_SEED = 20_240
TOKENIZER_SEED = 20_241
SPLIT_SEED = 20_242
PARAMETER_SEED = 20_243

MEMBERS, NONMEMBERS, CALIBRATION, BACKGROUND = 175, 175, 500, 300
"""Sizes of the parts: 500 calibration texts let a selection at level .05 among 350 candidates begin at 14."""

TOKENIZER_TEXTS, VOCABULARY = 4000, 1024
LAYERS, WIDTH, HEADS, POSITIONS = 3, 128, 4, 256

CONFIG = TrainConfig(epochs=12, batch_size=16, learning_rate=2e-3, max_length=POSITIONS, save_every=50, seed=20_244)
"""Twelve passes: enough that members stand out, few enough that not all of them do."""


def retrain(folder: str | os.PathLike[str], *, progress: bool = False) -> DemoFiles:
    """Generate the corpus and train the checkpoint from random parameters, into `checkpoint/` and `corpus/`.

    Interrupted, it goes on from its last saved state when called again with the same folder. The same machine and
    versions give the same bits; another machine gives weights that differ by rounding.

    Raises:
      InputError: the folder holds a finished or a different training run.

    Cost: 475 texts of about 120 tokens, twelve times: 3e12 flop.
    """

    from tdd.lab.tokens import train_tokenizer
    from tdd.lab.train import train
    from tdd.models.decoder import init_params
    from tdd.models.language_model import language_model
    from tdd.models.spec import DecoderSpec

    files, planted = demo_files(folder), planted_corpus()
    tokenizer = train_tokenizer(generate(TOKENIZER_TEXTS, seed=TOKENIZER_SEED).texts, vocab_size=VOCABULARY)
    spec = DecoderSpec.gpt2(
        vocab_size=VOCABULARY, width=WIDTH, num_layers=LAYERS, num_heads=HEADS, max_length=POSITIONS
    )
    train(
        language_model(spec),
        init_params(spec, key_of_seed(PARAMETER_SEED)),
        tokenizer,
        planted.training.texts,
        config=CONFIG,
        out=folder,
        eval_texts=planted.calibration.texts,
        progress=progress,
    )
    files.truth.parent.mkdir(parents=True, exist_ok=True)
    for path, part in ((files.calibration, planted.calibration), (files.candidates, planted.candidates)):
        rows = zip(part.ids, part.texts, part.labels, strict=True)
        write_atomically(path, jsonl_bytes({"id": name, "text": text, "label": label} for name, text, label in rows))
    truth = [{name: row[name] for name in ("id", "role", "label")} for row in planted.truth]  # one copy of each
    write_atomically(files.truth, csv_bytes(truth))
    return files


def planted_corpus() -> Planted:
    """The documents of the demonstration and their random assignment; seconds, and no training."""
    pool = generate(MEMBERS + NONMEMBERS + CALIBRATION + BACKGROUND, seed=CORPUS_SEED)
    return plant(
        pool, members=MEMBERS, nonmembers=NONMEMBERS, calibration=CALIBRATION, background=BACKGROUND, seed=SPLIT_SEED
    )
