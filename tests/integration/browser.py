"""A browser without a window, driven over Chromium's debugging pipe: pages of any width, light or dark, at which a test
looks and which it operates."""
import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time

PROGRAMS = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"]


def find_browser():
    """Returns the path of an installed browser, or None."""
    return next((path for path in map(shutil.which, PROGRAMS) if path), None)


class Browser:
    """One process of the browser with one tab. Commands are those of the DevTools protocol; each answers within
    `timeout` seconds or raises TimeoutError."""

    def __init__(self, program, profile, timeout=180):
        self.timeout = timeout
        self.next_id = 0
        self.events = []
        self.unread = b""
        to_browser, self.output = os.pipe()
        self.input, from_browser = os.pipe()

        def connect():  # the browser reads descriptor 3 and writes descriptor 4
            commands, answers = os.dup(to_browser), os.dup(from_browser)
            os.dup2(commands, 3)
            os.dup2(answers, 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
             "--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-component-update",
             f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=connect, pass_fds=(3, 4), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        target = self._call("Target.createTarget", {"url": "about:blank"})["targetId"]
        self.session = self._call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.output)
        os.close(self.input)

    def call(self, method, **parameters):
        """Sends a command to the tab and returns its result."""
        return self._call(method, parameters, self.session)

    def _call(self, method, parameters, session=None):
        self.next_id += 1
        message = {"id": self.next_id, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        text = json.dumps(message).encode() + b"\0"
        while text:
            text = text[os.write(self.output, text):]
        limit = time.monotonic() + self.timeout
        while True:
            answer = self._read(limit)
            if answer.get("id") == self.next_id:
                assert "error" not in answer, (method, answer)
                return answer["result"]
            self.events.append(answer)

    def _read(self, limit):
        while b"\0" not in self.unread:
            ready, _, _ = select.select([self.input], [], [], max(0, limit - time.monotonic()))
            if not ready:
                raise TimeoutError(f"the browser did not answer within {self.timeout} s")
            part = os.read(self.input, 1 << 20)
            if not part:
                raise EOFError("the browser ended")
            self.unread += part
        message, self.unread = self.unread.split(b"\0", 1)
        return json.loads(message)

    def wait_for(self, method):
        """Returns the parameters of the next event of this name."""
        limit = time.monotonic() + self.timeout
        while True:
            for at, event in enumerate(self.events):
                if event.get("method") == method:
                    del self.events[at]
                    return event["params"]
            self.events.append(self._read(limit))

    def open(self, path, width=1280, height=900, dark=False):
        """Opens a file and returns when it has loaded and been laid out."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        self.wait_for("Page.loadEventFired")
        # Charts take their sizes, and move what is below them, in the frames after the event.
        self.wait_for_frame()

    def wait_for_frame(self):
        """Returns when what scripts did so far has been drawn."""
        self.run("new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))")

    def run(self, script):
        """Returns the value of an expression in the page; waits for it if it is a promise."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def console(self):
        """Returns what the page wrote to the console since it was opened, errors of scripts and the browser's own remarks."""
        self.run("0")
        written = []
        for event in self.events:
            parameters = event.get("params", {})
            if event.get("method") == "Runtime.consoleAPICalled":
                written.append(" ".join(str(argument.get("value", argument.get("description"))) for argument in parameters["args"]))
            elif event.get("method") == "Runtime.exceptionThrown":
                written.append(json.dumps(parameters["exceptionDetails"]))
            elif event.get("method") == "Log.entryAdded":
                written.append(parameters["entry"]["text"])
        return written

    def allow_downloads(self, folder):
        """Saves downloads of the page into `folder`, without asking."""
        folder.mkdir(exist_ok=True)
        self._call("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})

    def move_mouse(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def drag_mouse(self, x1, x2, y):
        """Presses the button at (x1, y), moves to (x2, y) and releases it."""
        button = {"button": "left", "clickCount": 1, "y": y}
        self.call("Input.dispatchMouseEvent", type="mousePressed", x=x1, **button)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x2, y=y, button="left", buttons=1)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", x=x2, **button)

    def screenshot(self, whole=False):
        """Returns a PNG picture of the window, or of the whole page."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"])


def main():
    """Takes the picture of a page in README.md:  tests/integration/browser.py runs/RUN/report.html docs/images/report.png"""
    page, picture = (pathlib.Path(path) for path in sys.argv[1:])
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(find_browser(), profile)
        try:
            browser.open(page.resolve(), height=1220)
            picture.write_bytes(browser.screenshot())
        finally:
            browser.close()


if __name__ == "__main__":
    main()
