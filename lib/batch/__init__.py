"""Notebooks without a browser: `python -m lib.batch --help` lists the commands."""
