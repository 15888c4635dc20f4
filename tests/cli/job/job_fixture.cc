#include "tests/cli/job/job_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include "tests/base/paths.h"
#include "tests/data/test_sets.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = R"(
run { epochs: 10 batch_per_worker: 64 }
data { format: CIFAR10 preprocess { crop_height: 24 crop_width: 24 standardize: true } }
learning_rate { base: 0.1 }
cluster { on_lost_worker: ABORT }
model {
  name: "tiny"
  layer { name: "fc" dense { units: 10 } }
  layer { name: "loss" softmax_cross_entropy {} }
}
)";

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool Eventually(double seconds, const std::function<bool()>& condition) {
  double end = Now() + seconds;
  while (!condition()) {
    if (Now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

std::string Quote(const std::string& word) {
  std::string quoted = "'";
  for (char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Job::~Job() {
  if (pid_ > 0 && !reaped_) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
}

void Job::Signal(int signal) { ::kill(pid_, signal); }

void Job::Type(const std::string& keys) {
  EXPECT_EQ(::write(terminal_.get(), keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
}

std::string Job::OutSoFar() const { return ReadFile(out_path_); }

::testing::AssertionResult Job::Says(const std::string& text, double seconds) const {
  if (Eventually(seconds, [&] { return OutSoFar().find(text) != std::string::npos; })) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << "no \"" << text << "\" in:\n" << OutSoFar();
}

Finished Job::Finish(double seconds) {
  int status = 0;
  if (!Eventually(seconds, [&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; })) {
    ADD_FAILURE() << "the launcher is still running after " << seconds << " s";
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, &status, 0);
  }
  reaped_ = true;
  return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .out = ReadFile(out_path_),
          .err = ReadFile(err_path_),
          .seconds = Now() - started_};
}

JobTest::JobTest() {
  SetVariable("CUDA_VISIBLE_DEVICES", "");  // otherwise a job would use this machine's idle GPUs
  std::string pattern = fs::temp_directory_path() / "muster-launch-XXXXXX";
  dir_ = ::mkdtemp(pattern.data());
  marker_ = fs::path(dir_).filename();
  std::ofstream(config()) << kConfig;
  WriteCifar10(dir_);  // for --data .
  // Copies, not links: the launcher looks for the programs beside its own executable.
  for (auto [from, name] : {std::pair{BinPath("muster"), "muster"},
                            std::pair{BinPath("cli_fake_child"), "muster-server"},
                            std::pair{BinPath("cli_fake_child"), "muster-worker"}}) {
    std::error_code error;
    fs::create_hard_link(from, Path(name), error);
    if (error) fs::copy_file(from, Path(name));
  }
}

JobTest::~JobTest() {
  for (pid_t pid : Processes()) ::kill(pid, SIGKILL);
  std::error_code ignored;
  fs::remove_all(dir_, ignored);
}

void JobTest::Start(Job& job, const std::vector<std::string>& arguments,
                    const std::string& shell_suffix) {
  std::string command = (shell_suffix.empty() ? "exec " : "") + Quote(Path("muster"));
  for (const std::string& argument : arguments) command.append(" ").append(Quote(argument));
  Fork(job, command + shell_suffix, /*on_terminal=*/false);
}

void JobTest::StartOnTerminal(Job& job, const std::vector<std::string>& arguments) {
  std::string command = "exec " + Quote(Path("muster"));
  for (const std::string& argument : arguments) command.append(" ").append(Quote(argument));
  environment_["TERM"] = "xterm";
  Fork(job, command, /*on_terminal=*/true);
}

void JobTest::Fork(Job& job, const std::string& command, bool on_terminal) {
  std::string name = "job-" + std::to_string(jobs_++);
  job.out_path_ = Path(name + ".out");
  job.err_path_ = Path(name + ".err");
  std::vector<std::string> environment{"MUSTER_TEST_MARKER=" + marker_, "PATH=/usr/bin:/bin"};
  for (const auto& [key, value] : environment_) environment.push_back(key + "=" + value);
  std::vector<char*> variables;
  for (std::string& variable : environment) variables.push_back(variable.data());
  variables.push_back(nullptr);

  job.started_ = Now();
  int terminal = -1;
  job.pid_ = on_terminal ? ::forkpty(&terminal, nullptr, nullptr, nullptr) : ::fork();
  job.terminal_.Reset(terminal);
  if (job.pid_ > 0) return;
  int out = on_terminal ? STDOUT_FILENO
                        : ::open(job.out_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  int err = ::open(job.err_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  ::dup2(out, 1);
  ::dup2(err, 2);
  if (::chdir(dir_.c_str()) != 0) ::_exit(97);
  const char* words[] = {"bash", "-c", command.c_str(), nullptr};
  ::execve("/bin/bash", const_cast<char**>(words), variables.data());
  ::_exit(97);
}

void JobTest::Launch(Job& job, const std::vector<std::string>& more,
                     const std::string& shell_suffix) {
  std::vector<std::string> arguments{"launch", config(), "--workers", "2", "--data", "."};
  arguments.insert(arguments.end(), more.begin(), more.end());
  Start(job, arguments, shell_suffix);
}

Finished JobTest::Run(const std::vector<std::string>& arguments) {
  Job job;
  Start(job, arguments);
  return job.Finish();
}

Finished JobTest::RunLaunch(const std::vector<std::string>& more) {
  Job job;
  Launch(job, more);
  return job.Finish();
}

std::vector<std::string> JobTest::RunDirs() const {
  std::vector<std::string> dirs;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(Path("runs"), error))
    dirs.push_back(entry.path());
  std::sort(dirs.begin(), dirs.end());
  return dirs;
}

std::vector<pid_t> JobTest::Processes() const {
  std::vector<pid_t> found;
  std::string wanted = "MUSTER_TEST_MARKER=" + marker_;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    // A zombie has no environment and counts as gone.
    if (ReadFile("/proc/" + name + "/environ").find(wanted) != std::string::npos) {
      found.push_back(std::stoi(name));
    }
  }
  return found;
}

::testing::AssertionResult JobTest::Appears(const std::string& name, double seconds) const {
  if (Eventually(seconds, [&] { return fs::exists(Path(name)); })) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << name << " did not appear";
}

::testing::AssertionResult JobTest::NoProcessLeft(double seconds) const {
  if (Eventually(seconds, [&] { return Processes().empty(); })) {
    return ::testing::AssertionSuccess();
  }
  ::testing::AssertionResult failure = ::testing::AssertionFailure() << "still running:";
  for (pid_t pid : Processes()) {
    failure << " " << pid << " " << ReadFile("/proc/" + std::to_string(pid) + "/comm");
  }
  return failure;
}

}  // namespace muster::testing
