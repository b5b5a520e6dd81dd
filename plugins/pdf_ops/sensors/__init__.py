"""What the pipeline waits for."""
