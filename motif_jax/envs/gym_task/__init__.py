"""Any gymnasium environment with discrete actions as a task: `gym:ID`."""
