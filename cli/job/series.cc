#include "cli/job/series.h"

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>
#include <limits>
#include <utility>

#include "cli/job/repeat.h"
#include "cli/text/console.h"
#include "cli/text/units.h"
#include "common/base/atomic_file.h"
#include "common/base/error.h"

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

// A run that reached its end, whatever of it could be written, is followed by the next one.
bool EndsSeries(const JobOutcome& outcome) {
  if (outcome.exit_code == ExitCode::kOk) return false;
  return outcome.exit_code != ExitCode::kFailure || outcome.failure || outcome.stop_signal != 0 ||
         !outcome.summary || outcome.summary->end() != events::Summary::COMPLETED;
}

// repeat.json, of the runs so far.
class ResultsFile {
 public:
  explicit ResultsFile(const RunDir& base) : base_(base) {}

  void Write(const std::vector<RepeatedRun>& runs) {
    const std::string text = RepeatJson(runs);
    trouble_.clear();
    try {
      WriteFileAtomically(base_.RepeatPath(), text);
    } catch (const Error& error) {
      trouble_ = error.what();
    }
  }
  // Why the latest results could not be written; "" if they were.
  const std::string& trouble() const { return trouble_; }

 private:
  const RunDir& base_;
  std::string trouble_;
};

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

namespace {

// One series, from its first run to its table.
class Series {
 public:
  Series(const LaunchArguments& arguments, PreparedJob job, SignalSource& signals)
      : arguments_(arguments),
        job_(std::move(job)),
        signals_(signals),
        base_(RunDir::Make(job_.config.run().dir(), arguments.config_path)),
        results_(base_) {}

  int Run() {
    const uint64_t first_seed = job_.config.run().seed();
    try {
      CheckSeriesDir(base_, first_seed, arguments_.repeat);
    } catch (const Error&) {
      base_.Discard();  // if it is new and still empty
      throw;
    }
    for (int i = 0; i < arguments_.repeat && !ended_; ++i) {
      printed_ &=
          PrintLines({fmt::format("{}run {} of {}: seed {}", i == 0 ? "" : "\n", i + 1,
                                  arguments_.repeat, first_seed + static_cast<uint64_t>(i))});
      RunOne(first_seed + static_cast<uint64_t>(i));
      // After each run: what is there is kept, whatever becomes of the next one.
      results_.Write(runs_);
    }
    PrintTable();
    return static_cast<int>(WithOutput(exit_code_, printed_));
  }

 private:
  void RunOne(uint64_t seed) {
    job_.config.mutable_run()->set_seed(seed);
    JobResult result;
    const std::string shown = SeedDir(base_.shown(), seed);
    try {
      RunDir dir = RunDir::Open(shown);
      result = RunJob(arguments_, job_, dir, signals_);
    } catch (const Error& error) {
      if (runs_.empty()) {
        base_.Discard();  // if it is new and still empty
        throw;
      }
      PrintError(fmt::format("muster: error: {}\n", error.what()));
      ended_ = true;
      exit_code_ = error.code();
      return;
    }
    printed_ &= result.printed;
    ended_ = EndsSeries(result.outcome);
    if (exit_code_ == ExitCode::kOk || ended_) exit_code_ = result.outcome.exit_code;
    runs_.push_back({seed, shown, static_cast<int>(result.outcome.exit_code),
                     std::move(result.outcome.summary)});
  }

  void PrintTable() {
    std::vector<std::string> lines{
        "", fmt::format("{} of {}:", Plural(std::ssize(runs_), "run"), arguments_.repeat)};
    for (std::string& line : RepeatLines(runs_)) lines.push_back(std::move(line));
    if (results_.trouble().empty()) {
      lines.push_back("  in             " + base_.shown() + "/repeat.json");
    }
    if (ended_) {
      const auto left = arguments_.repeat - static_cast<int>(std::ssize(runs_));
      for (std::string& line : HowToComplete(runs_.back(), left, arguments_)) {
        lines.push_back(std::move(line));
      }
    }
    printed_ &= PrintLines(lines);
    if (results_.trouble().empty()) return;
    PrintError(fmt::format("muster: error: the results of the series could not be written: {}\n",
                           results_.trouble()));
    if (exit_code_ == ExitCode::kOk) exit_code_ = ExitCode::kFailure;
  }

  const LaunchArguments& arguments_;
  PreparedJob job_;
  SignalSource& signals_;
  RunDir base_;
  ResultsFile results_;
  std::vector<RepeatedRun> runs_;
  ExitCode exit_code_ = ExitCode::kOk;
  bool printed_ = true, ended_ = false;
};

}  // namespace

int RunSeries(const LaunchArguments& arguments, PreparedJob job, SignalSource& signals) {
  if (!job.config.run().trace_file().empty()) {
    throw Error(ExitCode::kUsage,
                "--repeat and --trace: expected one of them: a series has no single trace");
  }
  (void)LastSeed(job.config.run().seed(), arguments.repeat);
  return Series(arguments, std::move(job), signals).Run();
}

}  // namespace muster
