"""What the triggerer runs for the pipeline; it loads no DAG files, so these live here."""
