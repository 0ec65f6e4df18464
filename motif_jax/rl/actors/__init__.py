"""Actor processes, trajectory slots in shared memory, supervision; numpy only.

A group is a set of environments that one process plays together. A worker is one core, on which the
processes of `groups_per_worker` groups take turns: one plays while the others wait for their
actions. A slot is one rollout of a group in shared memory, and a row is one step of it, of all its
environments. The order to read:

    rollouts.py         the interface to inference and the batcher, and which group writes into
                        which slot
    slots.py            the shared memory
    group.py            a group of environments, which writes its rows
    actor.py            a process: plays its group's rows as the pool commands
    actor_process.py    the pool's end of a process
    pool.py             starts, commands, watches and replaces the processes
    cores.py            which core a worker has
    inline.py           the same in the calling thread, for serial runs
    rerecording.py      plays an episode again from its seed and actions, for a recording

worker_process.py serves all stages that spread jobs over processes: evaluation, collecting,
recordings.
"""
