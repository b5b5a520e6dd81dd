"""Commands of ``pdf-ops``, a module each."""
