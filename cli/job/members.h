// The processes of a job on this host, as the supervisor sees them.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>

namespace muster {

// In the order in which they were started: 0 is the server. Tests have members that are no
// processes.
class Members {
 public:
  virtual ~Members() = default;

  // Called once, when the server listens. Throws Error where one cannot be started; those before it
  // are members then.
  virtual void StartWorkers(const std::string& endpoint) = 0;

  // The worker of this rank has ended: another one takes its place. Throws Error.
  virtual void Replace(int rank) = 0;

  virtual size_t size() const = 0;
  virtual int rank(size_t member) const = 0;  // -1: the server
  virtual pid_t pid(size_t member) const = 0;
  virtual bool running(size_t member) const = 0;
  virtual bool stopped(size_t member) const = 0;  // by SIGSTOP or a debugger; it still runs
  // Nothing happens to one that has ended.
  virtual void Signal(size_t member, int signal) = 0;
  // Should the server be stopped from now on, its run has failed: nobody wished it to end.
  virtual void TellServerOfFailure() = 0;

  // What the process of this rank (-1: the server) last said about its failure, or "".
  virtual std::string LastWords(int rank) const = 0;
  // The file to show for it; the server's for a worker that is no member.
  virtual std::string LogPath(int rank) const = 0;
};

}  // namespace muster
