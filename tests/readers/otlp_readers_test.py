"""The official messages of OpenTelemetry read what `rondo train --log-to otlp` sends."""
import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from otlp_receiver import Receiver  # noqa: E402

RONDO = pathlib.Path(os.environ["RONDO_BIN"]).resolve() / "rondo"


@pytest.fixture(scope="module")
def requests(tmp_path_factory):
    """The bodies that a collector received, by path."""
    folder = tmp_path_factory.mktemp("otlp")
    (folder / "text.txt").write_text("The quick brown fox jumps over the lazy dog. " * 200)
    collector = Receiver()
    try:
        words = ["train", "--data", "text.txt", "--model", "gpt", "--layers", "1", "--heads", "2", "--width", "32", "--seq-len", "16", "--steps", "20",
                 "--nproc-per-node", "2", "--log-to", "otlp", "--set", f"otlp-endpoint={collector.url}", "--set", "otlp-interval=100ms",
                 "--set", "otlp-step-spans=true", "--set", "gradient-norm-every=1", "--lr", "1e30", "--run-dir", "run"]
        done = subprocess.run([RONDO, *words], cwd=folder, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0 and "OpenTelemetry" not in done.stderr, done.stderr
    finally:
        collector.close()
    return {path: [body for at, _, body in collector.requests if at == path] for path in ("/v1/metrics", "/v1/traces")}


def test_metrics_are_those_of_the_protocol(requests):
    from google.protobuf.json_format import Parse
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
    messages = [Parse(body, ExportMetricsServiceRequest()) for body in requests["/v1/metrics"]]  # refuses fields that there are not
    of_scope, = messages[-1].resource_metrics[0].scope_metrics
    metrics = {metric.name: metric for metric in of_scope.metrics}
    step, = metrics["rondo.train.step"].gauge.data_points
    assert of_scope.scope.name == "rondo" and step.as_double == 20
    loss, = metrics["rondo.train.loss"].gauge.data_points
    assert loss.as_double != loss.as_double  # not a number: the learning rate sees to that
    durations = metrics["rondo.train.step.duration"].histogram
    assert durations.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    for point in durations.data_points:
        assert point.count == 20 == sum(point.bucket_counts) and len(point.bucket_counts) == len(point.explicit_bounds) + 1
        assert point.start_time_unix_nano < point.time_unix_nano and point.min <= point.sum / 20 <= point.max


def test_spans_are_those_of_the_protocol(requests):
    from google.protobuf.json_format import MessageToDict, Parse
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    from opentelemetry.proto.trace.v1.trace_pb2 import Span
    spans = []
    for body in requests["/v1/traces"]:
        message = Parse(with_binary_ids(body), ExportTraceServiceRequest())
        of_scope, = message.resource_spans[0].scope_spans
        spans += of_scope.spans
    assert len([span for span in spans if span.name == "step"]) == 20
    run, = [span for span in spans if span.name == "train"]
    for span in spans:
        assert len(span.trace_id) == 16 and len(span.span_id) == 8 and span.trace_id == run.trace_id, MessageToDict(span)
        assert span.kind == Span.SpanKind.SPAN_KIND_INTERNAL and run.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano


def with_binary_ids(body):
    """OTLP's JSON has identifiers as hexadecimal digits, where protobuf's has base64."""
    import base64
    import json

    def changed(value):
        if isinstance(value, list):
            return [changed(each) for each in value]
        if not isinstance(value, dict):
            return value
        return {key: base64.b64encode(bytes.fromhex(each)).decode() if key in ("traceId", "spanId", "parentSpanId") else changed(each)
                for key, each in value.items()}

    return json.dumps(changed(json.loads(body)))
