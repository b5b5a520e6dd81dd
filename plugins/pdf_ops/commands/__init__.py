"""The commands of ``pdf-ops``, one module a group; each has ``add_to``, which adds them to the parser.

Nothing heavy is imported before a command runs, so that ``--help`` is there at once.
"""
