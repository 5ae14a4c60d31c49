"""What the recorder makes of DeepSpeed's attributes: stand-ins have those, and nothing else.

As release 0.19.8 sets them: tensor_fragment in deepspeed/utils/tensor_fragment.py (ZeRO 1 and 2), Init in
deepspeed/runtime/zero/partition_parameters.py and DeepSpeedZeroOptimizer_Stage3 in deepspeed/runtime/zero/stage3.py.
"""

import sys
from types import ModuleType, SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

import assay.torch  # noqa: E402
from assay.torch import _deepspeed as deepspeed  # noqa: E402


class Mapping:
    """tensor_fragment: elements start, start + 1, .. of the weight are this rank's."""

    def __init__(self, start, gradient, **others):
        self.lp_fragment_address = SimpleNamespace(start=start, numel=gradient.numel())
        self._gradient = gradient
        self.hp_fragment, self.optim_fragment = others.get("hp_fragment"), others.get("optim_fragment")

    def get_lp_grad_fragment(self, index):
        assert index == 7
        return self._gradient


def zero_2(mapping, dtype=torch.float32):
    weight = torch.nn.Parameter(torch.arange(12.0, dtype=dtype).reshape(3, 4))
    weight._hp_mapping, weight._index_in_param_group = mapping, 7
    return weight


