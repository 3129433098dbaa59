"""The file `model.edgec`: its manifest, reading and writing it, and its parts as files on disk."""
