#!/usr/bin/env python3
"""Opens pages that `assay diff --html` writes in a real browser, and uses them.

    ASSAY=build/release/tools/assay/assay DEMO=demo python3 tests/report_page/report_page_test.py
    ASSAY_SHOTS=DIR keeps screenshots to look at.
"""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import chromium

ASSAY = Path(os.environ["ASSAY"]).resolve()
DEMO = Path(os.environ["DEMO"]).resolve()
STATISTICS = DEMO.parent / "tests/data/statistics"
SHOTS = os.environ.get("ASSAY_SHOTS")
HOSTILE = ["</script><img src=x onerror=alert(1)>", "<script>alert(2)</script>", "\"><svg onload=alert(3)>", "' onmouseover='alert(4)", "<!--",
           "{{data}}", "esc\x1b[31m", "nul\0", "two\nlines", "\u202ebidi", "javascript:alert(5)", "__proto__", "constructor", "&lt;b&gt;",
           "x" * 3000]


def write_safetensors(path, tensors):
    """{name: values}"""
    header, data = {}, []
    at = 0
    for name, values in tensors.items():
        part = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": [len(values)], "data_offsets": [at, at + len(part)]}
        data.append(part)
        at += len(part)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))


class ReportPage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = chromium.Chromium(chromium.find())
        cls.folder = tempfile.TemporaryDirectory()
        cls.dir = Path(cls.folder.name)
        cls.faulty = cls.diff("faulty", DEMO / "faulty", DEMO / "reference")

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.folder.cleanup()

    @classmethod
    def diff(cls, name, actual, reference, *options):
        page = cls.dir / f"{name}.html"
        done = subprocess.run([ASSAY, "diff", actual, reference, "--html", page, *options], capture_output=True, timeout=600)
        assert done.returncode in (0, 1), done.stderr
        return page

    def setUp(self):
        self.browser.size(1440, 1000)

    def tearDown(self):
        self.assertEqual(self.browser.complaints(), [])

    def open(self, page, fragment=""):
        self.browser.open(str(page) + fragment)

    def value(self, script):
        return self.browser.run(script)

    def shot(self, name):
        if SHOTS:
            self.browser.screenshot(Path(SHOTS) / f"{name}.png")

    def shown(self):
        return self.value("document.getElementById('shown').textContent")

    def names(self):
        return self.value("[...document.querySelectorAll('#rows .name')].map(cell => cell.textContent)")

    def type(self, text):
        self.value("(() => { const box = document.getElementById('search'); box.value = %s;"
                   "box.dispatchEvent(new Event('input')); })()" % json.dumps(text))

    def press(self, text):
        self.value("[...document.querySelectorAll('#controls button')].find(b => b.textContent.startsWith(%s)).click()" % json.dumps(text))

    def test_what_did_not_pass_is_listed_first(self):
        self.open(self.faulty)
        self.assertEqual(self.shown(), "5 of 187 shown")
        self.assertEqual(self.names()[0], "layers.0.attn_norm grad weight (step 0, backward)")
        self.shot("faulty")

    def test_filters(self):
        self.open(self.faulty)
        self.press("inherited")
        self.assertEqual(self.shown(), "12 of 187 shown")
        self.press("passed")
        self.assertEqual(self.shown(), "187 of 187 shown")
        self.type("moe.*output")
        names = self.names()
        self.assertGreater(len(names), 3)
        for name in names:
            self.assertRegex(name, "moe.*output")
        self.type("[0")  # no expression: looked for as it is
        self.assertEqual(self.names(), [])
        self.type("")
        self.value("(() => { const box = document.getElementById('phase'); box.value = '2'; box.onchange(); })()")
        self.assertTrue(all("backward" in name for name in self.names()))
        self.press("Reset")
        self.assertEqual(self.shown(), "5 of 187 shown")
        self.value("document.querySelector('#counts li').click()")
        self.assertEqual(self.shown(), "175 of 187 shown")

    def test_columns_sort(self):
        self.open(self.faulty)
        self.press("passed")
        self.value("document.querySelector('th[data-key=ratio] button').click()")
        column = "[...document.querySelectorAll('#rows tr:not(.gap)')].map(row => Number(row.children[2].textContent))"
        ratios = self.value(column)
        self.assertEqual(ratios, sorted(ratios, reverse=True))
        self.assertGreater(ratios[0], 1)
        self.value("document.querySelector('th[data-key=ratio] button').click()")
        ratios = self.value(column)
        self.assertEqual(ratios, sorted(ratios))

    def test_a_verdict_by_statistics_shows_them(self):
        self.open(self.diff("statistics", STATISTICS / "faulty", STATISTICS / "tensor"))
        self.value("document.querySelector('#rows tr').click()")
        row = self.value("[...document.querySelectorAll('#rows tr:first-child td')].map(cell => cell.textContent)")
        self.assertEqual(row[2:6], ["58100", "float32 state", "float32 [20, 50]", ""])
        table = self.value("[...document.querySelectorAll('#detail table td')].map(cell => cell.textContent)")
        self.assertEqual(table[:4], ["max", "25.5813828", "3.36280775", "0.000436"])

    def test_a_tensor_has_details_and_an_address(self):
        self.open(self.faulty)
        self.value("document.querySelector('#rows tr:nth-child(3)').click()")
        detail = self.value("document.getElementById('detail').textContent")
        name = self.value("document.querySelector('#rows tr:nth-child(3) .name').textContent")
        for text in (name, "replicas differ", "their sum is the reference", "Worst elements", f"--only '{name}'"):
            self.assertIn(text, detail)
        self.assertEqual(self.value("document.querySelectorAll('#detail .map, #detail .histogram').length"), 2)
        self.shot("detail")
        address = self.value("location.hash")
        self.assertRegex(address, r"^#t=\d+$")
        self.open(self.faulty, address)
        self.assertIn(name, self.value("document.getElementById('detail').textContent"))
        self.open(self.faulty, "#t=1")  # passed: its filter opens
        self.assertEqual(self.shown(), "187 of 187 shown")

    def test_the_script_shows_the_first_as_the_program_does(self):
        self.open(self.faulty)
        self.value("document.querySelector('#rows tr').click()")
        fields = "[...document.querySelectorAll('%s dl dd')].map(e => e.textContent)"
        static, scripted = self.value(fields % "#first"), self.value(fields % "#detail")
        self.assertEqual([f for f in static if not f.startswith("max abs")], [f for f in scripted if not f.startswith("max abs")])
        for picture in (".map path", ".histogram text"):
            shapes = "[...document.querySelectorAll('%s " + picture + "')].map(e => e.getAttribute('class') + e.textContent)"
            self.assertEqual(self.value(shapes % "#first"), self.value(shapes % "#detail"))

    def test_keys(self):
        self.open(self.faulty)
        self.browser.key("j")
        self.browser.key("j")
        self.assertEqual(self.value("document.querySelector('#rows .selected .name').textContent"), self.names()[1])
        self.browser.key("k")
        self.assertEqual(self.value("document.querySelector('#rows .selected .name').textContent"), self.names()[0])
        self.browser.key("/")
        self.assertEqual(self.value("document.activeElement.id"), "search")
        self.type("q_a")
        self.browser.key("Escape")
        self.assertEqual(self.value("document.getElementById('search').value"), "")
        self.browser.key("?")
        self.assertTrue(self.value("document.getElementById('help').open"))

    def test_chart_and_heat_map(self):
        self.open(self.faulty)
        self.value("document.getElementById('order').scrollIntoView({behavior: 'instant'})")
        left, top, width, height = self.value("(() => { const b = document.getElementById('chart').getBoundingClientRect();"
                                              "return [b.left, b.top, b.width, b.height]; })()")
        whole = self.value("document.getElementById('chart-P').getAttribute('d')")
        self.browser.mouse("mousePressed", left + width * .5, top + height * .5)
        self.browser.mouse("mouseMoved", left + width * .6, top + height * .5)
        self.browser.mouse("mouseReleased", left + width * .7, top + height * .5)
        self.assertIn("# ", self.value("document.querySelector('.chip').textContent"))
        part = self.value("document.getElementById('chart-P').getAttribute('d')")
        self.assertRegex(part, r"^(M[\d.]+ [\d.]+h0)+$")
        self.assertLess(len(part), len(whole) / 2)
        self.shot("zoomed")
        self.value("document.querySelector('.chip').click()")
        self.assertEqual(self.value("document.getElementById('chart-P').getAttribute('d')"), whole)
        self.value("document.getElementById('heat').scrollIntoView({behavior: 'instant'})")
        x, y = self.value("(() => { const s = document.getElementById('heat0'), b = s.getBoundingClientRect(), d = s.dataset;"
                          "return [b.left + Number(d.left) + d.w / 2, b.top + Number(d.top) + d.h / 2]; })()")
        self.browser.mouse("mouseMoved", x, y)
        self.assertIn("tensors", self.value("document.getElementById('tip').textContent"))
        self.browser.click(x, y)
        self.assertIn("none, ", self.value("document.querySelector('.chip').textContent"))
        self.assertGreater(len(self.names()), 0)

    def test_hostile_names_are_text(self):
        write_safetensors(self.dir / "a", {name: [1, 2 + k, float("nan")] for k, name in enumerate(HOSTILE)})
        write_safetensors(self.dir / "r", {name: [1, 2, 3] for name in HOSTILE})
        self.open(self.diff("hostile", self.dir / "a", self.dir / "r"))
        self.assertEqual(len(self.names()), len(HOSTILE))
        self.assertIn(HOSTILE[0], self.names())
        self.assertIn("esc\\x1b[31m", self.names())
        for row in range(1, len(HOSTILE) + 1):
            self.value(f"document.querySelector('#rows tr:nth-child({row})').click()")
            self.assertEqual(self.value("document.querySelector('#detail h3').textContent"), self.names()[row - 1])
        self.assertIn("--only '</script><img src=x onerror=alert(1)>'", self.value(
            "document.querySelector('#rows tr').click(), document.getElementById('detail').textContent"))
        self.assertEqual(self.value("document.querySelectorAll('img, iframe, object, [onload], [onerror], [onmouseover]').length"), 0)
        self.assertEqual(self.value("document.scripts.length"), 2)
        self.assertLessEqual(self.value("document.documentElement.scrollWidth"), 1440)
        self.shot("hostile")

    def test_even_markup_would_not_run(self):
        """The content security policy is the second lock: it names the hashes of the page's own style and script."""
        self.open(self.faulty)
        self.value("new Promise(done => { const e = document.createElement('script'); e.textContent = 'window.pwned = 1';"
                   "document.body.append(e); document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.pwned = 2\">');"
                   "setTimeout(done, 200); })")
        self.assertIsNone(self.value("window.pwned"))
        blocked = self.browser.complaints()
        self.assertTrue(blocked and all("Content Security Policy" in str(text) for _, text in blocked), blocked)
        self.browser.events.clear()

    def test_passes_failures_and_single_tensors(self):
        self.open(self.diff("clean", DEMO / "clean", DEMO / "reference"))
        self.assertEqual(self.shown(), "187 of 187 shown")
        self.assertEqual(self.value("document.querySelector('h1').textContent"), "PASS")
        self.shot("clean")
        write_safetensors(self.dir / "one", {"y": [1.0] * 100})
        write_safetensors(self.dir / "other", {"y": [1.5] * 100})
        self.open(self.diff("one", self.dir / "one", self.dir / "other"))
        self.assertEqual(self.shown(), "1 of 1 shown")
        self.shot("one")

    def test_without_javascript(self):
        self.browser.call("Emulation.setScriptExecutionDisabled", value=True)
        try:
            self.browser.open(self.faulty, until="document.readyState === 'complete' && document.body !== null")
            text = self.value("document.body.innerText")
            for part in ("FAIL", "12 of 187 tensors did not pass", "their sum is the reference", "Worst elements",
                         "search and filters need JavaScript"):
                self.assertIn(part, text)
            self.assertEqual(self.value("document.querySelectorAll('#rows tr').length"), 50)
            self.assertEqual(self.value("document.getElementById('controls').childElementCount"), 0)
            self.shot("without_javascript")
        finally:
            self.browser.call("Emulation.setScriptExecutionDisabled", value=False)

    def test_dark_narrow_and_printed(self):
        light = "getComputedStyle(document.body).backgroundColor"
        self.open(self.faulty)
        self.assertEqual(self.value(light), "rgb(255, 255, 255)")
        self.browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        self.assertEqual(self.value(light), "rgb(17, 22, 27)")
        self.shot("dark")
        self.browser.call("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        self.assertEqual(self.value(light), "rgb(255, 255, 255)", "paper is white")
        self.assertEqual(self.value("getComputedStyle(document.getElementById('controls')).display"), "none")
        self.browser.call("Emulation.setEmulatedMedia", media="", features=[])
        self.browser.size(400, 900)
        self.assertLessEqual(self.value("document.documentElement.scrollWidth"), 400)
        self.shot("narrow")
        self.browser.size(1440, 1000)
        pdf = self.browser.pdf()
        self.assertTrue(pdf.startswith(b"%PDF"))
        if SHOTS:
            (Path(SHOTS) / "faulty.pdf").write_bytes(pdf)

    def test_a_hundred_thousand_tensors(self):
        draw = random.Random(1)
        a, r = {}, {}
        for i in range(100_000):
            name = f"layers.{i // 1640}.moe.experts.{i // 20 % 82}.fc{i % 20}"
            r[name] = [draw.random(), 1.0]
            a[name] = [r[name][0] * (1 + 10 ** draw.uniform(-7, -4.5)), 1.5 if i % 997 == 500 else 1.0]
        write_safetensors(self.dir / "big_a", a)
        write_safetensors(self.dir / "big_r", r)
        page = self.diff("big", self.dir / "big_a", self.dir / "big_r")
        self.assertLess(page.stat().st_size, 5_000_000)
        self.open(page)
        self.assertEqual(self.shown(), "100 of 100,000 shown")
        self.press("passed")
        self.assertEqual(self.shown(), "100,000 of 100,000 shown")
        self.assertLess(self.value("document.querySelectorAll('#rows tr').length"), 200)
        self.value("document.getElementById('scroller').scrollTop = 1e9")
        self.browser.wait("[...document.querySelectorAll('#rows .name')].pop().textContent === 'layers.60.moe.experts.79.fc19'")
        self.type(r"layers\.60\.")
        self.assertEqual(self.shown(), "1,600 of 100,000 shown")
        took = self.value("(() => { const t = performance.now(), box = document.getElementById('search'); box.value = 'fc7$';"
                          "box.dispatchEvent(new Event('input')); return performance.now() - t; })()")
        self.assertEqual(self.shown(), "5,000 of 100,000 shown")
        print(f"100,000 tensors: page {page.stat().st_size / 1e6:.2f} MB, one filter {took:.0f} ms", file=sys.stderr)
        self.shot("big")


if __name__ == "__main__":
    if chromium.find() is None:
        print("skipped: no Chromium is installed (package chromium), so that the page cannot be opened")
        sys.exit(77)
    unittest.main()
