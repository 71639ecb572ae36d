"""Keys of a config.json that mean the same in every family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["IGNORED", "REQUIRED"]

REQUIRED: Mapping[str, tuple[Any, ...]] = {
    "add_cross_attention": (False, None),
    "auto_map": (None,),
    "cross_attention_hidden_size": (None,),
    "is_encoder_decoder": (False, None),
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
}
"""Keys that would change the computation, with the values under which they do not."""

IGNORED = frozenset(
    {
        # what produced the file, and how its classes and labels are called
        "_attn_implementation_autoset",
        "_name_or_path",
        "_num_labels",
        "architectures",
        "dtype",
        "finetuning_task",
        "id2label",
        "label2id",
        "model_type",
        "problem_type",
        "task_specific_params",
        "tokenizer_class",
        "torch_dtype",
        "transformers.js_config",
        "transformers_version",
        # training, and the form of the outputs
        "chunk_size_feed_forward",
        "gradient_checkpointing",
        "initializer_range",
        "is_decoder",
        "output_attentions",
        "output_hidden_states",
        "output_scores",
        "return_dict",
        "return_dict_in_generate",
        "tf_legacy_loss",
        "tie_encoder_decoder",
        "torchscript",
        "use_bfloat16",
        "use_cache",
        # generation
        "bad_words_ids",
        "begin_suppress_tokens",
        "bos_token_id",
        "decoder_start_token_id",
        "diversity_penalty",
        "do_sample",
        "early_stopping",
        "encoder_no_repeat_ngram_size",
        "eos_token_id",
        "exponential_decay_length_penalty",
        "forced_bos_token_id",
        "forced_eos_token_id",
        "length_penalty",
        "max_length",
        "min_length",
        "no_repeat_ngram_size",
        "num_beam_groups",
        "num_beams",
        "num_return_sequences",
        "pad_token_id",
        "prefix",
        "remove_invalid_values",
        "repetition_penalty",
        "sep_token_id",
        "suppress_tokens",
        "temperature",
        "top_k",
        "top_p",
        "typical_p",
    }
)
"""Keys that never change the logits of a text."""
