"""Frozen rewards of the text alone: tables, and likeness to the goal."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest

from motif_jax import rewards
from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import FIRST, NO, YES
from motif_jax.envs.spec import ArraySpec, EnvironmentSpec
from motif_jax.motif.reward.motif import MotifReward
from motif_jax.oni import label_log, word_vectors
from motif_jax.oni.bag_of_words import goal_sentence
from motif_jax.oni.label_queue import Label
from motif_jax.oni.word_vectors import FileVectors, HashedVectors
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
        patched.setattr(word_vectors, "convert", lambda *_: pytest.fail("read twice"))
        np.testing.assert_array_equal(FileVectors(path).of(b"newt"), np.float32(WORDS["newt"]))
    write_vectors(tmp_path / "v.vec", {"newt": (5.0, 5.0, 5.5)})
    np.testing.assert_array_equal(FileVectors(path).of(b"newt"), np.float32([5, 5, 5.5]))


TABLE_REFUSALS = [
    (json.dumps({"a" * 257: 1}), "the message 'aaa.*' has 257 bytes: at most 256 are read"),
    ('{"You kill it!": NaN}', "the reward of 'You kill it!' is nan, a finite number is needed"),
    (json.dumps({"a": 10**400}), r"the reward of 'a' is 10+\.\.\.0+, a finite number is needed"),
    ('{"a": true}', "the reward of 'a' is True, a finite number is needed"),
    ("[1]", "is damaged .*: it must hold an object of texts and numbers"),
    ("{", "is damaged .*: it must hold an object of texts and numbers"),
]
NO_SIZES = "line 1 must hold the number of words and the size of their vectors"
VECTOR_REFUSALS = [
    ("words", WORDS, NO_SIZES),
    ("4 2", WORDS, "line 2 of 5 is not a word and 2 finite numbers"),
    ("3 3", WORDS, "it has more than the 3 words of its first line"),
    ("5 3", WORDS, "line 6 of 6 is not a word and 3 finite numbers"),
    ("0 3", WORDS, NO_SIZES),
    ("4 3 1", WORDS, NO_SIZES),
    ("1 3", {"a": (1.0, math.nan, 1.0)}, "line 2 of 2 is not a word and 3 finite numbers"),
    ("1 3", {"a": (1.0, "b", 1.0)}, "line 2 of 2 is not a word and 3 finite numbers"),
    ("1 3", {"": (1.0, 1.0, 1.0)}, "line 2 of 2 is not a word and 3 finite numbers"),
]
BAG_REFUSALS = [
    (
        {"goal": "fame"},
        "goal=fame: must be one of defaultgoal, zeroknowledge, combat, gold, stairs",
    ),
    (
        {"goal": "zeroknowledge"},
        "goal='zeroknowledge': must be a goal with a sentence, or a sentence of its own",
    ),
    ({"goal": ""}, "goal='': must be a goal of the prompts, or a sentence"),
    ({"goal": None}, "goal=None: must be a goal of the prompts, or a sentence"),
    (
        {"similarity": math.nan},
        "similarity=nan: must be at least -1 and below 1, which no cosine exceeds",
    ),
    ({"similarity": 2}, "similarity=2.*: must be at least -1 and below 1"),
    ({"similarity": 1.0}, "similarity=1.0: must be at least -1 and below 1"),
    ({"similarity": -1.5}, "similarity=-1.5: must be at least -1 and below 1"),
]


@pytest.mark.parametrize(("content", "message"), TABLE_REFUSALS)
def test_a_table_that_cannot_be_paid_is_refused(tmp_path, content, message):
    file = tmp_path / "file"
    file.write_text(content)

    with pytest.raises(UserError, match=f"{file}.*{message}"):
        rewards.check(section("table", table=str(file)))


@pytest.mark.parametrize("table", [None, "", ".", "nowhere"])
def test_a_missing_table_is_refused_with_the_remedy(table):
    remedy = "must be a JSON file of texts .*labels.jsonl: give it with --config.reward.table=FILE"
    with pytest.raises(
        UserError, match=rf"^config\.reward\.table={re.escape(str(table))}: {remedy}"
    ):
        rewards.check(section("table", table=table))


@pytest.mark.parametrize(("header", "words", "message"), VECTOR_REFUSALS)
def test_vectors_that_do_not_fit_their_first_line_leave_nothing(tmp_path, header, words, message):
    file = tmp_path / "file"
    config = section("bag_of_words", vectors=write_vectors(file, words, header))

    with pytest.raises(UserError, match=rf"^config\.reward\.vectors={file}: {message}"):
        rewards.check(config)
    assert not converted(tmp_path)


def test_a_line_of_vectors_without_end_is_not_read_whole(tmp_path):
    """Of 64 GB, which lie on no disk."""
    file = tmp_path / "file"
    with open(file, "wb") as out:
        out.write(b"1 3\na 1 2 ")
        out.truncate(64 << 30)

    with pytest.raises(UserError, match="line 2 of 2 is not a word and 3 finite numbers"):
        rewards.check(section("bag_of_words", vectors=str(file)))


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


@pytest.mark.parametrize(
    ("name", "message"),
    [("nowhere", "No such file or directory"), (".", "must be a text file of word vectors")],
)
def test_vectors_that_are_no_file_are_refused(tmp_path, name, message):
    path = tmp_path / name

    with pytest.raises(UserError, match=rf"^config\.reward\.vectors={path}: {message}"):
        rewards.check(section("bag_of_words", vectors=str(path)))


@pytest.mark.parametrize(("values", "message"), BAG_REFUSALS)
def test_a_goal_without_words_is_refused(values, message):
    with pytest.raises(UserError, match=rf"^config\.reward\.{message}"):
        rewards.check(section("bag_of_words", **values))


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


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (
            "fame",
            {},
            "kind=fame: must be one of motif, bag_of_words, any_text, none, retrieval, table, .*or module:Class",
        ),
        (
            "json:loads",
            {},
            "kind=json:loads: must be a subclass of motif_jax.rl.intrinsic.RewardKind",
        ),
        (
            "none",
            {"intrinsic_coefficient": 0.5},
            "intrinsic_coefficient=0.5: must be 0 with reward.kind='none'",
        ),
    ],
)
def test_a_kind_that_is_none_is_refused(kind, values, message):
    with pytest.raises(UserError, match=rf"^config\.reward\.{message}"):
        rewards.check(section(kind, **values))


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
