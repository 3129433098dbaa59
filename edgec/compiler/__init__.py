"""One compile: read, optimise, calibrate, quantize, place, emit, build, verify, pack."""
