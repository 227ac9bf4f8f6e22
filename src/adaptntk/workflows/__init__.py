"""The verbs as functions: files in, files out. The command line adds nothing but options and printing."""
