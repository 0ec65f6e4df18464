"""Outputs that a user parses, compared with the texts in tests/recorded.

A recording is for what is read by people or by other programs: the help of a command, a report, a summary, the values of
the variants. What a function computes is asserted in its test. After a change that means to change an output:

    python -m pytest tests/schema_test.py --record

replaces the recordings of these tests and prints what changed. The change is read before it is committed.

A packed recording (.json.gz) holds several texts whose numbers are compared by tolerance. No new ones are written:
what those that are left stand for becomes an assertion, or a text.
"""

from __future__ import annotations

import bz2
import difflib
import gzip
import io
import json
import math
import re
import socket
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "recorded"
# What `--record` changed in this run; conftest.py prints it at the end.
CHANGES: list[str] = []
_NUMBER = re.compile(r"(?<![\w.])(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(?![\w])")
_DATA = re.compile(r"[A-Za-z0-9+/=]{300,}")
# Digests, revisions, parts of names, ids in SVG; a number alone is none, but for a checksum before a digest.
_HEX = re.compile(
    r"(?<![.\w])p?(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{7,}\b(\+changes)?|\b\d{8}(?= [0-9a-f]{7,} \{)"
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d)?)?")
_REVISION = re.compile(r"revision `[^`]*`|(\"|&quot;)(git_revision|platform)\1: [^\n]*")
_VERSIONS = re.compile(r'("|&quot;)versions\1: \{[^}]*\}')
# The checksum of a line that has a time in it.
_CHECKED = re.compile(r"\b[0-9a-f]{8} (?=\{)")
_PATH = re.compile(r'\bd="([^"]{0,200})[^"]*"')
_OF_THE_MACHINE = re.compile(
    r"""(["'][\w/ ]*(?:second|time|latency|bytes|workers|cores|(?:wait|device|host|act|blocked|assemble|lookup|put|update|late)_share)"""
    r"""[\w/ ]*["']: )[-+.\de]+"""
)
_PER_SECOND = re.compile(r"[\d.,]+ (\w+ a second|\w+/s|s|ms|seconds)\b")
# Stands for what differs from run to run.
_ANY = "\N{ASTERISM}"
_RELATIVE, _ABSOLUTE = 0.01, 1e-4
# Rows of metrics are written by the clock: a busy machine writes others.
_LEFT_OUT = re.compile(
    r"(^|/)(checkpoints|resume|versions\.json|metrics\.jsonl|command\S*|tensorboard|profile|\.lock|_?[A-Z_]+|manifest\.ocdbt|d|ocdbt\S*)(/|$)"
)


def outcome_text(call: Callable[..., Any], *arguments: Any, folder: Any = None, **named: Any) -> str:
    """The value of a call, or its error, as a text in which `folder` is called FOLDER."""
    try:
        text = str(call(*arguments, **named))
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
    text = re.sub(r"maximum recursion depth exceeded[\w ]*", "too deep", text)
    return text if folder is None else text.replace(str(folder), "FOLDER")


def is_close(one: str, other: str) -> bool:
    """Whether two words are equal, or two numbers within one per cent; whole numbers count as words."""
    if one == other or _ANY in (one, other):
        return True
    numbers = _NUMBER.fullmatch(one) and _NUMBER.fullmatch(other) and "." in one + other
    return bool(numbers) and math.isclose(float(one), float(other), rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)


def assert_matches_recording(name: str, text: str, record: bool, *, exact: bool = True) -> None:
    """Compares a text with the file `name` in tests/recorded; with `record` it replaces the file.

    `exact` compares to the letter, as is right for settings and help. Otherwise numbers with a point may differ by one per
    cent, as is right for what was computed; whole numbers and words may not.
    """
    path = FOLDER / name
    before = path.read_text(encoding="utf-8") if path.exists() else None
    if record:
        _replace(path, text.encode(), _changed_lines(name, before or "", text))
        return
    assert before is not None, f"tests/recorded/{name} is missing: see tests/recorded_outputs.py"
    matches = before == text if exact else _is_close_text(before, text)
    assert matches, "\n".join(_changed_lines(name, before, text)[:40])


