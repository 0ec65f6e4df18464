"""Made-up run folders and pages for tests of what people look at."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from motif_jax.core import metric_files, run_folder
from motif_jax.display import measures, page
from motif_jax.play import evaluation_files, messages
from motif_jax.play.messages import MessageTally
from motif_jax.reports import recorded_games, report
from motif_jax.reports.run_data import LikedMessage, RunData

# Text that a careless page would run or swallow.
HOSTILE = "<script>document.title='owned'</script> & <b>bold</b> \"quoted\" 'single'"


def evaluation_rows(count: int, shift: float, seed: int) -> list[dict]:
    generator = np.random.default_rng(seed)
    rows = []
    for index in range(count):
        length = int(generator.integers(100, 3000))
        row = {
            "index": index, "seed": 1000 + index, "return": float(generator.gamma(2, 20) + shift), "length": length,
            "score": float(generator.gamma(2, 30)), "dlvl": float(generator.integers(1, 4)), "gold": 5.0,
            "xlvl": float(generator.integers(1, 3)), "scout": float(generator.integers(60, 400)), "turns": length * 0.7,
            "success": float(generator.random() < 0.1), "end": 1.0, "end_reason": "death", "hallucination": 0.0,
            "actions": evaluation_files.encode_actions(generator.integers(0, 23, length)),
            "session": 0, "session_seconds": 0.1 * (index + 1),
        }  # fmt: skip
        row["intrinsic_return"] = float(generator.gamma(3, 2) + shift / 5)
        row["intrinsic_return_uncounted"] = row["intrinsic_return"] * 9
        row["messages"] = messages.pack(
            [
                MessageTally("You see here a key.", 3, 1, 1.2, 1.5),
                MessageTally(HOSTILE, 2, 1, 2.5, 2.8),
                MessageTally("", 90, 1, 0.0, 0.0),
            ]
        )
        rows.append(row)
    return rows


def write_evaluation(
    folder: Path, policy: str, rows: list[dict], reward: dict | None = None
) -> dict:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / evaluation_files.JOURNAL).write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary = {
        "plan": {"policy": policy, "environment": "NetHackScore-v1", "checkpoint": None, "options": {}, "seed": 0, "reward": reward},
        "episodes": len(rows), "steps": sum(r["length"] for r in rows), "seconds": 10.0, "steps_per_second": 1234.5,
        "confidence": 0.95, "intervals": "percentile bootstrap over episodes, 300 resamples; success rate: Wilson",
        "measures": {k: asdict(v) for k, v in measures.summarise_rows(rows, 300, 0.95).items()},
    }  # fmt: skip
    run_folder.write_config(folder, {"stage": "evaluate"})
    evaluation_files.write_summary(folder, summary, rows)
    tallies = messages.merge(messages.unpack(row["messages"]) for row in rows)
    (folder / evaluation_files.MESSAGES).write_text(json.dumps(list(map(asdict, tallies))))
    return summary


def write_agent_run(
    folder: Path, episodes: int = 400, hacking: bool = False, seed: int = 3
) -> None:
    generator = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "metrics.jsonl", "w") as file:
        for step in range(1000, 500_001, 5000):
            row = {
                "step": step, "time": step / 5000, "loss/policy": float(generator.normal(0, 0.02)),
                "loss/value": float(2e5 / step + generator.random()), "policy/entropy": 3 - step / 400_000,
                "throughput/env_steps_per_second": 5000 + float(generator.normal(0, 200)),
                "lag/mean": float(generator.random() * 2), "lag/max": float(generator.integers(2, 5)),
                "reward/extrinsic_mean": float(generator.random()), "reward/intrinsic_mean": float(generator.random()),
                "time/updates": step / 100,
            }  # fmt: skip
            file.write(json.dumps(row) + "\n")
    with open(folder / "episodes.jsonl", "w") as file:
        for number in range(episodes):
            share = number / episodes
            progress = -1.0 if hacking else 1.0
            row = {
                "step": int(1000 + 499_000 * share), "env": number % 8, "episode": number // 8, "seed": number,
                "return": float(generator.gamma(2, 10) + 20 * share), "length": 800,
                "intrinsic_return": float(generator.gamma(3, 1) + 6 * share),
                "score": float(generator.gamma(2, 10) + 60 + 50 * share * progress),
                "dlvl": float(2 + progress * share + 0.3 * generator.random()), "xlvl": 1.0,
                "gold": 3.0, "scout": 200 + 80 * share * progress + float(generator.random()), "success": 0.0, "end": 1,
            }  # fmt: skip
            file.write(json.dumps(row) + "\n")
        file.write('{"step": 500001, "torn')
    run_folder.write_config(folder, {"stage": "train_agent", "seed": 777})
    versions = {"command": "python -m motif_jax.launch ...", "versions": {}}
    (folder / "versions.json").write_text(json.dumps(versions))


def write_recordings(folder: Path) -> None:
    """Names of recordings for every twentieth line of episodes.jsonl; the page looks at no more."""
    (folder / "recordings").mkdir()
    for line in (folder / "episodes.jsonl").read_text().splitlines()[:-1:20]:
        row = json.loads(line)
        stem = f"step-{row['step']:012d}-env-{row['env']:05d}-episode-{row['episode']:06d}"
        (folder / "recordings" / f"{stem}.json").write_text("{}")


def write_reward_run(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["epoch,total_train_loss,total_train_acc"]
    lines += [f"{e},{0.69 - 0.05 * e},{0.5 + 0.04 * e}" for e in range(11)]
    (folder / "train_metrics.csv").write_text("\n".join(lines) + "\n")
    lines = ["iter,total_val_loss,score_validation_accs,validation_accs"]
    lines += [f"{e},{0.69 - 0.045 * e},{0.5},{0.5 + 0.042 * e}" for e in range(11)]
    (folder / "val_metrics.csv").write_text("\n".join(lines) + "\n")


def run_data(folder: Path, hacking: bool = False) -> RunData:
    """A page's data with everything on it."""
    write_agent_run(folder / "agent", hacking=hacking)
    write_recordings(folder / "agent")
    recorded = recorded_games.read_recorded(folder / "agent")
    best = max(recorded, key=lambda row: row["intrinsic_return"])
    write_reward_run(folder / "reward")
    for name, policy, shift, seed in (
        ("evaluation", "runs/agent", 20.0, 1),
        ("random", "random", 0.0, 2),
    ):
        write_evaluation(folder / name, policy, evaluation_rows(60, shift, seed))
    generator = np.random.default_rng(0)
    texts = [
        HOSTILE,
        "",
        "You see here a key.",
        *(f"You kill the newt number {i}!" for i in range(120)),
    ]
    values = generator.normal(0, 1, len(texts))
    evaluations = {
        "agent": evaluation_files.read_evaluation(folder / "evaluation"), "random": evaluation_files.read_evaluation(folder / "random")
    }  # fmt: skip
    return RunData(
        title="A made-up run",
        dataset={"pairs": "20,000", "origin": "collect", "steps per sub-sequence": "1"},
        labels={"lexicon_default": {"first": 800, "second": 700, "tie": 18_000, "unknown": 500}},
        reward_train=metric_files.read_csv(folder / "reward" / "train_metrics.csv"),
        reward_validation=metric_files.read_csv(folder / "reward" / "val_metrics.csv"),
        liked=[
            LikedMessage(text, int(generator.integers(1, 9000)), float(v), max(0.0, float(v)))
            for text, v in zip(texts, values, strict=True)
        ],
        metrics=metric_files.read_curves(folder / "agent"),
        episodes=metric_files.read_episodes(folder / "agent"),
        recorded=recorded,
        recorded_players={best["stem"]: "players/best.html"},
        evaluations=evaluations,
        message_tallies={
            name: [
                messages.MessageTally(**row)
                for row in json.loads((folder / file / evaluation_files.MESSAGES).read_text())
            ]
            for name, file in (("agent", "evaluation"), ("random", "random"))
        },
        replays=[("0", "recordings/episode-00000.html")],
        reward_summary={
            "validation/accuracy": 0.953,
            "validation/accuracy_pairs": 812.0,
            "validation_unseen/accuracy": 0.71,
            "validation_unseen/accuracy_pairs": 34.0,
        },
        message_curves={
            name: metric_files.Curve(np.arange(11.0), np.linspace(0, end, 11))
            for name, end in ((HOSTILE, 2.0), ("b", -1.0))
        },
        language={
            "validation/perplexity": metric_files.Curve(np.arange(3.0), np.array([9.0, 4.0, 5.0]))
        },
        text={"validation/loss": metric_files.Curve(np.arange(3.0), np.array([np.nan, 0.7, 0.6]))},
        commands=[
            (
                "agent",
                "python -m motif_jax.launch --config=configs/train_agent.py --config.title='<b>'",
            )
        ],
        provenance=[("agent: config.json", '{"seed": 777}')],
    )


def run_page(data: RunData, written: str = "now") -> str:
    """The page of a run, as the report stage writes it."""
    return page.render(data.title, f"motif_jax, written {written}", report.sections(data))


def run_markdown(data: RunData) -> str:
    """The tables of a run as Markdown, as the report stage writes them."""
    return page.markdown(data.title, report.lines(data), report.sections(data))
