"""A recovery has a bound."""

from __future__ import annotations

from loadtest.faults.trial import late_recovery


def test_a_dead_holder_may_keep_the_others_out_for_two_ttl_and_no_longer() -> None:
    assert late_recovery(None, 1.0) == late_recovery(0.0, 1.0) == late_recovery(2.0, 1.0) == ""
    assert late_recovery(2.5, 1.0) == "nobody bought for 2.5 s, and the ttl is 1 s"
    assert late_recovery(2.5, 2.0) == ""
