// The signals that ask for an orderly stop: which they are, who obeys them, and what a child gets.
#pragma once

#include <sys/signalfd.h>

#include <array>
#include <csignal>
#include <initializer_list>
#include <optional>
#include <string>

#include "common/base/error.h"
#include "common/base/fd.h"

namespace muster {

// SIGHUP belongs to them: a terminal that closes sends it, and so does a service manager to all
// processes of a session that ends, just after SIGTERM.
inline constexpr std::array kStopSignals{SIGINT, SIGTERM, SIGHUP};

// Whether this process ignores the signal. If it has not asked for that itself, its parent has:
// nohup ignores SIGHUP for its program, and a shell script SIGINT for a background job.
bool IsIgnored(int signal);

// Blocks the stop signals and `others`, and returns a nonblocking signalfd that delivers them. A
// stop signal that the parent left ignored stays ignored. Call it before other threads exist,
// because they inherit the mask. Throws Error(kFailure).
UniqueFd ReceiveSignals(std::initializer_list<int> others, sigset_t* before = nullptr);
// The next pending signal of such a descriptor, if any.
std::optional<signalfd_siginfo> NextSignal(int fd);

std::string SignalName(int signal);  // "SIGTERM"
// The exit code of a process that a stop signal has stopped.
ExitCode StopCode(int signal);

// Call it between fork and exec. Unblocks all signals and undoes what a process of Muster has done
// to its own, but SIGINT, SIGHUP and SIGQUIT stay ignored if the user wanted that. SIGTERM never
// stays ignored, because the parent stops its children with it.
void RestoreSignals();

}  // namespace muster
