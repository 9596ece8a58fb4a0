"""Studies of language models: the diversity of their answers to the same prompts."""
