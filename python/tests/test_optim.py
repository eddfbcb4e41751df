# SPDX-License-Identifier: Apache-2.0
"""cgp.optimizer_step on NumPy arrays; cgp.optim against torch.optim, on the CPU by the emulator and, where there is one, on a GPU."""
import contextlib
import copy

import numpy as np
import pytest

import cgp

try:
    import torch
except ImportError:
    torch = None

DEVICES = ["cpu"] + (["cuda"] if torch and torch.cuda.is_available() else [])
needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is not installed")


def test_numpy_steps_of_many_arrays_are_adamw():
    random = np.random.default_rng(0)
    shapes = [(3, 5), (7,), (0,), (1,), (300,)]
    w, g = ([random.standard_normal(s).astype(np.float32) for s in shapes] for _ in range(2))
    want = [x.astype(np.float64) for x in w]
    m, v, state = [0 * x for x in want], [0 * x for x in want], None
    for t in (1, 2, 3):
        state = cgp.optimizer_step(w, g, state, rule="adamw", lr=0.1, weight_decay=0.01)
        for i, d in enumerate(g):
            m[i], v[i] = 0.9 * m[i] + 0.1 * d, 0.999 * v[i] + 0.001 * d.astype(np.float64)**2
            want[i] = want[i] * 0.999 - 0.1 / (1 - 0.9**t) * m[i] / (np.sqrt(v[i] / (1 - 0.999**t)) + 1e-8)
    for got, expected in zip(w, want):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    assert list(state["step"]) == [3] * 5


def test_numpy_rules_types_and_clipping():
    w, g = np.ones(4, np.float16), np.full(4, 4, np.float32)
    cgp.optimizer_step([w], [g], rule="descent", lr=0.5, max_norm=2)  # the norm is 8
    np.testing.assert_allclose(w, 0.5, rtol=1e-3)
    state = cgp.optimizer_step([w], [g], rule="sgd", lr=0.125, momentum=0.5, maximize=True)
    np.testing.assert_allclose(w, 1.0, rtol=1e-3)
    np.testing.assert_allclose(state["first"][0], -4)
    before = w.copy()
    cgp.optimizer_step([w], [g * np.nan], state, rule="sgd", max_norm=1)  # left out
    np.testing.assert_array_equal(w, before)
    assert cgp.optimizer_step([], []) is not None


@pytest.mark.parametrize("change, text", [
    (dict(rule="adagrad"), "adagrad"), (dict(lr=-1), "lr"), (dict(betas=(1, 0)), "beta1"), (dict(max_norm=-1), "max_norm"),
    (dict(weights=[np.ones(3)]), "float32"), (dict(weights=[np.ones(4, np.float32)]), "its gradient"),
    (dict(weights=[]), "0 weights"), (dict(state={"first": [], "second": []}), "first"),
])
def test_numpy_mistakes_are_named(change, text):
    arguments = {"weights": [np.ones(3, np.float32)], "gradients": [np.ones(3, np.float32)]} | change
    with pytest.raises(cgp.ArgumentError, match=text):
        cgp.optimizer_step(**arguments)


@pytest.fixture(params=DEVICES)
def device(request):
    pytest.importorskip("torch")
    cgp.set_torch_cpu_device("emu:sm_90a")
    torch.manual_seed(0)
    yield request.param
    cgp.set_torch_cpu_device(None)


def model(device, dtype=None):
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 3)).to(device=device, dtype=dtype)


