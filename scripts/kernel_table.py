#!/usr/bin/python3
"""Prints a table of the resources that nvcc reports for the kernels of the CUDA backend, and of the least time
that each can take; docs/GPUS.md sums it up. Needs nvcc, but no GPU. Exit code 1 if a kernel spills registers
or is missing from the table.

    scripts/kernel_table.py [--arch sm_90] [--gigabytes-per-second 3350]
"""
import argparse
import pathlib
import re
import subprocess
import sys

BLOCK = 256  # threads (launch.h)
THREADS, REGISTERS, BLOCKS = 2048, 65536, 32  # of a multiprocessor of sm_80, sm_90 and sm_100
MILLION = 1 << 20

# A title, kernel names, and the data moved per input element (for im2col and depthwise convolutions: per position
# of a 3 x 3 window), as text and in bytes for activations of `s` bytes.
ROWS = [
    ("relu, add, bias, rounding, sums of gradients, concat", "MapKernel BiasKernel CopyRowsKernel", "3", lambda s: 3 * s),
    ("dropout, its gradient", "DropoutKernel DropoutGradientKernel", "2 and a byte", lambda s: 2 * s + 1),
    ("pooling 2 x 2, forward", "MaxPoolKernel AvgPoolKernel GlobalAvgPoolKernel", "1.25 and ¼ byte",
     lambda s: 1.25 * s + 0.25),
    ("pooling 2 x 2, backward", "MaxPoolGradientKernel AvgPoolGradientKernel GlobalAvgPoolGradientKernel", "1.25 and ¼ byte",
     lambda s: 1.25 * s + 0.25),
    ("LRN", "LrnKernel", "2", lambda s: 2 * s),
    ("LRN gradient, in two passes", "LrnTermsKernel LrnGradientKernel", "5 and 2 floats", lambda s: 5 * s + 8),
    ("batch norm: statistics", "StatisticsPartsKernel StatisticsKernel GivenStatisticsKernel", "1", lambda s: s),
    ("batch norm: normalise", "NormaliseKernel", "2", lambda s: 2 * s),
    ("batch norm: sums of gradients", "NormPartsKernel NormSumsKernel", "2", lambda s: 2 * s),
    ("batch norm: input gradient", "NormInputGradientKernel", "3", lambda s: 3 * s),
    ("softmax, losses, their gradients", "SoftmaxKernel SoftmaxGradientKernel SampleLossKernel "
     "LossGradientKernel AddUpKernel", "3", lambda s: 3 * s),
    ("sums over rows (bias gradients)", "ColumnPartsKernel OverPartsKernel", "1", lambda s: s),
    ("batches of stored images: sums, maps", "MeasureImagesKernel MapImagesKernel", "a byte", lambda s: 1),
    ("batches of stored images: numbers, labels", "ConvertImagesKernel GatherLabelsKernel", "1 and a byte",
     lambda s: s + 1),
    ("im2col 3 x 3", "ImageToColumnsKernel", "10", lambda s: 10 * s),
    ("im2col 3 x 3, backward", "ColumnsToImageKernel", "1 and 9 floats", lambda s: s + 36),
    ("depthwise 3 x 3: forward, input gradient", "DepthwiseKernel DepthwiseInputGradientKernel", "2", lambda s: 2 * s),
    ("depthwise 3 x 3: weights", "DepthwisePartsKernel DepthwiseSumsKernel", "18", lambda s: 18 * s),
    ("none: tests that there is code for the GPU", "AnyKernel", "0", lambda s: 0),
]


def compile_kernels(source, arch):
    """(name, registers, bytes of shared memory, bytes spilled) of each kernel in a .cu."""
    command = ["nvcc", "-std=c++20", "-O3", f"-arch={arch}", "--expt-relaxed-constexpr", "-I.", "-cubin",
               "-Xptxas", "-v", "-o", "/dev/null", str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    kernels = []
    for part in done.stderr.split("Compiling entry function '")[1:]:
        name = re.search(r"\d([A-Z]\w*?Kernel)", part.split("'")[0]).group(1)
        spilled = sum(int(n) for n in re.findall(r"(\d+) bytes spill", part))
        shared = re.search(r"(\d+) bytes smem", part)
        kernels.append((name, int(re.search(r"Used (\d+) registers", part).group(1)),
                        int(shared.group(1)) if shared else 0, spilled))
    return kernels


def span(numbers):
    return f"{min(numbers)}" if min(numbers) == max(numbers) else f"{min(numbers)}–{max(numbers)}"


def blocks(registers):
    """The number of blocks that fit on a multiprocessor: a warp gets registers in units of 256."""
    of_warp = -(-registers * 32 // 256) * 256
    return min(THREADS // BLOCK, BLOCKS, REGISTERS // (of_warp * BLOCK // 32))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--gigabytes-per-second", type=float, default=3350, help="memory bandwidth of the GPU; default: H100 SXM")
    arguments = parser.parse_args()
    sources = sorted(pathlib.Path("worker/backend/cuda").glob("*.cu"))
    kernels = [kernel for source in sources for kernel in compile_kernels(source, arguments.arch)]

    def microseconds(size):
        return f"{size * MILLION / arguments.gigabytes_per_second / 1e3:.1f}"

    wrong = [f"{name} spills {spilled} bytes" for name, _, _, spilled in kernels if spilled > 0]
    known = {name for _, names, _, _ in ROWS for name in names.split()}
    wrong += sorted(f"{name} is missing from the table" for name in {k[0] for k in kernels} - known)
    print(f"{len(kernels)} kernels for {arguments.arch}; least time for 2^20 elements at "
          f"{arguments.gigabytes_per_second:g} GB/s\n")
    print("| kernels | compiled | registers | shared memory | blocks on a multiprocessor | elements moved for each "
          "| least µs, FP32 | BF16 |")
    print("|---|---|---|---|---|---|---|---|")
    for title, names, words, size in ROWS:
        own = [kernel for kernel in kernels if kernel[0] in names.split()]
        if not own:
            wrong.append(f"{names} does not exist")
            continue
        registers = [kernel[1] for kernel in own]
        print(f"| {title} | {len(own)} | {span(registers)} | {span([k[2] for k in own])} | "
              f"{span([blocks(r) for r in registers])} | {words} | {microseconds(size(4))} | {microseconds(size(2))} |")
    for line in wrong:
        print(line, file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
