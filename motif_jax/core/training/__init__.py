"""Trainings from datasets: one loop with exact resume, and what every optimiser step needs.

    config.py          the keys that all such trainings have
    task.py            what a method gives: `Task` (state, step, batches, evaluation), its position
    trainer.py         from a stage's config to its result, read from top to bottom: prepare, build,
                       batches by (seed, step), step, evaluate, save, early stop; the steps' program
    run_files.py       the files: a checkpoint an evaluation, one inside an epoch, summary, export
    gradient_sums.py   the step of a loss that is a sum: micro-batches, devices, one update
    task_use.py        the share of the devices' peak that a training uses

For optimiser steps of any training, also while an agent plays: `schedules` (optimisers and rates),
`finite` (a step only if its numbers are finite), `ensembles` and `block_stack` (forms of
parameters), `reductions` (means over devices).

A method's loss gives sums and counts, not means: means of micro-batches and of hosts change numbers
in silence. A reward divides before the gradient, since its members' counts are known then.
"""
