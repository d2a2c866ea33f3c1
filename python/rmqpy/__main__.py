"""`python -m rmqpy`: the command line."""

from rmqpy.cli import main

main()
