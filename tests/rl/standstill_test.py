"""A training whose reward pays for one text on every step: what it says of it at its end, and what
its report does.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from motif_jax import rewards
from tests.reward_fixtures import run_stage

TEXTS = ("You see here a key.", "You kill the newt!", "The door opens.", "It's a wall.")
best_text = ""


def always(**step: Any) -> str:
    return best_text


@pytest.mark.extra
def test_a_training_warns_of_a_text_that_pays_each_time(
    trained: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reward = rewards.load(trained)
    values = reward.intrinsic(list(TEXTS), None).tolist()
    monkeypatch.setenv("MOTIF_JAX_TRUST", __name__)
    monkeypatch.setattr(f"{__name__}.best_text", TEXTS[values.index(max(values))])
    assert max(values) > 0
    options: dict[str, Any] = {
        "environment.name": "gym:CartPole-v1",
        "environment.text": f"{__name__}:always",
        "reward.dir": str(trained),
        "reward.quantile": None,
        "reward.count_exponent": 0.0,
        "reward.intrinsic_coefficient": 1.0,
        "train_for_env_steps": 1024,
        "serial": True,
    }

    run = run_stage("train_agent", tmp_path / "run", "smoke", **options)

    pattern = rf"the agent stays where one text comes again and again: '{best_text}' came with (\d+) % .* and had (\d+) % of what they"
    shares = re.search(pattern, capfd.readouterr().err)
    assert shares is not None
    # The last steps of a group are no row of the log yet.
    assert int(shares[1]) > 60
    assert int(shares[2]) == 100
    # charts take seconds
    monkeypatch.setattr("motif_jax.display.charts.figure", lambda plot: plot.title)
    page = (
        run_stage("report", tmp_path / "page", "smoke", **{"agent.dir": str(run)}) / "report.html"
    )
    assert page.read_text().count("he agent stays where one text comes again and again") >= 2, (
        "headline and section"
    )
