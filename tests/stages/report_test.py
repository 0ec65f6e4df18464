"""report: what it makes of the folders that it is given, without the charts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from motif_jax.datasets.pairs.writer import write_pairs
from motif_jax.reports import generalisation_files
from motif_jax.stages import report
from tests import recorded_outputs
from tests.made_up_runs import evaluation_rows, write_agent_run, write_evaluation, write_recordings
from tests.reward_fixtures import load_config, write_labels


def write_dataset(folder: Path) -> None:
    texts = np.random.default_rng(0).integers(97, 100, (5, 2, 3, 256)).astype(np.uint8)
    data = {
        "message": texts,
        "blstats": np.ones((5, 2, 3, 27), int),
        "rewards": np.zeros((5, 2, 3), np.float32),
    }
    write_pairs(folder, data, {"score": np.zeros((5, 2), int)})
    for name, labels in {"a": [0, 1, 1, 2, 3], "b": [0, 0, 0, 0, 2]}.items():
        write_labels(folder, name, np.array(labels, np.int8))


def write_tests(folder: Path) -> None:
    rows = [
        {"success": place > 2, "return": place / 4, "length": 9.0 + place, "kind": 0} for place in range(5)
    ]
    of = generalisation_files.summarise(rows, rows[::-1], ["goto"], 20, 0.9)
    tests = [
        {"name": name, "what": f"{name} words", "environment": "BabyAI", **of} for name in ("first", "second")
    ]
    generalisation_files.write(
        folder, {"player": "clone", "base": "BabyAI", "episodes": 5, "confidence": 0.9, "left_out": {}, "tests": tests}
    )  # fmt: skip


def test_everything_that_folders_hold_is_on_the_page(
    tmp_path: Path, monkeypatch, capsys, record: bool
) -> None:
    monkeypatch.setattr("motif_jax.reports.charts.figure", lambda plot: f"<svg>{plot.title}</svg>")
    at = {name: tmp_path / name for name in "dataset agent language text played tests more replays".split()}
    write_dataset(at["dataset"])
    write_agent_run(at["agent"], episodes=41)
    write_recordings(at["agent"])
    for name in ("language", "text"):
        at[name].mkdir()
        (at[name] / "config.json").write_text(json.dumps({"stage": report.STAGES[f"{name}.dir"]}))
        rows = [
            {"step": step, "time": 1.0, "validation/perplexity": 9 / step, "validation/loss": 7 / step}
            for step in (2, 3)
        ]
        (at[name] / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    players = {"played": str(at["agent"]), "one": "runs/other", "two": "runs/other", "three": "fixed"}
    for number, (name, player) in enumerate(players.items()):
        write_evaluation(tmp_path / name, player, evaluation_rows(6, 9.0 - number, number))
    (tmp_path / "played" / "recordings").mkdir()
    for name in ("recordings/episode-00012.html", "recordings/episode-00003.html", "tokens.html"):
        (tmp_path / "played" / name).touch()
    write_tests(at["tests"])
    write_tests(at["more"])
    at["replays"].mkdir()
    for path in sorted((at["agent"] / "recordings").glob("*.json"))[:2]:
        (at["replays"] / f"{path.stem}.html").touch()
    values = {f"{name}.dir": str(at[name]) for name in ("agent", "language", "text")}
    values |= {
        "dataset_dir": str(at["dataset"]),
        "replays": str(at["replays"]),
        "tests": f"{at['tests']}, {at['more']}",
    }
    values |= {"evaluations": f"{tmp_path}/played, {tmp_path}/one,{tmp_path}/two", "title": "All"}
    config = load_config(
        "report",
        "smoke",
        {**values, "yardsticks": ",".join(str(tmp_path / name) for name in list(players)[3:])},
    )
    report.check(config, tmp_path / "out")
    assert report.run(config, tmp_path / "out") is None
    config.evaluations, config.yardsticks, config.tests = config.yardsticks, "", ""
    config.agent.dir = config.language.dir = config.text.dir = config.dataset_dir = None
    config.first_must_lead, config.lead = True, 0.5
    assert report.run(config, tmp_path / "led") == 1
    names = {tmp_path: "FOLDER"}
    parts = recorded_outputs.of_folder(tmp_path / "out", names) | {
        "printed": recorded_outputs.replaced("".join(capsys.readouterr()), names)
    }
    recorded_outputs.compared("report_folders", parts, record)
