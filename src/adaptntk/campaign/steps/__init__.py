"""The steps of a round. Each is a function of what is on disk, and is done once its file is there.

Functions that an executor runs in a worker take and return plain values and stand beside the step that sends them.
"""
