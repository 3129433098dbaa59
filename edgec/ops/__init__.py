"""The definitions of all operations; importing this package registers them.

Each module holds a family of operations, and each class all that is known about one:
its meaning, file formats, kernels, samples and Edge TPU rules (see `edgec.ir.opdef`).
"""

import importlib
import pkgutil

from edgec.ir import OpDef

for _module in pkgutil.iter_modules(__path__, __name__ + "."):
    importlib.import_module(_module.name)

for _definition in OpDef.registry.values():
    _definition.check_samples()
