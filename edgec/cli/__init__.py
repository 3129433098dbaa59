"""The verbs for a terminal, one file per group; no work of their own."""
