"""Compares the package aiter_go with torch's own convolution and autograd, and tests it under opcheck and torch.compile.

Usage: AITERCTL=PROGRAM aiter_go_test.py FOLDER-OF-PACKAGE

Every gradient is compared with the one that torch derives, in float64, from a
convolution written with torch alone. The first difference ends the script with a non-zero exit code.
"""

import itertools
import sys
from types import SimpleNamespace
from unittest import mock

import torch
import torch.nn.functional as F

TOLERANCE = {torch.float32: (3e-4, 1e-3), torch.float16: (3e-3, 5e-3), torch.bfloat16: (1e-2, 5e-2)}
GRAD_TOLERANCE = {torch.float32: (1e-3, 1e-3), torch.float16: (2e-3, 1e-3), torch.bfloat16: (5e-3, 1e-3)}
SIZES = [(1, 1, 1, 2), (2, 3, 7, 4), (2, 40, 65, 3), (1, 5, 2, 8)]


def reference(x, weight, bias, silu, seq_idx=None, initial=None):
    """Returns the convolution, computed by torch, and the final states. Without seq_idx the convolution is F.conv1d."""
    width, length = weight.shape[1], x.shape[2]
    before = x.new_zeros(*x.shape[:2], width - 1) if initial is None else initial
    whole = torch.cat([before, x], dim=2)
    final = whole[..., whole.shape[2] - (width - 1) :]
    if seq_idx is None:
        y = F.conv1d(whole, weight.unsqueeze(1), bias, groups=x.shape[1])
        return (F.silu(y) if silu else y), final
    ids = F.pad(seq_idx, (width - 1, 0), value=-1)
    y = torch.zeros_like(x) if bias is None else torch.zeros_like(x) + bias[None, :, None]
    for k in range(width):
        mask = (ids[:, k : k + length] == seq_idx) & (seq_idx >= 0)
        y = y + torch.where(mask[:, None], weight[:, k, None] * whole[..., k : k + length], 0)
    return torch.where(seq_idx[:, None] >= 0, F.silu(y) if silu else y, 0), final


def random(shape, dtype, channel_last=False):
    if channel_last:
        return torch.randn(shape[0], shape[2], shape[1]).to(dtype).transpose(1, 2)
    return torch.randn(shape).to(dtype)


