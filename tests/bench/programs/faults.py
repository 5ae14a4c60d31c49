"""Faults that are planted into program.py and into transformers at run time, each with what a report should say of it.

The expectations are written before a report is seen: the first wrong tensor in execution order as a pattern of its name,
and the cause of its first diagnosis with those of its parameters that follow from the fault. A fault without a cause has no closed
form among the causes (compare/result/cause.h). Kinds are those of the table that board.py prints.
"""
import dataclasses
import inspect
import sys
import textwrap
import types
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from program import BETAS, DECAY, MAX_NORM, RATE, Trainer

GENERAL = ("vector", "dp2")  # layouts of board.py: another instruction set, two ranks
BOTH = ("float32", "bfloat16")
# A step in bfloat16 is no fault where everything is; parameters in bfloat16 do not decay, rate x decay is less than half a place.
SINGLE = ("float32",)
MOES = ("mixtral", "qwen3-moe")


@dataclasses.dataclass(frozen=True)
class Fault:
    plant: Callable[[Trainer], None]
    kind: str
    place: str
    cause: str | None
    parameters: dict[str, object]
    dtypes: tuple[str, ...]
    layouts: tuple[str, ...]
    families: tuple[str, ...] = MOES


FAULTS: dict[str, Fault] = {}


def fault(kind: str, place: str, cause: str | None = None, *, dtypes: tuple[str, ...] = BOTH, layouts: tuple[str, ...] = GENERAL,
          **parameters: object) -> Callable:
    def add(plant: Callable[[Trainer], None]) -> Callable[[Trainer], None]:
        FAULTS[plant.__name__.replace("_", "-")] = Fault(plant, kind, place, cause, parameters, dtypes, layouts)
        return plant
    return add


def forward(tensor: str, step: int = 0, micro_batch: int = 0) -> str:
    return f"{tensor} (step {step}, micro-batch {micro_batch}, forward)"


def backward(tensor: str, step: int = 0, micro_batch: int = 0) -> str:
    return f"{tensor} (step {step}, micro-batch {micro_batch}, backward)"


def of_step(tensor: str, phase: str, step: int = 0) -> str:
    return f"{tensor} (step {step}, {phase})"


LAYER = "model.layers.1"
ATTENTION, EXPERTS, ROUTER = f"{LAYER}.self_attn", f"{LAYER}.mlp.experts", f"{LAYER}.mlp.gate"
CORE = forward(f"{ATTENTION}.o_proj input input")  # what attention hands on
FIRST_STEP = of_step("model.embed_tokens * weight*", "optimizer")  # the parameter or a state


def layer(t: Trainer, index: int = 1) -> nn.Module:
    return t.model.model.layers[index]


def edited(function: Callable, *edits: tuple[str, str], **names: object) -> Callable:
    """The function with its source changed, each edit once; names are globals that it sees."""
    function = inspect.unwrap(function)
    source = textwrap.dedent(inspect.getsource(function))
    for old, new in edits:
        if old not in source:
            raise ValueError(f"{function.__qualname__} has no '{old}'")
        source = source.replace(old, new, 1)
    scope = {**sys.modules[function.__module__].__dict__, **names}
    exec(source[source.index("def "):], scope)
    return scope[function.__name__]


def edit(module: nn.Module, *edits: tuple[str, str], **names: object) -> None:
    """Changes the forward pass of one module."""
    module.forward = types.MethodType(edited(type(module).forward, *edits, **names), module)


def edit_attention(t: Trainer, *edits: tuple[str, str], **names: object) -> None:
    """Changes attention of layer 1 behind its projections."""
    attention = layer(t).self_attn
    core = edited(sys.modules[type(attention).__module__].eager_attention_forward, *edits, **names)
    edit(attention, eager_attention_forward=core)


def behind(module: nn.Module, change: Callable[[Tensor], Tensor]) -> None:
    """Changes what a module hands on."""
    module.register_forward_hook(lambda _, args, y: change(y))


def flip(x: Tensor, at: int) -> None:
    """The lowest bit of the exponent of one element."""
    integer, mantissa = {torch.float32: (torch.int32, 23), torch.bfloat16: (torch.int16, 7)}[x.dtype]
    x.detach().view(-1).view(integer)[at] ^= 1 << mantissa


# Permutations.

