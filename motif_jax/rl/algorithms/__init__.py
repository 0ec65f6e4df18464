"""The algorithms of agents: APPO and PPO.

algorithm.py        what a training asks of an algorithm (`init`, `update`), and what all updates
                    share
trajectory.py       the batch that an update reads, and its minibatches of rollouts
total_reward.py     the weighted sum of the task's reward and the intrinsic one
appo.py, ppo.py     an algorithm each, from the batch to the optimiser's step
returns.py          value targets and advantages: V-trace, generalised advantage estimation
losses.py           the terms of the loss
config.py           the keys
"""
