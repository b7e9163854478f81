"""python -m locks.bench: runs the benchmark in drain.py, which its worker processes also import."""

from .drain import main

if __name__ == "__main__":
    main()
