"""The whole small job through its flags, ending in pages that a browser opens: report, comparison, model card."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from motif_jax.reports import evaluation_files
from tests import browser
from tests.reward_fixtures import launch, run_stage


@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("compiled_quickly")
def test_a_run_from_games_to_its_report(tmp_path):
    """Each stage's own flags are tested with the stage: here they run in this process, and the report alone by its flags."""
    runs = tmp_path
    data = str(run_stage("collect", runs / "dataset"))
    run_stage("annotate", runs / "annotate", dataset_dir=data, store_dir=str(runs / "answers"))
    (labels,) = (runs / "dataset" / "preference").glob("*.npy")
    reward = str(
        run_stage("train_reward", runs / "reward", dataset_dir=data, annotator=labels.stem, num_devices=1)
    )
    values = {"reward.dir": reward, "reward.intrinsic_coefficient": 0.1, "devices.learner": "0"}
    # A network that is compiled fast.
    values |= {"network.encoder": "flat", "network.flat_sizes": (16,), "network.hidden_size": 16}
    agent = str(run_stage("train_agent", runs / "agent", record_every=1, compile_cache="", **values))
    of_both = {"reward.dir": reward, "agent.dir": agent}
    for policy in ("agent", "random"):
        run_stage("evaluate", runs / f"evaluate_{policy}", policy=policy, episodes=6, show_best=1, **of_both)
    evaluations = {
        p: json.loads((runs / f"evaluate_{p}" / "evaluation.json").read_text()) for p in ("agent", "random")
    }
    assert evaluations["agent"]["plan"]["policy"] == str(runs / "agent")
    assert evaluations["agent"]["plan"]["checkpoint"] > 0
    seeds = {
        p: [row["seed"] for row in evaluation_files.read_rows(runs / f"evaluate_{p}" / "episodes.jsonl")]
        for p in evaluations
    }
    assert sorted(seeds["agent"]) == sorted(seeds["random"]), "agent and random policy play the same games"
    run_stage("replay", runs / "games", "", recordings=str(runs / "agent" / "recordings"), **of_both)
    out = launch(
        "report", runs / "report", f"--config.dataset_dir={data}", f"--config.reward.dir={reward}", f"--config.agent.dir={agent}",
        f"--config.replays={runs / 'games'}", f"--config.evaluations={runs / 'evaluate_agent'},{runs / 'evaluate_random'}",
        variant="quickstart",
    )  # fmt: skip
    assert f"report: {runs / 'report' / 'report.html'}" in out
    assert "Mean intrinsic return per episode: agent" in out
    assert list((runs / "report" / "plots").glob("*.png"))
    run_stage("export_reward", runs / "export", "", **{"reward.dir": str(runs / "reward")})
    card = (runs / "export" / "README.md").read_text()
    assert "stands in for a language model" in card
    assert "validation accuracy" in card
    assert "CC-BY-NC" in card
    _open_report(runs, evaluations)


def _open_report(runs: Path, evaluations: dict) -> None:
    with browser.open_browser() as driver:
        driver.get(f"file://{runs}/report/report.html")
        text = driver.find_element("tag name", "body").text
        for policy, evaluation in evaluations.items():
            mean = evaluation["measures"]["intrinsic_return"]["mean"]
            shown = re.search(rf"{policy} (-?[0-9.,]+) \[", text)
            assert shown
            assert float(shown[1].replace(",", "")) == pytest.approx(mean["value"], abs=0.01)
        assert "most liked" in text
        assert "no reward run was given" not in text
        assert driver.execute_script("return document.documentElement.scrollWidth") <= 1200
        games = driver.find_elements("css selector", "#training-games a")
        recorded = len(list((runs / "agent" / "recordings").glob("*.json")))
        assert len(games) == min(recorded, 10) > 0, "the five best and the five worst"
        for game in games:
            assert Path(game.get_attribute("href").removeprefix("file://")).is_file()
        links = driver.find_elements("css selector", "#episodes a")
        assert links
        target = links[0].get_attribute("href")
        browser.screenshot(driver, runs / "report.png")
        driver.get(target)
        assert "Episode" in driver.title, "the link leads to the player"
        assert browser.errors(driver) == []
