"""Tests of what lies in `benchmarks`: that the instruments measure what they say, never how fast this machine is."""
