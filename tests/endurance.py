"""Runs every long stage for a while and watches its processes, by `benchmark.py:endurance`.

    bash launch/endurance.sh [MINUTES] [STAGE...]

The stages work on what the three quick runs made, with more to do than they can finish. A line is written to FOLDER/endurance.jsonl for each;
`--page` writes the table of all lines there into a page, and `--picture` draws what all of them say of memory.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))

from motif_jax.support.lifeline import told_of_parents_end
from tests.outcomes import rows_of
from tests.pages import table, write_between
from tests.processes import free_port

REPOSITORY = Path(__file__).parents[1]
LINES = "endurance.jsonl"
_QUICK_RUNS = ("quickstart", "quickstart_glam", "quickstart_ilql")
# Lines of prompts: more than any machine reads in the time.
_PROMPTS = 2_000_000
# A little more than half of them are questions, of which 2,500 a second were asked.
_PAIRS_A_MINUTE = 300_000

Line = Mapping[str, Any]


class Inputs(NamedTuple):
    """What the stages read.

    Attributes:
      quickstart, glam, ilql: folders of the quick runs.
      folder: for what is made of them, and for the runs.
      port: for the stand-in of a language model's server.
      minutes: each stage is watched for.
    """

    quickstart: Path
    glam: Path
    ilql: Path
    folder: Path
    port: int
    minutes: float

    @property
    def prompts(self) -> Path:
        """A file of prompts with candidates, made once."""
        path = self.folder / "prompts.jsonl"
        if not path.exists():
            colours, things = (
                ("red", "green", "blue", "purple", "yellow", "grey"),
                ("ball", "key", "box", "door"),
            )
            candidates = ["turn left", "turn right", "go forward", "pick up"]
            with open(path, "w", encoding="utf-8") as file:
                for number in range(_PROMPTS):
                    what = f"the {colours[number % 6]} {things[number // 6 % 4]}"
                    row = {"prompt": f"Goal {number}: go to {what}", "candidates": candidates}
                    file.write(json.dumps(row) + "\n")
        return path

    @property
    def dataset(self) -> Path:
        """Pairs of random games with more questions than are asked in the time, made once."""
        path = self.folder / "dataset"
        pairs = f"--config.num_pairs={math.ceil(self.minutes * _PAIRS_A_MINUTE)}"
        subprocess.run(
            [*_program("collect.py"), f"--workdir={path}", pairs, "--config.screens=False"], check=True
        )
        return path

    @property
    def asks(self) -> str:
        """Flags of an annotation by what listens at the port; with the hero's status nearly every pair is a question of its own."""
        return (
            f"--config.dataset_dir={self.dataset} --config.restart=True --config.annotator=openai --config.captions.status=True "
            f"--config.openai.base_url=http://127.0.0.1:{self.port}/v1 --config.openai.model=lexicon"
        )

    @property
    def trajectories(self) -> Path:
        """Steps of the bot in BabyAI-Text, collected once."""
        path = self.folder / "trajectories"
        subprocess.run(
            [*_program("collect_trajectories.py:smoke"), f"--workdir={path}", "--config.steps=4000"],
            check=True,
        )
        return path


_ENDLESS = 10**9
_TRAINS_TEXT = "--config.network.width=96 --config.network.layers=3 --config.network.heads=4 --config.network.max_length=128"
# Config and flags; {at.NAME}: of the inputs.
STAGES: dict[str, str] = {
    "train_agent": "train_agent.py:quickstart --config.reward.dir={at.quickstart}/reward --config.train_for_env_steps={endless}",
    "oni": "oni.py --config.annotator.store_dir={at.folder}/oni_answers --config.train_for_env_steps={endless}",
    "collect": "collect.py --config.num_pairs=6000000 --config.screens=False",
    "annotate": "annotate.py {at.asks} --config.store_dir={at.folder}/annotate/store",
    "serve_annotator": "serve_annotator.py --config.port={at.port}",
    "train_reward": "train_reward.py:quickstart --config.dataset_dir={at.quickstart}/dataset "
    "--config.annotator=lexicon_msg_defaultgoal --config.epochs=100000",
    "evaluate": "evaluate.py --config.policy=agent --config.agent.dir={at.quickstart}/agent "
    "--config.reward.dir={at.quickstart}/reward --config.episodes=10000000",
    "collect_trajectories": "collect_trajectories.py --config.steps={endless}",
    "pretrain_language_model": "pretrain_language_model.py:babyai --config.texts={at.glam}/text --config.steps=10000000",
    "clone_behaviour": "clone_behaviour.py --config.trajectories={at.trajectories} "
    "--config.network.model={at.glam}/language/model --config.epochs=1000000",
    "train_language_agent": "train_language_agent.py:quickstart --config.network.model={at.glam}/language/model "
    "--config.train_for_env_steps={endless}",
    "test_language_agent": "test_language_agent.py --config.policy={at.glam}/agent --config.tests=distractors_4 --config.episodes=1000000",
    "score_text": "score_text.py --config.model={at.glam}/language/model --config.file={at.prompts}",
    "generate_text": "generate_text.py --config.model={at.glam}/language/model --config.file={at.prompts}",
    "collect_text": "collect_text.py:wordle --config.num_dialogues=2000000000",
    "train_text": "train_text.py:wordle_ilql --config.data={at.ilql}/games --config.max_steps=10000000 " + _TRAINS_TEXT,
    "train_upvote": "train_upvote.py:smoke --config.max_steps=100000000",
    "evaluate_text": "evaluate_text.py:wordle --config.agent={at.ilql}/ilql --config.episodes=10000000",
}  # fmt: skip


