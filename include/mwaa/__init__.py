"""What Amazon MWAA takes: the bundle of plugins, DAGs and requirements, built and published.

Not for running anything there, and never shipped: MWAA has no include/.
"""
