"""Data sets: load them by name, add files under a name, or make one from Python objects.

load(name)          a stored data set, such as "fashion-mnist"
names()             all of them
add(name, path)     read files in one of the supported formats and store them under a name
read(path)          the same, without storing them
summary(dataset)    what was understood: rows, clients, features, classes, missing values
as_dataset(...)     arrays, a torch Dataset or a DataFrame as a Dataset
from_torch(...)     a torch Dataset as a Dataset, with a name and class names
save(dataset)       store a Dataset under its name
"""

from __future__ import annotations

from fedloom.core.lazy import lazy_exports

_EXPORTS = {
    "Dataset": "fedloom.data.dataset",
    "Split": "fedloom.data.dataset",
    "load": "fedloom.data.store",
    "names": "fedloom.data.store",
    "add": "fedloom.data.store",
    "read": "fedloom.data.from_files:read_files",
    "summary": "fedloom.data.dataset_summary",
    "save": "fedloom.data.store",
    "remove": "fedloom.data.store",
    "as_dataset": "fedloom.data.from_python",
    "from_torch": "fedloom.data.sources.torch_dataset",
}
__all__ = list(_EXPORTS)
__getattr__, __dir__ = lazy_exports(__name__, _EXPORTS)
