"""A run of `muster launch`. Its metrics are read as they are written and timestamped with this program's clock, to
measure durations."""
import json
import os
import signal
import subprocess
import threading
import time

from job_processes import member

NETWORK = """
run { steps: %(steps)d global_batch: %(batch)d slices: %(slices)d log_every_steps: 1 max_restarts: 100000 }
data { format: SYNTHETIC synthetic { train_samples: 4096 test_samples: 64 height: 32 width: 32 }
       preprocess { crop_height: 32 crop_width: 32 } }
model {
  layer { name: "conv" conv2d { filters: 16 kernel: 3 padding: SAME } }
  layer { name: "relu" relu {} }
  layer { name: "pool" max_pool { kernel: 3 stride: 2 padding: SAME } }
  %(more)s
  layer { name: "out" dense { units: 10 } }
  layer { name: "loss" softmax_cross_entropy {} }
}
optimizer { type: MOMENTUM }
learning_rate { base: 0.001 }
evaluation { every_epochs: 0 skip_final: true }
cluster { workers: %(workers)d max_restarts: 100000 %(cluster)s }
checkpoint { every_steps: %(every)d }
worker { threads: 1 }
"""
ENDLESS = 1000000


class Watched:
    """`settings` fill in NETWORK. The run is killed at the end of a `with` block."""

    def __init__(self, bin_dir, folder, preloaded=None, **settings):
        values = dict(steps=ENDLESS, batch=512, slices=16, more="", workers=4, cluster="", every=ENDLESS)
        values.update(settings)
        self.folder, self.lines, self.steps = folder, [], []
        with open(folder + ".txtpb", "w") as file:
            file.write(NETWORK % values)
        environment = {**os.environ, **(preloaded.environment if preloaded else {})}
        self.log = folder + ".log"
        with open(self.log, "w") as out:
            self.launcher = subprocess.Popen(
                [f"{bin_dir}/muster", "launch", folder + ".txtpb", "--run-dir", folder], stdout=out, stderr=out,
                stdin=subprocess.DEVNULL, env=environment)
        self.stop = False
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.launcher.kill()
        self.launcher.wait()
        self.stop = True
        self.thread.join()

    def _read(self):
        path, at, rest = f"{self.folder}/metrics.jsonl", 0, b""
        while not self.stop:
            try:
                if os.path.getsize(path) < at:  # truncated by a server that resumes from a checkpoint
                    at, rest = 0, b""
                with open(path, "rb") as file:
                    file.seek(at)
                    new = file.read()
            except FileNotFoundError:
                new = b""
            now = time.monotonic()
            at += len(new)
            *whole, rest = (rest + new).split(b"\n")
            for line in whole:
                line = json.loads(line)
                (self.lines if "event" in line else self.steps).append((now, line))
            time.sleep(0.001)

    def wait(self, condition, seconds, what):
        end = time.monotonic() + seconds
        while True:
            found = condition()
            if found:
                return found
            if self.launcher.poll() is not None or time.monotonic() > end:
                with open(self.log) as file:
                    raise SystemExit(f"{self.log}: missing after {seconds} s: {what}\n{file.read()[-2000:]}")
            time.sleep(0.001)

    def step(self):
        return self.steps[-1][1]["step"] if self.steps else 0

    def reach(self, step, seconds=120):
        self.wait(lambda: self.step() >= step, seconds, f"step {step}")

    def event(self, name, after, seconds=60):
        """Returns the time and the line of the first event with this name after `after`."""
        return self.wait(lambda: next(((at, line) for at, line in list(self.lines)
                                       if at >= after and line["event"] == name), None), seconds, name)

    def workers(self):
        return sorted(member(self.folder, "muster-worker"))

    def server(self):
        return member(self.folder, "muster-server")[0]

    def end_well(self):
        """Ends the run with SIGINT."""
        self.launcher.send_signal(signal.SIGINT)
        self.launcher.wait(60)

    def durations(self, begin=0.0, end=float("inf")):
        """Returns the durations, from line to line, of the steps that ended between these times."""
        steps = list(self.steps)
        return [(b, b - a, line) for (a, _), (b, line) in zip(steps, steps[1:]) if begin <= b <= end]
