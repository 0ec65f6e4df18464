from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from motif_jax.glam import cloning_data, cloning_task
from motif_jax.ilql.dialogues import collate, items, token_columns, token_rewards
from motif_jax.ilql.dialogues.dialogue import Dialogue
from motif_jax.ilql.dialogues.dialogue_batches import ItemLayout, ListBatches
from motif_jax.ilql.tasks.reddit import upvote_task
from motif_jax.lm import text_batches
from motif_jax.lm.objectives import Tokens
from motif_jax.lm.text_batches import ItemBatches, TextRows, WindowBatches
from motif_jax.lm.token_data.dataset import TokensDataset
from motif_jax.lm.token_data.writer import TokensWriter
from tests.recorded_outputs import assert_matches_packed_recording, outcome_text
from tests.toy_text import Letters

LENGTHS = (7, 1, 12, 3, 5, 9, 2, 12, 4, 6, 8)


def of_batches(made: Any, first: int = 1, count: int = 3) -> str:
    """Steps at the end of a pass and behind it, and all items, or as many as fit two batches."""
    last = made.steps_per_pass - 1
    steps = made.batches(first, count), made.batches(last, 2)
    tree = [last, *steps, made.whole(2), len(made.whole(99))]
    return str(jax.tree.map(lambda leaf: np.asarray(leaf).tolist(), tree))


def dataset_of(folder: Path, prompts: bool) -> TokensDataset:
    with TokensWriter(folder, 100, "numbers", {}, {"prompt": "int32", "liked": "bool"}) as writer:
        for n, length in enumerate(LENGTHS):
            prompt = min(n % 4, length - 1) * prompts
            writer.add(range(8 * n, 8 * n + length), item_columns={"prompt": prompt, "liked": n % 3 == 0})
        writer.commit()
    return TokensDataset(folder)


def test_batches_of_texts(tmp_path: Path, record: bool) -> None:
    bare, prompted = dataset_of(tmp_path / "bare", False), dataset_of(tmp_path / "prompted", True)
    special, found = Tokens(90, 91, 92, 93, tuple(range(94, 100)), 100), {}
    for objective in ("causal", "masked", "spans", "prefix"):
        rows = TextRows(objective, "windows", 12, special)
        made = WindowBatches(bare, rows, 3, seed=5)
        found[f"{objective} windows"] = f"{made.width} {made.steps_per_pass} {of_batches(made)}"
        if objective != "spans":
            rows = rows._replace(packing="items")
            found[f"{objective} items"] = of_batches(ItemBatches(prompted, rows, 2, seed=5, group=2))
    found["comments"] = of_batches(upvote_task.CommentBatches(prompted, 2, 92, seed=5, group=1))
    for length in (68, 69):
        windows = bare, TextRows("causal", "windows", length, special), 3, 5
        found[f"{length}"] = outcome_text(lambda: WindowBatches(*windows).steps_per_pass, folder=tmp_path)  # noqa: B023
    for packing in ("windows", "items"):
        found[packing] = outcome_text(text_batches.check_prompts, packing, prompted, folder=tmp_path)
    assert_matches_packed_recording("batches_of_texts", found, record)


def test_batches_of_dialogues_and_of_an_experts_steps(tmp_path: Path, record: bool) -> None:
    draws, found = np.random.default_rng(0), {}
    columns = token_columns.TOKEN_COLUMNS, token_columns.ITEM_COLUMNS
    with TokensWriter(tmp_path / "d", 32, "letters", *columns) as writer:
        for n in range(9):
            texts = ["".join(draws.choice([*"abcd"], draws.integers(0, 5))) for _ in range(1 + n % 4)]
            rewards = [None if (place + n) % 2 or n == 5 else float(n - place) for place in range(len(texts))]
            dialogue = Dialogue(tuple(texts), tuple(rewards), n % 3 > 0)
            token_columns.add(writer, items.tokenise(dialogue, Letters(), token_rewards.constant(0.25)), n)
        writer.commit()
    dataset, chosen = TokensDataset(tmp_path / "d"), np.array([0, 2, 3, 5, 6, 7, 8])
    published = collate.Quirks(padded_positions=True, whole_rewards=True, utterances_by_tokens=True)
    layouts: dict[str, Any] = {"tokens": {}, "tokens padded alike": {}, "tokens cut": {"max_len": 9}}
    layouts |= {"tokens published": {"max_len": 9, "quirks": published, "micro_batches": 2}, "utterances": {}}
    layouts["utterances cut"] = {"max_len": 7}
    layouts["utterances published"] = {"max_len": 7, "quirks": published}
    for name, changes in layouts.items():
        layout, by_length = ItemLayout(26, name.startswith("u"), **changes), name != "tokens padded alike"
        found[name] = of_batches(ListBatches(dataset, chosen, layout, 2, 7, 2, by_length))
    steps = cloning_data.CloningData(
        np.arange(9), np.array([0, 2, 5, 6, 9]), np.arange(4) + 5, np.arange(3), np.array([3]), ""
    )
    for unshuffled in (False, True):
        compat, network = SimpleNamespace(bc_unshuffled=unshuffled), SimpleNamespace(prompt_tokens=4)
        given: Any = SimpleNamespace(batch_size=2, seed=3, compat=compat, network=network)
        found[f"steps {unshuffled}"] = of_batches(cloning_task.CloningBatches(given, steps), 0, 2)
    assert_matches_packed_recording("batches_of_dialogues", found, record)
