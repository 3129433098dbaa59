"""python -m edgec."""

from edgec.cli.main import main

main()