@fault("permutation", forward(f"{ATTENTION}.v_proj output y"), "permuted")
def value_heads_swapped(t: Trainer) -> None:
    attention = layer(t).self_attn
    behind(attention.v_proj, lambda y: y.roll(attention.head_dim, -1))


@fault("permutation", forward(f"{ATTENTION}.o_proj output y"), "permuted")
def output_columns_reversed(t: Trainer) -> None:
    behind(layer(t).self_attn.o_proj, lambda y: y.flip(-1))


@fault("permutation", forward(f"{LAYER}.post_attention_layernorm output y"), "permuted")
def tokens_reversed(t: Trainer) -> None:
    behind(layer(t).post_attention_layernorm, lambda y: y.flip(1))


@fault("permutation", CORE, "permuted")
def heads_interleaved(t: Trainer) -> None:
    edit(layer(t).self_attn, ("attn_output.reshape(*input_shape, -1)", "attn_output.transpose(2, 3).reshape(*input_shape, -1)"))


@fault("permutation", of_step(f"{EXPERTS} param gate_up_proj", "forward"), "permuted")
def experts_swapped(t: Trainer) -> None:
    for weight in layer(t).mlp.experts.parameters():
        weight[[0, 1]] = weight[[1, 0]]


@fault("permutation", of_step(f"{EXPERTS} param gate_up_proj", "forward"), "permuted")
def gate_and_up_loaded_in_other_order(t: Trainer) -> None:
    weight = layer(t).mlp.experts.gate_up_proj
    weight.copy_(torch.cat(weight.chunk(2, 1)[::-1], 1))


@fault("permutation", forward(f"{EXPERTS}.act_fn input input"), "attribute", attribute="gate_first")
def gate_and_up_exchanged(t: Trainer) -> None:
    edit(layer(t).mlp.experts, ("gate, up =", "up, gate ="))


@fault("permutation", of_step(f"{ATTENTION}.k_proj param weight", "forward"), "other_tensor", tensor=f"{ATTENTION}.v_proj param weight*")
def keys_and_values_loaded_in_other_order(t: Trainer) -> None:
    k, v = layer(t).self_attn.k_proj.weight, layer(t).self_attn.v_proj.weight
    old = k.clone()
    k.copy_(v)
    v.copy_(old)


@fault("permutation", forward("lm_head output y"), "permuted")
def vocabulary_parts_swapped(t: Trainer) -> None:
    behind(t.model.lm_head, lambda y: torch.cat(y.chunk(2, -1)[::-1], -1))


@fault("permutation", forward(f"{EXPERTS} output y"), "permuted")
def tokens_reversed_behind_experts(t: Trainer) -> None:
    behind(layer(t).mlp.experts, lambda y: y.flip(0))


@fault("permutation", forward(f"{EXPERTS} output y"))
def results_of_an_expert_reversed(t: Trainer) -> None:
    edit(layer(t).mlp.experts, ("index_add_(0, token_idx,", "index_add_(0, token_idx.flip(0),"))


@fault("permutation", CORE, "attribute", attribute="style")
def rope_of_neighbours(t: Trainer) -> None:
    def rotate(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        half = cos.shape[-1] // 2
        cos, sin = (x[..., :half].repeat_interleave(2, -1)[:, None] for x in (cos, sin))
        return tuple(x * cos + torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2) * sin for x in (q, k))
    edit(layer(t).self_attn, apply_rotary_pos_emb=rotate)


# How much micro-batches count.

@fault("micro-batches", backward("lm_head grad_output y", micro_batch=1), "factor", factor=1.5)
def micro_batch_counts_more(t: Trainer) -> None:
    share = t.share
    t.share = lambda micro_batch: share(micro_batch) * (1.5 if micro_batch == 1 else 1)


@fault("micro-batches", backward("lm_head grad_output y", micro_batch=3), "zeros")
def micro_batch_does_not_count(t: Trainer) -> None:
    share = t.share
    t.share = lambda micro_batch: share(micro_batch) * (micro_batch != 3)


@fault("micro-batches", backward("lm_head grad_output y"), "factor", factor=(1 / 4) / (15 / 42), layouts=("padded", "dp2-padded"))
def mean_of_means(t: Trainer) -> None:
    t.share = lambda micro_batch: 1 / 4


# The norm of the gradients and what it clips.

