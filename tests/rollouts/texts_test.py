"""What is counted, ranked and collected of dialogues is what was recorded."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from docs.examples import backwards
from motif_jax.datasets.dialogues import parquet
from motif_jax.datasets.dialogues.dialogue import Dialogue, Dialogues
from motif_jax.datasets.dialogues.items import tokenise
from motif_jax.datasets.dialogues.token_rewards import constant
from motif_jax.envs.reddit.task import Reddit
from motif_jax.envs.text import file_tokens, registry
from motif_jax.labels.store import StoredAnswer
from motif_jax.language.decoding import TokenFacts
from motif_jax.rollouts import (
    dialogues,
    recorded_texts,
    text_episodes,
    text_rollouts,
    text_scores,
    text_setup,
    text_sources,
    text_values,
)
from motif_jax.rollouts.text_episodes import PlayedText, TextAction
from motif_jax.sections import Decode
from motif_jax.sections.played_texts import TextSpeaker
from motif_jax.support.errors import UserError
from motif_jax.support.interruption import StoppedError
from motif_jax.trainers.dialogue_batches import ItemLayout
from tests import toy_text
from tests.recorded_outputs import compared, of_folder, replaced, shown_array
from tests.rollouts.told import StopsAfter, Told, jobs_here

TOY = "tests.toy_text:Task"
TASK = registry.make(TOY, {"length": 4})


def said(work: Any) -> str:
    try:
        return str(work())
    except (UserError, StoppedError, ValueError) as error:
        return f"{type(error).__name__} {error}"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    progress = Told()
    for module in (dialogues, text_sources):
        monkeypatch.setattr(module, "Progress", progress)
    monkeypatch.setattr(dialogues, "run_jobs", jobs_here)
    return progress


def valued() -> list[text_values.ValuedDialogue]:
    """Dialogues with made-up values; one has no action."""
    draws, found = np.random.default_rng(3), []
    for number, (texts, rewards) in enumerate(
        [
            (("abc", "ca", "b", "ca"), (None, 1.0, None, -0.5)), (("ca", "bb", "ca"), (0.25, 0.5, 2.0)), (("c",), (None,)),
            (("abc", "a", "b", "bca"), (None, 1.0, None, 3.0)),
        ]
    ):  # fmt: skip
        meta = {
            "kind": ("expert", "other", "expert", "other")[number],
            "group": number // 2 % 2 * 7,
            "start": 1,
        }
        dialogue = Dialogue(texts, rewards, number != 1, meta if number != 2 else {"kind": "expert"})
        item = tokenise(dialogue, TASK.tokenizer(), constant(0.0))
        numbers = draws.normal(size=(4, len(item.action_indices))).astype(np.float32)
        found.append(text_values.ValuedDialogue(dialogue, item, text_values.ActionValues(*numbers)))
    return found


def test_values_of_dialogues_are_ranked_and_shown(record: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    each, tokenizer = valued(), TASK.tokenizer()
    expert = {"kind": "expert", "group": 0}
    metas = [
        expert,
        {**expert, "kind": "x", "start": 1},
        {**expert, "kind": "y", "start": 0},
        {"kind": "x", "start": 0},
    ]
    metas += [{**expert, "kind": "x", "start": start} for start in (2, -1, True)] + [
        {**expert, "group": 1},
        {**expert, "kind": 3},
    ]
    pairs = text_values.pairs_of(
        Dialogues.of([Dialogue(("a", "b"), (1.0, 2.0), True, meta) for meta in metas])
    )
    parts = {
        "spans": [one.spans for one in each], "utterances": text_values.utterances(each), "pairs": pairs,
        "runs": [text_values.n_grams(each, tokenizer, n) for n in (1, 2)],
        "accuracy": text_values.ranking_accuracy(each, [text_values.Pair(1, 0, 1, "x"), text_values.Pair(3, 1, 0, "y"), text_values.Pair(1, 3, 1, "x")]),
    }  # fmt: skip
    saved = SimpleNamespace(tokenizer=tokenizer)
    monkeypatch.setattr(
        text_values,
        "values_of",
        lambda _, chosen: [one for one in each if any(one.dialogue.texts == other.texts for other in chosen)],
    )
    everyone = Dialogues.of([one.dialogue for one in each])
    parts["rows"] = list(recorded_texts.rows(saved, everyone, [0, 1, 3], 2))
    each[:] = [one._replace(values=one.values._replace(q=None, target_q=None, v=None)) for one in each]
    parts["policy alone"] = list(recorded_texts.rows(saved, everyone, [0, 1], 1))
    network = SimpleNamespace(model=SimpleNamespace(config=SimpleNamespace(max_length=None)))
    for longest in (None, *range(9, 15)):
        network.model.config.max_length = longest
        parts[f"fit {longest}"] = said(lambda: text_values.require_fit(network, tokenizer, everyone, "data"))
    strange = Dialogues.of([each[0].dialogue, Dialogue(("A",), (1.0,), True)])
    parts["unfit"] = said(lambda: text_values.require_fit(network, tokenizer, strange, "data"))
    parts["bounds"] = [
        text_rollouts._rounded(length, most) for length in (1, 8, 9, 65, 100, 129) for most in (None, 10, 104)
    ]
    compared("valued_dialogues", {name: str(part) for name, part in parts.items()}, record)


def test_episodes_become_batches(record: bool) -> None:
    draws, played = np.random.default_rng(5), []
    for one in valued():
        tokens = [one.item.tokens[one.item.action_indices + 1][span] for span in one.spans]
        facts = [TokenFacts(*draws.normal(size=(6, len(each))).astype(np.float32)) for each in tokens]
        actions = [TextAction("", *each) for each in zip(tokens, facts, strict=True)]
        played.append(PlayedText(0, one.dialogue, tuple(actions)))
    parts = {}
    for most in (None, 9):
        layout = ItemLayout(TASK.tokenizer().delimiters.pad, max_len=most)
        batch = text_rollouts.batch_of(played[:2] + played[3:], TASK.tokenizer(), layout, constant(0.125))
        fields = {**batch._asdict(), **batch._asdict().pop("batch", batch[0])._asdict()}
        parts[f"most {most}"] = "\n".join(
            f"{name} {shown_array(field)}" for name, field in fields.items() if isinstance(field, np.ndarray)
        )
    actor = text_episodes.PolicyTextActor(TASK.policy("half"), 3)
    for episodes, threads, times in ((range(5), 1, 9), ([1, 4, 2], 2, 9), (range(5), 1, 4)):
        found = text_episodes.play(TASK, actor, 7, episodes, 2, threads, StopsAfter(times))
        parts[f"{episodes} {times}"] = "\n".join(map(str, found))
    compared("text_episodes", parts, record)


def test_dialogues_are_collected_and_go_on_after_a_stop(
    tmp_path: Path, told: Told, record: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def collected(folder: Path, times: int) -> bool:
        plan = dialogues.DialoguePlan(TOY, {"length": 4}, "games", "half", 3, 11, 4, str(folder / ".staging"))
        stop = StopsAfter(times)
        return dialogues.collect(
            plan, folder, {"about": 1}, 1, stop, lambda folder: told.log(f"finish {folder.name}")
        )

    assert collected(tmp_path / "whole", 9)
    assert not collected(tmp_path / "other", 2)
    assert collected(tmp_path / "other", 9)
    texts = [of_folder(tmp_path / name, {}) for name in ("whole", "other")]
    assert texts[0] == texts[1]
    monkeypatch.setattr(toy_text.Task, "count", lambda self, kind: 130)
    parts, listed = {**texts[0]}, (TOY, {"length": 2}, "games", "half", tmp_path)
    parts["stopped"] = said(lambda: text_sources.listed(*listed, StopsAfter(1).stopped))
    assert (
        text_sources.listed(*listed)
        == text_sources.listed(*listed, StopsAfter(0).stopped)
        == tmp_path / dialogues.DIALOGUES
    )
    parts["listed"] = str(Dialogues.of(parquet.read(tmp_path / dialogues.DIALOGUES)).returns().tolist())
    monkeypatch.setattr(text_sources, "_DIALOGUES", 300)
    for count, times in ((None, 9), (130, 9), (None, 1)):
        found = said(
            lambda count=count, times=times: [
                *text_sources._texts(TASK.stream("games", "half"), count, 3, StopsAfter(times).stopped)
            ]
        )
        parts[f"texts {count} {times}"] = f"{len(found)} {found[-300:]}"
    small, learned = (backwards.Task({"vocab_size": size}) for size in (200, 300))
    parts["small"] = said(lambda: text_sources.require_size(small))
    options = text_sources.with_tokenizer(learned, "games", "half", tmp_path, 3, StopsAfter(9).stopped)
    assert options == {"length": 3, "vocab_size": 300, "tokenizer": str(tmp_path)}
    parts["pieces"] = (tmp_path / file_tokens.FILE).read_text()
    parts["made"] = str(
        [
            text_sources.made(given, tmp_path)
            for given in (
                {},
                {"scores": "x"},
                {"scores": str(tmp_path / "scores.json"), "folder": "x", "tokenizer": "y"},
            )
        ]
    )
    assert text_sources.prepared(TOY, {"length": 2}, "games", "half", tmp_path, 3) == {"length": 2}
    compared("collected_dialogues", {**parts, "told": str(told)}, record)


def test_ways_to_write_and_tasks_are_those_that_are_asked_for(record: bool, tmp_path: Path) -> None:
    about = {
        "method": "ilql",
        "settings": {"longest_action": 7},
        "folder": "run",
        "task": TOY,
        "options": {"length": 5},
    }
    own = {method: {**about, "method": method} for method in ("chai", "ilql_utterance", "ilql")} | {
        "short": {**about, "settings": {}},
        "none": None,
    }
    ways = {
        "as it is": {},
        "beam": {"kind": "beam", "width": 3},
        "greedy": {"kind": "greedy", "max_tokens": 5},
        "beam alone": {"kind": "beam"},
        "sharp": {"top_p": 1.5, "max_tokens": 2},
    }
    parts = {
        f"{name} {way}": said(
            lambda way=ways[way], each=own[name]: text_setup.decoding_of(Decode(**way), each)
        )
        for name in own
        for way in ways
    }
    speakers = {"none": {}, "policy": {"policy": "half", "task": TOY}, "unknown": {"policy": "half", "task": "x"}, "options": {"task": TOY, "options": '{"length": 2}'},
        "wrong": {"task": TOY, "options": '{"size": 2}'}, "another": {"task": "wordle", "agent": "run"}, "agent": {"agent": "nowhere"}, "url": {"task": "visdial", "url": "http://a"}}  # fmt: skip
    for name, given in speakers.items():
        speaker = TextSpeaker(**given)
        parts[f"task {name}"] = said(
            lambda one=speaker: text_setup.named_task(one, about if one.agent else None)
        )
        parts[f"check {name}"] = said(lambda one=speaker: text_setup.check(one))
        parts[f"data {name}"] = said(
            lambda one=speaker: recorded_texts.wanted(dataclasses.replace(one, data="x"))
        )
    opened = text_setup.open_setup(TextSpeaker(policy="half", task=TOY, seed=3))
    parts["plan"] = str(opened.plan)
    parts["played"] = json.dumps(
        [opened.row(one, 3, False) for one in text_episodes.play(opened.task, opened.actor, 3, range(3), 2)]
    )
    for most, longest in ((None, 5), (20, 25), (20, 4)):
        config = SimpleNamespace(max_length=most)
        parts[f"games {most} {longest}"] = said(
            lambda c=config, n=longest: text_rollouts._decoding(Decode(), "ilql", c, n)
        )
    parts["games wrong"] = said(
        lambda: text_rollouts._decoding(
            Decode(kind="beam", top_p=2.0), "ilql", SimpleNamespace(max_length=9), 3
        )
    )
    tasks = {"toy": TASK, "reddit": Reddit({}), "visdial": registry.make("visdial", {})}
    parts |= {
        f"playable {name}": said(lambda task=task: text_rollouts.require_playable(task, "x"))
        for name, task in tasks.items()
    }
    compared("text_setups", parts, record)


def test_replies_are_scored_as_they_were(
    tmp_path: Path, record: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"rude": (0.5, 0.51, 0.9, 0.2), "toxic": (0.9, 0.7, 0.702, 0.5)}
    parts = {"labels": str([text_scores.toxicity_label(*pair) for pair in zip(*given.values(), strict=True)])}
    for name, options in {
        "lexicon": {},
        "vllm": {"annotator": "vllm", "model": "m"},
        "openai": {"annotator": "openai", "server": "http://a", "model": "m", "prompt": "p.yaml"},
        "upvote": {"reward": "upvote_model", "upvote_run": "nowhere"},
    }.items():
        task = said(
            lambda options=options: vars(text_scores.annotator_config(Reddit(options).options, "rude"))
        )
        parts[name] = replaced(task, {Path(text_scores.FOLDER): "PROMPTS"})
        parts[f"{name} plays"] = said(lambda options=options: text_scores.check(Reddit(options), True))
    parts["unknown"] = said(
        lambda: text_scores._share("rude", StoredAnswer(text_scores.UNKNOWN, None), "x" * 50)
    )
    folder = tmp_path / "upvote"
    parts["nowhere"] = said(lambda: text_scores._upvote_folder({"upvote_run": "nowhere"}))
    for place in (folder, folder / "model"):
        place.mkdir()
        (place / "heads.json").touch()
        assert text_scores._upvote_folder({"upvote_run": str(folder)}) == place
    reports: list[Any] = []
    task = text_scores.attach(Reddit({"store": str(tmp_path / "store")}))
    monkeypatch.setattr(type(task), "known_scores", lambda self: {"known": 2.0})
    replies = ["thanks", "you idiot", "x" * (text_scores.MOST_CHARACTERS + 1), "thanks"]
    path = text_scores.write(task, replies, tmp_path / "scores", reports.append)
    parts |= {"file": path.read_text(), "reports": str(reports), "path": path.name}
    monkeypatch.setattr(text_scores, "_make", lambda task: lambda texts: [len(text) for text in texts])
    monkeypatch.setattr(text_scores, "_TOGETHER", 2)
    parts["others"] = text_scores.write(task, replies[:3], tmp_path / "scores", reports.append).read_text()
    parts["stopped"] = said(
        lambda: text_scores.write(task, replies, tmp_path, reports.append, StopsAfter(1).stopped)
    )
    compared("text_scores", {**parts, "all reports": str(reports)}, record)
