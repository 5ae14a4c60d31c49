"""Records the programs of this folder, which say themselves what is when and where; users have assay.torch.

    recorder = Recorder("dump", mesh, model, layout)            # mesh: a DeviceMesh of all ranks
    for step ..:
        recorder.begin(step)                                    # parameters as they are before the step
        for micro_batch ..:                                     # its number over all data-parallel ranks
            recorder.micro_batch = micro_batch
            loss = ..; recorder.loss(loss); loss.backward()     # hooks record every module that computes
        recorder.gradients(addends=["dp"])                      # as they are before the all-reduce over dp
        ..all-reduce..
        recorder.gradients()
        optimizer.step(); recorder.end(optimizer)
    recorder.save()
"""
import collections
import fnmatch
import functools
import inspect
import json
import os

import torch
import torch.distributed as dist
from safetensors.torch import save_file


class Recorder:
    """One rank's part of an assay-dump: an index of JSON lines over one safetensors file.

    layout says what is not equal on all ranks: {"*.up output": {"tp": "Shard(dim=1)"}, ..}, patterns of "MODULE input",
    "MODULE output" and "MODULE PARAMETER", of which the first that fits counts. Shards are equal parts. settings are what
    two runs must have in common, such as the learning rate. Without a folder nothing is recorded.
    """

    def __init__(self, folder, mesh, model, layout, settings=None):
        self.folder, self.mesh, self.layout = folder, mesh, layout
        self.step, self.micro_batch, self.calls = 0, -1, collections.Counter()
        self.tensors, self.lines, self.stem = {}, [], f"rank{dist.get_rank():05}"
        self.weights = [(*name.rpartition(".")[::2], weight) for name, weight in model.named_parameters()]
        if not folder:
            return
        os.makedirs(folder, exist_ok=True)
        if dist.get_rank() == 0:
            if os.path.exists(f"{folder}/manifest.json"):  # of a run before this one
                os.remove(f"{folder}/manifest.json")
            manifest = {"format": "assay-dump", "version": 1, "world_size": dist.get_world_size(),
                        "mesh": {"dims": mesh.mesh_dim_names, "shape": mesh.shape},
                        "producer": {"framework": f"torch {torch.__version__}"} | (settings or {})}
            with open(f"{folder}/manifest.json.unfinished", "w") as file:
                json.dump(manifest, file)
        for name, module in model.named_modules():
            # What has parameters of its own computes something itself: experts that hold all their weights.
            if next(module.children(), None) is None or next(module.parameters(recurse=False), None) is not None:
                module.register_forward_pre_hook(functools.partial(self._inputs, name), with_kwargs=True)
                module.register_forward_hook(functools.partial(self._outputs, name))
            else:
                module.register_forward_hook(functools.partial(self._choices, name))

    def add(self, phase, module, slot, arg, tensor, op=None, at=None, addends=()):
        """at: (step, micro-batch, call), where a micro-batch of -1 is the step as a whole."""
        if not self.folder:
            return
        if tensor.is_complex():  # [.., 2]: no format of dumps has complex numbers
            tensor = torch.view_as_real(tensor)
        key = f"{module} {arg.split('.')[0] if slot in ('param', 'grad', 'state') else slot.removeprefix('grad_')}"
        words = next((w for pattern, w in self.layout.items() if fnmatch.fnmatchcase(key, pattern)), {})
        words = [words.get(axis, "Partial(sum)" if axis in addends else "Replicate()") for axis in self.mesh.mesh_dim_names]
        if slot == "grad_output":  # the gradient of a sum is that of each addend
            words = [w.replace("Partial(sum)", "Replicate()") for w in words]
        whole = list(tensor.shape)
        for word, ranks in zip(words, self.mesh.shape):
            if word.startswith("Shard"):
                whole[int(word[len("Shard(dim="):-1])] *= ranks
        step, micro_batch, call = at or (self.step, -1, 0)
        name = f"t{len(self.lines)}"
        self.tensors[name] = tensor.detach().to("cpu", copy=True).contiguous()
        self.lines.append(json.dumps({
            "seq": len(self.lines), "step": step, "micro_batch": micro_batch, "phase": phase, "module": module, "op": op, "slot": slot,
            "arg": arg, "call": call, "dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape),
            "global_shape": whole, "placements": words, "mesh_coordinate": self.mesh.get_coordinate(),
            "data": {"file": f"{self.stem}.safetensors", "name": name}}))

    def _inputs(self, name, module, args, kwargs):
        count = self.step, self.micro_batch, name
        self.calls[count] += 1
        record = functools.partial(self.add, module=name, op=type(module).__name__, at=(*count[:2], self.calls[count] - 1))

        def one(arg, x):
            if not torch.is_tensor(x):
                return x
            record("forward", slot="input", arg=arg, tensor=x)
            if x.requires_grad:  # a view of its own: whoever else uses x hands back a gradient of his own
                x = x.view_as(x)
                x.register_hook(lambda g: record("backward", slot="grad_input", arg=arg, tensor=g))
            return x
        names = [p.name for p in inspect.signature(module.forward).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
        names += map(str, range(len(names), len(args)))
        return tuple(map(one, names, args)), {arg: one(arg, x) for arg, x in kwargs.items()}

    def _outputs(self, name, module, args, y):
        count = self.step, self.micro_batch, name
        record = functools.partial(self.add, module=name, op=type(module).__name__, at=(*count[:2], self.calls[count] - 1))
        for arg, t in enumerate(y) if isinstance(y, (tuple, list)) else [("y", y)]:
            if torch.is_tensor(t):
                record("forward", slot="output", arg=str(arg), tensor=t)
                if t.requires_grad:
                    t.register_hook(lambda g, arg=arg: record("backward", slot="grad_output", arg=str(arg), tensor=g))

    def _choices(self, name, module, args, y):
        """Indices that calls within have chosen: nothing else tells which."""
        count = self.step, self.micro_batch, name
        for arg, t in enumerate(y) if isinstance(y, (tuple, list)) else [("y", y)]:
            if torch.is_tensor(t) and t.dim() and t.dtype in (torch.int32, torch.int64):
                self.add("forward", name, "output", str(arg), t, type(module).__name__, (*count[:2], self.calls[count]))
        self.calls[count] += 1

    def begin(self, step):
        self.step, self.micro_batch = step, -1
        for module, arg, weight in self.weights:
            self.add("forward", module, "param", arg, weight)

    def loss(self, value):
        self.add("forward", "loss", "loss", "lm", value, at=(self.step, self.micro_batch, 0))

    def gradients(self, addends=()):
        """addends: the axes over which each rank has an addend of the gradient yet, where that is not sharded over them."""
        for module, arg, weight in self.weights:
            if weight.grad is not None:
                self.add("backward", module, "grad", arg + (".unreduced" if addends else ""), weight.grad, addends=addends)

    def end(self, optimizer):
        for module, arg, weight in self.weights:
            self.add("optimizer", module, "param", arg, weight, type(optimizer).__name__)
            for state, t in optimizer.state[weight].items():
                if torch.is_tensor(t) and t.shape == weight.shape:
                    self.add("optimizer", module, "state", f"{arg}.{state}", t, type(optimizer).__name__)

    def save(self):
        if not self.folder:
            return
        save_file(self.tensors, f"{self.folder}/{self.stem}.safetensors")
        with open(f"{self.folder}/{self.stem}.jsonl", "w") as file:
            file.writelines(line + "\n" for line in self.lines)
        dist.barrier()  # a dump with a manifest is finished: every rank has saved
        if dist.get_rank() == 0:
            os.replace(f"{self.folder}/manifest.json.unfinished", f"{self.folder}/manifest.json")
