"""The data plane: PDFs and images in, page rows out.

Runs in the container and on a laptop alike; knows nothing of Airflow. What it shares with the
control plane is in ``pdf_ops.contract``.
"""

__version__ = "0.1.0"
