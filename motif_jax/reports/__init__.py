"""Pages of runs and studies; nothing here imports jax at its head.

`report` reads the folders of one run's stages into `run_data.RunData` and writes its page:
`report.sections` lists the sections, each in the file of its subject (`evaluation_sections`,
`training_sections`, `reward_sections`, `learned_reward`, `probe_report`, `recorded_games`).
`headline` has the sentence at the top, `hacking` whether more reward is less progress.

`run_study` trains the methods of a study (`study_config`), plays games with each and keeps one line
per run; or it takes runs that exist already (`finished_runs`). Either makes `study.StudyRuns`, of
which `study` makes tables, claims and the page.

`curves` averages what both show over steps. Sections become HTML, Markdown and pictures in
`display.page.write`, for a run and for a study alike.
"""
