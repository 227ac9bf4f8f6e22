"""What all benchmarks share: plans, jobs, records, times."""
