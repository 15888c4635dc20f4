// The longer texts of --help. They are cut to the width of a terminal when they are printed: a
// paragraph is one line.
#pragma once

namespace muster {

inline constexpr const char* kOverview =
    "Muster trains a neural network by synchronous data parallelism through a parameter "
    "server: one server process owns the weights, and worker processes, by default one per core, "
    "compute gradients on their parts of each batch.";

inline constexpr const char* kExamples =
    "Examples:\n"
    "  muster data get cifar10 data                  download CIFAR-10\n"
    "  muster launch configs/cifar10.txtpb --workers 2 --data data\n"
    "  muster launch runs/NAME/config.txtpb          the same run again\n"
    "  muster launch --resume runs/NAME              go on where it stopped\n"
    "  muster inspect configs/cifar10.txtpb          layers, variables, chunks\n"
    "  muster inspect runs/NAME                      how it went, its weights\n"
    "  muster export runs/NAME --format onnx model.onnx\n"
    "  muster import pt.safetensors --config configs/cifar10.txtpb ours.safetensors\n"
    "  muster eval runs/NAME --confusion             its accuracy, class by class\n"
    "  muster predict runs/NAME --samples 0-9\n"
    "  muster launch configs/cifar10.txtpb --data data --trace t.json --steps 40\n"
    "  muster trace t.json                           where the time of a step goes\n"
    "  muster bench --model configs/cifar10.txtpb    what a round costs here\n"
    "  muster gpus                                   who uses which GPU\n"
    "  muster doctor configs/cifar10.txtpb           would it run here?\n"
    "  muster runs                                   what has been trained\n"
    "  muster top runs/NAME                          a run under way\n"
    "  muster plot runs/NAME                         its curves, as SVG\n"
    "  muster server configs/cifar10.txtpb --data data   a job on several machines\n"
    "`muster COMMAND --help` says more about a command, `muster launch --help` what the exit codes "
    "mean.";

inline constexpr const char* kLaunchFooter =
    "Examples:\n"
    "  muster launch configs/smoke.txtpb             two seconds, without any data\n"
    "  muster launch configs/cifar10.txtpb --data data --workers 2 --epochs 3\n"
    "  muster launch configs/cifar10.txtpb --data data --set learning_rate.base=0.05\n"
    "  muster launch configs/cifar10.txtpb --data data --dry-run\n"
    "  muster launch --resume runs/NAME --epochs 20\n"
    "\n"
    "Settings worth knowing (--set; all of them with default, unit and range: "
    "proto/config.proto):\n"
    "  run.global_batch=128          images per step, all workers together\n"
    "  run.batch_per_worker=64       the same by worker, so that it grows with them; one of "
    "the two\n"
    "  run.slices=8                  parts of a batch: the same number gives the same bits "
    "on any number of workers\n"
    "  run.log_every_steps=10        how often a line is written\n"
    "  cluster.transport=tcp         loopback TCP instead of shared memory (names in any "
    "case)\n"
    "  learning_rate.base=0.05       model.layer[fc1].dense.units=192\n"
    "  evaluation.every_epochs=2     worker.threads=1   server.threads=2\n"
    "  evaluation.stop_at_accuracy=0.9   evaluation.confusion_matrix=true\n"
    "  evaluation.patience=5         stop after so many evaluations without a better one\n"
    "  deadlines.start_s=60          how long to wait for the workers to join\n"
    "\n"
    "Files in the run directory: config.txtpb (every setting; launching from it repeats the "
    "run), metrics.jsonl (a JSON object per logging interval and evaluation, the summary "
    "last), server.log, worker-RANK.log; model.safetensors (the weights, however the run "
    "ends) and best.safetensors (of the best evaluation); checkpoints/; "
    "events.out.tfevents... (tensorboard --logdir runs), status.json (muster top); "
    "confusion_matrix.csv if asked for. With --repeat: "
    "seed-S/ for each run, and repeat.json.\n"
    "\n"
    "--resume RUN_DIR goes on from the newest checkpoint (by default one after each epoch, "
    "and at the end; SIGUSR1 writes one now), with the same bits as a run that never "
    "stopped. --workers may differ, and --epochs or --steps be raised where the learning "
    "rate does not depend on them.\n"
    "\n"
    "--resume auto, with CONFIG and --run-dir, goes on with the run in that directory, or begins "
    "it: one command for a scheduler that starts a job again. A server that is killed or crashes "
    "is started again in any case, up to run.max_restarts times.\n"
    "\n"
    "--trace FILE is written when the run ends. A trace that is there already is replaced, any "
    "other "
    "file refused. Where writing fails, or the run ends before the steps to trace, an otherwise "
    "good "
    "run ends with exit code 1.\n"
    "\n"
    "Ctrl-C (SIGINT), SIGTERM and SIGHUP stop every process within 5 s, or when state and "
    "weights are on the disk; a second one kills at once. No process outlives the launcher, "
    "not even when it is killed.\n"
    "\n"
    "Exit codes:\n"
    "  0    completed, also when an evaluation stopped it early; a dry run\n"
    "  1    a failure that has no code of its own (the message says which)\n"
    "  2    command line, config, or too old a processor; nothing was started\n"
    "  3    a data file is missing, truncated or foreign; weights cannot be read, are "
    "damaged, not finite or do not fit the network; there is no whole checkpoint, or all are "
    "another run's\n"
    "  4    a loss, gradient or weight was not finite; rank, step and variable are named\n"
    "  5    a wait ran into its deadline, also that for a sign of life of a process\n"
    "  6    the server or a worker was killed or crashed\n"
    "  7    another process of the job was lost, and nothing says how it ended\n"
    "  8    a worker was refused: wrong token, version, graph, settings or data, or a "
    "GPU that fails or computes wrongly in the test before the first step\n"
    "  130  stopped by Ctrl-C (SIGINT)\n"
    "  143  stopped by SIGTERM or SIGHUP";

inline constexpr const char* kEvalFooter =
    "Starts a server and workers as `muster launch` does, and trains nothing. Of a "
    "run directory it takes model.safetensors, or the newest checkpoint where that "
    "has seen more steps (a run under way), or, with --best, best.safetensors. The "
    "result has the bits of the run's own evaluation of these weights, on any number "
    "of workers; it says whether it is what the run reported. The directory of the "
    "run is only read.\n"
    "\n"
    "Examples:\n"
    "  muster eval runs/a --best --confusion\n"
    "  muster eval runs/a/checkpoints/step-00000390-g1-evaluated --workers 4\n"
    "  muster eval model.safetensors --data DIR --json\n"
    "\n"
    "Exit codes: as of `muster launch`.";

inline constexpr const char* kImportFooter =
    "Examples:\n"
    "  muster import theirs.safetensors --config configs/cifar10.txtpb \\\n"
    "      ours.safetensors\n"
    "  muster import theirs.safetensors --config configs/cifar10.txtpb \\\n"
    "      --skip-mismatched body.safetensors\n"
    "  muster launch configs/cifar10.txtpb --data data \\\n"
    "      --initial-weights ours.safetensors\n"
    "\n"
    "A file of torch.save is made a safetensors file first: the error says how.\n"
    "\n"
    "Exit codes: 0 done, 1 OUT cannot be written, 2 command line or config, or OUT is there "
    "already, 3 FILE cannot be read, is not finite, or does not fit the network.";

inline constexpr const char* kExportFooter =
    "Of a run directory it takes model.safetensors, or the newest checkpoint where that has seen "
    "more steps.\n"
    "\n"
    "Examples:\n"
    "  muster export runs/a --format npz weights.npz\n"
    "  muster export runs/a --best --format onnx model.onnx\n"
    "\n"
    "Exit codes: 0 done, 1 OUT cannot be written, 2 command line or config, or OUT is there "
    "already, 3 the weights cannot be read, or do not fit the network.";

inline constexpr const char* kInspectFooter =
    "Of a config: layers, variables, chunks, the work of a step. Of a run directory: how the run "
    "is, and the weights that it holds. Of weights: variables, shapes, norms, what is not finite, "
    "and what the file says of itself. Of a checkpoint, without --ema and --raw, every tensor, the "
    "optimizer's state too, and all checksums.\n"
    "\n"
    "Examples:\n"
    "  muster inspect configs/cifar10.txtpb --set run.global_batch=512\n"
    "  muster inspect runs/a --best\n"
    "  muster inspect runs/a/checkpoints/step-00000390-g1-evaluated\n"
    "  muster inspect runs/a/model.safetensors --config\n"
    "\n"
    "Exit codes: 0 done, 2 command line or config, 3 the weights cannot be read.";

inline constexpr const char* kTraceFooter =
    "Examples:\n"
    "  muster trace t.json\n"
    "  muster trace t.json --merge runs/a/trace.*.part\n"
    "\n"
    "Exit codes: 0 done, 1 FILE cannot be written, 2 command line, 3 a trace cannot be read.";

inline constexpr const char* kPlotFooter =
    "Examples:\n"
    "  muster plot runs/a\n"
    "  muster plot runs/a runs/b --axis time --output both.svg\n"
    "\n"
    "Exit codes: 0 done, 1 the picture cannot be written, 2 command line, or no run.";

inline constexpr const char* kDataFooter =
    "Examples:\n"
    "  muster data get cifar10 data\n"
    "  muster data get mnist data/mnist\n"
    "  muster data synth data --train 5000 --test 1000\n"
    "\n"
    "Exit codes: 0 done, 1 no network, or the folder cannot be written, 2 command line, 3 another "
    "set is there, or what came is not the published one.";

inline constexpr const char* kTokenFooter =
    "Examples:\n"
    "  muster token token\n"
    "\n"
    "Exit codes: 0 done, 2 FILE cannot be written, or is there already.";

inline constexpr const char* kPredictFooter =
    "One process computes them, with the bits of an evaluation. Probabilities are the "
    "softmax of the logits.\n"
    "\n"
    "Examples:\n"
    "  muster predict runs/a --samples 0-9,17\n"
    "  muster predict runs/a --best --samples 0-31 --top 1 --json\n"
    "\n"
    "Exit codes: 0 done, 2 command line or config, 3 data or weights, 4 outputs that "
    "are not finite.";

inline constexpr const char* kBenchFooter =
    "Takes less than a minute; nothing else should run. For 4 KB, 1 MiB, 32 MiB and the "
    "model's size: the server's update alone beside what the memory allows (update_bench), a "
    "whole round of push, average, update and pull between real processes without a network "
    "to compute (sync_bench), over shared memory and over TCP, and what the cost model in "
    "docs/DESIGN.md predicts. Then what that means for the model, here and on several hosts. "
    "Results are verified before a time is shown.\n"
    "\n"
    "Of a config it takes the network's size, optimizer.type, cluster.workers, chunk_bytes "
    "and wire_dtype (over TCP), server.threads, io_threads and instruction_set. Not "
    "measured: clipping by norm, a moving average of the weights, RMSPROP's momentum, more "
    "slices than workers.\n"
    "\n"
    "Examples:\n"
    "  muster bench --model configs/cifar10.txtpb\n"
    "  muster bench --size 400MB --workers 4\n"
    "\n"
    "Exit codes: 0 done, 1 a benchmark failed or is not installed, 2 command line or config.";

inline constexpr const char* kGpusFooter =
    "Memory in MiB, as nvidia-smi counts. `taken`: a Muster job, or `muster gpus run`, has "
    "locked the GPU; `busy`: somebody else computes on it. Jobs that wait for GPUs are "
    "shown, too. Without an NVIDIA driver it says so in one line (--json: an empty list), "
    "with exit code 0.\n"
    "\n"
    "Exit codes: 0 done, 2 command line.";

inline constexpr const char* kGpusRunFooter =
    "The command gets the GPUs' UUIDs in CUDA_VISIBLE_DEVICES. Nobody else's Muster job, "
    "nor another `muster gpus run`, takes them as long as it, or a process that it has "
    "started, lives.\n"
    "\n"
    "Examples:\n"
    "  muster gpus run -- python train.py\n"
    "  muster gpus run -n 2 --wait 120 -- torchrun --nproc-per-node 2 train.py\n"
    "\n"
    "Exit codes: the command's; 1 not enough idle GPUs, 2 command line, 5 not within --wait.";

inline constexpr const char* kRunsFooter =
    "A run is running as long as its server lives, whoever started it; killed, if its server "
    "is gone and left no last line of metrics; not begun, if it never came to its first "
    "step. On a terminal that is too narrow some columns are left out.\n"
    "\n"
    "Exit codes: 0 done, 2 no such directory.";

inline constexpr const char* kTopFooter =
    "Reads status.json of the run directory, which the run's server replaces each second, "
    "and asks nothing of the run: it may have been started by anybody, anyhow, and, on a "
    "shared disk, anywhere. Times are of each rank's last 200 steps: half of them took no "
    "longer than the first number, 99 of 100 no longer than the second. images/s is what a "
    "rank's compute and input would allow. No colours with the environment variable "
    "NO_COLOR. q or Ctrl-C: quit; the run goes on.\n"
    "\n"
    "Exit codes: 0 done, 2 no such run, or it has no status yet.";

inline constexpr const char* kServerFooter =
    "The server makes the run directory and the job's token, says how to start the workers, "
    "and shows the run as `muster launch` does. Server and workers may start in any order, "
    "within deadlines.start_s of one another (--set deadlines.start_s=600 where that takes "
    "longer).\n"
    "\n"
    "Examples:\n"
    "  muster server configs/cifar10.txtpb --workers 2 --data data\n"
    "      for workers of this host, at any free port of the loopback interface\n"
    "  muster server configs/cifar10.txtpb --workers 2 --data data \\\n"
    "      --endpoint tcp://10.0.0.5:7700\n"
    "      for workers of other hosts too, which reach this one as 10.0.0.5\n"
    "  muster server configs/cifar10.txtpb --workers 2 --data data \\\n"
    "      --endpoint tcp://lab3.example.org:7700 --bind 'tcp://*:7700'\n"
    "      workers connect to lab3.example.org; the server listens on every interface\n"
    "  muster server configs/cifar10.txtpb --workers 2 --data data \\\n"
    "      --endpoint 'tcp://[fd00::5]:7700'\n"
    "      over IPv6\n"
    "\n"
    "Workers of the server's host find its shared memory by themselves (cluster.transport: "
    "AUTO). Connections between hosts are encrypted with keys that come from the token (CURVE), "
    "and nobody gets in without it; on a network that you trust, --set cluster.encryption=NONE "
    "is faster.\n"
    "\n"
    "Exit codes: as of `muster launch`.";

inline constexpr const char* kWorkerFooter =
    "CONFIG is best the config.txtpb of the server's run directory: it holds every setting. "
    "The server refuses a worker whose network, data, seed or preprocessing differ, and "
    "names the difference. It computes with one thread; as many workers as cores use them "
    "all.\n"
    "\n"
    "Examples:\n"
    "  muster worker runs/cifar10-20250131-120000/config.txtpb --rank 0 \\\n"
    "      --endpoint tcp://10.0.0.5:7700 \\\n"
    "      --token-file runs/cifar10-20250131-120000/token\n"
    "  MUSTER_TOKEN=$(cat token) muster worker config.txtpb --rank 1 \\\n"
    "      --data /data/cifar10 --endpoint tcp://10.0.0.5:7700\n"
    "\n"
    "With --join it takes any free place, also in the middle of a run, up to cluster.max_workers. "
    "SIGTERM: it finishes its part, says goodbye, and the others go on (cluster.on_lost_worker).\n"
    "\n"
    "The token file must be its owner's alone (chmod 600).\n"
    "\n"
    "Exit codes: 0 done, 2 command line, 3 data, 5 no server in time, or a silent one, 7 the "
    "server or another worker was lost or the run was stopped, 8 refused by the server.";

}  // namespace muster
