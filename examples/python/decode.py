"""Runs a prompt in one call, computes its gradients, and decodes four tokens one at a time.

    pip install ./python
    python examples/python/decode.py
"""

import torch
from aiter_go import causal_conv1d_fn, causal_conv1d_update


def main():
    torch.manual_seed(0)
    x = torch.randn(2, 8, 20, requires_grad=True)
    weight, bias = torch.randn(8, 4, requires_grad=True), torch.randn(8, requires_grad=True)
    whole = causal_conv1d_fn(x, weight, bias, activation="silu")
    whole.square().mean().backward()
    print(f"gradients: x {x.grad.norm():.4f}, weight {weight.grad.norm():.4f}, bias {bias.grad.norm():.4f}")

    with torch.no_grad():
        out, state = causal_conv1d_fn(x[..., :16], weight, bias, return_final_states=True, activation="silu")
        steps = [causal_conv1d_update(x[..., t], state, weight, bias, "silu") for t in range(16, 20)]
        resumed = torch.cat([out, torch.stack(steps, dim=2)], dim=2)
    print(f"largest difference of prompt and steps from one call: {(resumed - whole).abs().max():.1e}")


if __name__ == "__main__":
    main()
