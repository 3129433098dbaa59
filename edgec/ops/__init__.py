"""Everything that is known about each operation, said once; importing this package
registers all of them.
"""

import importlib
import pkgutil

from edgec.ir import OpDef

for _module in pkgutil.iter_modules(__path__, __name__ + "."):
    importlib.import_module(_module.name)

for _definition in OpDef.registry.values():
    _definition.check_samples()
