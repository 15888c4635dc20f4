// The real programs on a tiny network and data set, in a temporary directory of the test's own.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/base/error.h"

namespace muster::testing {

// What is preloaded would come before the sanitizer's own runtime.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kCanPreload = false;
#else
inline constexpr bool kCanPreload = true;
#endif

inline int Code(ExitCode code) { return static_cast<int>(code); }

// All that is in the file; "" if it cannot be read.
std::string Slurp(const std::filesystem::path& path);

struct ProcessOptions {
  std::map<std::string, std::string> environment;  // besides the test's own
  std::string network;                             // a network namespace's file; "": the test's own
  std::map<int, rlim_t> limit;                     // RLIMIT_…, soft and hard
  uid_t user = 0;                                  // to become; 0: the test's own
};

// A process that the test started. Killed, and reaped, at the end.
class Process {
 public:
  // Output and errors go to `log`. argv[0] is the name of a built program.
  Process(const std::vector<std::string>& argv, const std::filesystem::path& log,
          const ProcessOptions& options = {});
  ~Process();
  Process(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal) const;
  // Exit code, or 128 + signal; -1 if it did not end within `seconds` (it is then killed).
  int Wait(double seconds);
  // The same after a signal.
  int EndBy(int signal, double seconds);
  std::string Log() const;
  // Whether this comes to stand in the log.
  ::testing::AssertionResult Says(const std::string& text, double seconds = 30) const;

 private:
  pid_t pid_ = -1;
  std::filesystem::path log_;
};

// A finished `muster launch`.
struct Outcome {
  int exit_code = -1;
  std::string log;
  std::vector<nlohmann::json> metrics;  // the lines of metrics.jsonl
  std::string hash() const;             // of the last line; "" if there is none
};

// The outcome of a program that must have succeeded: otherwise the test ends here.
Outcome Succeeded(Outcome outcome, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE());

class RealJob : public ::testing::Test {
 protected:
  RealJob();
  ~RealJob() override;

  // `muster launch` on the tiny config with these settings (path=value), in a new run directory.
  Outcome Launch(const std::vector<std::string>& settings, const std::string& config = "");
  // The same, still running; `name` is the run directory's.
  std::unique_ptr<Process> Start(const std::string& name, const std::vector<std::string>& settings);
  // `muster` with these arguments, to its end; the lines of `run`/metrics.jsonl, if it is given.
  Outcome Muster(std::vector<std::string> arguments, const std::string& run = "");
  // `muster launch --resume` of that run.
  Outcome GoOn(const std::string& run, const std::vector<std::string>& more = {});
  // SIGKILL to all of a run of two workers, as of a host that loses its power.
  void KillAll(const std::string& run, Process& launcher);
  // Waits until a line of metrics.jsonl says that at least `step` steps are done.
  ::testing::AssertionResult Reaches(const std::string& name, int64_t step);
  // The pid of the worker of this rank ("server": -1), from /proc.
  pid_t Find(const std::string& name, int rank) const;
  // No process that names this test's directory is left.
  ::testing::AssertionResult NothingLeft(double seconds) const;
  std::vector<nlohmann::json> Metrics(const std::string& name) const;
  std::filesystem::path Path(const std::string& name) const { return dir_ / name; }
  // A file with this text, of which the path is returned.
  std::string Write(const std::string& name, const std::string& text) const;
  // The checkpoints of a run, from the oldest to the newest.
  std::vector<std::filesystem::path> Checkpoints(const std::string& run) const;
  // The command ends with this code and a message of one line.
  void ExpectRefused(const std::vector<std::string>& arguments, ExitCode code,
                     const std::string& why);

 private:
  std::filesystem::path dir_;
  int runs_ = 0;
};

// The lines of metrics.jsonl without times.
std::vector<nlohmann::json> Curve(const std::vector<nlohmann::json>& metrics);
// The events among the lines, and all the other lines.
std::vector<nlohmann::json> Events(std::vector<nlohmann::json> metrics);
std::vector<nlohmann::json> WithoutEvents(std::vector<nlohmann::json> metrics);

// Words of a launch of the tiny config in `run`, with these settings and these words besides.
std::vector<std::string> LaunchWords(const std::string& config, const std::string& data,
                                     const std::string& run,
                                     const std::vector<std::string>& settings,
                                     const std::vector<std::string>& more = {});

bool Eventually(double seconds, const std::function<bool()>& condition);

// Whether other users may run the programs: not where the build lies below a home that is closed.
bool EveryoneMayRunThePrograms();

}  // namespace muster::testing