def assert_matches_recorded_section(name: str, section: str, text: str, record: bool) -> None:
    """Compares a text, to the letter, with the part of the file `name` below the line `## SECTION`."""
    path = FOLDER / name
    sections = {}
    for part in path.read_text(encoding="utf-8").split("## ")[1:]:
        title, _, lines = part.partition("\n")
        sections[title] = lines.strip("\n")
    changed = _changed_lines(section, sections.get(section, ""), text)
    if record:
        sections[section] = text
        _replace(
            path, "\n".join(f"## {title}\n{lines}\n" for title, lines in sections.items()).encode(), changed
        )
        return
    assert not changed, "\n".join(changed[:40])


def _is_close_text(one: str, other: str) -> bool:
    words, others = _NUMBER.split(one), _NUMBER.split(other)
    return len(words) == len(others) and all(map(is_close, words, others))


def _changed_lines(name: str, before: str, now: str) -> list[str]:
    """The lines that went (-) and that came (+)."""
    lines = difflib.unified_diff(
        before.splitlines(), now.splitlines(), f"recorded {name}", f"{name} now", n=0, lineterm=""
    )
    return list(lines)


def _replace(path: Path, data: bytes, changed: list[str]) -> None:
    if not changed:
        return
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    CHANGES.extend(changed)


def assert_matches_packed_recording(name: str, parts: Mapping[str, str], record: bool) -> None:
    """Compares texts with the packed recording `name`; with `record` they replace it."""
    path = FOLDER / f"{name}.json.gz"
    now = {part: _NUMBER.split(_PATH.sub(r'd="\1"', text)) for part, text in parts.items()}
    known = json.loads(gzip.decompress(path.read_bytes())) if path.exists() else None
    assert known is not None, f"{name} is not recorded: assert what holds, or record one text"
    changed = _changed_parts(name, known, now)
    if record:
        data = json.dumps(now, ensure_ascii=False, sort_keys=True).encode()
        _replace(path, gzip.compress(data, 9, mtime=0), changed)
        return
    assert not changed, "\n".join(changed[:5])


def _changed_parts(name: str, known: Mapping[str, Any], now: Mapping[str, list[str]]) -> list[str]:
    """What differs, a line each."""
    # A part that is null in the file differs from run to run.
    required = {part for part, words in known.items() if words is not None and not _LEFT_OUT.search(part)}
    changed = [f"{name} lacks {part}" for part in sorted(required - now.keys())]
    changed += [f"{name} has {part} besides" for part in sorted(now.keys() - known.keys())]
    for part in sorted(required & now.keys()):
        before, words = known[part], now[part]
        changed += [
            f"{name}, {part}: {b!r} is now {a!r} behind ...{''.join(words[max(0, position - 6) : position])[-120:]!r}"
            for position, (a, b) in enumerate(zip(words, before, strict=False))
            if not is_close(a, b)
        ]
        if len(words) != len(before):
            changed.append(f"{name}, {part} ends elsewhere")
    return changed


def of_folder(folder: Path, names: Mapping[Path, str]) -> dict[str, str]:
    """Texts of all files below a folder, and of the newest checkpoint; `names` stand for paths that differ from run to run."""
    texts = {
        str(path.relative_to(folder)): _text(path) for path in sorted(folder.rglob("*")) if path.is_file()
    }
    parts = {name: text for name, text in texts.items() if text and not _LEFT_OUT.search(name)}
    for checkpoints in folder.rglob("checkpoints"):
        parts[str(checkpoints.relative_to(folder))] = _checkpoint(checkpoints)
    return {replaced(name, names): replaced(text, names) for name, text in parts.items()}


