"""Environments: what a player of any of them may rely on, and one package for each family of games.

An environment is a class with `spec`, `reset`, `step` and `episode_info` that writes its
observations into arrays of the caller. Nothing outside an environment's package knows the names of
its fields: actors, learner and networks follow its `EnvironmentSpec`. The order to read:

    spec.py                     the contract: EnvironmentSpec, Environment, EnvironmentGroup,
                                Renderer
    recall.py                   the smallest environment, a whole one on a page
    registry.py                 names -> environments; `module:Class` and `gym:ID` are names too
    sequential.py               environments of any kind as a group, stepped one after the other
    episode.py                  plays episodes and records them, for all stages

    nethack/                    the NetHack tasks of Motif and ONI, on nle's engine; its page has
                                the order to read
    minihack/                   MiniHack's tasks on the same engine
    minigrid_events/            minigrid levels with captions of events
    crafter/                    Crafter, with captions of events
    babyai_text/                BabyAI levels in sentences and prompts, for language models
    gym_task/                   any gymnasium environment

    recording.py                an episode as seed and actions, with a digest
    determinism.py, checked.py  what environments from outside the package must do: keep nothing
                                over episodes, play the same episode again, give finite numbers
    gymnasium_env.py            these environments for gymnasium; registration.py registers them

Where a change goes:

    another NetHack task        a rule and an entry in nethack/tasks.py
    another family of games     a package with an Environment, and its names in registry.py
    one of your own             a class with `make_spec`, named `module:Class`; nothing here changes
                                (docs/environments.md)
    another figure per episode  `EnvironmentSpec.episode_fields` and `Environment.episode_info`
"""
