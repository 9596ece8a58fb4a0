"""The process of a contestant of the study `calls`, in the folder of its data.

    python experiments/cost/callers.py SETUP CALL [later]

SETUP is run and CALL evaluated, which see the files of the folder by their names. A later call is
timed after a first one. Prints its CPU seconds, or null, and the peak memory in bytes. The file
needs no package of the project, so that a peer runs in an environment of its own.
"""

import json
import pathlib
import sys
import time

_TOGETHER = 0.3  # Seconds: shorter calls are repeated until they have taken this together.


def gram(rows):
    """NumPy's Gaussian kernel of unit vectors `[n, d]` at the bandwidth 0.5."""
    import numpy as np

    return np.exp((2 * rows @ rows.T - 2).clip(max=0) / 0.5)


def by_model(array):
    """The rows of an array `[models, n, ...]` by the name of the model."""
    return {f"model {m}": rows for m, rows in enumerate(array)}


def timed(call, clock):
    """The median seconds of a call by a clock, and what the last one gave."""
    spent, together = [], 0.0
    while together < _TOGETHER:
        started = clock()
        result = call()
        spent.append(clock() - started)
        together += spent[-1]
    return sorted(spent)[len(spent) // 2], result


def main(setup, call, later=""):
    """Runs a contestant and prints what it spent."""
    names = {"gram": gram, "by_model": by_model}
    for path in pathlib.Path().glob("*.npy"):
        import numpy as np

        names[path.stem] = np.load(path)
    for path in pathlib.Path().glob("*.json"):
        names[path.stem] = json.loads(path.read_text(encoding="utf-8"))
    exec(setup, names)  # The study says what is run.
    run = eval(f"lambda: {call}", names)
    run()
    seconds = timed(run, time.process_time)[0] if later else None
    print("\n" + json.dumps({"seconds": seconds, "peak": memory()[1]}))


def memory():
    """The bytes of this process now and at the peak; NaN where the system does not say."""
    try:
        with open("/proc/self/status") as stream:
            fields = dict(line.split(":", 1) for line in stream)
    except OSError:
        return float("nan"), float("nan")
    now, peak = (1024 * int(fields[name].split()[0]) for name in ("VmRSS", "VmHWM"))
    return now, peak


if __name__ == "__main__":
    main(*sys.argv[1:])
