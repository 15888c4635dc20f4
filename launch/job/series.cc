#include "launch/job/series.h"

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>
#include <limits>

#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "launch/job/repeat.h"
#include "launch/text/console.h"
#include "launch/text/units.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

std::string SeedDir(const std::string& base, uint64_t seed) {
  return fmt::format("{}/seed-{}", base, seed);
}

// Before the first run, so that a series does not end at its third.
void CheckSeriesDir(const RunDir& base, uint64_t first_seed, int repeat) {
  if (fs::exists(fs::symlink_status(base.RepeatPath()))) {
    throw Error(ExitCode::kUsage,
                "the directory {} already holds the repeat.json of another series; choose another "
                "with --run-dir, or move that series away",
                base.shown());
  }
  for (int i = 0; i < repeat; ++i) {
    RunDir::CheckUnused(SeedDir(base.shown(), first_seed + static_cast<uint64_t>(i)));
  }
}

// A series that ended early is not resumed as one: what makes up for that.
std::vector<std::string> HowToComplete(const RepeatedRun& last, int left,
                                       const LaunchArguments& arguments) {
  std::vector<std::string> lines{
      "", "A series is not resumed as a whole: how its last run goes on is said above the table."};
  if (left == 0) return lines;
  lines.emplace_back("The rest of it, with the same options otherwise:");
  lines.push_back(fmt::format("  muster launch {} --seed {} --repeat {} --run-dir ANOTHER",
                              arguments.config_path, last.seed + 1, left));
  return lines;
}

// Whether they could be printed, or nobody wanted to read them.
bool PrintLines(const std::vector<std::string>& lines) {
  Console console(STDOUT_FILENO);
  for (const std::string& line : lines) console.Print(line);
  console.Flush(60);
  return console.trouble().empty();
}

}  // namespace

uint64_t LastSeed(uint64_t first, int repeat) {
  const auto more = static_cast<uint64_t>(repeat - 1);
  if (first <= std::numeric_limits<uint64_t>::max() - more) return first + more;
  throw Error(ExitCode::kUsage, "--repeat {} and the seed {}: expected a seed of at most {}",
              repeat, first, std::numeric_limits<uint64_t>::max() - more);
}

int RunSeries(const LaunchArguments& arguments, PreparedJob job, SignalSource& signals) {
  if (!job.config.run().trace_file().empty()) {
    throw Error(ExitCode::kUsage,
                "--repeat and --trace: expected one of them: a series has no single trace");
  }
  const uint64_t first_seed = job.config.run().seed();
  const std::string save_to = job.config.checkpoint().save_to();
  (void)LastSeed(first_seed, arguments.repeat);
  RunDir base = RunDir::Make(job.config.run().dir(), arguments.config_path);
  CheckSeriesDir(base, first_seed, arguments.repeat);
  std::vector<RepeatedRun> runs;
  ExitCode exit_code = ExitCode::kOk;
  bool printed = true;
  for (int i = 0; i < arguments.repeat && exit_code == ExitCode::kOk; ++i) {
    const uint64_t seed = first_seed + static_cast<uint64_t>(i);
    job.config.mutable_run()->set_seed(seed);
    if (!save_to.empty()) job.config.mutable_checkpoint()->set_save_to(SeedDir(save_to, seed));
    printed &= PrintLines({fmt::format("{}run {} of {}: seed {}", i == 0 ? "" : "\n", i + 1,
                                       arguments.repeat, seed)});
    RunDir dir = RunDir::Open(SeedDir(base.shown(), seed));
    JobResult result;
    try {
      result = RunJob(arguments, job, dir, signals);
    } catch (const Error&) {
      base.Discard();  // if it is new and still empty
      throw;
    }
    printed &= result.printed;
    exit_code = result.outcome.exit_code;
    runs.push_back(
        {seed, dir.shown(), static_cast<int>(exit_code), std::move(result.outcome.summary)});
    // After each run: what is there is kept, whatever becomes of the next one.
    WriteFileAtomically(base.RepeatPath(), RepeatJson(runs));
  }
  std::vector<std::string> lines{
      "", fmt::format("{} of {}:", Plural(std::ssize(runs), "run"), arguments.repeat)};
  for (std::string& line : RepeatLines(runs)) lines.push_back(std::move(line));
  lines.push_back("  in             " + base.shown() + "/repeat.json");
  if (exit_code != ExitCode::kOk) {
    const auto left = arguments.repeat - static_cast<int>(std::ssize(runs));
    for (std::string& line : HowToComplete(runs.back(), left, arguments)) {
      lines.push_back(std::move(line));
    }
  }
  printed &= PrintLines(lines);
  return static_cast<int>(WithOutput(exit_code, printed));
}

}  // namespace muster
