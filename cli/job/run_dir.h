// The directory of one run: config.txtpb, metrics.jsonl, server.log, worker-<rank>.log and
// checkpoints/.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "common/base/file_lock.h"
#include "proto/events.pb.h"

namespace muster {

// A run directory, locked while the object lives so that no other launcher writes into it. All
// failures throw Error(kUsage) with the path and what to do.
class RunDir {
 public:
  // Creates <parent>/<name>-<YYYYmmdd-HHMMSS>, with -2, -3 … appended if that exists. Two jobs
  // started in the same second get two directories, because mkdir is atomic.
  static RunDir CreateNew(const std::string& parent, const std::string& name, std::time_t now);

  // Opens `path`, and creates it if it is missing. Fails if it holds another run's metrics.jsonl or
  // checkpoints, or if another launcher is using it. Removes an empty metrics.jsonl, left by a run
  // that failed before it started.
  static RunDir Open(const std::string& path);

  // Opens the directory of a run to resume. Fails if it does not exist or another launcher is using
  // it.
  static RunDir Resume(const std::string& path);

  // Opens `asked`, which must not be inside the directory of another run; if that is empty, creates
  // a new directory below runs/, named after the config.
  static RunDir Make(const std::string& asked, const std::string& config_path);

  // Throws if the directory holds another run's files or is inside that run's directory, as Make
  // does. Creates and removes nothing.
  static void CheckUnused(const std::string& path);

  const std::string& path() const { return path_; }    // absolute
  const std::string& shown() const { return shown_; }  // as the user would type it

  std::string ConfigPath() const { return path_ + "/config.txtpb"; }
  std::string MetricsPath() const { return path_ + "/metrics.jsonl"; }
  std::string RepeatPath() const { return path_ + "/repeat.json"; }
  std::string ServerLogPath() const { return path_ + "/server.log"; }
  std::string WorkerLogPath(int rank) const;
  std::string SrunLogPath() const { return path_ + "/srun.log"; }
  std::string RelayLogPath() const { return path_ + "/relay.log"; }
  std::string SshLogPath() const { return path_ + "/ssh.log"; }
  // The parts of a trace (run.trace_file), written by each process when it ends; the server's
  // first.
  std::vector<std::string> TraceParts(int workers) const;
  // The locks of the launcher and of the server.
  std::string LockPath() const { return path_ + "/.launcher.lock"; }
  std::string ServerLockPath() const { return path_ + "/.server.lock"; }
  std::string TokenPath() const { return path_ + "/token"; }  // of a server started by hand

  // The names of missing files: the config, the metrics, the events, the logs of the server and of
  // `workers` workers, and the weights that `summary` names. Only for a run that has started.
  std::vector<std::string> MissingFiles(int workers, const events::Summary& summary) const;
  // Whether a run has written a line of metrics here. No other run will use the directory then.
  bool IsUsed() const;

  // Returns whether the directory was moved, and updates path() and shown() to its new place.
  bool Follow();

  // Prepares a restart from the beginning, after the server was lost before the first checkpoint:
  // removes what the next server would reject. Logs stay, because they show the cause; the next
  // server overwrites the rest.
  void ForgetAttempt() const;

  // Removes the directory if this object created it, after the job failed to start.
  void Discard();

 private:
  RunDir(std::string shown, bool created, bool goes_on = false);

  std::string path_, shown_;
  bool created_;
  std::unique_ptr<FileLock> lock_;
};

// The name for a run of this config file: its stem or, for the config.txtpb of an earlier run, the
// name of that run's directory without the date. configs/cifar10.txtpb -> cifar10,
// runs/cifar10-20250131-120000/config.txtpb -> cifar10.
std::string RunName(const std::string& config_path);

// Archives the files of a run that left no checkpoint, so that it can start over: moves them to
// DIR/attempt-N, except `input`, the initial weights of the run. Files that a run does not write
// stay. Returns the name of that folder. Throws Error(kUsage).
std::string PutAside(const RunDir& dir, const std::string& input);

}  // namespace muster
