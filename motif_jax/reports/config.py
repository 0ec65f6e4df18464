"""The configs of a run's page and of comparisons; that of studies is in `study_config`."""

from __future__ import annotations

from motif_jax.core import sections
from motif_jax.motif.annotation.config import LexiconFile
from motif_jax.play.keys import RESAMPLES
from motif_jax.rl.reward_keys import ThresholdedReward
from motif_jax.schema import plain_key, positive, section_class, subsection


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
        "", "folders of `replay` of the training's recorded games, with commas between"
    )
    max_messages: int = positive(
        5000, "number of messages in the page's list, the most frequent of the dataset first"
    )
    plots: bool = plain_key(True, "PNG and PDF files beside the page")


@section_class
class ComparedLexicon(LexiconFile):
    """The lexicon that counts events of messages."""

    file: str = plain_key("", "a lexicon whose events count as fights; empty: the built-in one")


@section_class
class CompareConfig:
    """A comparison of methods."""

    seed: int = plain_key(0, "seed of the bootstrap", minimum=0, maximum=2**32 - 1)
    title: str = plain_key("Comparison of methods", "title of the page")
    methods: str = plain_key(
        "", "methods and the run folders of each: 'name=folder,folder; name=folder,...'"
    )
    measure: str = plain_key(
        "return", "key of the episodes: return, score, dlvl, intrinsic_return, ..."
    )
    normalise_zero: str | None = plain_key(None, "method whose mean becomes 0 on every task")
    normalise_one: str | None = plain_key(None, "method whose mean becomes 1 on every task")
    published: str | None = plain_key(None, "file motif_results.pkl of published results")
    published_tasks: str = plain_key(
        "", "'theirs=ours, ...' for names that differ; the others are matched by name"
    )
    published_task: str | None = plain_key(
        None,
        "the task of published results in methods: folders with a log.csv and .npy files of returns (GLAM's tool), and logs (.pkl) of ILQL's "
        "evaluations",
    )
    claims: str = plain_key(
        "",
        "'A > B: measure; A > B + 0.3: measure; A > B - 0.1: measure' of methods with one evaluation each: the 95 % interval of the difference, "
        "game by game, must lie above 0, 0.3 or -0.1",
    )
    measures: str = plain_key(
        "",
        "further measures, with commas between: numbers of an episode (docs/evaluation.md), also those that only the "
        "task reports; 'deaths'; counts of messages: 'fights' (the hero's own attacks), 'finds' (gold picked up); 'gathered': gold pieces, "
        "without those of vaults (one vault has more than hundreds of games)",
    )
    lexicon: ComparedLexicon = subsection(ComparedLexicon)
    efficiency_steps: int | None = positive(
        None,
        "sample efficiency is the mean of a curve up to here; None: the end of a task's shortest run",
    )
    resamples: int = RESAMPLES
    plots: bool = plain_key(True, "PNG and PDF files beside the page")
