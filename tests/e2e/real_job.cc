#include "tests/e2e/real_job.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "common/checkpoint/checkpoint_name.h"
#include "proto/config.pb.h"
#include "tests/base/paths.h"
#include "tests/data/test_sets.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;

// The slowdown of ThreadSanitizer.
#ifdef __SANITIZE_THREAD__
constexpr int kSlowdown = 10;
#else
constexpr int kSlowdown = 1;
#endif

// Every kind of layer and of random choice, slices of unequal sizes and a short last batch.
constexpr const char* kTinyConfig = R"(
run { epochs: 2 global_batch: 50 slices: 4 log_every_steps: 1 }
data {
  format: CIFAR10
  preprocess {
    crop_height: 12 crop_width: 12 flip: true brightness: 63 contrast_min: 0.2 contrast_max: 1.8
    standardize: true
  }
}
model {
  layer { name: "conv" conv2d { filters: 8 kernel: 3 padding: SAME weights { weight_decay: 0.01 } } }
  layer { name: "relu" relu {} }
  layer { name: "pool" max_pool { kernel: 3 stride: 2 padding: SAME } }
  layer { name: "norm" lrn { depth_radius: 2 alpha: 0.001 beta: 0.75 } }
  layer { name: "flat" flatten {} }
  layer { name: "hidden" dense { units: 16 } }
  layer { name: "relu2" relu {} }
  layer { name: "drop" dropout { rate: 0.3 } }
  layer { name: "out" dense { units: 10 } }
  layer { name: "loss" softmax_cross_entropy {} }
}
optimizer { type: MOMENTUM }
learning_rate { base: 0.01 }
evaluation { batch: 16 }
cluster { workers: 2 chunk_bytes: 1024 }
worker { threads: 1 }
)";

}  // namespace

std::string Slurp(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<nlohmann::json> Curve(const std::vector<nlohmann::json>& metrics) {
  std::vector<nlohmann::json> lines;
  for (const nlohmann::json& line : metrics) {
    nlohmann::json kept;
    for (const char* key :
         {"step", "samples", "epoch", "learning_rate", "train_loss", "train_accuracy", "loss_steps",
          "test_accuracy", "test_loss", "best_step", "final", "reason", "stopped_early",
          "weights_hash", "decision", "stop_reason", "scalars", "test_scalars",
          "validation_scalars"}) {
      if (line.contains(key)) kept[key] = line[key];
    }
    lines.push_back(std::move(kept));
  }
  return lines;
}

std::vector<nlohmann::json> Events(std::vector<nlohmann::json> metrics) {
  std::erase_if(metrics, [](const nlohmann::json& line) { return !line.contains("event"); });
  return metrics;
}

std::vector<nlohmann::json> WithoutEvents(std::vector<nlohmann::json> metrics) {
  std::erase_if(metrics, [](const nlohmann::json& line) { return line.contains("event"); });
  return metrics;
}

std::vector<std::string> LaunchWords(const std::string& config, const std::string& data,
                                     const std::string& run,
                                     const std::vector<std::string>& settings,
                                     const std::vector<std::string>& more) {
  std::vector<std::string> words{"muster", "launch", config, "--data", data, "--run-dir", run};
  for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

bool Eventually(double seconds, const std::function<bool()>& condition) {
  const auto end =
      std::chrono::steady_clock::now() + kSlowdown * std::chrono::duration<double>(seconds);
  // Polls less often as time passes. A condition may read all of /proc, which takes time from the
  // processes that it waits for.
  auto pause = std::chrono::milliseconds(2);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause + pause / 2, std::chrono::milliseconds(25));
  }
  return true;
}