def clip_by(t: Trainer, norm: Callable[[list[Tensor]], Tensor], max_norm: float = MAX_NORM) -> None:
    def clip() -> None:
        weights = list(t.model.parameters())
        nn.utils.clip_grads_with_norm_(weights, max_norm, norm([w.grad for w in weights]))
    t.clip = clip


@fault("clip", FIRST_STEP, "clip", value=1)
def not_clipped(t: Trainer) -> None:
    t.clip = lambda: None


@fault("clip", FIRST_STEP, "norm", text="square of the norm")
def norm_without_root(t: Trainer) -> None:
    clip_by(t, lambda gradients: nn.utils.get_total_norm(gradients) ** 2)


@fault("clip", FIRST_STEP, "norm", text="without")
def norm_without_experts(t: Trainer) -> None:
    clip_by(t, lambda gradients: nn.utils.get_total_norm([g for g in gradients if g.dim() < 3]))


@fault("clip", FIRST_STEP, "clip", text="max_norm is 0.5")
def other_max_norm(t: Trainer) -> None:
    clip_by(t, nn.utils.get_total_norm, 0.5)


@fault("clip", FIRST_STEP, "clip", dtypes=SINGLE)
def norm_in_bfloat16(t: Trainer) -> None:
    clip_by(t, lambda gradients: nn.utils.get_total_norm([g.bfloat16() for g in gradients]).float())


@fault("clip", FIRST_STEP, "clip", text="norms of groups")
def clipped_one_by_one(t: Trainer) -> None:
    t.clip = lambda: [nn.utils.clip_grad_norm_(w, MAX_NORM) for w in t.model.parameters()]


@fault("clip", of_step("model.embed_tokens grad weight", "backward"), "weights", layouts=("dp2",), micro_batches=[0, 1, 2, 3])
def clipped_before_the_reduction(t: Trainer) -> None:
    reduce, clip = t.reduce, t.clip
    t.reduce = lambda: (clip(), reduce())
    t.clip = lambda: None


# Other data.

@fault("data", forward("loss loss lm"), "wrong_tokens", shift=1)
def labels_shifted_once_more(t: Trainer) -> None:
    labels = t.labels
    t.labels = lambda sample, micro_batch: labels(sample, micro_batch).roll(-1, -1)


@fault("data", forward("model.embed_tokens input input", micro_batch=1), "stale", micro_batch=2)
def tokens_of_another_micro_batch(t: Trainer) -> None:
    t.sample = lambda step, micro_batch: t.text[step, 2 if micro_batch == 1 else micro_batch]


@fault("data", forward("model.embed_tokens input input", micro_batch=1), "stale", micro_batch=0, layouts=("dp2", "dp2-average"))
def ranks_read_the_same(t: Trainer) -> None:
    t.sample = lambda step, micro_batch: t.text[step, micro_batch - t.rank]


@fault("data", forward("model.embed_tokens input input", step=1), "stale", step=0)
def first_batch_again(t: Trainer) -> None:
    t.sample = lambda step, micro_batch: t.text[0, micro_batch]


@fault("data", forward("loss loss lm"), "attribute", attribute="label_smoothing", value=0.1)
def smoothed_labels(t: Trainer) -> None:
    t.model.loss_function = edited(t.model.loss_function, ("return loss", "return smooth(logits, shift_labels)"),
                                   smooth=lambda logits, labels: F.cross_entropy(logits, labels, label_smoothing=0.1))


# A part is scaled.

@fault("scale", of_step(f"{ATTENTION}.o_proj grad weight.unreduced", "backward"), "factor", factor=1.01)
def gradient_of_a_weight_scaled(t: Trainer) -> None:
    layer(t).self_attn.o_proj.weight.register_hook(lambda g: g * 1.01)


@fault("scale", backward(f"{EXPERTS} grad_output y"), "factor", factor=1.01)
def gradient_behind_a_layer_scaled(t: Trainer) -> None:
    layer(t).register_forward_hook(lambda _, args, y: y.register_hook(lambda g: g * 1.01) and None)


@fault("scale", forward(f"{EXPERTS} output y"))
def expert_scaled(t: Trainer) -> None:
    edit(layer(t).mlp.experts, ("* top_k_weights", "* (1.02 if expert_idx == 3 else 1) * top_k_weights"))


