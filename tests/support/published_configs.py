"""The config.json files of published models, key by key, with what the architecture must come out as."""

import math

from tdd.models.spec import ClampedGate, Experts, Latent

# fmt: off
_LLAMA = {
    "architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
    "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 11008, "max_position_embeddings": 2048,
    "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32, "rms_norm_eps": 1e-06,
    "tie_word_embeddings": False, "torch_dtype": "float16", "transformers_version": "4.28.0.dev0", "use_cache": True,
    "vocab_size": 32000,
}
_LLAMA_31 = {
    **_LLAMA, "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009], "intermediate_size": 14336, "max_position_embeddings": 131072,
    "mlp_bias": False, "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0, "torch_dtype": "bfloat16", "vocab_size": 128256,
}
_MISTRAL = {
    "architectures": ["MistralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
    "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
    "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 4096,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "transformers_version": "4.34.0.dev0", "use_cache": True,
    "vocab_size": 32000,
}
_QWEN25 = {
    "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151643,
    "hidden_act": "silu", "hidden_size": 3584, "initializer_range": 0.02, "intermediate_size": 18944,
    "max_position_embeddings": 131072, "max_window_layers": 28, "model_type": "qwen2", "num_attention_heads": 28,
    "num_hidden_layers": 28, "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
    "sliding_window": 131072, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "transformers_version": "4.40.1",
    "use_cache": True, "use_mrope": False, "use_sliding_window": False, "vocab_size": 152064,
}
_QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 151643,
    "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024, "initializer_range": 0.02,
    "intermediate_size": 3072, "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
    "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
    "rope_scaling": None, "rope_theta": 1000000, "sliding_window": None, "tie_word_embeddings": True,
    "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": True, "use_sliding_window": False,
    "vocab_size": 151936,
}
_QWEN3_MOE = {
    "architectures": ["Qwen3MoeForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 151643,
    "decoder_sparse_step": 1, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048,
    "initializer_range": 0.02, "intermediate_size": 6144, "max_position_embeddings": 40960, "max_window_layers": 48,
    "mlp_only_layers": [], "model_type": "qwen3_moe", "moe_intermediate_size": 768, "norm_topk_prob": True,
    "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
    "num_key_value_heads": 4, "output_router_logits": False, "rms_norm_eps": 1e-06, "rope_scaling": None,
    "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001, "sliding_window": None, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": True, "use_sliding_window": False,
    "vocab_size": 151936,
}
_MIXTRAL = {
    "architectures": ["MixtralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
    "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
    "max_position_embeddings": 32768, "model_type": "mixtral", "num_attention_heads": 32, "num_experts_per_tok": 2,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8, "output_router_logits": False,
    "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02, "sliding_window": None,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "transformers_version": "4.36.0.dev0", "use_cache": True,
    "vocab_size": 32000,
}
_OLMOE = {
    "architectures": ["OlmoeForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "clip_qkv": None,
    "eos_token_id": 50279, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 1024, "max_position_embeddings": 4096, "model_type": "olmoe", "norm_topk_prob": False,
    "num_attention_heads": 16, "num_experts": 64, "num_experts_per_tok": 8, "num_hidden_layers": 16,
    "num_key_value_heads": 16, "output_router_logits": False, "pad_token_id": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": None, "rope_theta": 10000.0, "router_aux_loss_coef": 0.01, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "transformers_version": "4.43.0.dev0", "use_cache": True, "vocab_size": 50304,
}
_GEMMA = {
    "architectures": ["GemmaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 2,
    "eos_token_id": 1, "head_dim": 256, "hidden_act": "gelu", "hidden_activation": None, "hidden_size": 2048,
    "initializer_range": 0.02, "intermediate_size": 16384, "max_position_embeddings": 8192, "model_type": "gemma",
    "num_attention_heads": 8, "num_hidden_layers": 18, "num_key_value_heads": 1, "pad_token_id": 0,
    "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 10000.0, "torch_dtype": "bfloat16",
    "transformers_version": "4.38.0.dev0", "use_cache": True, "vocab_size": 256000,
}
_GEMMA2 = {
    "architectures": ["Gemma2ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "attn_logit_softcapping": 50.0, "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": 1,
    "final_logit_softcapping": 30.0, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 3584, "initializer_range": 0.02,
    "intermediate_size": 14336, "max_position_embeddings": 8192, "model_type": "gemma2", "num_attention_heads": 16,
    "num_hidden_layers": 42, "num_key_value_heads": 8, "pad_token_id": 0, "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "sliding_window": 4096, "sliding_window_size": 4096,
    "torch_dtype": "float32", "transformers_version": "4.42.0.dev0", "use_cache": True, "vocab_size": 256000,
}
_GEMMA3 = {
    "architectures": ["Gemma3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "attn_logit_softcapping": None, "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": [1, 106],
    "final_logit_softcapping": None, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152,
    "initializer_range": 0.02, "intermediate_size": 6912, "max_position_embeddings": 32768,
    "model_type": "gemma3_text", "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1,
    "pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000,
    "rope_scaling": None, "rope_theta": 1000000, "sliding_window": 512, "sliding_window_pattern": 6,
    "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0", "use_cache": True, "vocab_size": 262144,
}
_OLMO2 = {
    "architectures": ["Olmo2ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "eos_token_id": 100257,
    "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 11008,
    "max_position_embeddings": 4096, "model_type": "olmo2", "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 32, "pad_token_id": 100277, "rms_norm_eps": 1e-06, "rope_scaling": None,
    "rope_theta": 500000, "tie_word_embeddings": False, "torch_dtype": "float32", "transformers_version": "4.47.0",
    "use_cache": True, "vocab_size": 100352,
}
_OLMO3 = {
    **_OLMO2, "architectures": ["Olmo3ForCausalLM"], "model_type": "olmo3", "max_position_embeddings": 65536,
    "layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 8, "sliding_window": 4096,
    "rope_scaling": {
        "attention_factor": 1.2079441541679836, "beta_fast": 32, "beta_slow": 1, "factor": 8.0,
        "original_max_position_embeddings": 8192, "rope_type": "yarn",
    },
    "torch_dtype": "bfloat16", "transformers_version": "4.57.0", "vocab_size": 100278,
}
_OLMO = {
    "architectures": ["OlmoForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "clip_qkv": None,
    "eos_token_id": 50279, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
    "intermediate_size": 11008, "max_position_embeddings": 2048, "model_type": "olmo", "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 32, "pad_token_id": 1, "pretraining_tp": 1, "rope_scaling": None,
    "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "float32",
    "transformers_version": "4.40.0.dev0", "use_cache": True, "vocab_size": 50304,
}
_PHI4 = {
    "architectures": ["Phi3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "bos_token_id": 100257, "embd_pdrop": 0.0, "eos_token_id": 100265, "hidden_act": "silu", "hidden_size": 5120,
    "initializer_range": 0.02, "intermediate_size": 17920, "max_position_embeddings": 16384, "model_type": "phi3",
    "num_attention_heads": 40, "num_hidden_layers": 40, "num_key_value_heads": 10,
    "original_max_position_embeddings": 16384, "pad_token_id": 100349, "resid_pdrop": 0.0, "rms_norm_eps": 1e-05,
    "rope_scaling": None, "rope_theta": 250000, "sliding_window": None, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "transformers_version": "4.47.0", "use_cache": True, "vocab_size": 100352,
}
_SMOLLM3 = {
    "architectures": ["SmolLM3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 128000,
    "eos_token_id": 128001, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 11008, "layer_types": ["full_attention"] * 36, "max_position_embeddings": 65536,
    "max_window_layers": 28, "mlp_bias": False, "model_type": "smollm3", "no_rope_layer_interval": 4,
    "no_rope_layers": [1, 1, 1, 0] * 9, "num_attention_heads": 16, "num_hidden_layers": 36, "num_key_value_heads": 4,
    "pad_token_id": 128004, "pretraining_tp": 2, "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 5000000.0,
    "sliding_window": None, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    "transformers_version": "4.54.0.dev0", "use_cache": False, "use_sliding_window": False, "vocab_size": 128256,
}
_PYTHIA = {
    "architectures": ["GPTNeoXForCausalLM"], "bos_token_id": 0, "eos_token_id": 0, "hidden_act": "gelu",
    "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 16384, "layer_norm_eps": 1e-05,
    "max_position_embeddings": 2048, "model_type": "gpt_neox", "num_attention_heads": 32, "num_hidden_layers": 32,
    "rotary_emb_base": 10000, "rotary_pct": 0.25, "tie_word_embeddings": False, "torch_dtype": "float16",
    "transformers_version": "4.24.0", "use_cache": True, "use_parallel_residual": True, "vocab_size": 50432,
}
_OPT = {
    "_name_or_path": "facebook/opt-125m", "activation_dropout": 0.0, "activation_function": "relu",
    "architectures": ["OPTForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 2, "do_layer_norm_before": True,
    "dropout": 0.1, "eos_token_id": 2, "ffn_dim": 3072, "hidden_size": 768, "init_std": 0.02, "layerdrop": 0.0,
    "max_position_embeddings": 2048, "model_type": "opt", "num_attention_heads": 12, "num_hidden_layers": 12,
    "pad_token_id": 1, "prefix": "</s>", "torch_dtype": "float16", "transformers_version": "4.21.0.dev0",
    "use_cache": True, "vocab_size": 50272, "word_embed_proj_dim": 768,
}
_GPT_NEO = {
    "activation_function": "gelu_new", "architectures": ["GPTNeoForCausalLM"], "attention_dropout": 0,
    "attention_layers": ["global", "local"] * 6, "attention_types": [[["global", "local"], 6]], "bos_token_id": 50256,
    "embed_dropout": 0, "eos_token_id": 50256, "gradient_checkpointing": False, "hidden_size": 768,
    "initializer_range": 0.02, "intermediate_size": None, "layer_norm_epsilon": 1e-05, "max_position_embeddings": 2048,
    "model_type": "gpt_neo", "num_heads": 12, "num_layers": 12, "resid_dropout": 0, "summary_activation": None,
    "summary_first_dropout": 0.1, "summary_proj_to_labels": True, "summary_type": "cls_index",
    "summary_use_proj": True, "transformers_version": "4.9.0.dev0", "use_cache": True, "vocab_size": 50257,
    "window_size": 256,
}
_GPT2 = {
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "bos_token_id": 50256,
    "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05,
    "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
    "resid_pdrop": 0.1, "summary_activation": None, "summary_first_dropout": 0.1, "summary_proj_to_labels": True,
    "summary_type": "cls_index", "summary_use_proj": True,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}}, "vocab_size": 50257,
}

_GRANITE = {
    "architectures": ["GraniteForCausalLM"], "attention_bias": False, "attention_dropout": 0.1,
    "attention_multiplier": 0.0078125, "bos_token_id": 0, "embedding_multiplier": 12.0, "eos_token_id": 0,
    "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 12800,
    "logits_scaling": 16.0, "max_position_embeddings": 4096, "mlp_bias": False, "model_type": "granite",
    "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8, "pad_token_id": 0,
    "residual_multiplier": 0.22, "rms_norm_eps": 1e-05, "rope_scaling": None, "rope_theta": 10000.0,
    "tie_word_embeddings": True, "torch_dtype": "bfloat16", "transformers_version": "4.46.0.dev0", "use_cache": True,
    "vocab_size": 49155,
}
_GLM = {
    "architectures": ["GlmForCausalLM"], "attention_bias": True, "attention_dropout": 0.0,
    "eos_token_id": [151329, 151336, 151338], "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096,
    "initializer_range": 0.02, "intermediate_size": 13696, "max_position_embeddings": 131072, "model_type": "glm",
    "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 2, "pad_token_id": 151329,
    "partial_rotary_factor": 0.5, "rms_norm_eps": 1.5625e-07, "rope_theta": 5000000.0, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "transformers_version": "4.46.0.dev0", "use_cache": True, "vocab_size": 151552,
}
_COHERE = {
    "architectures": ["CohereForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 5,
    "eos_token_id": 255001, "hidden_act": "silu", "hidden_size": 12288, "initializer_range": 0.02,
    "intermediate_size": 33792, "layer_norm_eps": 1e-05, "logit_scale": 0.8333333333333334,
    "max_position_embeddings": 131072, "model_max_length": 131072, "model_type": "cohere", "num_attention_heads": 96,
    "num_hidden_layers": 64, "num_key_value_heads": 8, "pad_token_id": 0, "pretraining_tp": 1,
    "rope_theta": 75000000.0, "torch_dtype": "float16", "transformers_version": "4.40.0.dev0", "use_cache": True,
    "use_qk_norm": True, "vocab_size": 256000,
}
_COHERE2 = {
    "architectures": ["Cohere2ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 5,
    "cache_implementation": "hybrid", "eos_token_id": 255001, "head_dim": 128, "hidden_act": "silu",
    "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336, "layer_norm_eps": 1e-05,
    "layer_switch": 4, "logit_scale": 0.25, "max_position_embeddings": 132096, "model_type": "cohere2",
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "order_of_interleaved_layers": "local_attn_first", "pad_token_id": 0, "position_embedding_type": "rope_gptj",
    "rope_scaling": None, "rope_theta": 50000.0, "rotary_pct": 1.0, "sliding_window": 4096,
    "sliding_window_pattern": 4, "torch_dtype": "bfloat16", "transformers_version": "4.48.0.dev0", "use_cache": True,
    "use_embedding_sharing": True, "use_gated_activation": True, "use_parallel_block": True,
    "use_parallel_embedding": True, "vocab_size": 256000,
}
_DEEPSEEK2_LITE = {
    "architectures": ["DeepseekV2ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "auto_map": {
        "AutoConfig": "configuration_deepseek.DeepseekV2Config", "AutoModel": "modeling_deepseek.DeepseekV2Model",
        "AutoModelForCausalLM": "modeling_deepseek.DeepseekV2ForCausalLM",
    },
    "aux_loss_alpha": 0.001, "bos_token_id": 100000, "eos_token_id": 100001, "first_k_dense_replace": 1,
    "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 10944,
    "kv_lora_rank": 512, "max_position_embeddings": 163840, "model_type": "deepseek_v2",
    "moe_intermediate_size": 1408, "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 64, "n_shared_experts": 2,
    "norm_topk_prob": False, "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 27,
    "num_key_value_heads": 16, "pretraining_tp": 1, "q_lora_rank": None, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06,
    "rope_scaling": {
        "beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707,
        "original_max_position_embeddings": 4096, "type": "yarn",
    },
    "rope_theta": 10000, "routed_scaling_factor": 1.0, "scoring_func": "softmax", "seq_aux": True,
    "tie_word_embeddings": False, "topk_group": 1, "topk_method": "greedy", "torch_dtype": "bfloat16",
    "transformers_version": "4.33.1", "use_cache": True, "v_head_dim": 128, "vocab_size": 102400,
}
_STABLELM = {
    "architectures": ["StableLmForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 100257,
    "eos_token_id": 100257, "hidden_act": "silu", "hidden_dropout": 0.0, "hidden_size": 5120,
    "initializer_range": 0.02, "intermediate_size": 13824, "layer_norm_eps": 1e-05, "max_position_embeddings": 4096,
    "model_type": "stablelm", "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8,
    "partial_rotary_factor": 0.25, "qk_layernorm": True, "rope_scaling": None, "rope_theta": 10000,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "transformers_version": "4.40.0.dev0", "use_cache": True,
    "use_parallel_residual": True, "use_qkv_bias": False, "vocab_size": 100352,
}
_FALCON_7B = {
    "alibi": False, "apply_residual_connection_post_layernorm": False, "architectures": ["FalconForCausalLM"],
    "attention_dropout": 0.0,
    "auto_map": {
        "AutoConfig": "configuration_falcon.FalconConfig",
        "AutoModel": "modeling_falcon.FalconModel",
        "AutoModelForSequenceClassification": "modeling_falcon.FalconForSequenceClassification",
        "AutoModelForTokenClassification": "modeling_falcon.FalconForTokenClassification",
        "AutoModelForQuestionAnswering": "modeling_falcon.FalconForQuestionAnswering",
        "AutoModelForCausalLM": "modeling_falcon.FalconForCausalLM",
    },
    "bias": False, "bos_token_id": 11, "eos_token_id": 11, "hidden_dropout": 0.0, "hidden_size": 4544,
    "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "falcon", "multi_query": True,
    "new_decoder_architecture": False, "num_attention_heads": 71, "num_hidden_layers": 32, "parallel_attn": True,
    "torch_dtype": "bfloat16", "transformers_version": "4.27.4", "use_cache": True, "vocab_size": 65024,
}

_MPT_7B = {
    "architectures": ["MPTForCausalLM"],
    "attn_config": {
        "alibi": True, "alibi_bias_max": 8, "attn_impl": "torch", "attn_pdrop": 0, "attn_type": "multihead_attention",
        "attn_uses_sequence_id": False, "clip_qkv": None, "prefix_lm": False, "qk_ln": False, "softmax_scale": None,
    },
    "auto_map": {
        "AutoConfig": "configuration_mpt.MPTConfig", "AutoModelForCausalLM": "modeling_mpt.MPTForCausalLM",
    },
    "d_model": 4096, "emb_pdrop": 0, "embedding_fraction": 1.0, "expansion_ratio": 4,
    "init_config": {
        "emb_init_std": None, "emb_init_uniform_lim": None, "fan_mode": "fan_in", "init_div_is_residual": True,
        "init_gain": 0, "init_nonlinearity": "relu", "init_std": 0.02, "name": "kaiming_normal_", "verbose": 0,
    },
    "init_device": "cpu", "learned_pos_emb": True, "logit_scale": None, "max_seq_len": 2048, "model_type": "mpt",
    "n_heads": 32, "n_layers": 32, "no_bias": True, "norm_type": "low_precision_layernorm", "resid_pdrop": 0,
    "tokenizer_name": "EleutherAI/gpt-neox-20b", "torch_dtype": "bfloat16", "transformers_version": "4.28.1",
    "use_cache": False, "verbose": 0, "vocab_size": 50432,
}
_BLOOM_560M = {
    "apply_residual_connection_post_layernorm": False, "architectures": ["BloomForCausalLM"],
    "attention_dropout": 0.0, "attention_softmax_in_fp32": True, "bias_dropout_fusion": True, "bos_token_id": 1,
    "eos_token_id": 2, "hidden_dropout": 0.0, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05,
    "masked_softmax_fusion": True, "model_type": "bloom", "n_embed": 1024, "n_inner": None, "n_layer": 24,
    "num_attention_heads": 16, "offset_alibi": 100, "pad_token_id": 3, "pretraining_tp": 1, "skip_bias_add": True,
    "skip_bias_add_qkv": False, "unk_token_id": 0, "vocab_size": 250880,
}
_PHI_2 = {
    "architectures": ["PhiForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 50256, "embd_pdrop": 0.0,
    "eos_token_id": 50256, "hidden_act": "gelu_new", "hidden_size": 2560, "initializer_range": 0.02,
    "intermediate_size": 10240, "layer_norm_eps": 1e-05, "max_position_embeddings": 2048, "model_type": "phi",
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "partial_rotary_factor": 0.4,
    "qk_layernorm": False, "resid_pdrop": 0.1, "rope_scaling": None, "rope_theta": 10000.0,
    "tie_word_embeddings": False, "torch_dtype": "float16", "transformers_version": "4.37.0", "use_cache": True,
    "vocab_size": 51200,
}

# name -> (config.json, what the spec must say: dotted attribute -> value)
PUBLISHED = {
    "gpt2": (_GPT2, {"mlp.width": 3072, "attention.scales": (0.125,) * 12}),
    "gpt2-medium": (
        {
            **_GPT2, "n_embd": 1024, "n_head": 16, "n_layer": 24, "n_special": 0, "output_past": True,
            "predict_special_tokens": True,
        },
        {"width": 1024, "attention.scales": (0.125,) * 24},
    ),
    "santacoder": (
        {
            "activation_function": "gelu_pytorch_tanh", "architectures": ["GPTBigCodeForCausalLM"],
            "attention_softmax_in_fp32": True, "attn_pdrop": 0.1, "bos_token_id": 49152, "embd_pdrop": 0.1,
            "eos_token_id": 49152, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "gpt_bigcode",
            "multi_query": True, "n_embd": 2048, "n_head": 16, "n_inner": 8192, "n_layer": 24, "n_positions": 2048,
            "resid_pdrop": 0.1, "runner_max_sequence_length": None, "scale_attention_softmax_in_fp32": True,
            "scale_attn_weights": True, "summary_activation": None, "summary_first_dropout": 0.1,
            "summary_proj_to_labels": True, "summary_type": "cls_index", "summary_use_proj": True,
            "transformers_version": "4.28.0.dev0", "use_cache": True, "vocab_size": 49280,
        },
        {"attention.num_kv_heads": 1, "attention.head_dim": 128, "mlp.width": 8192, "positions.count": 2048},
    ),
    "gpt-neo-125m": (_GPT_NEO, {"attention.windows": (None, 256) * 6, "mlp.width": 3072, "attention.qkv_bias": False}),
    "gpt-neox-20b": (
        {
            **_PYTHIA, "attention_probs_dropout_prob": 0, "hidden_act": "gelu_fast", "hidden_dropout_prob": 0,
            "hidden_size": 6144, "intermediate_size": 24576, "num_attention_heads": 64, "num_hidden_layers": 44,
            "eos_token_id": 0, "use_parallel_residual": True,
        },
        {"positions.dim": 24, "mlp.activation": "gelu_tanh", "layout": "parallel", "tied_head": False},
    ),
    "pythia-6.9b": (_PYTHIA, {"positions.dim": 32, "mlp.activation": "gelu", "attention.head_dim": 128}),
    "pythia-6.9b, saved later": (
        {
            **_PYTHIA, "attention_bias": True, "attention_dropout": 0.0, "classifier_dropout": 0.1,
            "hidden_dropout": 0.0, "partial_rotary_factor": 0.25, "rope_scaling": None, "rope_theta": 10000,
        },
        {"positions.dim": 32, "positions.theta": 10000.0},
    ),
    "gpt-j-6b": (
        {
            "activation_function": "gelu_new", "architectures": ["GPTJForCausalLM"], "attn_pdrop": 0.0,
            "bos_token_id": 50256, "embd_pdrop": 0.0, "eos_token_id": 50256, "gradient_checkpointing": False,
            "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "gptj", "n_embd": 4096, "n_head": 16,
            "n_inner": None, "n_layer": 28, "n_positions": 2048, "resid_pdrop": 0.0, "rotary": True, "rotary_dim": 64,
            "scale_attn_weights": True, "summary_activation": None, "summary_first_dropout": 0.1,
            "summary_proj_to_labels": True, "summary_type": "cls_index", "summary_use_proj": True,
            "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50, "temperature": 1.0}},
            "tie_word_embeddings": False, "tokenizer_class": "GPT2Tokenizer",
            "transformers_version": "4.18.0.dev0", "use_cache": True, "vocab_size": 50400,
        },
        {"mlp.width": 16384, "positions.dim": 64, "positions.interleaved": True, "head_bias": True, "max_length": 2048},
    ),
    "falcon-7b": (
        _FALCON_7B,
        {
            "attention.num_kv_heads": 1, "mlp.width": 18176, "layout": "shared", "tied_head": True, "mlp.bias": False,
            "positions.dim": 64, "max_length": 2048,
        },
    ),
    "falcon-40b": (
        {
            **_FALCON_7B, "hidden_size": 8192, "num_attention_heads": 128, "num_hidden_layers": 60,
            "new_decoder_architecture": True, "num_kv_heads": 8,
        },
        {"attention.num_kv_heads": 8, "layout": "parallel", "attention.head_dim": 64},
    ),
    "mpt-7b-instruct": (
        _MPT_7B,
        {
            "max_length": 2048, "mlp.width": 16384, "norm.bias": False, "attention.qkv_bias": False,
            "attention.qkv_clip": None, "attention.scales": (128**-0.5,) * 32, "tied_head": True,
        },
    ),
    "bloom-560m": (
        _BLOOM_560M,
        {"width": 1024, "mlp.width": 4096, "max_length": 2048, "embedding_norm": True, "attention.num_heads": 16},
    ),
    "bloom-560m, saved later": (
        {
            **{key: value for key, value in _BLOOM_560M.items() if key not in ("n_embed", "num_attention_heads")},
            "hidden_size": 1024, "n_head": 16, "slow_but_exact": False, "transformers_version": "4.26.0",
            "use_cache": True,
        },
        {"width": 1024, "mlp.width": 4096, "attention.num_heads": 16},
    ),
    "phi-1": (
        {
            **_PHI_2, "bos_token_id": None, "eos_token_id": None, "hidden_size": 2048, "intermediate_size": 8192,
            "num_hidden_layers": 24, "num_key_value_heads": None, "partial_rotary_factor": 0.5, "resid_pdrop": 0.0,
            "torch_dtype": "float32",
            "auto_map": {
                "AutoConfig": "configuration_phi.PhiConfig", "AutoModelForCausalLM": "modeling_phi.PhiForCausalLM",
            },
        },
        {"positions.dim": 32, "attention.num_kv_heads": 32, "mlp.activation": "gelu_tanh"},
    ),
    "phi-2": (_PHI_2, {"positions.dim": 32, "layout": "shared", "head_bias": True, "attention.qkv_bias": True}),
    "opt-125m": (_OPT, {"layout": "pre", "final_norm": True, "positions.offset": 2, "tied_head": True}),
    "opt-350m": (
        {
            **_OPT, "do_layer_norm_before": False, "ffn_dim": 4096, "hidden_size": 1024, "num_attention_heads": 16,
            "num_hidden_layers": 24, "word_embed_proj_dim": 512,
        },
        {"layout": "post", "final_norm": False, "embedding_width": 512},
    ),
    "opt-13b": (
        {
            **_OPT, "_remove_final_layer_norm": False, "ffn_dim": 20480, "hidden_size": 5120, "num_attention_heads": 40,
            "num_hidden_layers": 40, "output_projection": True, "word_embed_proj_dim": 5120,
        },
        {"attention.head_dim": 128, "embedding_width": None},
    ),
    "llama-7b": ({**_LLAMA, "max_sequence_length": 2048, "pad_token_id": 0}, {"positions.theta": 10000.0}),
    "llama-2-70b": (
        {
            **_LLAMA, "hidden_size": 8192, "intermediate_size": 28672, "max_position_embeddings": 4096,
            "num_attention_heads": 64, "num_hidden_layers": 80, "num_key_value_heads": 8, "pretraining_tp": 1,
            "rms_norm_eps": 1e-05, "rope_scaling": None,
        },
        {"attention.num_kv_heads": 8, "norm.eps": 1e-05},
    ),
    "llama-3.1-8b": (_LLAMA_31, {"positions.scaling.factor": 8.0, "positions.scaling.original_length": 8192}),
    "llama-3.2-1b": (
        {
            **_LLAMA_31, "head_dim": 64, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
            "rope_scaling": {**_LLAMA_31["rope_scaling"], "factor": 32.0}, "tie_word_embeddings": True,
        },
        {"positions.scaling.factor": 32.0, "tied_head": True, "attention.head_dim": 64},
    ),
    "smollm2-135m": (
        {
            **_LLAMA_31, "hidden_size": 576, "intermediate_size": 1536, "is_llama_config": True,
            "max_position_embeddings": 8192, "num_attention_heads": 9, "num_hidden_layers": 30,
            "num_key_value_heads": 3, "pad_token_id": None, "rope_interleaved": False, "rope_scaling": None,
            "rope_theta": 100000, "tie_word_embeddings": True, "vocab_size": 49152,
        },
        {"positions.scaling": None, "attention.head_dim": 64, "positions.theta": 100000.0},
    ),
    "mistral-7b-v0.1": (_MISTRAL, {"attention.windows": (4096,) * 32}),
    "mistral-7b-v0.3": (
        {**_MISTRAL, "rope_theta": 1000000.0, "sliding_window": None, "vocab_size": 32768},
        {"attention.windows": (None,) * 32, "positions.theta": 1000000.0},
    ),
    "mistral-nemo": (
        {
            **_MISTRAL, "head_dim": 128, "hidden_size": 5120, "max_position_embeddings": 128000,
            "num_hidden_layers": 40, "rope_theta": 1000000.0, "sliding_window": None, "vocab_size": 131072,
        },
        {"attention.head_dim": 128, "width": 5120},
    ),
    "qwen2.5-7b": (_QWEN25, {"attention.windows": (None,) * 28, "attention.qkv_bias": True, "vocab_size": 152064}),
    "qwen2.5-32b, stretched": (
        {
            **_QWEN25, "max_position_embeddings": 32768,
            "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"},
        },
        {"positions.scaling.factor": 4.0, "positions.scaling.beta_fast": 32.0},
    ),
    "qwen3-0.6b": (_QWEN3, {"attention.qk_norm": "head", "attention.head_dim": 128, "tied_head": True}),
    "gemma-2b": (
        _GEMMA,
        {
            "mlp.activation": "gelu_tanh", "norm.plus_one": True, "embedding_scale": 2048**0.5, "tied_head": True,
            "attention.num_kv_heads": 1, "layout": "pre",
        },
    ),
    "gemma-7b": (
        {
            **_GEMMA, "hidden_act": "gelu_pytorch_tanh", "hidden_size": 3072, "intermediate_size": 24576,
            "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 16,
        },
        {"attention.head_dim": 256, "attention.scales": (1 / 16,) * 28, "embedding_scale": 3072**0.5},
    ),
    "gemma-2-9b": (
        _GEMMA2,
        {
            "attention.windows": (4096, None) * 21, "attention.soft_cap": 50.0, "soft_cap": 30.0, "tied_head": True,
            "attention.scales": (1 / 16,) * 42, "norm.plus_one": True, "embedding_scale": 3584**0.5,
        },
    ),
    "gemma-2-27b": (
        {
            **_GEMMA2, "head_dim": 128, "hidden_size": 4608, "intermediate_size": 36864, "num_attention_heads": 32,
            "num_hidden_layers": 46, "num_key_value_heads": 16, "query_pre_attn_scalar": 144,
        },
        {"attention.scales": (1 / 12,) * 46, "attention.head_dim": 128},
    ),
    "gemma-3-1b": (
        _GEMMA3,
        {
            "attention.windows": ((512,) * 5 + (None,)) * 4 + (512, 512), "attention.qk_norm": "head",
            "positions.theta": 1000000.0, "attention.soft_cap": None, "layout": "sandwich", "tied_head": True,
        },
    ),
    "command-r-plus": (
        _COHERE,
        {
            "norm.bias": False, "layout": "shared", "logit_scale": 0.8333333333333334, "attention.qk_norm": "each",
            "positions.interleaved": True, "tied_head": True, "positions.theta": 75000000.0,
        },
    ),
    "command-r7b-12-2024": (
        _COHERE2,
        {
            "attention.windows": ((4096,) * 3 + (None,)) * 8, "logit_scale": 0.25, "attention.qk_norm": None,
            "positions.dim": 128, "layout": "shared", "tied_head": True,
        },
    ),
    "deepseek-v2-lite": (
        _DEEPSEEK2_LITE,
        {
            "attention.latent": Latent(512, 128), "attention.head_dim": 192, "positions.dim": 64,
            "mlp": Experts(64, 6, 1408, "silu", renormalised=False, shared_width=2816),
            "attention.scales": (192**-0.5 * (0.0707 * math.log(40) + 1) ** 2,) * 27,
            "positions.scaling.amplitude": 1.0, "positions.scaling.factor": 40.0,
        },
    ),
    "glm-4-9b-chat-hf": (
        _GLM,
        {
            "positions.dim": 64, "positions.interleaved": True, "layout": "pre", "attention.qkv_bias": True,
            "attention.out_bias": False, "positions.theta": 5000000.0, "norm.eps": 1.5625e-07,
        },
    ),
    "glm-4-9b-0414": (
        {
            **_GLM, "architectures": ["Glm4ForCausalLM"], "max_position_embeddings": 32768, "model_type": "glm4",
            "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
        },
        {"layout": "sandwich", "positions.dim": 64, "positions.interleaved": True, "attention.num_kv_heads": 2},
    ),
    "granite-3.0-8b": (
        _GRANITE,
        {
            "attention.scales": (1 / 128,) * 40, "embedding_scale": 12.0, "residual_scale": 0.22,
            "logit_scale": 1 / 16, "tied_head": True,
        },
    ),
    "stablelm-2-12b": (
        _STABLELM,
        {
            "attention.qk_norm": "each", "layout": "shared", "positions.dim": 40, "attention.head_dim": 160,
            "attention.qkv_bias": False, "attention.out_bias": False, "mlp.gated": True, "tied_head": False,
        },
    ),
    "olmo-7b": (_OLMO, {"norm.affine": False, "attention.qkv_clip": None, "mlp.gated": True}),
    "phi-4": (_PHI4, {"positions.theta": 250000.0, "attention.num_kv_heads": 10, "positions.scaling": None}),
    "phi-4-mini": (
        {
            **_PHI4, "full_attn_mod": 1, "interpolate_factor": 1, "lm_head_bias": False, "mlp_bias": False,
            "auto_map": {
                "AutoConfig": "configuration_phi3.Phi3Config", "AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM",
                "AutoTokenizer": "Xenova/gpt-4o",
            },
            "hidden_size": 3072, "intermediate_size": 8192, "max_position_embeddings": 131072,
            "num_attention_heads": 24, "num_hidden_layers": 32, "num_key_value_heads": 8,
            "original_max_position_embeddings": 4096, "partial_rotary_factor": 0.75, "rope_theta": 10000.0,
            "rope_scaling": {"long_factor": [1.0] * 47 + [47.77], "short_factor": [1.0] * 48, "type": "longrope"},
            "sliding_window": 262144, "tie_word_embeddings": True, "vocab_size": 200064,
        },
        {"max_length": 4096, "positions.dim": 96, "positions.scaling.stretched_length": 131072},
    ),
    "olmo-2-7b": (
        _OLMO2, {"layout": "branch", "attention.qk_norm": "full", "positions.theta": 500000.0, "layer_positions": ()},
    ),
    "olmo-3-7b": (
        _OLMO3,
        {"attention.windows": ((4096,) * 3 + (None,)) * 8, "positions.scaling.factor": 8.0, "layout": "branch"},
    ),
    "smollm3-3b": (_SMOLLM3, {"positions.theta": 5000000.0, "attention.windows": (None,) * 36, "tied_head": True}),
    "mixtral-8x7b-v0.1": (
        _MIXTRAL,
        {"mlp": Experts(8, 2, 14336, "silu"), "positions.theta": 1e6, "attention.windows": (None,) * 32},
    ),
    "gpt-oss-20b": (
        {
            "architectures": ["GptOssForCausalLM"], "attention_bias": True, "attention_dropout": 0.0,
            "eos_token_id": 200002, "experts_per_token": 4, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2880,
            "initial_context_length": 4096, "initializer_range": 0.02, "intermediate_size": 2880,
            "layer_types": ["sliding_attention", "full_attention"] * 12, "max_position_embeddings": 131072,
            "model_type": "gpt_oss", "num_attention_heads": 64, "num_experts_per_tok": 4, "num_hidden_layers": 24,
            "num_key_value_heads": 8, "num_local_experts": 32, "output_router_logits": False, "pad_token_id": 199999,
            "rms_norm_eps": 1e-05, "rope_theta": 150000, "router_aux_loss_coef": 0.9, "sliding_window": 128,
            "rope_scaling": {
                "beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096,
                "rope_type": "yarn", "truncate": False,
            },
            "swiglu_limit": 7.0, "tie_word_embeddings": False, "transformers_version": "4.55.0.dev0",
            "use_cache": True, "vocab_size": 201088,
        },
        {
            "mlp": Experts(32, 4, 2880, "silu", bias=True, clamped=ClampedGate(1.702, 7.0)), "attention.sinks": True,
            "attention.windows": (128, None) * 12, "positions.scaling.truncate": False, "attention.head_dim": 64,
        },
    ),
    "olmoe-1b-7b-0924": (
        _OLMOE,
        {"mlp": Experts(64, 8, 1024, "silu", renormalised=False), "attention.qk_norm": "full", "layout": "pre"},
    ),
    "qwen3-30b-a3b": (
        _QWEN3_MOE,
        {"mlp": Experts(128, 8, 768, "silu"), "attention.qk_norm": "head", "layer_mlps": ()},
    ),
    "falcon-180b-chat": (
        {
            "alibi": False, "architectures": ["FalconForCausalLM"], "attention_dropout": 0.0, "bias": False,
            "bos_token_id": 11, "eos_token_id": 11, "hidden_dropout": 0.0, "hidden_size": 14848,
            "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "falcon", "multi_query": True,
            "new_decoder_architecture": True, "num_attention_heads": 232, "num_hidden_layers": 80, "num_kv_heads": 8,
            "parallel_attn": True, "torch_dtype": "bfloat16", "transformers_version": "4.32.0", "use_cache": True,
            "vocab_size": 65024,
        },
        {"width": 14848, "attention.num_kv_heads": 8, "tied_head": True},
    ),
    "llama-3.1-8b-computer-networks, 8 bits": (
        {
            "_name_or_path": "meta-llama/Llama-3.1-8B", "architectures": ["LlamaForCausalLM"], "attention_bias": False,
            "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": 128001, "head_dim": 128,
            "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
            "max_position_embeddings": 131072, "mlp_bias": False, "model_type": "llama", "num_attention_heads": 32,
            "num_hidden_layers": 32, "num_key_value_heads": 8, "pretraining_tp": 1,
            "quantization_config": {
                "_load_in_4bit": False, "_load_in_8bit": True, "bnb_4bit_compute_dtype": "float32",
                "bnb_4bit_quant_storage": "uint8", "bnb_4bit_quant_type": "fp4", "bnb_4bit_use_double_quant": False,
                "llm_int8_enable_fp32_cpu_offload": True, "llm_int8_has_fp16_weight": False,
                "llm_int8_skip_modules": None, "llm_int8_threshold": 6.0, "load_in_4bit": False, "load_in_8bit": True,
                "quant_method": "bitsandbytes",
            },
            "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 8.0, "rope_type": "linear", "type": "linear"},
            "rope_theta": 500000.0, "tie_word_embeddings": False, "torch_dtype": "float32",
            "transformers_version": "4.49.0", "use_cache": True, "vocab_size": 128256,
        },
        {"width": 4096, "attention.num_kv_heads": 8, "positions.scaling.factor": 8.0, "max_length": 131072},
    ),
    "granite-7b-lab": (
        {
            "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
            "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
            "intermediate_size": 11008, "max_position_embeddings": 4096, "model_type": "llama",
            "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "pretraining_tp": 1,
            "rms_norm_eps": 1e-05, "rope_scaling": None, "rope_theta": 10000.0, "tie_word_embeddings": False,
            "transformers_version": "4.40.0", "use_cache": True, "vocab_size": 32008,
        },
        {"vocab_size": 32008, "attention.num_kv_heads": 32, "tied_head": False},
    ),
    "3prymmal-phi3-3b-slerp": (
        {
            "_name_or_path": "jpacifico/Chocolatine-3B-Instruct-DPO-Revised", "architectures": ["Phi3ForCausalLM"],
            "attention_bias": False, "attention_dropout": 0.0,
            "auto_map": {
                "AutoConfig": "microsoft/Phi-3-mini-4k-instruct--configuration_phi3.Phi3Config",
                "AutoModelForCausalLM": "microsoft/Phi-3-mini-4k-instruct--modeling_phi3.Phi3ForCausalLM",
            },
            "bos_token_id": 1, "embd_pdrop": 0.0, "eos_token_id": 32000, "hidden_act": "silu", "hidden_size": 3072,
            "initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 4096,
            "model_type": "phi3", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
            "original_max_position_embeddings": 4096, "pad_token_id": 32000, "resid_pdrop": 0.0, "rms_norm_eps": 1e-05,
            "rope_scaling": None, "rope_theta": 10000.0, "sliding_window": 2047, "tie_word_embeddings": False,
            "torch_dtype": "bfloat16", "transformers_version": "4.44.2", "use_cache": True, "vocab_size": 32064,
        },
        {"width": 3072, "attention.windows": (2047,) * 32, "max_length": 4096},
    ),
    "gemma-2b-it": (
        {
            "architectures": ["GemmaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
            "bos_token_id": 2, "eos_token_id": 1, "head_dim": 256, "hidden_act": "gelu", "hidden_size": 2048,
            "initializer_range": 0.02, "intermediate_size": 16384, "max_position_embeddings": 8192,
            "model_type": "gemma", "num_attention_heads": 8, "num_hidden_layers": 18, "num_key_value_heads": 1,
            "pad_token_id": 0, "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 10000.0,
            "torch_dtype": "bfloat16", "transformers_version": "4.38.0.dev0", "use_cache": True, "vocab_size": 256000,
        },
        {"attention.num_kv_heads": 1, "attention.head_dim": 256, "embedding_scale": 2048**0.5},
    ),
    "cogito-v1-preview-qwen-14b": (
        {
            "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
            "eos_token_id": 151645, "hidden_act": "silu", "hidden_size": 5120, "initializer_range": 0.02,
            "intermediate_size": 13824, "max_position_embeddings": 131072, "max_window_layers": 48,
            "model_type": "qwen2", "num_attention_heads": 40, "num_hidden_layers": 48, "num_key_value_heads": 8,
            "rms_norm_eps": 1e-05, "rope_scaling": None, "rope_theta": 1000000.0, "sliding_window": 131072,
            "tie_word_embeddings": False, "torch_dtype": "bfloat16", "transformers_version": "4.49.0",
            "use_cache": False, "use_sliding_window": False, "vocab_size": 151665,
        },
        {"width": 5120, "attention.windows": (None,) * 48, "attention.qkv_bias": True},
    ),
    "wizardlm-2-8x22b": (
        {
            "_name_or_path": "", "architectures": ["MixtralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1,
            "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 6144, "initializer_range": 0.02,
            "intermediate_size": 16384, "max_position_embeddings": 65536, "model_type": "mixtral",
            "num_attention_heads": 48, "num_experts_per_tok": 2, "num_hidden_layers": 56, "num_key_value_heads": 8,
            "num_local_experts": 8, "output_router_logits": False, "rms_norm_eps": 1e-05, "rope_theta": 1000000,
            "router_aux_loss_coef": 0.001, "router_jitter_noise": 0.0, "sliding_window": None,
            "tie_word_embeddings": False, "torch_dtype": "bfloat16", "transformers_version": "4.36.2",
            "use_cache": False, "vocab_size": 32000,
        },
        {"width": 6144, "mlp": Experts(8, 2, 16384, "silu"), "attention.num_kv_heads": 8},
    ),
    "qwen3-1.7b": (
        {
            "architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
            "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048,
            "initializer_range": 0.02, "intermediate_size": 6144, "max_position_embeddings": 40960,
            "max_window_layers": 28, "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28,
            "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 1000000,
            "sliding_window": None, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
            "transformers_version": "4.51.0", "use_cache": True, "use_sliding_window": False, "vocab_size": 151936,
        },
        {"width": 2048, "attention.qk_norm": "head", "attention.head_dim": 128, "tied_head": True},
    ),
}
# fmt: on
