"""Frozen rewards of the text alone: tables, and likeness to the goal."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from motif_jax import rewards
from motif_jax.core.errors import UserError
from motif_jax.core.sections import Scoring
from motif_jax.core.verdicts import FIRST, NO, YES
from motif_jax.envs.spec import ArraySpec, EnvironmentSpec
from motif_jax.motif.reward.motif import MotifReward
from motif_jax.oni import label_log, word_vectors
from motif_jax.oni.bag_of_words import goal_sentence
from motif_jax.oni.label_queue import Label
from motif_jax.oni.word_vectors import FileVectors, HashedVectors
from motif_jax.play import ratings
from motif_jax.rl.config import AgentReward, agent_reward
from tests.conftest import REPOSITORY
from tests.recorded_outputs import assert_matches_packed_recording, outcome_text
from tests.reward_fixtures import load_config

SPEC = EnvironmentSpec({"message": ArraySpec((256,), "uint8")}, 3, text_field="message")
WORDS = {"kill": (1.0, 0.0, 0.0), "newt": (0.0, 2.0, 0.0), "gold!": (0.0, 0.0, 3.0), "Kill": (0.0, -1.0, 0.0)}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def section(kind, **values):
    config = load_config("train_agent", "").reward
    config.update({"kind": kind, **values})
    return agent_reward(config)


def rows(*texts):
    found = np.zeros((len(texts), 256), np.uint8)
    for row, text in zip(found, texts, strict=True):
        row[: len(text)] = np.frombuffer(text, np.uint8)
    return found


def paid(config, *texts):
    reward = rewards.load_intrinsic(config, SPEC)
    return reward, reward.lookup(rows(*texts)).values


def write_vectors(path, words=WORDS, header=None):
    lines = [header or f"{len(words)} 3", *(f"{word} {' '.join(map(str, v))}" for word, v in words.items())]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def test_a_table_pays_what_it_holds(tmp_path):
    path = tmp_path / "table.json"
    path.write_text(json.dumps({"You kill the newt!": 1, "": -0.5, "Caf\xe9.": 2.25}))
    config = section("table", table=str(path))
    rewards.check(config)
    texts = b"You kill the newt!", b"", b"Caf\xe9.", b"You kill the newt", b"You kill\0 the newt!"
    reward, values = paid(config, *texts)
    np.testing.assert_array_equal(values, np.float32([1, -0.5, 2.25, 0, 1]))
    assert "3 texts" in reward.description


def test_the_labels_of_another_run_are_a_table(tmp_path):
    def write(folder, *labels):
        folder.mkdir()
        log = label_log.LabelLog(folder / label_log.FILE)
        log.add(labels)
        log.close()
        return section("table", table=str(folder))

    labels = Label(("You kill it!",), YES), Label(("",), NO)
    config = write(tmp_path / "single", *labels)
    rewards.check(config)
    np.testing.assert_array_equal(paid(config, b"You kill it!", b"", b"new")[1], np.float32([1, 0, 0]))
    with pytest.raises(UserError, match="its labels compare pairs"):
        rewards.check(write(tmp_path / "pairs", Label(("a", "b"), FIRST)))


def test_vectors_are_read_once_and_looked_up_as_they_are_then_bare(tmp_path, monkeypatch):
    path = write_vectors(tmp_path / "v.vec")
    vectors = FileVectors(path)
    found = {b"kill": "kill", b"Kill": "Kill", b"KILL": "kill", b"newt!": "newt", b"gold!": "gold!"}
    for word, name in found.items():
        np.testing.assert_array_equal(vectors.of(word), np.float32(WORDS[name]))
    assert vectors.of(b"gold") is vectors.of(b"?") is None
    assert isinstance(vectors._vectors, np.memmap)
    with monkeypatch.context() as patched:
        patched.setattr(word_vectors, "_convert", lambda *_: pytest.fail("read twice"))
        np.testing.assert_array_equal(FileVectors(path).of(b"newt"), np.float32(WORDS["newt"]))
    write_vectors(tmp_path / "v.vec", {"newt": (5.0, 5.0, 5.5)})
    np.testing.assert_array_equal(FileVectors(path).of(b"newt"), np.float32([5, 5, 5.5]))


TABLES = [
    json.dumps({"a" * 257: 1}),
    '{"You kill it!": NaN}',
    json.dumps({"a": 10**400}),
    "[1]",
    '{"a": true}',
    '{"\u2603": 1}',
    "{",
    '{"a": 1}',
]
VECTORS = [
    ("words", WORDS),
    ("4 2", WORDS),
    ("3 3", WORDS),
    ("5 3", WORDS),
    ("0 3", WORDS),
    ("4 3 1", WORDS),
    ("1 3", {"a": (1.0, math.nan, 1.0)}),
    ("1 3", {"a": (1.0, "b", 1.0)}),
    ("1 3", {"": (1.0, 1.0, 1.0)}),
    ("4 3", WORDS),
]
BAGS = [
    {"goal": "fame"},
    {"goal": "zeroknowledge"},
    {"goal": ""},
    {"goal": None},
    {"similarity": math.nan},
    {"similarity": 1.0},
]


def test_what_is_no_table_no_vectors_and_no_goal_is_named_and_leaves_nothing(tmp_path, record):
    file, cached = tmp_path / "file", tmp_path / "cache/motif_jax/vectors"
    lines, kept = [], []
    for content in TABLES:
        file.write_text(content)
        lines += [outcome_text(rewards.check, section("table", table=str(file)), folder=tmp_path)]
    for header, words in VECTORS:
        config = section("bag_of_words", vectors=write_vectors(file, words, header))
        lines += [outcome_text(rewards.check, config, folder=tmp_path)]
        kept += [len(list(cached.iterdir()))]
    assert kept == [0] * 9 + [1]
    sections = [section("table", table=path) for path in (None, "", str(tmp_path), "x")]
    sections += [section("bag_of_words", vectors=str(path)) for path in (tmp_path / "nowhere", tmp_path)]
    lines += [outcome_text(rewards.check, config, folder=tmp_path) for config in sections]
    lines += [
        outcome_text(rewards.check, section("bag_of_words", **values), folder=REPOSITORY) for values in BAGS
    ]
    lines += [goal_sentence(goal) for goal in ("defaultgoal", "combat", "gold", "stairs", "find the stairs")]
    zounds = section("bag_of_words", goal="zounds zounds", vectors=str(file))
    lines += [outcome_text(rewards.load_intrinsic, zounds, SPEC, folder=tmp_path)]
    places = "", "a.safetensors", "runs/a"
    lines += [str(MotifReward.files(section("motif", dir=place, step=7))) for place in places]
    silent = EnvironmentSpec({"signal": ArraySpec((5,), "float32")}, 3)
    file.write_text("{}")
    sections = [section(kind, table=str(file)) for kind in ("table", "bag_of_words", "none")]
    lines += [outcome_text(rewards.load_intrinsic, config, silent) for config in sections]
    for kind, values in (
        ("fame", {}),
        ("json:loads", {}),
        ("none", {"intrinsic_coefficient": 0.5}),
        ("none", {"intrinsic_coefficient": 0}),
    ):
        lines += [outcome_text(rewards.check, section(kind, **values))]
    assert_matches_packed_recording("frozen_refusals", {"lines": "\n".join(lines)}, record)


def test_bag_of_words_is_the_cosine_above_its_threshold(tmp_path):
    values = {"vectors": write_vectors(tmp_path / "v.vec"), "goal": "kill kill newt!"}  # (2, 2, 0)
    texts = (b"kill", b"Kill", b"kill newt", b"", b"zounds", b"gold! gold!", b"kill zounds  zounds")
    expected = np.float32([1, -1, 3 / math.sqrt(5), 0, 0, 0, 1]) / math.sqrt(2)
    reward, found = paid(section("bag_of_words", **values), *texts)
    np.testing.assert_allclose(found, np.where(expected > -0.5, expected, 0), rtol=1e-6)
    assert reward.metrics() == {"reward/unknown_tokens": 3 / 10}
    assert "0 of the goal's 3 tokens" in reward.description
    _, found = paid(section("bag_of_words", similarity=0.9, **values), *texts)
    np.testing.assert_allclose(found, np.where(expected > 0.9, expected, 0), rtol=1e-6)


def test_hashed_vectors_know_what_looks_alike():
    vectors = HashedVectors()

    def cosine(one, other):
        a, b = vectors.of(one), vectors.of(other)
        return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))

    # Of <ab>: its runs of three letters, and the whole.
    places = {int(place): float(vectors.of(b"ab")[place]) for place in np.flatnonzero(vectors.of(b"ab"))}
    assert (places, vectors.of(b"ab").shape) == ({288: 1, 308: -1, 904: 1}, (1024,))
    assert cosine(b"kill", b"Kill!") == pytest.approx(1)
    assert cosine(b"killing", b"kill") > 0.3
    assert abs(cosine(b"newt", b"gold")) < 0.1
    assert vectors.of(b"...") is None
    config = section("bag_of_words", goal="kill the newt", similarity=0.2)
    _, values = paid(config, b"You kill the newt!", b"It is dark.")
    assert (values[0] > 0.8, values[1]) == (True, 0)


def test_episodes_of_an_agent_are_rated_by_the_reward_that_it_learned_from(tmp_path):
    (tmp_path / "table.json").write_text('{"You kill the newt!": 2}')
    own = ratings.RatingReward(AgentReward(kind="table", table=str(tmp_path / "table.json")))
    assert rewards.kind_of(own.section).rates(own.section)
    chosen = ratings.choose_reward(Scoring(), own, "the agent")
    assert chosen == own
    assert ratings.LiveRater(chosen, SPEC)(rows(b"You kill the newt!")[0], {}) == (2, 2, 2)
    assert ratings.choose_reward(Scoring(dir=""), own, "the agent") is None
