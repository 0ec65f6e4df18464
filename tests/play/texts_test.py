from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from docs.examples import backwards
from motif_jax.ilql.agent.agent_decoder import AgentDecoder
from motif_jax.ilql.agent.config import Decode
from motif_jax.ilql.agent.decoding import TokenFacts
from motif_jax.ilql.dialogues import collected as dialogues
from motif_jax.ilql.dialogues import parquet, text_sources
from motif_jax.ilql.dialogues.dialogue import Dialogue, Dialogues
from motif_jax.ilql.dialogues.dialogue_batches import ItemLayout
from motif_jax.ilql.dialogues.items import tokenise
from motif_jax.ilql.dialogues.token_rewards import constant
from motif_jax.ilql.evaluation import recorded_texts, text_episodes, text_rollouts, text_setup, text_values
from motif_jax.ilql.evaluation.config import TextSpeaker
from motif_jax.ilql.evaluation.text_episodes import PlayedText, TextAction
from motif_jax.ilql.evaluation.text_values import Pair
from motif_jax.ilql.tasks import file_tokens, registry
from motif_jax.ilql.tasks.reddit.task import Reddit
from tests import toy_text
from tests.play.told import StopsAfter, Told, jobs_here, lines
from tests.recorded_outputs import assert_matches_packed_recording, of_folder, outcome_text

TOY = "tests.toy_text:Task"
TASK = registry.make(TOY, {"length": 4})


def valued() -> list[text_values.ValuedDialogue]:
    """Dialogues with made-up values; one has no action."""
    draws, found = np.random.default_rng(3), []
    games = {"abc ca b ca": (None, 1.0, None, -0.5), "ca bb ca": (0.25, 0.5, 2.0), "c": (None,)}
    for texts, rewards in {**games, "abc a b bca": (None, 1.0, None, 3.0)}.items():
        dialogue = Dialogue(tuple(texts.split()), rewards, texts != "ca bb ca")
        item = tokenise(dialogue, TASK.tokenizer(), constant(0.0))
        numbers = draws.normal(size=(4, len(item.action_indices))).astype(np.float32)
        found.append(text_values.ValuedDialogue(dialogue, item, text_values.ActionValues(*numbers)))
    return found


