"""Asks a language model before every update what it would do in fixed situations, and what each
clause of them is worth.

In the run folder: `probes.json` (the situations), `probes.jsonl` (a line per update),
`clauses.jsonl` (every few updates, with one clause left out at a time), and the published
`distrib.csv`.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax
import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.core.files import append_lines, atomic_write_json, finite, read_json
from motif_jax.envs.babyai_text import catalogue
from motif_jax.envs.babyai_text.probes import (
    CLAUSES,
    DESCRIPTION,
    LINES,
    PACKAGE_PROBES,
    Probe,
    read,
)
from motif_jax.envs.babyai_text.prompts import TOKENS, PromptTokens
from motif_jax.glam.agent import ACTIONS, LanguageAgent
from motif_jax.rl import settings
from motif_jax.rl.config import AgentConfig

DISTRIB = "distrib.csv"
ENGLISH_ONLY = "config.probes.prompts='own': these prompts are in English, and this agent reads French: name a file of French ones"
_ROWS = 32  # prompts that the model reads at a time


class Probing:
    """Asks an agent; `params` of the methods are the parameters to act by. Raises UserError: a
    prompt is too long.
    """

    def __init__(
        self,
        network: LanguageAgent,
        probes: Sequence[Probe],
        options: Mapping[str, Any],
        language: str,
    ) -> None:
        self.probes = list(probes)
        self.actions = network.spec.action_names
        self._network = network
        self._language = language
        # Whether the policy scores words; else it is a head.
        self.by_words = ACTIONS not in network.heads.configs
        actions = self.actions if options.get("joint_actions") else ()
        self._tokens = PromptTokens(
            options["tokenizer"],
            options["prompt_tokens"],
            options["special_tokens"],
            actions,
            options.get("prompt_turn", ()),
        )
        # The network itself and not a player: no step of an environment, no draw.
        self._rows = jax.jit(network.logits_and_values)
        self._prompts = self._encoded(map(self.prompt, self.probes))
        # (probe, (observation, clause)) of every clause, and the prompts without it.
        self._clauses = [
            (number, clause)
            for number, probe in enumerate(self.probes)
            for clause in probe.clause_indices()
        ]
        self._prompts_without = self._encoded(
            self.prompt(self.probes[number], clause) for number, clause in self._clauses
        )

    def prompt(self, probe: Probe, left_out: tuple[int, int] | None = None) -> str:
        """The prompt of a probe, without the clause at `left_out` (observation, clause)."""
        return probe.prompt(self.actions, self._language, left_out)

    def _encoded(self, prompts: Iterable[str]) -> dict[str, np.ndarray]:
        """The fields of prompts that the network reads, each [prompts, ...]."""
        prompts = list(prompts)
        fields = {
            name: np.zeros((len(prompts), *spec.shape), spec.dtype)
            for name, spec in self._tokens.fields.items()
        }
        for number, prompt in enumerate(prompts):
            self._tokens.write(prompt, {name: rows[number] for name, rows in fields.items()})
        return fields

    def scores(self, params: Any) -> np.ndarray:
        """Logits of the policy float32 [probes, actions]."""
        return self._ask(params, self._prompts)

    def clauses(self, params: Any) -> list[dict[str, Any]]:
        """A row for every clause: the policy's probabilities without it."""
        if not self._clauses:
            return []
        without = probabilities(self._ask(params, self._prompts_without)).tolist()
        return [
            {"probe": number, "observation": observation, "clause": clause, "probabilities": row}
            for (number, (observation, clause)), row in zip(self._clauses, without, strict=True)
        ]

    def _ask(self, params: Any, fields: Mapping[str, np.ndarray]) -> np.ndarray:
        count = len(fields[TOKENS])
        logits = []
        for start in range(0, count, _ROWS):
            numbers = np.arange(start, min(start + _ROWS, count))
            # The same number of rows in every call, so that there is one program.
            filled = np.resize(numbers, min(_ROWS, count))
            cropped = self._network.cropped({name: rows[filled] for name, rows in fields.items()})
            part_logits, _ = self._rows(params, **cropped)
            logits.append(np.asarray(part_logits)[: len(numbers)])
        return np.concatenate(logits) if logits else np.zeros((0, len(self.actions)), np.float32)

    def description(self) -> dict[str, Any]:
        """The contents of `probes.json`."""
        probes = [
            {"name": probe.name, "goal": probe.goal, "observations": probe.observations, "actions": probe.actions, "prompt": self.prompt(probe)}
            for probe in self.probes
        ]  # fmt: skip
        return {"actions": list(self.actions), "probes": probes}


