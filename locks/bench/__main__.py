"""python -m locks.bench runs drain.py, a separate module so that its processes can import it."""

from .drain import main

if __name__ == "__main__":
    main()
