"""Writes what a maintainer needs of a bench or a doctor, and nothing personal.

`rules.py` has the kinds of values that may leave a machine, `schema.py` lists every
field with its rule, and the other files collect the facts. A field without a rule does
not leave the machine, and neither does a value that its rule does not know
(docs/measured.md).
"""
