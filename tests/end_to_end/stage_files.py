"""What each stage leaves in a run of tests/end_to_end/every_stage_test.py, and how each kind of
file is read.
"""

from __future__ import annotations

import bz2
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet
from PIL import Image
from safetensors.numpy import load_file

# Files below the folder of a trial, by stage, besides the run's config.json; of several episodes
# the first.
FILES = {
    "annotate": """
        pairs/annotations/lexicon_msg_defaultgoal/probabilities.npy
        pairs/annotations/lexicon_msg_defaultgoal/shard-00000-of-00001.json
        pairs/annotations/lexicon_msg_defaultgoal/shard-00000-of-00001.jsonl
        pairs/annotations/lexicon_msg_defaultgoal/summary.json pairs/data/blstats.npy pairs/data/message.npy
        pairs/data/rewards.npy pairs/dataset.json pairs/info/score.npy
        pairs/preference/lexicon_msg_defaultgoal.npy pairs/preference/test.npy run/answers.html run/summary.json
        store/*.jsonl
    """.split(),
    "check_reward": ("run/agreement.json",),
    "clone_behaviour": """
        run/checkpoints run/metrics.jsonl run/summary.json
    """.split(),
    "collect": """
        run/data/blstats.npy run/data/message.npy run/data/rewards.npy run/data/tty_chars.npy
        run/data/tty_colors.npy run/dataset.json run/episodes.jsonl run/info/character.npy run/info/dlvl.npy
        run/info/episode.npy run/info/episode_length.npy run/info/episode_return.npy
        run/info/episode_seed.npy run/info/experience_level.npy run/info/gold.npy run/info/player.npy
        run/info/score.npy run/info/step.npy run/info/turns.npy
    """.split(),
    "collect_text": """
        run/dialogues.json run/dialogues.parquet
    """.split(),
    "collect_trajectories": """
        run/.episodes/episodes.jsonl run/bot_trajectories_actions_1.npy run/bot_trajectories_prompts_1.npy
        run/plan.json run/status.json run/trajectories.json run/trajectories.parquet
    """.split(),
    "evaluate": """
        run/episodes.jsonl run/episodes.parquet run/evaluation.json run/films.json run/messages.json
        run/plan.json run/recordings/episode-00000.html run/recordings/episode-00000.json
        run/recordings/episode-00000.ttyrec3.bz2 run/table.md
    """.split(),
    "evaluate_text": """
        run/dialogues.parquet run/episodes.jsonl run/episodes.parquet run/evaluation.json run/plan.json
        run/table.md run/tokens.html
    """.split(),
    "evaluate_text_play": ("run/games.jsonl",),
    "evaluate_text_rank": ("run/ranks.json",),
    "explain_reward": """
        run/explain.html run/messages.csv run/summary.json run/texts.csv
    """.split(),
    "export_language_agent": """
        model/README.md model/config.json model/generation_config.json model/model.safetensors
        model/model.safetensors.index.json model/tokenizer.json model/tokenizer_config.json
        model/values.safetensors
    """.split(),
    "export_reward": """
        run/README.md run/reward.safetensors
    """.split(),
    "export_text_agent": """
        model/README.md model/config.json model/generation_config.json model/model.safetensors
        model/model.safetensors.index.json model/tokenizer.json model/tokenizer_config.json
        model/values.safetensors
    """.split(),
    "import_dialogues": """
        run/dialogues.json run/dialogues.parquet run/import.json
    """.split(),
    "import_ilql": """
        run/agent/agent.json run/agent/heads/heads.json run/agent/heads/heads.safetensors
        run/agent/target_heads/heads.json run/agent/target_heads/heads.safetensors
        run/agent/trunks/policy/config.json run/agent/trunks/policy/model.safetensors
        run/agent/trunks/target/config.json run/agent/trunks/target/model.safetensors
        run/agent/trunks/values/config.json run/agent/trunks/values/model.safetensors run/import.json
    """.split(),
    "import_reward": """
        run/checkpoints run/import.json run/training_texts.npy
    """.split(),
    "import_glam": """
        run/checkpoints run/import.json run/mapping.json
    """.split(),
    "import_motif_reward": """
        run/checkpoints run/import.json run/mapping.json run/model.safetensors
    """.split(),
    "oni_serial": """
        run/checkpoints run/episodes.jsonl run/labels.jsonl run/metrics.jsonl run/paid_texts.jsonl store/*.jsonl
    """.split(),
    "pretrain_language_model": """
        run/checkpoints run/metrics.jsonl run/model/config.json run/model/model.safetensors
        run/model/tokenizer.json run/model/tokenizer_config.json run/model/training.json run/summary.json
        run/tokenizer/tokenizer.json run/tokenizer/tokenizer_config.json
        run/tokens/held_out/item_columns/prompt.npy run/tokens/held_out/offsets.npy
        run/tokens/held_out/tokens.json run/tokens/held_out/tokens.npy
        run/tokens/train/item_columns/prompt.npy run/tokens/train/offsets.npy run/tokens/train/tokens.json
        run/tokens/train/tokens.npy
    """.split(),
    "probe_language_agent": """
        run/clauses.jsonl run/distrib.csv run/plan.json run/probes.json run/probes.jsonl
    """.split(),
    "report": """
        report.html report.json report.md
    """.split(),
    "docs/studies/results": ("study.html", "study.md"),
    "study": ("study.html", "study.md"),
    "test_language_agent": """
        run/plan.json run/return_per_episode/distractors_4.npy
        run/return_per_episode/no_modification_test.npy run/table.md run/tests.csv run/tests.json
        run/tests/distractors_4/episodes.jsonl run/tests/no_modification_test/episodes.jsonl
    """.split(),
    "train_agent": """
        run/checkpoints run/episodes.jsonl run/metrics.jsonl
    """.split(),
    "train_language_agent": """
        run/checkpoints run/clauses.jsonl run/distrib.csv run/episodes.jsonl run/metrics.jsonl
        run/probes.json run/probes.jsonl
    """.split(),
    "train_reward": """
        run/checkpoints run/metrics.jsonl run/reward_metrics/train_norm_quantiles.csv run/summary.json
        run/train_metrics.csv run/training_texts.npy run/val_metrics.csv
    """.split(),
    "train_text": """
        run/agent/agent.json run/agent/heads/heads.json run/agent/heads/heads.safetensors
        run/agent/target_heads/heads.json run/agent/target_heads/heads.safetensors
        run/agent/trunks/policy/config.json run/agent/trunks/policy/model.safetensors
        run/agent/trunks/target/config.json run/agent/trunks/target/model.safetensors
        run/agent/trunks/values/config.json run/agent/trunks/values/model.safetensors run/checkpoints
        run/metrics.jsonl run/summary.json run/tokens/held_out/item_columns/return.npy
        run/tokens/held_out/item_columns/terminal.npy run/tokens/held_out/offsets.npy
        run/tokens/held_out/token_columns/kinds.npy run/tokens/held_out/token_columns/rewards.npy
        run/tokens/held_out/tokens.json run/tokens/held_out/tokens.npy
        run/tokens/train/item_columns/return.npy run/tokens/train/item_columns/terminal.npy
        run/tokens/train/offsets.npy run/tokens/train/token_columns/kinds.npy
        run/tokens/train/token_columns/rewards.npy run/tokens/train/tokens.json run/tokens/train/tokens.npy
    """.split(),
    "train_upvote": """
        run/checkpoints run/comments/comments_negative.csv run/comments/comments_positive.csv
        run/metrics.jsonl run/model/config.json run/model/heads.json run/model/heads.safetensors
        run/model/model.safetensors run/model/tokenizer.json run/model/tokenizer_config.json
        run/model/training.json run/summary.json run/tokenizer/tokenizer.json
        run/tokenizer/tokenizer_config.json run/tokens/held_out/item_columns/liked.npy
        run/tokens/held_out/offsets.npy run/tokens/held_out/tokens.json run/tokens/held_out/tokens.npy
        run/tokens/train/item_columns/liked.npy run/tokens/train/offsets.npy run/tokens/train/tokens.json
        run/tokens/train/tokens.npy
    """.split(),
    "visualize": """
        run/episode-00000.gif run/episode-00000.html run/episode-00000.json run/episode-00000.ttyrec3.bz2
        run/films.json
    """.split(),
    "visualize_recorded": """
        run/episode-00000.html run/episode-00000.ttyrec3.bz2 run/films.json
    """.split(),
}

