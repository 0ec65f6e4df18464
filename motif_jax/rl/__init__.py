"""Agents that learn while they play: APPO and PPO, in processes, threads and run folders that all
methods share.

Actors play games in processes. Inference chooses the actions of all groups that wait, on a device,
and the rows of each rollout go into a slot of shared memory. The batcher copies full slots into a
batch and pays its texts. The learner updates the parameters with the batch and publishes them to
inference. The order to read:

    train_agent.py          the command: checks a config, makes what the run needs, new or from its
                            checkpoint, and loops over batches (`AgentTraining._learn`)
    system.py               `build` makes the network, the algorithm and the reward that a config
                            names; `System` the actors, inference, batcher and learner
    batch_stream.py         who works when: inference and batcher in threads, or in turns with the
                            learner (serial, on policy)
    actors/                 the processes and their slots
    inference.py            runs the network for groups that wait, with the parameters that the
                            learner published; acting_program.py is the program of a call
    batcher.py              full slots become a batch
    learner.py              runs updates, publishes their parameters, skips one that is not finite
    algorithms/             an algorithm is `init` and `update`: appo.py, ppo.py

What is paid:

    intrinsic.py            `RewardKind`, the interface of rewards, and the one that a config names
    reward_lookup.py        pays the texts of a batch, or their sentences; count_discount.py divides
                            by their counts
    message_table.py        keeps the values of texts, for kinds whose reward is frozen or has
                            versions
    reward_choice.py        keeps the evaluation of a reward's run that a training uses to its end
    episode_rewards.py      pays running episodes, for the wrappers
    algorithms/total_reward.py      the weighted sum of the task's reward and the intrinsic one

Around the loop:

    config.py, settings.py      the keys; what follows from them, which devices learn, act and pay
                                texts, and the checks
    choices.py                  names networks, algorithms, rewards and additions of all methods,
                                imported when they are chosen
    agent_networks.py           the kinds of networks
    start_messages.py           what is printed before the first update
    run_writer.py               the run's folder: checkpoints (agent_checkpoints.py), metrics,
                                episodes (episode_log.py), what was paid (paid_texts.py)
    episode_recorder.py         records every Nth game
    clock.py                    when to save and to log
    model_flops.py              the share of the devices' peak

Where a change goes:

    another algorithm           a subclass of algorithms.algorithm.Algorithm,
                                `config.algorithm.name=module:Class`
    another reward              a subclass of intrinsic.RewardKind,
                                `config.reward.kind=module:Class`
    another network             motif_jax/nets; another kind of network is a subclass of
                                agent_networks.NetworkKind
    another addition            what a method checks and writes beside a training: a
                                run_writer.TrainingHook
    another key                 config.py, of an algorithm algorithms/config.py
    another metric              the metrics of an update in algorithms/, else run_writer.py;
                                docs/metrics.md lists them
"""
