"""The pages: what people see of runs and documents, inside Airflow and by itself."""
