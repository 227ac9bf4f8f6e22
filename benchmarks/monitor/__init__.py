"""What stops a simulation, judged by labels."""
