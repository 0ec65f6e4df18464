"""Frozen rewards of the text alone: tables, and likeness to the goal."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from motif_jax import rewards
from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import FIRST, NO, YES
from motif_jax.envs.spec import ArraySpec, EnvironmentSpec
from motif_jax.motif.reward.motif import MotifReward
from motif_jax.oni import bag_of_words, label_log
from motif_jax.oni.bag_of_words import FileVectors, HashedVectors, goal_sentence
from motif_jax.oni.label_queue import Label
from motif_jax.play import ratings
from motif_jax.rl.config import AgentReward, agent_reward
from motif_jax.rl.reward_keys import Scoring
from tests.reward_fixtures import load_config

SPEC = EnvironmentSpec({"message": ArraySpec((256,), "uint8")}, 3, text_field="message")
WORDS = {
    "kill": (1.0, 0.0, 0.0),
    "newt": (0.0, 2.0, 0.0),
    "gold!": (0.0, 0.0, 3.0),
    "Kill": (0.0, -1.0, 0.0),
}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def section(kind, **values):
    config = load_config("train_agent", "").reward
    config.update({"kind": kind, **values})
    return agent_reward(config)


def rows(*texts):
    messages = np.zeros((len(texts), 256), np.uint8)
    for row, text in zip(messages, texts, strict=True):
        row[: len(text)] = np.frombuffer(text, np.uint8)
    return messages


def paid(config, *texts):
    reward = rewards.load_intrinsic(config, SPEC)
    return reward, reward.lookup(rows(*texts)).values


def converted(folder):
    """The folders of arrays in the cache, without its lock files."""
    return [path for path in (folder / "cache/motif_jax/vectors").iterdir() if path.is_dir()]


def write_vectors(path, words=WORDS, header=None):
    lines = [
        header or f"{len(words)} 3",
        *(f"{word} {' '.join(map(str, v))}" for word, v in words.items()),
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def test_a_table_pays_what_it_holds(tmp_path):
    path = tmp_path / "table.json"
    path.write_text(json.dumps({"You kill the newt!": 1, "": -0.5, "Café.": 2.25}))
    config = section("table", table=str(path))
    rewards.check(config)
    texts = (
        b"You kill the newt!",
        b"",
        "Café.".encode(),
        b"You kill the newt",
        b"You kill\0 the newt!",
    )
    reward, values = paid(config, *texts)
    np.testing.assert_array_equal(values, np.float32([1, -0.5, 2.25, 0, 1]))
    assert "3 texts" in reward.description


def test_any_text_is_paid_alike_and_silence_not():
    config = section("any_text")
    rewards.check(config)
    _, values = paid(config, b"You kill the newt!", b"", b"It's a wall.")
    np.testing.assert_array_equal(values, np.float32([1, 0, 1]))


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
    np.testing.assert_array_equal(
        paid(config, b"You kill it!", b"", b"new")[1], np.float32([1, 0, 0])
    )
    with pytest.raises(UserError, match="its labels compare pairs"):
        rewards.check(write(tmp_path / "pairs", Label(("a", "b"), FIRST)))


def test_a_table_knows_texts_that_are_no_utf8(tmp_path):
    """As the labels of a run do, whose texts become longer than 256 bytes."""
    letters = b"\xe9" * 200
    log = label_log.LabelLog(tmp_path / label_log.FILE)
    log.add([Label(("Ol\xe9.",), YES), Label((letters.decode("latin-1"),), YES)])
    log.close()
    (tmp_path / "table.json").write_text('{"Ol\xe9.": 2}', encoding="utf-8")

    of_run, of_file = (
        paid(section("table", table=str(path)), b"Ol\xe9.", "Ol\xe9.".encode(), letters)[1].tolist()
        for path in (tmp_path, tmp_path / "table.json")
    )

    assert (of_run, of_file) == ([1, 1, 1], [2, 2, 0])


def test_vectors_are_read_once_and_looked_up_exactly_first(tmp_path, monkeypatch):
    path = write_vectors(tmp_path / "v.vec")
    vectors = FileVectors(path)
    entry_of_word = {
        b"kill": "kill",
        b"Kill": "Kill",
        b"KILL": "kill",
        b"newt!": "newt",
        b"gold!": "gold!",
    }
    for word, name in entry_of_word.items():
        np.testing.assert_array_equal(vectors.of(word), np.float32(WORDS[name]))
    assert vectors.of(b"gold") is vectors.of(b"?") is None
    assert isinstance(vectors.of(b"kill").base, np.memmap)
    with monkeypatch.context() as patched:
        patched.setattr(bag_of_words, "convert", lambda *_: pytest.fail("read twice"))
        np.testing.assert_array_equal(FileVectors(path).of(b"newt"), np.float32(WORDS["newt"]))
    write_vectors(tmp_path / "v.vec", {"newt": (5.0, 5.0, 5.5)})
    np.testing.assert_array_equal(FileVectors(path).of(b"newt"), np.float32([5, 5, 5.5]))


def test_vectors_that_fit_are_converted_once(tmp_path):
    rewards.check(section("bag_of_words", vectors=write_vectors(tmp_path / "file")))

    assert len(converted(tmp_path)) == 1


def test_what_a_killed_conversion_left_is_removed(tmp_path):
    path = write_vectors(tmp_path / "file")
    FileVectors(path)
    (folder,) = converted(tmp_path)
    # As a kill in the middle leaves it.
    folder.rename(folder.with_name(f"{folder.name}.partial"))
    FileVectors(path)
    assert converted(tmp_path) == [folder]


def test_a_goal_is_the_prompts_sentence_or_the_users():
    assert "gold is picked up" in goal_sentence("gold")
    assert "stairs leading down" in goal_sentence("stairs")
    assert goal_sentence("find the stairs") == "find the stairs"


def test_a_goal_of_unknown_words_is_refused(tmp_path):
    config = section("bag_of_words", goal="zounds zounds", vectors=write_vectors(tmp_path / "file"))

    with pytest.raises(UserError, match="goal=zounds zounds: none of its words has a vector in"):
        rewards.load_intrinsic(config, SPEC)


@pytest.mark.parametrize(
    ("folder", "files"),
    [
        ("", []),
        ("a.safetensors", ["a.safetensors"]),
        ("runs/a", ["runs/a/checkpoints/7/id.json"]),
    ],
)
def test_a_trained_reward_is_known_by_its_file_or_evaluation(folder, files):
    assert [str(path) for path in MotifReward.files(section("motif", dir=folder, step=7))] == files


@pytest.mark.parametrize("kind", ["any_text", "table", "bag_of_words"])
def test_a_reward_of_texts_needs_an_environment_with_texts(tmp_path, kind):
    silent = EnvironmentSpec({"signal": ArraySpec((5,), "float32")}, 3)
    (tmp_path / "file").write_text("{}")

    with pytest.raises(UserError, match=f"kind={kind}: the environment shows no text to reward"):
        rewards.load_intrinsic(section(kind, table=str(tmp_path / "file")), silent)


def test_no_reward_needs_no_text():
    silent = EnvironmentSpec({"signal": ArraySpec((5,), "float32")}, 3)

    assert rewards.load_intrinsic(section("none"), silent) is None


def test_bag_of_words_is_the_cosine_above_its_threshold(tmp_path):
    values = {"vectors": write_vectors(tmp_path / "v.vec"), "goal": "kill kill newt!"}  # (2, 2, 0)
    texts = (b"kill", b"Kill", b"kill newt", b"", b"zounds", b"gold! gold!", b"kill zounds  zounds")
    expected = np.float32([1, -1, 3 / math.sqrt(5), 0, 0, 0, 1]) / math.sqrt(2)
    reward, values_paid = paid(section("bag_of_words", **values), *texts)
    np.testing.assert_allclose(values_paid, np.where(expected > -0.5, expected, 0), rtol=1e-6)
    assert reward.metrics() == {"reward/unknown_tokens": 3 / 10}
    assert "0 of the goal's 3 tokens" in reward.description
    _, values_paid = paid(section("bag_of_words", similarity=0.9, **values), *texts)
    np.testing.assert_allclose(values_paid, np.where(expected > 0.9, expected, 0), rtol=1e-6)


def test_hashed_vectors_know_what_looks_alike():
    vectors = HashedVectors()

    def cosine(one, other):
        a = vectors.of(one)
        b = vectors.of(other)
        return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))

    # Of <ab>: its runs of three letters, and the whole.
    places = {
        int(index): float(vectors.of(b"ab")[index]) for index in np.flatnonzero(vectors.of(b"ab"))
    }
    assert (places, vectors.of(b"ab").shape) == ({288: 1, 308: -1, 904: 1}, (1024,))
    assert cosine(b"kill", b"Kill!") == pytest.approx(1)
    assert cosine(b"killing", b"kill") > 0.3
    assert abs(cosine(b"newt", b"gold")) < 0.1
    assert vectors.of(b"...") is None
    config = section("bag_of_words", goal="kill the newt", similarity=0.2)
    _, values = paid(config, b"You kill the newt!", b"It is dark.")
    assert (values[0] > 0.8, values[1]) == (True, 0)


def test_an_agents_episodes_are_rated_by_its_training_reward(tmp_path):
    (tmp_path / "table.json").write_text('{"You kill the newt!": 2}')
    agents_reward = ratings.RatingReward(
        AgentReward(kind="table", table=str(tmp_path / "table.json"))
    )
    assert rewards.kind_of(agents_reward.section).rates(agents_reward.section)
    chosen = ratings.choose_reward(Scoring(), agents_reward, "the agent")
    assert chosen == agents_reward
    assert ratings.LiveRater(chosen, SPEC)(rows(b"You kill the newt!")[0], {}) == (2, 2, 2)
    assert ratings.choose_reward(Scoring(dir=""), agents_reward, "the agent") is None
