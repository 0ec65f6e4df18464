"""ONI: the reward is learned while the agent plays, from labels that arrive meanwhile (Zheng et al.
2024).

New texts of the agent's own play are questions. A judge beside the training answers them; what it
has answered so far is the reward. The paper has three forms of it (section 4): retrieval of the
labels themselves, a classifier of single texts, and a network of preferences between two texts. The
order to read:

    online.py               the base of all three: takes the labels that have arrived, pays a batch,
                            names texts without a label; retrieval: a text's reward is its label
    network_reward.py       what the other two share: the labels as training data, how many gradient
                            steps they call for, and who takes them
    classification.py       a classifier, and its loss
    ranking.py              preferences of pairs, normalised by running moments

Labels:

    label_service.py        queues questions, asks the judge in the background, keeps its answers in
                            the answer store (motif/annotation/store.py), hands labels over at the
                            start of a batch
    label_queue.py          which question is next; what is in flight and answered, and what it
                            costs
    label_log.py            each label with the number of the batch that it first counted in: a
                            resumed run reads it again
    message_stats.py        every text that the agent has seen, with its counts and rewards; how
                            many labels and paid steps there are, and how long a label takes to its
                            first use

A label that arrives during an update is written to the answer store and waits in label_queue.py.
`OnlineReward.pay` in online.py takes it before it pays the next batch that the batcher assembles;
the batch of the next update may have been paid already (rl/batch_stream.py). The label is logged
with the number of the batch that it first counts in, and with retrieval it pays from there on. With
a network it only calls for gradient steps, which run beside the learner; their parameters pay from
the first batch after they end. The lexicon and a model in this process answer before a batch is
paid, and the batcher waits for them.

online_model.py freezes what a run has learned. bag_of_words.py is the paper's baseline without
a judge.

The training is `motif_jax/rl/train_agent.py` with `configs/oni.py`; `check_reward.py` asks the
judge again afterwards. A fourth form is a subclass of `online.OnlineReward`, named as
`config.reward.kind=module:Class`. A reward that needs no judge, such as one for rare texts
(docs/examples/rare_texts.py), is a subclass of `rl/intrinsic.py:RewardKind` with `observe`, `state`
and `restore`.
"""
