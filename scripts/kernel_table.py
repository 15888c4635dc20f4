#!/usr/bin/python3
"""Prints a table of the CUDA backend's kernels, made from their machine code; docs/GPUS.md sums it up. Needs nvcc
and nvdisasm (in the CUDA Toolkit, and in PyPI's nvidia-cuda-nvdisasm), but no GPU.

    scripts/kernel_table.py [--arch sm_90] [--nvdisasm PATH]

For each kernel: registers, blocks that fit on a multiprocessor, bytes that a thread has in flight at once, and
instructions per element, both in the loop that reads most. The share of the memory's bandwidth is an estimate for one
H100 SXM: the smaller of what the bytes in flight permit (Little's law) and what the instructions permit. It knows
neither caches nor coalescing, nor what runs outside that loop, which may be one for larger windows. Exit code 1 if
a kernel spills registers, has so many that fewer than four blocks fit, is missing from the table, or, on sm_90, has a
share below its row's limit.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

BLOCK = 256  # threads (launch.h)
THREADS, REGISTERS, BLOCKS = 2048, 65536, 32  # of a multiprocessor of sm_80, sm_90 and sm_100
# An H100 SXM: bytes/s of its memory, multiprocessors, instructions/s (4 warps per cycle), seconds until a load arrives.
BANDWIDTH, PROCESSORS, INSTRUCTIONS, LATENCY = 3.35e12, 132, 132 * 4 * 32 * 1.755e9, 0.7e-6
CALL = 70  # instructions of a called function; they are 64-bit divisions
MILLION = 1 << 20

# A title; kernel names, of which the first is measured; the elements moved per element of the input (im2col: per
# position of a 3 x 3 window), as text and in bytes for activations of `s` bytes; the least share of the bandwidth.
ROWS = [
    ("relu, add, rounding, sums of gradients", "MapKernel", "3", lambda s: 3 * s, 0.9),
    ("gelu, silu, sigmoid, tanh", "CurveMapKernel", "3", lambda s: 3 * s, 0.3),
    ("bias", "BiasKernel", "2", lambda s: 2 * s, 0.9),
    ("concat", "CopyRowsKernel", "2", lambda s: 2 * s, 0.9),
    ("dropout", "DropoutKernel", "2 and a byte", lambda s: 2 * s + 1, 0.5),
    ("dropout: gradient", "DropoutGradientKernel", "2 and a byte", lambda s: 2 * s + 1, 0.9),
    ("max pooling 2 x 2", "MaxPoolKernel", "1.25 and ¼ byte", lambda s: 1.25 * s + 0.25, 0.9),
    ("max pooling 2 x 2: gradient", "MaxPoolGradientKernel", "1.25 and ¼ byte", lambda s: 1.25 * s + 0.25, 0.9),
    ("average pooling 2 x 2", "AvgPoolKernel", "1.25", lambda s: 1.25 * s, 0.9),
    ("average pooling 2 x 2: gradient", "AvgPoolGradientKernel", "1.25", lambda s: 1.25 * s, 0.5),
    ("global average pooling", "GlobalAvgPoolKernel GlobalAvgPoolGradientKernel", "1", lambda s: s, 0.9),
    ("LRN", "LrnKernel", "2", lambda s: 2 * s, 0.9),
    ("LRN: gradient", "LrnGradientKernel LrnTermsKernel", "5 and 2 floats", lambda s: 5 * s + 8, 0.9),
    ("batch norm: statistics", "StatisticsPartsKernel StatisticsKernel GivenStatisticsKernel", "1", lambda s: s, 0.9),
    ("batch norm: normalise", "NormaliseKernel", "2", lambda s: 2 * s, 0.9),
    ("batch norm: sums of gradients", "NormPartsKernel NormSumsKernel", "2", lambda s: 2 * s, 0.9),
    ("batch norm: input gradient", "NormInputGradientKernel", "3", lambda s: 3 * s, 0.9),
    ("group norm: statistics", "GroupStatisticsKernel", "2", lambda s: 2 * s, 0.5),
    ("group norm: normalise", "GroupNormaliseKernel", "2", lambda s: 2 * s, 0.9),
    ("group norm: sums of gradients", "GroupGradientsKernel", "3", lambda s: 3 * s, 0.5),
    ("group norm: sums for scale and shift", "ScalePartsKernel ScaleGradientKernel", "2", lambda s: 2 * s, 0.9),
    ("group norm: input gradient", "GroupInputGradientKernel", "3", lambda s: 3 * s, 0.9),
    ("softmax", "SoftmaxKernel SoftmaxGradientKernel", "3", lambda s: 3 * s, 0.9),
    ("losses", "SampleLossKernel ValueLossKernel AddUpKernel", "1", lambda s: s, 0.9),
    ("losses: gradient", "LossGradientKernel ValueGradientKernel", "3", lambda s: 3 * s, 0.4),
    ("sums over rows (bias gradients)", "ColumnPartsKernel OverPartsKernel", "1", lambda s: s, 0.8),
    ("batches of stored images", "ConvertImagesKernel MeasureImagesKernel MapImagesKernel GatherLabelsKernel",
     "1 and a byte", lambda s: s + 1, 0.4),
    ("images from bytes", "ScalePixelsKernel", "1 and a byte", lambda s: s + 1, 0.4),
    ("mirrored images", "MirrorImagesKernel", "2", lambda s: 2 * s, 0.2),
    ("reflection padding", "ReflectPadKernel ReflectPadGradientKernel", "2", lambda s: 2 * s, 0.2),
    ("im2col 3 x 3", "ImageToColumnsKernel", "10", lambda s: 10 * s, 0.9),
    ("im2col 3 x 3: gradient", "ColumnsToImageKernel", "1 and 9 floats", lambda s: s + 36, 0.9),
    ("depthwise 3 x 3", "DepthwiseKernel", "2", lambda s: 2 * s, 0.3),
    ("depthwise 3 x 3: input gradient", "DepthwiseInputGradientKernel", "2", lambda s: 2 * s, 0.3),
    ("depthwise 3 x 3: weights", "DepthwisePartsKernel DepthwiseSumsKernel", "18", lambda s: 18 * s, 0.3),
    ("none: tests that there is code for the GPU", "AnyKernel", "0", lambda s: 0, 0),
]


class Loop:
    """What the loop of a kernel does that reads and writes most."""

    def __init__(self, instructions=0, moved=0, in_flight=0, loads=0):
        self.instructions, self.moved, self.in_flight, self.loads = instructions, moved, in_flight, loads


def width(operation):
    """Bytes per thread of a load or store."""
    for suffix, size in ((".128", 16), (".64", 8), (".U16", 2), (".S16", 2), (".U8", 1), (".S8", 1)):
        if suffix in operation:
            return size
    return 4


def registers_of(text, count):
    first = re.match(r"\s*R(\d+)", text)
    return {f"R{int(first.group(1)) + i}" for i in range(count)} if first else set()


def measure(body):
    """body: (operation, operands) of each instruction of a loop."""
    loop, waiting, loads = Loop(), {}, 0
    for operation, operands in body:
        division = operation.startswith("CALL") and "slowpath" not in operands  # that of floats is hardly ever taken
        loop.instructions += CALL if division else 1
        used = set(re.findall(r"R\d+", operands))
        if operation.startswith(("LDG", "LD.")):
            used -= registers_of(operands, 1)
        if any(used & of for of, _ in waiting.values()):
            waiting = {}
        if operation.startswith(("LDG", "LD.")):
            loop.moved += width(operation)
            loads += 1
            waiting[loads] = (registers_of(operands, max(1, width(operation) // 4)), width(operation))
            loop.in_flight = max(loop.in_flight, sum(size for _, size in waiting.values()))
            loop.loads = max(loop.loads, len(waiting))
        elif operation.startswith(("STG", "ST.")):
            loop.moved += width(operation)
    return loop


def busiest_loop(code):
    """code: the lines of a kernel. An innermost loop, or the whole kernel if it has none."""
    instructions, labels = [], {}
    for line in code:
        label = re.match(r"(\.L_x_\d+):", line)
        if label:
            labels[label.group(1)] = len(instructions)
        found = re.match(r"\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)\s*(.*?);", line)
        if found:
            instructions.append(found.groups())
    spans = []
    for at, (operation, operands) in enumerate(instructions):
        target = re.search(r"\.L_x_\d+", operands) if operation.startswith("BRA") else None
        if target and labels.get(target.group(0), at + 1) < at:
            spans.append((labels[target.group(0)], at + 1))
    inner = [a for a in spans if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in spans)]
    loops = [measure(instructions[begin:end]) for begin, end in inner] or [measure(instructions)]
    return max(loops, key=lambda loop: loop.moved)


class Kernel:
    def __init__(self, name, registers, shared, spilled, loop):
        self.name, self.registers, self.shared, self.spilled, self.loop = name, registers, shared, spilled, loop
        self.size = 2 if "bfloat16" in name else 4
        self.short = re.search(r"\d([A-Z]\w*?Kernel)", name).group(1)
        if re.search("Gelu|Silu|Sigmoid|Tanh", name) and self.short == "MapKernel":
            self.short = "CurveMapKernel"
        self.narrow = "KernelILi1E" in name  # for tensors that are not aligned or have an odd number of channels
        of_warp = -(-registers * 32 // 256) * 256  # a warp gets registers in units of 256
        self.blocks = min(THREADS // BLOCK, BLOCKS, REGISTERS // (of_warp * BLOCK // 32))

    def share(self):
        if self.loop.moved == 0:
            return 1
        in_flight = self.loop.in_flight * self.blocks * BLOCK * PROCESSORS / LATENCY
        issued = INSTRUCTIONS * self.loop.moved / self.loop.instructions
        return min(1, in_flight / BANDWIDTH, issued / BANDWIDTH)


def compile_kernels(source, arch, nvdisasm, folder):
    cubin = os.path.join(folder, source.stem + ".cubin")
    command = ["nvcc", "-std=c++20", "-O3", f"-arch={arch}", "--expt-relaxed-constexpr", "-I.", "-cubin",
               "-Xptxas", "-v", "-o", cubin, str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    code = {}
    listing = subprocess.run([nvdisasm, "-c", cubin], capture_output=True, text=True, check=True).stdout
    for part in listing.split("\t.section\t.text.")[1:]:
        code[part.split(",")[0]] = part.split("\n")
    kernels = []
    for part in done.stderr.split("Compiling entry function '")[1:]:
        name = part.split("'")[0]
        spilled = sum(int(n) for n in re.findall(r"(\d+) bytes spill", part))
        shared = re.search(r"(\d+) bytes smem", part)
        kernels.append(Kernel(name, int(re.search(r"Used (\d+) registers", part).group(1)),
                              int(shared.group(1)) if shared else 0, spilled, busiest_loop(code[name])))
    return kernels


def span(numbers, unit=""):
    low, high = min(numbers), max(numbers)
    return f"{low:g}{unit}" if low == high else f"{low:g}–{high:g}{unit}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--nvdisasm", default=shutil.which("nvdisasm"), help="default: the one on PATH")
    parser.add_argument("--each", action="store_true", help="a line for each compiled kernel instead of the table")
    arguments = parser.parse_args()
    if arguments.nvdisasm is None:
        sys.exit("no nvdisasm on PATH: pass --nvdisasm; it is in the CUDA Toolkit and in nvidia-cuda-nvdisasm on PyPI")
    os.chdir(pathlib.Path(__file__).resolve().parent.parent)
    sources = sorted(pathlib.Path("worker/backend/cuda").glob("*.cu"))
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(compile_kernels, source, arguments.arch, arguments.nvdisasm, folder) for source in sources]
        kernels = [kernel for job in jobs for kernel in job.result()]
    if arguments.each:
        for k in kernels:
            print(f"{k.share():5.2f} {k.registers:4} registers {k.loop.in_flight:4} bytes in {k.loop.loads:2} loads "
                  f"{k.loop.instructions:4} instructions for {k.loop.moved:4} bytes  {k.name[k.name.index(k.short):]}")
        return

    wrong = [f"{k.name} spills {k.spilled} bytes" for k in kernels if k.spilled > 0]
    wrong += [f"{k.name}: only {k.blocks} blocks fit on a multiprocessor" for k in kernels if k.blocks < 4]
    known = {name for row in ROWS for name in row[1].split()}
    wrong += sorted(f"{name} is missing from the table" for name in {k.short for k in kernels} - known)
    print(f"{len(kernels)} kernels for {arguments.arch}\n")
    print("| kernels | compiled | registers | blocks | bytes in flight | instructions per element | elements moved for "
          "each | share of the bandwidth, FP32 | BF16 |")
    print("|---|---|---|---|---|---|---|---|---|")
    for title, names, words, size, limit in ROWS:
        own = [k for k in kernels if k.short in names.split()]
        if not own:
            wrong.append(f"{names} does not exist")
            continue
        streams = [k for k in own if k.loop.moved > 0 and k.short == names.split()[0] and not k.narrow]
        per_element = [round(k.loop.instructions * size(k.size) / k.loop.moved, 1) for k in streams] or [0]
        shares = {s: min((k.share() for k in streams if k.size == s), default=1) for s in (4, 2)}
        if arguments.arch == "sm_90":
            wrong += [f"{title}: share {share:.2f}; expected at least {limit}"
                      for share in shares.values() if share < limit]
        print(f"| {title} | {len(own)} | {span([k.registers for k in own])} | {span([k.blocks for k in own])} | "
              f"{span([k.loop.in_flight for k in streams] or [0])} | {span(per_element)} | {words} | "
              f"{shares[4]:.2f} | {shares[2]:.2f} |")
    for line in wrong:
        print(line, file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
