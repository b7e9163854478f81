"""python -m locks.bench: runs drain.py, which the processes of the benchmark import, too."""

from .drain import main

if __name__ == "__main__":
    main()
