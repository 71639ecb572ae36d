"""Small configurations of every family, in the keys of published config.json files; no torch, no transformers.

Every window is shorter than LENGTH, every rotary stretch begins inside it, and no two sizes are equal that could be
mistaken for each other.
"""

LENGTH = 24
VOCABULARY = 48

# fmt: off
_GPT2 = {
    "model_type": "gpt2", "vocab_size": VOCABULARY, "n_positions": 32, "n_embd": 16, "n_layer": 3, "n_head": 4,
    "bos_token_id": None, "eos_token_id": None,
}
_BIGCODE = {**_GPT2, "model_type": "gpt_bigcode"}
_GPT_NEO = {
    "model_type": "gpt_neo", "vocab_size": VOCABULARY, "max_position_embeddings": 32, "hidden_size": 16,
    "num_layers": 3, "num_heads": 2, "intermediate_size": 40, "window_size": 5,
    "attention_types": [[["global", "local", "local"], 1]], "bos_token_id": None, "eos_token_id": None,
}
_GPT_NEOX = {
    "model_type": "gpt_neox", "vocab_size": VOCABULARY, "hidden_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 3, "intermediate_size": 40, "max_position_embeddings": 32, "rotary_pct": 0.25,
    "rotary_emb_base": 100, "hidden_act": "gelu", "bos_token_id": None, "eos_token_id": None,
}
_GPTJ = {
    "model_type": "gptj", "vocab_size": VOCABULARY, "n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 2,
    "rotary_dim": 6, "bos_token_id": None, "eos_token_id": None,
}
_MPT = {
    "model_type": "mpt", "vocab_size": VOCABULARY, "d_model": 24, "n_layers": 2, "n_heads": 3, "max_seq_len": 32,
    "attn_config": {"alibi": True}, "bos_token_id": None, "eos_token_id": None,
}
_BLOOM = {
    "model_type": "bloom", "vocab_size": VOCABULARY, "hidden_size": 24, "n_layer": 2, "n_head": 3, "seq_length": 32,
    "bos_token_id": None, "eos_token_id": None,
}
_FALCON = {
    "model_type": "falcon", "vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 32, "ffn_hidden_size": 40, "rope_theta": 100.0,
    "bos_token_id": None, "eos_token_id": None,
}
_FALCON_40B = {**_FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}
_OPT = {
    "model_type": "opt", "vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "ffn_dim": 40, "max_position_embeddings": 32, "word_embed_proj_dim": 16, "pad_token_id": 1,
    "bos_token_id": None, "eos_token_id": None,
}
_LLAMA = {
    "model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 40, "max_position_embeddings": 32,
    "rms_norm_eps": 1e-5, "bos_token_id": None, "eos_token_id": None,
}
_MISTRAL = {**_LLAMA, "model_type": "mistral", "rope_theta": 1000.0}
_QWEN2 = {**_LLAMA, "model_type": "qwen2", "num_hidden_layers": 3, "rope_theta": 1000.0}
_QWEN3 = {**_LLAMA, "model_type": "qwen3", "head_dim": 6, "rope_theta": 1000.0}
_GEMMA = {
    **_LLAMA, "model_type": "gemma", "head_dim": 6, "hidden_act": "gelu", "rope_theta": 1000.0, "pad_token_id": 0,
}
_GEMMA2 = {
    **_LLAMA, "model_type": "gemma2", "num_hidden_layers": 3, "head_dim": 6, "sliding_window": 5,
    "query_pre_attn_scalar": 9, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0, "pad_token_id": 0,
}
_GEMMA3 = {
    **_LLAMA, "model_type": "gemma3_text", "num_hidden_layers": 3, "head_dim": 6, "sliding_window": 5,
    "sliding_window_pattern": 3, "query_pre_attn_scalar": 9, "rope_theta": 1000.0, "rope_local_base_freq": 50.0,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "pad_token_id": 0,
}
_COHERE = {
    **{key: value for key, value in _LLAMA.items() if key != "rms_norm_eps"},
    "model_type": "cohere", "layer_norm_eps": 1e-5, "rope_theta": 100.0, "logit_scale": 2.5, "pad_token_id": 0,
}
_COHERE2 = {
    **_COHERE, "model_type": "cohere2", "num_hidden_layers": 3, "sliding_window": 5, "sliding_window_pattern": 3,
}
_DEEPSEEK2 = {
    **_LLAMA, "model_type": "deepseek_v2", "num_hidden_layers": 3, "num_key_value_heads": 4, "rope_theta": 100.0,
    "first_k_dense_replace": 1, "moe_intermediate_size": 12, "n_routed_experts": 6, "num_experts_per_tok": 2,
    "n_shared_experts": 2, "routed_scaling_factor": 1.5, "topk_method": "group_limited_greedy", "n_group": 3,
    "topk_group": 2, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 5, "kv_lora_rank": 18,
    "q_lora_rank": 14, "pad_token_id": 0, "norm_topk_prob": False,
}
_DEEPSEEK3 = {
    **{key: value for key, value in _DEEPSEEK2.items() if key != "topk_method"},
    "model_type": "deepseek_v3", "norm_topk_prob": True, "num_nextn_predict_layers": 0,
}
_GLM = {
    **_LLAMA, "model_type": "glm", "head_dim": 8, "rope_theta": 100.0, "partial_rotary_factor": 0.5,
    "attention_bias": True, "pad_token_id": 0, "eos_token_id": 1,
}
_GLM4 = {**_GLM, "model_type": "glm4"}
_GRANITE = {
    **_LLAMA, "model_type": "granite", "rope_theta": 1000.0, "attention_multiplier": 0.3, "embedding_multiplier": 3.0,
    "logits_scaling": 0.3, "residual_multiplier": 0.6,
}
_STABLELM = {
    **{key: value for key, value in _LLAMA.items() if key != "rms_norm_eps"},
    "model_type": "stablelm", "hidden_size": 32, "layer_norm_eps": 1e-5, "rope_theta": 100.0,
    "partial_rotary_factor": 0.25, "use_qkv_bias": True,
}
_OLMO2 = {**_LLAMA, "model_type": "olmo2", "rope_theta": 1000.0, "pad_token_id": 0}
_OLMO3 = {**_OLMO2, "model_type": "olmo3", "num_hidden_layers": 4, "sliding_window": 5}
_PHI = {
    **{key: value for key, value in _LLAMA.items() if key != "rms_norm_eps"},
    "model_type": "phi", "layer_norm_eps": 1e-5, "rope_theta": 100.0, "partial_rotary_factor": 0.5,
}
_OLMO = {
    **{key: value for key, value in _LLAMA.items() if key != "rms_norm_eps"},
    "model_type": "olmo", "rope_theta": 1000.0, "pad_token_id": 0,
}
_PHI3 = {
    **_LLAMA, "model_type": "phi3", "rope_theta": 1000.0, "partial_rotary_factor": 0.5, "pad_token_id": 0,
}
_LONG = {
    "type": "longrope", "short_factor": [1.0, 1.3], "long_factor": [2.0, 5.0],
}
_SMOLLM3 = {
    **_LLAMA, "model_type": "smollm3", "num_hidden_layers": 3, "rope_theta": 1000.0, "no_rope_layer_interval": 2,
    "pad_token_id": 0,
}
_MIXTRAL = {
    **_LLAMA, "model_type": "mixtral", "intermediate_size": 20, "rope_theta": 1000.0, "num_local_experts": 3,
    "num_experts_per_tok": 2,
}
_QWEN3_MOE = {
    **_QWEN3, "model_type": "qwen3_moe", "moe_intermediate_size": 20, "num_experts": 3, "num_experts_per_tok": 2,
    "norm_topk_prob": True,
}
_GPT_OSS = {
    **_LLAMA, "model_type": "gpt_oss", "num_hidden_layers": 3, "head_dim": 6, "intermediate_size": 20,
    "rope_theta": 100.0, "num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 5, "swiglu_limit": 0.3,
    "rope_scaling": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 2, "truncate": False,
    },
}
_OLMOE = {
    **_LLAMA, "model_type": "olmoe", "intermediate_size": 20, "rope_theta": 1000.0, "num_experts": 5,
    "num_experts_per_tok": 2, "pad_token_id": 0,
}
_LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 2}
_MSCALE = {**_YARN, "mscale": 0.707, "mscale_all_dim": 0.707}

