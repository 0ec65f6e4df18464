"""Small runs of every stage, each with what must come out whatever was done to it: for chaos.py and
its test.
"""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import NamedTuple

from tests import stage_inputs
from tests.force.outcomes import (
    Compared,
    counters,
    episodes,
    files,
    first_lines,
    inside,
    labels,
    page,
    params,
    rows,
)  # fmt: skip
from tests.force.scenario_inputs import ONE, RECALL, Inputs


class Scenario(NamedTuple):
    """A small run of a stage.

    Attributes:
      config: file of configs/ with a variant.
      flag_text: its flags; `{at}` stands for the inputs, `{trial}` for the trial's own folder.
      compared: with the undisturbed run.
      typed: what it reads of its standard input.
      copied: an input that it writes into: the trial has a copy of its own.
    """

    config: str
    flag_text: str
    compared: Compared
    typed: str = ""
    copied: str = ""

    def flags(self, at: Inputs, trial: Path) -> list[str]:
        if self.copied and not (trial / self.copied).exists():
            shutil.copytree(getattr(at, self.copied), trial / self.copied)
        return [
            f"--config.{flag.format(at=at, trial=trial)}" for flag in shlex.split(self.flag_text)
        ]


_LEVEL = f"environment.name={stage_inputs.LEVEL}"
_SAVING = "save_every_seconds=0.2"
_TRAINED = params("agent/**/*.safetensors")
SCENARIOS: dict[str, Scenario] = {
    "collect": Scenario(
        "collect.py:smoke", "workers=2 num_pairs=200 environment.max_episode_steps=200",
        files("data/*.npy", "info/*.npy", "episodes.jsonl"),
    ),
    "annotate": Scenario(
        "annotate.py:smoke", "dataset_dir={trial}/pairs store_dir={trial}/store flush_seconds=0",
        inside("pairs", "preference/*.npy", "annotations/*/probabilities.npy"), copied="pairs",
    ),
    "train_reward": Scenario(
        "train_reward.py:smoke", f"dataset_dir={{at.pairs}} annotator=test epochs=3 save_every_seconds=0.00001 {ONE}",
        params("train_metrics.csv", "val_metrics.csv"),
    ),
    "train_agent": Scenario("train_agent.py:smoke", f"{RECALL} serial=True {_SAVING}", counters(2048)),
    "train_agent_processes": Scenario(
        "train_agent.py:smoke", f"{RECALL} train_for_env_steps=6000", counters(6000)
    ),
    "train_agent_nethack": Scenario(
        "train_agent.py:smoke", "network.encoder=flat network.flat_sizes=(16,) save_every_steps=256", counters(2048)
    ),
    "oni": Scenario(
        "oni.py:smoke", f"{RECALL} train_for_env_steps=4000 annotator.store_dir={{trial}}/store",
        labels(counters(4000)),
    ),
    "oni_serial": Scenario(
        "oni.py:smoke", f"{RECALL} serial=True {_SAVING} annotator.store_dir={{trial}}/store", labels(counters(2048))
    ),
    "evaluate": Scenario("evaluate.py:smoke", "episodes=12 record_every=4", episodes("evaluation.json")),
    "collect_text": Scenario("collect_text.py:wordle", "num_dialogues=9000 workers=2", files("dialogues.parquet")),
    "train_text": Scenario("train_text.py:smoke", f"data={{at.dialogues}} {_SAVING} {ONE}", _TRAINED),
    "train_text_visdial": Scenario(
        "train_text.py:visdial_ilql",
        "options={at.visdial} network.width=16 network.layers=1 network.heads=2 network.max_length=256 batch_size=4 max_steps=12 "
        f"evaluate_every=4 chunk_steps=2 evaluation_batches=1 {_SAVING} {ONE}", _TRAINED,
    ),
    "evaluate_text": Scenario(
        "evaluate_text.py:wordle", "agent={at.text_agent} policy=fitting episodes=400 lanes=16",
        episodes("evaluation.json"),
    ),
    "pretrain_language_model": Scenario(
        "pretrain_language_model.py:smoke", f"texts={{at.texts}} length=8 {_SAVING} {ONE}",
        files("model/*.safetensors", "model/tokenizer.json", "tokens/*/*.npy"),
    ),
    "collect_trajectories": Scenario(
        "collect_trajectories.py:smoke", "steps=400 workers=2 published=True", files("trajectories.parquet", "*.npy")
    ),
    "clone_behaviour": Scenario(
        "clone_behaviour.py:smoke",
        f"trajectories={{at.trajectories}} network.model={{at.model}} network.prompt_tokens=100 {_SAVING} {ONE}", params(),
    ),
    "train_language_agent": Scenario(
        "train_language_agent.py:smoke", f"network.model={{at.model}} network.prompt_tokens=160 devices.learner=0 {_SAVING}",
        counters(256),
    ),
    "test_language_agent": Scenario(
        "test_language_agent.py:smoke", f"{_LEVEL} policy=bot tests=distractors_4 episodes=20 workers=2", episodes()
    ),
    "train_upvote": Scenario("train_upvote.py:smoke", f"{_SAVING} {ONE}", params("model/**/*.safetensors")),
    "evaluate_text_rank": Scenario(
        "evaluate_text.py:rank", "agent={at.text_agent} data={at.dialogues} rank.dialogues=20", files("ranks.json")
    ),
    "probe_language_agent": Scenario(
        "probe_language_agent.py", "policy={at.language_agent}", files("probes.jsonl", "clauses.jsonl")
    ),
    "visualize": Scenario("visualize.py:smoke", "episodes=3", files("episode-*.json")),
    "export_reward": Scenario("export.py:reward", "reward.dir={at.reward}", files("*.safetensors", "README.md")),
    "import_reward": Scenario("import.py:reward", "file={at.reward_file}", params()),
    "import_motif_reward": Scenario("import.py:motif_reward", "file={at.torch_reward}", params("model.safetensors", "mapping.json")),
    "import_glam": Scenario(
        "import.py:glam",
        "file={at.torch_agent} agent.network.model={at.model} agent.network.prompt_tokens=160 "
        f"agent.network.head_widths=(16,16) agent.{_LEVEL}", params("mapping.json"),
    ),
    "import_ilql": Scenario(
        "import.py:ilql", "file={at.torch_text_agent} heads=2", files("agent/**/*.safetensors", "agent/agent.json")
    ),
    "import_dialogues": Scenario(
        "import.py:dialogues", "file={at.dialogue_lines}", files("dialogues.parquet", "dialogues.json")
    ),
    "check_reward": Scenario(
        "check_reward.py", "reward.dir={trial}/learned_reward", files("agreement.json"), copied="learned_reward"
    ),
    "explain_reward": Scenario(
        "explain_reward.py", "reward.dir={at.reward} dataset_dir={at.dataset} 'text=You see here a key.'",
        page("explain.html", "*.csv", "summary.json"),
    ),
    "visualize_recorded": Scenario(
        "visualize.py", "recorded.files={at.recordings}", files("*.html", "films.json")
    ),
    "report": Scenario(
        "report.py", "dataset_dir={at.dataset} reward.dir={at.reward} agent.dir={at.runs}/agent evaluations={at.evaluations[0]}",
        page("report.html", "report.json", "*.csv", "plots/*.png"),
    ),
    "evaluate_text_play": Scenario(
        "evaluate_text.py:play", "task=wordle policy=optimal 'options={{\"num_words\": 40}}' play.games=60",
        first_lines("games.jsonl", 60), typed="\n" * 2_000,
    ),
    "study": Scenario(
        "study.py",
        "seeds=2 resamples=100 "
        "'training=configs/train_agent.py:smoke --config.serial=True --config.train_for_env_steps=512 "
        # Without a checkpoint on the way: a training that begins anew ends with the same bits.
        "--config.save_every_steps=1000000 --config.network.encoder=flat --config.network.flat_sizes=(16,) --config.devices.learner=0' "
        "'evaluation=configs/evaluate.py:smoke --config.policy=agent --config.reward.dir= --config.episodes=3'",
        rows("rows.jsonl", "revision"),
    ),
}  # fmt: skip
# Their inputs are written by PyTorch.
OF_TORCH = {"import_motif_reward", "import_glam", "import_ilql"}
