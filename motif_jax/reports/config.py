"""The config of a run's page; that of studies is in `study_config`."""

from __future__ import annotations

from motif_jax.core import sections
from motif_jax.rl.reward_keys import ThresholdedReward
from motif_jax.schema import plain_key, section_class, subsection


@section_class
class ReportedReward(ThresholdedReward):
    """The reward of a page."""

    dir: str | None = plain_key(None, "run folder of train_reward")


@section_class
class ReportedAgent:
    """The agent of a page."""

    dir: str | None = plain_key(None, "run folder of train_agent")


@section_class
class ReportedLanguageModel:
    """The language model of a page."""

    dir: str | None = plain_key(None, "run folder of pretrain_language_model")


@section_class
class ReportedTextAgent:
    """The agent that writes of a page."""

    dir: str | None = plain_key(None, "run folder of train_text")


@section_class
class ReportConfig:
    """The page of a run."""

    seed: int = sections.SEED
    title: str = plain_key("Motif: a run", "title of the page")
    dataset_dir: str | None = plain_key(
        None, "folder of a pairs dataset, or of several with commas between"
    )
    reward: ReportedReward = subsection(ReportedReward)
    agent: ReportedAgent = subsection(ReportedAgent)
    language: ReportedLanguageModel = subsection(ReportedLanguageModel)
    text: ReportedTextAgent = subsection(ReportedTextAgent)
    evaluations: str = plain_key(
        "", "folders of evaluations with commas between, the agent's first"
    )
    tests: str = plain_key("", "folders of test_language_agent, with commas between")
    yardsticks: str = plain_key("", "further evaluations to show; first_must_lead ignores them")
    measures: str = plain_key(
        "",
        "'+kills,-deaths': numbers of the episodes that are progress beside success and return, with the direction that is better; empty: "
        "those of NetHack and minigrid, and none of gymnasium's environments, whose `info` may count anything",
    )
    first_must_lead: bool = plain_key(
        False,
        "exit code 1 unless the first evaluation is better than all others. BabyAI-Text: the interval of each paired difference of success (to "
        "its own earlier checkpoint: of return) lies above 0. Text tasks: the interval of its mean return lies above the others'",
    )
    lead: float = plain_key(
        0.0,
        "with first_must_lead, BabyAI-Text: its success must exceed that of play that does not read (random, fixed shares, exchanged "
        "prompts) by this much, with intervals apart",
        minimum=0,
        below=1,
    )
    replays: str = plain_key(
        "", "folders of `visualize` of the training's recorded games, with commas between"
    )
    plots: bool = plain_key(True, "PNG and PDF files beside the page")
