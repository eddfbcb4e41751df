# SPDX-License-Identifier: Apache-2.0
"""Training: the time of a step (loss and gradients, no optimizer), call by call and as a graph, the latter in turns with PyTorch's
ways; and 200 steps of a small GPT-2 on the text of Python's own library, byte by byte, against PyTorch's."""
import copy
import glob
import os
import sysconfig

import torch

from . import _models
from ._time import by_clock

STEPS, BATCH, LENGTH = 200, 16, 256


def _step(model, ids):
    def run():
        model.zero_grad(set_to_none=True)
        model(ids, labels=ids, use_cache=False).loss.backward()
    return run


def _patched(model, ids, **parts):
    import cgp
    step = _step(model, ids)

    def run():
        step()
    done = cgp.patch(model, **parts)
    run.undo = done.undo
    return run


def _recorded(model, ids):
    """The step as one CUDA graph, by cgp.TrainingStep."""
    import cgp
    step = cgp.TrainingStep(model)

    def run():
        model.zero_grad(set_to_none=True)
        step(input_ids=ids, labels=ids, use_cache=False)

    run()
    why = set(step.report.values())
    if why != {"one graph"}:
        raise RuntimeError(f"no graph: {', '.join(why)}")
    return run


def text(most=4 << 20):
    """Bytes of the standard library's sources, in the order of their names."""
    out = bytearray()
    for path in sorted(glob.glob(os.path.join(sysconfig.get_paths()["stdlib"], "*.py"))):
        with open(path, "rb") as f:
            out += f.read()
        if len(out) >= most:
            break
    return bytes(out[:most])


def batches(data, steps, batch, length, seed=0):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.frombuffer(bytearray(data), dtype=torch.uint8).long()
    for _ in range(steps):
        first = torch.randint(0, len(tokens) - length, (batch,), generator=generator)
        yield torch.stack([tokens[i:i + length] for i in first.tolist()])


def curve(model, data, steps=STEPS, batch=BATCH, length=LENGTH, rate=1e-3):
    """The losses of `steps` steps of AdamW with float32 weights of its own."""
    model.train()
    masters = [p.detach().float().clone() for p in model.parameters()]
    optimizer, losses = torch.optim.AdamW(masters, lr=rate), []
    device = next(model.parameters()).device
    for ids in batches(data, steps, batch, length):
        ids = ids.to(device)
        model.zero_grad(set_to_none=True)
        loss = model(ids, labels=ids, use_cache=False).loss
        loss.backward()
        losses.append(loss.detach().float())
        for master, p in zip(masters, model.parameters()):
            master.grad = p.grad.float()
        optimizer.step()
        with torch.no_grad():
            for master, p in zip(masters, model.parameters()):
                p.copy_(master)
    return torch.stack(losses).tolist()


def distance(a, b):
    """Mean absolute difference over the last quarter."""
    n = len(a) // 4
    return sum(abs(x - y) for x, y in zip(a[-n:], b[-n:])) / n


def curves(steps=STEPS):
    """PyTorch's losses, ours, and PyTorch's once more with its other attention: what rounding alone does."""
    import transformers

    import cgp
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=4, n_embd=256, n_head=4, vocab_size=256, n_positions=LENGTH, attn_pdrop=0.0,
                                     embd_pdrop=0.0, resid_pdrop=0.0, bos_token_id=0, eos_token_id=0)
    start = transformers.AutoModelForCausalLM.from_config(config).cuda().bfloat16()
    data = text()
    theirs = curve(copy.deepcopy(start), data, steps)
    model = copy.deepcopy(start)
    cgp.patch(model)
    ours = curve(model, data, steps)
    model = copy.deepcopy(start)
    model.set_attn_implementation("eager")
    return dict(theirs=theirs, ours=ours, other=curve(model, data, steps))


def run(options):
    import cgp
    rows = []
    for name in options.models:
        layers = options.layers or (8 if name == "llama1b" else 0)
        model = _models.make(name, layers).train()
        ids = torch.randint(0, 1000, (4, 1024), device="cuda")
        calls, contenders, patched = {}, {}, cgp.patch(model)
        what = f"{name}, {model.config.num_hidden_layers} layers, 4 x 1024"
        contenders["cgp.TrainingStep"] = _recorded(model, ids)
        patched.undo()  # the graph is that of the recording
        # One after another, not in turns: a patched model is the same object.
        for how, parts in (("cgp.patch", {}), ("cgp.patch, loss=\"linear\"", {"loss": "linear"})):
            step = _patched(model, ids, **parts)
            calls.update(by_clock({how: step}, options.rounds, options.seconds))
            step.undo()
        try:
            contenders["cgp.TrainingStep, not patched"] = _recorded(model, ids)
        except RuntimeError as e:
            print(f"{name}, not patched: {e}")
        contenders["eager"] = _step(model, ids)
        if options.compile:
            contenders["torch.compile"] = _step(torch.compile(model), ids)
            contenders["torch.compile, reduce-overhead"] = _step(torch.compile(model, mode="reduce-overhead"), ids)
        times = by_clock(contenders, options.rounds, options.seconds)
        rows.append(dict(part="train", name=what, own=list(calls), times={
            **calls, **{k: v for k, v in times.items() if k in ("eager", "torch.compile")}}))
        rows.append(dict(part="train", name=f"{what}, graphs", own=["cgp.TrainingStep"], times=times))
        model.zero_grad(set_to_none=True)
        del contenders, step
        del model
        torch.compiler.reset()
        torch.cuda.empty_cache()
    if options.curve:
        c = curves()
        ours, noise = distance(c["ours"], c["theirs"]), distance(c["other"], c["theirs"])
        rows.append(dict(part="train", name=f"loss of a small GPT-2, {STEPS} steps", own=[], times={}, curves=c,
                         note=f"last losses {c['ours'][-1]:.4f} and {c['theirs'][-1]:.4f} (PyTorch); mean difference over the last "
                         f"quarter {ours:.5f}, of PyTorch's two attentions {noise:.5f}"))
    return rows
