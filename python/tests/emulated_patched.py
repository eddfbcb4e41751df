# SPDX-License-Identifier: Apache-2.0
"""What test_torch_emulated.py asks of decoding with a patched model."""
import copy
import inspect

import torch


@torch.no_grad()
def patched_steps(cgp, transformers, model):
    """A prompt with padding on the left and steps with a cache, patched and not; linear layers may be exchanged meanwhile."""
    ids, mask = torch.randint(0, 50, (2, 5)), torch.ones(2, 5, dtype=torch.long)
    mask[0, :2] = 0
    tokens = torch.randint(0, 50, (3, 2, 1))

    def run(model=model):
        cache, seen = transformers.DynamicCache(config=model.config), mask
        out = [model(ids, attention_mask=mask, past_key_values=cache, use_cache=True).logits[:, -1]]
        for t in tokens:
            seen = torch.cat((seen, torch.ones(2, 1, dtype=torch.long)), 1)
            out.append(model(t, attention_mask=seen, past_key_values=cache, use_cache=True).logits[:, -1])
        return torch.stack(out)

    def near(got, want):  # both round in their own places: neither is further from float32 than twice the other
        exact = run(copy.deepcopy(model).float())
        error, theirs = ((t.float() - exact).abs().max() for t in (got, want))
        assert error <= 2 * theirs, (type(model).__name__, error, theirs)

    from cgp import _whole
    want, done, calls, queued = run(), cgp.patch(model), [], _whole._run

    def counted(calls_of_step, anchor):
        calls.append(True)
        queued(calls_of_step, anchor)

    _whole._run = counted
    got = run()
    assert len(calls) == len(tokens), (type(model).__name__, calls)
    other_steps(transformers, model, ids, calls)
    _whole._run = queued
    done.undo()
    near(got, want)
    done = cgp.patch(model)
    run()
    for p in model.parameters():  # in place, and as other memory
        p.mul_(1.1)
    changed = run()
    for p in model.parameters():
        p.data = p.data.clone()
    assert torch.equal(run(), changed)
    done.undo()
    near(changed, run())
    assert not any("_cgp_few" in m.__dict__ for m in model.modules())


@torch.no_grad()
def other_steps(transformers, model, ids, calls):
    """Caches that were copied, cropped and chosen from; several tokens at once; what makes a step go the usual way."""
    def after(cache, t, whole=True, **options):
        calls.clear()
        logits = model(t, past_key_values=cache, use_cache=True, **options).logits
        assert bool(calls) == whole, (type(model).__name__, options)
        return logits

    def close(got, want):
        torch.testing.assert_close(got, want, atol=4e-2, rtol=2e-2)

    def filled(ids=ids):
        cache = transformers.DynamicCache(config=model.config)
        model(ids, past_key_values=cache, use_cache=True)
        return cache

    cache, new = filled(), torch.randint(0, 50, (2, 3))
    want = model(torch.cat((ids, new), 1)).logits[:, 5:]
    shallow = copy.copy(cache)
    shallow.layers = [copy.copy(layer) for layer in cache.layers]
    close(after(cache, new[:, :1]), want[:, :1])
    keys, forked = cache.layers[1].keys, copy.deepcopy(cache)
    close(after(cache, new[:, 1:], position_ids=torch.tensor([[6, 7]])), want[:, 1:])
    assert keys.shape[2] == 6 and torch.equal(keys, cache.layers[1].keys[:, :, :6]) and cache.get_seq_length() == 8
    close(after(shallow, new, logits_to_keep=2), want[:, 1:])  # which has the first five
    twin = [copy.copy(layer) for layer in forked.layers]
    after(forked, 49 - new[:, 1:])
    forked.layers = twin  # what lies behind its tensors is another's
    close(after(forked, new[:, 1:]), want[:, 1:])
    if hasattr(cache, "crop") and not cache.layers[0].is_sliding:
        cache.crop(-2)
        close(after(cache, new[:, 1:2]), want[:, 1:2])
    cache = filled(torch.cat((ids, new[:, :2]), 1))
    close(after(cache, new[:, 2:], False, output_hidden_states=True), want[:, 2:])  # layer by layer
    for hook in (model.base_model.register_forward_hook(lambda *_: None),
                 list(model.modules())[-1].register_forward_pre_hook(lambda *_: None)):
        close(after(filled(), new, False), want)
        hook.remove()
    if "num_hidden_layers" in vars(model.config):
        early, model.config.num_hidden_layers = filled(), 1  # as transformers does for an early exit
        after(early, new[:, :1], False)
        model.config.num_hidden_layers = 2
    one = transformers.DynamicCache()
    model(ids, past_key_values=one, use_cache=True)
    close(after(one, new), want)
    with torch.inference_mode():
        inner = filled()
        close(after(inner, new[:, :1]), want[:, :1])
    close(after(inner, new[:, 1:]), want[:, 1:])
    after(filled(ids.repeat(5, 1)), new[:1, :1].repeat(10, 1), False)  # more than few
    with torch.enable_grad():
        after(filled(), new, False)
    assert inspect.signature(model.forward).parameters.keys() == inspect.signature(type(model).forward).parameters.keys() - {"self"}
    calls.clear()
    mask = torch.tensor([[0, 0, 1, 1, 1], [1] * 5])
    tokens = model.generate(ids, attention_mask=mask, max_new_tokens=3, do_sample=False, pad_token_id=0, eos_token_id=None)
    assert tokens.shape == (2, 8) and len(calls) == 2
