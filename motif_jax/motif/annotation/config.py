"""The sections and keys of everything that asks language models."""

from __future__ import annotations

import json
from typing import Any

from motif_jax.core import config as checks
from motif_jax.core import sections
from motif_jax.core.compat import Compat
from motif_jax.schema import (
    fraction,
    length_key,
    non_negative,
    one_of,
    plain_key,
    positive,
    section_class,
    subsection,
)


@section_class
class PromptChoice:
    """Which prompt asks."""

    version: str = plain_key(
        "auto",
        "default, reworded, small (for small models), or minigrid. auto: small for annotator=model, else default",
    )
    file: str = plain_key("", "a prompt file of your own")


@section_class
class AnswerMode:
    """How an answer is asked for and read."""

    mode: str = one_of(
        ("auto", "analysis", "verdict", "soft"),
        "auto: soft for annotator=model, else analysis. analysis: free text, then the verdict (published). verdict: the verdict alone, by structured output. soft: probabilities of the "
        "verdicts after a prefilled answer",
    )
    retry: bool = plain_key(True, "an answer without a verdict is followed by a request for one")
    minimum_mass: float = fraction(
        0.05, "soft: an answer whose verdicts have less probability together is unknown"
    )


@section_class
class AnswerSampling:
    """How an answer's tokens are drawn."""

    temperature: float | None = non_negative(
        0.1,
        "temperature of answers; None: not sent, as reasoning models of some servers refuse it",
        allow_none=True,
    )
    top_k: int = plain_key(50, "tokens that may be drawn; -1: all", minimum=-1)
    top_p: float | None = plain_key(
        0.95,
        "probability of the tokens that may be drawn; None: not sent",
        above=0,
        maximum=1,
        allow_none=True,
    )
    max_tokens: int = length_key(
        4096,
        "greatest number of tokens of an answer, with its reasoning; one that is cut is unknown",
    )
    verdict_tokens: int = length_key(
        64,
        "greatest number of tokens in mode verdict, in place of max_tokens; a model that reasons first needs more",
    )


@section_class
class LexiconFile:
    """The lexicon, which answers in place of a language model."""

    file: str = plain_key(
        "",
        "a YAML file, or a built-in one: nethack.yaml (empty), minihack.yaml, minigrid.yaml, crafter.yaml, comments.yaml, steering.yaml",
    )


OPTIONS = plain_key(
    "{}", "options of an annotator class of your own, as a JSON object: '{\"weight\": 2}'"
)
GOAL = plain_key(
    "defaultgoal",
    "a goal of the prompt or of the lexicon: defaultgoal; zeroknowledge, combat, gold, stairs of NetHack; minigrid, crafter (of prompt.version=small); or one of your own file",
)
STORE_DIR = plain_key(
    "runs/answer_store", "answers of all runs; stored questions are never asked again"
)


@section_class
class VllmEngine:
    """vLLM's engine."""

    model: str = plain_key("", "folder or hub name")
    revision: str | None = plain_key(None, "revision of the model on the hub")
    tokenizer: str | None = plain_key(
        None, "folder or hub name of the tokenizer; None: the model's"
    )
    tensor_parallel_size: int = positive(1, "GPUs that share each layer")
    pipeline_parallel_size: int = positive(1, "groups of GPUs that share the layers")
    dtype: str = plain_key("auto", "dtype of the weights")
    quantization: str | None = plain_key(
        None, "quantization of the weights; None: as the model says"
    )
    kv_cache_dtype: str = plain_key("auto", "dtype of cached keys and values")
    max_model_len: int | None = positive(
        None, "tokens of a question and its answer; None: vLLM's choice"
    )
    max_num_seqs: int | None = positive(
        None, "questions that are answered at a time; None: vLLM's choice"
    )
    max_num_batched_tokens: int | None = positive(
        None, "greatest number of tokens of a step; None: vLLM's choice"
    )
    gpu_memory_utilization: float = plain_key(0.92, "share of a GPU's memory", above=0, maximum=1)
    kv_cache_memory_bytes: int | None = positive(
        None, "bytes of the cache of keys and values; None: what the share leaves"
    )
    block_size: int | None = positive(None, "tokens of a block of the cache; None: vLLM's choice")
    enforce_eager: bool = plain_key(False, "runs the model without CUDA graphs")
    trust_remote_code: bool = plain_key(False, "runs Python code that the model brings")
    download_dir: str | None = plain_key(None, "folder of downloaded models; None: the hub's cache")
    in_flight: int = positive(
        2000,
        "questions in the engine's queue at most. It is filled up when an eighth of it, or room for 64, is free: keep it above "
        "max_num_seqs by more than that",
    )
    engine: str = plain_key(
        "{}", "any other option of vLLM's engine as a JSON object, '{\"cpu_offload_gb\": 8}'"
    )
    chat_template_kwargs: str = plain_key(
        "{}",
        "arguments of the model's chat template as a JSON object, '{\"enable_thinking\": false}'",
    )


