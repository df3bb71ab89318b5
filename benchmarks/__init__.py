"""Speed, beside others and in the same run: `python -m benchmarks`, or `make bench`."""
