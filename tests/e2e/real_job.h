// Runs the real programs on a tiny network and data set, in a temporary directory.
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

// A preloaded library would be loaded before the sanitizer's runtime.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kCanPreload = false;
#else
inline constexpr bool kCanPreload = true;
#endif

inline int Code(ExitCode code) { return static_cast<int>(code); }

// The contents of a file, or "" if it cannot be read.
std::string Slurp(const std::filesystem::path& path);

struct ProcessOptions {
  std::map<std::string, std::string> environment;  // added to the test's own
  std::string network;                             // a network namespace's file; "": the test's own
  std::map<int, rlim_t> limit;                     // RLIMIT_…, soft and hard
  uid_t user = 0;                                  // the user to become; 0: the test's own
};

// A process started by the test. The destructor kills and reaps it.
class Process {
 public:
  // Standard output and error go to `log`. argv[0] is the name of a built program, or
  // the path of another one.
  Process(const std::vector<std::string>& argv, const std::filesystem::path& log,
          const ProcessOptions& options = {});
  ~Process();
  Process(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal) const;
  // The exit code, or 128 + signal; -1 if it did not end within `seconds` and was killed.
  int Wait(double seconds);
  // Sends a signal, then waits.
  int EndBy(int signal, double seconds);
  std::string Log() const;
  // Waits for this text in the log.
  ::testing::AssertionResult Says(const std::string& text, double seconds = 30) const;

 private:
  pid_t pid_ = -1;
  std::filesystem::path log_;
};

// The result of a finished `muster launch`.
struct Outcome {
  int exit_code = -1;
  std::string log;
  std::vector<nlohmann::json> metrics;  // the lines of metrics.jsonl
  std::string hash() const;             // of the last line, or ""
};

// Ends the test if the program failed, otherwise returns its outcome.
Outcome Succeeded(Outcome outcome, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE());

class RealJob : public ::testing::Test {
 protected:
  RealJob();
  ~RealJob() override;

  // Runs `muster launch` on the tiny config with these settings (path=value), in a new run
  // directory.
  Outcome Launch(const std::vector<std::string>& settings, const std::string& config = "");
  // The same without waiting. `name` is the run directory.
  std::unique_ptr<Process> Start(const std::string& name, const std::vector<std::string>& settings);
  // Runs `muster` with these arguments. Reads the lines of `run`/metrics.jsonl if `run` is given.
  Outcome Muster(std::vector<std::string> arguments, const std::string& run = "");
  // Runs `muster launch --resume` on that run.
  Outcome GoOn(const std::string& run, const std::vector<std::string>& more = {});
  // Sends SIGKILL to all processes of a run of two workers, as if its host lost power.
  void KillAll(const std::string& run, Process& launcher);
  // Waits until a line of metrics.jsonl reports at least `step` steps.
  ::testing::AssertionResult Reaches(const std::string& name, int64_t step);
  // Finds the PID of the worker of this rank ("server": -1) in /proc.
  pid_t Find(const std::string& name, int rank) const;
  // Expects that no process that names this test's directory is left.
  ::testing::AssertionResult NothingLeft(double seconds) const;
  std::vector<nlohmann::json> Metrics(const std::string& name) const;
  std::filesystem::path Path(const std::string& name) const { return dir_ / name; }
  // Writes a file and returns its path.
  std::string Write(const std::string& name, const std::string& text) const;
  // The checkpoints of a run, oldest first.
  std::vector<std::filesystem::path> Checkpoints(const std::string& run) const;
  // Expects this exit code and a message of one line.
  void ExpectRefused(const std::vector<std::string>& arguments, ExitCode code,
                     const std::string& why);

 private:
  std::filesystem::path dir_;
  int runs_ = 0;
};

// The lines of metrics.jsonl without times.
std::vector<nlohmann::json> Curve(const std::vector<nlohmann::json>& metrics);
// Events() returns the events among the lines, WithoutEvents() the others.
std::vector<nlohmann::json> Events(std::vector<nlohmann::json> metrics);
std::vector<nlohmann::json> WithoutEvents(std::vector<nlohmann::json> metrics);

// The command line of a launch of the tiny config in `run`, with these settings and further words.
std::vector<std::string> LaunchWords(const std::string& config, const std::string& data,
                                     const std::string& run,
                                     const std::vector<std::string>& settings,
                                     const std::vector<std::string>& more = {});

// The path of an installed program, or "".
std::string ProgramInPath(const std::string& name);

bool Eventually(double seconds, const std::function<bool()>& condition);

// Whether other users may run the programs. False if the build is below a private home directory.
bool EveryoneMayRunThePrograms();

}  // namespace muster::testing
