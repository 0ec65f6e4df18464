"""Language models in process, by vLLM's offline engine.

New questions enter the engine's queue as others finish, so that it never drains between batches;
answers are those of `LLM.chat`.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from motif_jax.core import config as checks
from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import UNKNOWN, Form
from motif_jax.motif.annotation import chat, model_files
from motif_jax.motif.annotation.annotator import Answer, Preview, Question
from motif_jax.motif.annotation.chat import Conversation
from motif_jax.motif.annotation.config import AnnotatorConfig, json_option

# The queue is filled up when 1 / _REFILL of it is free, with at most _CHUNK conversations at once:
# not for each answer, but often enough to keep the engine full where the queue is hardly longer
# than its batch.
_REFILL = 8
_CHUNK = 64
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


class VllmAnnotator(chat.ChatAnnotator):
    """Asks a chat model through `vllm.LLM`."""

    loads_model = True

    def __init__(self, config: AnnotatorConfig, form: Form, dataset: Any = None) -> None:
        super().__init__(config, form, _identity(config))
        self._config = config
        self._options = engine_options(config)
        self._template_options = json_option(config, "vllm.chat_template_kwargs")
        self.engine: Any = None
        # In mode soft: the beginning of the answer, and the token of each verdict after it.
        self._prefill: tuple[str, list[int]] | None = None

    @classmethod
    def check(cls, config: AnnotatorConfig, form: Form) -> None:
        chat.check_chat(config, form)

    def start(self) -> None:
        # Set before the import, which reads it: what a run asks, and with which model, is nobody
        # else's business.
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
        import vllm
        from vllm.platforms import current_platform

        options = self._for_cpu(dict(self._options)) if current_platform.is_cpu() else self._options
        self.engine = vllm.LLM(**options)
        if self.mode == "soft":
            self._prefill = self._find_prefill(self.engine.get_tokenizer())

    def _for_cpu(self, options: dict[str, Any]) -> dict[str, Any]:
        """Prevents split prompts: on CPU a seeded draw fails when a prompt is split over two
        steps.
        """
        if self._seed is None:
            return options
        length = options.get("max_model_len")
        sequences = options.get("max_num_seqs")
        if length is None or sequences is None:
            raise UserError(
                "config.vllm.max_model_len and config.vllm.max_num_seqs: must be given on a CPU where answers are drawn with "
                "seeds (or set config.sampling.temperature=0)"
            )
        # A step that holds all sequences at their full length never splits a prompt.
        full_step = length * sequences
        tokens = options.setdefault("max_num_batched_tokens", full_step)
        allowed = f"at least max_num_seqs * max_model_len = {full_step} on a CPU where answers are drawn with seeds"
        checks.require(tokens >= full_step, "vllm.max_num_batched_tokens", tokens, allowed)
        return options

    def annotate(self, questions: Sequence[Question]) -> Iterator[tuple[int, Answer] | None]:
        waiting = enumerate(questions)
        queued: dict[str, Conversation] = {}
        engine = self.engine.llm_engine
        limit = self._config.vllm.in_flight
        refill_at = min(_CHUNK, max(1, limit // _REFILL))
        try:
            while True:
                while limit - len(queued) >= refill_at:
                    chunk = itertools.islice(waiting, min(_CHUNK, limit - len(queued)))
                    conversations = [self.open(question, position) for position, question in chunk]
                    if not conversations:
                        break
                    yield from self._enqueue(conversations, queued)
                if not queued:
                    return
                to_continue: list[Conversation] = []
                for output in engine.step():
                    if output.finished:
                        conversation = queued.pop(output.request_id)
                        answer = self._read_output(conversation, output)
                        if answer is None:
                            to_continue.append(conversation)
                        else:
                            yield conversation.position, answer
                yield from self._enqueue(to_continue, queued)
                yield None
        finally:
            if queued:
                with contextlib.suppress(Exception):  # the engine may be what failed
                    engine.abort_request(list(queued))

    def _enqueue(
        self, conversations: list[Conversation], queued: dict[str, Conversation]
    ) -> list[tuple[int, Answer]]:
        """Adds conversations to the engine and to `queued`; returns the unknown answers of those
        that are too long.
        """
        from vllm.exceptions import VLLMError

        if not conversations:
            return []
        try:
            ids = self.engine.enqueue_chat(
                [self._turns(conversation) for conversation in conversations],
                [self._sampling(self.seed(conversation)) for conversation in conversations],
                use_tqdm=False,
                add_generation_prompt=self._prefill is None,
                continue_final_message=self._prefill is not None,
                chat_template_kwargs=self._template_options or None,
            )
        except (ValueError, VLLMError) as error:
            if len(conversations) > 1:
                # vLLM refuses all for one that it cannot take. One by one, only that one is
                # refused.
                refused = []
                for conversation in conversations:
                    refused += self._enqueue([conversation], queued)
                return refused
            if "context length" in str(error) or "max_model_len" in str(error):
                conversation = conversations[0]
                return [(conversation.position, conversation.answer(UNKNOWN, note=chat.TOO_LONG))]
            raise
        for request, conversation in zip(ids, conversations, strict=True):
            # Internally a request's id has a random suffix; outputs have it without.
            queued[request.partition("-")[0]] = conversation
        return []

    def _turns(self, conversation: Conversation) -> list[dict[str, str]]:
        """The turns to send: in mode soft with the beginning of the answer."""
        if self._prefill is None:
            return conversation.turns
        return [*conversation.turns, {"role": "assistant", "content": self._prefill[0]}]

    # The cache is for answers without seeds, which share one object.
    @functools.lru_cache(maxsize=1)  # noqa: B019 (a process has one engine)
    def _sampling(self, seed: int | None) -> Any:
        """vLLM's SamplingParams for an answer."""
        from vllm import SamplingParams
        from vllm.sampling_params import StructuredOutputsParams

        if self._prefill is not None:
            return SamplingParams(temperature=0, max_tokens=1, logprob_token_ids=self._prefill[1])
        sampling = self._config.sampling
        distribution = {name: getattr(sampling, name) for name in ("temperature", "top_k", "top_p")}
        distribution = {name: value for name, value in distribution.items() if value is not None}
        parameters = SamplingParams(
            **distribution,
            max_tokens=sampling.verdict_tokens if self.mode == "verdict" else sampling.max_tokens,
            seed=seed,
            # Some models mark their reasoning with special tokens; without them it could not be
            # told from the answer. The published rules read texts without them.
            skip_special_tokens=self._parse.is_published,
        )
        if self.mode == "verdict":
            parameters.structured_outputs = StructuredOutputsParams(
                choice=list(self.prompt.answer.answers)
            )
        return parameters

    def _read_output(self, conversation: Conversation, output: Any) -> Answer | None:
        """The answer of a finished request; None if the conversation continues with the retry
        turn.
        """
        completion = output.outputs[0]
        conversation.add_tokens(
            len(output.prompt_token_ids), len(completion.token_ids), output.num_cached_tokens or 0
        )
        if self._prefill is None:
            return self.read_answer(conversation, completion.text, completion.finish_reason)
        _, verdict_tokens = self._prefill
        listed = completion.logprobs[0]
        log_probabilities = [
            listed[token].logprob if token in listed else -math.inf for token in verdict_tokens
        ]
        return self.answer_from_log_probabilities(conversation, log_probabilities)

    def _find_prefill(self, tokenizer: Any) -> tuple[str, list[int]]:
        """The beginning of an answer after which one token tells the verdicts apart, and those
        tokens.

        Tokenizers join a blank with the word after it: with the blank in the prefill, the verdict
        would be another token than the one that the model writes. So the prefix is tried with and
        without the blank at its end.
        """
        no_items = [""] * len(self.prompt.form.items)
        turns = self.prompt.conversation(*no_items)
        form = self.prompt.answer
        tail = form.template.partition("{verdict}")[2]
        encode = functools.partial(tokenizer.encode, add_special_tokens=False)
        for prefill in dict.fromkeys((form.prefix, form.prefix.rstrip())):
            text = self._render(
                tokenizer, [*turns, {"role": "assistant", "content": prefill}], continued=True
            )
            start = encode(text)
            blank = form.prefix[len(prefill) :]
            answers = [encode(text + blank + verdict + tail) for verdict in form.verdicts]
            if any(tokens[: len(start)] != start for tokens in answers):
                # The verdict's token reaches back into the prefill.
                continue
            if any(len(tokens) == len(start) for tokens in answers):
                # The tokenizer drops the verdict's letters.
                continue
            verdict_tokens = [tokens[len(start)] for tokens in answers]
            if len(set(verdict_tokens)) == len(verdict_tokens):
                return prefill, verdict_tokens
        raise UserError(
            f"config.answer.mode=soft: no single token of this model distinguishes {', '.join(form.verdicts)} after "
            f"{form.prefix!r}; use other verdicts in the prompt file, or another answer.mode"
        )

    def preview(self, question: Question) -> Preview:
        tokenizer = self._tokenizer
        if self.mode == "soft" and self._prefill is None:
            self._prefill = self._find_prefill(tokenizer)
        text = self._render(
            tokenizer, self._turns(self.open(question)), continued=self._prefill is not None
        )
        return Preview(text, len(tokenizer.encode(text, add_special_tokens=False)))

    @functools.cached_property
    def _tokenizer(self) -> Any:
        """The model's tokenizer without its engine, for the dry run."""
        from transformers import AutoTokenizer

        options = self._options
        tokenizer, revision = _tokenizer_of(options)
        return AutoTokenizer.from_pretrained(
            tokenizer,
            revision=revision,
            trust_remote_code=options["trust_remote_code"],
            cache_dir=options.get("download_dir"),
        )

    def _render(self, tokenizer: Any, turns: list[dict[str, str]], continued: bool) -> str:
        """The text of turns by the model's template; `continued`: the last turn is the beginning of
        an answer.
        """
        return tokenizer.apply_chat_template(
            turns,
            tokenize=False,
            add_generation_prompt=not continued,
            continue_final_message=continued,
            **self._template_options,
        )

    def close(self) -> None:
        if self.engine is not None:
            with contextlib.suppress(Exception):  # the engine is not needed any more
                self.engine.llm_engine.engine_core.shutdown()
            self.engine = None


# The engine's options, and those that answers depend on


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


def _tokenizer_of(options: Mapping[str, Any]) -> tuple[str, str | None]:
    """Name or folder of the tokenizer, and the revision that the config names; by default the
    model's.
    """
    revision = options.get("tokenizer_revision") or options.get("revision")
    return options.get("tokenizer") or options["model"], revision


def _identity(config: AnnotatorConfig) -> dict[str, Any]:
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

    tokenizer, tokenizer_requested = _tokenizer_of(options)
    if (tokenizer, tokenizer_requested) != (model, requested):
        version = model_files.revision(tokenizer, tokenizer_requested, download_dir)
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
