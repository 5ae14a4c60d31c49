"""GeGLU of joint and separate halves, both ways round, with and without probs; both approximations."""
import torch

from case import values, write_autograd


def write(name, attributes, inputs, halves):
    def geglu(*tensors):
        t = dict(zip(inputs, tensors))
        gate, up = halves(t)
        y = torch.nn.functional.gelu(gate, approximate=attributes.get("approximate", "none")) * up
        return y * t["probs"].unsqueeze(-1) if "probs" in t else y

    counts = {"y": 1} | ({"grad_probs": 5} if "probs" in inputs else {})
    write_autograd("geglu", name, attributes, geglu, {k: (v, "input") for k, v in inputs.items()}, counts=counts)


x = values(3, 10, low=-6, high=6, seed=1)
write("gate_left", {"activate_left": True}, {"x": x}, lambda t: t["x"].chunk(2, -1))
write("gate_right_tanh", {"activate_left": False, "approximate": "tanh"}, {"x": x}, lambda t: reversed(t["x"].chunk(2, -1)))
apart = {"gate": x[:, :5], "up": x[:, 5:], "probs": values(3, low=0, high=1, seed=2)}
write("apart_probs", {}, apart, lambda t: (t["gate"], t["up"]))
