"""Benchmarks: speeds and costs, each measured beside a reference in the same run."""
