"""What makes outputs from prompts or noise: parameters, and pure functions that sample."""
