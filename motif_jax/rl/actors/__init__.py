"""Actor processes, trajectory slots in shared memory, supervision; players of whole episodes. numpy
only.

A group is a set of environments that one process plays together. A worker is one core, on which the
processes of `groups_per_worker` groups take turns: one plays while the others wait for their
actions. A slot is one rollout of a group in shared memory, and a row is one step of it, of all its
environments. The order to read:

    rollouts.py         the interface to inference and the batcher, and which group writes into
                        which slot
    slots.py            the shared memory
    actor.py            a process: plays its group of environments as the pool commands, and writes
                        its rows
    pool.py             commands the processes, reads what they report, replaces those that die
    cores.py            which core a worker has
    inline.py           the same in the calling thread, for serial runs

Whole episodes, of evaluations, collections and recordings:

    policies.py         what plays: a policy of worker processes (random, bot), or a network with
                        batches of observations
    episodes.py         plays episodes in processes by `envs.episode.EpisodePlayer`

Processes of all kinds:

    processes.py        start, death, kill and end, of actors and of workers
    worker_process.py   workers that serve requests, and jobs spread over them
"""
