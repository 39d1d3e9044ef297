"""`rondo train --log-to otlp`: what a collector receives, and collectors that are gone, slow, or refuse. (That the bodies are OTLP's is
tested in tests/readers with the official messages, by `make nightly`.)"""
import contextlib
import json
import os
import re
import signal
import socket
import threading
import time

import pytest
from otlp_receiver import Receiver, attributes
from train_test import worker_pids


@pytest.fixture
def words(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("The quick brown fox jumps over the lazy dog. " * 200)
    return ["train", "--data", text, "--model", "gpt", "--layers", 1, "--heads", 2, "--width", 32, "--seq-len", 16, "--batch-size", 4, "--progress", "off",
            "--trace-steps", 0, "--matmul", "libtorch", "--run-dir", "run", "--log-to", "otlp"]


@contextlib.contextmanager
def receiver(answer=None, port=0):
    collector = Receiver(answer, port)
    try:
        yield collector
    finally:
        collector.close()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def steps_of(tmp_path):
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    return [row["step"] for row in rows if "loss" in row and row["rank"] == 0]


def warnings(process_or_text):
    text = process_or_text if isinstance(process_or_text, str) else process_or_text.stderr
    return [line for line in text.splitlines() if "OpenTelemetry: " in line]


def test_a_collector_receives_metrics_and_spans(rondo, words, tmp_path):
    with receiver() as collector:
        done = rondo(*words, "--steps", 20, "--nproc-per-node", 2, "--checkpoint-every", 10, "--set", "steps-per-epoch=10", "--set", "otlp-step-spans=true",
                     env={"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url + "/", "OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%2Cb",
                          "OTEL_SERVICE_NAME": "lab", "OTEL_RESOURCE_ATTRIBUTES": "team=red%20fox", "http_proxy": "http://127.0.0.1:1"})
        assert done.returncode == 0 and warnings(done) == [], done.stderr
        assert {path for path, _, _ in collector.requests} == {"/v1/metrics", "/v1/traces"}
        for _, headers, _ in collector.requests:
            assert headers["Content-Type"] == "application/json" and headers["api-key"] == "a,b"
        resource, metrics, spans = collector.resource(), collector.metrics(), collector.spans()
    assert resource.items() >= {"service.name": "lab", "team": "red fox", "rondo.rank": "0", "rondo.world_size": "2", "rondo.run.name": "run",
                                "rondo.strategy": "ddp", "telemetry.sdk.language": "cpp"}.items()
    assert resource["host.name"] == socket.gethostname() and resource["rondo.version"] == resource["service.version"]
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    last = [row for row in rows if row.get("step") == 20 and "loss" in row]
    value = {name: metric["gauge"]["dataPoints"][0]["asDouble"] for name, metric in metrics.items() if "gauge" in metric}
    assert value["rondo.train.step"] == 20 and value["rondo.train.epoch"] == 1
    assert value["rondo.train.loss"] == pytest.approx(last[0]["loss"], rel=1e-6)
    assert value["rondo.train.learning_rate"] == last[0]["learning_rate"]
    assert value["rondo.train.token.rate"] == pytest.approx(last[0]["tokens_per_s"], rel=1e-6)
    assert value["rondo.validation.loss"] > 0
    for name in ("rondo.memory.tracked.peak", "rondo.memory.resident.peak"):
        assert [attributes(point)["rondo.rank"] for point in metrics[name]["gauge"]["dataPoints"]] == ["0", "1"]
        assert metrics[name]["unit"] == "By"
    for name in ("step", "compute", "communication", "communication.exposed"):
        points = metrics[f"rondo.train.{name}.duration"]["histogram"]["dataPoints"]
        assert [attributes(point)["rondo.rank"] for point in points] == ["0", "1"]
        for point in points:
            assert int(point["count"]) == 20 == sum(map(int, point["bucketCounts"]))
    run, = [span for span in spans if span["name"] == "train"]
    assert "parentSpanId" not in run and attributes(run)["rondo.end"] == "finished" and attributes(run)["rondo.step"] == "20"
    assert {span["traceId"] for span in spans} == {run["traceId"]} and len({span["spanId"] for span in spans}) == len(spans)
    names = [span["name"] for span in spans]
    assert {name: names.count(name) for name in names} == {"train": 1, "epoch": 2, "step": 20, "validation": 2, "checkpoint": 2}
    by_id = {span["spanId"]: span for span in spans}
    for span in spans:
        assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"]) and "status" not in span
        if span is not run:
            parent = by_id[span["parentSpanId"]]
            assert int(parent["startTimeUnixNano"]) <= int(span["startTimeUnixNano"]) and int(span["endTimeUnixNano"]) <= int(parent["endTimeUnixNano"])
            assert parent["name"] in (["epoch"] if span["name"] == "step" else ["epoch", "train"])


def test_without_a_collector_training_goes_on(rondo, words, tmp_path):
    done = rondo(*words, "--steps", 12, "--set", "otlp-interval=50ms", "--set", f"otlp-endpoint=http://user:secret@127.0.0.1:{free_port()}")
    assert done.returncode == 0 and steps_of(tmp_path) == list(range(1, 13)), done.stderr
    said = warnings(done)
    assert sum("training continues" in line for line in said) == 2, said  # once for each signal
    assert any(re.search(r"\d+ spans were not delivered", line) for line in said) and any("data points were not delivered" in line for line in said)
    assert "secret" not in done.stderr


@pytest.mark.parametrize("status, headers, again", [(503, {"Retry-After": "1"}, True), (429, {}, True), (400, {}, False)])
def test_a_collector_that_refuses_at_first(rondo, words, tmp_path, status, headers, again):
    times = {}

    def answer(path, number):
        times.setdefault(path, []).append(time.monotonic())
        return (status, headers, b"busy") if len(times[path]) == 1 else None

    with receiver(answer) as collector:
        done = rondo(*words, "--steps", 2, "--set", f"otlp-endpoint={collector.url}")
        assert done.returncode == 0 and steps_of(tmp_path) == [1, 2], done.stderr
        said = warnings(done)
        assert sum(f"HTTP {status} busy" in line for line in said) == 2, said
        bodies = [body for path, _, body in collector.requests if path == "/v1/traces"]
    if again:
        assert len(bodies) == 2 and bodies[0] == bodies[1] and not any("not delivered" in line for line in said), said
        assert times["/v1/traces"][1] - times["/v1/traces"][0] >= 0.75  # the first pause is a second, give or take a fifth
    else:
        assert len(bodies) == 1 and any("spans were not delivered" in line for line in said), said


def test_a_collector_that_accepts_a_part(rondo, words):
    def answer(path, _):
        key = "rejectedSpans" if path == "/v1/traces" else "rejectedDataPoints"
        return 200, {"Content-Type": "application/json"}, json.dumps({"partialSuccess": {key: "2", "errorMessage": "too old"}}).encode()

    with receiver(answer) as collector:
        done = rondo(*words, "--steps", 2, "--set", f"otlp-endpoint={collector.url}")
    said = warnings(done)
    assert done.returncode == 0 and sum("too old" in line for line in said) == 2 and any("2 spans were not delivered" in line for line in said), done.stderr


def test_silent_collector_delays_end_by_seconds(rondo, words, tmp_path):
    ends = threading.Event()
    with receiver(lambda *_: ends.wait(120) and None) as collector:
        began = time.monotonic()
        done = rondo(*words, "--steps", 50, "--set", "otlp-interval=10ms", "--set", f"otlp-endpoint={collector.url}", env={"OTEL_EXPORTER_OTLP_TIMEOUT": "600000"})
        took = time.monotonic() - began
        ends.set()
    assert done.returncode == 0 and steps_of(tmp_path) == list(range(1, 51)), done.stderr
    assert any("were not delivered" in line for line in warnings(done)), done.stderr
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert took < 60 and max(row["step_ms"] for row in rows if "loss" in row) < 5000


def test_a_collector_that_is_killed_and_comes_back(rondo, words):
    port = free_port()
    with receiver(port=port) as first:
        process = rondo.start(*words, "--steps", 1000000, "--log-every", 1, "--set", "otlp-interval=100ms", "--set", f"otlp-endpoint={first.url}")
        first.wait_for(lambda requests: any(path == "/v1/metrics" for path, _, _ in requests))
    lines = []
    while not any("training continues" in line for line in lines):
        line = process.stderr.readline()
        assert line, lines
        lines.append(line)
    with receiver(port=port) as second:
        second.wait_for(lambda requests: any(path == "/v1/metrics" for path, _, _ in requests))
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=120)
        assert process.returncode == 3, err
        assert {span["name"] for span in second.spans()} >= {"train", "epoch", "checkpoint"}
        run, = [span for span in second.spans() if span["name"] == "train"]
        assert attributes(run)["rondo.end"] == "preempted"


