"""Puts what agents do in the same games side by side, and says whether one does more of something than another."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.annotation.lexicon import load_lexicon
from motif_jax.annotation.prompts import load_prompt, prompt_path
from motif_jax.reports import behaviour, behaviour_page, evaluation_files
from motif_jax.support import config as checks
from motif_jax.support import run_folder
from motif_jax.support.files import atomic_write_bytes, atomic_write_json, atomic_write_text

PAGE, TABLE, NUMBERS = "behaviour.html", "behaviour.md", "behaviour.json"
# Of a claim that the games do not carry.
NOT_CARRIED = 1


def check(config: ConfigDict, workdir: Path) -> None:
    """Raises UserError for values that cannot work."""
    run_folder.check_identity(workdir, config)
    checks.positive(config, "resamples")
    methods = _methods(config)
    checks.require(
        len(methods) > 1, "methods", config.methods, "'name=folder; name=folder; ...', at least two of them"
    )
    evaluations = {name: evaluation_files.read_evaluation(folder) for name, folder in methods.items()}
    for key in _measures(config):
        behaviour.require_measure(key, evaluations, "measures")
        evaluation_files.require_comparable(evaluations, key, "measures")
    checks.require(
        bool(_measures(config)), "measures", config.measures, "names of measures, with commas between"
    )
    for claim in behaviour.read_claims(config.claims, evaluations):
        evaluation_files.require_comparable(evaluations, claim.measure, "claims")
    _words(config, list(methods))
    load_lexicon(config.lexicon.file)


def _methods(config: ConfigDict) -> dict[str, Path]:
    """Name -> evaluation folder, in the order given."""
    methods: dict[str, Path] = {}
    for part in filter(None, (part.strip() for part in config.methods.split(";"))):
        name, _, folder = (piece.strip() for piece in part.partition("="))
        good = bool(name) and bool(folder) and name not in methods
        checks.require(good, "methods", part, "'name=folder; name=folder; ...', each name once")
        methods[name] = Path(folder)
    return methods


def _measures(config: ConfigDict) -> list[str]:
    return [name.strip() for name in config.measures.split(",") if name.strip()]


def _words(config: ConfigDict, methods: list[str]) -> dict[str, str]:
    """Method -> the sentence of its goal in the prompt file, '' where none is named."""
    path, words = prompt_path("default", config.prompt.file), dict.fromkeys(methods, "")
    for part in filter(None, (part.strip() for part in config.goals.split(";"))):
        name, _, goal = (piece.strip() for piece in part.partition("="))
        checks.require(name in words, "goals", part, f"'name=goal; ...' with names of {', '.join(methods)}")
        words[name] = load_prompt(path, goal, "verdict").goal or "no goal is given"
    return words


@run_folder.alone
def run(config: ConfigDict, workdir: Path) -> int | None:
    """Writes the page, the table and the numbers; returns 1 where a claim is not carried."""
    run_folder.prepare(workdir, config)
    methods = _methods(config)
    evaluations = {name: evaluation_files.read_evaluation(folder) for name, folder in methods.items()}
    lexicon = load_lexicon(config.lexicon.file)
    claims = behaviour.read_claims(config.claims, evaluations)
    result = behaviour.study(evaluations, _measures(config), claims, lexicon, config.resamples)
    # Numbered, as names that differ only in what no file is called by would have the same files.
    replays = {
        name: _replays(workdir, f"{number}-{_plain(name)}", folder, evaluations[name])
        for number, (name, folder) in enumerate(methods.items(), 1)
    }
    games = _games(evaluations)
    page = behaviour_page.render(
        result, config.title, games, _words(config, list(methods)), replays, config.resamples
    )
    atomic_write_json(workdir / NUMBERS, _numbers(result))
    atomic_write_text(workdir / TABLE, behaviour_page.markdown(result, list(methods), games))
    atomic_write_text(workdir / PAGE, page)
    print((workdir / TABLE).read_text(encoding="utf-8"))
    print(f"behaviour: {(workdir / PAGE).resolve()}")
    missed = [str(found.claim) for found in result.findings if not found.holds]
    if missed:
        print(f"not carried by these games: {'; '.join(missed)}", file=sys.stderr)
        return NOT_CARRIED
    return None


def _games(evaluations: Mapping[str, Mapping[str, Any]]) -> str:
    counts = sorted({of["episodes"] for of in evaluations.values()})
    tasks = sorted({of["plan"]["environment"] for of in evaluations.values()})
    seeds = {tuple(row["seed"] for row in of["rows"]) for of in evaluations.values()}
    same = "the same for each" if len(seeds) == 1 else "not all the same for each"
    return f"{' to '.join(f'{count:,}' for count in counts)} games of {', '.join(tasks)} an agent, {same}."


def _replays(
    workdir: Path, called: str, folder: Path, evaluation: Mapping[str, Any]
) -> list[tuple[str, str]]:
    """Copies the players that an evaluation left beside the page; the one that was paid most comes first."""
    key = "intrinsic_return" if "intrinsic_return" in evaluation["measures"] else "return"
    paid = {f"episode-{row['index']:05d}": row[key] for row in evaluation["rows"]}
    players = sorted(
        (path for path in (folder / "recordings").glob("episode-*.html") if path.stem in paid),
        key=lambda path: (-paid[path.stem], path.stem),
    )
    found = []
    for path in players:
        to = workdir / "replays" / f"{called}-{path.name}"
        to.parent.mkdir(parents=True, exist_ok=True)
        atomic_write_bytes(to, path.read_bytes())
        found.append((f"game {int(path.stem[8:])}", f"replays/{to.name}"))
    return found


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


def _numbers(result: behaviour.Behaviour) -> dict[str, Any]:
    return {
        "means": {
            key: {name: asdict(value) for name, value in of.items()} for key, of in result.means.items()
        },
        "claims": [
            {**asdict(found.claim), "difference": asdict(found.difference), "holds": found.holds}
            for found in result.findings
        ],
    }
