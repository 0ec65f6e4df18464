"""Networks of agents that see fields, and of rewards; those of language models are in motif_jax/lm.

The order to read:

    policy.py               the interface of all policy networks, also those of language agents
                            (motif_jax/glam)
    agent.py                the agent: an encoder, a recurrent core (cores.py), heads for policy and
                            value; config.py has its keys
    encoders.py             fields become a vector: image.py and tile_embedding.py read NetHack's
                            screen, film.py BabyAI's view and instruction
    distributions.py        the policy over what a network gives; squashed_gaussian.py over real
                            numbers, without jax for the actors
    reward.py               the reward model of Motif; message.py reads its message
    classifier.py           the classifier of ONI
    layers.py               layers and initialisers; products.py multiplies in the form that is
                            quickest here
    layout.py               the names and axes of parameters in published files
    running_statistics.py   statistics of what a network reads, kept beside its parameters

Where a change goes:

    another encoder         a class in a file of its own, its name in config.py, its fields and its
                            making in agent.py (`_make_trunk`)
    another core            cores.py
    another network         the interface in policy.py, and a kind of network:
                            motif_jax/rl/agent_networks.py
"""
