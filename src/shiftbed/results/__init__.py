"""Finished tables from a testbed: one function per question, polars frames out."""
