#!/usr/bin/env python3
"""What `assay diff` takes to judge every result by its own inputs where products of matrices dominate: a small Llama, and a
layer of telechat3-105b at full size, each recorded twice, with torch's vector unit and without it.

    python3 judging.py --work DIR --assay build/release/tools/assay/assay [llama|dense|moe ..] [--tokens N] [--experts N]

The python needs programs/requirements.txt. Prints a line for each pair: seconds, seconds of all cores, peak memory (mapped pages
of the files apart), size of a side, exit status and the report's last line. dense is layer 0, moe one of the others with a share of
its 192 experts (24 are those of one rank where 8 share them); a side takes 2 GB of the disk or less.
"""
import argparse
import os
import pathlib
import resource
import subprocess
import sys
import time

from resident import peak_of

sys.path.insert(0, str(pathlib.Path(__file__).parent / "programs"))

GB = 1e9
LLAMA = dict(vocab_size=2048, hidden_size=256, num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=4,
             intermediate_size=896)  # 6.4 M parameters
# Table 1 of the report, and pretrain_telechat3_105b_a4b_4k.yaml of mindformers; a small vocabulary around the layer.
TELECHAT3 = dict(vocab_size=512, hidden_size=2560, num_hidden_layers=1, num_attention_heads=32, num_key_value_heads=32,
                 q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
                 intermediate_size=7680, moe_intermediate_size=1536, num_experts_per_tok=4, n_shared_experts=1, n_group=1,
                 topk_group=1, norm_topk_prob=True, routed_scaling_factor=2.8, rms_norm_eps=1e-5)


def record(folder, subject, dtype, tokens, sequence, experts):
    import numpy
    import torch
    import torch.distributed as dist
    import transformers
    from record import Recorder

    small = subject == "llama"
    sizes = LLAMA if small else TELECHAT3 | dict(n_routed_experts=experts, first_k_dense_replace=int(subject == "dense"))
    config = (transformers.LlamaConfig if small else transformers.DeepseekV3Config)(
        **sizes, pad_token_id=0, bos_token_id=1, eos_token_id=1, max_position_embeddings=sequence)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype),
                                                          attn_implementation="eager" if small else "sdpa")
    random = numpy.random.default_rng(0)
    with torch.no_grad():
        for w in model.parameters():
            x = torch.from_numpy(random.standard_normal(w.shape, dtype=numpy.float32))
            w.copy_(1 + 0.1 * x if w.dim() == 1 else x * config.hidden_size**-0.5)
    dist.init_process_group("gloo", init_method=f"file://{folder}.meeting", rank=0, world_size=1)
    recorder = Recorder(str(folder), dist.init_device_mesh("cpu", (1,), mesh_dim_names=("dp",)), model, {}, {"lr": 1e-3})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    recorder.begin(0)
    micro_batches = 2 if small else 1
    for micro_batch in range(micro_batches):
        ids = torch.from_numpy(random.integers(2, config.vocab_size, (tokens // sequence, sequence)))
        recorder.micro_batch = micro_batch
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss / micro_batches
        recorder.loss(loss)
        loss.backward()
    recorder.gradients()
    if small:
        optimizer.step()
        recorder.end(optimizer)
    recorder.save()


def measure(assay, actual, reference):
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    process = subprocess.Popen([assay, "diff", actual, reference], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    peak = peak_of(process)
    last = process.stdout.read().strip().splitlines()[-1]
    seconds, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cores = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    side = sum(file.stat().st_size for file in actual.iterdir())
    return f"{seconds:6.1f} s, {cores:6.1f} s of cores, {peak / GB:5.2f} GB, {side / GB:.2f} GB a side, exit {process.returncode}: {last}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("subjects", nargs="*", default=["llama", "dense", "moe"])
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--assay", required=True)
    parser.add_argument("--dtype", nargs="*", default=["float32", "bfloat16"])
    parser.add_argument("--tokens", type=int, help="of a micro-batch: 512 of llama, 4096 of a layer unless said")
    parser.add_argument("--sequence", type=int, help="tokens of a sequence: all of them unless said")
    parser.add_argument("--experts", type=int, default=24)
    parser.add_argument("--record", nargs=2, metavar=("FOLDER", "DTYPE"), help="one run, of one subject")
    given = parser.parse_args()
    for subject in given.subjects:
        tokens = given.tokens or (512 if subject == "llama" else 4096)
        sequence = min(given.sequence or tokens, tokens)
        if given.record:
            record(given.record[0], subject, given.record[1], tokens, sequence, given.experts)
            return
        for dtype in given.dtype if subject == "llama" else ["bfloat16"]:
            given.work.mkdir(parents=True, exist_ok=True)
            sides = []
            for unit in ("", "default"):
                sides.append(given.work / f"{subject}-{dtype}-{tokens}-{sequence}-{unit or 'vector'}")
                command = [sys.executable, __file__, subject, "--work", given.work, "--assay", given.assay, "--tokens",
                           str(tokens), "--sequence", str(sequence), "--experts", str(given.experts), "--record", sides[-1], dtype]
                if not (sides[-1] / "manifest.json").exists():
                    subprocess.run(command, env=os.environ | ({"ATEN_CPU_CAPABILITY": unit} if unit else {}), check=True)
            print(f"{subject} {dtype}, {tokens} tokens in sequences of {sequence}: {measure(given.assay, *sides)}", flush=True)


if __name__ == "__main__":
    main()
