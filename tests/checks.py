"""Checks of test scripts. A check that fails prints a message, and the script continues, so that one run shows all failures."""

import sys

failures = 0


def check(condition, text):
    global failures
    if not condition:
        failures += 1
        print("FAILED:", text)


def finish():
    """Exit with 1 if a check failed, and 0 otherwise."""
    sys.exit(failures > 0)
