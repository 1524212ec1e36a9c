"""gloo's all-reduce between two processes over loopback TCP, timed as `manta bench comm` times ours.

    gloo_allreduce.py PORT      starts its second process itself; one JSON object a line"""
import json
import subprocess
import sys
import time

import torch
import torch.distributed as dist

port, rank = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0
other = None if rank else subprocess.Popen([sys.executable, __file__, port, "1"])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
for floats, rounds in ((1024, 2000), (256 * 1024, 200), (2779658, 40), (11181642, 20)):
    x = torch.zeros(floats)
    for i in range(-3, rounds):
        if i == 0:
            dist.barrier()
            begin = time.perf_counter()
        dist.all_reduce(x)
    ms = (time.perf_counter() - begin) * 1e3 / rounds
    if rank == 0:
        print(json.dumps({"row": "all-reduce", "floats": floats, "ms": ms}), flush=True)
dist.barrier()
dist.destroy_process_group()
if other:
    sys.exit(other.wait())
