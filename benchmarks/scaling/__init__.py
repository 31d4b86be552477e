"""A simulation of the autoscaler: the pure core under a simulated clock, against an oracle that knows the future.

`python -m benchmarks.scaling` prints the figures of docs/scaling.md; everything follows from the seeds in `days/`.
"""
