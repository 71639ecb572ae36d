"""Recipes to begin with: one for each design, every key explained."""

from __future__ import annotations

__all__ = ["EXAMPLES"]

_CANARIES = """\
# Sets of examples are planted in their canonical order, some of them many times; the exchangeability test is to tell
# which. Run it with
#   tdd lab train recipe.toml --out runs/canaries
seed = 0                            # everything random follows from it

[corpus]                            # the background: documents among which the sets are planted
generator = "documents"             # "documents": 30 to 90 words; "examples": one line
# file = "my.jsonl"                 # texts of your own instead of a generator; paths are relative to this file
# text_field = "text"

[tokenizer]                         # trained on generated texts that are in no other part
vocab_size = 1024
texts = 4000

[model]                             # GPT-2's architecture from random weights
width = 128
layers = 3
heads = 4
max_length = 256
# checkpoint = "path/to/folder"     # start from a checkpoint instead, with its tokenizer

[plant]
design = "canaries"
examples = 200                      # of each generated set
copies = [0, 0, 1, 10, 50]          # one set for each number; 0 is planted nowhere and shows the size of the test
background = 300                    # documents of the corpus
separator = "\\n\\n"                  # between two examples; give the same one to tdd exchange
# examples_per_document = 20        # without it a set is one document

# [plant.sets.mine]                 # a set of your own, in the order of its file
# file = "mine.jsonl"
# copies = 10
"""

_MEMBERS = """\
# Members among candidates: the ground truth for finding texts that a model was trained on. Run it with
#   tdd lab train recipe.toml --out runs/members
seed = 0                            # everything random follows from it

[corpus]
generator = "documents"             # "documents": 30 to 90 words; "examples": one line
# file = "my.jsonl"                 # texts of your own instead of a generator; paths are relative to this file

[tokenizer]                         # trained on generated texts that are in no other part
vocab_size = 1024
texts = 4000

[model]                             # GPT-2's architecture from random weights
width = 128
layers = 3
heads = 4
max_length = 256
# checkpoint = "path/to/folder"     # start from a checkpoint instead, with its tokenizer

[plant]
design = "members"
members = 150                       # candidates that are trained on
nonmembers = 150                    # candidates that are not
calibration = 300                   # known non-members
background = 100                    # trained on, audited by nobody
duplication = [1, 4]                # copies of a member: one number, or several, dealt out in turn
"""

_SEVERAL = """\
seed = 0                            # everything random follows from it

[corpus]
generator = "examples"              # "documents": 30 to 90 words; "examples": one line
# file = "benchmark.jsonl"          # texts of your own instead of a generator; paths are relative to this file

[tokenizer]                         # trained on generated texts that are in no other part
vocab_size = 1024
texts = 4000

[model]                             # GPT-2's architecture from random weights, other weights for each model
width = 128
layers = 2
heads = 4
max_length = 128
# checkpoint = "path/to/folder"     # start all models from one checkpoint instead, with its tokenizer

"""

_ASSIGNMENTS = (
    """\
# Several models, each trained on a random share of the items: a benchmark that contaminated some models and not others.
# Run it with
#   tdd lab train recipe.toml --out runs/assignments
"""
    + _SEVERAL
    + """\
[plant]
design = "assignments"
models = 3
items = 300                         # audited
share = [0.5, 0.0, 0.0]             # of the items that a model is trained on: one number, or one a model
calibration = 150                   # further texts that no model is trained on
known_members = 50                  # further texts that all models are trained on, known to the auditor
background = 300                    # further texts that all models are trained on
"""
)

_BLOCKS = (
    """\
# Several models and three blocks: texts that all models know, texts of which each knows its own half, texts that none
# knows. The ground truth for finding items that are clean for all models. Run it with
#   tdd lab train recipe.toml --out runs/blocks
"""
    + _SEVERAL
    + """\
[plant]
design = "blocks"
models = 3
items = 1000
calibration = 0.3                   # share of the items that all models are trained on, known to the auditor
remainder = 0.1                     # share of the items of which each model is trained on ...
share = 0.5                         # ... this share; the rest of the items is clean
background = 200                    # further texts that all models are trained on
"""
)

_TRAINING = """
[training]
epochs = {epochs}
batch_size = {batch}                      # texts (or windows of long texts) that go through the model at once
learning_rate = 2e-3
warmup = 0.05                       # share of the steps on which the rate rises
final = 0.1                         # share of the rate that the cosine ends at
weight_decay = 0.1
max_length = {length}                    # longer texts are cut into windows
num_buckets = {buckets}                     # most different padded lengths
accumulate = 1                      # batches whose gradients make one step
compute_dtype = "float32"           # or "bfloat16": mixed precision
save_every = 200                    # steps between two saved states
evaluate = true                     # loss on held-out texts after each epoch
save_dtype = "float32"              # of the checkpoint

# [training.lora]                   # train low-rank factors only
# rank = 8
# alpha = 16.0
# leaves = ["qkv", "attention_out", "mlp_in", "mlp_out"]
"""

EXAMPLES: dict[str, str] = {
    "canaries": _CANARIES + _TRAINING.format(epochs=1, batch=4, length=256, buckets=4),
    "members": _MEMBERS + _TRAINING.format(epochs=8, batch=8, length=256, buckets=4),
    "assignments": _ASSIGNMENTS + _TRAINING.format(epochs=8, batch=8, length=128, buckets=2),
    "blocks": _BLOCKS + _TRAINING.format(epochs=8, batch=8, length=128, buckets=2),
}
"""Design -> a commented recipe of it, minutes on two cores."""
