"""A collector for OTLP over HTTP with JSON: keeps what it receives, and answers as a test says."""
import contextlib
import http.server
import json
import socket
import threading


class Receiver:
    """`answer(path, number)` is asked for each request and returns (status, headers, body); None: 200 with an empty object."""

    def __init__(self, answer=None, port=0):
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                super().setup()
                receiver.connections.append(self.connection)

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with receiver.changed:
                    receiver.requests.append((self.path, dict(self.headers), body))
                    number = len(receiver.requests)
                    receiver.changed.notify_all()
                status, headers, text = (answer and answer(self.path, number)) or (200, {}, b"{}")
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *words):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request, client_address):  # the client went away
                pass

        self.requests, self.connections = [], []
        self.changed = threading.Condition()
        self.server = Server(("127.0.0.1", port), Handler)
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        for connection in self.connections:
            with contextlib.suppress(OSError):  # the client was first
                connection.shutdown(socket.SHUT_RDWR)
        self.thread.join()

    def bodies(self, path):
        with self.changed:
            return [json.loads(body) for at, _, body in self.requests if at == path]

    def wait_for(self, condition, timeout=120):
        """Until condition(requests) holds."""
        with self.changed:
            assert self.changed.wait_for(lambda: condition(self.requests), timeout), [path for path, _, _ in self.requests]

    def spans(self):
        return [span for body in self.bodies("/v1/traces") for of_resource in body["resourceSpans"] for of_scope in of_resource["scopeSpans"]
                for span in of_scope["spans"]]

    def metrics(self):
        """The metrics of the newest request, by name."""
        newest = self.bodies("/v1/metrics")[-1]
        return {metric["name"]: metric for metric in newest["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]}

    def resource(self):
        return attributes(self.bodies("/v1/metrics")[-1]["resourceMetrics"][0]["resource"])


def attributes(entry):
    """{key: value} of a span, a point or a resource."""
    return {each["key"]: next(iter(each["value"].values())) for each in entry["attributes"]}
