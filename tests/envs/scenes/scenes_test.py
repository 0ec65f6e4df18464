"""Synthetic pictures: answers by rules, a guesser that learns from them, the published protocol, and data in the published layout."""

from __future__ import annotations

import json
import urllib.parse

import numpy as np
import pytest

from motif_jax.envs.scenes import files, pictures, talking
from motif_jax.envs.scenes.replies import Replies
from motif_jax.envs.scenes.speaking import Speaker, questioner
from motif_jax.envs.scenes.task import Scenes
from motif_jax.envs.text.contract import interact
from motif_jax.envs.visdial.task import VisDial
from motif_jax.support.errors import UserError

# two red dogs on the left and one green boat in front, in a park
PICTURE = pictures.Picture((0, 0, 0, 1, 0, 6, 2, 0, 2))
CAPTION = "a red dog and something else"
COUNTS = {"train": 12, "val": 60, "test": 3}
POLICY = "informed 0.3, guessing 0.4, careless 0.3"


@pytest.fixture(scope="module")
def speaker():
    return Speaker(files.features(files.draw(1, "val", 200)))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes")
    files.write(folder, COUNTS, 1, POLICY, lambda done: None)
    return folder


def task(made, **options):
    return Scenes({"folder": str(made), "num_val": COUNTS["val"], **options})


@pytest.mark.parametrize("caption", [CAPTION, "a picture with two dogs", "a dog in a park"])
def test_what_else_there_is_was_not_in_the_caption(caption):
    assert talking.answer(PICTURE, "what else is there?", caption) == "a boat"


def test_a_file_of_more_dialogues_is_looked_for_before_anything_is_made():
    task = Scenes({"additional": "/nowhere.parquet"})
    with pytest.raises(
        UserError, match=r"config\.scenes\.additional='/nowhere\.parquet': must be an existing"
    ):
        task.check("recorded", POLICY)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("What colour is the dog?", "red"),
        ("how many dogs are there", "two"),
        ("where are the dogs?", "on the left"),
        ("where is this?", "a park"),
        ("what else is there?", "a boat"),
        ("is the dog red?", "yes"),
        ("is the dog blue?", "no"),
        ("are there two dogs?", "yes, there are"),
        ("are there three dogs?", "no, not that many"),
        ("is the boat on the front?", "it looks like it"),
        ("is there a cat?", "no"),
        ("is it in a kitchen?", "no"),
        ("what colour is the cat?", talking.UNCLEAR),
        ("what time is it?", talking.UNCLEAR),
        ("<s> 犬 </a>", talking.UNCLEAR),
        ("", talking.UNCLEAR),
    ],
)
def test_answers_go_by_rules(question, answer):
    assert talking.answer(PICTURE, question, CAPTION) == answer


def test_a_picture_is_seen_in_its_features():
    for row, picture in enumerate(files.draw(3, "train", 20)):
        assert pictures.seen(picture.features() / np.linalg.norm(picture.features())) == picture, row
        assert picture.word(pictures.block(0, pictures.KIND)) != picture.word(
            pictures.block(1, pictures.KIND)
        )
    with pytest.raises(ValueError, match="finite numbers"):
        pictures.seen(np.zeros(3))


def test_the_rank_rises_with_what_was_said(speaker):
    """Over many pictures: what is told raises the rank; what tells nothing, or is said again, leaves it."""
    values = []
    for picture in files.draw(2, "train", 60):
        caption, features, history, row = pictures.caption(picture, 0), picture.features(), [], []
        row.append(speaker.value([], caption, features))
        kinds = [picture.word(pictures.block(group, pictures.KIND)) for group in (0, 1)]
        questions = ["where is this?", "what else is there?"]
        questions += [
            f"{what} the {kind}?" for kind in kinds for what in ("what colour is", "where is", "how many are")
        ]
        for question in (*questions, questions[0], "what time is it?"):
            history.append({"speaker": "question", "text": question})
            answer, change = speaker.step(history, caption, features)
            history.append({"speaker": "answer", "text": answer})
            assert change == speaker.value(history, caption, features)
            row.append(change)
        assert row[-2:] == [0.0, 0.0]
        values.append(row)
    changes = np.array(values)
    ranks = changes.cumsum(axis=1)
    assert ((ranks >= 0) & (ranks <= 1)).all()
    assert ranks[:, 0].mean() < 0.9 < 0.97 < ranks[:, -1].min()
    assert (changes.mean(axis=0)[1:4] > 0).all()


def test_no_to_a_question_tells_too():
    belief = talking.Belief("a picture with a dog")
    belief.hear("is the dog red?", "no")
    colours = belief.expected()[pictures.STARTS[2] : pictures.STARTS[3]]
    assert colours[0] == 0
    assert (colours[1:] > 0).all()
    assert colours.sum() == pytest.approx(1)


