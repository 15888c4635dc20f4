// Finds the cause of a failed job. Pure functions.
//
// When one process ends, the others follow: the server notices within milliseconds, and every
// worker that then ends with kPeerFailed is only a victim. The cause is the first process that
// ended by itself with anything else.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/process/child_process.h"
#include "common/base/error.h"
#include "proto/events.pb.h"

namespace muster {

// The ranks of processes that are not workers.
inline constexpr int kServerRank = -1;
inline constexpr int kSrunRank = -2;  // the srun that carries all workers of a Slurm job

// A process of the job that has ended.
struct EndedProcess {
  int rank = kServerRank;
  pid_t pid = 0;
  ChildEnd end;
  std::string lost_host = {};    // with which it was lost; "" if it ended by itself
  std::string not_started = {};  // why its host could not start it
  bool never_asked = false;      // a program that never joined the job
};

// Returns the index in `ended` of the process that failed first; empty if each process was told to
// end or was a victim. `ended` is in the order in which the processes ended. `reported_rank` is the
// worker that the server blames, or -1. It decides between processes that ended at the same moment,
// and whether a worker that ended with exit code 0 left too early.
std::optional<size_t> FindCause(const std::vector<EndedProcess>& ended, int reported_rank);

// The signal that killed the server; empty if it ended otherwise, or was told to end.
std::optional<int> SignalOfServer(const std::vector<EndedProcess>& ended);

// "rank 1 (pid 4242)", "server (pid 4241)", "srun (pid 4243)"
std::string Name(int rank, pid_t pid);

// "rank 1 on b at step 57 …: lost the host b: …" or "rank 1 (pid 4242) was killed by SIGKILL at
// step 57 of 3,910 …". `at` is "" or " at step …"; `words` is the error that the process reported
// itself, or "".
std::string DescribeEnd(const EndedProcess& ended, const std::string& at,
                        const std::string& words = "");

// "killed by SIGKILL", "crashed with SIGSEGV", "ended with exit code 1"
std::string EndText(const ChildEnd& end);

// The launcher's exit code for a cause: kProcessDied for a signal or an unknown code.
ExitCode CodeOf(const ChildEnd& end);

// The meaning of an exit code, in a few words.
std::string Meaning(ExitCode code);

// The processes that were still running when the first failure was noticed.
struct Observed {
  struct Process {
    int rank;
    pid_t pid;
  };
  std::vector<Process> stopped;  // by SIGSTOP or a debugger: they cannot answer
  pid_t server_pid = 0;
  double server_silent_s = 0;  // 0: it had sent an event recently

  bool IsStopped(int rank) const;  // -1: the server
  bool ServerIsStuck() const;
};

// Describes a stuck server: "server (pid 4241) has been silent for 23 s at step 57 of 3,910; it is
// stopped (SIGSTOP?), and so are ranks 0 and 1".
std::string DescribeSilence(const Observed& observed, const std::string& at);

// The failure that the server reports. An unknown exit code becomes kProcessDied.
JobFailure FailureOf(const events::Failure& reported);

// The cause of a failed job. The log of failure.rank is the one to show.
struct FailureCause {
  JobFailure failure;
  bool in_server_words = false;  // the failure is the server's own report
  bool server_is_stuck = false;
};

// Finds the cause. A process that gave up waiting for a stuck server is a victim, too. `reported`
// is the server's report, if it sent one. `words_of` finds the error that a process wrote to its
// log.
FailureCause FindFailureCause(const std::vector<EndedProcess>& ended, const Observed& observed,
                              const std::optional<JobFailure>& reported, const std::string& at,
                              const std::function<std::string(int rank)>& words_of);

}  // namespace muster
