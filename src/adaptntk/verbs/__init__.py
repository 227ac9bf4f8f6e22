"""The verbs as functions: files in, files out."""
