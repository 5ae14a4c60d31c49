"""`assay replay` from given weights, tokens and routing."""
import json
import math
import re
import unittest

from program import DATA, Test, write_npy, write_safetensors

MODEL = ("replay", "--model", "telechat3-105b-tiny", "--micro-batches", "2", "--length", "8", "--sequences", "2")
MASK = 2**64 - 1


def drawn(name, count):
    """As tests/data/replay/make.py: uniform in [-1, 1)."""
    state = 0xcbf29ce484222325
    for byte in name.encode():
        state = (state ^ byte) * 0x100000001b3 & MASK
    for _ in range(count):
        state = z = state + 0x9e3779b97f4a7c15 & MASK
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9 & MASK
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb & MASK
        yield ((z ^ (z >> 31)) >> 11) * 2.0**-52 - 1


def initial(name, shape):
    x = drawn(name, math.prod(shape))
    if "norm" in name:
        return [1 + 0.1 * v for v in x]
    scale = 0.05 if name.endswith("bias") else 1 if name.startswith("model.embed_tokens") else math.sqrt(3 / shape[-1])
    return [scale * v for v in x]


def tokens(vocabulary, sequences=2, length=12):
    """[sequences, length + 1]"""
    stream = [int(abs(v) * vocabulary) % vocabulary for v in drawn("tokens", sequences * (length + 1))]
    return [stream[l * sequences + s] for s in range(sequences) for l in range(length + 1)]


def checkpoint(shapes):
    """The weights of make_huggingface.py under the names of a checkpoint: each expert has its part of what was drawn for all."""
    mixtral = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
    experts = 1 + max(int(n) for name in shapes for n in re.findall(r"experts\.(\d+)\.", name))
    known, made = {}, {}
    for name, shape in shapes.items():
        own = name.replace("block_sparse_moe", "mlp")
        own = re.sub(r"\.(w[123])\.weight", lambda m: f".{mixtral[m[1]]}.weight", own)
        number = re.search(r"\.experts\.(\d+)\.", own)
        if not number:
            made[name] = ("float64", shape, initial(own, shape))
            continue
        own = own.replace(number[0], ".experts.*.")
        if own not in known:
            known[own] = initial(own, [experts, *shape])
        size, first = math.prod(shape), int(number[1]) * math.prod(shape)
        made[name] = ("float64", shape, known[own][first:first + size])
    return made