def _program(config: str) -> list[str]:
    return [sys.executable, "-m", "motif_jax.launch", f"--config={REPOSITORY / 'configs' / config}"]


def command(name: str, at: Inputs) -> str:
    """A stage's config and flags."""
    return STAGES[name].format(at=at, endless=_ENDLESS)


def watch(name: str, told: str, at: Inputs) -> str | None:
    """Runs one stage by its `command` and writes its line; returns what went wrong if it did not last so long, or did not end well."""
    folder = at.folder / name
    shutil.rmtree(folder, ignore_errors=True)
    options = {"minutes": at.minutes, "folder": folder, "command": told}
    program = [
        *_program("benchmark.py:endurance"),
        *(f"--config.options.{key}={value}" for key, value in options.items()),
    ]
    beside = {"annotate": _server, "serve_annotator": _asked}.get(name)
    with (
        beside(at) if beside else contextlib.nullcontext(),
        open(at.folder / f"{name}.log", "wb") as log,
        _beside(program, subprocess.PIPE, log) as running,
    ):
        said, _ = running.communicate()
    if running.returncode:
        return f"{name} ended with {running.returncode}: see {log.name}"
    line = json.dumps({"stage": name, **json.loads(said.splitlines()[-1])}) + "\n"
    with open(at.folder / LINES, "ab", buffering=0) as file:
        file.write(line.encode())  # at once: others write theirs
    print(f"{time.strftime('%H:%M:%S')} {name}: watched", flush=True)
    return None


