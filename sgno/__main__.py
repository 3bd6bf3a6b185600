"""`python -m sgno`"""

from sgno.cli import main

main()
