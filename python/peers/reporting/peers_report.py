"""A plug-in for pytest that says on one line of JSON each which test begins and how it ended, at once, into $PEERS_REPORT.

run.py reads it: a test that takes its process with it has begun and not ended.
"""

import json
import os
import time


def _say(**line):
    with open(os.environ["PEERS_REPORT"], "a", encoding="utf-8") as report:
        report.write(json.dumps(line) + "\n")


def _name(nodeid):
    return nodeid.split("::", 1)[-1]


def pytest_configure(config):
    if os.environ.get("PEERS_FORK") == "1":
        import peers_fork

        peers_fork.install()


def pytest_collection_modifyitems(config, items):
    without = set(json.loads(os.environ["PEERS_WITHOUT"]))
    config.hook.pytest_deselected(items=[item for item in items if _name(item.nodeid) in without])
    items[:] = [item for item in items if _name(item.nodeid) not in without]


def pytest_runtest_logstart(nodeid, location):
    _say(test=_name(nodeid), outcome="begun", at=time.time())


def pytest_runtest_logreport(report):
    # A test has reports of setup, call and teardown. The first that did not pass counts, else that of the
    # call.
    if report.when == "call" or report.outcome != "passed":
        text = "" if report.outcome != "failed" else str(report.longrepr)
        _say(test=_name(report.nodeid), outcome=report.outcome, seconds=report.duration, text=text[-20_000:])


def pytest_collectreport(report):
    if report.failed:
        _say(test=_name(report.nodeid) or str(report.nodeid), outcome="failed", seconds=0.0, text=str(report.longrepr))
