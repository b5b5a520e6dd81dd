"""The report of a run: what it says, and the page that shows it."""
