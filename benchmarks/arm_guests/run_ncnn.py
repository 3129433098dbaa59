"""For an emulated Python: one inference of an ncnn network between picycles' marks, one
thread.

    picycles run --board pi5 --site ncnn python3 run_ncnn.py STEM 1x3x224x224 [f32]

STEM.ncnn.param and STEM.ncnn.bin are pnnx's. ncnn computes in float16 by itself on
cores that can; the last word forbids it.
"""

from __future__ import annotations

import sys
from typing import Any

import ncnn
import numpy as np
from guest_outputs import filled, print_outputs
from guest_run import counted

stem = sys.argv[1]
shape = [int(word) for word in sys.argv[2].split("x")]
net = ncnn.Net()
net.opt.num_threads = 1
net.opt.use_vulkan_compute = False
if "f32" in sys.argv:
    net.opt.use_fp16_packed = False
    net.opt.use_fp16_storage = False
    net.opt.use_fp16_arithmetic = False
# A layer that it does not have is a code, not an exception.
if net.load_param(stem + ".ncnn.param") or net.load_model(stem + ".ncnn.bin"):
    sys.exit("ncnn does not load it")
(name,) = net.input_names()
# ncnn has no dimension for the batch.
value = filled(shape)[0]


def run() -> list[Any]:
    """Compute all outputs."""
    extractor = net.create_extractor()
    extractor.input(name, ncnn.Mat(value).clone())
    results = []
    for output in net.output_names():
        code, result = extractor.extract(output)
        if code:
            sys.exit(f"ncnn computes no {output}")
        results.append(result)
    return results


print_outputs([np.array(x) for x in counted(run)])
