"""Measures how often a reward that was learned online agrees with its annotator about a message."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import run_folder, text_bytes
from motif_jax.core.files import atomic_write_json
from motif_jax.core.verdicts import SINGLE, YES
from motif_jax.display.statistics import Estimate, wilson
from motif_jax.motif.reward.reward_function import open_reward
from motif_jax.oni import label_service
from motif_jax.oni.config import Budget, CheckRewardConfig
from motif_jax.oni.label_service import LabelService
from motif_jax.oni.network_reward import WIDTH
from motif_jax.oni.online_model import is_online_run
from motif_jax.play import evaluation_files
from motif_jax.play.messages import message_of
from motif_jax.rl.config import agent_config
from motif_jax.schema import read_section

SUMMARY = "agreement.json"
# Kinds that say yes or no to a message.
_KINDS = ("classification", "retrieval")
# Messages that the training saw less often are left out: the reward has hardly learned from them.
LEAST_MET = 3
# How long the annotator's answers are waited for. Those that came are kept, so that the same
# command asks the rest.
WAIT_SECONDS = 600.0
# Messages without agreement that the terminal names.
_EXAMPLES = 10


def check(config_tree: ConfigDict, workdir: Path) -> None:
    """Raises UserError unless the run's reward says yes or no to a message."""
    run_folder.check_identity(workdir, config_tree)
    config = read_section(CheckRewardConfig, config_tree)
    folder = checks.existing_folder(config, "reward.dir")
    run = run_folder.read_config(folder)
    can_be_checked = is_online_run(run) and run["reward"]["kind"] in _KINDS
    allowed = f"a run of configs/oni.py of kind {' or '.join(_KINDS)}"
    checks.require_key(config, "reward.dir", can_be_checked, allowed)


class JudgeAgreement(NamedTuple):
    """How often a reward and its annotator agree (None without a message), and on which messages
    they differ.
    """

    share: Estimate | None
    messages: int
    against: list[str]


def run(config_tree: ConfigDict, workdir: Path) -> int | None:
    """Compares and writes agreement.json; returns 1 where reward and annotator agree on a smaller
    share of the first set than `config.minimum`.

    Two sets of messages are compared: those that the agent often saw and the reward was trained on,
    and those that were never labelled, of which the annotator is asked now.
    """
    config = read_section(CheckRewardConfig, config_tree)
    folder = Path(config.reward.dir or "")
    with run_folder.opened(workdir, config_tree):
        reward: Any = open_reward(folder, config.reward.step)

        labels = {text: label for text, (label, _) in reward.labels.items()}
        # Only texts with a label, which the reward has learned from.
        frequent = {
            text: count
            for text, count in reward.step_counts.items()
            if count >= LEAST_MET and text in labels
        }
        frequent_agreement = compare(frequent, labels, _verdicts(reward, list(frequent)))

        unlabelled = _never_labelled(config, reward)
        answers = _ask(folder, list(unlabelled))
        answered = {text: unlabelled[text] for text in answers}
        new_agreement = compare(answered, answers, _verdicts(reward, list(answers)))

        summary = {
            "step": reward.step,
            "least_met": LEAST_MET,
            "met_often": _as_json(frequent_agreement),
            "never_labelled": {**_as_json(new_agreement), "asked": len(unlabelled)},
        }
        atomic_write_json(workdir / SUMMARY, summary)
        print(
            agreement_line(frequent_agreement, f"labelled messages seen at least {LEAST_MET} times")
        )
        source = "" if config.evaluation else " (of the run itself)"
        print(
            agreement_line(
                new_agreement, f"messages that were never labelled{source}", len(unlabelled)
            )
        )

    share = frequent_agreement.share
    if config.minimum is not None and (share is None or share.value < config.minimum):
        value = "none" if share is None else f"{share.value:.1%}"
        print(
            f"minimum: the reward agrees with its annotator on {value} of the {frequent_agreement.messages:,} messages seen "
            f"at least {LEAST_MET} times, less than {config.minimum:.1%}; {workdir / SUMMARY} names those where it does not",
            file=sys.stderr,
        )
        return 1
    return None


