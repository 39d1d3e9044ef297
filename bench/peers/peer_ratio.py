"""The speed relative to a peer: the rule of rondo/base/arithmetic.h, for measurements in Python."""

MOST_OVER_MINIMUM = 3
RULE = ("Ratios to a peer are of p50; those marked * are of minima, because the peer's p50 is more than 3 times its\n"
        "minimum.")


def peer_ratio(p50, minimum, peer_p50, peer_minimum):
    """Returns (value, whether it is a ratio of minima) for times in one unit."""
    of_minima = peer_p50 > MOST_OVER_MINIMUM * peer_minimum
    ours, peers = (minimum, peer_minimum) if of_minima else (p50, peer_p50)
    return (peers / ours if ours > 0 else 0.0), of_minima


def ratio_text(value, of_minima):
    return f"{value:.1f}x{'*' * of_minima}" if value < 100 else f"{value:.0f}x{'*' * of_minima}"
