#!/bin/sh
# The second interpreter's own environment: tflite-runtime wants numpy < 2 and Python <= 3.11.
set -eu
python=$1
"$python" -c 'import sys; sys.exit(sys.version_info[:2] > (3, 11))' || python=python3.11
if ! command -v "$python" >/dev/null 2>&1; then
    echo "no Python <= 3.11: the tflite-runtime tests will be skipped" >&2
    exit 0
fi
"$python" -m venv .venv-tflite-runtime
.venv-tflite-runtime/bin/python -m pip install --quiet 'tflite-runtime==2.14.0' 'numpy<2' ||
    echo "tflite-runtime could not be installed: its tests will be skipped" >&2
