"""Measures how often a reward that was learned online agrees with its annotator about a message."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import run_folder
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json
from motif_jax.core.verdicts import SINGLE, YES
from motif_jax.display.statistics import Estimate, wilson
from motif_jax.motif.reward.reward_function import as_rows, open_reward
from motif_jax.oni import label_config as online
from motif_jax.oni.config import Budget
from motif_jax.oni.label_service import LabelService
from motif_jax.oni.online_model import is_online_run
from motif_jax.play import evaluation_files
from motif_jax.play.messages import message_of
from motif_jax.rl.config import agent_config

SUMMARY = "agreement.json"
# Kinds that say yes or no to a message.
_KINDS = ("classification", "retrieval")
_SHOWN = 10


def check(config: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, config)
    folder = checks.existing_folder(config, "reward.dir")
    run = run_folder.read_config(folder)
    good = is_online_run(run) and run["reward"]["kind"] in _KINDS
    allowed = f"a run of configs/oni.py of kind {' or '.join(_KINDS)}"
    checks.require_key(config, "reward.dir", good, allowed)
    if config.evaluation:
        checks.existing_folder(config, "evaluation")


class JudgeAgreement(NamedTuple):
    """How often a reward and its annotator agree (None without a message), and on which messages they differ."""

    share: Estimate | None
    messages: int
    against: list[str]


def run(config: ConfigDict, workdir: Path) -> None:
    """Compares and writes agreement.json; UserError if they agree on a smaller share of frequent messages than `config.minimum`."""
    with run_folder.opened(workdir, config):
        reward: Any = open_reward(config.reward.dir, config.reward.step)
        frequent = (text for text, count in reward.met.items() if count >= config.least_met)
        often = {text: reward.met[text] for text in frequent if text in reward.labels}
        labels = {text: label for text, (label, _) in reward.labels.items()}
        known = compare(often, labels, _verdicts(reward, list(often)))
        never = _never_labelled(config, reward)
        answers = _ask(Path(config.reward.dir), list(never), config.wait_seconds)
        new = compare({text: never[text] for text in answers}, answers, _verdicts(reward, list(answers)))
        parts = {
            name: {**part._asdict(), "share": None if part.share is None else part.share.__dict__}
            for name, part in (("met_often", known), ("never_labelled", new))
        }
        atomic_write_json(workdir / SUMMARY, {"step": reward.step, "least_met": config.least_met, **parts})
        print(_said(known, f"labelled messages seen at least {config.least_met} times"))
        of = "" if config.evaluation else " (of the run itself)"
        print(_said(new, f"messages that were never labelled{of}"))
    if config.minimum is not None and (known.share is None or known.share.value < config.minimum):
        value = "none" if known.share is None else f"{known.share.value:.1%}"
        raise UserError(
            f"config.minimum={config.minimum:g}: the reward agrees with its annotator on {value} of the {known.messages:,} "
            f"messages seen at least {config.least_met} times; {workdir / SUMMARY} names those where it does not"
        )


def _verdicts(reward: Any, texts: Sequence[str]) -> dict[str, bool]:
    if not texts:
        return {}
    run = reward.config["reward"]
    threshold = run["classifier"]["threshold"] if run["kind"] == "classification" else 0.5
    said = reward.of_messages(reward.params, as_rows(list(texts))[0]) > np.float32(threshold)
    return dict(zip(texts, said.tolist(), strict=True))


def compare(
    met: Mapping[str, int], labels: Mapping[str, int], verdicts: Mapping[str, bool]
) -> JudgeAgreement:
    wrong = [text for text in met if verdicts[text] != (labels[text] == YES)]
    wrong.sort(key=lambda text: (-met[text], text))
    share = wilson(1 - len(wrong) / len(met), len(met)) if met else None
    return JudgeAgreement(share, len(met), wrong)


def _never_labelled(config: ConfigDict, reward: Any) -> dict[str, int]:
    """Messages of the run, and of the evaluation, without a label in the log: text -> steps, the most frequent."""
    met = Counter(reward.met)
    for tally in evaluation_files.read_messages(config.evaluation) if config.evaluation else ():
        met[message_of(tally.text)] += tally.count
    new = [(text, count) for text, count in met.items() if text not in reward.labels]
    return dict(sorted(new, key=lambda one: (-one[1], one[0]))[: config.questions])


def _ask(folder: Path, texts: Sequence[str], seconds: float) -> dict[str, int]:
    if not texts:
        return {}
    run = agent_config(run_folder.read_config(folder))
    queue = dataclasses.replace(run.queue, budget=Budget(), size=max(run.queue.size, len(texts)))
    compat = dataclasses.replace(run.compat, oni_requeue=False)  # answers of the store count
    source = LabelService(online.in_run(dataclasses.replace(run, queue=queue, compat=compat), folder), SINGLE)
    found: dict[str, int] = {}
    try:
        source.start()
        source.enqueue([(text,) for text in texts], [1] * len(texts), None, 0)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            # Before the labels are taken: one that comes meanwhile is still waited for.
            figures = source.metrics()
            labels = source.poll()
            found |= {label.items[0]: label.label for label in labels}
            waits = figures["annotator/queued"] or figures["annotator/in_flight"]
            if len(found) == len(texts) or not (labels or waits):
                break
            time.sleep(0.0 if labels else 0.05)
    finally:
        source.close()
    return found


def _said(agreement: JudgeAgreement, what: str) -> str:
    if agreement.share is None:
        return f"no {what}"
    share, against = agreement.share, agreement.against
    examples = "; ".join(repr(text) for text in against[:_SHOWN])
    line = (
        f"reward and annotator agree on {share.value:.1%} ({share.low:.1%} to {share.high:.1%}) of the "
        f"{agreement.messages:,} {what}"
    )
    return line + (f"; not on {examples}{', …' if len(against) > _SHOWN else ''}" if against else "")