Process::Process(const std::vector<std::string>& argv, const fs::path& log,
                 const ProcessOptions& options)
    : log_(log) {
  std::vector<std::string> words = argv;
  if (!words[0].starts_with("/")) words[0] = BinPath(words[0]);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ == 0) {
    const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    ::dup2(fd, STDOUT_FILENO);
    ::dup2(fd, STDERR_FILENO);
    for (const auto& [name, value] : options.environment) ::setenv(name.c_str(), value.c_str(), 1);
    if (!options.network.empty()) {
      const int network = ::open(options.network.c_str(), O_RDONLY | O_CLOEXEC);
      if (::setns(network, CLONE_NEWNET) != 0) ::_exit(126);
    }
    for (const auto& [resource, most] : options.limit) {
      const rlimit limit{most, most};
      ::setrlimit(static_cast<__rlimit_resource>(resource), &limit);
    }
    if (options.user != 0 && ::setresuid(options.user, options.user, options.user) != 0) {
      ::_exit(126);
    }
    ::execv(pointers[0], pointers.data());
    ::_exit(127);
  }
}

Process::~Process() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Process::Signal(int signal) const { ::kill(pid_, signal); }

int Process::Wait(double seconds) {
  int status = 0;
  if (!Eventually(seconds, [&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; })) return -1;
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int Process::EndBy(int signal, double seconds) {
  Signal(signal);
  return Wait(seconds);
}

std::string Process::Log() const { return Slurp(log_); }

::testing::AssertionResult Process::Says(const std::string& text, double seconds) const {
  if (Eventually(seconds, [&] { return Log().find(text) != std::string::npos; })) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << "\"" << text << "\" did not appear: " << Log();
}

std::string Outcome::hash() const {
  return metrics.empty() ? "" : metrics.back().value("weights_hash", "");
}

Outcome Succeeded(Outcome outcome, const char* file, int line) {
  if (outcome.exit_code == 0) return outcome;
  throw std::runtime_error(
      fmt::format("{}:{}: exit code {}: {}", file, line, outcome.exit_code, outcome.log));
}

RealJob::RealJob() {
  std::string pattern = (fs::temp_directory_path() / "muster-e2e-XXXXXX").string();
  dir_ = ::mkdtemp(pattern.data());
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);  // otherwise a job would use idle GPUs
  ::setenv("HOME", dir_.c_str(), 1);  // where a run saves files that do not fit into its directory
  WriteCifar10(Path("data"), 60, 40);
  std::ofstream(Path("tiny.txtpb")) << kTinyConfig;
}

RealJob::~RealJob() {
  std::error_code error;
  fs::remove_all(dir_, error);
}

std::string RealJob::Write(const std::string& name, const std::string& text) const {
  std::ofstream(Path(name)) << text;
  return Path(name);
}

std::vector<fs::path> RealJob::Checkpoints(const std::string& run) const {
  std::vector<fs::path> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(Path(run) / "checkpoints", none)) {
    if (ParseCheckpointName(entry.path().filename())) found.push_back(entry.path());
  }
  std::ranges::sort(found);
  return found;
}

void RealJob::ExpectRefused(const std::vector<std::string>& arguments, ExitCode code,
                            const std::string& why) {
  const Outcome outcome = Muster(arguments);
  EXPECT_EQ(outcome.exit_code, Code(code)) << outcome.log;
  EXPECT_NE(outcome.log.find(why), std::string::npos) << outcome.log;
  EXPECT_EQ(std::ranges::count(outcome.log, '\n'), 1) << outcome.log;
}

Outcome RealJob::GoOn(const std::string& run, const std::vector<std::string>& more) {
  std::vector<std::string> arguments{"launch", "--resume", Path(run)};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return Muster(arguments, run);
}

void RealJob::KillAll(const std::string& run, Process& launcher) {
  launcher.Signal(SIGSTOP);  // so that it cannot clean up
  for (const int rank : {-1, 0, 1}) {
    if (const pid_t pid = Find(run, rank); pid > 0) ::kill(pid, SIGKILL);
  }
  launcher.Signal(SIGKILL);
  EXPECT_EQ(launcher.Wait(20), 128 + SIGKILL);
  EXPECT_TRUE(NothingLeft(10));
}