def sequences(batch, length):
    """Returns the sequence numbers of positions, in runs of equal numbers, some of them padding."""
    return torch.randint(-1, 3, (batch, length // 4 + 1)).repeat_interleave(4, dim=1)[:, :length]


def leaf(t):
    return None if t is None else t.detach().requires_grad_()


def wide(t):
    return None if t is None else t.detach().double().requires_grad_()


def close(what, case, got, want, tolerance=TOLERANCE):
    assert got.shape == want.shape, f"{what} of {case}: {got.shape}, not {want.shape}"
    rtol, atol = tolerance[got.dtype]
    torch.testing.assert_close(got.detach().double(), want.detach(), rtol=rtol, atol=atol, msg=lambda m: f"{what} of {case}: {m}")


def check_gradients(example):
    """Compares out, the final states and all four gradients with torch's."""
    count = 0
    for case in itertools.product(SIZES, TOLERANCE, (False, True), (False, True), (False, True), (False, True), (False, True)):
        (batch, dim, length, width), dtype, last, silu, has_bias, numbered, stateful = case
        x = leaf(random((batch, dim, length), dtype, last))
        weight = leaf(torch.randn(dim, width))
        bias = leaf(torch.randn(dim).to(torch.bfloat16 if last else torch.float32)) if has_bias else None
        initial = leaf(random((batch, dim, width - 1), dtype)) if stateful else None
        seq_idx = sequences(batch, length) if numbered else None
        got = example.causal_conv1d_fn(x, weight, bias, seq_idx, initial, stateful, None, "silu" if silu else None)
        got = got if stateful else (got,)
        inputs = [x, weight, bias, initial]
        wide_inputs = [wide(t) for t in inputs]
        want = reference(*wide_inputs[:3], silu, seq_idx, wide_inputs[3])[: len(got)]
        for what, a, b in zip(("out", "final states"), got, want):
            close(what, case, a, b)
        upstream = [torch.randn(a.shape).to(dtype) for a in got]
        torch.autograd.backward(got, upstream)
        torch.autograd.backward(want, [g.double() for g in upstream])
        for what, a, b in zip(("x", "weight", "bias", "initial_states"), inputs, wide_inputs):
            if a is not None:
                grad = torch.zeros_like(b) if b.grad is None else b.grad
                close(f"gradient for {what}", case, a.grad, grad, GRAD_TOLERANCE if what in ("weight", "bias") else TOLERANCE)
        count += 1
    return count


def check_finite_differences(example):
    """Compares gradients with directional derivatives: differences of results of the operator's own forward, without autograd."""
    count = 0
    for silu in (None, "silu"):
        values = [torch.randn(1, 4, 12), torch.randn(4, 3), torch.randn(4), torch.randn(1, 4, 2)]
        inputs = [leaf(v) for v in values]
        weigh = torch.randn(1, 4, 14, dtype=torch.float64)

        def loss(x, weight, bias, initial):
            out, final = example.causal_conv1d_fn(x, weight, bias, None, initial, True, activation=silu)
            return (torch.cat([out, final], dim=2).double() * weigh).sum()

        loss(*inputs).backward()
        for i, value in enumerate(values):
            direction, step = torch.randn_like(value), 1e-2
            ends = [loss(*(v + sign * step * direction if i == j else v for j, v in enumerate(values))) for sign in (1, -1)]
            difference = (ends[0] - ends[1]) / (2 * step)
            want = (inputs[i].grad.double() * direction.double()).sum()
            torch.testing.assert_close(difference, want, rtol=2e-3, atol=2e-3)
            count += 1
    return count


def check_modules(example):
    """Checks gradients in the middle of a network, and gradients for some of the inputs only."""
    x, weight = torch.randn(2, 6, 9), leaf(torch.randn(6, 4))
    mix = leaf(torch.randn(6, 6))
    got = example.causal_conv1d_fn(torch.einsum("de,bel->bdl", mix, x), weight).tanh().sum()
    got.backward()
    other, other_mix = wide(weight), wide(mix)
    reference(torch.einsum("de,bel->bdl", other_mix, x.double()), other, None, False)[0].tanh().sum().backward()
    close("gradient through", "network", mix.grad, other_mix.grad)
    close("gradient for weight", "network", weight.grad, other.grad)

    frozen = leaf(torch.randn(2, 6, 9))
    example.causal_conv1d_fn(frozen, weight.detach()).sum().backward()  # dout is one number with strides 0
    wide_x = wide(frozen)
    reference(wide_x, weight.detach().double(), None, False)[0].sum().backward()
    close("gradient for x alone", "frozen weight", frozen.grad, wide_x.grad)
    with torch.no_grad():
        assert not example.causal_conv1d_fn(frozen, weight).requires_grad
    return 3


def check_final_states_out(example):
    """Checks that final states are written to the caller's tensor, and that gradients flow through it."""
    count = 0
    for last in (False, True):
        x, weight = leaf(random((2, 5, 8), torch.float32, last)), torch.randn(5, 4)
        store = torch.full((2, 3, 5), float("nan")).transpose(1, 2)
        version = store._version  # autograd's count of writes, by which it notices stale values
        out, final = example.causal_conv1d_fn(x, weight, return_final_states=True, final_states_out=store)
        assert final.data_ptr() == store.data_ptr() and torch.equal(store, x[..., 5:]), "final_states_out was not filled"
        assert store._version > version, "autograd was not told that final_states_out was written"
        final.sum().backward()
        want = torch.zeros_like(x)
        want[..., 5:] = 1
        assert torch.equal(x.grad, want), "gradient through the final states"
        count += 1
    return count


def check_update(example):
    """Checks that several updates, of a shifting and of a circular state, give the same results as one call for all positions."""
    count = 0
    for dtype, size, circular, chunk, slots in itertools.product(TOLERANCE, (3, 5), (False, True), (1, 2), (None, [3, 0])):
        x, weight, bias = torch.randn(2, 6, 12).to(dtype), torch.randn(6, 4), torch.randn(6)
        want = reference(x.double(), weight.double(), bias.double(), True)[0]
        state = torch.zeros(4 if slots else 2, 6, size, dtype=dtype)
        state[1:3] += 7 if slots else 0
        indices = None if slots is None else torch.tensor(slots)
        for t in range(0, 12, chunk):
            step = x[..., t] if chunk == 1 else x[..., t : t + chunk]
            lengths = torch.full((2,), t) if circular else None
            out = example.causal_conv1d_update(step, state, weight, bias, "silu", lengths, indices)
            case = (dtype, size, circular, chunk, slots, t)
            close("out", case, out, want[..., t] if chunk == 1 else want[..., t : t + chunk])
        rows = state if slots is None else state[slots]
        if circular:
            rows = rows.roll(-(12 % size), dims=2)
        assert torch.equal(rows, x[..., 12 - size :]), f"state of {case}"
        assert slots is None or (state[1:3] == 7).all(), f"slots of others in {case}"
        count += 1
    state = torch.ones(1, 6, 3)
    out = example.causal_conv1d_update(torch.ones(1, 6), state, torch.ones(6, 4), conv_state_indices=torch.tensor([-1]))
    assert (out == 0).all() and (state == 1).all(), "a padding row has an output other than 0, or changed the state"
    return count + 1


def check_serving(example):
    """Checks speculative steps whose last tokens are rejected: packed, in blocks and in place. They must give the same results as the
    accepted tokens alone."""
    from aiter_go import serving

    count = 0
    for dtype, state_dtype, index, packed in itertools.product(TOLERANCE, (None, torch.float32), (torch.int32, torch.int64), (False, True)):
        weight, bias, steps, batch = torch.randn(6, 4), torch.randn(6), 3, 2
        state = torch.zeros(5, 6, 2 + steps, dtype=state_dtype or dtype)
        table = torch.tensor([[4, 1], [0, 3]], dtype=index)
        kept, accepted = torch.zeros(batch, 6, 0, dtype=dtype), torch.tensor([1, 1], dtype=index)
        for step in range(4):
            x = torch.randn(batch, steps, 6).to(dtype)
            whole = torch.cat([kept, x.transpose(1, 2)], dim=2)
            want = reference(whole.double(), weight.double(), bias.double(), True)[0][..., -steps:]
            starts = torch.arange(0, batch * steps + 1, steps, dtype=index) if packed else torch.zeros(0, dtype=index)
            given = x.reshape(-1, 6).clone() if packed else x.transpose(1, 2).clone()
            read, write = torch.full((batch,), step % 2, dtype=index), torch.full((batch,), (step + 1) % 2, dtype=index)
            out = serving.causal_conv1d_update(
                given, state, weight, bias, "silu", table, accepted, starts, steps, block_idx_last_scheduled_token=write,
                initial_state_idx=read, out=given)
            assert out is given
            close("out", (dtype, index, packed, step), out.reshape(batch, steps, 6).transpose(1, 2) if packed else out, want)
            accepted = torch.full((batch,), 1 + step % 3, dtype=index)  # the same for all rows: kept stays a tensor
            kept = torch.cat([kept, x.transpose(1, 2)[..., : 1 + step % 3]], dim=2)
        count += 1
    x, weight, state = torch.randn(3, 10), torch.randn(10, 4), torch.randn(4, 10, 3)
    other, slots = state.clone(), torch.tensor([2, -1, 0])
    q, k, v = serving.causal_conv1d_update_split_qkv(x, state, weight, 2, 6, conv_state_indices=slots)
    want = example.causal_conv1d_update(x, other, weight, None, "silu", None, slots)
    close("q, k and v", "split", torch.cat([q, k, v], dim=1), want.double())
    assert torch.equal(state, other) and q.is_contiguous() and q.shape == (3, 2)
    text = raised(lambda: serving.causal_conv1d_update_split_qkv(x, state, weight, 3, 6))
    assert text.startswith("ValueError: x has 10 channels; expected 2 * key_dim + value_dim = 12"), text
    return count + 1


def raised(attempt):
    """Returns the error that attempt raises, as text with the name of its type; empty if it raises none."""
    try:
        attempt()
    except (TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def check_prefill(_):
    """Checks that packed prefills, in chunks with state blocks, give the same results as whole sequences. A batch of prefills and decoding
    steps must give the same results in one call as in one call of each kind."""
    from aiter_go import serving

    count = 0
    for dtype, index, block in itertools.product(TOLERANCE, (torch.int32, torch.int64), (4, 8)):
        weight, bias, length, done = torch.randn(6, 4), torch.randn(6), 21, 0
        x, state = torch.randn(6, length).to(dtype), torch.zeros(9, 6, 3, dtype=dtype)
        table = torch.tensor([[5, 3, 8, 1, 7, 2]], dtype=index)
        want = reference(x[None].double(), weight.double(), bias.double(), True)[0][0]
        for end in (3, 12, 13, length):
            def column(n):
                return torch.tensor([n], dtype=index)
            out = serving.causal_conv1d_fn(
                x[:, done:end], weight, bias, state, torch.tensor([0, end - done], dtype=index), table,
                torch.tensor([done > 0]), "silu", block_idx_first_scheduled_token=column(done // block),
                block_idx_last_scheduled_token=column((end - 1) // block), initial_state_idx=column(max(done - 1, 0) // block),
                num_computed_tokens=column(done), block_size_to_align=block)
            close("out", (dtype, index, block, end), out, want[:, done:end])
            done = end
        for i, end in enumerate([*range(block, length, block), length]):
            assert torch.equal(state[table[0, i]], x[:, end - 3 : end]), (dtype, index, block, end)
        count += 1
    # Two steps of one token, padding, an empty sequence, and a prefill longer than a decoding call takes.
    x, weight, starts = torch.randn(10, 9), torch.randn(10, 4), torch.tensor([0, 1, 2, 3, 3, 9])
    states, slots = torch.randn(6, 10, 3), torch.tensor([4, 2, 0, 1, 3])
    has = torch.tensor([True, True, True, True, False])
    mixed, divided = states.clone(), states.clone()
    out = serving.causal_conv1d_fn(x, weight, None, mixed, starts, slots, has, pad_slot_id=0)
    tokens = serving.causal_conv1d_update(x.T.contiguous(), divided, weight, None, "silu", slots, None, starts, 1, 0)
    rest = serving.causal_conv1d_fn(x[:, 3:], weight, None, divided, starts[3:] - 3, slots[3:], has[3:])
    assert torch.equal(mixed, divided) and torch.equal(mixed[[0, 1, 5]], states[[0, 1, 5]])
    close("out", "mixed", torch.cat([tokens[:3].T, rest], dim=1), out.double())
    given, copy = x.clone(), states.clone()
    assert serving.causal_conv1d_fn(given, weight, None, copy, starts, slots, has, null_block_id=0, out=given) is given
    assert torch.equal(given, out) and torch.equal(copy, mixed)
    q, k, v = serving.causal_conv1d_split_qkv_fn(x, weight, None, states, starts, 2, 6, slots, has, pad_slot_id=0)
    close("q, k and v", "split", torch.cat([q, k, v], dim=1).T, out.double())
    assert torch.equal(states, mixed) and q.is_contiguous() and q.shape == (9, 2)
    text = raised(lambda: serving.causal_conv1d_split_qkv_fn(x, weight, None, states, starts, 3, 6))
    assert text.startswith("ValueError: x has 10 channels; expected 2 * k_dim + v_dim = 12"), text
    none = serving.causal_conv1d_fn(x, weight, None, None, starts)
    close("out", "no states", none[:, 3:], out[:, 3:].double())
    return count + 1


def tree(parents):
    """Returns a tree in SGLang's form: first children and next siblings. parents has the parent of each token after token 0."""
    child, sibling, last = [-1] * (len(parents) + 1), [-1] * (len(parents) + 1), {}
    for token, parent in enumerate(parents, 1):
        if parent in last:
            sibling[last[parent]] = token
        else:
            child[parent] = token
        last[parent] = token
    return child, sibling


def check_sglang(example):
    """Checks that functions with SGLang's arguments give the same results as those with vLLM's, and that the parents in a tree are derived
    from first children and next siblings."""
    from aiter_go import serving, sglang

    assert tree([0, 0, 1]) == ([1, 3, -1, -1], [-1, 2, -1, -1])
    count = 0
    for dtype, index in itertools.product(TOLERANCE, (torch.int32, torch.int64)):
        parents = [[0, 0, 1, 0, 4, 1], [0, 1, 2, 3, 4, 5], [0] * 6]
        child, sibling = (torch.tensor(t, dtype=index) for t in zip(*map(tree, parents)))
        x, weight, state = torch.randn(3, 6, 7).to(dtype), torch.randn(6, 4), torch.randn(5, 6, 3).to(dtype)
        slots, rows = torch.tensor([4, 0, 2], dtype=index), torch.tensor([1, 2, 0], dtype=index)
        table, found = torch.tensor([[0, *p] for p in parents], dtype=index), torch.full((3, 7), 9, dtype=index)
        window, states, windows = torch.zeros(3, 7, 6, 3, dtype=dtype), state.clone(), torch.zeros(3, 7, 6, 3, dtype=dtype)
        want = serving.causal_conv1d_update(x, state, weight, None, "silu", slots, retrieve_parent_token=table,
                                            intermediate_conv_window=window, intermediate_state_indices=rows)
        out = sglang.causal_conv1d_update(x, states, weight, None, "silu", None, slots, None, windows, rows, child, sibling, found)
        assert torch.equal(found, table) and torch.equal(out, want) and torch.equal(states, state) and torch.equal(windows, window)
        # The path of the first tree's token 6 is 0, 1, 6.
        path = torch.cat([x[0, :, :1], x[0, :, 1:2], x[0, :, 6:]], dim=1)
        assert torch.equal(windows[1, 6], path), dtype
        count += 1
    x, state, done = torch.randn(2, 6), torch.randn(2, 6, 5), torch.tensor([3, 11], dtype=torch.int32)
    weight, states = torch.randn(6, 4), state.clone()
    want = example.causal_conv1d_update(x, state, weight, None, "silu", done)
    assert torch.equal(sglang.causal_conv1d_update(x, states, weight, None, "silu", done), want) and torch.equal(states, state)
    for accepted in ({"num_accept_tokens": torch.tensor([1, 2])}, {"num_accepted_tokens": torch.tensor([1, 2])}):
        states, copy = state.clone(), state.clone()
        want = serving.causal_conv1d_update(x, states, weight, num_accepted_tokens=torch.tensor([1, 2]))
        assert torch.equal(sglang.causal_conv1d_update(x, copy, weight, **accepted), want) and torch.equal(copy, states)
    text = raised(lambda: sglang.causal_conv1d_update(x, state, weight, cache_seqlens=done, num_accept_tokens=done))
    assert text.startswith("ValueError: cache_seqlens is given"), text
    text = raised(lambda: sglang.causal_conv1d_update(x, state, weight, retrieve_next_token=done))
    assert text.startswith("ValueError: a tree has"), text
    # Slot 0 is vLLM's null block.
    states, copy, slots = state.clone(), state.clone(), torch.tensor([0, 1])
    out = serving.causal_conv1d_update(x, states, weight, conv_state_indices=slots, null_block_id=0)
    assert torch.equal(out, serving.causal_conv1d_update(x, copy, weight, conv_state_indices=slots, pad_slot_id=0))
    assert torch.equal(states, copy) and torch.equal(states[0], state[0]) and not torch.equal(states[1], state[1]) and (out[0] == 0).all()
    x, states = torch.randn(6, 9), torch.randn(3, 6, 3)
    given, again, starts = states.clone(), states.clone(), torch.tensor([0, 4, 9], dtype=torch.int32)
    slots, has = torch.tensor([2, 0], dtype=torch.int32), torch.tensor([True, False])
    want = serving.causal_conv1d_fn(x, weight, None, states, starts, slots, has)
    out = sglang.causal_conv1d_fn(x, weight, None, query_start_loc=starts, cache_indices=slots, has_initial_state=has, conv_states=given,
                                  seq_lens_cpu=[4, 5])
    assert torch.equal(out, want) and torch.equal(given, states)
    more, flags = torch.tensor([2, 0, 1, -1], dtype=torch.int32), torch.tensor([True, False, True])  # of sequences that do not exist
    assert torch.equal(serving.causal_conv1d_fn(x, weight, None, again, starts, more, flags), want) and torch.equal(again, states)
    whole = sglang.causal_conv1d_fn(x, weight)
    close("out", "one sequence", whole, reference(x[None].double(), weight.double(), None, True)[0][0])
    return count + 1


def check_integers(example):
    """Checks that integers of other types than int32 are converted if their values fit in int32, and refused otherwise, before anything
    is written."""
    count = 0
    x, weight = torch.randn(2, 6), torch.randn(6, 4)

    def update(lengths, slots):
        state = torch.ones(4, 6, 5)
        text = raised(lambda: example.causal_conv1d_update(x, state, weight, None, None, lengths, slots))
        return text, state

    low, high = -(2**31), 2**31 - 1
    for name in ("cache_seqlens", "conv_state_indices"):
        for value, why in ((2**32 + 2, "[1] is 4294967298"), (high + 1, "[1] is 2147483648"), (low - 1, "[1] is -2147483649")):
            t = torch.tensor([1, value])
            text, state = update(*((t, None) if name == "cache_seqlens" else (None, t)))
            assert text.startswith("ValueError") and name + why in text and f"{low} to {high}" in text, f"{name} of {value}: {text!r}"
            assert (state == 1).all(), f"{name} of {value}: the state was written"
            count += 1
        for value in (torch.tensor([True, False]), torch.tensor([0.0, 1.0], dtype=torch.float64), [0, 1]):
            text, state = update(*((value, None) if name == "cache_seqlens" else (None, value)))
            assert text.startswith("TypeError") and name in text and (state == 1).all(), f"{name} of {value}: {text!r}"
            count += 1
    for dtype in (torch.int32, torch.int64, torch.int16, torch.int8, torch.uint8):
        text, state = update(torch.tensor([7, 9], dtype=dtype), torch.tensor([3, 1], dtype=dtype))
        want = update(torch.tensor([7, 9], dtype=torch.int32), torch.tensor([3, 1], dtype=torch.int32))[1]
        assert not text and torch.equal(state, want), f"{dtype}: {text!r}"
        count += 1
    ends = torch.tensor([low, high])
    assert torch.equal(example.int32("ends", ends).long(), ends), "the ends of int32 are in its range"
    same = ends.to(torch.int32)
    assert example.int32("same", same) is same, "an int32 tensor is returned unchanged"

    ids = torch.zeros(2, 9, dtype=torch.int64)
    ids[1, 4] = 2**32
    text = raised(lambda: example.causal_conv1d_fn(torch.randn(2, 6, 9), weight, seq_idx=ids))
    assert text.startswith("ValueError") and "seq_idx[1, 4] is 4294967296" in text, text
    text = raised(lambda: example.causal_conv1d_fn(torch.randn(2, 6, 9), weight, seq_idx=ids == 0))
    assert text.startswith("TypeError") and "seq_idx is torch.bool" in text, text
    text = raised(lambda: example.causal_conv1d_fn(torch.randn(2, 6, 9), weight, final_states_out=torch.empty(2, 6, 3)))
    assert text.startswith("ValueError") and "return_final_states" in text, text
    return count + 5


def check_errors(example):
    """Checks which arguments the functions refuse, and the errors."""
    x, weight = leaf(torch.randn(1, 2, 4)), torch.randn(2, 3)
    for what, expected, attempt in (
        ("relu", "activation", lambda: example.causal_conv1d_fn(x, weight, activation="relu")),
        ("shape", "weight", lambda: example.causal_conv1d_fn(x, torch.randn(5, 3))),
        ("twice", "no autograd formula", lambda: torch.autograd.grad(
            example.causal_conv1d_fn(x, weight).square().sum(), x, create_graph=True)[0].sum().backward()),
    ):
        try:
            attempt()
        except (ValueError, RuntimeError) as error:
            assert expected in str(error), f"{what}: {error}"
        else:
            raise AssertionError(f"{what}: no exception")
    return 3


def check_operators(example):
    """Runs torch's own checks of an operator: schema, aliases, fake kernel, gradients, tracing."""
    count = 0
    ops = torch.ops.aiter_go
    for last, dtype in itertools.product((False, True), (torch.float32, torch.bfloat16)):
        x, weight, bias = random((2, 6, 9), dtype, last), torch.randn(6, 4), torch.randn(6)
        ids, initial = sequences(2, 9).to(torch.int32), random((2, 6, 3), dtype)
        for args in ((leaf(x), leaf(weight), leaf(bias), None, None, True), (leaf(x), leaf(weight), None, ids, leaf(initial), False)):
            torch.library.opcheck(ops.causal_conv1d.default, args)
            torch.library.opcheck(ops.causal_conv1d_with_states.default, args)
            count += 2
        torch.library.opcheck(ops.causal_conv1d_bwd.default, (x, weight, bias, x, None, None, None, True, False))
        torch.library.opcheck(ops.causal_conv1d_bwd.default, (x, weight, None, x, ids, initial, initial, False, True))
        torch.library.opcheck(ops.causal_conv1d_fwd.default, (torch.empty_like(x), x, weight, bias, True))
        torch.library.opcheck(ops.causal_conv1d_update.default, (x[..., 0], initial.clone(), weight, bias, True, None, None, -1))
        torch.library.opcheck(ops.rms_norm.default, (x, torch.ones(9), 1e-6))
        count += 5
    return count


def check_compiled(example):
    """Checks that torch.compile traces a model without a graph break, forward and backward."""
    count = 0
    for backend in ("aot_eager", "aot_eager_decomp_partition"):  # inductor needs torch's headers and a C++ compiler
        for states in (False, True):
            x, weight, bias = torch.randn(2, 6, 16), torch.randn(6, 4), torch.randn(6)

            def model(x, weight, bias):
                out = example.causal_conv1d_fn(x.sin(), weight, bias, None, None, states, activation="silu")
                return (out[0].tanh(), out[1] * 2) if states else (out.tanh(),)

            inputs = [leaf(t) for t in (x, weight, bias)]
            others = [leaf(t) for t in (x, weight, bias)]
            got = torch.compile(model, fullgraph=True, backend=backend)(*inputs)
            want = model(*others)
            sum(t.sum() for t in got).backward()
            sum(t.sum() for t in want).backward()
            for a, b in zip([*got, *(t.grad for t in inputs)], [*want, *(t.grad for t in others)]):
                torch.testing.assert_close(a, b)
            count += 1

        def decode(x, state, weight):
            return example.causal_conv1d_update(x + 1, state, weight, None, "silu") * 2

        state, other = torch.zeros(2, 6, 3), torch.zeros(2, 6, 3)
        step, compiled = torch.randn(2, 6), torch.compile(decode, fullgraph=True, backend=backend)
        for _ in range(3):
            torch.testing.assert_close(compiled(step, state, weight), decode(step, other, weight))
        assert torch.equal(state, other), "the state of compiled steps"
        count += 1
    return count


def check_aiter_names(example):
    """Checks AIter's argument names, and that an empty bias means no bias."""
    x, weight = torch.randn(2, 6, 9), torch.randn(6, 4)
    for bias in (None, torch.empty(0), torch.randn(6)):
        out = torch.empty_like(x)
        example.causal_conv1d_fwd(out=out, x=x, weight=weight, bias=bias, use_silu=True)
        wanted = None if bias is None or bias.numel() == 0 else bias
        torch.testing.assert_close(out, example.causal_conv1d_fn(x, weight, wanted, activation="silu"))
    y = torch.randn(3, 5, 32)
    torch.testing.assert_close(example.rms_norm(y, torch.ones(32), 1e-5), F.rms_norm(y, (32,), eps=1e-5))
    return 4


def check_targets(example):
    """Checks that each GPU gets the target of its own properties, because the GPUs of a machine may differ."""
    library = example._library
    mi250 = SimpleNamespace(gcnArchName="gfx90a:sramecc+:xnack-", major=9, minor=0)
    mi300 = SimpleNamespace(gcnArchName="gfx942", major=9, minor=4)
    count = 0
    for hip, properties, wanted in (
        ("6.2.0", [mi250, mi300], ["gfx90a", "gfx942"]),
        (None, [SimpleNamespace(major=9, minor=0), SimpleNamespace(major=12, minor=1)], ["sm_90", "sm_121"]),
    ):
        library.target.cache_clear()
        with mock.patch.object(torch.cuda, "get_device_properties", lambda device: properties[device.index]), mock.patch.object(
            torch.version, "hip", hip
        ):
            got = [library.target(torch.device("cuda", i)) for i in range(2)]
        assert got == wanted, got
        count += 2
    library.target.cache_clear()
    assert library.target(torch.empty(1).device) == "cpu"
    text = raised(lambda: library.target(torch.device("xpu", 0)))
    assert text == "ValueError: aiter_go has no kernels for tensors on xpu:0; expected cpu or cuda", text
    return count + 2


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    sys.path.insert(0, sys.argv[1])
    import aiter_go as example

    for check in (check_gradients, check_finite_differences, check_modules, check_final_states_out, check_update, check_serving,
                  check_prefill, check_sglang, check_integers, check_errors, check_operators, check_compiled, check_aiter_names,
                  check_targets):
        print(f"{check.__name__}: {check(example)} cases")


if __name__ == "__main__":
    main()
