"""What keeps a page process from everything but its pages: one module per facility of the kernel.

``sandbox`` puts them together; the limits on memory and time are in ``ocr_worker.limits``.
"""
