"""What it costs, measured side by side with what others do: the verbs of ``adaptntk benchmark``."""
