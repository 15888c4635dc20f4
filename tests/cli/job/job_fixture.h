// Runs the real `muster` with stand-ins for the server and the workers (fake_child.cc), in a
// temporary directory.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "common/base/fd.h"

namespace muster::testing {

// The scripts that most tests use; see fake_child.cc.
inline constexpr const char* kListen = R"(report:{"listening":{"endpoint":"@"}};)";
inline constexpr const char* kStarted =
    R"(report:{"started":{"train_samples":50000,"test_samples":10000,"steps_per_epoch":391,)"
    R"("total_steps":3910}};)";
inline constexpr const char* kProgress =
    R"(report:{"progress":{"at":{"step":57,"epoch":0.15},"total_steps":3910,"epochs":10,)"
    R"("measured":{"train_loss":1.9,"train_accuracy":0.31,"images_per_second":1200,)"
    R"("waiting_share":0.02}}};)";
inline constexpr const char* kSummary =
    R"(report:{"summary":{"end":"COMPLETED","at":{"step":3910,"samples":500000,"elapsed_s":411},)"
    R"("steps":3910,"measured":{"images_per_second":1217,"train_loss":0.78,"step_ms":100,)"
    R"("parts":{"compute_ms":80,"push_ms":5,"wait_ms":10,"pull_ms":3}},)"
    R"("test":{"accuracy":0.7132,"loss":0.84},"best_accuracy":0.715,)"
    R"("weights_hash":"00112233445566aa"}};)";

struct Finished {
  int exit_code = -1;  // 128 + the signal if one ended the launcher
  std::string out, err;
  double seconds = 0;
};

// A running launcher.
class Job {
 public:
  ~Job();  // kills it
  pid_t pid() const { return pid_; }
  void Signal(int signal);
  // Fails the test and kills the launcher if it does not end within `seconds`.
  Finished Finish(double seconds = 15);
  std::string OutSoFar() const;
  // Waits until it has printed this.
  ::testing::AssertionResult Says(const std::string& text, double seconds = 10) const;
  // Types these keys, for a job started on a terminal.
  void Type(const std::string& keys);

 private:
  friend class JobTest;
  pid_t pid_ = -1;
  std::string out_path_, err_path_;
  double started_ = 0;
  bool reaped_ = false;
  UniqueFd terminal_;
};

class JobTest : public ::testing::Test {
 protected:
  JobTest();
  ~JobTest() override;

  // Sets the environment of the next jobs.
  void Server(const std::string& script) { environment_["FAKE_SERVER"] = script; }
  void Workers(const std::string& script) { environment_["FAKE_WORKER"] = script; }
  void Worker(int rank, const std::string& script) {
    environment_["FAKE_WORKER_" + std::to_string(rank)] = script;
  }

  void SetVariable(const std::string& name, const std::string& value) {
    environment_[name] = value;
  }

  void ClearVariable(const std::string& name) { environment_.erase(name); }

  // Starts `muster` with these arguments. `shell_suffix` allows a pipe after it.
  void Start(Job& job, const std::vector<std::string>& arguments,
             const std::string& shell_suffix = "");
  // Starts the job on a terminal of its own. Its output there is not read.
  void StartOnTerminal(Job& job, const std::vector<std::string>& arguments);
  // Starts muster launch CONFIG --workers 2 --data . with more arguments.
  void Launch(Job& job, const std::vector<std::string>& more = {},
              const std::string& shell_suffix = "");
  Finished Run(const std::vector<std::string>& arguments);
  Finished RunLaunch(const std::vector<std::string>& more = {});

  std::string Path(const std::string& name) const { return dir_ + "/" + name; }
  std::string config() const { return Path("tiny.txtpb"); }
  // The run directories below runs/.
  std::vector<std::string> RunDirs() const;
  // The descendants of this test's jobs, recognized by a marker in their environment.
  std::vector<pid_t> Processes() const;
  // Waits until the file exists.
  ::testing::AssertionResult Appears(const std::string& name, double seconds = 10) const;
  ::testing::AssertionResult NoProcessLeft(double seconds = 1) const;

 private:
  void Fork(Job& job, const std::string& command, bool on_terminal);

  std::string dir_, marker_;
  std::map<std::string, std::string> environment_;
  int jobs_ = 0;
};

std::string ReadFile(const std::string& path);

}  // namespace muster::testing
