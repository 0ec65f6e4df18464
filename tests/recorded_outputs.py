"""What functions and commands give, compared with what they gave before: words to the letter, numbers nearly.

    TESTS=$(grep -rlw --include='*_test.py' record tests)
    rm -r tests/recorded
    python -m pytest -n2 --all $TESTS --record
    XLA_FLAGS=--xla_cpu_max_isa=AVX2 taskset -c 0 python -m pytest $TESTS --record

The second run is as on a smaller machine. What differs between the two (times, sums in another order) is compared no more.
"""

from __future__ import annotations

import bz2
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
_MOST_CHARACTERS = 1_000_000
_LEFT_OUT = re.compile(
    r"(^|/)(checkpoints|resume|versions\.json|command\S*|tensorboard|profile|\.lock|_?[A-Z_]+|manifest\.ocdbt|d|ocdbt\S*)(/|$)"
)


def said(call: Callable[..., Any], *given: Any, folder: Any = None, **named: Any) -> str:
    """What a call gives, or its error, as a text in which `folder` is called FOLDER."""
    try:
        found = str(call(*given, **named))
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    found = re.sub(r"maximum recursion depth exceeded[\w ]*", "too deep", found)
    return found if folder is None else found.replace(str(folder), "FOLDER")


def near(one: str, other: str) -> bool:
    """Whether two words are equal, or two numbers nearly; whole numbers count as words."""
    if one == other or _ANY in (one, other):
        return True
    numbers = _NUMBER.fullmatch(one) and _NUMBER.fullmatch(other) and "." in one + other
    return bool(numbers) and math.isclose(float(one), float(other), rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)


def compared(name: str, parts: Mapping[str, str], record: bool) -> None:
    """Compares texts with the recording `name`; with `record` they become part of it."""
    path = FOLDER / f"{name}.json.gz"
    assert all(len(text) <= _MOST_CHARACTERS for text in parts.values()), "a text is too long"
    now = {part: _NUMBER.split(_PATH.sub(r'd="\1"', text)) for part, text in parts.items()}
    known = json.loads(gzip.decompress(path.read_bytes())) if path.exists() else None
    if record:
        merged = now if known is None else _merged(known, now)
        FOLDER.mkdir(exist_ok=True)
        data = json.dumps(merged, ensure_ascii=False, sort_keys=True).encode()
        path.write_bytes(gzip.compress(data, 9, mtime=0))
        return
    assert known is not None, f"nothing is recorded for {name}: see tests/recorded_outputs.py"
    wanted = {part for part in known if known[part] is not None}
    assert wanted <= now.keys() <= known.keys(), f"{name} has other files: {sorted(wanted ^ now.keys())}"
    for part, before in known.items():
        if before is None:
            continue
        found = now[part]
        wrong = [
            f"{a!r} was {b!r} behind ...{''.join(found[max(0, at - 6) : at])[-120:]!r}"
            for at, (a, b) in enumerate(zip(found, before, strict=False))
            if not near(a, b)
        ]
        assert not wrong, f"{name}, {part}: " + "; ".join(wrong[:5])
        assert len(found) == len(before), f"{name}, {part} ends elsewhere"


def _merged(known: dict[str, Any], now: dict[str, list[str]]) -> dict[str, Any]:
    """A recording without what another run gives in another way."""
    merged: dict[str, Any] = {}
    for part in known.keys() | now.keys():
        one, other = known.get(part), now.get(part)
        same = one is not None and other is not None and len(one) == len(other)
        merged[part] = [a if near(a, b) else _ANY for a, b in zip(one, other, strict=True)] if same else None
    return merged


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
