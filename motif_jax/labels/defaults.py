"""Config keys and sections of everything that asks language models (`motif_jax/schema.py`)."""

from __future__ import annotations

from motif_jax.schema import Key, count, fraction, natural, one_of, positive, with_defaults

PROMPT = {
    "version": Key("default", "default, reworded, or that of a prompt file of your own"),
    "file": Key("", "a prompt file of your own"),
}
ANSWER = {
    "mode": one_of(
        ("analysis", "verdict", "soft"),
        "analysis: free text, then the verdict (published). verdict: the verdict alone, by structured output. soft: probabilities of the "
        "verdicts after a prefilled answer",
    ),
    "retry": Key(True, "an answer without a verdict is followed by a request for one"),
    "minimum_mass": fraction(
        0.05, "soft: an answer whose verdicts have less probability together is unknown"
    ),
}
SAMPLING = {
    "temperature": natural(0.1, "of answers"),
    "top_k": Key(50, "tokens that may be drawn; -1: all", least=-1),
    "top_p": Key(0.95, "probability of the tokens that may be drawn", above=0, most=1),
    "max_tokens": count(4096, "of an answer"),
    "seeded": Key(True, "a seed for every question, derived from `seed`; False is a little faster on a GPU"),
}
LEXICON = {
    "file": Key("", "a YAML file, or a built-in one: nethack.yaml (empty), minigrid.yaml, comments.yaml")
}
GOAL = Key("defaultgoal", "defaultgoal, zeroknowledge, combat, gold, stairs, or one of your prompt file")
STORE_DIR = Key("runs/answer_store", "answers of all runs; stored questions are never asked again")
KEEP_CONVERSATIONS = Key(False, "keeps each question with its answer, word for word")
VLLM = {
    "model": Key("", "folder or hub name"),
    "revision": Key(None, "of the model on the hub", str),
    "tokenizer": Key(None, "None: the model's", str),
    "tensor_parallel_size": positive(1, "GPUs that share each layer"),
    "pipeline_parallel_size": positive(1, "groups of GPUs that share the layers"),
    "dtype": Key("auto", "of the weights"),
    "quantization": Key(None, "None: as the model says", str),
    "kv_cache_dtype": Key("auto", "of keys and values"),
    "max_model_len": positive(None, "tokens of a question and its answer; None: vLLM's choice", int),
    "max_num_seqs": positive(None, "questions that are answered at a time; None: vLLM's choice", int),
    "max_num_batched_tokens": positive(None, "of a step; None: vLLM's choice", int),
    "gpu_memory_utilization": Key(0.92, "share of a GPU's memory", above=0, most=1),
    "kv_cache_memory_bytes": positive(None, "None: what the share leaves", int),
    "block_size": positive(None, "None: vLLM's choice", int),
    "enable_prefix_caching": Key(True, "computes what prompts share once"),
    "enforce_eager": Key(False, "no CUDA graphs"),
    "trust_remote_code": Key(False, "runs Python code that the model brings"),
    "download_dir": Key(None, "None: the hub's cache", str),
    "in_flight": positive(
        2000,
        "questions in the engine's queue at most. It is filled up when an eighth of it, or room for 64, is free: keep it above "
        "max_num_seqs by more than that",
    ),
    "engine": Key("{}", "any other option of vLLM's engine as a JSON object, '{\"cpu_offload_gb\": 8}'"),
    "chat_template_kwargs": Key(
        "{}", "of the model's chat template as a JSON object, '{\"enable_thinking\": false}'"
    ),
}
OPENAI = {
    "base_url": Key("http://127.0.0.1:8000/v1", "of any server that speaks the OpenAI protocol"),
    "model": Key("", "the model's name on the server"),
    "revision": Key(None, "of the model, where its name does not say it", str),
    "key_variable": Key("OPENAI_API_KEY", "environment variable that holds the key"),
    "concurrency": positive(64, "requests at a time at most"),
    "prices": {
        "prompt": natural(0.0, "of a million tokens, for the progress line, the summary and the dry run"),
        "completion": natural(0.0, "of a million tokens"),
        "cached": natural(None, "of a prompt that the server remembers; None: the price of a prompt", float),
    },
    "timeout_seconds": positive(600.0, "time limit of a request"),
    "retries": natural(
        6, "times that a failed request is sent again, after 1, 2, 4 ... seconds or when the server says"
    ),
    "structured": one_of(
        ("structured_outputs", "response_format", "none"),
        "for answer.mode=verdict: structured_outputs (vLLM), response_format (OpenAI's JSON schema), or none",
    ),
    "send_top_k": Key(True, "turn it off for a server that does not know the field"),
    "send_seed": Key(True, "turn it off for a server that does not know the field"),
    "extra_body": Key("{}", "further fields of each request as a JSON object"),
}
ANNOTATOR = {
    "kind": Key(
        "lexicon",
        "openai: any server that speaks the protocol (launch/oni.sh starts one of vLLM), asked in the background. lexicon, or module:Class of "
        "your own: answers in the training's process, which waits for it",
    ),
    "goal": GOAL,
    "seed": Key(0, "of answers; runs that share a store find each other's where it is the same"),
    "store_dir": Key(STORE_DIR.default, f"{STORE_DIR.help}; empty: answers/ in the run folder"),
    "keep_conversations": KEEP_CONVERSATIONS,
    "prompt": PROMPT,
    "answer": ANSWER,
    "sampling": with_defaults(SAMPLING, top_k=-1, top_p=1.0),
    "attempts": positive(2, "times that a question is asked at most, until an answer has a verdict"),
    "wait_seconds": natural(600.0, "how long a start waits for a server that does not answer yet"),
    "lexicon": LEXICON,
    # A question that gets no answer is asked again later, so that nothing else has to wait for it.
    "openai": with_defaults(OPENAI, timeout_seconds=120.0),
}
QUEUE = {
    "size": positive(10_000, "questions that wait at most; the last in order are dropped"),
    "order": one_of(
        ("frequent", "newest", "uncertain"),
        "frequent: messages seen at most steps. newest: those seen last (published). uncertain: those that the reward is least sure of",
    ),
    "batch": positive(100, "entries of one call as published; only compat.oni_requeue reads it"),
    "budget": {
        "questions": positive(None, "at most, in all; None: no limit", int),
        "tokens": positive(None, "at most, in all; None: no limit", int),
        "questions_per_million_steps": positive(None, "of the environment; None: no limit", int),
        "tokens_per_million_steps": positive(None, "of the environment; None: no limit", int),
    },
}
