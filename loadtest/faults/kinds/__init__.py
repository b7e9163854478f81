"""The faults, one file for each; its variants are in the same file."""
