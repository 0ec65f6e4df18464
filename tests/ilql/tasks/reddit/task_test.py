from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.ilql.agent.decoding import Decoding
from motif_jax.ilql.dialogues.dialogue import Dialogue
from motif_jax.ilql.tasks.contract import interact
from motif_jax.ilql.tasks.reddit import made_up
from motif_jax.ilql.tasks.reddit.data import FILES
from motif_jax.ilql.tasks.reddit.task import Reddit
from tests.ilql.tasks.reddit.conftest import ROWS, SCORES, recorded, returns, write


def test_a_recorded_reply_is_the_action_after_its_parent(options):
    dialogues = recorded(options)

    assert dialogues == [
        Dialogue((parent, text), (None, float(SCORES[text])), True) for text, _, parent in ROWS
    ]


def test_a_hidden_parent_is_left_out(options):
    dialogues = recorded({**options, "include_parent": False})

    assert [dialogue.texts for dialogue in dialogues] == [(text,) for text, _, _ in ROWS]


def test_rewards_are_scaled_then_shifted(options):
    assert returns({**options, "reward_scale": -5.0, "reward_shift": 1.0}) == [
        1.0,
        -4.0,
        -9.0,
        -4.0,
        -4.0,
    ]


def test_replies_with_rewards_below_the_cutoff_are_left_out(options):
    assert returns({**options, "reward_scale": -1.0, "cutoff": -1.0}) == [0.0, -1.0, -1.0, -1.0]


def test_an_index_that_would_count_from_the_end_is_refused(tmp_path, options):
    (tmp_path / "rows.json").write_text("[-1]")
    with pytest.raises(UserError, match="whole numbers from 0"):
        recorded({**options, "indexes": str(tmp_path / "rows.json")})


def test_a_sign_of_advantages_needs_a_weight_below_1():
    with pytest.raises(UserError, match=r"decode\.advantage_weight"):
        Decoding(advantage_form="sign", advantage_weight=16.0)


def test_indexes_choose_rows_in_their_order(tmp_path, options):
    (tmp_path / "rows.json").write_text("[4, 0, 2]")

    dialogues = recorded({**options, "indexes": str(tmp_path / "rows.json")})

    assert [dialogue.texts for dialogue in dialogues] == [
        (ROWS[row][2], ROWS[row][0]) for row in (4, 0, 2)
    ]


def test_upvotes_are_the_sign_of_a_comment_s_score(options):
    of_seeds = [returns({**options, "reward": "upvote", "noise_seed": seed}) for seed in range(6)]

    for rewards in of_seeds:
        # 'same words' has a liked comment and one that is not, of which the seed draws one for
        # both.
        assert (rewards[0], rewards[2], rewards[3]) == (1.0, -1.0, -1.0)
        assert rewards[1] == rewards[4]
    assert {rewards[1] for rewards in of_seeds} == {1.0, -1.0}


def test_noised_toxicity_draws_rude_texts_as_friendly_or_toxic(options):
    of_seeds = [
        returns({**options, "reward": "toxicity_noised", "noise_seed": seed}) for seed in range(6)
    ]

    for rewards in of_seeds:
        assert (rewards[0], rewards[2]) == (0.0, 2.0)
        assert rewards[1] == rewards[4]
    assert {rewards[1] for rewards in of_seeds} == {0.0, 2.0}
    assert {rewards[3] for rewards in of_seeds} == {0.0, 2.0}


@pytest.mark.parametrize(("zero_one", "disliked"), [(True, 0.0), (False, -1.0)])
def test_a_model_likes_what_it_expects_by_half_or_more(tmp_path, options, zero_one, disliked):
    probabilities = dict(zip(SCORES, (0.9, 0.5, 0.49, 0.0), strict=True))
    (tmp_path / "liked.json").write_text(json.dumps(probabilities))
    liked = {"reward": "upvote_model", "scores": str(tmp_path / "liked.json"), "zero_one": zero_one}

    assert returns({**options, **liked}) == [1.0, 1.0, disliked, disliked, 1.0]


def test_recorded_comments_are_counted_and_games_are_endless(options):
    task = Reddit(options)

    assert task.count("recorded") == 5
    assert task.count("games") is None
    assert [task.endless(kind) for kind in task.kinds] == [False, True]
    assert [task.dialogues_per_draw(kind) for kind in task.kinds] == [1024, 64]


def test_made_up_comments_are_counted_before_they_exist():
    assert Reddit({"num_comments": 7}).count("recorded") == 7


def test_a_cutoff_counts_all_comments_until_they_have_scores(options):
    task = Reddit({**options, "scores": "", "cutoff": 1.0})
    assert task.count("recorded") == 5

    task.use_scorer(lambda texts: [SCORES[text] for text in texts])

    assert task.count("recorded") == 4


