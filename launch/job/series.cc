#include "launch/job/series.h"

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>
#include <limits>
#include <utility>

#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "launch/job/job_token.h"
#include "launch/job/repeat.h"
#include "launch/job/save_to.h"
#include "launch/text/console.h"
#include "launch/text/units.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

std::string SeedDir(const std::string& base, uint64_t seed) {
  return fmt::format("{}/seed-{}", base, seed);
}

// For what a run writes before its first step. Where there is, something else was wrong.
bool HasRoom(const std::string& dir) {
  constexpr size_t kBytes = 64 << 10;
  const std::string probe = fmt::format("{}/.muster-probe-{}", dir, RandomHex(4));
  try {
    WriteFileAtomically(probe, std::string(kBytes, 'x'));
  } catch (const Error&) {
    return false;
  }
  std::error_code ignored;
  fs::remove(probe, ignored);
  return true;
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
  ResultsFile(const RunDir& base, const std::string& save_to) : base_(base), save_to_(save_to) {}

  void Write(const std::vector<RepeatedRun>& runs) {
    const std::string text = RepeatJson(runs);
    trouble_.clear();
    where_ = base_.shown() + "/repeat.json";
    try {
      WriteFileAtomically(base_.RepeatPath(), text);
    } catch (const Error& error) {
      trouble_ = error.what();
      where_.clear();
      if (!save_to_.empty()) WriteElsewhere(text);
    }
  }
  // "": nowhere.
  const std::string& where() const { return where_; }
  // Why it is not in the directory of the series, as it is now; "" if it is.
  const std::string& trouble() const { return trouble_; }

 private:
  void WriteElsewhere(const std::string& text) {
    const std::string path = save_to_ + "/repeat.json";
    try {
      std::error_code ignored;  // the write says what is wrong
      fs::create_directories(save_to_, ignored);
      WriteFileAtomically(path, text);
      where_ = path;
    } catch (const Error& error) {
      trouble_ += fmt::format("; {}", error.what());
    }
  }

  const RunDir& base_;
  const std::string save_to_;
  std::string where_, trouble_;
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
        save_to_(job_.config.checkpoint().save_to().empty() ? UsualSaveTo(base_)
                                                            : job_.config.checkpoint().save_to()),
        results_(base_, save_to_) {}

  int Run() {
    const uint64_t first_seed = job_.config.run().seed();
    try {
      CheckPlaces(first_seed);
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
  void CheckPlaces(uint64_t first_seed) {
    CheckSeriesDir(base_, first_seed, arguments_.repeat);
    if (save_to_.empty()) return;
    const std::string asked = AskedSaveTo(arguments_.settings);
    const std::string shown = asked.empty() ? "checkpoint.save_to " + save_to_ : asked;
    CheckSaveToIsFree(save_to_, shown);
    for (int i = 0; i < arguments_.repeat; ++i) {
      const uint64_t seed = first_seed + static_cast<uint64_t>(i);
      CheckSaveToIsFree(SeedDir(save_to_, seed), fmt::format("{} (seed-{})", shown, seed));
    }
  }

  void RunOne(uint64_t seed) {
    job_.config.mutable_run()->set_seed(seed);
    if (!save_to_.empty()) job_.config.mutable_checkpoint()->set_save_to(SeedDir(save_to_, seed));
    JobResult result;
    std::string shown = SeedDir(base_.shown(), seed);
    try {
      try {
        RunDir dir = RunDir::Open(shown);
        result = RunJob(arguments_, job_, dir, signals_);
      } catch (const Error& error) {
        if (save_to_.empty() || runs_.empty() || HasRoom(base_.path())) throw;
        shown = SeedDir(save_to_, seed);
        result = RunIn(shown, error.what());
      }
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

  // The disk that the runs before have filled has no room for another one: its directory is then
  // the one that its weights would have gone to.
  JobResult RunIn(const std::string& place, const std::string& trouble) {
    printed_ &=
        PrintLines({fmt::format("Warning: {}; the directory of this run is {}", trouble, place)});
    RunDir dir = RunDir::Open(place);
    PreparedJob job = job_;
    job.config.mutable_checkpoint()->clear_save_to();
    return RunJob(arguments_, job, dir, signals_);
  }

  void PrintTable() {
    std::vector<std::string> lines{
        "", fmt::format("{} of {}:", Plural(std::ssize(runs_), "run"), arguments_.repeat)};
    for (std::string& line : RepeatLines(runs_)) lines.push_back(std::move(line));
    if (!results_.where().empty()) lines.push_back("  in             " + results_.where());
    if (ended_) {
      const auto left = arguments_.repeat - static_cast<int>(std::ssize(runs_));
      for (std::string& line : HowToComplete(runs_.back(), left, arguments_)) {
        lines.push_back(std::move(line));
      }
    }
    printed_ &= PrintLines(lines);
    if (results_.trouble().empty()) return;
    PrintError(fmt::format("muster: error: the results of the series are {}: {}\n",
                           results_.where().empty() ? "on no disk" : "not in its directory",
                           results_.trouble()));
    if (exit_code_ == ExitCode::kOk) exit_code_ = ExitCode::kFailure;
  }

  const LaunchArguments& arguments_;
  PreparedJob job_;
  SignalSource& signals_;
  RunDir base_;
  const std::string save_to_;  // of the series: each run has a folder of its own there
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
