"""Networks of agents that see fields, and of rewards; those of language models are in motif_jax/lm.

The order to read:

    policy.py               the interface of all policy networks, also those of language agents
                            (motif_jax/glam)
    agent.py                the agent: an encoder, a recurrent core (cores.py), heads for policy and
                            value; config.py has its keys
    encoders.py             fields become a vector: glyphs.py, image.py and tile_embedding.py read
                            NetHack's screen, message.py its message, status.py its status line,
                            film.py BabyAI's view and instruction
    squashed_gaussian.py    the policy over real numbers
    reward.py               the reward model of Motif; reward_layout.py names its parameters as in
                            published files
    classifier.py           the classifier of ONI
    layers.py               layers and initialisers; layout.py converts from PyTorch

Forms that are quicker with the same results: casts.py, convolution.py, products.py, tiles.py. State
beside the parameters: running_statistics.py, underfoot.py.

Where a change goes:

    another encoder         a class in a file of its own, its name in config.py, its fields and its
                            making in agent.py (`_make_trunk`)
    another core            cores.py
    another network         the interface in policy.py, and a kind of network:
                            motif_jax/rl/agent_networks.py
"""
