#!/usr/bin/env python3
"""How long a round takes on many hosts: the real server, clients and relays in virtual time (tests/simulation).

    bench/simulate_hosts.py [--bin build/release/bin] [--hosts 2,4,8,16,32,64] [--workers 2] [--gbits 1]
                            [--megabytes 100] [--svg docs/images/hosts.svg]

Computing and updating take no time; each host's network card sends and receives at --gbits. Every run must end with
the weights of the undisturbed run. Columns: relays in a tree, which is what `muster launch -H` does; relays that all
send to the server; one gradient per worker; and two formulas, the cost model of docs/DESIGN.md and a ring all-reduce
with one process per host, which adds in another order. 64 hosts take some minutes.
"""
import argparse
import os
import subprocess
import sys

SWITCH = 1e-4  # seconds through the switch
NAMES = {"tree": "relays in a tree", "flat": "relays, flat", "none": "no relays", "model": "cost model of the tree",
         "ring": "ring all-reduce"}
COLORS = {"tree": "#1f5fbf", "flat": "#c05020", "none": "#888888", "model": "#8fb0e0", "ring": "#40a060"}


def simulated(arguments, hosts, sums):
    command = [os.path.join(arguments.bin, "simulate"), "--hosts", str(hosts), "--workers", str(arguments.workers),
               "--gbits", str(arguments.gbits), "--megabytes", str(arguments.megabytes), "--sums", sums]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return float(done.stdout.split()[0])


def model(arguments, hosts):
    """See RelayRound in cli/bench/bench_text.h. Chunks have 1 MB."""
    rate = arguments.gbits * 1e9 / 8
    levels = (hosts - 1).bit_length()
    return 2 * levels * SWITCH + (levels * arguments.megabytes + max(0, 3 * levels - 1)) * 1e6 / rate


def ring(arguments, hosts):
    return 2 * (hosts - 1) * (SWITCH + arguments.megabytes * 1e6 / hosts / (arguments.gbits * 1e9 / 8))


def picture(arguments, hosts, results):
    """Both axes are logarithmic."""
    import math
    width, height, left, top = 640, 400, 60, 20
    low = min(min(row.values()) for row in results) / 1.2
    high = max(max(row.values()) for row in results) * 1.2

    def x(count):
        return left + (width - left - 170) * math.log(count / hosts[0]) / math.log(hosts[-1] / hosts[0])

    def y(seconds):
        return top + (height - top - 45) * math.log(high / seconds) / math.log(high / low)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
           f'font-size="12">', f'<rect width="{width}" height="{height}" fill="white"/>']
    for power in range(-3, 4):
        for digit in (1, 2, 5):
            value = digit * 10.0 ** power
            if low <= value <= high:
                out.append(f'<line x1="{left}" x2="{width - 170}" y1="{y(value):.0f}" y2="{y(value):.0f}" stroke="#ddd"/>'
                           f'<text x="{left - 6}" y="{y(value) + 4:.0f}" text-anchor="end">{value:g} s</text>')
    for count in hosts:
        out.append(f'<text x="{x(count):.0f}" y="{height - 25}" text-anchor="middle">{count}</text>')
    out.append(f'<text x="{(left + width - 170) / 2:.0f}" y="{height - 6}" text-anchor="middle">hosts</text>')
    used = []
    for kind in sorted(NAMES, key=lambda kind: results[-1][kind]):
        points = " ".join(f"{x(count):.1f},{y(row[kind]):.1f}" for count, row in zip(hosts, results))
        dash = ' stroke-dasharray="4 4"' if kind in ("model", "ring") else ""
        label = y(results[-1][kind]) + 4
        while any(abs(label - other) < 14 for other in used):
            label -= 1
        used.append(label)
        out.append(f'<polyline points="{points}" fill="none" stroke="{COLORS[kind]}" stroke-width="2"{dash}/>'
                   f'<text x="{width - 162}" y="{label:.0f}" fill="{COLORS[kind]}">{NAMES[kind]}</text>')
    with open(arguments.svg, "w") as file:
        file.write("\n".join(out) + "\n</svg>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--hosts", default="2,4,8,16,32,64")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--gbits", type=float, default=1)
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--svg", help="also draw a picture")
    arguments = parser.parse_args()
    hosts = [int(count) for count in arguments.hosts.split(",")]
    print(f"{arguments.megabytes:g} MB, {arguments.workers} workers per host, {arguments.gbits:g} Gbit/s; seconds\n")
    print("| hosts | " + " | ".join(NAMES.values()) + " |")
    print("|---" * (len(NAMES) + 1) + "|")
    results = []
    for count in hosts:
        row = {sums: simulated(arguments, count, sums) for sums in ("tree", "flat", "none")}
        row |= {"model": model(arguments, count), "ring": ring(arguments, count)}
        results.append(row)
        print(f"| {count} | " + " | ".join(f"{row[kind]:.3g}" for kind in NAMES) + " |", flush=True)
    if arguments.svg:
        picture(arguments, hosts, results)


if __name__ == "__main__":
    main()
