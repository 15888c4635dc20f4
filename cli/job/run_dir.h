// The directory of one run: config.txtpb, metrics.jsonl, server.log, worker-<rank>.log and
// checkpoints/.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "proto/events.pb.h"

namespace muster {

// A directory that belongs to this process: it is locked for as long as the object lives, so no
// other launcher writes into it. All failures throw Error(kUsage) with the path and what to do.
class RunDir {
 public:
  // Makes <parent>/<name>-<YYYYmmdd-HHMMSS>, or the same with -2, -3 … where that is taken. mkdir
  // decides, so two jobs of the same second get two directories.
  static RunDir CreateNew(const std::string& parent, const std::string& name, std::time_t now);

  // Uses `path`, made where it is missing. Refused where it holds another run's metrics.jsonl or
  // checkpoints, or another launcher is using it. A metrics.jsonl without a line is of a run that
  // failed before it began, and is removed.
  static RunDir Open(const std::string& path);

  // The directory of a run that is to go on. Refused where there is none, or another launcher is
  // using it.
  static RunDir Resume(const std::string& path);

  // Opens `asked`; where that is empty makes a new one below runs/, named after the config.
  static RunDir Make(const std::string& asked, const std::string& config_path);

  // Throws as Open would for another run's metrics.jsonl; makes and removes nothing.
  static void CheckUnused(const std::string& path);

  const std::string& path() const { return path_; }    // absolute
  const std::string& shown() const { return shown_; }  // as a person in this directory types it

  std::string ConfigPath() const { return path_ + "/config.txtpb"; }
  std::string MetricsPath() const { return path_ + "/metrics.jsonl"; }
  std::string RepeatPath() const { return path_ + "/repeat.json"; }
  std::string ServerLogPath() const { return path_ + "/server.log"; }
  std::string WorkerLogPath(int rank) const;
  // What each process writes of a trace (run.trace_file) when it ends; the server's first.
  std::vector<std::string> TraceParts(int workers) const;
  // The locks of the launcher and of the server.
  std::string LockPath() const { return path_ + "/.launcher.lock"; }
  std::string ServerLockPath() const { return path_ + "/.server.lock"; }
  std::string TokenPath() const { return path_ + "/token"; }  // of a server started by hand

  // The names of those of a run's files (config, metrics, logs; those of `workers` workers are
  // here; the weights that `summary` names) that somebody has taken away. Asked of a run that has
  // begun.
  std::vector<std::string> MissingFiles(int workers, const events::Summary& summary) const;
  // A run has written a line of metrics here, so no other one will use this directory.
  bool IsUsed() const;

  // Whether somebody has moved the directory meanwhile. Then path() and shown() are where it is
  // now.
  bool Follow();

  // The server of a new run was lost before its first checkpoint: takes away what would be in the
  // way of the next one, which begins anew. Logs stay, since they say why; the rest is written
  // again.
  void ForgetAttempt() const;

  // Takes back a directory that this object made, when the job could not start after all.
  void Discard();

 private:
  RunDir(std::string shown, bool created, bool goes_on = false);

  std::string path_, shown_;
  bool created_;
  std::unique_ptr<FileLock> lock_;
};

// The name of a run of this config file: its stem, or, for the config.txtpb of an earlier run
// directory, that directory's name without its date. configs/cifar10.txtpb -> cifar10,
// runs/cifar10-20250131-120000/config.txtpb -> cifar10.
std::string RunName(const std::string& config_path);

// The files of a run that left no checkpoint, put aside so that it can begin anew in its place:
// moves them into DIR/attempt-N, but for `input`, the weights that the run begins with. What a run
// does not write stays. Returns that folder's name. Throws Error(kUsage).
std::string PutAside(const RunDir& dir, const std::string& input);

}  // namespace muster
