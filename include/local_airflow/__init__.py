"""Airflow on this machine against the local AWS: the demonstration, and a whole Airflow to click in.

For a person's first hour and for tests; never for a deployment.
"""
