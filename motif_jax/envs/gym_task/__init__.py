"""Any gymnasium environment as a task: `gym:ID`."""
