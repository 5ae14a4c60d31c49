"""Chromium without a window, driven through a pipe (the DevTools protocol), with nothing but the standard library."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


def find():
    """The browser's path, or None."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)


class Chromium:
    def __init__(self, path):
        self.profile = tempfile.TemporaryDirectory(prefix="report_page")
        read_by_it, self.out = os.pipe()
        self.inp, written_by_it = os.pipe()

        def pipes():  # it reads from descriptor 3 and writes to 4
            a, b = os.dup(read_by_it), os.dup(written_by_it)
            os.dup2(a, 3)
            os.dup2(b, 4)

        # Containers and chroots have no user namespaces to make a sandbox of, and the pages are our own.
        self.process = subprocess.Popen(
            [path, "--headless=new", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage", "--remote-debugging-pipe",
             "--user-data-dir=" + self.profile.name, "--no-sandbox", "about:blank"],
            preexec_fn=pipes, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(read_by_it)
        os.close(written_by_it)
        self.buffer, self.number, self.events, self.session = b"", 0, [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def message(self, timeout):
        end = time.monotonic() + timeout
        while b"\0" not in self.buffer:
            if not select.select([self.inp], [], [], max(0, end - time.monotonic()))[0]:
                return None
            part = os.read(self.inp, 1 << 20)
            if not part:
                raise RuntimeError(f"the browser ended (status {self.process.poll()})")
            self.buffer += part
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, timeout=120, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.out, data):]
        while True:
            answer = self.message(timeout)
            if answer is None:
                raise RuntimeError(f"no answer to {method} in {timeout} s")
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            if "method" in answer:
                self.events.append(answer)
                if answer["method"] == "Page.javascriptDialogOpening":
                    self.number += 1
                    os.write(self.out, json.dumps({"id": self.number, "method": "Page.handleJavaScriptDialog", "sessionId": self.session,
                                                   "params": {"accept": True}}).encode() + b"\0")
                    return self.call(method, timeout, **params)

    def run(self, script):
        """The value of a JavaScript expression; promises are waited for."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def open(self, path, until="document.documentElement?.dataset.ready === 'yes'"):
        self.call("Page.navigate", url="about:blank")
        self.events.clear()
        self.call("Page.navigate", url="file://" + str(path))
        self.wait(until)

    def wait(self, condition, seconds=120):
        end = time.monotonic() + seconds
        while not self.run(f"Boolean({condition})"):
            if time.monotonic() > end:
                raise RuntimeError(f"not in {seconds} s: {condition}; {self.complaints()}")
            time.sleep(0.02)

    def complaints(self):
        """Whatever a developer would see in red: exceptions, errors of the console, dialogs, requests of the network."""
        bad = []
        for event in self.events:
            method, p = event["method"], event["params"]
            if method in ("Runtime.exceptionThrown", "Page.javascriptDialogOpening", "Runtime.consoleAPICalled"):
                bad.append((method, p))
            elif method == "Log.entryAdded" and p["entry"]["level"] in ("error", "warning"):
                bad.append((method, p["entry"]["text"]))
            elif method == "Network.requestWillBeSent" and not p["request"]["url"].startswith(("file://", "data:", "about:")):
                bad.append((method, p["request"]["url"]))
        return bad

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def mouse(self, kind, x, y):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def click(self, x, y):
        self.mouse("mousePressed", x, y)
        self.mouse("mouseReleased", x, y)

    def key(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **({"text": key} if kind == "keyDown" and len(key) == 1 else {}))

    def screenshot(self, path):
        height = self.run("document.documentElement.scrollHeight")
        clip = {"x": 0, "y": 0, "width": self.run("innerWidth"), "height": min(height, 6000), "scale": 1}
        data = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def pdf(self):
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])

    def close(self):
        try:
            self.session = None
            self.call("Browser.close", timeout=10)
        except (RuntimeError, OSError):
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.out)
        os.close(self.inp)
        for _ in range(50):  # its last children still write there
            try:
                return self.profile.cleanup()
            except OSError:
                time.sleep(0.1)
