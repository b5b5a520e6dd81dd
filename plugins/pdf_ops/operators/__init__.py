"""The pipeline's steps, one module each."""
