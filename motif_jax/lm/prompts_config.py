"""The configs of commands that ask a language model about a file of prompts."""

from __future__ import annotations

from motif_jax.core import sections
from motif_jax.schema import (
    length_key,
    non_negative,
    one_of,
    plain_key,
    positive,
    section_class,
    subsection,
)


@section_class
class PromptedTextsConfig:
    """A model, its prompts, and how they are written."""

    seed: int = sections.SEED
    model: str | None = plain_key(None, "folder of a checkpoint, or its name on the hub")
    file: str | None = plain_key(None, "prompts, .jsonl or one a line")
    chat: str = one_of(
        ("auto", "always", "never"),
        "whether prompts are turns by the model's own chat template, a plain text the user's: 'auto': where the model has one; 'always'; 'never': "
        "plain text, as it is",
    )
    batch: int = positive(32, "prompts at a time")
    dtype: str = sections.DTYPE

    @property
    def model_name(self) -> str:
        """The name of the model; '' without one, which the commands refuse."""
        return self.model or ""


@section_class
class ScoreTextConfig(PromptedTextsConfig):
    """Scores of candidates after prompts."""

    candidates: str = plain_key(
        "", "candidates of all prompts that have none of their own, with | between them"
    )
    by_length: bool = plain_key(False, "divides log-probabilities by the number of tokens")
    page: int = non_negative(0, "prompts that tokens.html shows token by token; 0: no page")


@section_class
class ContinuationSampling:
    """How tokens of continuations are drawn."""

    greedy: bool = plain_key(
        True, "takes the most likely token; the other keys must keep their defaults"
    )
    temperature: float = plain_key(1.0, "temperature of sampling")
    top_k: int = plain_key(0, "tokens that may be drawn; 0: all")
    top_p: float = plain_key(1.0, "probability of the tokens that may be drawn")


@section_class
class GenerateTextConfig(PromptedTextsConfig):
    """Continuations of prompts."""

    max_new_tokens: int = length_key(64, "greatest number of tokens to generate")
    count: int = positive(1, "continuations of each prompt; several are drawn or beams")
    beams: bool = plain_key(False, "searches `count` beams in place of drawing")
    stops: str = plain_key(
        "",
        "texts before which a continuation ends, with | between them; with beams each must be a token of the model",
    )
    sampling: ContinuationSampling = subsection(ContinuationSampling)
