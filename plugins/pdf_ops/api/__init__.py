"""The REST API: the same routes in Airflow's api-server and by itself."""