CONFIGURATIONS = {
    "gpt2": _GPT2,
    "gpt2, scaled by layer": {**_GPT2, "scale_attn_by_inverse_layer_idx": True},
    "gpt2, no attention scale": {**_GPT2, "scale_attn_weights": False},
    "gpt_bigcode": _BIGCODE,
    "gpt_neo": _GPT_NEO,
    "gpt_neox": _GPT_NEOX,
    "gpt_neox, sequential": {**_GPT_NEOX, "use_parallel_residual": False},
    "gpt_neox, tied": {**_GPT_NEOX, "tie_word_embeddings": True},
    "gptj": _GPTJ,
    "falcon": _FALCON,
    "falcon, as its 40B": _FALCON_40B,
    "falcon, as its 11B": {**_FALCON_40B, "num_ln_in_parallel_attn": 1, "tie_word_embeddings": False},
    "falcon, sequential, biases": {**_FALCON, "parallel_attn": False, "bias": True},
    "mpt": _MPT,
    "mpt, clipped, other scale": {**_MPT, "attn_config": {"alibi": True, "clip_qkv": 0.5, "softmax_scale": 0.7}},
    "bloom": _BLOOM,
    "bloom, a power of two": {**_BLOOM, "n_head": 4},
    "opt": _OPT,
    "opt, as its 350M": {**_OPT, "do_layer_norm_before": False, "word_embed_proj_dim": 8},
    "llama": {**_LLAMA, "rope_theta": 500000.0},
    "llama, llama3 rotary": {**_LLAMA, "rope_theta": 100.0, "rope_scaling": _LLAMA3},
    "llama, tied": {**_LLAMA, "tie_word_embeddings": True},
    "llama, biases, own head width": {**_LLAMA, "head_dim": 6, "attention_bias": True, "mlp_bias": True},
    "mistral, window": {**_MISTRAL, "sliding_window": 5},
    "mistral, no window": {**_MISTRAL, "sliding_window": None},
    "qwen2": {**_QWEN2, "use_sliding_window": False, "sliding_window": 5},
    "qwen2, windows from layer 1": {
        **_QWEN2,
        "use_sliding_window": True,
        "sliding_window": 5,
        "max_window_layers": 1,
    },
    "qwen3": _QWEN3,
    "gemma": _GEMMA,
    "gemma2": _GEMMA2,
    "gemma2, biases, no soft caps": {
        **_GEMMA2,
        "attention_bias": True,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
    },
    "gemma3_text": _GEMMA3,
    "cohere": {**_COHERE, "use_qk_norm": True},
    "cohere2": _COHERE2,
    "deepseek_v2": _DEEPSEEK2,
    "deepseek_v2, as its lite": {
        **_DEEPSEEK2, "q_lora_rank": None, "topk_method": "greedy", "n_group": 1, "topk_group": 1,
        "routed_scaling_factor": 1.0, "rope_scaling": _MSCALE,
    },
    "deepseek_v3": _DEEPSEEK3,
    "glm": _GLM,
    "glm4": _GLM4,
    "granite": _GRANITE,
    "stablelm": _STABLELM,
    "stablelm, as its 12B": {
        **_STABLELM, "use_qkv_bias": False, "qk_layernorm": True, "use_parallel_residual": True,
    },
    "olmo": {**_OLMO, "clip_qkv": 0.1},
    "olmo2": _OLMO2,
    "olmo3": {**_OLMO3, "rope_scaling": {**_YARN, "attention_factor": 1.3}},
    "phi": _PHI,
    "phi, norms of heads": {**_PHI, "qk_layernorm": True},
    "phi3": _PHI3,
    "phi3, longrope": {
        **_PHI3, "rope_theta": 100.0, "partial_rotary_factor": 1.0, "rope_scaling": _LONG,
        "max_position_embeddings": 96,
        "original_max_position_embeddings": 32,
    },
    "smollm3": _SMOLLM3,
    "mixtral": _MIXTRAL,
    "gpt_oss": _GPT_OSS,
    "olmoe": {**_OLMOE, "clip_qkv": 0.5},
    "qwen3_moe": _QWEN3_MOE,
    "qwen3_moe, dense layers": {**_QWEN3_MOE, "num_hidden_layers": 4, "mlp_only_layers": [0, 3]},
}
"""The parity table."""

