"""report: what it makes of the folders that it is given, without the charts."""

from __future__ import annotations

import json
from pathlib import Path

from motif_jax.reports import generalisation_files, report
from tests import recorded_outputs
from tests.made_up_runs import evaluation_rows, write_agent_run, write_evaluation, write_recordings
from tests.reward_fixtures import load_config, make_dataset


def write_tests(folder: Path) -> None:
    rows = [
        {"success": place > 2, "return": place / 4, "length": 9.0 + place, "kind": 0} for place in range(5)
    ]
    of = generalisation_files.summarise(rows, rows[::-1], ["goto"], 20, 0.9)
    tests = [{"name": name, "what": f"{name} words", "environment": "BabyAI", **of} for name in "ab"]
    about = {"player": "clone", "base": "BabyAI", "episodes": 5, "confidence": 0.9, "left_out": {}}
    generalisation_files.write(folder, {**about, "tests": tests})


def test_what_folders_hold_is_on_the_page(tmp_path: Path, monkeypatch, capsys, record: bool) -> None:
    monkeypatch.setattr("motif_jax.display.charts.figure", lambda plot: f"<svg>{plot.title}</svg>")
    at = {name: tmp_path / name for name in "dataset agent language text played tests more replays".split()}
    make_dataset(at["dataset"], pairs=9, messages=4, length=3)
    write_agent_run(at["agent"], episodes=41)
    write_recordings(at["agent"])
    for name in ("language", "text"):
        at[name].mkdir()
        (at[name] / "config.json").write_text(json.dumps({"stage": report.STAGES[f"{name}.dir"]}))
        rows = [{"step": n, "validation/perplexity": 9 / n, "validation/loss": 7 / n} for n in (2, 3)]
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
    folders = {
        "replays": ["replays"],
        "tests": ["tests", "more"],
        "evaluations": ["played", "one", "two"],
        "yardsticks": ["three"],
    }
    values |= {key: ", ".join(str(tmp_path / name) for name in names) for key, names in folders.items()}
    config = load_config("report", "smoke", {**values, "dataset_dir": str(at["dataset"]), "title": "All"})
    report.check(config, tmp_path / "out")
    assert report.run(config, tmp_path / "out") is None
    config.evaluations, config.yardsticks, config.tests = config.yardsticks, "", ""
    config.agent.dir = config.language.dir = config.text.dir = config.dataset_dir = None
    config.first_must_lead, config.lead = True, 0.5
    assert report.run(config, tmp_path / "led") == 1
    names = {tmp_path: "FOLDER"}
    parts = recorded_outputs.of_folder(tmp_path / "out", names)
    parts["printed"] = recorded_outputs.replaced("".join(capsys.readouterr()), names)
    recorded_outputs.assert_matches_packed_recording("report_folders", parts, record)
