"""A run that learned its reward is a reward like any other, at any of its checkpoints."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ml_collections import ConfigDict

from motif_jax import rewards
from motif_jax.envs import registry
from motif_jax.playing import lineups
from motif_jax.reports import learned_reward
from motif_jax.rewards.label_log import FILE, read_log
from motif_jax.rewards.load import as_rows
from motif_jax.stages import report
from motif_jax.support import curves
from motif_jax.support.errors import UserError
from tests.online import oni_runs
from tests.online.oni_runs import oni_config, train

pytestmark = pytest.mark.usefixtures("compiled_quickly")
TEXTS = [*(f"the cue is {cue}" for cue in range(4)), "which cue?", "", "never met"]
SMALL = {
    "reward__encoder": "lt_cnn_small",
    "reward__training__batch_size": 8,
    "reward__training__learning_rate": 1e-2,
}
KINDS: dict[str, dict[str, Any]] = {
    "retrieval": {"reward__value": "probability"},
    "classification": {
        **SMALL,
        "reward__classifier__threshold": 0.3,
        "reward__training__members": 2,
        "reward__training__deviations": 0.5,
    },
    "ranking": SMALL,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_it_pays_what_it_paid_and_rates_its_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    oni_runs.answer(monkeypatch)
    run = train(tmp_path, oni_config(kind, save_every_steps=200, **KINDS[kind]))
    assert run.system is not None
    assert run.system.reward is not None
    spec, rows = registry.spec("Recall-v0"), as_rows(TEXTS)[0]
    section = {"kind": "motif", "dir": str(tmp_path), "step": None, "normalise": True, "quantile": 0.5}
    later = rewards.load_intrinsic(ConfigDict(section), spec)
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
    assert len(early.labels) < sum(1 for _ in read_log(tmp_path / FILE))  # type: ignore[attr-defined]
    with pytest.raises(UserError, match=f"has no checkpoint 7: it has {first} to"):
        rewards.load(tmp_path, 7)

    told = report.learned(tmp_path)
    assert told is not None
    assert told.checkpoints[-1] == loaded.trained.step
    now = {text.text: text.values[-1] for text in told.texts}
    shown = [text for text in TEXTS if text in now]
    np.testing.assert_allclose([now[text] for text in shown], paid[[TEXTS.index(text) for text in shown]])
    assert {text.text for text in told.texts if text.paid is not None} >= {
        t for t, v in now.items() if v and t
    }
    if kind == "ranking":
        assert told.counts["first"].y[-1] + told.counts["second"].y[-1] + told.counts["tie"].y[-1] > 0
    else:
        assert {text.text: text.label for text in told.texts if text.label} == {
            text: ("no", "yes")[oni_runs.verdict((text,))] for text in TEXTS[:-1]
        }
    if kind == "classification":
        probability = loaded.raw([text.text for text in told.texts])
        wrong = {
            text.text
            for text, p in zip(told.texts, probability, strict=True)
            if text.label and (p > 0.3) != (text.label == "yes")
        }
        assert {text.text for text in learned_reward.disagreements(told)} == wrong
    page = learned_reward.section(told, curves.read_metrics(tmp_path))
    assert "which cue?" in page
    assert learned_reward.section(None, {}) == ""

    path = Path(__file__).parents[2] / "configs" / "evaluate.py"
    config = runpy.run_path(str(path))["get_config"]("smoke")
    config.policy, config.agent.dir = "agent", str(tmp_path)
    who = lineups.open_lineup(config)
    assert who.rater is not None
    assert who.reward is not None
    assert (who.reward.dir, who.reward.step) == (str(tmp_path), who.checkpoint)
    assert who.live_rater() is not None
