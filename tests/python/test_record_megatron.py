"""What the recorder makes of Megatron-core's attributes: stand-ins have those, and nothing else.

As release 0.16.1 sets them: set_tensor_model_parallel_attributes in megatron/core/tensor_parallel/layers.py,
layer_number in transformer/transformer_layer.py, local_experts and num_local_experts in transformer/moe/experts.py,
main_grad in distributed/param_and_grad_buffer.py, main_param in optimizer/optimizer.py, groups in parallel_state.py.
"""

import sys
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")
from assay.torch import _megatron as megatron  # noqa: E402
from assay.torch._grid import Grid, Layout  # noqa: E402
from assay.torch._masters import Masters  # noqa: E402
from assay.torch._modules import paths_of  # noqa: E402
from torch import nn  # noqa: E402

GRID = Grid(("dp", "tp"), (2, 4))
TENSOR, EXPERT, OWN, STRANGE, ALONE = "tensor", "expert tensor", "of the module", "uneven", "alone"
RANKS = {TENSOR: [4, 5, 6, 7], EXPERT: [1, 5], OWN: [2, 6], STRANGE: [0, 1, 3], ALONE: [3]}


@pytest.fixture
def state(monkeypatch):
    """parallel_state of rank 1 of expert parallelism."""
    module = ModuleType("megatron.core.parallel_state")
    module.is_initialized = lambda: True
    module.get_tensor_model_parallel_group = lambda: TENSOR
    module.get_expert_tensor_parallel_group = lambda: EXPERT
    module.get_expert_model_parallel_rank = lambda: 1
    monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", module)
    monkeypatch.setattr(torch.distributed, "get_process_group_ranks", RANKS.__getitem__)
    return module


def cut(shape, dim, pieces=1):
    weight = nn.Parameter(torch.zeros(shape))
    weight.tensor_model_parallel, weight.partition_dim, weight.partition_stride = True, dim, pieces
    return weight


def test_a_weight_is_cut_over_the_dimension_of_its_group(state):
    rows = megatron.layout_of_weight(cut((3, 5), 0), TENSOR, GRID)
    assert rows == Layout((12, 5), ("Replicate()", "Shard(dim=0)"))
    columns = megatron.layout_of_weight(cut((3, 5), 1), EXPERT, GRID)
    assert columns == Layout((3, 10), ("Shard(dim=1)", "Replicate()"))


def test_a_group_of_several_dimensions_cuts_over_all_of_them(state):
    grid = Grid(("dp", "cp", "tp"), (2, 2, 2))
    assert megatron.layout_of_weight(cut((3, 5), 0), TENSOR, grid) == Layout(
        (12, 5), ("Replicate()", "Shard(dim=0)", "Shard(dim=0)")
    )
    assert megatron.layout_of_weight(cut((4, 5), 0, 2), TENSOR, grid) is None  # of pieces: no words for it


def test_pieces_of_a_fused_weight_are_cut_by_themselves(state):
    layout = megatron.layout_of_weight(cut((4, 5), 0, 2), TENSOR, GRID)
    assert layout == Layout((16, 5), ("Replicate()", "_StridedShard(dim=0, sf=2)"))


def test_what_is_not_cut_has_no_layout(state):
    plain = nn.Parameter(torch.zeros(3))
    assert megatron.layout_of_weight(plain, TENSOR, GRID) is None
    whole = cut((3, 5), -1)  # as the attributes' defaults are
    whole.tensor_model_parallel = False
    assert megatron.layout_of_weight(whole, TENSOR, GRID) is None
    assert megatron.layout_of_weight(cut((3, 5), -1), TENSOR, GRID) is None
    for group in (None, ALONE, STRANGE):
        assert megatron.layout_of_weight(cut((3, 5), 0), group, GRID) is None


def test_the_group_of_a_module_is_its_own_or_that_of_its_kind(state):
    linear, expert, own = nn.Linear(1, 1), nn.Linear(1, 1), nn.Linear(1, 1)
    expert.is_expert = own.is_expert = True
    own.tp_group = OWN
    assert megatron.group_of_weights(linear) == TENSOR
    assert megatron.group_of_weights(expert) == EXPERT
    assert megatron.group_of_weights(own) == OWN
    state.is_initialized = lambda: False
    assert megatron.group_of_weights(own) is None


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.num_local_experts = 4
        self.local_experts = nn.ModuleList(nn.Linear(1, 1) for _ in range(4))
        self.others = nn.ModuleList([nn.Linear(1, 1)])


class Layer(nn.Module):
    def __init__(self, number):
        super().__init__()
        self.layer_number, self.experts = number, Experts()


def test_layers_and_experts_have_their_numbers_in_the_whole_model(state):
    model = nn.Module()
    model.layers = nn.ModuleList([Layer(3), Layer(4)])  # of the second stage; they are counted from 1
    paths = set(paths_of(model).values())
    assert {"layers.2.experts.local_experts.4", "layers.3.experts.local_experts.7"} <= paths
    assert "layers.2.experts.others.0" in paths  # no experts
    assert not any(path.startswith(("layers.0", "layers.1")) for path in paths)
    state.is_initialized = lambda: False
    assert "layers.0.experts.local_experts.0" in paths_of(model).values()


def test_a_gradient_may_be_in_a_buffer():
    weight = nn.Parameter(torch.zeros(2))
    assert megatron.gradient_of(weight) is None
    weight.main_grad = torch.ones(2)
    assert megatron.gradient_of(weight) is weight.main_grad
    weight.grad = torch.full((2,), 2.0)
    assert megatron.gradient_of(weight) is weight.grad


def test_a_master_is_said_whatever_its_values_and_shape_are():
    same, other = nn.Parameter(torch.zeros(2, 2).bfloat16()), nn.Parameter(torch.zeros(2, 2).bfloat16())
    same.main_param = same
    other.main_param = torch.full((3,), 9.0)  # of the distributed optimizer: a flat share
    assert megatron.master_of(same) is None
    masters = Masters()
    masters.see([other.main_param], [same, other])
    assert masters.weight_of(other.main_param) is other
