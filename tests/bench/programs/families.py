"""Clean pairs of model families that no rule was made for: Hugging Face's classes with random weights, eager attention against sdpa and
against another instruction set, in two dtypes. What does not pass is a false alarm, but where sdpa leaves out what eager has (Gemma 2's cap).

    python3 families.py --work DIR --assay build/release/tools/assay/assay [FAMILY ..]

The python needs requirements.txt. Prints a line for each pair: the exit status of `assay diff`, its seconds and its first line.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path


USUAL = dict(
    vocab_size=512,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=1,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    intermediate_size=128,
)
DEEPSEEK = dict(num_hidden_layers=3, first_k_dense_replace=1, num_key_value_heads=4, moe_intermediate_size=32, n_routed_experts=8,
                num_experts_per_tok=2, n_shared_experts=1, q_lora_rank=32, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=16,
                v_head_dim=16)
INDEXER = dict(index_n_heads=4, index_head_dim=16, index_topk=16)
# Multipliers that are no powers of two, as Granite 3 has them, but that of its scores.
GRANITE = dict(num_hidden_layers=2, embedding_multiplier=12.0, residual_multiplier=0.22, attention_multiplier=1 / 16, logits_scaling=6.0)
FAMILIES = {
    "gpt2": ("GPT2Config", dict(n_embd=64, n_layer=2, n_head=4, n_positions=128, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)),
    "gpt-neox": ("GPTNeoXConfig", dict(num_hidden_layers=2, max_position_embeddings=128)),
    "phi": ("PhiConfig", dict(num_hidden_layers=2)),
    "gemma2": ("Gemma2Config", dict(num_hidden_layers=2, head_dim=16, sliding_window=16)),
    "gemma3": ("Gemma3TextConfig", dict(num_hidden_layers=3, head_dim=16, sliding_window=16)),
    "qwen2": ("Qwen2Config", dict(num_hidden_layers=2)),
    "opt": ("OPTConfig", dict(num_hidden_layers=2, ffn_dim=128, word_embed_proj_dim=64, dropout=0, attention_dropout=0)),
    "falcon": ("FalconConfig", dict(num_hidden_layers=2, alibi=False)),
    "falcon-alibi": ("FalconConfig", dict(num_hidden_layers=2, alibi=True)),
    "mpt": ("MptConfig", dict(d_model=64, n_heads=4, n_layers=2, max_seq_len=128)),
    "bloom": ("BloomConfig", dict(n_layer=2, n_head=4)),
    "starcoder2": ("Starcoder2Config", dict(num_hidden_layers=2)),
    "stablelm": ("StableLmConfig", dict(num_hidden_layers=2)),
    "cohere": ("CohereConfig", dict(num_hidden_layers=2)),
    "granite": ("GraniteConfig", GRANITE),
    "granitemoe": ("GraniteMoeConfig", GRANITE | dict(intermediate_size=64, num_local_experts=4, num_experts_per_tok=2)),
    "deepseek-v3": ("DeepseekV3Config", DEEPSEEK | dict(n_group=2, topk_group=1)),
    "deepseek-v2": ("DeepseekV2Config", DEEPSEEK),
    "deepseek-v3.2": ("DeepseekV32Config", DEEPSEEK | dict(n_group=2, topk_group=1) | INDEXER),
    "glm-moe-dsa": ("GlmMoeDsaConfig", DEEPSEEK | dict(head_dim=8, n_group=1, topk_group=1) | INDEXER),
    "bamba": (
        "BambaConfig",
        dict(num_hidden_layers=3, attn_layer_indices=[1], mamba_n_heads=8, mamba_d_head=16, mamba_d_state=8, mamba_n_groups=2),
    ),
    "falcon-h1": (
        "FalconH1Config",
        dict(num_hidden_layers=2, head_dim=16, mamba_n_heads=8, mamba_d_head=16, mamba_d_state=8, mamba_d_ssm=128, mamba_n_groups=2),
    ),
    "granitemoe-hybrid": (
        "GraniteMoeHybridConfig",
        dict(
            num_hidden_layers=3,
            layer_types=["mamba", "attention", "mamba"],
            mamba_n_heads=8,
            mamba_d_head=16,
            mamba_d_state=8,
            num_local_experts=8,
            num_experts_per_tok=2,
            shared_intermediate_size=64,
            position_embedding_type="rope",
        ),
    ),
    "nemotron-h": (
        "NemotronHConfig",
        dict(
            num_hidden_layers=4,
            layers_block_type=["mamba", "attention", "moe", "mamba"],
            head_dim=16,
            mamba_num_heads=8,
            mamba_head_dim=16,
            ssm_state_size=8,
            n_groups=2,
            n_routed_experts=8,
            num_experts_per_tok=2,
            moe_intermediate_size=32,
            moe_shared_expert_intermediate_size=32,
        ),
    ),
    "jamba": (
        "JambaConfig",
        dict(
            num_hidden_layers=4,
            attn_layer_period=2,
            attn_layer_offset=1,
            expert_layer_period=2,
            expert_layer_offset=1,
            num_experts=4,
            num_experts_per_tok=2,
            mamba_d_state=8,
            mamba_dt_rank=8,
            use_mamba_kernels=False,
        ),
    ),
    "lfm2-moe": (
        "Lfm2MoeConfig",
        dict(
            num_hidden_layers=4,
            layer_types=["conv", "full_attention", "conv", "full_attention"],
            num_experts=8,
            num_experts_per_tok=2,
            moe_intermediate_size=32,
            num_dense_layers=1,
        ),
    ),
    "glm4-moe": (
        "Glm4MoeConfig",
        dict(
            num_hidden_layers=3,
            first_k_dense_replace=1,
            head_dim=16,
            intermediate_size=128,
            moe_intermediate_size=32,
            n_routed_experts=8,
            num_experts_per_tok=2,
            n_shared_experts=1,
            n_group=1,
            topk_group=1,
        ),
    ),
    "qwen2-moe": (
        "Qwen2MoeConfig",
        dict(
            num_hidden_layers=2,
            intermediate_size=128,
            moe_intermediate_size=32,
            shared_expert_intermediate_size=64,
            num_experts=8,
            num_experts_per_tok=2,
        ),
    ),
    "gpt-oss": (
        "GptOssConfig",
        dict(num_hidden_layers=2, head_dim=16, intermediate_size=32, num_local_experts=4, num_experts_per_tok=2, sliding_window=16),
    ),
    "phi3": ("Phi3Config", dict(num_hidden_layers=2)),
    "llama3": (
        "LlamaConfig",
        dict(
            num_hidden_layers=2,
            rope_parameters={
                "rope_type": "llama3",
                "rope_theta": 500000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        ),
    ),
    "mamba": ("MambaConfig", dict(num_hidden_layers=2, state_size=8)),
    "qwen3-next": (
        "Qwen3NextConfig",
        dict(
            num_hidden_layers=4,
            head_dim=16,
            intermediate_size=128,
            moe_intermediate_size=32,
            shared_expert_intermediate_size=32,
            num_experts=8,
            num_experts_per_tok=2,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            linear_key_head_dim=16,
            linear_value_head_dim=16,
        ),
    ),
    "ernie4_5-moe": (
        "Ernie4_5_MoeConfig",
        dict(
            num_hidden_layers=3,
            intermediate_size=128,
            moe_intermediate_size=32,
            moe_num_experts=8,
            moe_k=2,
            moe_num_shared_experts=1,
            moe_layer_start_index=1,
        ),
    ),
    "minimax": ("MiniMaxConfig", dict(num_hidden_layers=2, head_dim=16, intermediate_size=64, num_local_experts=4, num_experts_per_tok=2)),
    "phimoe": ("PhimoeConfig", dict(num_hidden_layers=2, intermediate_size=64, num_local_experts=4, num_experts_per_tok=2)),
    "dbrx": (
        "DbrxConfig",
        dict(
            vocab_size=512,
            d_model=64,
            n_heads=4,
            n_layers=2,
            max_seq_len=128,
            attn_config=dict(kv_n_heads=2, rope_theta=10000.0, clip_qkv=8.0),
            ffn_config=dict(hidden_size=32, ffn_hidden_size=64, moe_num_experts=4, moe_top_k=2),
        ),
    ),
    "olmo2": ("Olmo2Config", dict(num_hidden_layers=2)),
    "nemotron": ("NemotronConfig", dict(num_hidden_layers=2, head_dim=16)),
    "llama4": (
        "Llama4TextConfig",
        dict(
            num_hidden_layers=4,
            head_dim=16,
            intermediate_size=64,
            intermediate_size_mlp=128,
            num_local_experts=4,
            num_experts_per_tok=1,
            interleave_moe_layer_step=2,
            attention_chunk_size=32,
        ),
    ),
}


def record(folder: Path, family: str, dtype: str, attention: str, seed: int) -> None:
    import numpy
    import torch
    import torch.distributed as dist
    import transformers
    from record import Recorder

    torch.manual_seed(seed)
    class_name, options = FAMILIES[family]
    config = getattr(transformers, class_name)(**USUAL | options)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype), attn_implementation=attention)
    random = numpy.random.default_rng(seed)
    with torch.no_grad():
        for w in model.parameters():
            x = torch.from_numpy(random.standard_normal(w.shape))
            w.copy_(1 + 0.1 * x if w.dim() == 1 else x / 8)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(29600 + os.getpid() % 300))
    dist.init_process_group("gloo", rank=0, world_size=1)
    recorder = Recorder(str(folder), dist.init_device_mesh("cpu", (1,), mesh_dim_names=("dp",)), model, {}, {"lr": 1e-3})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    for step in range(2):
        recorder.begin(step)
        for micro_batch in range(2):
            ids = torch.from_numpy(random.integers(2, 512, (1, 48)))
            recorder.micro_batch = micro_batch
            loss = model(input_ids=ids, labels=ids, use_cache=False).loss / 2
            recorder.loss(loss)
            loss.backward()
        recorder.gradients()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        recorder.end(optimizer)
        optimizer.zero_grad()
    recorder.save()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--assay", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", nargs=3, metavar=("FOLDER", "DTYPE", "ATTENTION"), help="one run, of one family")
    given = parser.parse_args()
    if unknown := sorted(set(given.families) - set(FAMILIES)):
        parser.error(f"no family is called {', '.join(unknown)}; expected one of {', '.join(FAMILIES)}")
    if given.record:
        record(Path(given.record[0]), given.families[0], *given.record[1:], given.seed)
        return
    for family in given.families:
        for dtype in ("float32", "bfloat16"):
            dumps = {}
            for layout, attention, unit in (("eager", "eager", ""), ("sdpa", "sdpa", ""), ("vector", "eager", "default")):
                dumps[layout] = given.work / f"{family}-{dtype}-{layout}"
                command = [
                    sys.executable,
                    __file__,
                    family,
                    "--work",
                    given.work,
                    "--assay",
                    given.assay,
                    "--seed",
                    str(given.seed),
                    "--record",
                    dumps[layout],
                    dtype,
                    attention,
                ]
                environment = os.environ | ({"ATEN_CPU_CAPABILITY": unit} if unit else {})
                if not dumps[layout].exists():
                    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for layout in ("sdpa", "vector"):
                if not (dumps[layout].exists() and dumps["eager"].exists()):
                    print(f"{family} {dtype} {layout}: cannot be run")
                    continue
                begin = time.monotonic()
                done = subprocess.run([given.assay, "diff", dumps[layout], dumps["eager"]], capture_output=True, text=True)
                first = (done.stdout or done.stderr).partition("\n")[0]
                print(f"{family} {dtype} {layout}: exit {done.returncode}, {time.monotonic() - begin:.0f} s, {first}", flush=True)


if __name__ == "__main__":
    main()
