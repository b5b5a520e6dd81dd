"""Search over the text that was read: one interface, the embedded index and OpenSearch behind it."""
