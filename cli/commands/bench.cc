// `muster bench`.
#include <fmt/core.h>

#include <cstdlib>

#include "cli/bench/bench_command.h"
#include "cli/commands/options.h"
#include "common/base/leading_zero.h"

namespace muster {
namespace {

struct BenchOptions {
  ConfigOptions config;
  double size = 0;
  int workers = 0;
  bool json = false;
};

constexpr const char* kBenchFooter =
    "Takes less than a minute; run nothing else meanwhile. Measures, for 4 KB, 1 MiB, 32 MiB and "
    "the model's size:\n"
    "  the server's update, compared with the memory bandwidth (update_bench)\n"
    "  a round of push, average, update and pull between processes that compute no network "
    "(sync_bench), over shared memory and over TCP\n"
    "Compares both with the cost model in docs/DESIGN.md, and shows what they mean for the model, "
    "here and on several hosts. Every result is verified.\n"
    "\n"
    "Uses these settings of a config: the network's size, optimizer.type, cluster.workers, "
    "chunk_bytes and wire_dtype (over TCP), server.threads, io_threads and instruction_set. Does "
    "not measure clipping by norm, a moving average of the weights, RMSPROP's momentum, or more "
    "slices than workers.\n"
    "\n"
    "Examples:\n"
    "  muster bench --model configs/cifar10.txtpb\n"
    "  muster bench --size 400MB --workers 4\n"
    "\n"
    "Exit codes: 0 done; 1 a benchmark failed or is not installed; 2 command line or config.";

// Unlike CLI11's validator, this one does not list 24 units in its message.
CLI::Validator ByteSize() {
  return {[as_size = CLI::AsSizeValue(true)](std::string& text) {
            if (HasLeadingZero(text)) return LeadingZeroTrouble(text);
            try {
              std::string bytes = text;
              if (const std::string error = as_size(bytes); error.empty()) {
                text = bytes;
                return std::string();
              }
            } catch (const CLI::ValidationError&) {
            }
            return fmt::format("expected a size such as 400MB (10^6) or 64MiB (2^20), got {}",
                               text);
          },
          ""};
}

// `text` is already a number of bytes. CLI::Range would print "1024.000000 to 4000000000.000000".
std::string CheckModelSize(const std::string& text) {
  const double bytes = std::strtod(text.c_str(), nullptr);
  return bytes >= 1024 && bytes <= 4e9 ? "" : "expected 1KiB to 4GB, got " + text + " bytes";
}

void DescribeBench(CLI::App& command, BenchOptions& options) {
  CLI::Option* const size =
      command
          .add_option("--size", options.size,
                      "Size of the model's weights, such as 400MB (10^6) or 64MiB (2^20); default: "
                      "32MiB")
          ->type_name("BYTES")
          ->transform(ByteSize())
          ->check(CheckModelSize);
  CLI::Option* const model =
      command
          .add_option("--model", options.config.config,
                      "Take network, optimizer, workers and server threads from this config")
          ->type_name("CONFIG")
          ->excludes(size);
  options.config.AddSet(command, "Change any setting of that config; may be repeated")
      ->needs(model);
  command.add_option("--workers", options.workers, "Number of worker processes; default: 2")
      ->type_name("N")
      ->check(WholeNumber(1, 64));
  command.add_flag("--json", options.json, "Print a JSON object instead of text");
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
