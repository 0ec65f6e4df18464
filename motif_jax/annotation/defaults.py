"""Sections that the configs of all who ask language models have."""

from __future__ import annotations

from ml_collections import ConfigDict, config_dict


def vllm() -> ConfigDict:
    """The offline engine. Values of None are left to vLLM."""
    config = ConfigDict()
    config.model = ""
    config.revision = config_dict.placeholder(str)
    config.tokenizer = config_dict.placeholder(str)
    config.tensor_parallel_size = 1
    config.pipeline_parallel_size = 1
    config.dtype = "auto"
    config.quantization = config_dict.placeholder(str)
    config.kv_cache_dtype = "auto"
    config.max_model_len = config_dict.placeholder(int)
    config.max_num_seqs = config_dict.placeholder(int)
    config.max_num_batched_tokens = config_dict.placeholder(int)
    config.gpu_memory_utilization = 0.92
    config.kv_cache_memory_bytes = config_dict.placeholder(int)
    config.block_size = config_dict.placeholder(int)
    config.enable_prefix_caching = True
    config.enforce_eager = False
    config.trust_remote_code = False
    config.download_dir = config_dict.placeholder(str)
    # Questions in the engine's queue at most. It is filled up when an eighth of it, or room for 64, is free: keep it above
    # max_num_seqs by more than that.
    config.in_flight = 2000
    # Any other option of vLLM's engine as a JSON object: '{"cpu_offload_gb": 8}'.
    config.engine = "{}"
    # Arguments of the model's chat template as a JSON object: '{"enable_thinking": false}'.
    config.chat_template_kwargs = "{}"
    return config


def openai() -> ConfigDict:
    """Any server that speaks the OpenAI protocol. The key is read from the environment alone."""
    config = ConfigDict()
    config.base_url = "http://127.0.0.1:8000/v1"
    config.model = ""
    config.revision = config_dict.placeholder(str)
    config.key_variable = "OPENAI_API_KEY"
    # Requests on their way at most: fewer while the server says that it has too many.
    config.concurrency = 64
    # What a million tokens cost, for the progress line, the summary and the dry run; cached: of a prompt that the server
    # remembers, None for the price of a prompt.
    config.prices = ConfigDict({"prompt": 0.0, "completion": 0.0})
    config.prices.cached = config_dict.placeholder(float)
    config.timeout_seconds = 600.0
    # A request that fails is sent again after 1, 2, 4 ... seconds, or when the server says (Retry-After), this often.
    config.retries = 6
    # structured_outputs (vLLM), response_format (OpenAI's JSON schema), or none, for answer.mode=verdict.
    config.structured = "structured_outputs"
    # Seeds and top_k are not known to every server.
    config.send_top_k = True
    config.send_seed = True
    # Further fields of each request as a JSON object.
    config.extra_body = "{}"
    return config
