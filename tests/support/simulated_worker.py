"""For a fork server to import, so that its workers have a simulated GPU."""

import torch
from benchmarks.simulated_gpu import SimulatedGpu, register

from fedloom.experiment import build

register()
SimulatedGpu().__enter__()  # until the process ends
build.resolve_device = torch.device  # which knows the simulated one by name
