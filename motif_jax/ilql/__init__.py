"""ILQL: agents that speak, learned offline from recorded dialogues (Snell et al. 2022).

A language model proposes tokens and learned values steer it: V is an expectile of the target Q
(section 4 of the paper, equation 3), Q regresses on reward plus V, and the policy imitates the
data, weighted or not. Filtered cloning, CQL, Psi, BCQ, CHAI, AWAC, SARSA and the decision
transformer are variants of the same training. The order to read:

    train_text.py                   the command
    text_run.py                     builds the training: agent, initial parameters, data, task
    dialogues/                      a dialogue (dialogue.py) becomes tokens with rewards and indices
                                    of actions (items.py), and batches (dialogue_source.py,
                                    dialogue_data.py, dialogue_batches.py, collate.py)
    text_task.py                    a step and an evaluation, for the offline trainer in
                                    motif_jax/core/training
    agent/text_agent.py             the trunks and heads of policy, values and target;
                                    agent_start.py has their first parameters, parameter_parts.py
                                    says which are learned
    methods/text_objective.py       the loss of a batch: estimates go into the method's losses,
                                    whose terms are weighted
    methods/text_estimates.py       runs the trunks and heads over the batch; of CHAI
                                    proposal_estimates.py
    methods/implicit_q.py           the losses: expectile regression of V, Bellman error of Q, CQL
                                    term, weighted cloning
    methods/text_methods.py         which method has which loss
    agent/target_network.py         targets follow the Qs

From a step to the expectile (equation 5 of Kostrikov et al. 2022): `TextTraining.guarded_step`
differentiates `Objective.measured`, which calls `Rule.losses`, `implicit_q.losses` and
`expectile_errors`; an evaluation calls `Objective.terms`.

Then the agent speaks:

    agent/decoding.py               the policy steered by values, token by token or among whole
                                    candidates
    agent/text_session.py           many dialogues at once, whose caches grow with them
                                    (text_programs.py, decode_state.py)
    agent/agent_folder.py           the folder of a trained agent
    evaluate_text.py                games and tables, utterances ranked, a person at the terminal
                                    (evaluation/)
    methods/chai.py                 CHAI's term for candidates of dialogues

tasks/ has the games: Wordle, visual dialogue, replies to comments, BabyAI-Text, dialogues of your
own; contract.py is what a task must have. collect_text.py collects a task's dialogues;
train_upvote.py trains a model that rewards replies.

Where a change goes:

    another loss or method          a Rule of methods/text_methods.py, or
                                    `config.method.name=module:Class`
    another conservative term       `action_q` of a Rule: it has Q of every token
    another task                    a subclass of tasks.contract.TextTask
    another way to decode           agent/decoding.py
    another key of a command        config.py, evaluation/config.py
"""
