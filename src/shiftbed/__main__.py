"""``python -m shiftbed`` is the command ``shiftbed``."""

from shiftbed.cli import main

if __name__ == "__main__":
    main()
