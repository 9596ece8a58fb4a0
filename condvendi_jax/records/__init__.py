"""Answers of language models, texts and pictures in people's files and logs; needs no JAX."""
