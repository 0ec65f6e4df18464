"""The parts of an agent's parameters in a training: learned, frozen and target ones."""

from __future__ import annotations

from typing import Any


def joined(learned: Any, frozen: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The agent's trunks and prefix, and the additions to each trunk, from trained, frozen and
    target parameters.
    """
    # While networks run, a target is a trunk as any other. With low-rank additions its base is
    # among the frozen trunks.
    target = frozen.get("target") or {}
    trunks = {**frozen.get("trunks", {}), **learned.get("trunks", {}), **target.get("trunks", {})}
    additions = {**learned.get("additions", {}), **target.get("additions", {})}
    params = {"trunks": trunks}
    if "prefix" in learned:
        params["prefix"] = learned["prefix"]
    return params, additions


def heads_of(learned: Any, frozen: Any) -> Any:
    """The heads of Q and V, which are frozen where no loss trains them; None for an agent without
    values.
    """
    return learned.get("heads", frozen.get("heads"))
