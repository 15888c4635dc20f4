#!/usr/bin/python3
"""Muster against PyTorch DDP, and against itself on one core: images per second, interleaved in
one run, medians and ratios.

    bench/compare_training.py [--bin build/release/bin] [--batch 128] [--rounds 3] [--steps 100]
                              [--what lrn,nolrn,scaling]

Each round runs every contender once, one after the other. Muster trains configs/cifar10.txtpb on a
procedural image set (its input pipeline with augmentation included); PyTorch gets the same network
and batch with data that is already in memory (bench/peers/ddp.py). A Muster run counts only if it
completed and its loss fell.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def model_without_lrn(folder):
    """The tutorial's network without its two LRN layers."""
    path = os.path.join(folder, "no_lrn.txtpb")
    with open(os.path.join(ROOT, "configs/models/cifar10_tutorial.txtpb")) as model:
        lines = [line for line in model if " lrn {" not in line]
    with open(path, "w") as out:
        out.writelines(lines)
    return path


def muster(arguments, folder, workers, settings=(), pin=None):
    run = tempfile.mkdtemp(dir=folder)
    os.rmdir(run)
    command = [os.path.join(arguments.bin, "muster"), "launch", os.path.join(ROOT, "configs/cifar10.txtpb"),
               "--workers", str(workers), "--data", os.path.join(folder, "data"), "--run-dir", run,
               "--steps", str(arguments.steps), "--set", f"run.batch_per_worker={arguments.batch}",
               "--set", "worker.threads=1", "--set", "evaluation.skip_final=true",
               "--set", "evaluation.every_epochs=0", "--set", "run.log_every_steps=10"]
    for setting in settings:
        command += ["--set", setting]
    if pin is not None:
        command = ["taskset", "-c", pin] + command
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(done.stdout)
    with open(os.path.join(run, "metrics.jsonl")) as metrics:
        lines = [json.loads(line) for line in metrics]
    logged = [line for line in lines if not line.get("final")]
    assert lines[-1]["final"] and lines[-1]["reason"] == "completed"
    assert logged[-1]["train_loss"] < logged[0]["train_loss"], "the loss did not fall"
    # Without the first interval, in which caches are cold: PyTorch's warm-up is left out, too.
    return statistics.median(line["images_per_second"] for line in logged[1:]), lines[-1]


def ddp(arguments, extra):
    command = ["/usr/bin/python3", os.path.join(ROOT, "bench/peers/ddp.py"), "--batch", str(arguments.batch),
               "--seconds", "5", "--repeat", "3"] + extra
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=180).stdout)["images_per_second"]


def report(name, ours, theirs, peer):
    ratios = [a / b for a, b in zip(ours, theirs)]
    show = lambda values: " ".join(f"{v:,.0f}" for v in values)
    print(f"{name:<28} {statistics.median(ours):8,.0f}  {peer} {statistics.median(theirs):8,.0f}  "
          f"ratio {statistics.median(ratios):.2f} [{min(ratios):.2f} .. {max(ratios):.2f}]   ({show(ours)} / {show(theirs)})",
          flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/release/bin"))
    parser.add_argument("--batch", type=int, default=128, help="per worker")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--what", default="lrn,nolrn,scaling")
    arguments = parser.parse_args()
    what = arguments.what.split(",")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([os.path.join(arguments.bin, "muster"), "data", "synth", os.path.join(folder, "data")],
                       check=True, stdout=subprocess.DEVNULL)
        no_lrn = [f"model_file={model_without_lrn(folder)}"]
        got = {name: ([], []) for name in what}
        parts = []
        for number in range(arguments.rounds):
            print(f"round {number + 1} of {arguments.rounds} ...", file=sys.stderr, flush=True)
            if "lrn" in what:
                rate, summary = muster(arguments, folder, 2)
                parts.append(summary)
                got["lrn"][0].append(rate)
                got["lrn"][1].append(ddp(arguments, []))
            if "nolrn" in what:
                got["nolrn"][0].append(muster(arguments, folder, 2, no_lrn)[0])
                got["nolrn"][1].append(ddp(arguments, ["--no-lrn"]))
            if "scaling" in what:
                got["scaling"][0].append(muster(arguments, folder, 2)[0])
                # The one worker may have a whole core to itself; its server the rest.
                got["scaling"][1].append(2 * muster(arguments, folder, 1)[0])
        print(f"images/s, batch {arguments.batch} per worker, medians of {arguments.rounds} interleaved rounds")
        if "lrn" in what:
            report("tutorial network", *got["lrn"], "PyTorch DDP")
        if "nolrn" in what:
            report("the same without LRN", *got["nolrn"], "PyTorch DDP")
        if "scaling" in what:
            report("2 workers x 1 thread", *got["scaling"], "2 x one worker")
        if parts:
            middle = parts[len(parts) // 2]
            print("where a step goes: " + ", ".join(
                f"{key} {middle[key + '_ms']:.1f} ms" for key in ("input", "compute", "push", "wait", "pull")))


if __name__ == "__main__":
    main()
