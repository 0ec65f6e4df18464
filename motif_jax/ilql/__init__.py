"""ILQL: agents that speak, learned offline from recorded dialogues (Snell et al. 2022).

A language model proposes tokens and learned values steer it: V is an expectile of the target Q
(section 4 of the paper, equation 3), Q regresses on reward plus V, and the policy imitates the
data, weighted or not. Filtered cloning, CQL, Psi, BCQ, CHAI, AWAC, SARSA and the decision
transformer are variants of the same training. The way from flags to a gradient, in the order to
read:

    config.py                       the keys; `TextMethod` has the numbers that the losses read,
                                    `LossWeights` their weights
    train_text.py                   the command: makes the dialogues, the loss, the initial
                                    parameters, the task of the offline trainer
    dialogues/dialogue_data.py      the dialogues (dialogue.py) of a run, from files
                                    (dialogue_files.py) or drawn from a task
    dialogues/dialogue_tokens.py    a dialogue as tokens, with rewards and indices of actions
    dialogues/dialogue_batches.py   batches of them, for each step
    agent/agent_start.py            the first parameters, and which of them are learned
    text_task.py                    a step and an evaluation, for the offline trainer in
                                    motif_jax/core/training; targets follow the Qs
    objective.py                    the loss of a batch: runs the networks (agent/text_agent.py),
                                    weights the method's losses
    methods.py                      the methods, and their losses: expectile regression of V,
                                    Bellman error of Q, CQL term, weighted cloning, CHAI's terms

From a step to the expectile (equation 5 of Kostrikov et al. 2022): `TextTraining.guarded_step`
differentiates `Objective.measured`, which calls `Objective.estimates`, `Rule.losses` and
`expectile_errors`. CHAI's candidates of a frozen policy are added to batches by
chai_candidates.py.

Then the agent speaks:

    agent/decoding.py               the policy steered by values, token by token or among whole
                                    candidates
    agent/text_session.py           many dialogues at once, whose caches grow with them
    agent/agent_folder.py           the folder of a trained agent
    evaluate_text.py                games and tables, utterances ranked, a person at the terminal
                                    (evaluation/)

tasks/ has the games: Wordle, visual dialogue, replies to comments, BabyAI-Text, dialogues of your
own; contract.py is what a task must have. collect_text.py collects a task's dialogues;
train_upvote.py trains a model that rewards replies.

Where a change goes:

    another loss or method          a `Rule` of methods.py with its line in `RULES`, or
                                    `config.method.name=module:Class`
    another conservative term       `action_q` of a Rule: it has Q of every token
    another task                    a subclass of tasks.contract.TextTask
    another way to decode           agent/decoding.py
    another key of a command        config.py
"""