def zero_3(rank, ranks, monkeypatch, dtype=torch.float32):
    """A weight of 3 x 5: over 4 ranks the last share of 4 elements ends with one that is padding."""
    group = object()
    share = -(-15 // ranks)
    shards = torch.full((ranks * share,), 99.0).index_copy_(0, torch.arange(15), torch.arange(15.0)).reshape(ranks, -1)
    weight = torch.nn.Parameter(torch.empty(0, dtype=dtype))
    weight.ds_shape, weight.ds_numel, weight.ds_process_group = torch.Size((3, 5)), 15, group
    weight.ds_tensor = shards[rank].to(dtype)
    weight.ds_tensor.ds_numel = share
    flat = torch.zeros(share)
    values = {None: shards[rank], "exp_avg": shards[rank] + 100, "exp_avg_sq": shards[rank] + 200}
    weight._z3_optimizer = SimpleNamespace(
        get_local_fp32_grad_for_param=lambda w: shards[rank] + 300,
        get_local_fp32_param=lambda w, name=None: values[name],
        get_param_id=lambda w: 5,
        grad_position={5: [0, 0, share]},
        fp32_partitioned_groups_flat=[flat],
        optimizer=SimpleNamespace(
            state={flat: {"step": torch.tensor(1.0), "exp_avg": flat.clone(), "exp_avg_sq": flat.clone()}}
        ),
    )
    monkeypatch.setattr(torch.distributed, "get_rank", lambda of=None: rank if of is group else -1)
    return weight


def is_fragment(found, first, values, whole):
    return (
        isinstance(found, deepspeed.Fragment)
        and (found.first, found.whole) == (first, whole)
        and torch.equal(found.values, torch.tensor(values))
    )


def test_a_weight_without_attributes_is_whole():
    weight = torch.nn.Parameter(torch.ones(2))
    assert not deepspeed.is_cut(weight)
    assert deepspeed.part_of(weight) is None


def test_zero_2_has_a_run_of_the_elements_in_the_dtype_of_the_weight():
    gradient = torch.tensor([[1.0, 2.0]])
    weight = zero_2(Mapping(5, gradient, hp_fragment=torch.zeros(2), optim_fragment={"exp_avg": torch.ones(2)}))
    assert deepspeed.is_cut(weight)
    assert deepspeed.part_of(weight) is None  # each rank has all of it
    assert is_fragment(deepspeed.gradient_of(weight), 5, [1.0, 2.0], (3, 4))
    states = deepspeed.states_of(weight)
    assert states.keys() == {"exp_avg"}  # a weight of float32 is its own master
    assert is_fragment(states["exp_avg"], 5, [1.0, 1.0], (3, 4))


def test_zero_2_steps_a_copy_of_a_weight_of_fewer_bits():
    mapping = Mapping(5, torch.ones(2), hp_fragment=torch.tensor([5.0, 6.0]), optim_fragment=None)
    states = deepspeed.states_of(zero_2(mapping, torch.bfloat16))
    assert states.keys() == {"master"}
    assert is_fragment(states["master"], 5, [5.0, 6.0], (3, 4))


def test_a_buffer_of_all_gradients_gives_the_elements_of_the_rank():
    """Of the newer bfloat16 optimizer, which keeps it on each rank (get_full_hp_grad says so)."""
    mapping = Mapping(5, torch.tensor([1.0, 2.0]))
    weight = zero_2(mapping)
    mapping.get_lp_grad_fragment = lambda index: torch.arange(12.0)
    assert is_fragment(deepspeed.gradient_of(weight), 5, [5.0, 6.0], (3, 4))


def test_a_weight_of_which_other_ranks_have_all_elements():
    weight = zero_2(None)
    assert deepspeed.is_cut(weight)
    assert deepspeed.gradient_of(weight) is None
    assert deepspeed.states_of(weight) == {}


def test_the_optimizer_for_bfloat16_has_whole_gradients():
    weight = zero_2(Mapping(5, torch.ones(2)))
    weight._hp_grad = torch.full((3, 4), 2.0)
    assert deepspeed.gradient_of(weight) is weight._hp_grad


@pytest.mark.parametrize(("rank", "first", "length"), [(0, 0, 4), (1, 4, 4), (3, 12, 3)])
def test_zero_3_has_equal_shares_without_what_is_behind_the_end(rank, first, length, monkeypatch):
    weight = zero_3(rank, 4, monkeypatch)
    own = [float(i) for i in range(first, first + length)]
    assert is_fragment(deepspeed.part_of(weight), first, own, (3, 5))
    assert is_fragment(deepspeed.gradient_of(weight), first, [x + 300 for x in own], (3, 5))
    states = deepspeed.states_of(weight)
    assert list(states) == ["exp_avg", "exp_avg_sq"]  # no counts of steps
    assert is_fragment(states["exp_avg_sq"], first, [x + 200 for x in own], (3, 5))


def test_zero_3_may_leave_a_rank_without_elements(monkeypatch):
    weight = zero_3(8, 9, monkeypatch)
    assert is_fragment(deepspeed.part_of(weight), 16, [], (3, 5))


def test_zero_3_steps_a_copy_of_a_weight_of_fewer_bits(monkeypatch):
    states = deepspeed.states_of(zero_3(1, 4, monkeypatch, torch.bfloat16))
    assert list(states) == ["master", "exp_avg", "exp_avg_sq"]
    assert is_fragment(states["master"], 4, [4.0, 5.0, 6.0, 7.0], (3, 5))


@pytest.fixture
def engine(monkeypatch):
    """DeepSpeedEngine of deepspeed/runtime/engine.py: a module that steps by itself."""

    class DeepSpeedEngine(torch.nn.Module):
        def __init__(self, module, accumulation):
            super().__init__()
            self.module, self._left, self.accumulation = module, accumulation, accumulation
            self.basic_optimizer = None
            self.optimizer = type("DeepSpeedZeroOptimizer", (), {})()

        def forward(self, x):
            return self.module(x)

        def is_gradient_accumulation_boundary(self):
            return self._left == 1

        def step(self):
            if self.is_gradient_accumulation_boundary():
                for weight in self.module.parameters():
                    weight.data.sub_(weight._hp_mapping.get_lp_grad_fragment(7).reshape(weight.shape))
            self._left = self._left - 1 or self.accumulation

    runtime = ModuleType("deepspeed.runtime.engine")
    runtime.DeepSpeedEngine = DeepSpeedEngine
    monkeypatch.setitem(sys.modules, "deepspeed.runtime.engine", runtime)
    return DeepSpeedEngine


def test_an_engine_is_known_by_its_class(engine):
    assert deepspeed.engine_of(engine(torch.nn.Linear(1, 1), 1)) is engine
    assert deepspeed.engine_of(torch.nn.Linear(1, 1)) is None


def test_the_optimizer_of_the_program_gives_its_name(engine):
    made = engine(torch.nn.Linear(1, 1), 1)
    assert deepspeed.optimizer_in(made) == "DeepSpeedZeroOptimizer"
    made.basic_optimizer = torch.optim.SGD(made.parameters(), 0.1)
    assert deepspeed.optimizer_in(made) == "SGD"


def test_an_engine_steps_at_the_boundary_of_its_accumulation(engine, tmp_path):
    plain_step = engine.step
    model = torch.nn.Linear(2, 1, bias=False)
    weight = model.weight
    weight.data.copy_(torch.tensor([[2.0, 4.0]]))
    weight._hp_mapping = Mapping(0, torch.tensor([0.5, 0.25]), optim_fragment={"exp_avg": torch.tensor([3.0, 4.0])})
    weight._index_in_param_group = 7
    made = engine(model, 2)
    recorder = assay.torch.record(made, out=tmp_path / "dump", steps="0-1")
    assert engine.step is not plain_step
    for _ in range(4):
        made(torch.ones(1, 2)).sum().backward()
        made.step()
    recorder.close()
    assert engine.step is plain_step
    dump = assay.inspect(tmp_path / "dump")
    assert {(t.step, t.micro_batch) for t in dump if t.slot == "output"} == {(s, m) for s in (0, 1) for m in (0, 1)}
    assert (dump["param weight (step 0, forward)"].read() == [[2.0, 4.0]]).all()
    assert (dump["grad weight (step 0, backward)"].read() == [[0.5, 0.25]]).all()
    assert (dump["param weight (step 0, optimizer)"].read() == [[1.5, 3.75]]).all()
    state = dump["state weight.exp_avg (step 1, optimizer)"]
    assert state.op == "DeepSpeedZeroOptimizer" and (state.read() == [[3.0, 4.0]]).all()
