"""How much memory a step may take unless told otherwise."""

GIBIBYTE = 2**30
DEFAULT_BUDGET = 4 * GIBIBYTE