def ask(replies, route, **fields):
    body = urllib.parse.urlencode(
        {key: value if isinstance(value, str) else json.dumps(value) for key, value in fields.items()}
    )
    return replies.handle("POST", route, body.encode())


def test_the_published_protocol(speaker):
    replies, features = Replies(speaker), PICTURE.features().tolist()
    history = [{"speaker": "question", "text": "what colour is the dog?"}]
    about = {"caption": "a picture with a dog", "img_features": features}
    status, (answer, change) = ask(replies, "/step_rank", history=history, **about)
    assert (status, answer) == (200, "red")
    assert ask(replies, "/fetch_a_bot_response", history=history, **about) == (200, "red")
    told = [*history, {"speaker": "answer", "text": "red"}]
    assert ask(replies, "/fetch_reward_rank", history=told, **about) == (200, change)
    first = ask(replies, "/fetch_reward_rank", history=[], **about)[1]
    assert 0 <= first <= 1
    assert (
        ask(replies, "/step", history=history, **about)[1][1]
        == ask(replies, "/fetch_reward", history=told, **about)[1]
        > 0
    )
    status, question = ask(replies, "/fetch_q_bot_response", history=told, caption=about["caption"])
    assert status == 200
    assert question.endswith("?")
    for route, fields, code in (
        ("/other", {}, 404),
        ("/step_rank", {"history": "x", **about}, 400),
        ("/step_rank", {"history": [], **about}, 400),
        ("/step_rank", {"history": [1], **about}, 400),
        ("/step_rank", about, 400),
        ("/step_rank", {"history": history, "caption": "c", "img_features": [1]}, 400),
        ("/fetch_reward", {"history": {"a": 1}, **about}, 400),
    ):
        assert ask(replies, route, **fields)[0] == code, (route, fields)
    assert replies.handle("GET", "/step", b"")[0] == 405


def test_data_in_the_published_layout(made):
    scenes = task(made)
    scenes.check("recorded", POLICY)
    assert scenes.count("recorded") == 12
    assert len(scenes.features) == 12
    published = VisDial(
        {
            "data": str(made / "visdial_0.5_train.json"),
            "features": str(made / "data_img.h5"),
            "reward_cache": str(made / "train_rank_reward_cache1.json"),
            "percentile": 0.9,
        }
    )
    drawn = [each.stream("recorded", "").sample(np.random.default_rng(0), 12) for each in (scenes, published)]
    assert list(drawn[0]) == list(drawn[1])
    assert all(len(scene.answers) == 10 for scene in scenes.scenes)


def test_a_cache_made_anew_is_the_same(made, tmp_path):
    scenes = task(made)
    valued = scenes.stream("reward_cache", "").sample(np.random.default_rng(0), 12)
    cache = json.loads((made / "train_rank_reward_cache1.json").read_text())
    assert [dialogue.meta["values"] for dialogue in valued] == cache
    from motif_jax.datasets.dialogues import parquet

    parquet.write(tmp_path / "dialogues.parquet", [valued], {})
    scenes.finish("reward_cache", tmp_path)
    assert json.loads((tmp_path / "reward_cache.json").read_text()) == cache


def test_what_is_half_written_is_completed(made, tmp_path):
    files.write(tmp_path, COUNTS, 1, POLICY, lambda done: None)
    (tmp_path / "val_rank_reward_cache1.json").unlink()
    (tmp_path / "visdial_0.5_val.json").write_text("[")
    files.write(tmp_path, COUNTS, 1, POLICY, lambda done: None)
    for name in ("visdial_0.5_val.json", "val_rank_reward_cache1.json", "visdial_0.5_train.json"):
        assert (tmp_path / name).read_bytes() == (made / name).read_bytes()


def test_asking_well_pays(made):
    def mean(policy):
        scenes = task(made, split="val", yes_no="hard")
        environment, rng = scenes.environment(), np.random.default_rng(0)
        asker = scenes.policy(policy)
        return np.mean([interact(environment, asker, rng).observation.to_sequence().total for _ in range(60)])

    assert mean("informed") > mean(POLICY) + 2 > mean("guessing") + 2
    assert mean("remote") > mean(POLICY) + 2


@pytest.mark.parametrize(
    "policy", ["best", "", "informed 0.5", "informed 0.5, informed 0.5", "informed 0.5, guessing x"]
)
def test_no_questioner(policy):
    with pytest.raises(UserError, match=r"config\.policy="):
        questioner(policy)


def test_probabilities_of_few_digits_are_drawn_from():
    asker = questioner("informed 0.3333333, guessing 0.3333333, careless 0.3333333")
    assert asker.ask("a street.", [], np.random.default_rng(0))


@pytest.mark.parametrize(("option", "value"), [("num_val", 0), ("num_train", 1.5), ("folder", "nowhere")])
def test_values_that_are_not_allowed(option, value):
    with pytest.raises(UserError, match=rf"config\.scenes.{option}="):
        Scenes({option: value})
