"""A run that learned its reward is a reward like any other, at any of its checkpoints."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motif_jax import rewards
from motif_jax.envs import registry
from motif_jax.reports import learned_reward, messages
from motif_jax.reports.messages import MessageTally
from motif_jax.reports.page import render
from motif_jax.rewards.reward_function import as_rows
from motif_jax.rollouts import evaluation_setup
from motif_jax.sections.agents import AgentReward
from motif_jax.stages import check_reward, explain_reward, exports, report
from motif_jax.support import metric_files
from motif_jax.support.errors import UserError
from tests.made_up_runs import evaluation_rows, write_evaluation
from tests.reward_fixtures import load_config, run_config, run_stage
from tests.rl import oni_runs
from tests.rl.oni_runs import oni_config
from tests.rl.runs import train

pytestmark = pytest.mark.usefixtures("compiled_quickly")
TEXTS = [*(f"the cue is {cue}" for cue in range(4)), "which cue?", "", "never met"]
TRAINING = {"batch_size": 8, "learning_rate": 1e-2}
SEVERAL = {**TRAINING, "members": 2, "deviations": 0.5}
KINDS: dict[str, dict[str, Any]] = {
    "retrieval": {"value": "probability"},
    "classification": {"encoder": "lt_cnn_small", "classifier": {"threshold": 0.3}, "training": SEVERAL},
    "ranking": {"encoder": "lt_cnn_small", "training": TRAINING},
}


def agrees(run: Path, told: learned_reward.LabelLogReport) -> None:
    """check_reward names the texts of which the reward says something else than the annotator, and ends with an error."""
    workdir, played = run.parent / f"{run.name}-check", run.parent / f"{run.name}-games"
    config = load_config("check_reward", "", {"reward.dir": str(run), "evaluation": str(played)})
    games = evaluation_rows(3, 0.0, 1)
    for row in games:
        row["messages"] = messages.pack([MessageTally("the cue is 8", 4), MessageTally("the cue is 9", 2)])
    write_evaluation(played, "agent", games)
    run_config(config, workdir)
    found = json.loads((workdir / check_reward.SUMMARY).read_text())
    wrong, often = {text.text for text in learned_reward.disagreements(told)}, found["met_often"]
    assert (set(often["against"]), often["messages"]) == (wrong, len(TEXTS) - 1)
    assert often["share"]["value"] == pytest.approx(1 - len(wrong) / (len(TEXTS) - 1))
    assert found["never_labelled"]["messages"] == 2
    if told.kind == "retrieval":  # what has no label is not a yes
        assert found["never_labelled"]["against"] == ["the cue is 8"]
    config.minimum, config.least_met = 0.5, 10**6
    said = r"config\.minimum=0\.5: the reward agrees with its annotator on none"
    with pytest.raises(UserError, match=said):
        check_reward.run(config, workdir)


def goes_through_a_file(run: Path, first: int, spec: Any) -> None:
    """Of each checkpoint a file pays what the run folder pays, in Python and as the reward of another training."""
    for step in (None, first):
        workdir = run.parent / f"{run.name}-file-{step}"
        run_stage("export_reward", workdir, "", **{"reward.dir": str(run), "reward.step": step})
        file = workdir / exports.REWARD
        assert "learned while the agent played" in (workdir / exports.CARD).read_text()
        there, here = rewards.load(run, step), rewards.load(file)
        assert here.trained.step == there.trained.step
        np.testing.assert_array_equal(here.raw(TEXTS), there.raw(TEXTS))
        for quantile in (0.5, None):
            said = there.intrinsic(TEXTS, quantile=quantile)
            np.testing.assert_array_equal(here.intrinsic(TEXTS, quantile=quantile), said)
        section = {"kind": "motif", "dir": str(file), "step": None, "normalise": True, "quantile": 0.5}
        other = rewards.load_intrinsic(AgentReward(**section), spec)
        assert other is not None
        assert other.description.startswith(f"{file}, checkpoint {there.trained.step}, ")
        assert "quantile" not in other.description
        other.start()
        np.testing.assert_array_equal(other.lookup(as_rows(TEXTS)[0]).values, there.intrinsic(TEXTS))
    with pytest.raises(UserError, match=r"one that was learned online is used as the file"):
        run_stage("import_reward", workdir / "imported", "", file=str(file))
    file.write_bytes(file.read_bytes().replace(b"taken", b"token"))
    with pytest.raises(UserError, match="is damaged"):
        rewards.load(file)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    ["ranking", *(pytest.param(kind, marks=pytest.mark.extra) for kind in ("retrieval", "classification"))],
)
def test_it_pays_what_it_paid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    oni_runs.answer(monkeypatch)
    config = oni_config(kind, save_every_steps=200).unlock()
    config.reward.update(KINDS[kind])
    run = train(tmp_path, config.lock())
    assert run.system is not None
    assert run.system.reward is not None
    spec, rows = registry.spec("Recall-v0"), as_rows(TEXTS)[0]
    section = {"kind": "motif", "dir": str(tmp_path), "step": None, "normalise": True, "quantile": 0.5}
    later = rewards.load_intrinsic(AgentReward(**section), spec)
    assert later is not None
    later.start()
    paid = later.lookup(rows).values
    np.testing.assert_array_equal(paid, run.system.reward.lookup(rows).values)
    assert paid.any()
    loaded = rewards.load(tmp_path)
    assert np.isfinite(loaded(TEXTS)).all()
    np.testing.assert_array_equal(loaded.intrinsic(TEXTS), paid)
    first = sorted(int(path.name) for path in (tmp_path / "checkpoints").iterdir() if path.name.isdigit())[0]
    early = rewards.load(tmp_path, first).trained
    assert early.step == first
    assert sum(early.met.values()) < sum(loaded.trained.met.values())  # type: ignore[attr-defined]
    with pytest.raises(UserError, match=f"has no checkpoint 7: it has {first} to"):
        rewards.load(tmp_path, 7)

    goes_through_a_file(tmp_path, first, spec)

    told = report.learned(tmp_path)
    assert told is not None
    assert told.checkpoints[-1] == loaded.trained.step
    now = {text.text: text.values[-1] for text in told.texts}
    shown = [text for text in TEXTS if text in now]
    np.testing.assert_allclose([now[text] for text in shown], paid[[TEXTS.index(text) for text in shown]])
    assert {text.text for text in told.texts if text.earned} >= {t for t, v in now.items() if v and t}
    if kind == "ranking":
        assert told.counts["first"].y[-1] + told.counts["second"].y[-1] + told.counts["tie"].y[-1] > 0
    else:
        assert {text.text: text.label for text in told.texts if text.label} == {
            text: ("no", "yes")[oni_runs.verdict((text,))] for text in TEXTS[:-1]
        }
    if kind == "classification":
        probability = loaded.raw([text.text for text in told.texts])
        each = zip(told.texts, probability, strict=True)
        wrong = [text for text, p in each if text.label and (p > 0.3) != (text.label == "yes")]
        assert {text.text for text in learned_reward.disagreements(told)} == {text.text for text in wrong}
    # All that was paid, by the text's count in its episode: what the episodes say and what those that continue have so far.
    returns = metric_files.read_episodes(tmp_path)["intrinsic_return"].y.sum()
    assert sum(text.earned for text in told.texts) >= returns > 0 or kind == "ranking"
    section_ = learned_reward.section(told, metric_files.read_metrics(tmp_path))
    assert section_ is not None
    page_ = render("a run", "", [section_])
    for part in ("which cue?", 'id="learned-earned"'):
        assert part in page_
    assert learned_reward.section(None, {}) is None

    if kind != "ranking":
        agrees(tmp_path, told)
    # Without a dataset it is explained by the messages that the run has met.
    page = tmp_path.parent / f"{tmp_path.name}-explained"
    run_stage("explain_reward", page, "", **{"reward.dir": str(tmp_path), "text": "the cue is 2"})
    found = json.loads((page / "summary.json").read_text())
    assert found["messages"] == len(TEXTS) - 1
    assert found["steps"] == sum(loaded.trained.met.values()) > 0  # type: ignore[attr-defined]
    [told_of] = found["rewards"]
    assert told_of["paying_messages"] == np.count_nonzero(paid[:-1])
    with open(page / explain_reward.TABLE, encoding="utf-8") as file:
        table = {row["message"]: float(row["paid"]) for row in csv.DictReader(file)}
    np.testing.assert_allclose([table[text] for text in TEXTS[:-1]], paid[:-1], rtol=1e-6)

    who = evaluation_setup.open_setup(evaluation_setup.of_folder(tmp_path))
    assert who.rater is not None
    assert who.reward is not None
    assert (who.reward.section.dir, who.reward.section.step) == (str(tmp_path), who.checkpoint)
    # Whoever plays, it is rated as at that checkpoint; before the first update there was no reward yet, and the newest one counts.
    for checkpoint, rated_at in ((str(first), first), ("latest", who.checkpoint), ("0", who.checkpoint)):
        asked = evaluation_setup.of_folder(tmp_path, checkpoint)
        for policy in ("agent", "random"):
            again = evaluation_setup.open_setup(dataclasses.replace(asked, policy=policy))
            assert again.reward is not None
            assert again.reward.section.step == rated_at
    assert who.live_rater() is not None