class Given(Test):
    def loss(self, *words):
        return float(re.search(r"loss (\S+),", self.expect(0, "replay", *words).out)[1])

    def replay(self, *words):
        return self.expect(0, *MODEL, *words).out

    def test_a_checkpoint_of_hugging_face_has_the_loss_of_its_modeling_code(self):
        models = json.loads((DATA / "replay" / "expected_huggingface.json").read_text())["models"]
        self.assertEqual(len(models), 3)
        for family, want in models.items():
            write_safetensors(self.dir / f"{family}.safetensors", checkpoint(want["checkpoint"]))
            config = DATA / "replay" / f"{family}.json"
            write_npy(self.dir / "tokens.npy", "int64", [2, 13], tokens(json.loads(config.read_text())["vocab_size"]))
            words = ("--model", config, "--sequences", "2", "--length", "12", "--seed", "9", "--weights", f"{family}.safetensors")
            self.assertAlmostEqual(self.loss(*words, "--tokens", "tokens.npy"), want["total"], delta=1e-10)
            self.assertGreater(abs(self.loss(*words) - want["total"]), 1e-6)  # other tokens

    def test_what_transformers_5_saves(self):
        models = json.loads((DATA / "replay" / "expected_huggingface.json").read_text())["models"]
        changes = {"deepseek_v3": {"num_nextn_predict_layers": 1}, "qwen3_moe": {}, "mixtral": {}}  # the model has none
        for family, change in changes.items():
            folder = self.dir / family
            folder.mkdir()
            config = json.loads((DATA / "replay" / f"{family}.json").read_text()) | change
            if family == "qwen3_moe":
                config["num_local_experts"] = config.pop("num_experts")
            (folder / "config.json").write_text(json.dumps(config))
            write_safetensors(folder / "model.safetensors", checkpoint(models[family]["checkpoint"]))
            write_npy(self.dir / "tokens.npy", "int64", [2, 13], tokens(config["vocab_size"]))
            out = self.expect(0, "replay", "--model", folder / "config.json", "--weights", folder, "--tokens", "tokens.npy", "--sequences", "2",
                              "--length", "12", "--batch-first").out
            self.assertAlmostEqual(float(re.search(r"loss (\S+),", out)[1]), models[family]["total"], delta=1e-10)
            self.assertEqual("has no layers of multi-token prediction: they are left out" in out, bool(change))

    def recorded_program(self, shapes, labels=True, first_step=0, mask=None):
        """A dump of two steps of a model of Hugging Face, as assay record writes its inputs."""
        run = self.dir / "run"
        run.mkdir(exist_ok=True)
        lines, data = [], {}
        for step, shape in enumerate(shapes, first_step):
            values = [(7 * step + 5 * i) % 90 for i in range(shape[0] * shape[1])]
            given = [("model.embed_tokens", "input")] + [("", "labels")] * labels + [("", "attention_mask")] * (mask is not None)
            for module, arg in given:
                name = f"t{len(lines)}"
                data[name] = ("int64", shape, mask if arg == "attention_mask" else values)
                lines.append({"step": step, "micro_batch": 0, "phase": "forward", "module": module, "slot": "input", "arg": arg, "call": 0,
                              "seq": len(lines), "dtype": "int64", "shape": shape, "global_shape": shape, "data": {"file": "rank00000.safetensors", "name": name}})
        write_safetensors(run / "rank00000.safetensors", data)
        (run / "rank00000.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (run / "manifest.json").write_text(json.dumps({"format": "assay-dump", "version": 1, "world_size": 1, "mesh": {"dims": [], "shape": []}}))
        return [(7 * step + 5 * i) % 90 for step, shape in enumerate(shapes) for i in range(shape[0] * shape[1])]

    def test_a_recorded_program_gives_its_tokens_and_sizes(self):
        values = self.recorded_program([[2, 6], [2, 6]])
        targets = [v for row in range(4) for v in [*values[6 * row + 1:6 * row + 6], -100]]
        write_safetensors(self.dir / "t.safetensors", {"tokens": ("int64", [4, 6], values), "targets": ("int64", [4, 6], targets)})
        words = ("replay", "--model", DATA / "replay" / "mixtral.json")
        plain = self.expect(0, *words, "--tokens", "t.safetensors", "--sequences", "2", "--length", "6", "--steps", "2", "--batch-first", "--dump", "plain").out
        self.assertEqual(self.expect(0, *words, "--tokens", "run", "--dump", "given").out, plain)
        self.expect(0, "diff", "given", "plain", "--tolerance", "bitwise")
        again = self.expect(0, *words, "--tokens", "given", "--sequences", "2", "--length", "6", "--steps", "2", "--batch-first").out
        self.assertEqual(again, plain)
        # rows lie as the program's, and in its shapes
        tensors = json.loads(self.expect(0, "inspect", "given", "--json").out)["tensors"]
        shapes = {(t["module"], t["slot"], t["arg"]): t["shape"] for t in tensors if t["step"] == 0}
        self.assertEqual(shapes["model.embed_tokens", "output", "y"], [2, 6, 48])
        self.assertEqual(shapes["model.layers.0", "output", "y"], [2, 6, 48])
        self.assertEqual(shapes["model.rotary_emb", "output", "cos"][:2], [1, 6])
        self.assertEqual(shapes["model.layers.0.mlp.experts", "input", "hidden_states"], [12, 48])
        self.assertEqual(self.expect(0, *words, "--tokens", "run", "--steps", "1").out, plain.splitlines()[0] + "\n")

    def test_trouble_with_a_recorded_program(self):
        words = ("replay", "--model", DATA / "replay" / "mixtral.json", "--tokens", "run")
        self.recorded_program([[2, 6], [2, 5]])
        self.trouble(*words, says="expected one size")
        self.recorded_program([[2, 6]], labels=False)
        self.trouble(*words, says="has no input labels of the model in step 0, micro-batch 0; record it, or give integers [micro-batches, sequences, length + 1] by --tokens FILE")
        self.recorded_program([[2, 6]], first_step=3)
        self.trouble(*words, says="its first step is 3; a replay begins where the optimizer has no states yet")
        self.recorded_program([[2, 6]], mask=[1] * 11 + [0])
        self.trouble(*words, says="leaves tokens out; a replay has no masks")
        self.recorded_program([[2, 6]], mask=[1] * 12)
        self.expect(0, *words)
        self.recorded_program([[2, 6]])
        self.trouble(*words, "--length", "7", says="expected integers [2, 7]")
        self.trouble(*words, "--parallel", "cp=2", says="--batch-first")

    def test_experts_in_one_tensor(self):
        shapes = json.loads((DATA / "replay" / "expected_huggingface.json").read_text())["models"]["mixtral"]["checkpoint"]
        one = checkpoint(shapes)
        fused = {name: t for name, t in one.items() if ".experts." not in name}
        for layer in (0, 1):
            def of(expert, matrix):
                return one[f"model.layers.{layer}.block_sparse_moe.experts.{expert}.{matrix}.weight"][2]

            prefix = f"model.layers.{layer}.mlp.experts"
            fused[f"{prefix}.gate_up_proj"] = ("float64", [8, 80, 48], [v for e in range(8) for w in ("w1", "w3") for v in of(e, w)])
            fused[f"{prefix}.down_proj"] = ("float64", [8, 48, 40], [v for e in range(8) for v in of(e, "w2")])
        losses = set()
        for name, tensors in (("one", one), ("fused", fused)):
            write_safetensors(self.dir / f"{name}.safetensors", tensors)
            losses.add(self.loss("--model", DATA / "replay" / "mixtral.json", "--weights", f"{name}.safetensors", "--seed", "1"))
        self.assertEqual(len(losses), 1)

    def test_a_dump_replays_to_the_same_dump(self):
        first = self.replay("--seed", "3", "--dump", "first", "--steps", "2")
        given = ("--weights", "first", "--tokens", "first", "--routing", "first")
        self.assertEqual(self.replay(*given, "--dump", "again", "--steps", "2"), first)
        self.assertIn("0 failed", self.expect(0, "diff", "again", "first", "--tolerance", "bitwise").out)
        many = self.replay(*given, "--parallel", "cp=2,dp=2,zero=3", "--dump", "many")
        self.assertEqual(many.split(",")[0], first.split(",")[0])
        from_many = ("--weights", "many", "--tokens", "many", "--routing", "many")
        self.assertEqual(self.replay(*from_many).split(",")[0], first.split(",")[0])
        # what is recorded has been dealt out, and is not once more
        dealing = ("--parallel", "dp=2,redistribute=1")
        dealt = self.replay("--seed", "3", *dealing, "--dump", "dealt")
        self.assertEqual(self.replay(*dealing, "--weights", "dealt", "--tokens", "dealt", "--routing", "dealt"), dealt)
        err = self.expect(2, *MODEL, *dealing, "--routing", "dealt").err
        self.assertIn("which redistribute=1 would deal out anew; give the dump's --tokens too", err)
        # other weights choose other experts, unless they are pinned
        free, pinned = self.replay("--seed", "4"), self.replay("--seed", "4", "--routing", "first")
        self.assertNotEqual(free, pinned)
        self.replay("--seed", "4", "--routing", "first", "--dump", "pinned", "--dump-only", "*.mlp.output.*")
        self.expect(0, "diff", "pinned", "first", "--tolerance", "bitwise", "--only", "* output index (step 0*")
        gaps = json.loads(self.expect(0, "inspect", "pinned", "--json", "--stats").out)["tensors"]
        gaps = [t["min"] for t in gaps if t["arg"] == "selection_gap"]
        self.assertTrue(gaps and min(gaps) < 0, gaps)  # where the pinned choice is not the free one

    def test_a_dump_of_some_modules_and_steps(self):
        self.replay("--steps", "3", "--dump", "some", "--dump-only", "lm_head", "--dump-only", "*.mlp.output.selection_gap", "--dump-steps", "0,2")
        tensors = json.loads(self.expect(0, "inspect", "some", "--json").out)["tensors"]
        self.assertEqual({t["step"] for t in tensors}, {0, 2})
        self.assertEqual({t["module"].split(".")[-1] for t in tensors}, {"lm_head", "mlp"})
        self.assertEqual({t["arg"] for t in tensors if t["module"] != "lm_head"}, {"selection_gap"})

    def test_targets_that_do_not_count(self):
        plain = {"tokens": ("int64", [1, 8], list(range(8))), "targets": ("int64", [1, 8], list(range(1, 9)))}
        masked = {**plain, "targets": ("int64", [1, 8], [-100] * 4 + list(range(5, 9)))}
        words = ("--model", "qwen3-moe-tiny", "--length", "8", "--tokens")
        for name, tensors in (("plain", plain), ("masked", masked)):
            write_safetensors(self.dir / f"{name}.safetensors", tensors)
        write_npy(self.dir / "stream.npy", "int64", [1, 1, 9], list(range(9)))
        plain = self.loss(*words, "plain.safetensors")
        self.assertEqual(plain, self.loss(*words, "stream.npy"))
        self.assertNotEqual(plain, self.loss(*words, "masked.safetensors"))

    def test_trouble_with_weights(self):
        shapes = json.loads((DATA / "replay" / "expected_huggingface.json").read_text())["models"]["mixtral"]["checkpoint"]
        zeros = {name: ("float32", shape, [0] * math.prod(shape)) for name, shape in shapes.items()}
        expert = "model.layers.1.block_sparse_moe.experts.7.w2.weight"

        def refused(says, change, without=""):
            write_safetensors(self.dir / "w.safetensors", {k: v for k, v in {**zeros, **change}.items() if k != without})
            self.trouble("replay", "--model", DATA / "replay" / "mixtral.json", "--weights", "w.safetensors", says=says)

        refused("has no tensor 'model.norm.weight', which the model has with shape [48]", {}, "model.norm.weight")
        refused(f"has no tensor '{expert}'; the model has 8 experts", {}, expert)
        refused("takes floating-point numbers of shape [48, 40]", {expert: ("float32", [40, 48], [0] * 1920)})
        refused("'model.norm.weight' is int64 [48]", {"model.norm.weight": ("int64", [48], [0] * 48)})
        refused("'model.norm.bias' [1] is no parameter of the model mixtral", {"model.norm.bias": ("float32", [1], [0])})
        self.replay("--dump", "none", "--dump-only", "lm_head.output")
        self.trouble(*MODEL, "--weights", "none", says="has no parameters")

    def test_trouble_with_tokens_routing_and_selection(self):
        def refused(says, dtype, shape, values):
            write_npy(self.dir / "t.npy", dtype, shape, values)
            self.trouble(*MODEL, "--tokens", "t.npy", says=says)

        refused("expected integers [2, 2, 9] (1 steps of 2 micro-batches of 2 sequences of 8 tokens and a last target)",
                "int64", [2, 18], [0] * 36)
        refused("is float64 [4, 9]", "float64", [4, 9], [0] * 36)
        refused("a token of step 0, micro-batch 1 is -100", "int64", [4, 9], [0] * 20 + [-100] + [0] * 15)
        refused("a target of step 0, micro-batch 0 is 1000000", "int64", [4, 9], [0] * 8 + [1000000] + [0] * 27)
        one = {name: ("int64", [4, 8], [0] * 32) for name in ("tokens", "labels")}
        write_safetensors(self.dir / "t.safetensors", one)
        self.trouble(*MODEL, "--tokens", "t.safetensors", says="has 2 tensors, but no 'targets'")
        masked = {"tokens": ("int64", [4, 8], [0] * 32), "targets": ("int64", [4, 8], [-100] * 32)}
        write_safetensors(self.dir / "t.safetensors", masked)
        self.trouble(*MODEL, "--tokens", "t.safetensors", says="all targets of step 0, micro-batch 0 are -100")
        self.replay("--dump", "one")
        self.trouble(*MODEL, "--steps", "2", "--tokens", "one", says="has no input index of model.embed_tokens in step 1, micro-batch 0")
        self.trouble(*MODEL, "--steps", "2", "--routing", "one", says="has no choice of experts (output index) of model.layers.1.mlp in step 1")
        self.trouble("replay", "--model", "telechat3-105b-tiny", "--routing", "one", says="expected integers [32, 4]: 4 experts of each token")
        self.trouble(*MODEL, "--dump", "x", "--dump-steps", "2-1", says="--dump-steps '2-1' are no steps")
        self.trouble(*MODEL, "--weights", "missing", says="missing")
        out = self.replay("--dump", "typo", "--dump-only", "lm_heat", "--dump-only", "lm_head")
        self.assertIn("note: --dump-only 'lm_heat' names nothing that was written\n", out)
        self.assertNotIn("'lm_head'", out)
        self.assertIn("note: nothing was written; of --dump-steps '7' the replay has those up to 0", self.replay("--dump", "late", "--dump-steps", "7"))
        self.assertIn("--dump-only requires --dump", self.expect(2, *MODEL, "--dump-only", "*").err)


if __name__ == "__main__":
    unittest.main()