def probabilities(scores: np.ndarray) -> np.ndarray:
    """Probabilities of a policy's logits, both [..., A]."""
    # The greatest becomes 1, so that raw logits do not overflow.
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def make(config: AgentConfig, network: Any) -> Probing | None:
    """The probes of a training config; None without any, and for the package's, which are English,
    where the agent reads French.
    """
    chosen = config.probes
    if chosen is None or not chosen.prompts:
        return None
    options = settings.environment_options(config)
    level = catalogue.find(config.environment.name)
    section = config.environment.babyai_text
    assert section is not None
    language = section["language"] or (catalogue.ENGLISH if level is None else level.language)
    if chosen.prompts == PACKAGE_PROBES and language != catalogue.ENGLISH:
        return None
    probes = read(chosen.prompts)
    # only those of the package whose history fits the agent's window
    if chosen.prompts == PACKAGE_PROBES:
        probes = [probe for probe in probes if len(probe.observations) <= section["observations"]]
    return Probing(network, probes, options, language)


class ProbeFiles(ExitStack):
    """Writes the output of `Probing` into a folder, from `update` on; every `clauses_every` updates
    also clauses (0: never).

    Raises UserError: the folder has answers to other probes.
    """

    def __init__(
        self,
        folder: Path,
        probing: Probing,
        update: int,
        clauses_every: int = 0,
        published: bool = False,
    ) -> None:
        super().__init__()
        self._probing = probing
        self._clauses_every = clauses_every
        description = folder / DESCRIPTION
        # A run that goes on adds lines to those of the same probes.
        if update > 0 and description.exists():
            before = read_json(description, f"remove {folder}")
            # As JSON holds it.
            now = json.loads(json.dumps(probing.description()))
            if before != now:
                raise UserError(
                    f"{folder} has answers to other probes (config.probes.prompts): give the same ones, or another --workdir"
                )
        atomic_write_json(description, probing.description())

        # A resumed run writes the lines from `update` on again.
        def is_earlier(line: str) -> bool:
            return json.loads(line)["update"] < update

        keep: dict[str, Callable[[str], bool]] = {LINES: is_earlier}
        if clauses_every:
            keep[CLAUSES] = is_earlier
        if published:
            # Its lines have no number: line n is that of update n.
            count = itertools.count()
            keep[DISTRIB] = lambda line: next(count) < update
        self._files = {
            name: self.enter_context(append_lines(folder / name, is_kept))
            for name, is_kept in keep.items()
        }

    def write(self, params: Any, update: int, step: int) -> None:
        """Writes what the agent would do before update `update` (from 0), at environment step
        `step`.
        """
        scores = self._probing.scores(params)
        head = {"update": update, "step": step}
        self._write(
            LINES,
            json.dumps(
                finite({**head, "probabilities": probabilities(scores).tolist()}), allow_nan=False
            ),
        )
        # Scores and not probabilities, as published since May 2023.
        if DISTRIB in self._files:
            self._write(DISTRIB, ",".join(map(str, scores.reshape(-1).tolist())))
        if self._clauses_every and update % self._clauses_every == 0:
            self._write(
                CLAUSES,
                json.dumps(
                    finite({**head, "without": self._probing.clauses(params)}), allow_nan=False
                ),
            )

    def _write(self, name: str, line: str) -> None:
        self._files[name].write(line + "\n")
        self._files[name].flush()


def files(
    config: AgentConfig, network: Any, folder: Path, progress: Mapping[str, Any]
) -> ProbeFiles | None:
    """The probe files in `folder` that resume from a checkpoint's `progress`; None without
    probes.
    """
    probing = make(config, network)
    chosen = config.probes
    if probing is None or chosen is None:
        if chosen is not None and chosen.prompts:
            print(f"not probed: {ENGLISH_ONLY}", file=sys.stderr, flush=True)
        return None
    # As published, no such file of an agent with a head of actions.
    published = config.published_files and probing.by_words
    return ProbeFiles(folder, probing, progress.get("updates", -1), chosen.clauses_every, published)
