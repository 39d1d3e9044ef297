"""Two hosts over a shaped link (network namespaces, veth, tc tbf): the backward pass hides communication. `rondo bench
step --emulate-hosts 2` measures the effect on a step."""
import collections
import json
import statistics

import pytest
from hosts import Job, launchers, linked_hosts

pytestmark = pytest.mark.alone

STEPS = 12


def gradients_of(events):
    """Returns by rank and step the start and end of the backward pass, and for each bucket when it was launched and
    when ready."""
    backward, waits, gradients = {}, collections.defaultdict(list), []
    for event in events:
        if event["ph"] != "X":
            continue
        key, name = (event["pid"], event["args"]["step"]), event["name"].split()[0]
        if event["name"] == "backward":
            backward[key] = event["ts"], event["ts"] + event["dur"]
        elif name == "wait":
            waits[key].append((event["ts"], event["ts"] + event["dur"]))
        elif name in ("reduce_scatter", "all_reduce"):
            gradients.append((event["pid"], event["ts"] - event["args"]["queued_ms"] * 1e3, event["ts"]))
    # The trace lists an operation in the step in which it completed; it belongs to the step in which it became ready.
    buckets = collections.defaultdict(list)
    for rank, ready, left in gradients:
        before = [(begin, key) for key, (begin, _) in backward.items() if key[0] == rank and begin <= ready]
        if before:
            buckets[max(before)[1]].append((left, ready))
    result = {}
    for key, (begin, end) in backward.items():
        # A final wait for gradients without compute is not part of it.
        for since, until in sorted(waits[key], reverse=True):
            if begin < since and until >= end - 500:
                end = since
        result[key] = begin, end, sorted(buckets[key])
    return result


def late_buckets(begin, end, buckets):
    """Returns how many buckets are launched after the backward pass: those ready in its last tenth, and those ready
    before."""
    late = [ready for left, ready in buckets if left > end]
    kept_back = sum(ready <= begin + 0.9 * (end - begin) for ready in late)
    return len(late) - kept_back, kept_back


# With buckets, as in ddp when it also checks that parameters stay equal.
def test_buckets_are_sent_during_backward(rondo_bin, clean_environment, repository, tmp_path):
    run_dir = tmp_path / "run"
    words = [rondo_bin / "rondo-train-worker", "--model", "gpt-tiny", "--layers", 4, "--width", 128, "--seq-len", 64,
             "--data", repository / "rondo" / "collective", "--data-kind", "text", "--extensions", ".cpp", "--batch-size", 32,
             "--steps", STEPS, "--trace-steps", STEPS, "--validation-fraction", 0, "--backend", "gloo", "--run-dir", run_dir,
             "--progress", "off", "--bucket-size", "512KiB", "--set", "check-parameters-every=1000"]
    # A bucket's transfer is shorter than a layer's backward pass.
    with linked_hosts("1gbit") as hosts:
        job = Job(launchers(hosts, rondo_bin, *words, port=29583, ranks=1), clean_environment | {"OMP_NUM_THREADS": "1"}, tmp_path)
        for code, out, err in job.finish():
            assert code == 0, out + err
    steps = gradients_of(json.loads((run_dir / "trace.json").read_text())["traceEvents"])
    # The last step has no next step to finish its communication; the first one sets up connections.
    counted = {key: value for key, value in steps.items() if 1 < key[1] < STEPS}
    assert {rank for rank, _ in counted} == {0, 1}
    late = {}
    for (rank, step), (begin, end, buckets) in counted.items():
        assert len(buckets) > 4, (rank, step)
        late[rank, step] = late_buckets(begin, end, buckets)
    # Other load on the machine may delay some steps, but not half of them.
    for rank in (0, 1):
        at_end, kept_back = zip(*(counts for key, counts in late.items() if key[0] == rank))
        assert statistics.median(kept_back) == 0, late
        assert statistics.median(at_end) <= 1, late


def test_the_count_tells_what_was_kept_back():
    assert late_buckets(0, 100, [(10, 5), (99, 95)]) == (0, 0)
    assert late_buckets(0, 100, [(10, 5), (101, 95), (102, 20)]) == (1, 1)
