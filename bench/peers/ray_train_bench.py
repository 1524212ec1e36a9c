#!/usr/bin/env python3
"""Ray Train beside Manta's trainer: one JSON line with seconds from fit() to the loop in both
workers, per report of ten metrics, and with --kill from the kill -9 of rank 1 to its loop again.

The loop computes nothing, and Ray is started before the clock is."""
import argparse
import json
import os
import signal
import sys
import tempfile
import time


def loop(config):
    from ray import train

    rank = train.get_context().get_world_rank()
    with open(os.path.join(config["folder"], f"loop-{rank}"), "a", encoding="utf-8") as f:
        f.write(f"{time.time()}\n")
    train.report({"begun": 1})      # Ray gives up when a worker dies before it
    killed = os.path.join(config["folder"], "killed")
    if config["kill"] and rank == 1 and not os.path.exists(killed):
        with open(killed, "w", encoding="utf-8") as f:
            f.write(f"{time.time()}\n")
        os.kill(os.getpid(), signal.SIGKILL)
    t = time.perf_counter()
    for i in range(config["reports"]):
        train.report({f"metric_{k}": float(i + k) for k in range(10)})
    if rank == 0:
        with open(os.path.join(config["folder"], "report"), "w", encoding="utf-8") as f:
            f.write(f"{(time.perf_counter() - t) / config['reports']}\n")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--kill", action="store_true")
    p.add_argument("--reports", type=int, default=20)
    args = p.parse_args()

    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    ray.init(num_cpus=4, log_to_driver=False)
    with tempfile.TemporaryDirectory() as folder:
        trainer = DataParallelTrainer(loop, train_loop_config={"folder": folder, "kill": args.kill, "reports": args.reports},
                                      scaling_config=ScalingConfig(num_workers=2),
                                      run_config=RunConfig(storage_path=folder, failure_config=FailureConfig(max_failures=1)))
        begun = time.time()
        trainer.fit()

        def times(name):
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                return [float(line) for line in f]
        answer = {"peer": "ray train", "fit_to_loop_s": round(max(times("loop-0")[0], times("loop-1")[0]) - begun, 4),
                  "report_us": round(times("report")[0] * 1e6, 1), "version": ray.__version__}
        if args.kill:
            answer["kill_to_loop_s"] = round(times("loop-1")[1] - times("killed")[0], 4)
    print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
