from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from urllib.request import urlopen

from loadtest.tests.checkout import assert_nothing_is_left, start


def test_serve_says_where_it_listens_and_ends_cleanly_on_ctrl_c(clone: Path) -> None:
    serving = start(clone, "-m", "loadtest", "serve")
    assert serving.stdout is not None
    said = ""
    for line in serving.stdout:
        said += line
        if "Ctrl-C" in line:
            break
    urls = re.findall(r"http://127\.0\.0\.1:\d+", said)
    assert len(urls) == 3, said  # the page, Locust, and a second node
    for url, page in zip(urls, ("/", "/", "/healthz"), strict=True):
        with urlopen(url + page, timeout=10) as answer:
            assert answer.status == 200

    os.killpg(serving.pid, signal.SIGINT)
    serving.communicate(timeout=30)
    assert serving.returncode == 0, "Ctrl-C is the normal end of it"
    assert_nothing_is_left(clone)
