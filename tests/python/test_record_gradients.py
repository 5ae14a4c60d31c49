"""Which gradients assay.torch.record takes, of modules that share tensors."""

import pytest

torch = pytest.importorskip("torch")


def test_a_gradient_that_is_handed_back_is_that_of_one_user(tmp_path):
    import assay.torch

    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)

        def forward(self, x):
            h = x * 2
            return self.a(h) + self.b(h).square()

    model, x = Twice(), torch.randn(2, 3, requires_grad=True)
    recorder = assay.torch.record(model, out=tmp_path / "dump")
    model(x).sum().backward()
    recorder.close()
    dump = assay.inspect(tmp_path / "dump")
    of_a = dump["a grad_input input (step 0, micro-batch 0, backward)"].read()
    of_b = dump["b grad_input input (step 0, micro-batch 0, backward)"].read()
    assert torch.equal(torch.tensor(of_a), torch.ones(2, 3) @ model.a.weight.detach())
    torch.testing.assert_close(torch.tensor(of_a + of_b) * 2, x.grad)


def test_a_parameter_that_a_module_hands_on_keeps_no_hook(tmp_path):
    import assay.torch

    class Table(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.drop = torch.nn.Parameter(torch.randn(3, 3)), torch.nn.Identity()
            self.out = torch.nn.Linear(3, 3)

        def forward(self, x):
            return self.out(x @ self.drop(self.table))

    model = Table()
    recorder = assay.torch.record(model, out=tmp_path / "dump")
    for _ in range(2):
        model(torch.randn(2, 3)).sum().backward()
    recorder.close()
    names = [t.name for t in assay.inspect(tmp_path / "dump")]
    assert len(names) == len(set(names))
    assert not model.table._backward_hooks
    for micro_batch in (0, 1):
        assert f"drop output y (step 0, micro-batch {micro_batch}, forward)" in names
        assert f"out grad_output y (step 0, micro-batch {micro_batch}, backward)" in names
