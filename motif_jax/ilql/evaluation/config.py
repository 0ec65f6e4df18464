"""The configs of stages in which an agent of text speaks."""

from __future__ import annotations

from motif_jax.core import sections
from motif_jax.ilql.agent.config import Decode
from motif_jax.ilql.dialogues.config import TokenRewardSection
from motif_jax.schema import plain_key, section_class, subsection


@section_class
class TextSpeaker:
    """Who speaks in which task, and how."""

    seed: int = sections.SEED
    agent: str | None = plain_key(None, "a run folder of train_text")
    policy: str | None = plain_key(None, "a policy of the task in its place, such as 'optimal'")
    task: str | None = plain_key(None, "task to play; None: the agent's")
    options: str = plain_key("", "options of the task as JSON, over those that the agent was trained with")
    data: str | None = None
    url: str | None = None
    decode: Decode = subsection(Decode)
    token_reward: TokenRewardSection = subsection(TokenRewardSection)
    dtype: str = sections.DTYPE


@section_class
class EvaluatedSpeaker(TextSpeaker):
    """Who is evaluated, in which task or on which dialogues."""

    agent: str | None = plain_key(
        None,
        "a run of train_text; or the Hugging Face folder of a decoder whose tokenizer has the delimiters, such as export_text_agent writes: a "
        "policy without values, which needs config.task and decode.max_tokens",
    )
    policy: str | None = plain_key(
        None, "plays in the agent's place, such as 'optimal'; with an agent, in its task"
    )
    task: str | None = plain_key(
        None, "task to play: a text task or module:Class (docs/ilql.md); None: the agent's"
    )
    options: str = plain_key(
        "", 'options of the task as JSON, {"num_words": 100}; over those that the agent was trained with'
    )
    data: str | None = plain_key(
        None,
        "evaluates these recorded dialogues instead of playing (.jsonl, .parquet or a folder with one); None: plays, or, for the task "
        "`dialogues` without an environment, takes those that the training held out",
    )
    url: str | None = plain_key(
        None, "address of the task's server, in place of that of options; may change on resuming"
    )
