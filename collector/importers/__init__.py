"""Readers of files that other programs made: each turns one into a run, and none runs code of the file's."""