@contextlib.contextmanager
def _beside(
    program: Sequence[str], said: int | IO[bytes], log: int | IO[bytes] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A program that runs as long as the block, and ends with this one; `said` and `log`: its outputs, `log` None: as this one's."""
    running = subprocess.Popen(
        program, cwd=REPOSITORY, stdout=said, stderr=log, preexec_fn=told_of_parents_end
    )
    try:
        yield running
    finally:
        running.terminate()
        running.wait()


@contextlib.contextmanager
def _server(at: Inputs) -> Iterator[None]:
    """The stand-in of a language model's server."""
    with _beside([*_program("serve_annotator.py"), f"--config.port={at.port}"], subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.readline(), "the server ended before it listened"
        yield


@contextlib.contextmanager
def _asked(at: Inputs) -> Iterator[None]:
    """Asks whoever listens at the port for as long as the block, with the questions of another goal."""
    folder = at.folder / "asks"
    shutil.rmtree(folder, ignore_errors=True)
    program = [*_program("annotate.py"), *at.asks.split(), "--config.goal=gold"]
    places = [f"--workdir={folder}", f"--config.store_dir={folder}/store"]
    with open(at.folder / "asks.log", "wb") as log, _beside([*program, *places], log, log) as asks:
        yield
        if asks.poll() is not None:
            raise RuntimeError(f"it was not asked until the end: see {log.name}")


def rows(lines: Sequence[Line]) -> str:
    """A table with a row a line."""
    return table([_row(line) for line in lines])


def _row(line: Line) -> dict[str, object]:
    warm, slope = line["baseline"]["value"], line["slope_mb_per_hour"]["all together"]
    own = next(name for name in ("learner", "program") if name in line["memory_mb"])
    return {
        "stage": f"`{line['stage']}`",
        "minutes": f"{line['minutes']:.0f}",
        "of a processor": f"{line['processor_minutes']:.1f}" if "processor_minutes" in line else "",
        "processes": len(line["memory_mb"]),
        "MB when warm": f"{warm:,.0f}",
        "at the end": f"{line['value']:,.0f}",
        "most": f"{line['largest_memory_mb']['all together']:,.0f}",
        "a line through them, MB an hour": f"{slope:+,.0f}",
        "the program's threads": _range(line["threads"][own]),
        "its open files": _range(line["files"][own]),
        "MB on disk": f"{line['disk_mb'][0]:,.1f} to {line['disk_mb'][1]:,.1f}",
        "left behind": len(line["left_behind"]),
    }


def _range(ends: Sequence[int]) -> str:
    least, most = ends
    return str(most) if least == most else f"{least} to {most}"


def draw(folder: Path, lines: Sequence[Line], path: Path) -> None:
    """Draws the memory of all processes together over the minutes, a panel a line."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = 4
    figure = Figure(figsize=(10, 1.7 * -(-len(lines) // columns)), layout="constrained")
    FigureCanvasAgg(figure)
    for place, line in enumerate(lines):
        samples = json.loads((folder / line["stage"] / "samples.json").read_text())
        axes = figure.add_subplot(-(-len(lines) // columns), columns, place + 1)
        minutes = [sample["seconds"] / 60 for sample in samples]
        axes.plot(minutes, [sum(one["memory"] for one in sample["processes"].values()) for sample in samples])
        axes.set_ylim(bottom=0)
        axes.set_title(line["stage"], fontsize=8)
        axes.tick_params(labelsize=6)
        axes.grid(alpha=0.25)
    figure.supxlabel("minutes", fontsize=8)
    figure.supylabel("MB, all processes together", fontsize=8)
    figure.savefig(path, dpi=110)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Runs long stages for a while and watches their processes.")
    parser.add_argument("minutes", nargs="?", type=float, default=15.0, help="of each stage, 15 by default")
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"all by default: {', '.join(STAGES)}")
    parser.add_argument("--together", type=int, default=1, help="so many side by side")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where the quick runs are")
    parser.add_argument("--folder", type=Path, default=Path("runs/endurance"), help="where everything lies")
    parser.add_argument(
        "--page",
        type=Path,
        help="writes the table of what is in FOLDER into this page, and does nothing else",
    )
    parser.add_argument(
        "--picture", type=Path, help="draws what is in FOLDER as a PNG, and does nothing else"
    )
    return parser.parse_args()


def _refusal(given: argparse.Namespace) -> str | None:
    if unknown := [name for name in given.stages if name not in STAGES]:
        return f"no long stage {', '.join(unknown)}; there are {', '.join(STAGES)}"
    if not 0 < given.minutes < float("inf") or given.together < 1:
        return f"MINUTES={given.minutes}, --together={given.together}: must be above 0"
    for name in _QUICK_RUNS:
        if not (given.runs / name).is_dir():
            return f"{given.runs / name}: is not there: run bash launch/{name}.sh first, or name another folder with --runs"
    return None


def _newest(path: Path) -> list[Line]:
    """The newest line of each stage, in the order of the stages."""
    known = {line["stage"]: line for line in rows_of(path)}
    return [known[name] for name in STAGES if name in known]


def main() -> int:
    """The program."""
    given = _arguments()
    folder = given.folder.absolute()
    if given.page or given.picture:
        lines = _newest(folder / LINES)
        if given.page:
            write_between(given.page, "endurance", rows(lines))
        if given.picture:
            draw(folder, lines, given.picture)
        return 0
    if refusal := _refusal(given):
        print(f"error: {refusal}", file=sys.stderr)
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    runs, names = given.runs.absolute(), given.stages or list(STAGES)
    found = [runs / name for name in _QUICK_RUNS]
    # What they read is made one by one, before any of them reads it.
    inputs = {name: Inputs(*found, folder, free_port(), given.minutes) for name in names}
    commands = {name: command(name, at) for name, at in inputs.items()}
    with ThreadPoolExecutor(given.together) as threads:
        watched = [threads.submit(watch, name, commands[name], inputs[name]) for name in commands]
    failures = [told for one in watched if (told := one.result())]
    for told in failures:
        print(f"error: {told}", file=sys.stderr)
    print(rows(_newest(folder / LINES)))
    return int(bool(failures))


if __name__ == "__main__":
    raise SystemExit(main())
