"""Documents made from nothing: what the demonstration loads and what the tests read."""
