"""GeGLU of joint and separate halves, both ways round, with and without probs; both approximations."""
import torch

from case import values, write_case


def write(name, attributes, inputs, halves):
    leaves = {k: v.clone().requires_grad_() for k, v in inputs.items()}
    gate, up = halves(leaves)
    y = torch.nn.functional.gelu(gate, approximate=attributes.get("approximate", "none")) * up
    if "probs" in leaves:
        y = y * leaves["probs"].unsqueeze(-1)
    g = values(*y.shape, seed=9)
    y.backward(g)
    write_case(
        "geglu",
        name,
        attributes,
        [*((k, v, "input") for k, v in inputs.items()), ("grad_y", g, "grad_output")],
        [("y", y, "output"), *((f"grad_{k}", v.grad, "grad_input") for k, v in leaves.items())],
        {"y": 1} | ({"grad_probs": y.shape[-1]} if "probs" in inputs else {}),
    )


x = values(3, 10, low=-6, high=6, seed=1)
write("gate_left", {"activate_left": True}, {"x": x}, lambda t: t["x"].chunk(2, -1))
write("gate_right_tanh", {"activate_left": False, "approximate": "tanh"}, {"x": x}, lambda t: reversed(t["x"].chunk(2, -1)))
apart = {"gate": x[:, :5], "up": x[:, 5:], "probs": values(3, low=0, high=1, seed=2)}
write("apart_probs", {}, apart, lambda t: (t["gate"], t["up"]))