@fault("scale", CORE, "attribute", attribute="scale", value=0.25 * 1.02)
def attention_scaled(t: Trainer) -> None:
    layer(t).self_attn.scaling *= 1.02


@fault("scale", forward(f"{LAYER}.post_attention_layernorm input hidden_states"), "added", factor=-0.5,
       tensor=f"{ATTENTION}.o_proj output y*")
def half_of_attention_added(t: Trainer) -> None:
    edit(layer(t), ("residual + hidden_states", "residual + 0.5 * hidden_states"))


# Lower precision.

@fault("precision", forward(f"{ATTENTION}.q_proj output y"), "input_precision", dtypes=SINGLE, dtype="bfloat16")
def product_of_bfloat16(t: Trainer) -> None:
    linear = layer(t).self_attn.q_proj
    linear.forward = lambda input: F.linear(input.bfloat16().float(), linear.weight.bfloat16().float())


@fault("precision", CORE, dtypes=SINGLE)
def softmax_in_bfloat16(t: Trainer) -> None:
    edit_attention(t, ("softmax(attn_weights, dim=-1, dtype=torch.float32)", "softmax(attn_weights.bfloat16(), dim=-1)"))


@fault("precision", forward(f"{ROUTER} output 0"), "precision", dtypes=SINGLE, dtype="bfloat16")
def logits_of_router_in_bfloat16(t: Trainer) -> None:
    edit(layer(t).mlp.gate, ("F.linear(hidden_states, self.weight)", "F.linear(hidden_states, self.weight).bfloat16().float()"))


@fault("precision", forward("model.norm output y"))
def norm_layer_in_bfloat16(t: Trainer) -> None:
    edit(t.model.model.norm, ("hidden_states.to(torch.float32)", "hidden_states.to(torch.bfloat16)"))


@fault("precision", of_step("model.embed_tokens state weight.exp_avg", "optimizer"), "precision", dtypes=SINGLE, dtype="bfloat16")
def moment_kept_in_bfloat16(t: Trainer) -> None:
    update = t.update

    def rounded(step: int) -> None:
        update(step)
        for state in t.optimizer.state.values():
            state["exp_avg"].copy_(state["exp_avg"].bfloat16())
    t.update = rounded


# Routing.

@fault("routing", forward(f"{ROUTER} output 1"), "attribute", attribute="normalize")
def not_renormalised(t: Trainer) -> None:
    edit(layer(t).mlp.gate, ("router_top_value /= router_top_value.sum(dim=-1, keepdim=True)", "pass"))


@fault("routing", forward(f"{ROUTER} output 1"))
def one_expert_less(t: Trainer) -> None:
    layer(t).mlp.gate.top_k -= 1


@fault("routing", forward(f"{ROUTER} output 2"))
def worst_expert_chosen(t: Trainer) -> None:
    def worst(chosen: Tensor, probabilities: Tensor) -> Tensor:
        chosen = chosen.clone()
        chosen[5, 1] = probabilities[5].argmin()
        return chosen
    edit(layer(t).mlp.gate, ("router_scores =", "router_indices = worst(router_indices, router_probs); router_scores ="), worst=worst)


@fault("routing", forward(f"{ROUTER} output 1"), "attribute", attribute="score")
def sigmoid_of_logits(t: Trainer) -> None:
    edit(layer(t).mlp.gate, ("torch.nn.functional.softmax(router_logits", "sigmoid(router_logits"),
         sigmoid=lambda x, **_: torch.sigmoid(x.float()))


# Constants.

@fault("constant", forward("model.layers.0.input_layernorm output y"), "attribute", attribute="eps")
def other_epsilon(t: Trainer) -> None:
    norm = layer(t, 0).input_layernorm
    norm.variance_epsilon = 1e-6 if norm.variance_epsilon > 5e-6 else 1e-5


@fault("constant", forward("model.layers.0.input_layernorm output y"), dtypes=SINGLE)  # less than a rounding in bfloat16
def epsilon_outside_of_the_root(t: Trainer) -> None:
    edit(layer(t, 0).input_layernorm, ("* torch.rsqrt(variance + self.variance_epsilon)", "/ (variance.sqrt() + self.variance_epsilon)"))