def _as_json(agreement: JudgeAgreement) -> dict[str, Any]:
    share = None if agreement.share is None else agreement.share.__dict__
    return {**agreement._asdict(), "share": share}


def _verdicts(reward: Any, texts: Sequence[str]) -> dict[str, bool]:
    """Whether the reward says yes to each text."""
    if not texts:
        return {}
    config = reward.config["reward"]
    # Retrieval pays labels, 0 and 1, or probabilities.
    threshold = config["classifier"]["threshold"] if config["kind"] == "classification" else 0.5
    rewards = reward.of_messages(reward.params, text_bytes.padded_rows(texts, WIDTH))
    is_yes = rewards > np.float32(threshold)
    return dict(zip(texts, is_yes.tolist(), strict=True))


def compare(
    step_counts: Mapping[str, int], labels: Mapping[str, int], verdicts: Mapping[str, bool]
) -> JudgeAgreement:
    """The agreement on the texts of `step_counts` (text -> steps that showed it), with those
    against it most frequent first.
    """
    against = [text for text in step_counts if verdicts[text] != (labels[text] == YES)]
    against.sort(key=lambda text: (-step_counts[text], text))
    share = wilson(1 - len(against) / len(step_counts), len(step_counts)) if step_counts else None
    return JudgeAgreement(share, len(step_counts), against)


def _never_labelled(config: CheckRewardConfig, reward: Any) -> dict[str, int]:
    """Messages of the run, and of the evaluation, without a label in the log: text -> steps, the
    most frequent.
    """
    step_counts = Counter(reward.step_counts)
    if config.evaluation:
        for tally in evaluation_files.read_messages(config.evaluation):
            step_counts[message_of(tally.text)] += tally.count
    unlabelled = [text for text in step_counts if text not in reward.labels]
    unlabelled.sort(key=lambda text: (-step_counts[text], text))
    return {text: step_counts[text] for text in unlabelled[: config.questions]}


def _ask(folder: Path, texts: Sequence[str]) -> dict[str, int]:
    """Labels of the texts by the annotator of the run in `folder`, as far as it answers within
    `WAIT_SECONDS`.
    """
    if not texts:
        return {}
    run = agent_config(run_folder.read_config(folder))
    # The run's own limits were for its training.
    queue = dataclasses.replace(run.queue, budget=Budget(), size=max(run.queue.size, len(texts)))
    # So that answers of the store count, which the published system has none of.
    compat = dataclasses.replace(run.compat, oni_requeue=False)
    run = dataclasses.replace(run, queue=queue, compat=compat)
    service = LabelService(label_service.in_run(run, folder), SINGLE)
    answers: dict[str, int] = {}
    try:
        service.start()
        service.enqueue([(text,) for text in texts], [1] * len(texts), None, 0)
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            # Read before the labels are taken: an answer that comes meanwhile still counts as
            # waited for.
            figures = service.metrics()
            labels = service.poll()
            for label in labels:
                answers[label.items[0]] = label.label
            is_waiting = figures["annotator/queued"] or figures["annotator/in_flight"]
            if len(answers) == len(texts) or not (labels or is_waiting):
                break
            time.sleep(0.0 if labels else 0.05)
    finally:
        service.close()
    return answers


def agreement_line(agreement: JudgeAgreement, messages: str, num_questions: int = 0) -> str:
    """The agreement in words.

    Args:
      messages: which messages were compared, in words.
      num_questions: messages that the judge was asked about now.
    """
    unanswered = num_questions - agreement.messages
    without_answer = (
        f"{unanswered:,} of {num_questions:,} were not answered: give the command again"
    )
    if agreement.share is None:
        return (
            f"none of the {messages} has an answer: {without_answer}"
            if unanswered > 0
            else f"no {messages}"
        )
    share = agreement.share
    line = (
        f"reward and annotator agree on {share.value:.1%} ({share.low:.1%} to {share.high:.1%}) of the "
        f"{agreement.messages:,} {messages}"
    )
    if agreement.against:
        line += "; not on " + "; ".join(repr(text) for text in agreement.against[:_EXAMPLES])
    if len(agreement.against) > _EXAMPLES:
        line += ", …"
    if unanswered > 0:
        line += f"; {without_answer}"
    return line
