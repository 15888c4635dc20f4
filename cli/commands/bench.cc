// `muster bench`.
#include <fmt/core.h>

#include <cstdlib>

#include "cli/bench/bench_command.h"
#include "cli/commands/options.h"

namespace muster {
namespace {

struct BenchOptions {
  ConfigOptions config;
  double size = 0;
  int workers = 0;
  bool json = false;
};

constexpr const char* kBenchFooter =
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

// CLI11 would list 24 units.
CLI::Validator ByteSize() {
  return {[as_size = CLI::AsSizeValue(true)](std::string& text) {
            try {
              std::string bytes = text;
              if (const std::string error = as_size(bytes); error.empty()) {
                text = bytes;
                return std::string();
              }
            } catch (const CLI::ValidationError&) {
            }
            return fmt::format("expected bytes, as in 400MB (10^6) or 64MiB (2^20), got {}", text);
          },
          ""};
}

// `text` is a number of bytes by now. CLI::Range would speak of "1024.000000 to 4000000000.000000".
std::string CheckModelSize(const std::string& text) {
  const double bytes = std::strtod(text.c_str(), nullptr);
  return bytes >= 1024 && bytes <= 4e9 ? "" : "expected 1KiB to 4GB, got " + text + " bytes";
}

void DescribeBench(CLI::App& command, BenchOptions& options) {
  CLI::Option* const size =
      command
          .add_option("--size", options.size,
                      "Bytes of the model's weights: 400MB (10^6), 64MiB (2^20); default: 32MiB")
          ->type_name("BYTES")
          ->transform(ByteSize())
          ->check(CheckModelSize);
  CLI::Option* const model =
      command
          .add_option("--model", options.config.config,
                      "The config of a run: its network, optimizer, workers and server threads")
          ->type_name("CONFIG")
          ->excludes(size);
  options.config.AddSet(command, "Any setting of that config; may be repeated")->needs(model);
  command.add_option("--workers", options.workers, "Worker processes; default: 2")
      ->type_name("N")
      ->check(WholeNumber(1, 64));
  command.add_flag("--json", options.json, "Print one JSON object instead");
  command.footer(kBenchFooter);
}

int DoBench(const BenchOptions& options) {
  return RunBench({.update_program = Sibling("update_bench"),
                   .sync_program = Sibling("sync_bench"),
                   .size = options.size,
                   .config_path = options.config.path(),
                   .settings = options.config.settings(),
                   .workers = options.workers,
                   .json = options.json});
}

}  // namespace

void AddBench(CLI::App& app, Action& action) {
  AddCommand<BenchOptions>(app, action, "bench",
                           "Measure how fast this machine averages and updates", DescribeBench,
                           DoBench);
}

}  // namespace muster
