"""The data plane: PDFs and images in, page rows out.

Runs in the container and on a laptop alike; knows nothing of Airflow. What it shares with the
control plane is in ``pdf_ops.contract``.
"""

import gc

# Imports make tens of thousands of objects that stay, and each collection looks at all of them anew.
gc.set_threshold(20_000, 20, 20)

__version__ = "0.1.0"
