"""python -m locks.bench: see drain.py, whose processes would not find it under this file's name."""

from .drain import main

if __name__ == "__main__":
    main()
