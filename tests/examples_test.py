"""The examples of docs/examples/, as a reader starts them."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest

from motif_jax import agents, rewards
from motif_jax.core.verdicts import FIRST, SECOND
from motif_jax.envs.spec import RUNNING, TRUNCATED
from motif_jax.motif import explain_reward
from motif_jax.play import evaluation_setup
from tests.envs.playing import started
from tests.reward_fixtures import environment, load_config, run_stage
from tests.reward_fixtures import launch as launch_stage

REPOSITORY = Path(__file__).parent.parent
EXAMPLES = REPOSITORY / "docs" / "examples"
PYTHON = REPOSITORY / ".venv-examples" / "bin" / "python"


def of_their_environment(test):
    """Marks a test that needs what the examples' own environment has."""
    reason = "no .venv-examples: bash launch/setup_examples.sh makes it"
    return pytest.mark.examples(
        pytest.mark.extra(pytest.mark.skipif(not PYTHON.exists(), reason=reason)(test))
    )


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs of games of NetHack."""
    return run_stage("collect", tmp_path_factory.mktemp("runs") / "dataset", workers=1)


@pytest.fixture(scope="module")
def runs(dataset: Path) -> Path:
    """Small runs as a quickstart leaves them."""
    folder = dataset.parent
    pairs = {"dataset_dir": str(dataset)}
    run_stage(
        "annotate", folder / "annotate", name="qwen15", store_dir=str(folder / "answers"), **pairs
    )
    run_stage(
        "train_reward",
        folder / "reward",
        annotator="qwen15",
        num_devices=1,
        **pairs,
    )
    reward = {"reward.dir": str(folder / "reward")}
    training = {
        "environment.max_episode_steps": 50, "serial": True, "train_for_env_steps": 512, "devices.learner": "0",
        "network.encoder": "flat", "network.flat_sizes": (16,),
    }  # fmt: skip
    run_stage("train_agent", folder / "agent", **reward, **training)
    for name in ("agent", "random"):
        evaluated = {
            "policy": name,
            "agent.dir": str(folder / "agent"),
            "episodes": 2,
            "workers": 1,
        }
        run_stage("evaluate", folder / f"evaluate_{name}", **evaluated, **reward)
    return folder


def start(*command: object, **more: str) -> str:
    """Runs a program of the examples' own environment; returns what it prints."""
    variables = {**environment(), "PYTHONPATH": f"{EXAMPLES}{os.pathsep}{REPOSITORY}", **more}
    line = [str(PYTHON), *map(str, command)]
    done = subprocess.run(
        line, cwd=REPOSITORY, env=variables, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@of_their_environment
@pytest.mark.parametrize(
    ("script", "weights"),
    [("ppo_pytorch.py", "agent.pt"), ("ppo_stable_baselines3.py", "agent.zip")],
)
def test_an_agent_is_trained_with_a_reward_round_nethack(runs, tmp_path, script, weights):
    sizes = "--total-timesteps 512 --num-envs 4 --num-steps 32 --max-episode-steps 40"
    start(EXAMPLES / script, *sizes.split(), "--reward", runs / "reward", "--out", tmp_path)
    history = json.loads((tmp_path / "history.json").read_text())
    assert [row["step"] for row in history] == [128, 256, 384, 512]
    assert (tmp_path / weights).stat().st_size > 10_000
    last = history[-1]
    assert last["length"] <= 40
    # The games are NLE's own, which a seed does not determine.
    assert any(row.get("counted_return", 0.0) for row in history), "the reward paid for something"
    # Only the intrinsic reward is learned from, at half its size.
    assert last["total_return"] == pytest.approx(0.5 * last["counted_return"], abs=1e-3)


@of_their_environment
def test_scores_of_actions_are_those_of_transformers():
    sizes = ("--model=tiny_t5", "--prompt-tokens=12", "--repeats=1")
    output = start("docs/studies/score_beside_transformers.py", *sizes)
    line = json.loads(output.splitlines()[-1])
    assert line["scores_apart"] < 1e-5
    assert min(line["value"], line["baseline"]["value"]) > 0


@of_their_environment
def test_both_libraries_train_and_a_run_is_not_repeated(tmp_path):
    rows = tmp_path / "rows.jsonl"
    line = [
        EXAMPLES / "beside_stable_baselines3.py",
        "--rows",
        rows,
        "--workdir",
        tmp_path / "runs",
    ]
    few = ["--tasks", "CartPole-v1", "--seeds", "1", "--steps", "2048"]
    start(*line, *few)
    written = rows.read_text()
    start(*line, *few)
    assert rows.read_text() == written
    lines = [json.loads(row) for row in written.splitlines()]
    assert [row["library"] for row in lines] == ["motif_jax", "stable_baselines3"]
    for row in lines:
        known = [value for value in row["curve"] if value is not None]
        assert 8 < known[0] < 60, "a pole falls after some 20 steps of random play"


def test_the_table_compares_the_last_tenth(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import beside_stable_baselines3 as beside

    ends = [(5, 1.0), (10, 3.0), (95, 7.0), (100, 9.0)]
    assert beside.curve(ends, 100) == [1.0, 3.0, *[None] * 7, 8.0]

    returns = {beside.OURS: [400.0, 500.0], beside.SB3: [300.0, 310.0]}
    rows = [
        {"library": library, "task": "CartPole-v1", "steps": 100_000, "curve": [20.0, last, None]}
        for library, values in returns.items()
        for last in values
    ]
    rows.append({**rows[0], "steps": 2048, "curve": [10.0]})
    name = "MiniGrid-DoorKey-5x5-v0"
    for library, value in {beside.OURS: 0.9, beside.SB3: 0.0, beside.SB3_PLAIN: 0.9}.items():
        rows.append({"library": library, "task": name, "steps": 100_000, "curve": [value]})
    assert beside.table(rows).splitlines()[2:] == [
        "| CartPole-v1 | 100,000 | 450 [400, 500] | > | 305 [300, 310] | |",
        # The better of both counts.
        f"| {name} | 100,000 | 0.9 [0.9, 0.9] | = | 0 [0, 0] | 0.9 [0.9, 0.9] |",
    ]


@pytest.mark.parametrize(
    ("name", "shape", "dtype"),
    [
        ("CartPole-v1", (4,), np.float32),
        # 7 x 7 cells of 3 codes, and the mission's letters.
        ("MiniGrid-DoorKey-5x5-v0", (2835,), np.uint8),
        # The cells, 16 counts of what the player has, four directions, two conditions; no caption.
        ("motif_jax/Crafter-v1", (1260 + 16 + 4 + 2,), np.float32),
        ("CatchPixels-v0", (64, 64, 3), np.uint8),
    ],
)
def test_the_other_library_sees_what_motif_jax_does(monkeypatch, name, shape, dtype):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import beside_stable_baselines3 as beside

    environment = beside.made(name, beside.TASKS[name])

    observation, _ = environment.reset(seed=0)
    assert observation.shape == environment.observation_space.shape == shape
    assert observation.dtype == dtype
    environment.close()


RUN_NOTEBOOK = """
import nbformat, nbclient, sys
from traitlets.config import Config
book = nbformat.read(sys.argv[1], 4)
through_files = Config({'KernelManager': {'transport': 'ipc'}})  # no port that another may take
nbclient.NotebookClient(book, timeout=300, kernel_name='python3', config=through_files).execute()
nbformat.write(book, sys.argv[2])
"""


@of_their_environment
def test_every_cell_of_the_notebook_runs(runs, tmp_path):
    out = tmp_path / "out.ipynb"
    with tempfile.TemporaryDirectory(prefix="nb") as short:  # a socket's name has at most 107 bytes
        folders = {"IPYTHONDIR": str(tmp_path), "JUPYTER_RUNTIME_DIR": short}
        start(
            "-c",
            RUN_NOTEBOOK,
            EXAMPLES / "quickstart_files.ipynb",
            out,
            QUICKSTART=str(runs),
            **folders,
        )
    outputs = [
        cell_output
        for cell in json.loads(out.read_text())["cells"]
        for cell_output in cell.get("outputs", ())
    ]
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert len([output for output in outputs if "image/png" in output.get("data", {})]) == 3
    printed = "".join("".join(output.get("text", "")) for output in outputs)
    assert "is better than" in printed
    assert "agent - random" in printed


@pytest.mark.slow
def test_the_annotator_labels_a_dataset(dataset, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{EXAMPLES}{os.pathsep}{REPOSITORY}")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import keywords

    options = {
        "annotator": "keywords:Keywords",
        "dataset_dir": dataset,
        "store_dir": tmp_path / "store",
    }
    flags = [f"--config.{key}={value}" for key, value in options.items()]
    launch_stage("annotate", tmp_path / "annotate", *flags, variant="")
    labels = np.load(dataset / "preference" / "keywords.npy")
    messages = np.load(dataset / "data" / "message.npy")[:, :, 0]
    texts = [[bytes(row).rstrip(b"\0").decode("latin-1") for row in pair] for pair in messages]
    worth = np.array([[keywords.worth(text) for text in pair] for pair in texts])
    assert np.array_equal(labels == FIRST, worth[:, 0] > worth[:, 1])
    assert np.array_equal(labels == SECOND, worth[:, 0] < worth[:, 1])
    assert {FIRST, SECOND} < set(labels.tolist())


def test_the_task_is_played_as_it_says(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("MOTIF_JAX_TRUST", "orchard")
    rng = np.random.default_rng(0)
    games = []
    for seed in (3, 3, 4):
        env, out = started("orchard:Orchard", seed, max_episode_steps=200)
        first = out["garden"].copy()
        rewards = []
        texts = []
        end = RUNNING
        while end == RUNNING:
            reward, end = env.step(int(rng.integers(4)), out)
            rewards.append(reward)
            texts.append(bytes(out["message"]).rstrip(b"\0"))
        assert end == TRUNCATED
        assert len(rewards) == 200
        assert [b"apple" in text for text in texts] == [reward == 1 for reward in rewards]
        assert [b"wasp" in text for text in texts] == [reward == -1 for reward in rewards]
        info = env.episode_info()
        assert info["return"] == sum(rewards)
        assert (info["apples"], info["stings"]) == (rewards.count(1.0), rewards.count(-1.0))
        assert out["garden"][25:50].sum() == 4 - info["apples"], "an apple that was eaten is gone"
        games.append(first)
    assert np.array_equal(games[0], games[1])
    assert not np.array_equal(games[0], games[2])


def share_of_caught_balls(policy, games):
    """The share of games that a policy, a function of the game, ends with the ball caught."""
    from catch_pixels import CatchPixels

    game = CatchPixels()
    caught = 0
    for seed in range(games):
        game.reset(seed=seed)
        has_landed = False
        while not has_landed:
            _, reward, has_landed, _, info = game.step(policy(game))
        assert reward == (1 if info["is_success"] else -1)
        caught += info["is_success"]
    return caught / games


@pytest.mark.slow
def test_random_play_catches_less_than_a_quarter_of_the_balls(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    draws = np.random.default_rng(0)

    share = share_of_caught_balls(lambda game: int(draws.integers(3)), games=400)

    assert share == pytest.approx(0.22, abs=0.04)


def test_who_sees_the_ball_catches_it(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from catch_pixels import BALL, PADDLE, SPEED, STAY

    def follow(game):
        distance = game.column + BALL // 2 - game.paddle - PADDLE // 2
        return STAY if abs(distance) < SPEED else STAY + int(np.sign(distance))

    assert share_of_caught_balls(follow, games=100) == 1


def test_pictures_of_a_catch_follow_from_its_seed(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from catch_pixels import CatchPixels

    def film(seed):
        game = CatchPixels("rgb_array")
        pictures = [game.reset(seed=seed)[0]]
        for action in (0, 2, 2, 1, 0):
            pictures.append(game.step(action)[0])
            # Whoever looks on changes nothing.
            assert game.render().shape == (256, 256, 3)
        return np.stack(pictures)

    pictures = film(seed=3)

    assert pictures.shape == (6, 64, 64, 3)
    assert pictures.dtype == np.uint8
    assert (pictures[1:] != pictures[:-1]).any(axis=(1, 2, 3)).all()
    assert np.array_equal(pictures, film(seed=3))
    assert not np.array_equal(pictures, film(seed=4))


@pytest.mark.parametrize("new_colours", [False, True])
def test_games_of_a_catch_differ_in_their_colours_on_request(monkeypatch, new_colours):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from catch_pixels import CatchPixels

    def colours(seed):
        picture, _ = CatchPixels(new_colours=new_colours).reset(seed=seed)
        return {tuple(colour) for colour in picture.reshape(-1, 3)}

    # Two of the stripes, the paddle's and the ball's.
    assert len(colours(1)) == 4
    assert (colours(1) != colours(2)) == new_colours


@pytest.mark.slow
def test_doorkey_lies_ready_with_its_reward(tmp_path, monkeypatch):
    folder = EXAMPLES / "doorkey"
    assert sum(path.stat().st_size for path in folder.rglob("*")) < 5e6
    monkeypatch.chdir(REPOSITORY)  # the dataset is where the reward's file says
    config = load_config("explain_reward", "")
    config.reward.dir = str(folder / "reward.safetensors")
    config.reward.threshold = "auto"
    explain_reward.check(config, tmp_path / "explain")
    explain_reward.run(config, tmp_path / "explain")
    assert (tmp_path / "explain/explain.html").is_file()
    pays = rewards.load(folder / "reward.safetensors").intrinsic(
        ["You unlock the yellow door.", "You bump into a wall.", ""], "auto"
    )
    assert pays[0] > 1
    assert not pays[1:].any()

    monkeypatch.chdir(tmp_path)  # where the agent's config names no reward
    setup = evaluation_setup.open_setup(evaluation_setup.of_folder(folder))
    assert setup.reward is not None
    assert Path(str(setup.reward.section.dir)) == folder / "reward.safetensors"
    played = agents.play(folder, 4, seed=0, workers=1)
    assert sum(episode.rewards.any() for episode in played) >= 3  # 93 % of 200 games


@pytest.mark.slow
def test_texts_that_one_names_are_paid_nothing(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    kind = "unpaid_texts:UnpaidTexts"
    monkeypatch.setenv("MOTIF_JAX_TRUST", kind)
    settings = {
        "reward.dir": str(trained), "reward.kind": kind, "reward.quantile": None,
        "reward.intrinsic_coefficient": 0.1, "environment.max_episode_steps": 50,
        "serial": True, "train_for_env_steps": 512, "devices.learner": "0", "network.encoder": "flat",
        "network.flat_sizes": (16,),
    }  # fmt: skip
    run_stage("train_agent", tmp_path / "agent", **settings)
    setup = evaluation_setup.open_setup(evaluation_setup.of_folder(tmp_path / "agent"))

    texts = ["You faint from lack of food.  You regain consciousness.", "You kill the newt!"]
    learned = rewards.load(trained).intrinsic(texts, None)
    assert learned[0] != 0
    rows = np.array([np.frombuffer(text.encode().ljust(256, b"\0"), np.uint8) for text in texts])
    assert setup.rater is not None
    np.testing.assert_array_equal(setup.rater.lookup(rows), [0, learned[1]])
    live_rater = setup.live_rater()
    assert live_rater is not None
    assert [live_rater(row, {}).paid for row in rows] == [0, learned[1]]