@section_class
class ModelJudge:
    """A language model in this process."""

    model: str = plain_key(
        "", "folder, hub name, or GGUF file of a Llama, Qwen, Gemma 3 or GPT-2 model"
    )
    dtype: str = one_of(
        ("auto", "float32", "bfloat16"),
        "dtype of the weights and of the computation. auto: bfloat16 on a GPU, float32 on a CPU. A CPU with amx_bf16 or avx512_bf16 in /proc/cpuinfo is twice as fast in bfloat16, others are slower",
    )
    batch: int | None = positive(
        None,
        "questions that run at a time, if each has 32 tokens of its own: so many times 32 tokens. At most 128, as a batch has no more than 4,096 tokens. None: 16 on a CPU, 128 on a GPU",
    )


@section_class
class TokenPrices:
    """Prices of a million tokens."""

    prompt: float = non_negative(
        0.0,
        "price of a million tokens of prompts, for the progress line, the summary and the dry run",
    )
    completion: float = non_negative(0.0, "price of a million tokens of answers")
    cached: float | None = non_negative(
        None,
        "price of a million tokens of prompts that the server remembers; None: the price of a prompt",
    )


@section_class
class OpenaiServer:
    """A server that speaks the OpenAI protocol."""

    base_url: str = plain_key(
        "http://127.0.0.1:8000/v1", "address of any server that speaks the OpenAI protocol"
    )
    model: str = plain_key("", "the model's name on the server")
    revision: str | None = plain_key(None, "revision of the model, where its name does not say it")
    key_variable: str = plain_key("OPENAI_API_KEY", "environment variable that holds the key")
    concurrency: int = positive(64, "requests at a time at most")
    prices: TokenPrices = subsection(TokenPrices)
    timeout_seconds: float = positive(600.0, "time limit of a request")
    retries: int = non_negative(
        6,
        "times that a failed request is sent again, after 1, 2, 4 ... seconds or when the server says. A training queues its question again instead",
    )
    structured: str = one_of(
        ("structured_outputs", "response_format", "none"),
        "for answer.mode=verdict: structured_outputs (vLLM), response_format (OpenAI's JSON schema), or none",
    )
    send_top_k: bool = plain_key(True, "turn it off for a server that does not know the field")
    send_seed: bool = plain_key(True, "turn it off for a server that does not know the field")
    extra_body: str = plain_key(
        "{}", "further fields of each request as a JSON object; not model, messages, n or stream"
    )


@section_class
class Captions:
    """What a caption shows."""

    messages: bool = plain_key(True, "shows the messages in a caption")
    status: bool = plain_key(False, "shows the status line")


@section_class
class AnnotatorConfig:
    """What annotators read."""

    seed: int = sections.SEED
    dataset_dir: str = plain_key("", "folder of a pairs dataset")
    annotator: str = plain_key(
        "lexicon",
        "score, return, random, lexicon, a language model by model, vllm or openai, or module:Class of your own",
    )
    options: str = OPTIONS
    goal: str = GOAL
    captions: Captions = subsection(Captions)
    prompt: PromptChoice = subsection(PromptChoice)
    answer: AnswerMode = subsection(AnswerMode)
    sampling: AnswerSampling = subsection(AnswerSampling)
    lexicon: LexiconFile = subsection(LexiconFile)
    model: ModelJudge = subsection(ModelJudge)
    vllm: VllmEngine = subsection(VllmEngine)
    openai: OpenaiServer = subsection(OpenaiServer)
    compat: Compat = Compat()


@section_class
class AnnotationConfig(AnnotatorConfig):
    """The labels of a dataset."""

    store_dir: str = STORE_DIR
    name: str = plain_key(
        "", "name of the label file; empty: the published scheme, llama70b_msg_defaultgoal_default"
    )
    num_shards: int = positive(1, "parts of the dataset, each a command of its own")
    shard_index: int = non_negative(
        0, "number of the part that this command does, below num_shards"
    )
    restart: bool = plain_key(
        False, "discards the labels of this name first; answers in the store stay"
    )
    attempts: int = positive(
        1, "times that a question is asked at most, until an answer has a verdict"
    )
    orders: str = one_of(
        ("auto", "once", "given", "both"),
        "auto: both for annotator=model, else once. once: asks one of (a, b) and (b, a). given: asks in the dataset's order. both: asks both, averaged",
    )
    correct_position_bias: bool = plain_key(
        False,
        "soft: takes the median preference for the message shown first out of the probabilities; needs orders=once or both",
    )
    agreement_with: str = plain_key(
        "", "label file of this dataset, to report the agreement with; empty: none"
    )
    probe: bool = plain_key(
        False,
        "asks pairs with a known answer, prints how many are right, and stops; asks nothing of the dataset",
    )
    probe_pairs: str = plain_key(
        "nethack",
        "pairs that probe asks: nethack, nethack_hunger, minihack, minigrid, crafter, or a JSON file of your own",
        read_when=(".probe", (True,)),
    )
    flush_seconds: float = non_negative(2.0, "seconds between writes of new answers")
    limit: int | None = positive(None, "questions of this run at most, for a pilot; None: all")
    dry_run: bool = plain_key(
        False, "prints the conversations of the first pairs and a cost estimate; asks nothing"
    )


def json_option(config: object, key: str) -> dict[str, Any]:
    """A config value that holds a JSON object."""
    value: dict[str, Any] = json.loads(checks.dotted(config, key))
    return value
