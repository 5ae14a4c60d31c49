"""Records a PyTorch training program for assay. Copy this file; it needs torch and safetensors.

    recorder = Recorder("dump", mesh, model, layout)            # mesh: a DeviceMesh of all ranks
    for step ..:
        recorder.begin(step)                                    # parameters as they are before the step
        for micro_batch ..:                                     # its number over all data-parallel ranks
            recorder.micro_batch = micro_batch
            loss = ..; recorder.loss(loss); loss.backward()     # hooks record every module that has no children
        recorder.gradients(addends=["dp"])                      # as they are before the all-reduce over dp
        ..all-reduce..
        recorder.gradients()
        optimizer.step(); recorder.end(optimizer)
    recorder.save()
"""
import collections
import fnmatch
import inspect
import json
import os

import torch
import torch.distributed as dist
from safetensors.torch import save_file


class Recorder:
    """One rank's part of an assay-dump: an index of JSON lines over one safetensors file.

    layout says what is not equal on all ranks, the first pattern that fits: {"*.up output": {"tp": "Shard(dim=1)"}, ..};
    by "MODULE input", "MODULE output", "MODULE PARAMETER". Shards are equal parts. Without a folder nothing is recorded.
    settings: what reference and subject must have in common, such as the learning rate.
    """

    def __init__(self, folder, mesh, model, layout, settings=None):
        self.folder, self.mesh, self.model, self.layout = folder, mesh, model, layout
        self.step, self.micro_batch, self.calls = 0, -1, collections.Counter()
        self.tensors, self.lines, self.stem = {}, [], f"rank{dist.get_rank():05}"
        if not folder:
            return
        os.makedirs(folder, exist_ok=True)
        if dist.get_rank() == 0:
            manifest = {"format": "assay-dump", "version": 1, "world_size": dist.get_world_size(),
                        "mesh": {"dims": mesh.mesh_dim_names, "shape": mesh.shape},
                        "producer": {"framework": f"torch {torch.__version__}"} | (settings or {})}
            with open(f"{folder}/manifest.json.unfinished", "w") as file:
                json.dump(manifest, file)
        for name, module in model.named_modules():
            if next(module.children(), None) is None:
                names = list(inspect.signature(module.forward).parameters)
                module.register_forward_pre_hook(lambda m, a, k, name=name, names=names: self._inputs(m, name, names, a, k), with_kwargs=True)
                module.register_forward_hook(lambda m, a, y, name=name: self._outputs(m, name, y))

    def add(self, phase, module, slot, arg, tensor, op=None, at=None, addends=()):
        """at: (step, micro-batch, call); a micro-batch of -1 is the step as a whole."""
        if not self.folder:
            return
        key = f"{module} {arg.split('.')[0] if slot in ('param', 'grad', 'state') else slot.removeprefix('grad_')}"
        words = next((w for pattern, w in self.layout.items() if fnmatch.fnmatchcase(key, pattern)), {})
        words = [words.get(axis, "Partial(sum)" if axis in addends else "Replicate()") for axis in self.mesh.mesh_dim_names]
        if slot == "grad_output":  # of a sum's addends every rank gets the gradient of the sum
            words = [w.replace("Partial(sum)", "Replicate()") for w in words]
        whole = list(tensor.shape)
        for word, ranks in zip(words, self.mesh.shape):
            if word.startswith("Shard"):
                whole[int(word[len("Shard(dim="):-1])] *= ranks
        step, micro_batch, call = at or (self.step, -1, 0)
        line = {"seq": len(self.lines), "step": step, "micro_batch": micro_batch, "phase": phase, "module": module, "op": op, "slot": slot,
                "arg": arg, "call": call, "dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape),
                "global_shape": whole, "placements": words, "mesh_coordinate": self.mesh.get_coordinate(),
                "data": {"file": f"{self.stem}.safetensors", "name": f"t{len(self.lines)}"}}
        self.tensors[line["data"]["name"]] = tensor.detach().to("cpu", copy=True).contiguous()
        self.lines.append(json.dumps(line))

    def _inputs(self, module, name, names, args, kwargs):
        self.calls[self.step, self.micro_batch, name] += 1
        at = self.step, self.micro_batch, self.calls[self.step, self.micro_batch, name] - 1

        def one(arg, x):
            if torch.is_tensor(x):
                self.add("forward", name, "input", arg, x, type(module).__name__, at)
                if x.requires_grad:  # a view of its own: others who use x hand back gradients of their own
                    x = x.view_as(x)
                    x.register_hook(lambda g: self.add("backward", name, "grad_input", arg, g, type(module).__name__, at))
            return x
        return tuple(one(arg, x) for arg, x in zip(names, args)), {arg: one(arg, x) for arg, x in kwargs.items()}

    def _outputs(self, module, name, y):
        at = self.step, self.micro_batch, self.calls[self.step, self.micro_batch, name] - 1
        for arg, t in [("y", y)] if torch.is_tensor(y) else [(str(i), t) for i, t in enumerate(y) if torch.is_tensor(t)]:
            self.add("forward", name, "output", arg, t, type(module).__name__, at)
            if t.requires_grad and t.dim() > 0:  # a loss's says less than that of what it was made of
                t.register_hook(lambda g, arg=arg: self.add("backward", name, "grad_output", arg, g, type(module).__name__, at))

    def _parameters(self):
        return [(*name.rpartition(".")[::2], p) for name, p in self.model.named_parameters()]

    def begin(self, step):
        self.step, self.micro_batch = step, -1
        for module, arg, p in self._parameters():
            self.add("forward", module, "param", arg, p)

    def loss(self, value):
        self.add("forward", "loss", "loss", "lm", value, at=(self.step, self.micro_batch, 0))

    def gradients(self, addends=()):
        """addends: over which axes each rank still has an addend of the gradient, where it is not sharded over them."""
        for module, arg, p in self._parameters():
            self.add("backward", module, "grad", arg + (".unreduced" if addends else ""), p.grad, addends=addends)

    def end(self, optimizer):
        for module, arg, p in self._parameters():
            self.add("optimizer", module, "param", arg, p, type(optimizer).__name__)
            for state, t in optimizer.state[p].items():
                if torch.is_tensor(t) and t.shape == p.shape:
                    self.add("optimizer", module, "state", f"{arg}.{state}", t, type(optimizer).__name__)

    def save(self):
        if not self.folder:
            return
        save_file(self.tensors, f"{self.folder}/{self.stem}.safetensors")
        with open(f"{self.folder}/{self.stem}.jsonl", "w") as file:
            file.writelines(line + "\n" for line in self.lines)
        dist.barrier()  # with a manifest the dump is finished: every rank has saved
        if dist.get_rank() == 0:
            os.replace(f"{self.folder}/manifest.json.unfinished", f"{self.folder}/manifest.json")
