"""Games that begin on a level compiled by nle's compilers from a description."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nle.nethack.nethack import HACKDIR

from motif_jax.core.tempdirs import own_folders
from motif_jax.envs.nethack.buffers import Buffers
from motif_jax.envs.nethack.engine import NetHackEngine
from motif_jax.envs.spec import EngineError

# Name of the level in descriptions.
LEVEL = "mylevel"
_DATA = "nhdat"
# The game's dungeon, with that level as its first.
_DUNGEON_START = "ALIGNMENT:\tunaligned\n"
_FIRST_LEVEL = f'LEVEL: "{LEVEL}" "none" @ (1,1)\n'


class LevelEngine(NetHackEngine):
    """A game that begins on the level loaded last; arguments as of `NetHackEngine`."""

    def __init__(self, buffers: Buffers, more_fields: Iterable[str] = (), **game: Any) -> None:
        super().__init__(buffers, more_fields=more_fields, **game)
        data = self.folder / _DATA
        data.unlink()  # a link to the installed file
        data.write_bytes(data_library())
        self._description = ""

    def load(self, description: str) -> None:
        """Makes `description` (a .des file's text) the first level of later games. Raises
        EngineError: it does not compile.
        """
        if description != self._description:
            (self.folder / "level.des").write_text(description, encoding="latin-1")
            # The game reads a level beside its data file if the data file lacks it.
            _run("lev_comp", "level.des", folder=self.folder)
            self._description = description


@functools.cache
def data_library() -> bytes:
    """The data file of games that begin on `LEVEL`, with the contents of MiniHack's: the dungeon
    and the quest's texts.
    """
    source = Path(HACKDIR, "dat", "dungeon.def").read_text(encoding="latin-1")
    if _DUNGEON_START not in source:
        raise EngineError("nle's dungeon.def has another form than that of NetHack 3.6")
    with own_folders(), tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        changed = source.replace(_DUNGEON_START, _DUNGEON_START + _FIRST_LEVEL, 1)
        (folder / "dungeon.pdf").write_text(changed, encoding="latin-1")
        # The dungeon with one level more, and the quest's texts as installed, in an archive of
        # their own.
        _run("dgn_comp", "dungeon.pdf", folder=folder)
        _run("dlb", "xf", str(Path(HACKDIR, _DATA)), "quest.dat", folder=folder)
        _run("dlb", "cf", _DATA, "dungeon", "quest.dat", folder=folder)
        return (folder / _DATA).read_bytes()


def _run(tool: str, *arguments: str, folder: Path) -> None:
    command = [str(Path(HACKDIR, tool)), *arguments]
    try:
        # Only one pipe, since some tasks compile a level for each episode.
        done = subprocess.run(
            command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
    except OSError as error:
        raise EngineError(f"nle's {tool} does not start: {error.strerror}") from None
    if done.returncode:
        message = " ".join(done.stderr.decode(errors="replace").split())
        raise EngineError(
            f"nle's {tool} {arguments[0]}: {message or f'exit code {done.returncode}'}"
        )