def test_values_of_dialogues_are_ranked_and_shown(record: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    each, tokenizer = valued(), TASK.tokenizer()
    starts = zip("xyxxx3", (1, 0, 2, -1, True, 1))
    metas: list[Any] = [{"kind": kind, "group": 0, "start": start} for kind, start in starts]
    metas += [{"kind": "expert", "group": 0}, {"kind": "x", "start": 0}, {"kind": "expert", "group": 1}]
    metas += [{**metas[0], "kind": 3}]
    branches = Dialogues.of([Dialogue(("a", "b"), (1.0, 2.0), True, meta) for meta in metas])
    network = SimpleNamespace(model=SimpleNamespace(config=SimpleNamespace(max_length=None)))
    everyone = Dialogues.of([one.dialogue for one in each])
    strange = Dialogues.of([each[0].dialogue, Dialogue(("A",), (1.0,), True)])
    saved: Any = SimpleNamespace(tokenizer=tokenizer, network=network, params={}, settings={"q_min": -1})
    monkeypatch.setattr(text_values, "_BATCH", 3)

    def look(*given: Any, bounds: Any) -> text_values.ActionValues:
        return text_values.ActionValues(*(given[2] * k + given[3] for k in range(1, 5)))

    monkeypatch.setattr(text_values, "_look", look)
    found = text_values.values_of(saved, everyone)
    looked = [f"{one.dialogue.texts} {one.values} {len(one.item.tokens)}" for one in found]
    known = {"abc": 0, "ca": 1, "c": 2}
    monkeypatch.setattr(text_values, "values_of", lambda _, of: [each[known[one.texts[0]]] for one in of])
    parts = {
        "spans": [one.spans for one in each],
        "utterances": text_values.utterances(each),
        "pairs": text_values.pairs_of(branches),
        "runs": [text_values.n_grams(each, tokenizer, n) for n in (1, 2)],
        "rows": list(recorded_texts.rows(saved, everyone, [0, 1], 1)),
        "accuracy": text_values.ranking_accuracy(
            each, [Pair(1, 0, 1, "x"), Pair(3, 1, 0, "y"), Pair(1, 3, 1, "x")]
        ),
        "bounds": [
            text_rollouts._rounded(length, most)
            for length in (1, 8, 9, 65, 100, 129)
            for most in (None, 10, 104)
        ],
        "looked": looked,
        "held out": outcome_text(recorded_texts.dialogues_of, "agent", None, network, tokenizer, 1),
        "unfit": outcome_text(text_values.require_fit, network, tokenizer, strange, "data"),
    }
    each[:] = [one._replace(values=one.values._replace(q=None, target_q=None, v=None)) for one in each]
    parts["policy alone"] = list(recorded_texts.rows(saved, everyone, [0, 1], 1))
    for longest in (None, 12, 13):
        network.model.config.max_length = longest
        parts[f"fit {longest}"] = outcome_text(text_values.require_fit, network, tokenizer, everyone, "data")
    assert_matches_packed_recording(
        "valued_dialogues", {name: str(part) for name, part in parts.items()}, record
    )


def test_episodes_become_batches(record: bool) -> None:
    draws, played, parts = np.random.default_rng(5), [], {}
    for one in valued():
        tokens = [one.item.tokens[one.item.action_indices + 1][span] for span in one.spans]
        facts = [TokenFacts(*draws.normal(size=(6, len(each))).astype(np.float32)) for each in tokens]
        said_by = tuple(TextAction("", *pair) for pair in zip(tokens, facts))
        played.append(PlayedText(0, one.dialogue, said_by))
    for most in (None, 9):
        layout = ItemLayout(TASK.tokenizer().delimiters.pad, max_len=most)
        batch = text_rollouts.batch_of(played[:2] + played[3:], TASK.tokenizer(), layout, constant(0.125))
        parts[f"most {most}"] = lines(batch._asdict() | batch[0]._asdict())
    actor = text_episodes.PolicyTextActor(TASK.policy("half"), 3)
    for episodes, threads, times in ((range(5), 1, 9), ([1, 4, 2], 2, 9), (range(5), 1, 4)):
        found = text_episodes.play(TASK, actor, 7, episodes, 2, threads, StopsAfter(times))
        parts[f"{episodes} {times}"] = "\n".join(map(str, found))
    assert_matches_packed_recording("text_episodes", parts, record)


def test_dialogues_are_collected(tmp_path: Path, record: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()
    for module in (dialogues, text_sources):
        monkeypatch.setattr(module, "Progress", told)
    monkeypatch.setattr(dialogues, "run_jobs", jobs_here)

    def collected(folder: Path, times: int) -> bool:
        plan = dialogues.DialoguePlan(TOY, {"length": 4}, "games", "half", 3, 11, 4, str(folder / ".staging"))
        stop = StopsAfter(times)
        return dialogues.collect(plan, folder, {"about": 1}, 1, stop, lambda made: told.log(made.name))

    whole, other, games = tmp_path / "whole", tmp_path / "other", ("games", "half")
    assert [collected(whole, 9), collected(other, 2), collected(other, 9)] == [True, False, True]
    parts = of_folder(whole, {})
    assert of_folder(other, {}) == parts
    monkeypatch.setattr(toy_text.Task, "count", lambda self, kind: 130)
    monkeypatch.setattr(text_sources, "_TOKENIZER_DIALOGUES", 300)
    here = TOY, {"length": 2}, *games, tmp_path
    for times in (1, 9, 0):
        found = outcome_text(text_sources.write_all, *here, StopsAfter(times).stopped)
        parts[f"listed {times}"] = found.replace(str(tmp_path), "")
    parts["listed"] = str(Dialogues.of(parquet.read(tmp_path / dialogues.DIALOGUES)).returns().tolist())
    for count, times in ((None, 9), (130, 9), (None, 1)):
        drawn = TASK.stream(*games), count, 3, StopsAfter(times).stopped
        texts = outcome_text(lambda *given: [*text_sources._texts(*given)], *drawn)
        parts[f"texts {count} {times}"] = f"{len(texts)} {texts[-300:]}"
    parts["small"] = outcome_text(text_sources.require_size, backwards.Task({"vocab_size": 200}))
    learned = backwards.Task({"vocab_size": 300})
    options = text_sources.with_tokenizer(learned, *games, tmp_path, 3, StopsAfter(9).stopped)
    parts["options"] = str(options).replace(str(tmp_path), "")
    parts["pieces"] = (tmp_path / file_tokens.FILE).read_text()
    given = ({}, {"scores": "x"}, {"scores": str(tmp_path / "scores.json"), "folder": "x", "tokenizer": "y"})
    parts["made"] = str([text_sources.file_names(options, tmp_path) for options in given])
    parts["prepared"] = outcome_text(text_sources.prepare, *here, 3)
    assert_matches_packed_recording("collected_dialogues", {**parts, "told": str(told)}, record)


WAYS = {
    "as it is": {},
    "beam": {"kind": "beam", "width": 3},
    "greedy": {"kind": "greedy", "max_tokens": 5},
    "beam alone": {"kind": "beam"},
    "sharp": {"top_p": 1.5, "max_tokens": 2},
}
SPEAKERS = {
    "none": {},
    "policy": {"policy": "half", "task": TOY},
    "unknown": {"policy": "half", "task": "x"},
    "agent": {"agent": "nowhere"},
    "options": {"task": TOY, "options": '{"length": 2}'},
    "another": {"task": "wordle", "agent": "run"},
    "url": {"task": "visdial", "url": "http://a"},
}


def test_ways_to_write_and_tasks_are_those_that_are_asked_for(record: bool) -> None:
    about = {"settings": {"longest_action": 7}, "folder": "run", "task": TOY, "options": {"length": 5}}
    own = {method: {**about, "method": method} for method in ("chai", "ilql_utterance", "ilql")}
    own |= {"short": {**own["ilql"], "settings": {}}, "none": None}
    parts = {}
    for name, way in itertools.product(own, WAYS):
        parts[f"{name} {way}"] = outcome_text(text_setup.decoding_of, Decode(**WAYS[way]), own[name])
    for name, given in SPEAKERS.items():
        speaker = TextSpeaker(**given)
        parts[f"task {name}"] = outcome_text(
            text_setup.named_task, speaker, own["ilql"] if speaker.agent else None
        )
        parts[f"check {name}"] = outcome_text(text_setup.check, speaker)
        parts[f"data {name}"] = outcome_text(recorded_texts.replace_episodes, TextSpeaker(**given, data="x"))
    opened = text_setup.open_setup(TextSpeaker(policy="half", task=TOY, seed=3))
    played = text_episodes.play(opened.task, opened.actor, 3, range(3), 2)
    parts["played"] = json.dumps([opened.plan, *(opened.row(one, 3, False) for one in played)])
    for top_p, most, longest in ((1.0, None, 5), (1.0, 20, 25), (1.0, 20, 4), (2.0, 9, 3)):
        given = Decode(top_p=top_p), "ilql", SimpleNamespace(max_length=most), longest
        parts[f"games {most} {longest}"] = outcome_text(text_rollouts._decoding, *given)
    for design, longest in (("token", 9), ("token", 8), ("mean", 9), ("token", None)):
        model = SimpleNamespace(config=SimpleNamespace(vocab_size=32, max_length=longest))
        network: Any = SimpleNamespace(model=model, design=SimpleNamespace(q=design, v=True))
        decoding = text_setup.decoding_of(Decode(logits=longest is None or longest == 8, max_tokens=7), None)
        parts[f"decoder {design} {longest}"] = outcome_text(AgentDecoder(network).check, decoding)
    for name, task in {"toy": TASK, "reddit": Reddit({}), "visdial": registry.make("visdial", {})}.items():
        found = outcome_text(text_rollouts.require_playable, task, "x")
        parts[f"playable {name}"] = f"{text_rollouts.playable(task)} {found}"
    assert_matches_packed_recording("text_setups", parts, record)
