"""The rows of `ray microbenchmark` for one of manta, manta.ray and ray, each as that has it; a line of JSON for each.

    python core_rows.py API [--row TEXT] [--seconds S]

bench/compare_python runs it. A row is warmed up and then timed three times for at least S seconds; its
figure is the median. Batches that several clients make are of 1,000 calls each instead of 10,000 and 5,000, which
take Ray half a minute.
"""
import argparse
import importlib
import json
import os
import signal
import statistics
import sys
import threading
import time

import numpy as np

TAKES, WARM_S, BATCH, CLIENTS = 3, 0.5, 1000, 4
NEW_ACTORS, MANY_ACTORS = {"ray": 5}, 100
INTERRUPTS = 20
api = importlib.import_module(sys.argv[1]) if len(sys.argv) > 1 else None


def define():
    """Remote functions and classes, when the module to make them with is known."""
    @api.remote
    def small_value():
        return b"ok"

    @api.remote(num_cpus=0)
    class Actor:
        def small_value(self):
            return b"ok"

        def small_value_batch(self, n):
            api.get([small_value.remote() for _ in range(n)])

    @api.remote
    class AsyncActor:
        async def small_value(self):
            return b"ok"

    @api.remote
    def object_with_refs():
        return [api.put(1) for _ in range(10000)]

    @api.remote
    def call_actors(actors, n):
        api.get([actors[i % len(actors)].small_value.remote() for i in range(n)])

    @api.remote(num_cpus=0)
    def stay():
        time.sleep(3600)

    @api.remote
    def private_kib():
        with open("/proc/self/smaps_rollup") as f:
            return sum(int(line.split()[1]) for line in f if line.startswith("Private_"))

    return argparse.Namespace(**locals())


def rate(work, units, seconds):
    """How many units a second work() does, which does so many at a time."""
    step, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < WARM_S:
        work()
        step += 1
    step = max(1, step // 10)
    takes = []
    for _ in range(TAKES):
        count, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < seconds:
            for _ in range(step):
                work()
            count += step
        takes.append(units * count / (time.perf_counter() - begun))
    return statistics.median(takes)


def wait_for_all(small_value):
    left = [small_value.remote() for _ in range(1000)]
    for _ in range(1000):
        _, left = api.wait(left, num_returns=1)


def calls(d):
    """(row, what makes the function that is timed, units of one call)"""
    get = api.get

    def batch_of(make):
        def prepared():
            target = make()
            get(target.small_value.remote())
            return lambda: get([target.small_value.remote() for _ in range(1000)])
        return prepared

    def sync_of(make):
        def prepared():
            target = make()
            return lambda: get(target.small_value.remote())
        return prepared

    def getter(ref):
        get(ref)
        return lambda: get(ref)

    def putter(value):
        return lambda: api.put(value)

    def many_clients():
        clients = [d.Actor.remote() for _ in range(CLIENTS)]
        return lambda: get([c.small_value_batch.remote(BATCH) for c in clients])

    def many_actors():
        actors = [d.Actor.remote() for _ in range(max(1, len(os.sched_getaffinity(0)) // 2))]
        return lambda: get([d.call_actors.remote(actors, BATCH) for _ in range(CLIENTS)])

    gigabytes = 0.8
    yield "single client get calls", lambda: getter(api.put(0)), 1
    yield "single client put calls", lambda: putter(0), 1
    yield "single client put gigabytes", lambda: putter(np.zeros(int(gigabytes * 2**30) // 8)), gigabytes
    yield "single client tasks and get batch", lambda: lambda: get([d.small_value.remote() for _ in range(1000)]), 1
    yield "single client get object containing 10k refs", lambda: getter(d.object_with_refs.remote()), 1
    yield "single client wait 1k refs", lambda: lambda: wait_for_all(d.small_value), 1
    yield "single client tasks sync", lambda: lambda: get(d.small_value.remote()), 1
    yield "single client tasks async", lambda: lambda: get([d.small_value.remote() for _ in range(1000)]), 1000
    yield "multi client tasks async", many_clients, CLIENTS * BATCH
    yield "1:1 actor calls sync", sync_of(d.Actor.remote), 1
    yield "1:1 actor calls async", batch_of(d.Actor.remote), 1000
    yield "1:1 actor calls concurrent", batch_of(d.Actor.options(max_concurrency=16).remote), 1000
    yield "n:n actor calls async", many_actors, CLIENTS * BATCH
    yield "1:1 async-actor calls sync", sync_of(d.AsyncActor.remote), 1
    yield "1:1 async-actor calls async", batch_of(d.AsyncActor.remote), 1000


def ready(make, n):
    """Seconds until n new actors have answered."""
    begun = time.perf_counter()
    actors = [make() for _ in range(n)]
    api.get([a.small_value.remote() for a in actors])
    return time.perf_counter() - begun, actors


def interrupted(ref, after):
    """Seconds from a SIGINT, which comes while get() waits, to where the program goes on."""
    sent = []

    def send():
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(after, send)
    timer.start()
    try:
        api.get(ref)
        raise SystemExit("get() has returned")
    except KeyboardInterrupt:
        took = time.perf_counter() - sent[0]
    timer.join()
    return took


def slowest_interrupt(d):
    """Of several, at moments that differ; the next call works each time."""
    signal.signal(signal.SIGINT, signal.default_int_handler)     # a shell in the background has it ignored
    ref, takes = d.stay.remote(), []
    for i in range(INTERRUPTS):
        takes.append(interrupted(ref, 0.1 + 0.007 * i))
        if api.get(d.small_value.remote()) != b"ok":
            raise SystemExit("the call after Ctrl-C is wrong")
    api.cancel(ref, force=True)
    return max(takes)


def figures(d, name):
    """(row, what makes its figure); those of which Ray would need tens of gigabytes are ours alone."""
    def one():
        takes = []
        for _ in range(NEW_ACTORS.get(name, 20)):
            seconds, actors = ready(d.Actor.remote, 1)
            takes.append(seconds)
            api.kill(actors[0])
        return statistics.median(takes)

    yield "new actor ready, ms", lambda: 1000 * one()
    if name != "ray":
        yield "100 new actors ready, ms", lambda: 1000 * ready(d.Actor.remote, MANY_ACTORS)[0]
    yield "Ctrl-C in get to the prompt, slowest of 20, ms", lambda: 1000 * slowest_interrupt(d)
    yield "idle worker, private MB", lambda: api.get(d.private_kib.remote()) * 1024 / 1e6


def main():
    p = argparse.ArgumentParser()
    p.add_argument("api", choices=("manta", "manta.ray", "ray"))
    p.add_argument("--row", default="")
    p.add_argument("--seconds", type=float, default=1.0)
    a = p.parse_args()
    api.init(**({"include_dashboard": False, "logging_level": "ERROR"} if a.api == "ray" else {}))
    d = define()

    def say(row, value):
        print(json.dumps({"row": row, "value": value}), flush=True)

    for row, make in figures(d, a.api):         # first: later rows leave workers behind that have done more
        if a.row in row:
            say(row, make())
    for row, make, units in calls(d):
        if a.row in row:
            say(row, rate(make(), units, a.seconds))
    api.shutdown()


if __name__ == "__main__":
    main()
