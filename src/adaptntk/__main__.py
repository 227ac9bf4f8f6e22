"""``python -m adaptntk``"""

from adaptntk.cli import main

main()
