"""Faults of every kind against a real fleet on the local AWS, and the accounts after it.

``python -m tests.chaos --seed 7 --documents 300`` is the program; ``storm`` is what it does.
"""
