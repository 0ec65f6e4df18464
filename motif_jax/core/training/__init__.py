"""The offline trainer with exact resume, and what every optimiser step needs.

A method defines a `task.Task`: state, step, batches, evaluation. `offline_run` connects a command
with its task, `trainer` compiles the steps (`train_steps`), `training_loop` runs them, and
`run_files` has the files of a run: position, evaluations, summary. `config` has the sections of
such trainings, `schedules` the optimisers, `finite` the guard of a step, `ensembles` and
`block_stack` forms of parameters, `reductions` and `spread` sums over devices.
"""
