"""The earlier place of verbs for cascades."""

raise ImportError("use edgec.compile, explain and bench: they take cascades too")