# The keys that a program finds in run/summary.json.
SUMMARIES = {
    "annotate": """
        annotator asked cached_tokens completion_tokens dataset_questions finished merged name num_shards
        pairs prompt_tokens questions questions_per_second retried_share seconds shard store_hits tie_share
        tokens_per_second unknown_notes unknown_share
    """.split(),
    "clone_behaviour": """
        best best_evaluation evaluations last steps_left_out stopped_early used used_evaluation
    """.split(),
    "explain_reward": """
        messages rewards steps
    """.split(),
    "pretrain_language_model": """
        best best_evaluation evaluations last steps_left_out stopped_early used used_evaluation
    """.split(),
    "train_reward": """
        best best_evaluation evaluations last steps_left_out stopped_early used used_evaluation
    """.split(),
    "train_text": """
        best best_evaluation evaluations last steps_left_out stopped_early used used_evaluation
    """.split(),
    "train_upvote": """
        best best_evaluation evaluations last steps_left_out stopped_early used used_evaluation
    """.split(),
}


def check_file(path: Path) -> None:
    """Reads a file by the readers of its kind; AssertionError or their error where it is empty or
    damaged.
    """
    match path.suffix:
        case ".json":
            assert json.loads(path.read_text(encoding="utf-8")), path
        case ".jsonl":
            lines = path.read_text(encoding="utf-8").splitlines()
            # Lines of labels begin with checksums.
            assert all(json.loads(line[line.index("{") :]) for line in lines), path
            assert lines, path
        case ".npy":
            assert np.load(path).size, path
        case ".parquet":
            assert pyarrow.parquet.read_table(path).num_rows, path
        case ".safetensors":
            assert load_file(path), path
        case ".gif":
            with Image.open(path) as film:
                assert film.n_frames > 1, path
        case ".bz2":
            assert bz2.decompress(path.read_bytes()), path
        case ".html":
            assert path.read_text(encoding="utf-8").rstrip().endswith("</html>"), path
        case _:
            # A folder of checkpoints, or a text.
            assert (
                any(path.iterdir()) if path.is_dir() else path.read_text(encoding="utf-8").strip()
            ), path


def check_stage(name: str, folder: Path) -> None:
    """The files of a stage are there and whole, and its summary has its keys."""
    for pattern in FILES[name]:
        paths = list(folder.glob(pattern))
        assert paths, f"{name} has left no {pattern}"
        for path in paths:
            check_file(path)
    if name in SUMMARIES:
        summary = json.loads((folder / "run/summary.json").read_text())
        assert set(SUMMARIES[name]) <= summary.keys()
