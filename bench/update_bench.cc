// Measures only the server's fused update: tree sum of the parts, optimizer, new weights.
// Alternates with the limit, which is a plain loop over the same number of arrays (memory_limit.h).
//
//   update_bench [--size 4096,104857600] [--parts 1,2,8] [--optimizer MOMENTUM,ADAM]
//                [--threads 1,2] [--instruction-set AUTO,SCALAR] [--json]
//
// Measures every combination after verifying it, by comparing every weight after a few updates with
// the optimizer's formula in double precision.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/fused_update_run.h"
#include "bench/memory_limit.h"
#include "bench/team.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/program_options.h"
#include "common/base/text.h"
#include "common/config/update_settings.h"
#include "ps/update/choose_kernels.h"
#include "ps/update/update.h"

namespace muster::bench {
namespace {

struct Options {
  std::vector<size_t> bytes{4096, 65536, 1 << 20, 4 << 20, 32 << 20, 100 << 20};
  std::vector<int> parts{2};
  std::vector<std::string> optimizers{"MOMENTUM"};
  std::vector<int> threads{1, 2};
  std::vector<std::string> instruction_sets{"AUTO"};
  std::string stream = "AUTO";
  bool keep_previous = false;
  double seconds = 0.5;
  bool json = false;
};

struct Case {
  size_t bytes;
  int parts;
  std::string optimizer;
  int threads;
};

template <typename Enum, typename Parse>
Enum Named(const std::string& name, const char* option, const std::string& expected, Parse parse) {
  Enum value;
  if (!parse(name, &value)) {
    throw Error(ExitCode::kUsage, "{} {}: expected {}", option, name, expected);
  }
  return value;
}

struct Samples {
  const UpdateKernelTable* kernels;
  std::vector<double> seconds, ratios;
};

// Alternates one pass of each version with one pass of the limit, for about `budget` seconds.
void Measure(FusedUpdateRun& run, MemoryLimit& limit, double budget, std::vector<Samples>& versions,
             std::vector<double>& limits) {
  constexpr double kSample = 1e-3;
  const double once = std::max(run.Seconds(*versions.back().kernels), 1e-8);
  const int repeats = static_cast<int>(std::clamp(kSample / once, 1.0, 1e5));
  const size_t least = budget > 0 ? 7 : 1;
  for (double spent = 0; spent < budget || limits.size() < least;) {
    limits.push_back(limit.Seconds(repeats));
    spent += limits.back() * repeats;
    for (Samples& version : versions) {
      version.seconds.push_back(run.Seconds(*version.kernels, repeats));
      version.ratios.push_back(limits.back() / version.seconds.back());
      spent += version.seconds.back() * repeats;
    }
  }
}

void Print(const Options& options, const Case& one, const PassShape& shape, bool stream,
           const Samples& version, double limit, double limit_min) {
  const double seconds = Median(version.seconds);
  const double ratio = Median(version.ratios);
  if (options.json) {
    const nlohmann::ordered_json result{{"bytes", one.bytes},
                                        {"parts", one.parts},
                                        {"optimizer", one.optimizer},
                                        {"threads", one.threads},
                                        {"instruction_set", version.kernels->name},
                                        {"stream", stream},
                                        {"keep_previous", options.keep_previous},
                                        {"passes", version.seconds.size()},
                                        {"p50_us", seconds * 1e6},
                                        {"min_us", std::ranges::min(version.seconds) * 1e6},
                                        {"gb_per_s", UpdateBytes(shape) / seconds / 1e9},
                                        {"limit_us", limit * 1e6},
                                        {"limit_min_us", limit_min * 1e6},
                                        {"limit_gb_per_s", UpdateBytes(shape) / limit / 1e9},
                                        {"limit_ratio", ratio},
                                        {"verified", true}};
    std::printf("%s\n", JsonText(result).c_str());
  } else {
    fmt::print(
        "{:>10} {:>5} {:<9} {:>7} {:<6} {:>12.1f} {:>8.1f} {:>12.1f} {:>8.1f} {:>6.2f} {:>6.2f}\n",
        one.bytes, one.parts, one.optimizer, one.threads, version.kernels->name, seconds * 1e6,
        UpdateBytes(shape) / seconds / 1e9, limit * 1e6, UpdateBytes(shape) / limit / 1e9, ratio,
        limit_min / std::ranges::min(version.seconds));
  }
  std::fflush(stdout);
}

void RunCase(const Options& options, const Case& one) {
  FusedUpdateOptions pass{.floats = one.bytes / sizeof(float) / 16 * 16,
                          .parts = one.parts,
                          .optimizer = {},
                          .keep_previous = options.keep_previous};
  pass.optimizer.set_type(Named<config::Optimizer::Type>(
      one.optimizer, "--optimizer", Join(OptimizerTypes(), ", "), config::Optimizer::Type_Parse));
  pass.stream = options.stream == "AUTO" ? pass.floats * sizeof(float) > kStreamBytes
                                         : options.stream == "ON";
  Team team(one.threads);
  FusedUpdateRun run(team, pass);
  std::vector<Samples> versions;
  for (const std::string& name : options.instruction_sets) {
    versions.push_back({&ChooseKernels(Named<config::Server::InstructionSet>(
                            name, "--instruction-set", "AUTO, SCALAR, AVX2 or AVX512",
                            config::Server::InstructionSet_Parse)),
                        {},
                        {}});
    const std::string wrong = run.Verify(*versions.back().kernels);
    if (!wrong.empty()) {
      throw Error(ExitCode::kFailure, "{} bytes, {} parts, {}, {} threads, {}: {}", one.bytes,
                  one.parts, one.optimizer, one.threads, versions.back().kernels->name, wrong);
    }
  }
  const Optimizer optimizer(pass.optimizer, *versions.back().kernels);
  const PassShape shape{.floats = pass.floats,
                        .gradients = one.parts,
                        .states = static_cast<int>(optimizer.state_arenas())};
  MemoryLimit limit(team, shape);
  std::vector<double> limits;
  Measure(run, limit, options.seconds, versions, limits);
  for (const Samples& version : versions) {
    Print(options, one, shape, pass.stream, version, Median(limits), std::ranges::min(limits));
  }
}

void Run(const Options& options) {
  if (!options.json) {
    fmt::print(
        "Medians. GB/s: unavoidable memory traffic of the pass; limit: a plain loop over the same "
        "number of arrays, alternating with the pass; ratio: median of limit / pass; best: ratio "
        "of "
        "the fastest of each.\nAll verified.\n\n"
        "{:>10} {:>5} {:<9} {:>7} {:<6} {:>12} {:>8} {:>12} {:>8} {:>6} {:>6}\n",
        "bytes", "parts", "optimizer", "threads", "with", "pass us", "GB/s", "limit us", "GB/s",
        "ratio", "best");
  }
  for (const size_t bytes : options.bytes) {
    for (const int parts : options.parts) {
      for (const std::string& optimizer : options.optimizers) {
        for (const int threads : options.threads) {
          RunCase(options, {bytes, parts, optimizer, threads});
        }
      }
    }
  }
}

}  // namespace
}  // namespace muster::bench

