"""Actor processes, trajectory slots in shared memory, supervision; numpy only."""
