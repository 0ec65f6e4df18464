"""One file a stage of the pipeline; each puts parts together and computes nothing itself."""