def test_files_of_the_task_have_the_models_weights(tmp_path, options):
    (tmp_path / "model").mkdir()
    for name in ("model/a.safetensors", "b.safetensors", "c.txt"):
        (tmp_path / name).touch()

    files = Reddit({**options, "upvote_run": str(tmp_path)}).files()

    assert files == {
        "scores": tmp_path / "scores.json",
        "folder (comments_positive.csv)": tmp_path / "comments_positive.csv",
        "folder (comments_negative.csv)": tmp_path / "comments_negative.csv",
        "upvote_run (a.safetensors)": tmp_path / "model" / "a.safetensors",
        "upvote_run (b.safetensors)": tmp_path / "b.safetensors",
    }


@pytest.mark.parametrize(
    ("options", "patient"),
    [
        ({}, False),
        ({"reward": "none"}, False),
        ({"annotator": "openai"}, True),
        ({"reward": "upvote_model", "upvote_run": "x"}, True),
        ({"upvote_run": "x"}, False),
    ],
)
def test_episodes_that_a_model_judges_may_take_any_time(options, patient):
    assert Reddit(options).patient == patient


@pytest.mark.parametrize(
    ("reward", "scale"),
    [
        ("none", 1.0),
        ("toxicity", -5.0),
        ("toxicity_noised", -5.0),
        ("upvote", 1.0),
        ("upvote_model", 1.0),
    ],
)
def test_a_reward_has_its_published_scale(reward, scale):
    assert Reddit({"reward": reward}).options["reward_scale"] == scale


def test_games_show_parents_and_are_paid_by_score(options):
    task = Reddit({**options, "reward_scale": -5.0})
    parents = {parent for _, _, parent in ROWS}

    dialogues = task.stream("games", "recorded")(np.random.default_rng(3), 20, 0)

    for dialogue in dialogues:
        parent, reply = dialogue.texts
        assert parent in parents
        assert dialogue.rewards == (None, -5.0 * SCORES[reply])
        assert dialogue.terminal


def test_a_new_reply_is_paid_by_the_scorer(options):
    task = Reddit({**options, "reward_scale": -5.0})
    task.use_scorer(lambda texts: [len(text) for text in texts])
    environment = task.environment()
    environment.reset(np.random.default_rng(0))

    assert environment.step("new").reward == -15


def test_a_game_without_its_parent_begins_empty(options):
    environment = Reddit({**options, "include_parent": False}).environment()

    assert environment.reset(np.random.default_rng(0)).to_sequence().texts == ()


def test_a_policy_s_reply_ends_the_game(options):
    task = Reddit(options)

    episode = interact(task.environment(), task.policy("recorded"), np.random.default_rng(1))

    (step,) = episode.steps
    assert step.reward == SCORES[step.action]
    assert episode.observation.to_sequence().terminal


def test_a_comment_may_be_longer_than_a_field_of_csv(tmp_path):
    write(tmp_path, [("long " * 30_000, 1, "")])

    (dialogue,) = recorded({"folder": str(tmp_path), "reward": "none"})

    assert len(dialogue.texts[1]) == 150_000


def test_a_text_without_score_or_scorer_is_an_error(options):
    with pytest.raises(
        UserError, match="has no score of 'thanks a lot', and nothing here scores it"
    ):
        recorded({**options, "scores": ""})


def test_a_trained_model_pays_games_and_episodes(options):
    model = {"upvote_run": "run", "reward": "upvote_model"}

    Reddit({**options, **model, "scores": ""}).check("games", " friendly ")
    Reddit({**options, **model}).check_episodes()
    Reddit({**options, "reward": "upvote_model"}).check("recorded", "best")


def checksums(folder: Path) -> list[int]:
    return [zlib.crc32((folder / name).read_bytes()) for name in FILES]


def test_made_up_comments_depend_on_number_and_seed_alone(tmp_path):
    Reddit({"num_comments": 300}).prepare("recorded", "", tmp_path)

    assert checksums(tmp_path / "comments") == [0x1700ED18, 0x8986897D]


def test_comments_of_a_folder_replace_made_up_ones(tmp_path, options):
    task = Reddit(options)

    prepared = task.prepare("recorded", "", tmp_path / "run")

    assert prepared == task.options
    assert not (tmp_path / "run").exists()


def test_made_up_comments_are_written_once(tmp_path):
    made_up.write(tmp_path, 300, 1)
    before = checksums(tmp_path)

    made_up.write(tmp_path, 9, 2)

    assert checksums(tmp_path) == before


def test_made_up_comments_are_all_read(tmp_path):
    options = Reddit({"num_comments": 300}).prepare("recorded", "", tmp_path)

    assert len(Reddit(options).comments) == 300


def test_a_friendly_policy_draws_friendly_replies():
    policy = Reddit({}).policy(" friendly ")
    rng = np.random.default_rng(0)

    assert [policy.act(None, rng) for _ in range(4)] == [
        "I had the same trouble with my tent, try cleaning it first.",
        "Thank you for showing us your novel.",
        "That is a lovely chess, well done!",
        "That is a lovely bread, well done!",
    ]
