"""python -m loadtest: show the oversell, then the locks that stop it."""

import os
import signal
import sys

if __name__ == "__main__":
    # In the second that the imports take, Ctrl-C has nothing to stop, and says nothing.
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from loadtest.commands.main import main

    sys.exit(main(sys.argv[1:], __doc__))
