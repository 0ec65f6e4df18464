"""The whole small job, ending in a report whose links a browser follows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import browser
from tests.force.outcomes import rows_of
from tests.reward_fixtures import run_stage


@pytest.mark.extra
@pytest.mark.timeout(1800)
def test_a_run_from_games_to_its_report(tmp_path):
    data = str(run_stage("collect", tmp_path / "dataset"))
    run_stage(
        "annotate", tmp_path / "annotate", dataset_dir=data, store_dir=str(tmp_path / "answers")
    )
    (labels,) = (tmp_path / "dataset" / "preference").glob("*.npy")
    options = {"dataset_dir": data, "annotator": labels.stem, "num_devices": 1}
    reward = str(run_stage("train_reward", tmp_path / "reward", **options))
    values = {"reward.dir": reward, "reward.intrinsic_coefficient": 0.1, "devices.learner": "0"}
    # A network that is compiled fast.
    values |= {"network.encoder": "flat", "network.flat_sizes": (16,), "network.hidden_size": 16}
    agent = str(run_stage("train_agent", tmp_path / "agent", record_every=1, **values))
    of_both = {"reward.dir": reward, "agent.dir": agent}
    for policy in ("agent", "random"):
        run_stage(
            "evaluate", tmp_path / f"of_{policy}", policy=policy, episodes=6, show_best=1, **of_both
        )
    seeds = [
        sorted(row["seed"] for row in rows_of(tmp_path / f"of_{policy}" / "episodes.jsonl"))
        for policy in ("agent", "random")
    ]
    assert seeds[0] == seeds[1], "both play the same games"
    shown = {"recorded.files": f"{agent}/recordings", "recorded.agent.dir": agent}
    run_stage("visualize", tmp_path / "games", **shown, **{"reward.dir": reward})
    values = {"dataset_dir": data, **of_both, "replays": str(tmp_path / "games")}
    values["evaluations"] = f"{tmp_path}/of_agent,{tmp_path}/of_random"
    run_stage("report", tmp_path / "report", "quickstart", **values)
    assert list((tmp_path / "report" / "plots").glob("*.png"))
    with browser.open_browser() as driver:
        driver.get(f"file://{tmp_path}/report/report.html")
        games = driver.find_elements("css selector", "#training-games a")
        recorded = len(list(Path(agent, "recordings").glob("*.json")))
        assert len(games) == min(recorded, 6) > 0, "the three best and the three worst"
        for game in games:
            assert Path(game.get_attribute("href").removeprefix("file://")).is_file()
        driver.get(driver.find_elements("css selector", "#episodes a")[0].get_attribute("href"))
        assert "Episode" in driver.title, "the link leads to the player"
        assert browser.errors(driver) == []