def train(m, optimizer, steps, scale=1.0, schedule=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        p = next(m.parameters())
        x = torch.randn(4, 5, generator=generator).to(p.device, p.dtype)
        optimizer.zero_grad()
        (m(x).square().sum() * scale).backward()
        optimizer.step()
        if schedule:
            schedule.step()


def same(a, b, **tolerance):
    for p, q in zip(a.parameters(), b.parameters()):
        torch.testing.assert_close(p, q, **tolerance)


def pairs():
    from cgp import optim
    T = torch.optim
    return [(optim.AdamW, T.AdamW, dict(lr=1e-2, weight_decay=0.1)), (optim.Adam, T.Adam, dict(lr=1e-2, weight_decay=0.1, maximize=True)),
            (optim.SGD, T.SGD, dict(lr=1e-2)), (optim.SGD, T.SGD, dict(lr=1e-2, momentum=0.9, weight_decay=0.1)),
            (optim.SGD, T.SGD, dict(lr=1e-2, momentum=0.9, nesterov=True))]


@pytest.mark.parametrize("which", range(5))
def test_steps_are_pytorchs_and_state_dicts_go_both_ways(device, which):
    ours, theirs, options = pairs()[which]
    a = model(device)
    b = copy.deepcopy(a)
    o, t = ours(a.parameters(), **options), theirs(b.parameters(), **options)
    train(a, o, 3), train(b, t, 3)
    same(a, b)
    swapped_o, swapped_t = ours(b.parameters(), **options), theirs(a.parameters(), **options)
    swapped_o.load_state_dict(copy.deepcopy(t.state_dict())), swapped_t.load_state_dict(copy.deepcopy(o.state_dict()))
    train(b, swapped_o, 2, seed=1), train(a, swapped_t, 2, seed=1)
    same(a, b)
    steps = [float(s["step"]) for s in swapped_o.state.values()]
    assert steps == [5.0 if "Adam" in ours.__name__ else 2.0] * 4


def test_groups_schedules_and_parameters_without_gradients(device):
    from cgp import optim
    a = model(device)
    b = copy.deepcopy(a)

    def groups(m):
        return [dict(params=m[0].parameters(), lr=1e-2), dict(params=[m[1].weight], weight_decay=0.5), dict(params=[m[1].bias])]

    o, t = optim.AdamW(groups(a), lr=1e-3), torch.optim.AdamW(groups(b), lr=1e-3)
    for m, x in ((a, o), (b, t)):
        schedule = torch.optim.lr_scheduler.OneCycleLR(x, 0.1, total_steps=10)
        train(m, x, 2, schedule=schedule)
        m[0].bias.requires_grad_(False)
        train(m, x, 2, schedule=schedule)
        m[0].bias.requires_grad_(True)
        train(m, x, 2, schedule=schedule)
    same(a, b)
    assert float(o.state[a[0].bias]["step"]) == 4


def test_clipping_is_pytorchs(device):
    from cgp import optim
    a = model(device)
    b, c = copy.deepcopy(a), copy.deepcopy(a)
    t, u = torch.optim.SGD(b.parameters(), lr=0.1), torch.optim.SGD(c.parameters(), lr=0.1)
    o = optim.SGD(a.parameters(), lr=0.1, max_norm=0.5)
    x = torch.randn(4, 5).to(device)
    for max_norm in (0.5, 1e9):
        for m in (a, b, c):
            m.zero_grad()
            m(x).square().sum().backward()
        o._max_norm = max_norm
        o.step()
        norm = torch.nn.utils.clip_grad_norm_(b.parameters(), max_norm)
        torch.testing.assert_close(o.norm, norm)
        torch.testing.assert_close(optim.clip_grad_norm_(c.parameters(), max_norm), norm)
        for p, q in zip(b.parameters(), c.parameters()):
            torch.testing.assert_close(p.grad, q.grad)
        t.step(), u.step()
    same(a, b), same(c, b)


@pytest.mark.parametrize("own_scaler", [True, False])
def test_scaled_losses(device, own_scaler):
    from cgp import optim
    a = model(device)
    b = copy.deepcopy(a)
    cases = [(a, optim.AdamW(a.parameters(), lr=1e-2), (optim if own_scaler else torch.amp).GradScaler(device, growth_interval=2)),
             (b, torch.optim.AdamW(b.parameters(), lr=1e-2), torch.amp.GradScaler(device, growth_interval=2))]
    for m, o, scaler in cases:
        x = torch.randn(4, 5, generator=torch.Generator().manual_seed(1)).to(device)
        for i in range(5):
            o.zero_grad()
            scaler.scale(m(x).square().sum() * (torch.inf if i == 2 else 1)).backward()
            if i == 3:
                scaler.unscale_(o)
            scaler.step(o)
            scaler.update()
    same(a, b)
    assert cases[0][2].get_scale() == cases[1][2].get_scale()
    assert float(next(iter(cases[0][1].state.values()))["step"]) == 4


def test_masters_keep_small_steps_and_stochastic_rounding_their_mean(device):
    from cgp import optim
    def one():
        p = torch.nn.Parameter(torch.ones(4000, dtype=torch.bfloat16, device=device))
        p.grad = torch.full_like(p, -1.0)
        return p

    plain, master, random, again = one(), one(), one(), one()
    rate = 0.25 / 128
    for p, options in ((plain, {}), (master, dict(master=True)), (random, dict(stochastic=True, seed=3)), (again, dict(stochastic=True, seed=3))):
        o = optim.SGD([p], lr=rate, **options)
        for _ in range(4):
            o.step()
    assert bool((plain == 1).all())
    assert bool((master == 1 + 1 / 128).all())
    assert abs(float(random.float().mean()) - (1 + 1 / 128)) < 4e-4
    assert bool((random == again).all())


def test_exact_resume(device):
    from cgp import optim
    a = model(device, torch.bfloat16)
    o = optim.AdamW(a.parameters(), lr=1e-2, stochastic=True, seed=1)
    train(a, o, 2)
    b = copy.deepcopy(a)
    resumed = optim.AdamW(b.parameters(), lr=1e-2, stochastic=True, seed=1)
    resumed.load_state_dict(copy.deepcopy(o.state_dict()))
    train(a, o, 2, seed=5), train(b, resumed, 2, seed=5)
    for p, q in zip(a.parameters(), b.parameters()):
        assert bool((p == q).all())
    copied = copy.deepcopy(o)  # as torch.optim's
    assert copied._stochastic and copied.param_groups[0]["lr"] == 1e-2


def test_lion_and_layouts(device):
    from cgp import optim
    w = torch.nn.Parameter(torch.randn(6, 4, device=device).t())  # dense, the other way round
    w.grad = torch.randn(4, 6, device=device)  # and the gradient not
    before, g = w.detach().clone(), w.grad.clone()
    o = optim.Lion([w], lr=0.1, weight_decay=0.5)
    for _ in range(2):
        o.step()
    torch.testing.assert_close(w.detach(), (before * 0.95 - 0.1 * g.sign()) * 0.95 - 0.1 * g.sign())
    assert o.state[w]["exp_avg"].stride() == w.stride()


def test_states_of_8_bits(device):
    """Beside float32 states: as near as the code is; small parameters exactly; resumed with the same bits."""
    from cgp import optim
    w = torch.randn(70, 60, device=device)

    def steps(optimizer, parameters, count, seed):
        generator = torch.Generator().manual_seed(seed)
        for _ in range(count):
            for p in parameters:
                p.grad = torch.randn(p.shape, generator=generator).to(p.device, p.dtype)
            optimizer.step()

    def made(kind, **options):
        ps = [torch.nn.Parameter(w.clone()), torch.nn.Parameter(w[:3].clone())]
        return ps, kind(ps, lr=1e-2, weight_decay=0.1, **options)

    (a, a_small), coded = made(optim.AdamW8bit, max_norm=100.0)
    (b, b_small), exact = made(optim.AdamW, max_norm=100.0)
    steps(coded, (a, a_small), 4, 0), steps(exact, (b, b_small), 4, 0)
    assert float((a - b).norm() / (b - w).norm()) < 0.03
    torch.testing.assert_close(a_small, b_small, atol=0, rtol=0)
    state = coded.state[a]
    assert state["state1"].dtype is torch.uint8 and state["absmax"].shape == (2, 17) and "state1" not in coded.state[a_small]
    (c, c_small), resumed = made(optim.AdamW8bit, max_norm=100.0)
    c.data.copy_(a.data), c_small.data.copy_(a_small.data)
    resumed.load_state_dict(copy.deepcopy(coded.state_dict()))
    steps(coded, (a, a_small), 2, 1), steps(resumed, (c, c_small), 2, 1)
    assert torch.equal(a, c) and torch.equal(a_small, c_small)
    with pytest.raises(cgp.Unsupported, match="master"):
        made(optim.Adam8bit, master=True)


@needs_torch
def test_mistakes_are_named():
    from cgp import optim
    p = torch.nn.Parameter(torch.ones(3))
    p.grad = torch.ones(3)
    for make, error, text in ((lambda: optim.AdamW([p], amsgrad=True), cgp.Unsupported, "amsgrad"),
                              (lambda: optim.AdamW([p], lr=-1), cgp.ArgumentError, "lr"),
                              (lambda: optim.SGD([p], dampening=0.1), cgp.Unsupported, "dampening"),
                              (lambda: optim.SGD([p], nesterov=True), cgp.ArgumentError, "momentum"),
                              (lambda: optim.AdamW([p], max_norm=-1), cgp.ArgumentError, "max_norm"),
                              (lambda: optim.clip_grad_norm_([p], 1.0, 1.0), cgp.Unsupported, "norm_type"),
                              (lambda: optim.AdamW([p]).step(), cgp.Unsupported, "set_torch_cpu_device"),
                              (lambda: optim.AdamW([torch.nn.Parameter(torch.ones(3).double())]), None, "")):
        if error:
            with pytest.raises(error, match=text):
                make()


@pytest.mark.skipif("cuda" not in DEVICES, reason="no GPU")
def test_a_graph_holds_the_step():
    from cgp import optim
    torch.manual_seed(0)
    a = model("cuda")
    b = copy.deepcopy(a)
    o, t = optim.AdamW(a.parameters(), lr=1e-2, capturable=True, max_norm=1.0), torch.optim.AdamW(b.parameters(), lr=1e-2)
    x = torch.randn(4, 5, device="cuda")

    def whole():
        a(x).square().sum().backward()
        o.step()
        o.zero_grad()

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        whole()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        whole()
    for rate in (1e-2, 1e-3):
        o.param_groups[0]["lr"] = rate
        o.write_groups()
        graph.replay()
    torch.cuda.synchronize()
    for rate in (1e-2, 1e-2, 1e-3):
        t.param_groups[0]["lr"] = rate
        t.zero_grad()
        b(x).square().sum().backward()
        torch.nn.utils.clip_grad_norm_(b.parameters(), 1.0)
        t.step()
    same(a, b)
    assert float(o.state_dict()["state"][0]["step"]) == 3


class Lossy(torch.nn.Module if torch else object):
    """A model whose result has a loss; one of its parameters has no part in it."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.idle = torch.nn.Linear(5, 7), torch.nn.Linear(7, 3), torch.nn.Parameter(torch.ones(2))

    def forward(self, x):
        return type("Out", (), {"loss": self.second(self.first(x).tanh()).square().mean()})


@pytest.fixture
def recorded(device, monkeypatch):
    """cgp._step, which records on a GPU; elsewhere what was recorded runs again at each launch."""
    from cgp import _step
    if device == "cpu":
        class RunAgain:
            optimizer = None

            def __init__(self, function, pool):
                step, self.optimizer.step = self.optimizer.step, lambda: None  # a recording runs nothing
                sums = [(t, t.clone()) for t in self.step._sums.values()]
                self.function, self.result = function, function()
                for t, was in sums:
                    t.copy_(was)
                self.optimizer.step = step

            def replay(self):
                loss, gradients = self.function()
                self.result[0].copy_(loss)

        for name, value in (("_Recorded", RunAgain), ("_beside", contextlib.nullcontext), ("_there", lambda t: True), ("_pool", lambda: 0)):
            monkeypatch.setattr(_step, name, value)
    return _step


@pytest.mark.parametrize("accumulate", [1, 3])
def test_training_step_with_an_optimizer(recorded, device, accumulate):
    from cgp import optim
    a = Lossy().to(device)
    b = copy.deepcopy(a)
    o, t = optim.AdamW(a.parameters(), lr=1e-2, max_norm=0.05), torch.optim.AdamW(b.parameters(), lr=1e-2)
    schedules = [torch.optim.lr_scheduler.LinearLR(x, 1.0, 0.1, 4) for x in (o, t)]
    step = cgp.TrainingStep(a, optimizer=o, accumulate=accumulate, schedule=schedules[0])
    if device == "cpu":
        recorded._Recorded.optimizer, recorded._Recorded.step = o, step
    hook = None
    for i in range(4 * accumulate):
        x = torch.randn(6 if i % 2 else 4, 5, generator=torch.Generator().manual_seed(i)).to(device)  # two sets of shapes
        if i == accumulate:
            hook = a.first.register_forward_hook(lambda *_: None)  # as usual, in between
        loss = step(x=x)
        if hook:
            hook.remove()
        want = b(x).loss
        torch.testing.assert_close(loss, want.detach())
        (want / accumulate).backward()
        if i % accumulate == accumulate - 1:
            torch.nn.utils.clip_grad_norm_(b.parameters(), 0.05)
            t.step(), t.zero_grad(), schedules[1].step()
        assert all(p.grad is None for p in a.parameters())
    same(a, b, atol=1e-5, rtol=1e-4)
    assert set(step.report.values()) == {"one graph"}, step.report
    assert float(o.state[a.first.weight]["step"]) == 4 and a.idle not in o.state and int(o._control[1]) == 0
    saved = copy.deepcopy(o.state_dict())
    o.load_state_dict(saved)  # other memory: graphs are recorded again
    step(x=x)
    if accumulate == 1:
        assert float(o.state[a.first.weight]["step"]) == 5


def test_gradients_of_16_bits_are_added_in_float32(device):
    """64 + 1/4 + 1/8 + 1/8 is 64 where each sum is rounded to bfloat16."""
    from cgp import optim

    class Product(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.p = torch.nn.Parameter(torch.zeros(3, dtype=torch.bfloat16))

        def forward(self, x):
            return type("Out", (), {"loss": (self.p * x).sum()})

    model = Product().to(device)
    step = cgp.TrainingStep(model, optimizer=optim.SGD(model.parameters(), lr=1.0), accumulate=4)
    for turn in (1, 2):
        for x in (256, 1, 0.5, 0.5):
            step(x=torch.full((3,), x, dtype=torch.bfloat16, device=device))
        assert model.p.tolist() == [-64.5 * turn] * 3


def test_training_step_says_what_it_takes(device):
    a = Lossy()
    for options in (dict(optimizer=torch.optim.SGD(a.parameters(), 0.1)), dict(accumulate=2), dict(accumulate=0)):
        with pytest.raises(cgp.ArgumentError):
            cgp.TrainingStep(a, **options)
