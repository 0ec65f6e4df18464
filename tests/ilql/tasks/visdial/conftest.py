"""Files of made-up dialogues."""

from __future__ import annotations

import pytest

from tests.ilql.tasks.visdial import made_up


@pytest.fixture
def files(tmp_path):
    return made_up.write(tmp_path)
