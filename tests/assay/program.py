"""The built program, and files for it to read. Its tests need nothing but Python's standard library:

    ASSAY=build/dev/tools/assay/assay ASSAY_TEST_DATA=tests/data python3 tests/assay/diff_test.py
"""
import json
import os
import shutil
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

ASSAY = Path(os.environ["ASSAY"]).resolve()
DATA = Path(os.environ["ASSAY_TEST_DATA"]).resolve()
CASES = DATA / "cases"
# What takes minutes with sanitizers, in code whose memory accesses smaller tests make.
SANITIZED = "ASSAY_SANITIZED" in os.environ
large = unittest.skipIf(SANITIZED, "large: the release build runs it")
CODES = {"float64": ("F64", "d"), "float32": ("F32", "f"), "int64": ("I64", "q"), "uint8": ("U8", "B"), "float16": ("F16", "e")}


def some(of):
    """Each of them; with sanitizers, where a process takes ten times as long, a sample."""
    return of[::10] if SANITIZED else of


def environment(**extra):
    env = {k: v for k, v in os.environ.items()
           if k not in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "CI", "TERM", "GITHUB_ACTIONS", "ASSAY_LOG")}
    env["PATH"] = f"{ASSAY.parent}:{env['PATH']}"
    env.update(extra)
    return env


def run(*words, cwd=None, **env):
    done = subprocess.run([ASSAY, *map(str, words)], capture_output=True, cwd=cwd, env=environment(**env), timeout=300)
    done.out, done.err = done.stdout.decode(), done.stderr.decode()
    return done


def pack(dtype, values):
    return struct.pack(f"<{len(values)}{CODES[dtype][1]}", *values)


def write_safetensors(path, tensors):
    """{name: (dtype, shape, values)}"""
    header, data = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        part = pack(dtype, values)
        header[name] = {"dtype": CODES[dtype][0], "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_npy(path, dtype, shape, values):
    descr = {"float64": "<f8", "float32": "<f4", "int64": "<i8", "uint8": "|u1", "float16": "<f2"}[dtype]
    sizes = "".join(f"{n}, " for n in shape)
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': ({sizes}), }}"
    text += " " * (63 - (10 + len(text)) % 64) + "\n"
    Path(path).write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + pack(dtype, values))


def strict(schema):
    """The same, but keys that are not declared are errors: a report must not outgrow its schema."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: strict(part) for key, part in schema.items()}
    if schema.get("type") == "object" and "allOf" not in schema:
        closed.setdefault("additionalProperties", False)
    return closed


class Test(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.dir = Path(tempfile.mkdtemp(prefix="assay_test_"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def expect(self, status, *words, **env):
        done = run(*words, cwd=self.dir, **env)
        self.assertEqual(done.returncode, status, done.out + done.err)
        return done

    def trouble(self, *words, says=""):
        """One sentence on standard error, nothing on standard output, exit status 2."""
        done = self.expect(2, *words)
        self.assertEqual(done.out, "")
        self.assertIn(says, done.err)
        lines = done.err.strip().splitlines()
        self.assertTrue(lines and len(lines) <= 2, done.err)
        return done

    def pair(self):
        """Two files: x agrees, y does not, z is on one side only."""
        a = {"x": ("float32", [2], [1, 2]), "y": ("float32", [3], [1, 2, 3.5])}
        r = {"x": ("float32", [2], [1, 2]), "y": ("float32", [3], [1, 2, 3]), "z": ("int64", [1], [7])}
        write_safetensors(self.dir / "a.safetensors", a)
        write_safetensors(self.dir / "r.safetensors", r)
        return "a.safetensors", "r.safetensors"


class CaseTest(Test):
    """A copy of a small case that may be changed."""

    def setUp(self):
        super().setUp()
        shutil.copytree(CASES / "rms_norm" / "rows_6x33", self.dir / "case dir")
        self.case = "case dir"
        self.json = json.loads((self.dir / self.case / "case.json").read_text())

    def save_case(self):
        (self.dir / self.case / "case.json").write_text(json.dumps(self.json))
