"""The calls of pycoral 2.0 that scripts use, for bundles.

A script replaces `pycoral` by `edgec_runtime.coral` in its imports, and the .tflite by
the bundle (docs/interpreters.md). Source of each call's behaviour: the PyCoral API
reference, coral.ai/docs/reference/py.
"""
