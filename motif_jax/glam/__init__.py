"""GLAM: a language model is the agent, in a world that is told in sentences (Carta et al. 2023).

The model reads a prompt, scores the words of each action, and their softmax is the policy (section
3 of the paper). PPO trains all of it. The order to read:

    motif_jax/envs/babyai_text/         the world: sentences.py describes a view, prompts.py makes
                                        the prompt
    agent.py                            the policy and the value: a prompt is run once, the actions
                                        are scored after it
    motif_jax/lm/scoring.py             the scores, in three published forms
    motif_jax/rl/algorithms/ppo.py      PPO: targets, epochs, minibatches, micro-batches, losses
    network_kinds.py                    how a training of agents makes and checks it: tokens of
                                        prompts and actions, turns, digests
    motif_jax/rl/train_agent.py         the command, with configs/train_language_agent.py

Beside it:

    clone_behaviour.py          cloning of a player's actions, from the trajectories of
                                collect_trajectories.py (trajectories.py has their files,
                                cloning_data.py makes tokens of them, cloning_task.py the loss)
    generalisation_stage.py     test_language_agent: other words, other goals, other levels
                                (generalisation.py says which, eval_agents.py who plays,
                                generalisation_files.py what is written)
    probe_language_agent.py     what checkpoints would do in fixed prompts (probing.py)
    drrn.py, drrn_update.py     DRRN, the paper's baseline that learns from words without a
                                pretrained model (replay_memory.py)
    training_hooks.py           what a training writes besides: probes, the published tool's log,
                                a trial of the tests

Where a change goes:

    another way to score actions       motif_jax/lm/scoring.py has the formula,
                                       LanguagePolicy.score in config.py its name
    another term of PPO's loss         motif_jax/rl/algorithms/ppo.py: `step_losses` has the terms,
                                       `PpoAlgorithm.loss` gives them their arrays
    another prompt                     motif_jax/envs/babyai_text/prompts.py
    another head of values             motif_jax/lm/heads.py
    another test                       generalisation.py
"""