@fault("constant", forward("model.rotary_emb output 0"), "attribute", attribute="base_theta", value=5e5)
def other_theta(t: Trainer) -> None:
    rope = t.model.model.rotary_emb
    rope.inv_freq.copy_(5e5 ** -(torch.arange(rope.inv_freq.numel()) / rope.inv_freq.numel()))


@fault("constant", forward("model.rotary_emb output 0"))
def frequencies_scaled(t: Trainer) -> None:
    t.model.model.rotary_emb.inv_freq *= 1.01


@fault("constant", of_step("model.embed_tokens state weight.exp_avg_sq", "optimizer"), "betas", value=0.999, reference_value=BETAS[1])
def other_beta2(t: Trainer) -> None:
    for group in t.optimizer.param_groups:
        group["betas"] = (BETAS[0], 0.999)


@fault("constant", FIRST_STEP, "epsilon", value=1e-5, reference_value=1e-8)
def other_epsilon_of_adam(t: Trainer) -> None:
    for group in t.optimizer.param_groups:
        group["eps"] = 1e-5


@fault("constant", FIRST_STEP, "weight_decay", dtypes=SINGLE, value=0, reference_value=DECAY)
def no_decay(t: Trainer) -> None:
    t.optimizer.param_groups[0]["weight_decay"] = 0.0


@fault("constant", of_step("model.layers.0.*norm param weight", "optimizer"), "weight_decay", dtypes=SINGLE, value=DECAY, reference_value=0)
def norms_decay(t: Trainer) -> None:
    t.optimizer.param_groups[1]["weight_decay"] = DECAY


@fault("constant", FIRST_STEP, "l2_decay", value=DECAY)
def decay_in_the_gradient(t: Trainer) -> None:
    for group in t.optimizer.param_groups:
        group["decoupled_weight_decay"] = False


@fault("constant", FIRST_STEP, "bias_correction")
def bias_not_corrected(t: Trainer) -> None:
    adam = sys.modules["torch.optim.adam"]
    adam._single_tensor_adam = edited(adam._single_tensor_adam, ("step = _get_value(step_t)", "step = 1e9"))


@fault("constant", of_step("model.embed_tokens * weight*", "optimizer", 1), "learning_rate", value=RATE / 2, reference_value=RATE)
def rate_of_the_step_before(t: Trainer) -> None:
    rate = t.rate
    t.rate = lambda step: rate(max(step - 1, 0))


# What tokens see.

@fault("mask", CORE)
def next_token_seen(t: Trainer) -> None:
    def one_more(mask: Tensor) -> Tensor:
        return torch.full_like(mask, torch.finfo(mask.dtype).min).triu(2)
    edit_attention(t, ("attn_weights + attention_mask", "attn_weights + one_more(attention_mask)"), one_more=one_more)


@fault("mask", CORE, "attribute", attribute="window_size")
def window_of_eight(t: Trainer) -> None:
    def window(mask: Tensor) -> Tensor:
        return mask + torch.full_like(mask, torch.finfo(mask.dtype).min / 2).tril(-8)
    edit_attention(t, ("attn_weights + attention_mask", "attn_weights + window(attention_mask)"), window=window)


@fault("mask", CORE, "attribute", attribute="is_causal")
def mask_left_out(t: Trainer) -> None:
    edit_attention(t, ("attention_mask is not None", "False"))


# One element.

@fault("element", forward(f"{EXPERTS} output y"), "flipped_bit")
def bit_of_an_activation(t: Trainer) -> None:
    seen = []

    def once(y: Tensor) -> Tensor:
        y = y.clone()
        if not seen:
            flip(y, 77)
        seen.append(y)
        return y
    if t.rank == 0:
        behind(layer(t).mlp.experts, once)


@fault("element", of_step(f"{ATTENTION}.k_proj grad weight", "backward"), "flipped_bit")
def bit_of_a_gradient(t: Trainer) -> None:
    reduce_one = t.reduce_one

    def reduce(name: str, weight: nn.Parameter) -> None:
        reduce_one(name, weight)
        if name == f"{ATTENTION}.k_proj.weight":
            flip(weight.grad, 77)
    t.reduce_one = reduce


# What is of a step before.

@fault("stale", of_step(f"{ROUTER} param weight", "optimizer"), "not_updated")
def weight_not_given_to_the_optimizer(t: Trainer) -> None:
    weights = t.optimizer.param_groups[0]["params"]
    weights[:] = [w for w in weights if w is not layer(t).mlp.gate.weight]


