"""Plays whole seeded episodes: to evaluate, watch, record and replay them, and to rate them by a
reward.

An episode is determined by its environment, its seed and its actions, so it can be played again by
anybody, drawn and rated afterwards. Results do not depend on the number of processes. The order to
read:

    envs/episode.py             the player, which records episodes; rl/actors/episodes.py runs it
                                in processes, by the policies of rl/actors/policies.py
    agent_policy.py             a checkpoint of an agent as a policy
    ratings.py                  the intrinsic reward that rates an episode
    evaluation_setup.py         from a config to a policy in its environment, with its reward

The commands:

    evaluate.py                 N episodes -> table, JSON, parquet (evaluation_files.py; journal.py
                                resumes)
    visualize.py                episodes on the terminal and as films: of a policy that plays now,
                                or recorded ones with the values of a reward and of an agent
    watching.py                 an episode step by step, and as a film
    terminal.py                 the terminal: keys, speed and pauses, a step
    films/                      players in the browser, GIFs, ttyrecs

Beside them:

    messages.py                 how often games show which message, and what the reward paid for it
    evaluation_tables.py        the summary of an evaluation, and its table
    fixed_shares.py             the best policy that reads nothing, a baseline
    agents.py                   agents as players of a collection (motif_jax/motif/pairs)

Where a change goes:

    another policy              `config.policy=module:Class`, a class as in
                                rl/actors/policies.py
    another figure per episode  evaluation_files.episode_row, or the environment's `episode_info`
    another thing on a film     watching.WatchedStep and Film, then films/
"""
