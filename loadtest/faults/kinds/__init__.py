"""The faults. Each has one file, which contains its variants as well."""