@fault("stale", of_step("model.embed_tokens grad weight.unreduced", "backward", 1), "added")
def gradients_not_forgotten(t: Trainer) -> None:
    t.forget = lambda: None


@fault("stale", of_step("model.embed_tokens * weight*", "optimizer", 1), "step_stale")
def state_lost(t: Trainer) -> None:
    update = t.update
    t.update = lambda step: (t.optimizer.state.clear(), update(step))


@fault("stale", forward("lm_head output y", step=1), "stale", step=0)
def weight_of_the_step_before(t: Trainer) -> None:
    head = t.model.lm_head
    old = head.weight.clone()
    head.forward = lambda input: F.linear(input, head.weight + (old - head.weight).detach())


@fault("stale", FIRST_STEP, "not_updated")
def two_updates(t: Trainer) -> None:
    update = t.update
    t.update = lambda step: (update(step), update(step))


# Layers.

@fault("layer", forward(f"{LAYER}.input_layernorm input hidden_states"), "missing_layer", module="model.layers.1*")
def layer_left_out(t: Trainer) -> None:
    layer(t).forward = lambda hidden_states, **_: hidden_states


@fault("layer", forward("model.layers.[12].input_layernorm input hidden_states"), "other_tensor")
def layers_in_other_order(t: Trainer) -> None:
    a, b = layer(t, 1), layer(t, 2)
    a.forward, b.forward = b.forward, a.forward


@fault("layer", forward(f"{EXPERTS} output y"), "zeros")
def experts_give_zero(t: Trainer) -> None:
    behind(layer(t).mlp.experts, lambda y: y * 0)


@fault("layer", forward(f"{LAYER}.post_attention_layernorm input hidden_states"), "missing_term")
def residual_left_out(t: Trainer) -> None:
    edit(layer(t), ("residual + hidden_states", "hidden_states"))


# Reductions over ranks.

@fault("reduction", of_step(f"{ATTENTION}.o_proj grad weight", "backward"), "partial_sum", layouts=("dp2",), axis="dp")
def a_gradient_not_reduced(t: Trainer) -> None:
    reduce_one = t.reduce_one
    t.reduce_one = lambda name, weight: None if name == f"{ATTENTION}.o_proj.weight" else reduce_one(name, weight)


@fault("reduction", of_step("model.embed_tokens grad weight", "backward"), "factor", layouts=("dp2-average",), factor=0.5)
def averaged_twice(t: Trainer) -> None:
    reduce_one = t.reduce_one

    def reduce(name: str, weight: nn.Parameter) -> None:
        reduce_one(name, weight)
        weight.grad /= t.ranks
    t.reduce_one = reduce


@fault("reduction", of_step("model.embed_tokens grad weight", "backward"), "factor", layouts=("dp2-average",), factor=2)
def added_up_not_averaged(t: Trainer) -> None:
    t.reduce_one = lambda name, weight: dist.all_reduce(weight.grad)


@fault("reduction", of_step("model.embed_tokens grad weight", "backward"), "weights", layouts=("dp2",), micro_batches=[0, 1, 2, 3],
       counts=[1, 0, 1, 0])
def gradients_of_one_rank(t: Trainer) -> None:
    t.reduce_one = lambda name, weight: dist.broadcast(weight.grad, 0)


@fault("reduction", of_step("model.embed_tokens grad weight", "backward"), "precision", layouts=("dp2",), dtypes=SINGLE, dtype="bfloat16")
def reduced_in_bfloat16(t: Trainer) -> None:
    def reduce(name: str, weight: nn.Parameter) -> None:
        narrow = weight.grad.bfloat16()
        dist.all_reduce(narrow)
        weight.grad.copy_(narrow)
    t.reduce_one = reduce


@fault("reduction", of_step("model.embed_tokens grad weight", "backward"), "partial_sum", layouts=("ddp",), axis="dp")
def ddp_never_reduces(t: Trainer) -> None:
    t.reduces = lambda last: False


@fault("reduction", of_step("lm_head param weight", "forward"), layouts=("dp2",))
def rank_begins_with_other_weights(t: Trainer) -> None:
    if t.rank == 1:
        t.model.lm_head.weight.copy_(torch.randn_like(t.model.lm_head.weight) * 0.125)
