"""Active learning: labels saved, what a round costs, the dimension of the sketch."""
