"""Random and damaged input for edgec: graphs, model files, and every other kind of file it reads."""
