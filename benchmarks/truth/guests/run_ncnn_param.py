"""For an emulated Python: one inference of a network of ncnn's benchmark between marks.

    python3 run_ncnn_param.py NETWORK.param 1x3x224x224 THREADS

The file has the structure alone; all weights are zero, as in ncnn's own benchmark.
"""

from __future__ import annotations

import sys

import ncnn
import numpy as np
from picycles_guest import begin, end, warm

path, text, threads = sys.argv[1:]
# ncnn has no dimension for the batch.  Its matrix does not own numpy's memory, which must
# live as long.
array = np.full([int(word) for word in text.split("x")][1:], 0.01, np.float32)
value = ncnn.Mat(array)
net = ncnn.Net()
net.opt.num_threads = int(threads)
net.opt.use_vulkan_compute = False
if net.load_param(path) or net.load_model(ncnn.DataReaderFromEmpty()):
    sys.exit("ncnn does not load it")


def run() -> None:
    """Compute the outputs that ncnn's benchmark computes."""
    extractor = net.create_extractor()
    extractor.input(net.input_names()[0], value)
    for output in net.output_names():
        code, _ = extractor.extract(output)
        if code:
            sys.exit(f"ncnn computes no {output}")


warm()
run()
begin()
run()
end()
