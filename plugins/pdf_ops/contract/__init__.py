"""What the control plane and the worker agree on: errors, rows, messages, keys.

Pure Python, standard library and pyarrow only, pyarrow imported where it is used. Import the
modules by name; this package re-exports nothing, so that a DAG file pays only for what it needs.
Not for behaviour: nothing here talks to AWS, to Airflow or to a PDF.
"""
