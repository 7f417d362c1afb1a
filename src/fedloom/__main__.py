"""python -m fedloom"""

from fedloom.cli.main import main

main()
