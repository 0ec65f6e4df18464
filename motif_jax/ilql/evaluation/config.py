"""The configs of stages in which an agent of text speaks."""

from __future__ import annotations

from motif_jax.core import sections
from motif_jax.schema import plain_key, section_class, subsection


@section_class
class TextSpeaker:
    """An agent or a policy, the task that it plays, and how it writes."""

    seed: int = sections.SEED
    agent: str | None = key(None, "run folder of train_text whose agent plays")
    policy: str | None = key(None, "policy of the task that plays in place of an agent, such as 'optimal'")
    task: str | None = key(None, "task that is played; None: the agent's")
    options: str = key("", "options of the task as JSON, over those that the agent was trained with")
    data: str | None = None
    url: str | None = None
    decode: sections.Decode = subsection(sections.Decode)
    token_reward: sections.TokenReward = subsection(sections.TokenReward)
    dtype: str = sections.DTYPE


@section_class
class EvaluatedSpeaker(TextSpeaker):
    """An agent or a policy, and the task or the dialogues on which it is evaluated."""

    agent: str | None = plain_key(
        None,
        "run folder of train_text; or the Hugging Face folder of a decoder whose tokenizer has the delimiters, such as export_text_agent writes: a "
        "policy without values, which needs config.task and decode.max_tokens",
    )
    policy: str | None = key(
        None,
        "policy of the task that plays in the agent's place, such as 'optimal'; with an agent, in its task",
    )
    task: str | None = key(None, "text task or module:Class (docs/ilql.md); None: the agent's")
    options: str = key(
        "", 'options of the task as JSON, {"num_words": 100}; over those that the agent was trained with'
    )
    options: str = plain_key(
        "", 'options of the task as JSON, {"num_words": 100}; over those that the agent was trained with'
    )
    data: str | None = plain_key(
        None,
        "recorded dialogues to evaluate instead of playing (.jsonl, .parquet or a folder with one); None: plays, or, for the task "
        "`dialogues` without an environment, takes those that the training held out",
    )
    url: str | None = key(
        None, "address of the task's server, in place of that in options; may change on resuming"
    )