int main(int argc, char** argv) {
  muster::bench::Options options;
  muster::ProgramOptions program(
      "Measures the server's fused update and compares it with the memory bandwidth. Measures all "
      "combinations of comma-separated lists.");
  program.Add("--size", options.bytes, "Size of the weights in bytes")
      .SeparatedBy(',')
      .InRange(1024, int64_t{1} << 32);
  program.Add("--parts", options.parts, "Number of gradients to add")
      .SeparatedBy(',')
      .InRange(1, 64);
  program.Add("--optimizer", options.optimizers, "See optimizer.type; ALL: every type")
      .SeparatedBy(',');
  program.Add("--threads", options.threads).SeparatedBy(',').InRange(1, 256);
  program
      .Add("--instruction-set", options.instruction_sets,
           "See server.instruction_set; several alternate")
      .SeparatedBy(',');
  program
      .Add("--stream", options.stream,
           "Write new values past the cache: AUTO (like the server), ON or OFF")
      .OneOf({"AUTO", "ON", "OFF"});
  program.AddFlag("--keep-previous", options.keep_previous,
                  "Also keep the previous optimizer state");
  program.Add("--seconds", options.seconds, "Duration per combination; 0: verify and measure once")
      .ShowDefault();
  program.AddFlag("--json", options.json, "Print one JSON object per line");
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  if (options.optimizers.front() == "ALL") options.optimizers = muster::OptimizerTypes();
  try {
    muster::bench::Run(options);
    return 0;
  } catch (const muster::Error& error) {
    std::fprintf(stderr, "update_bench: error: %s\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "update_bench: error: out of memory\n");
    return static_cast<int>(muster::ExitCode::kFailure);
  }
}
