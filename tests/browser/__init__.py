"""The pages in a real browser: `make browser-test`, and the pictures of them: `make screenshots`."""
