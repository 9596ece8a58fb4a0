"""Results in words: tables for terminals, Markdown and CSV."""