ONE_OF_EACH = [
    "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gptj", "falcon, as its 40B", "mpt, clipped, other scale", "bloom",
    "opt, as its 350M", "llama", "mistral, window", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "cohere",
    "cohere2", "deepseek_v2", "deepseek_v3", "glm", "glm4", "granite", "stablelm, as its 12B", "olmo", "olmo2",
    "olmo3", "phi, norms of heads", "phi3", "smollm3", "mixtral", "gpt_oss", "olmoe", "qwen3_moe",
    "qwen3_moe, dense layers",
]

VARIANTS = {
    "gpt2, untied, exact gelu": {**_GPT2, "tie_word_embeddings": False, "activation_function": "gelu"},
    "gpt2, inner width, relu": {**_GPT2, "n_inner": 40, "activation_function": "relu"},
    "gpt2, epsilon": {**_GPT2, "layer_norm_epsilon": 1e-1},
    "gpt_bigcode, all heads of keys, inner width": {**_BIGCODE, "multi_query": False, "n_inner": 40},
    "gpt_bigcode, no scale, untied, relu, epsilon": {
        **_BIGCODE, "scale_attn_weights": False, "tie_word_embeddings": False, "activation_function": "relu",
        "layer_norm_epsilon": 1e-1,
    },
    "gpt_neo, all global": {**_GPT_NEO, "attention_types": [[["global"], 3]]},
    "gpt_neo, untied": {**_GPT_NEO, "tie_word_embeddings": False},
    "gpt_neox, no attention biases": {**_GPT_NEOX, "attention_bias": False},
    "gpt_neox, half turns": {**_GPT_NEOX, "rotary_pct": 0.5},
    "gpt_neox, other base": {**_GPT_NEOX, "rotary_emb_base": 10000},
    "gpt_neox, linear rotary": {**_GPT_NEOX, "rope_scaling": {"type": "linear", "factor": 2.0}},
    "gpt_neox, fast gelu": {**_GPT_NEOX, "hidden_act": "gelu_fast"},
    "gptj, all turns, relu": {**_GPTJ, "rotary_dim": 8, "activation_function": "relu"},
    "gptj, two turn, inner width, epsilon": {**_GPTJ, "rotary_dim": 2, "n_inner": 40, "layer_norm_epsilon": 1e-1},
    "falcon, sequential, biases, all heads of keys": {
        **_FALCON, "multi_query": False, "parallel_attn": False, "bias": True,
    },
    "falcon, all heads of keys, relu": {**_FALCON, "multi_query": False, "activation": "relu"},
    "falcon, as its 40B, biases, epsilon": {**_FALCON_40B, "bias": True, "layer_norm_epsilon": 1e-1},
    "falcon, as its 40B, one head of keys, default width": {
        **_FALCON_40B, "num_kv_heads": 1, "ffn_hidden_size": None, "rope_theta": 10000.0,
    },
    "falcon, as its 11B, biases": {**_FALCON_40B, "num_ln_in_parallel_attn": 1, "bias": True},
    "mpt, twelve heads, untied, epsilon": {
        **_MPT, "n_heads": 12, "tie_word_embeddings": False, "layer_norm_epsilon": 1e-1,
    },
    "bloom, six heads, untied, epsilon": {
        **_BLOOM, "n_head": 6, "tie_word_embeddings": False, "layer_norm_epsilon": 1e-1,
    },
    "opt, norms behind": {**_OPT, "do_layer_norm_before": False},
    "opt, narrow embedding": {**_OPT, "word_embed_proj_dim": 8},
    "opt, no final norm": {**_OPT, "_remove_final_layer_norm": True},
    "opt, no biases": {**_OPT, "enable_bias": False},
    "opt, plain norms": {**_OPT, "layer_norm_elementwise_affine": False},
    "opt, untied, narrow": {**_OPT, "tie_word_embeddings": False, "word_embed_proj_dim": 8},
    "opt, gelu": {**_OPT, "activation_function": "gelu"},
    "llama, linear rotary": {**_LLAMA, "rope_scaling": {"type": "linear", "factor": 4.0}},
    "llama, dynamic rotary": {**_LLAMA, "rope_scaling": {"type": "dynamic", "factor": 2.0}},
    "llama, yarn": {**_LLAMA, "rope_theta": 100.0, "rope_scaling": _YARN},
    "llama, yarn, own amplitude": {
        **_LLAMA,
        "rope_theta": 100.0,
        "rope_scaling": {**_YARN, "attention_factor": 1.7, "truncate": False},
    },
    "llama, yarn, mscale": {
        **_LLAMA,
        "rope_theta": 100.0,
        "rope_scaling": {**_YARN, "mscale": 2.0, "mscale_all_dim": 0.5},
    },
    "llama, other low factor": {
        **_LLAMA,
        "rope_theta": 100.0,
        "rope_scaling": {**_LLAMA3, "low_freq_factor": 2.0},
    },
    "llama, one head of keys": {**_LLAMA, "num_key_value_heads": 1},
    "llama, epsilon": {**_LLAMA, "rms_norm_eps": 1e-1},
    "llama, gelu": {**_LLAMA, "hidden_act": "gelu"},
    "mistral, own head width": {**_MISTRAL, "sliding_window": 5, "head_dim": 6},
    "qwen2, layer types": {
        **_QWEN2,
        "use_sliding_window": True,
        "sliding_window": 5,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "qwen2, tied": {**_QWEN2, "tie_word_embeddings": True},
    "qwen3, biases, windows, tied": {
        **_QWEN3,
        "attention_bias": True,
        "use_sliding_window": True,
        "sliding_window": 5,
        "max_window_layers": 1,
        "tie_word_embeddings": True,
    },
    "gemma, biases, untied": {**_GEMMA, "attention_bias": True, "tie_word_embeddings": False},
    "gemma, one head of keys, silu": {**_GEMMA, "num_key_value_heads": 1, "hidden_act": "silu"},
    "gemma2, other scale": {**_GEMMA2, "query_pre_attn_scalar": 30},
    "gemma2, other layers": {
        **_GEMMA2,
        "layer_types": ["full_attention", "sliding_attention", "full_attention"],
    },
    "gemma2, other window": {**_GEMMA2, "sliding_window": 9},
    "gemma2, untied": {**_GEMMA2, "tie_word_embeddings": False},
    "gemma3_text, other layers, soft cap": {
        **_GEMMA3,
        "layer_types": ["full_attention", "sliding_attention", "full_attention"],
        "final_logit_softcapping": 3.0,
    },
    "gemma3_text, one rotation": {**_GEMMA3, "rope_local_base_freq": 1000.0, "rope_scaling": None},
    "gemma3_text, biases, untied": {**_GEMMA3, "attention_bias": True, "tie_word_embeddings": False},
    "cohere, no norms of heads": _COHERE,
    "cohere, biases, other scale, untied": {
        **_COHERE, "attention_bias": True, "logit_scale": 5.0, "tie_word_embeddings": False,
    },
    "cohere, norms of all heads of keys, epsilon": {
        **_COHERE, "use_qk_norm": True, "num_key_value_heads": 4, "layer_norm_eps": 1e-1,
    },
    "cohere2, other layers, biases": {
        **_COHERE2, "attention_bias": True,
        "layer_types": ["full_attention", "sliding_attention", "full_attention"],
    },
    "cohere2, all windows, untied": {
        **_COHERE2, "sliding_window_pattern": 4, "sliding_window": 9, "tie_word_embeddings": False,
    },
    "deepseek_v2, biases, one group, tied": {
        **_DEEPSEEK2, "attention_bias": True, "topk_group": 1, "tie_word_embeddings": True,
    },
    "deepseek_v2, two dense layers, yarn": {
        **_DEEPSEEK2, "first_k_dense_replace": 2, "rope_scaling": {**_MSCALE, "mscale": 1.3},
    },
    "deepseek_v3, plain numbers, one group, no query rank": {
        **_DEEPSEEK3, "norm_topk_prob": False, "n_group": 1, "topk_group": 1, "q_lora_rank": None,
    },
    "deepseek_v3, halves, one of three groups, yarn": {
        **_DEEPSEEK3, "rope_interleave": False, "topk_group": 1, "rope_scaling": _MSCALE, "attention_bias": True,
    },
    "glm, no biases, all turns, tied": {
        **_GLM, "attention_bias": False, "partial_rotary_factor": 1.0, "tie_word_embeddings": True,
    },
    "glm, one head of keys, other base": {**_GLM, "num_key_value_heads": 1, "rope_theta": 10000.0},
    "glm4, no biases, a quarter turns, tied": {
        **_GLM4, "attention_bias": False, "partial_rotary_factor": 0.25, "tie_word_embeddings": True,
    },
    "glm4, gelu, linear rotary": {
        **_GLM4, "hidden_act": "gelu", "rope_scaling": {"rope_type": "linear", "factor": 4.0},
    },
    "granite, other factors, biases, tied": {
        **_GRANITE,
        "attention_multiplier": 0.7,
        "embedding_multiplier": 2,
        "logits_scaling": 0.7,
        "residual_multiplier": 0.3,
        "attention_bias": True,
        "mlp_bias": True,
        "tie_word_embeddings": True,
    },
    "granite, no factors, own head width": {
        **{key: value for key, value in _GRANITE.items() if "multiplier" not in key and key != "logits_scaling"},
        "head_dim": 6,
    },
    "stablelm, norms of heads, half turns, tied": {
        **_STABLELM, "qk_layernorm": True, "partial_rotary_factor": 0.5, "tie_word_embeddings": True,
    },
    "stablelm, one norm for both, epsilon": {**_STABLELM, "use_parallel_residual": True, "layer_norm_eps": 1e-1},
    "olmo, no clip": _OLMO,
    "olmo, biases, all heads of keys, tied": {
        **_OLMO,
        "attention_bias": True,
        "num_key_value_heads": 4,
        "tie_word_embeddings": True,
    },
    "phi, all turn, all heads of keys, relu, epsilon": {
        **_PHI, "partial_rotary_factor": 1.0, "num_key_value_heads": 4, "hidden_act": "relu", "layer_norm_eps": 1e-1,
    },
    "phi3, window": {**_PHI3, "sliding_window": 5},
    "phi3, all turns": {**_PHI3, "partial_rotary_factor": 1.0},
    "phi3, tied": {**_PHI3, "tie_word_embeddings": True},
    "olmo2, biases, all heads of keys": {**_OLMO2, "attention_bias": True, "num_key_value_heads": 4},
    "olmo2, tied, llama3 rotary": {**_OLMO2, "tie_word_embeddings": True, "rope_theta": 100.0, "rope_scaling": _LLAMA3},
    "olmo3, one rotation": {**_OLMO3, "rope_theta": 500000.0},
    "olmo3, other layers": {
        **_OLMO3,
        "layer_types": ["full_attention", "sliding_attention", "full_attention", "sliding_attention"],
    },
    "smollm3, all turn": {**_SMOLLM3, "no_rope_layers": [1, 1, 1]},
    "smollm3, none turns": {**_SMOLLM3, "no_rope_layers": [0, 0, 0]},
    "smollm3, windows, biases": {
        **_SMOLLM3,
        "use_sliding_window": True,
        "sliding_window": 5,
        "attention_bias": True,
        "mlp_bias": True,
    },
    "mixtral, one of seven experts": {**_MIXTRAL, "num_local_experts": 7, "num_experts_per_tok": 1},
    "mixtral, window, tied": {**_MIXTRAL, "sliding_window": 5, "tie_word_embeddings": True},
    "mixtral, own head width, gelu": {**_MIXTRAL, "head_dim": 6, "hidden_act": "gelu"},
    "gpt_oss, other gate, all windows, one expert": {
        **_GPT_OSS, "swiglu_limit": 7.0, "swiglu_alpha": 1.0, "num_experts_per_tok": 1,
        "layer_types": ["sliding_attention"] * 3,
    },
    "gpt_oss, no attention biases, linear rotary, tied": {
        **_GPT_OSS, "attention_bias": False, "rope_scaling": {"rope_type": "linear", "factor": 4.0},
        "tie_word_embeddings": True, "num_key_value_heads": 4,
    },
    "olmoe, no clip": _OLMOE,
    "olmoe, renormalised, all heads of keys": {**_OLMOE, "norm_topk_prob": True, "num_key_value_heads": 4},
    "olmoe, biases, tied": {**_OLMOE, "clip_qkv": 0.5, "attention_bias": True, "tie_word_embeddings": True},
    "olmoe, five of five experts": {**_OLMOE, "num_experts_per_tok": 5, "rope_scaling": _LLAMA3},
    "qwen3_moe, experts in every other layer": {**_QWEN3_MOE, "num_hidden_layers": 4, "decoder_sparse_step": 2},
    "qwen3_moe, experts in one layer": {
        **_QWEN3_MOE, "num_hidden_layers": 4, "decoder_sparse_step": 2, "mlp_only_layers": [1], "num_experts": 4,
    },
    "qwen3_moe, no experts": {**_QWEN3_MOE, "mlp_only_layers": [0, 1]},
    "qwen3_moe, plain probabilities": {**_QWEN3_MOE, "norm_topk_prob": False},
    "qwen3_moe, three of nine experts": {**_QWEN3_MOE, "num_experts": 9, "num_experts_per_tok": 3},
    "qwen3_moe, biases, window, tied": {
        **_QWEN3_MOE,
        "attention_bias": True,
        "use_sliding_window": True,
        "sliding_window": 5,
        "tie_word_embeddings": True,
    },
}
"""Unusual settings, one at a time."""

ALL = {**CONFIGURATIONS, **VARIANTS}
# fmt: on
