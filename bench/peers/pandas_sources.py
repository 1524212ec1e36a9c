#!/usr/bin/env python3
"""What bench_sources does with CSV files, in pandas: FILE..., each read five
times with the defaults of read_csv; the median. One core: taskset -c 0."""
import os
import statistics
import sys
import time

import pandas as pd

for path in sys.argv[1:]:
    took = []
    for _ in range(5):
        start = time.perf_counter()
        pd.read_csv(path)
        took.append(time.perf_counter() - start)
    s = statistics.median(took)
    print(f"{path:28} {s * 1e3:8.1f} ms {os.path.getsize(path) / s / 1e6:8.0f} MB/s   pandas {pd.__version__}")
