"""Pages of runs and studies; nothing here imports jax at its head.

`report` reads the folders of a run's stages into `run_data.RunData` and writes a page: `run_report`
lists its sections, each in a file of its own (`evaluation_sections`, `training_sections`,
`generalisation_section`, `text_section`, `learned_reward`, `probe_report`, `recorded_games`).
`glance` has its first lines, `hacking` and `success` its verdicts.

`run_study` trains the methods of a study (`study_config`), plays games with each and keeps one line
per run; or it reads runs that exist already (`finished_runs`). `study` has the statistics of the
tables and of the claims (`claims`), `smoothing` the learning curves, `efficiency` their means up to
a step, `study_page` the page.
"""
