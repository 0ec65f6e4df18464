"""Rewards of tokens: the section of a config that training and evaluation have."""

from __future__ import annotations

from motif_jax.schema import plain_key, section_class


@section_class
class TokenRewardSection:
    """Rewards of the tokens of actions."""

    constant: float = plain_key(0.0, "reward of every token of an action")
    file: str | None = plain_key(
        None, "JSON file {token: value} of rewards, in place of the constant"
    )
    scale: float = plain_key(1.0, "factor on the values of the file")
    shift: float = plain_key(0.0, "amount that is added to the scaled values")
