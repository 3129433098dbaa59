"""python -m edgec."""

from edgec.cli import main

main()