std::unique_ptr<Process> RealJob::Start(const std::string& name,
                                        const std::vector<std::string>& settings) {
  return std::make_unique<Process>(
      LaunchWords(Path("tiny.txtpb"), Path("data"), Path(name), settings), Path(name + ".log"));
}

Outcome RealJob::Launch(const std::vector<std::string>& settings, const std::string& config) {
  const std::string name = "run" + std::to_string(runs_++);
  std::unique_ptr<Process> process;
  if (config.empty()) {
    process = Start(name, settings);
  } else {
    process = std::make_unique<Process>(
        std::vector<std::string>{"muster", "launch", config, "--run-dir", Path(name)},
        Path(name + ".log"));
  }
  Outcome outcome;
  outcome.exit_code = process->Wait(150);
  outcome.log = process->Log();
  outcome.metrics = Metrics(name);
  return outcome;
}

Outcome RealJob::Muster(std::vector<std::string> arguments, const std::string& run) {
  arguments.insert(arguments.begin(), "muster");
  Process process(arguments, Path("muster" + std::to_string(runs_++) + ".log"));
  Outcome outcome;
  outcome.exit_code = process.Wait(150);
  outcome.log = process.Log();
  if (!run.empty()) outcome.metrics = Metrics(run);
  return outcome;
}

std::vector<nlohmann::json> RealJob::Metrics(const std::string& name) const {
  std::vector<nlohmann::json> lines;
  std::istringstream text(Slurp(Path(name) / "metrics.jsonl"));
  for (std::string line; std::getline(text, line);) {
    if (text.eof()) break;  // an incomplete line
    lines.push_back(nlohmann::json::parse(line));
  }
  return lines;
}

::testing::AssertionResult RealJob::Reaches(const std::string& name, int64_t step) {
  const bool reached = Eventually(30, [&] {
    const std::string text = Slurp(Path(name) / "metrics.jsonl");
    const size_t end = text.rfind('\n');  // the rest is incomplete
    if (end == text.npos) return false;
    const size_t before = end == 0 ? text.npos : text.rfind('\n', end - 1);
    const size_t begin = before == text.npos ? 0 : before + 1;
    const auto last = nlohmann::json::parse(text.substr(begin, end - begin));
    return last.value("step", int64_t{-1}) >= step;  // events have none
  });
  if (reached) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "step " << step << " not reached: " << Slurp(Path(name + ".log"));
}

pid_t RealJob::Find(const std::string& name, int rank) const {
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string pid = entry.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string command = Slurp(entry.path() / "cmdline");
    if (command.find(Path(name).string() + "/config.txtpb") == std::string::npos) continue;
    const std::string wanted = rank < 0
                                   ? std::string("muster-server")
                                   : std::string("--rank") + '\0' + std::to_string(rank) + '\0';
    if (command.find(wanted) != std::string::npos) return std::stoi(pid);
  }
  return -1;
}

::testing::AssertionResult RealJob::NothingLeft(double seconds) const {
  std::string left;
  const bool gone = Eventually(seconds, [&] {
    left.clear();
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const std::string pid = entry.path().filename();
      if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
      // A zombie has no command line and counts as gone.
      if (Slurp(entry.path() / "cmdline").find(dir_.string()) != std::string::npos)
        left += pid + " ";
    }
    return left.empty();
  });
  if (gone) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "still running: " << left;
}

std::string ProgramInPath(const std::string& name) {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(std::string(path == nullptr ? "/usr/bin:/bin" : path) + ":/usr/sbin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (::access((folder + "/" + name).c_str(), X_OK) == 0) return folder + "/" + name;
  }
  return "";
}

bool EveryoneMayRunThePrograms() {
  for (fs::path path = BinDir(); path.has_relative_path(); path = path.parent_path()) {
    if ((fs::status(path).permissions() & fs::perms::others_exec) == fs::perms::none) return false;
  }
  return true;
}

}  // namespace muster::testing
