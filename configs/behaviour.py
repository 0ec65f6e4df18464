"""What agents do in the same games, side by side, and whether one does more of something than another.

    python -m motif_jax.launch --config=configs/behaviour.py --workdir=runs/behaviour \\
        --config.methods='combat=runs/eval_combat; gold=runs/eval_gold' --config.claims='combat > gold: kills; gold > combat: gathered'

A folder is an evaluation. Out come behaviour.html, behaviour.md, behaviour.json, and the players that the evaluations left
(evaluate with --config.show_best=1) in replays/. Ends with exit code 1 where the games do not carry a claim: its interval
of paired differences holds 0 or lies below. Seconds.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from motif_jax.support.config import unknown_variant


def get_config(variant: str | None = None) -> ConfigDict:
    if variant not in (None, ""):
        raise unknown_variant(variant, ("",))
    config = ConfigDict()
    config.stage = "behaviour"
    config.title = "What agents do"
    config.methods = ""  # 'name=folder; name=folder; ...'
    # Numbers of an episode (docs/evaluation.md), also those that only the task reports, 'deaths', counts of messages: 'fights', the hero's own attacks, and 'finds',
    # gold that he picked up; 'gathered': the pieces of it, but for those of vaults, of which one has more than hundreds of games.
    config.measures = "fights,kills,finds,gathered,gold,dlvl,deaths,scout,score"
    config.claims = ""  # 'A > B: measure; A > B + 0.3: measure; ...'; 95 % intervals must lie above 0, or 0.3
    config.goals = ""  # 'name=goal; ...': shows the words of goals of the prompt file
    config.prompt = ConfigDict({"file": ""})  # empty: the prompt 'default'
    config.lexicon = ConfigDict({"file": ""})  # whose events are fights; empty: the built-in one
    config.resamples = 2000  # of the bootstrap
    return config