def replaced(text: str, names: Mapping[Path, str]) -> str:
    """A text with names in place of paths, the longest first, and of what another day or machine writes in another way."""
    for path, name in sorted(names.items(), key=lambda item: -len(str(item[0]))):
        text = text.replace(str(path), name)
    # A part of the random name may have no letter, or no digit.
    store = rf"\b{re.escape(socket.gethostname())}-[0-9a-f]{{8}}-[0-9a-f]{{12}}\b"
    text = re.sub(store, "HOST-HEX-HEX", text)
    any_number = ((_OF_THE_MACHINE, r"\1" + _ANY), (_PER_SECOND, _ANY + r" \1"))
    for pattern, name in (
        *any_number,
        (_DATE, "DATE"),
        (_CHECKED, "CHECKED "),
        (_REVISION, "revision"),
        (_HEX, "HEX"),
        (_DATA, "DATA"),
        (_VERSIONS, "VERSIONS"),
    ):
        text = pattern.sub(name, text)
    return text


def _checkpoint(folder: Path) -> str:
    import jax

    from motif_jax.core.checkpoint_items import ANY
    from motif_jax.core.checkpoints import Checkpoints

    with Checkpoints(folder, read_only=True) as checkpoints:
        steps = checkpoints.steps()
        tree = checkpoints.restore(steps[-1], {"params": ANY})["params"]
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return "\n".join(
        [f"{steps[-1]}", *(f"{jax.tree_util.keystr(path)} {_size(leaf)}" for path, leaf in leaves)]
    )


def shown_array(array: Any) -> str:
    """Type, shape, sum, norm and the first numbers of an array; a checksum of whole numbers."""
    array = np.asarray(array)
    shown = f"{array.dtype} {list(array.shape)} "
    if array.dtype.kind in "iub":
        shown += f"{zlib.crc32(np.ascontiguousarray(array).tobytes()):#x} "
    if array.dtype.kind not in "iufb":
        return shown
    numbers = array.astype(np.float64).ravel()
    return shown + " ".join(f"{x:.5g}" for x in [numbers.sum(), np.linalg.norm(numbers), *numbers[:16]])


def _size(params: Any) -> str:
    """Type, shape and norm; where gradients vanish, Adam's steps make single numbers hang on the order of sums."""
    array = np.asarray(params)
    return f"{array.dtype} {array.shape} {np.linalg.norm(array.astype(np.float64)):.5g}"


def _text(path: Path) -> str:
    """What can be compared of a file."""
    match path.suffix:
        case ".npy":
            return shown_array(np.load(path))
        case ".parquet":
            import pyarrow.parquet

            table = pyarrow.parquet.read_table(path)
            return f"{table.schema.remove_metadata()}\n{table.num_rows}\n" + "\n".join(
                map(str, table.slice(0, 40).to_pylist())
            )
        case ".safetensors":
            from safetensors.numpy import load_file

            return "\n".join(f"{name} {_size(array)}" for name, array in sorted(load_file(path).items()))
        case ".png" | ".gif":
            from PIL import Image

            with Image.open(path) as image:
                frames = getattr(image, "n_frames", 1)
                return f"{image.size} {frames} " + shown_array(
                    np.asarray(image.convert("RGB").resize((6, 6)))
                )
        case ".gz" | ".bz2":
            data = (gzip if path.suffix == ".gz" else bz2).decompress(path.read_bytes())
            return data[:20_000].decode("latin-1")
        case ".npz":
            with np.load(io.BytesIO(path.read_bytes())) as file:
                return "\n".join(f"{name} {shown_array(file[name])}" for name in sorted(file))
        case ".json" | ".jsonl" | ".csv" | ".md" | ".html" | ".txt" | ".tex" | ".svg" | ".log" | ".yaml":
            text = path.read_text(encoding="utf-8", errors="replace")
            # Workers end in any order.
            return "\n".join(sorted(text.splitlines())) if path.name == "episodes.jsonl" else text
    return ""
