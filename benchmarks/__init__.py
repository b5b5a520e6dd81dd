"""What pdf_ops is measured against: the same documents, the same machine, one run. ``make bench``."""
