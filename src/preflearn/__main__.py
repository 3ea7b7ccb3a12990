"""``python -m preflearn`` is the command line."""

from preflearn.cli import main

if __name__ == "__main__":
    main()