def test_failed_training_is_in_its_span(rondo, words, tmp_path):
    with receiver() as collector:
        process = rondo.start(*words, "--steps", 1000000, "--log-every", 1, "--nproc-per-node", 2, "--set", "otlp-interval=100ms",
                              "--set", f"otlp-endpoint={collector.url}", "--timeout", "60s")
        collector.wait_for(lambda requests: any(path == "/v1/metrics" for path, _, _ in requests))
        os.kill(worker_pids(process.pid)[1], signal.SIGKILL)
        process.communicate(timeout=120)
        assert process.returncode not in (0, 3)
        run, = [span for span in collector.spans() if span["name"] == "train"]
    event, = run["events"]
    assert run["status"]["code"] == 2 and event["name"] == "exception" and "rank 1" in attributes(event)["exception.message"], run
    assert "Error" in attributes(event)["exception.type"]


def test_wrong_variables_are_named_before_training(rondo, words, tmp_path):
    for variable, value in (("OTEL_EXPORTER_OTLP_ENDPOINT", "host:4318"), ("OTEL_EXPORTER_OTLP_HEADERS", "secret")):
        done = rondo(*words, "--steps", 1, "--nproc-per-node", 2, env={variable: value})
        assert done.returncode == 2 and variable in done.stderr and "secret" not in done.stderr, done.stderr
        assert not (tmp_path / "run" / "metrics.jsonl").exists()
