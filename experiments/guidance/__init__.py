"""Studies of guided sampling: diffusion models that are steered towards more diverse outputs."""
