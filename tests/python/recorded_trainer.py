"""A training by the Trainer of transformers; test_record_trainer.py records it from outside and from inside.

MODE: plain, fsdp, compile, raise; then the folder of the dump, if a callback is to make it.
"""

import sys
import tempfile
import time

import torch
import transformers

mode, out = sys.argv[1], (sys.argv[2:] or [None])[0]
torch.manual_seed(0)
tokens = torch.randint(3, 64, (16, 8))
model = transformers.LlamaForCausalLM(
    transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
)
if mode == "fsdp":
    torch.distributed.init_process_group("gloo")
    for layer in (*model.model.layers, model):
        torch.distributed.fsdp.fully_shard(layer, mesh=torch.distributed.init_device_mesh("cpu", (2,)))
callbacks = []
if out is not None:
    import assay.torch

    callbacks.append(assay.torch.trainer_callback(out=out, steps="0-1"))


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return len(tokens)

    def __getitem__(self, i):
        if mode == "raise" and i == 13:
            raise SystemError("out of luck")
        return {"input_ids": tokens[i], "labels": tokens[i]}


trainer = transformers.Trainer(
    model,
    transformers.TrainingArguments(
        tempfile.mkdtemp(),
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        max_steps=3,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        eval_strategy="steps",
        eval_steps=1,
        torch_compile=mode == "compile",
        torch_compile_backend="eager" if mode == "compile" else None,
    ),
    train_dataset=Data(),
    eval_dataset=Data() if mode != "raise" else [{"input_ids": t, "labels": t} for t in tokens[:2]],
    callbacks=callbacks,
)
if mode == "fsdp":  # accelerate has none on CPUs
    trainer.accelerator.prepare_model = lambda sharded, *_, **__: sharded
try:
    trainer.train()
except SystemError as error:
    print(f"caught: {error}")
if torch.distributed.is_initialized():
    time.sleep(1)  # else a thread of gloo may free its last tensor in an interpreter that has ended, which aborts
    torch.distributed.destroy_process_group()
