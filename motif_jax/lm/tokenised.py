"""Tokenises the training part and the held-out part into two datasets; resumes after a kill."""

from __future__ import annotations

import dataclasses
import itertools
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Generic, TypeVar

from motif_jax.core.errors import UserError
from motif_jax.core.progress import Progress
from motif_jax.lm.token_data import layout
from motif_jax.lm.token_data.dataset import TokensDataset
from motif_jax.lm.token_data.writer import TokensWriter

# Folder of the datasets in a run's folder, and the datasets in it.
TOKENS = "tokens"
TRAIN = "train"
HELD_OUT = "held_out"
PARTS = (TRAIN, HELD_OUT)
# Items that are tokenised together.
GROUP_ITEMS = 256
# Groups between two saves.
SAVE_EVERY_GROUPS = 64
Item = TypeVar("Item")


@dataclasses.dataclass(frozen=True)
class Tokenisation(Generic[Item]):
    """Tokenisation of a training's items; for vocabulary, columns and source see `TokensWriter`."""

    vocab_size: int
    tokenizer: str
    source: Mapping[str, Any]
    add: Callable[[TokensWriter, Sequence[Item]], None]  # tokenises items and adds them to a writer
    token_columns: Mapping[str, Any]
    item_columns: Mapping[str, Any]
    too_few: str  # the error for a part without items, with {} for the part's purpose
    unit: str  # of the progress
    amount: Callable[[Item], int] = lambda item: 1  # units of an item

    def split(
        self,
        folder: Path,
        items: Iterable[tuple[str, Item]],
        total: int,
        stopped: Callable[[], bool],
    ) -> dict[str, TokensDataset] | None:
        """Writes (part, item) pairs below `folder`, unless both parts exist; the datasets by part,
        None after a request to stop.
        """
        # A resumed run tokenises nothing, but checks below that tokenizer and texts are the same.
        complete = all((folder / part / layout.MANIFEST).is_file() for part in PARTS)
        if not complete and not self._write(folder, items, total, stopped):
            return None
        datasets = {part: TokensDataset(folder / part) for part in PARTS}
        for part, dataset in datasets.items():
            if dataset.manifest["tokenizer"] != self.tokenizer:
                raise UserError(
                    f"{dataset.folder} was tokenised by another tokenizer: choose another --workdir"
                )
            if _contents(dataset.manifest["source"]) != _contents({**self.source, "part": part}):
                raise UserError(
                    f"{dataset.folder} was tokenised from data that have changed since: restore them, or choose another --workdir"
                )
            dataset.check_digests()
        return datasets

    def _write(
        self,
        folder: Path,
        items: Iterable[tuple[str, Item]],
        total: int,
        stopped: Callable[[], bool],
    ) -> bool:
        """Writes the datasets that are not complete; False after a request to stop, with all
        saved.
        """
        with ExitStack() as stack:
            writers = self._open_writers(folder, stack)
            progress = stack.enter_context(Progress(total, self.unit, "tokenise"))
            # From the first item on, also after a kill: which part an item is of depends on those
            # before it.
            remaining = iter(items)
            done = 0
            # Items of each part so far, those included that a killed writer saved.
            counts = dict.fromkeys(PARTS, 0)
            for number in itertools.count(1):
                group = list(itertools.islice(remaining, GROUP_ITEMS))
                if not group:
                    break
                for part, writer in writers.items():
                    part_items = [item for item_part, item in group if item_part == part]
                    # Items that a killed writer saved are read again and not added again.
                    saved = max(0, writer.items - counts[part])
                    self.add(writer, part_items[saved:])
                    counts[part] += len(part_items)
                done += sum(self.amount(item) for _, item in group)
                progress.update(min(done, total))
                # Asked once a group: what was added is saved before the run ends.
                stop = stopped()
                if stop or number % SAVE_EVERY_GROUPS == 0:
                    for writer in writers.values():
                        writer.save()
                if stop:
                    return False

            for part, writer in writers.items():
                if not counts[part]:
                    raise UserError(
                        self.too_few.format("to learn from" if part == TRAIN else "to hold out")
                    )
                writer.commit()
        return True

    def _open_writers(self, folder: Path, stack: ExitStack) -> dict[str, TokensWriter]:
        """Writers of the parts that are not complete; `stack` closes them."""
        writers = {}
        for part in PARTS:
            source = {**self.source, "part": part}
            if (folder / part / layout.MANIFEST).is_file():
                if TokensDataset(folder / part).manifest["source"] == source:
                    continue
                # The missing part would be of another split.
                shutil.rmtree(folder / part)
            writer = TokensWriter(
                folder / part,
                self.vocab_size,
                self.tokenizer,
                self.token_columns,
                self.item_columns,
                source,
            )
            writers[part] = stack.enter_context(writer)
        return writers


def _contents(source: Mapping[str, Any]) -> dict[str, Any]:
    """A source by the digests of its files, which may have moved."""
    return {**source, "files": sorted(source.get("files", {}).values())}
