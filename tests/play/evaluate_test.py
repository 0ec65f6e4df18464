from __future__ import annotations

import pytest

from motif_jax.core.progress import format_number
from motif_jax.play import evaluation_files, fixed_shares
from tests.reward_fixtures import load_config, run_config, run_stage


@pytest.mark.extra
def test_the_bot_agrees_with_itself(tmp_path, capsys):
    values = {
        "policy": "bot",
        "bot_agreement": True,
        "workers": 1,
        "environment.name": "BabyAI-GoToLocal-v0",
    }
    run_stage("evaluate", tmp_path / "run", **values)
    measures = evaluation_files.read_evaluation(tmp_path / "run")["measures"]
    assert measures["bot_agreement"]["mean"]["value"] == 1
    mean = format_number(measures["return"]["mean"]["value"])
    assert f"mean return {mean}  " in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.slow
def test_fixed_shares_are_fitted_once_and_reused_on_resume(tmp_path, monkeypatch):
    fitted = []
    shares = (0.5, 0.0, 0.5, 0.0, 0.0, 0.0)
    monkeypatch.setattr(fixed_shares, "fit", lambda *arguments: fitted.append(arguments) or shares)
    changed = {"environment.name": "BabyAI-GoToObjS4-v0", "environment.change": "other_episode"}
    config = load_config("evaluate", "smoke", {"policy": "fixed", "workers": 1, **changed})
    for episodes in (3, 5):
        config.episodes = episodes
        before = len(fitted)
        run_config(config, tmp_path)
        assert (len(fitted) > before) == (episodes == 3)
    evaluation = evaluation_files.read_evaluation(tmp_path)
    assert tuple(evaluation["plan"]["shares"]) == shares
    assert evaluation["plan"]["options"]["change"] == "other_episode"
    played = [
        evaluation_files.decode_actions(row["actions"]).tolist() for row in evaluation["rows"]
    ]
    assert {action for actions in played for action in actions} <= {0, 2}
