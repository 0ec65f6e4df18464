"""Plays seeded episodes of a text task by an agent of train_text, or by a policy of the task, and writes what they reached.

    python -m motif_jax.launch --config=configs/evaluate_text.py:wordle --workdir=runs/eval --config.agent=runs/ilql
    python -m motif_jax.launch --config=configs/evaluate_text.py:wordle --workdir=runs/eval_expert --config.agent=runs/ilql \\
        --config.policy=optimal

Out come episodes.jsonl (one line an episode, also the resume point), episodes.parquet, dialogues.parquet (what was said, as collect_text
writes it), evaluation.json (means, medians, interquartile means with confidence intervals), table.md, and tokens.html (the first games
token by token). Stopped at any moment and started again, it loses at most the episodes in flight. 1,024 games of Wordle by a network of
the quick run's size take about 10 seconds on 2 cores.

Variants: wordle, visdial, reddit: the published way to decode for that task (weights 16, 16, 8); babyai_text; TASK_utterance and TASK_chai
(of 4 and of 5 samples the one with the best value, for agents of those methods); smoke (8 episodes).
"""

from __future__ import annotations

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from motif_jax.support import decode_config
from motif_jax.support.config import unknown_variant

TASKS = ("wordle", "visdial", "reddit", "babyai_text")
# Of methods whose values are of whole actions: samples between which they decide.
CANDIDATES = {"utterance": 4, "chai": 5}
VARIANTS = ("", "smoke", *TASKS, *(f"{task}_{method}" for task in TASKS for method in CANDIDATES))


def get_config(variant: str | None = None) -> ConfigDict:
    if (variant or "") not in VARIANTS:
        raise unknown_variant(variant, VARIANTS)
    config = ConfigDict()
    config.stage = "evaluate_text"
    config.seed = 0  # of the episodes; equal seeds play equal episodes
    # A run folder of train_text; or the Hugging Face folder of a decoder whose tokenizer has the delimiters, such as export_text_agent
    # writes: a policy without values, which needs config.task and decode.max_tokens.
    config.agent = placeholder(str)
    # A policy of the task in the agent's place, such as 'optimal'; with an agent, it plays in the agent's task.
    config.policy = placeholder(str)
    config.task = placeholder(str)  # None: the agent's; a text task or module:Class (docs/ilql.md)
    # Of the task as JSON, {"num_words": 100}; over those that the agent was trained with.
    config.options = ""
    # Recorded dialogues to look at in place of playing (.jsonl, .parquet or a folder with one); None: of an agent of the task `dialogues`
    # without an environment those that its training held out.
    config.data = placeholder(str)
    # Address of the server that the task talks with, such as http://127.0.0.1:5000; over that of the options, and another may go on.
    config.url = placeholder(str)
    config.episodes = 1024
    config.lanes = 1024  # played at a time, in one program
    config.threads = 1  # environments that answer at a time; more for those that wait for a server
    # How actions are written: kind (sample, greedy, beam, rerank), max_tokens, width, batches, temperature, top_k, top_p, advantage_weight,
    # advantage_clip, advantage_form, logits, advantages, ...: each with its comment in motif_jax/support/decode_config.py.
    config.decode = decode_config.defaults()
    # What every token of an action is paid in the token return: a constant; or by a JSON file {token: value}, times scale plus shift.
    config.token_reward = ConfigDict({"constant": 0.0, "file": placeholder(str), "scale": 1.0, "shift": 0.0})
    config.show = 8  # episodes on the page token by token
    config.resamples = 2000  # of the bootstrap
    config.confidence = 0.95  # of the intervals
    config.published_log = False  # writes eval_log.pkl as the published evaluations do
    config.dtype = "float32"  # of the computation: 'bfloat16'
    task = next((task for task in TASKS if (variant or "").startswith(task)), variant)
    method = (variant or "").removeprefix(task or "").removeprefix("_")
    if task in TASKS:
        config.task = task
    if task == "wordle":
        config.decode.update({"kind": "greedy", "max_tokens": 6, "advantage_clip": 0.0})
    elif task == "visdial":
        config.decode.max_tokens = 40
    elif task == "reddit":
        config.decode.max_tokens, config.decode.advantage_weight = 256, 8.0
    elif task == "smoke":
        config.episodes, config.lanes, config.show, config.resamples = 8, 8, 2, 100
    if method:
        config.decode.update({"kind": "rerank", "width": CANDIDATES[method]})
    return config
