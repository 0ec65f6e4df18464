"""What is read of the published systems' files: PyTorch checkpoints and results, running nothing in them."""
