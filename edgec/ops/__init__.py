"""Everything that is known about each operation, said once; importing this package registers all of them."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__, __name__ + "."):
    importlib.import_module(_module.name)
