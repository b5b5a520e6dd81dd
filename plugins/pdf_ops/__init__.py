"""The control plane of pdf_ops: what Airflow needs to turn the PDFs of an S3 prefix into Parquet.

Not for PDF code: that lives in the worker, which shares only `pdf_ops.contract` with this package.
"""

__version__ = "0.1.0"
