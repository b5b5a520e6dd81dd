#!/usr/bin/env bash
# Amazon MWAA sources this in every container, before it installs the requirements and starts Airflow.
# What it prints is in the environment's CloudWatch logs: there you see which release a container started with.
export PDF_OPS_VERSION="@VERSION@"
echo "pdf_ops ${PDF_OPS_VERSION}, built for Airflow @AIRFLOW@"
