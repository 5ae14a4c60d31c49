"""`assay replay`."""
import json
import unittest

from program import DATA, Test


class Replay(Test):
    def test_two_replays_are_two_sides_of_a_diff(self):
        for name, words in (("a", ()), ("again", ()), ("fp32", ("--precision", "fp32"))):
            self.expect(0, "replay", "--model", "telechat3-105b-tiny", "--dump", self.dir / name, *words)
        same = self.expect(0, "diff", self.dir / "a", self.dir / "again", "--tolerance", "bitwise").out
        self.assertIn("PASS", same)
        self.expect(0, "diff", self.dir / "fp32", self.dir / "a")
        model = json.loads((self.dir / "a" / "manifest.json").read_text())["producer"]["model"]
        (self.dir / "model.toml").write_text(model)
        first, second = (self.expect(0, "replay", "--model", m, "--micro-batches", "2").out
                         for m in ("telechat3-105b-tiny", self.dir / "model.toml"))
        self.assertEqual(first, second)
        counts = [t.get("count") for t in json.loads(self.expect(0, "inspect", self.dir / "a", "--json").out)["tensors"]]
        self.assertTrue(any(counts))
        once = ("step loss loss", "step loss grad_norm", "lm_head grad weight", "lm_head grad weight.unreduced")
        for name in once:
            self.assertIn("1 compared", self.expect(0, "diff", self.dir / "fp32", self.dir / "a", "--only", name + " *").out)

    def test_another_model_or_step_differs(self):
        one = self.expect(0, "replay", "--model", "qwen3-moe-tiny", "--steps", "2").out.splitlines()
        self.assertEqual([line.split(":")[0] for line in one], ["step 0", "step 1"])
        self.assertNotEqual(one[0].split(":")[1], one[1].split(":")[1])

    def test_strategies_have_the_bits_of_a_single_device(self):
        words = ["replay", "--model", DATA / "models" / "grouped.toml", "--precision", "exact", "--micro-batches", "4", "--length", "16"]
        single = self.expect(0, *words).out
        for strategy in ("tp=2,sp=1,pp=2", "dp=2,zero=3,recompute=full", "dp=4,ep=2"):
            self.assertEqual(self.expect(0, *words, "--parallel", strategy).out, single)
        self.assertNotEqual(self.expect(0, *words, "--seed", "1").out, single)

    def test_a_dump_of_several_ranks_is_put_together(self):
        def compare(model, precision, steps, tolerance, *strategies):
            words = ["replay", "--model", DATA / "models" / model, "--precision", precision, "--micro-batches", "4", "--length", "8",
                     "--steps", steps, "--dump"]
            single = self.dir / f"{model}-{precision}"
            self.expect(0, *words, single)
            for strategy in strategies:
                self.expect(0, *words, self.dir / strategy, "--parallel", strategy)
                out = self.expect(0, "diff", self.dir / strategy, single, *tolerance).out
                self.assertIn("0 failed, 0 inherited; 0 not compared", out)

        compare("grouped.toml", "fp64", "1", (), "tp=2,sp=1,cp=2,dp=2,zero=1")
        compare("latent.toml", "fp64", "1", (), "pp=2,dp=2,ep=2,recompute=permute", "tp=2,cp=2,context=ulysses,ep=2,etp=2")
        compare("grouped.toml", "exact", "2", ("--tolerance", "bitwise"), "dp=4,ep=4,dispatch=hierarchical,node=2,placement=dynamic")

    def test_a_function_of_the_ranks_is_said_and_replayed(self):
        model = (DATA / "models" / "latent.toml").read_text().replace('probability_at', 'capacity_factor = 0.75\nprobability_at')
        (self.dir / "limited.toml").write_text(model)
        words = ["replay", "--model", self.dir / "limited.toml", "--micro-batches", "4", "--length", "8", "--steps", "2", "--dump"]
        strategy = "tp=2,sp=1,dp=2,ep=2,redistribute=1,placement=dynamic"
        out = self.expect(0, *words, self.dir / "many", "--parallel", strategy).out
        self.assertIn("note: each of the 2 ranks of a micro-batch drops tokens by itself, by design", out)
        self.assertIn("note: 2 micro-batches exchange samples", out)
        single = self.expect(0, *words, self.dir / "single", "--modes-of", strategy).out
        self.assertNotIn("note", single)
        self.assertEqual([line for line in out.splitlines() if "note" not in line], single.splitlines())
        same = self.expect(0, "diff", self.dir / "many", self.dir / "single").out
        self.assertIn("0 failed, 0 inherited; 0 not compared", same)
        self.assertIn("moe_capacity_drop", self.expect(0, "inspect", self.dir / "many", "--json").out)
        err = self.expect(2, "replay", "--model", self.dir / "limited.toml", "--modes-of", "dp=2,redistribute=1").err
        self.assertIn("--modes-of 'dp=2,redistribute=1': 1 micro-batches do not divide over dp = 2", err)

    def test_optimizer_and_average(self):
        def steps(*words):
            return self.expect(0, "replay", "--model", "qwen3-moe-tiny", "--length", "8", "--sequences", "2", "--micro-batches", "2",
                               "--steps", "2", *words).out.splitlines()

        plain = steps()
        self.assertEqual(plain, steps("--optimizer", "adamw,lr=1e-3", "--loss-average", "micro-batches"))
        muon = steps("--optimizer", "muon,lr=0.01", "--dump", self.dir / "muon")
        self.assertEqual(plain[0], muon[0])
        self.assertNotEqual(plain[1], muon[1])
        producer = json.loads((self.dir / "muon" / "manifest.json").read_text())["producer"]
        self.assertEqual((producer["optimizer"], producer["loss_average"]), ("muon,lr=0.01", "micro-batches"))
        self.assertIn("momentum_buffer", self.expect(0, "inspect", self.dir / "muon", "--json").out)
        ragged = steps("--prompt", "1")
        self.assertNotEqual(ragged[0], plain[0])
        self.assertNotEqual(ragged[0], steps("--prompt", "1", "--loss-average", "tokens")[0])

    def test_mixed_precision(self):
        def replay(precision, *words):
            return self.expect(0, "replay", "--model", "telechat3-105b-tiny", "--precision", precision, *words).out

        replay("bf16", "--dump", self.dir / "bf16")
        dtypes = {t["name"]: t["dtype"] for t in json.loads(self.expect(0, "inspect", self.dir / "bf16", "--json").out)["tensors"]}
        self.assertEqual({d for name, d in dtypes.items() if not name.startswith("step ")}, {"bfloat16", "float32", "int64"})
        # Megatron-LM's first scale, 2^32, is too large for any gradient
        self.assertIn("gradient norm nan: skipped, loss scale 4294967296", replay("fp16"))
        self.assertNotEqual(replay("fp8"), replay("bf16"))

    def test_describe(self):
        out = self.expect(0, "replay", "--model", DATA / "models" / "mixtral-8x7b.json", "--describe").out
        self.assertIn("mixtral: 46.7 billion parameters, of which a token meets 12.", out)
        out = self.expect(0, "replay", "--model", "deepseek-v3", "--describe", "--length", "524288", "--sequences", "524288").out
        self.assertIn("for 524288 x 524288 tokens", out)

    def test_trouble(self):
        def refused(sentence, *words):
            self.assertIn(sentence, self.expect(2, "replay", "--model", *words).err)

        refused("is no model; expected one of", "gpt")
        refused("a replay computes at most 134217728; take a -tiny preset", "deepseek-v3")
        refused("has no table of tolerances", "qwen3-moe", "--describe", "--tolerance", "bitwise")
        refused("4 layers do not give 8 stages", "qwen3-moe-tiny", "--parallel", "pp=8", "--micro-batches", "8")
        refused("1 micro-batches do not divide over dp = 2", "qwen3-moe-tiny", "--parallel", "dp=2")
        refused("there is no key 'xp'; expected tp, sp, cp,", "qwen3-moe-tiny", "--parallel", "xp=2")
        refused("2 heads of keys do not divide over tp = 4", "qwen3-moe-tiny", "--parallel", "tp=4")
        refused("--optimizer: lr is 'fast'; expected a number from 0", "qwen3-moe-tiny", "--optimizer", "adamw,lr=fast")
        refused("--describe excludes --steps", "qwen3-moe", "--describe", "--steps", "2")
        config = json.loads((DATA / "models" / "deepseek-v3.json").read_text())
        for key, value, sentence in (("qk_nope_head_dim", -1, "'attention.nope_dim' is -1"),
                                     ("num_attention_heads", 10**18, "'attention.heads' is 1000000000000000000"),
                                     ("num_hidden_layers", 2**31, "'layers' is 2147483648; expected 1 to 1024"),
                                     ("rms_norm_eps", -1, "'norm_eps' is -1"),
                                     ("topk_method", "greedy", "'topk_method' is greedy; expected noaux_tc"),
                                     ("q_lora_rank", "many", "'q_lora_rank'"), ("n_group", 256, "at least two")):
            path = self.dir / "config.json"
            path.write_text(json.dumps({**config, key: value}))
            refused(sentence, path, "--describe")
        (self.dir / "full").mkdir()
        (self.dir / "full" / "x").write_text("")
        refused("not empty", "qwen3-moe-tiny", "--dump", self.dir / "full")


if __name__ == "__main__":
    unittest.main()
