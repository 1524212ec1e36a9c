"""Adds up what ncu measured, by kernel: gpu_profile.py FILE.csv"""
import collections
import csv
import sys

lines = [line for line in open(sys.argv[1], encoding="utf-8", errors="replace") if line.startswith('"')]
times, counts, single = collections.Counter(), collections.Counter(), {}
for row in csv.DictReader(lines):
    unit = {"ns": 1e-3, "nsecond": 1e-3, "us": 1, "usecond": 1, "ms": 1e3, "msecond": 1e3}[row["Metric Unit"]]
    name = row["Kernel Name"].split("(")[0]
    times[name] += float(row["Metric Value"].replace(",", "")) * unit
    counts[name] += 1
    single.setdefault((name, row["Grid Size"]), []).append(float(row["Metric Value"].replace(",", "")) * unit)
print(f"{sum(counts.values())} kernels, {sum(times.values()):.1f} us")
for name, time in times.most_common(30):
    print(f"{time:10.1f} us {counts[name]:5d} x {time / counts[name]:8.2f}  {name}")
print("by size of the grid:")
for (name, grid), took in sorted(single.items(), key=lambda item: -sum(item[1]))[:30]:
    print(f"{sum(took):10.1f} us {len(took):5d} x {sum(took) / len(took):8.2f}  {name} {grid}")
