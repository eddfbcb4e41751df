# SPDX-License-Identifier: Apache-2.0
"""What test_torch_emulated.py asks of cgp.TrainingStep, with a recording that runs again in place of a CUDA graph."""
import contextlib

import torch


class RunAgain:
    """A graph for machines without a GPU: what was recorded runs again, and its results lie where the first ones did."""
    made, parameters = 0, []

    def __init__(self, function, pool):
        RunAgain.made += 1
        self.function, self.result = function, function()

    def replay(self):
        before = [p.grad for p in self.parameters]  # which a graph does not touch
        loss, gradients = self.function()
        for p, g in zip(self.parameters, before):
            p.grad = g
        self.result[0].copy_(loss)
        for to, g in zip(self.result[1], gradients):
            if to is not None:
                to.copy_(g)


class Holds(torch.nn.Module):
    """A model that uses a parameter under two names and past its modules."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.second.bias, self.held = self.first.bias, [self.first.weight, self.second.bias]

    def forward(self, x):
        y = self.second(self.first(x)).tanh() @ self.held[0] + self.held[1]
        return type("Out", (), {"loss": y.square().sum()})


class Tables(torch.nn.Module):
    """Embeddings of every kind: the last layer's weight too, one alone with padding, one that is looked into twice, two that go
    PyTorch's way; what is looked up is changed in place."""

    def __init__(self):
        super().__init__()
        self.tied, self.alone, self.twice = torch.nn.Embedding(7, 8), torch.nn.Embedding(5, 8, padding_idx=2), torch.nn.Embedding(6, 8)
        self.short = torch.nn.Embedding(5, 8, max_norm=1.0)
        self.scaled = torch.nn.Embedding(5, 8, scale_grad_by_freq=True)

    def forward(self, ids):
        x = self.tied(ids)
        x *= 2
        x = x + self.alone(ids % 5) + self.twice(ids % 6) * self.twice(ids % 3) + self.short(ids % 5) + self.scaled(ids % 5)
        return type("Out", (), {"loss": (x.tanh() @ self.tied.weight.T).square().mean()})


def as_backward(cgp, module, report, **inputs):
    """cgp.TrainingStep of a module against backward()."""
    RunAgain.parameters = list(module.parameters())
    module.zero_grad()
    loss = module(**inputs).loss
    loss.backward()
    wanted = [p.grad for p in module.parameters()]
    module.zero_grad()
    step = cgp.TrainingStep(module)
    for _ in range(2):
        module.zero_grad()
        torch.testing.assert_close(step(**inputs), loss.detach())
        torch.testing.assert_close([p.grad for p in module.parameters()], wanted)
    assert step.report == report, step.report
    assert not any("forward" in vars(m) for m in module.modules())


def training_step(cgp, model, ids):
    """cgp.TrainingStep against model and backward(): sets of shapes, gradients that are added, parameters that were replaced, and
    what goes the usual way."""
    from cgp import _step
    before = _step._Recorded, _step._beside, _step._there, _step._pool
    _step._Recorded, _step._beside, _step._there, _step._pool = RunAgain, contextlib.nullcontext, lambda t: True, lambda: 0
    RunAgain.made = 0
    parameters = RunAgain.parameters = list(model.parameters())
    parameters[0].requires_grad_(False)
    step, others = cgp.TrainingStep(model, most=2), [ids, ids.flip(0), ids.flip(1), ids[:, :5]]

    def usual(batches, scale=1.0):
        model.zero_grad()
        losses = [model(input_ids=i, labels=i).loss for i in batches]
        sum(losses).backward(torch.tensor(scale))
        return [l.detach() for l in losses] + [p.grad for p in parameters[1:]]

    def ours(batches, to_none=True):
        model.zero_grad(set_to_none=to_none)
        losses = [step(input_ids=i, labels=i) for i in batches]
        return losses + [p.grad.clone() for p in parameters[1:]]

    def check(batches, graphs, scale=1.0, **options):
        for g, w in zip(ours(batches, **options), usual(batches, scale)):
            torch.testing.assert_close(g, w, atol=1e-5, rtol=1e-4)
        assert RunAgain.made == graphs, RunAgain.made
        assert parameters[0].grad is None

    check(others[:1], 1)
    check(others[1:2], 1)  # other values, the same graph
    check(others[:3], 1)  # gradients are added
    check(others[:2], 1, to_none=False)
    check(others, 2)  # two sets of shapes, added
    check([ids[:1], ids], 2)  # a third set of shapes: as usual
    assert sorted(step.report.values()) == ["one graph"] * 2 + ["there are 2 graphs already (most)"], step.report
    step.scale = 0.25
    check(others, 2, 0.25)
    step.scale = 1.0
    parameters[1].data = parameters[1].data * 1.5
    check(others[:1], 3)
    hook = parameters[2].register_hook(lambda g: 2 * g)
    check(others[:1], 3)
    assert any("has hooks" in why for why in step.report.values())
    hook.remove()
    holds = Holds()
    names = set(holds._parameters), [id(p) for p in holds.parameters()]
    as_backward(cgp, holds, {"x [3, 4]": "one graph"}, x=torch.randn(3, 4))
    assert names == (set(holds._parameters), [id(p) for p in holds.parameters()])
    as_backward(cgp, Tables(), {"ids [2, 9]": "one graph"}, ids=torch.randint(0, 7, (2, 9)))
    _step._there = lambda t: False
    refused = cgp.TrainingStep(model)
    refused(input_ids=ids, labels=ids)
    assert list(refused.report.values()) == ["the model is not on a GPU"]
    for call, text in ((lambda: step(ids), "by name"), (lambda: step(input_ids=ids), "labels"),
                       (lambda: torch.no_grad()(step)(input_ids=ids, labels=ids), "switched off"),
                       (lambda: cgp.TrainingStep(model, most=0), "at least 1")):
        try:
            call()
            raise AssertionError(text)
        except cgp.ArgumentError as e:
            assert text in str(e), e
    parameters[0].requires_grad_(True)
    _step._Recorded, _step._beside, _step._there, _step._pool = before
