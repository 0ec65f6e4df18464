"""Options of vLLM's engine, and those that answers depend on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from motif_jax.core import config as checks
from motif_jax.motif.annotation import model_files
from motif_jax.motif.annotation.chat import json_option
from motif_jax.motif.annotation.config import AnnotatorConfig

# Options of the engine with their own config keys; vLLM decides those of None.
_OPTIONS = (
    "tokenizer",
    "revision",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "gpu_memory_utilization",
    "kv_cache_memory_bytes",
    "block_size",
    "enforce_eager",
    "trust_remote_code",
    "download_dir",
)
# Other options that decide where, how fast and in how much memory the engine works, or what it
# logs. They are not part of the identity, so that stored answers are found whatever their values.
# Any option that is not listed counts as changing answers, also future ones of vLLM, and
# `load_format`, since "dummy" makes another model.
_HOW_IT_RUNS = frozenset(
    {
        "data_parallel_size",
        "data_parallel_size_local",
        "data_parallel_rank",
        "data_parallel_start_rank",
        "data_parallel_address",
        "data_parallel_rpc_port",
        "data_parallel_backend",
        "data_parallel_hybrid_lb",
        "data_parallel_external_lb",
        "prefill_context_parallel_size",
        "decode_context_parallel_size",
        "enable_expert_parallel",
        "enable_eplb",
        "expert_placement_strategy",
        "distributed_executor_backend",
        "distributed_timeout_seconds",
        "cpu_distributed_timeout_seconds",
        "nnodes",
        "node_rank",
        "master_addr",
        "master_port",
        "device_ids",
        "numa_bind",
        "numa_bind_nodes",
        "numa_bind_cpus",
        "disable_custom_all_reduce",
        "max_parallel_loading_workers",
        "cpu_offload_gb",
        "cpu_offload_params",
        "offload_backend",
        "offload_group_size",
        "offload_num_in_group",
        "offload_prefetch_step",
        "offload_params",
        "swap_space",
        "num_gpu_blocks_override",
        "enable_sleep_mode",
        "limit_mm_per_prompt",
        "mm_processor_cache_gb",
        "skip_mm_profiling",
        "max_logprobs",
        "max_num_partial_prefills",
        "max_long_partial_prefills",
        "long_prefill_token_threshold",
        "max_num_scheduled_tokens",
        "enable_chunked_prefill",
        "scheduling_policy",
        "async_scheduling",
        "num_scheduler_steps",
        "scheduler_delay_factor",
        "preemption_mode",
        "stream_interval",
        "enable_prefix_caching",
        "prefix_caching_hash_algo",
        "compilation_config",
        "max_seq_len_to_capture",
        "cuda_graph_sizes",
        "cudagraph_capture_sizes",
        "max_cudagraph_capture_size",
        "hf_token",
        "served_model_name",
        "use_tqdm_on_load",
        "safetensors_load_strategy",
        "safetensors_prefetch_num_threads",
        "safetensors_prefetch_block_size",
        "disable_log_stats",
        "disable_log_requests",
        "aggregate_engine_logging",
        "otlp_traces_endpoint",
        "collect_detailed_traces",
        "show_hidden_metrics_for_version",
        "kv_cache_metrics",
        "kv_cache_metrics_sample",
        "cudagraph_metrics",
        "enable_layerwise_nvtx_tracing",
        "enable_mfu_metrics",
        "enable_logging_iteration_details",
        "ray_workers_use_nsight",
    }
)


def engine_options(config: AnnotatorConfig) -> dict[str, Any]:
    """Arguments of vllm.LLM: the keys of config.vllm that are not None, and those of
    config.vllm.engine.
    """
    # All questions share the system's part of the prompt, which is computed once.
    options: dict[str, Any] = {
        "model": config.vllm.model,
        "seed": 0,
        "enable_prefix_caching": True,
    }
    for name in _OPTIONS:
        value = getattr(config.vllm, name)
        if value is not None:
            options[name] = value
    return options | json_option(config, "vllm.engine")


def check_options(config: AnnotatorConfig) -> None:
    """Raises UserError for an unusable model or tokenizer folder, or options that are not a JSON
    object.
    """
    options = engine_options(config)
    for key in ("model", "revision", "tokenizer", "tokenizer_revision", "download_dir"):
        value = options.get(key)
        is_text = isinstance(value, str) or (value is None and key != "model")
        checks.require(
            is_text, "vllm.engine", config.vllm.engine, f"a JSON object whose {key} is a text"
        )
    model_files.check_model(options["model"], "vllm.model")
    tokenizer = options.get("tokenizer")
    if tokenizer and model_files.is_path(tokenizer):
        allowed = "the name of a tokenizer, or its folder"
        checks.require(Path(tokenizer).is_dir(), "vllm.tokenizer", tokenizer, allowed)


def tokenizer_of(options: Mapping[str, Any]) -> tuple[str, str | None]:
    """Name or folder of the tokenizer, and the revision that the config names; by default the
    model's.
    """
    revision = options.get("tokenizer_revision") or options.get("revision")
    return options.get("tokenizer") or options["model"], revision


def identity(config: AnnotatorConfig) -> dict[str, Any]:
    """Everything of the model and its engine that an answer depends on; unset keys of the engine
    are left out.
    """
    options = engine_options(config)
    model = options["model"]
    requested = options.get("revision")
    download_dir = options.get("download_dir")
    parts = {
        "annotator": "vllm",
        "model": _name(model),
        "revision": model_files.revision(model, requested, download_dir),
        "dtype": options["dtype"],
        "quantization": options.get("quantization"),
        "kv_cache_dtype": options["kv_cache_dtype"],
        "chat_template_kwargs": json_option(config, "vllm.chat_template_kwargs"),
    }

    tokenizer, tokenizer_requested = tokenizer_of(options)
    if (tokenizer, tokenizer_requested) != (model, requested):
        version = model_files.revision(
            tokenizer, tokenizer_requested, download_dir, key="vllm.tokenizer"
        )
        parts["tokenizer"] = {"name": _name(tokenizer), "revision": version}

    # Of options with keys of their own, those that change answers are in `parts`.
    unbinding = {*_OPTIONS, *_HOW_IT_RUNS, "model", "tokenizer_revision"}
    engine = {}
    for key, value in json_option(config, "vllm.engine").items():
        # Seed 0 is what `engine_options` gives without the key.
        is_default = value is None or (key, value) == ("seed", 0)
        if key not in unbinding and not is_default:
            engine[key] = value
    if engine:
        parts["engine"] = engine
    return parts


def _name(model: str) -> str:
    """A model's name; the last part of a folder, so that it may be moved."""
    return model.rstrip("/").rpartition("/")[2] if model_files.is_path(model) else model
