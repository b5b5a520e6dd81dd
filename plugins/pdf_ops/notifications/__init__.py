"""Who is told about a run, and how."""
