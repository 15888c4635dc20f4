#include "cli/job/failure.h"

#include <algorithm>
#include <csignal>

#include "cli/job/job_display.h"
#include "cli/text/units.h"
#include "common/base/signals.h"

namespace muster {
namespace {

bool IsCause(const ChildEnd& end) {
  if (end.asked) return false;
  return end.by_signal || (end.value != 0 && end.value != static_cast<int>(ExitCode::kPeerFailed));
}

bool LeftEarly(const EndedProcess& process) {
  return process.rank >= 0 && !process.end.asked && !process.end.by_signal &&
         process.end.value == 0;
}

// Whether a worker ended because its own deadline expired.
bool GaveUp(const EndedProcess& process) {
  return process.rank >= 0 && !process.end.by_signal &&
         process.end.value == static_cast<int>(ExitCode::kDeadline);
}

std::string StoppedText(const Observed& observed) {
  std::string text;
  for (const Observed::Process& process : observed.stopped) {
    text += fmt::format("; {} is stopped (SIGSTOP?)", Name(process.rank, process.pid));
  }
  return text;
}

bool IsCrash(int signal) {
  constexpr int kCrashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGTRAP};
  return std::ranges::find(kCrashes, signal) != std::end(kCrashes);
}

}  // namespace

std::optional<size_t> FindCause(const std::vector<EndedProcess>& ended, int reported_rank) {
  std::optional<size_t> first;
  for (size_t i = 0; i < ended.size(); ++i) {
    const EndedProcess& process = ended[i];
    bool reported = process.rank >= 0 && process.rank == reported_rank;
    if (reported && (IsCause(process.end) || LeftEarly(process))) return i;
    if (IsCause(process.end) && !first) first = i;
  }
  return first;
}

std::optional<int> SignalOfServer(const std::vector<EndedProcess>& ended) {
  for (const EndedProcess& process : ended) {
    if (process.rank == kServerRank && process.end.by_signal && !process.end.asked) {
      return process.end.value;
    }
  }
  return std::nullopt;
}

std::string Name(int rank, pid_t pid) {
  if (rank == kSrunRank) return fmt::format("srun (pid {})", pid);
  return rank < 0 ? fmt::format("server (pid {})", pid)
                  : fmt::format("rank {} (pid {})", rank, pid);
}

std::string DescribeEnd(const EndedProcess& ended, const std::string& at,
                        const std::string& words) {
  if (!ended.lost_host.empty()) {
    return fmt::format("rank {} on {}{}: {}", ended.rank, ended.lost_host, at,
                       words.empty() ? "lost the host" : words);
  }
  std::string who = Name(ended.rank, ended.pid);
  const ChildEnd& end = ended.end;
  if (!end.by_signal && end.value == 0) {
    if (!ended.never_asked)
      return fmt::format("{} ended{} with exit code 0 before the job was complete", who, at);
    return who +
           " ended with exit code 0 and never asked for work, so it trained alone, if at all; a "
           "program must use muster.torch, muster.keras.Strategy, muster.tensorflow, muster.numpy "
           "or client/muster.h (docs/OWN_MODEL.md)";
  }
  if (!end.by_signal) {
    return fmt::format("{} failed{} with exit code {}: {}", who, at, end.value,
                       words.empty() ? Meaning(static_cast<ExitCode>(end.value)) : words);
  }
  const char* const was = IsCrash(end.value) ? "" : "was ";
  const char* const out_of_memory =
      end.value == SIGKILL
          ? "; unless you killed it, the system probably ran out of memory (see dmesg)"
          : "";
  return fmt::format("{} {}{}{}{}", who, was, EndText(end), at, out_of_memory);
}

std::string EndText(const ChildEnd& end) {
  if (!end.by_signal) return fmt::format("ended with exit code {}", end.value);
  return fmt::format("{} {}", IsCrash(end.value) ? "crashed with" : "killed by",
                     SignalName(end.value));
}

ExitCode CodeOf(const ChildEnd& end) {
  if (end.by_signal) return ExitCode::kProcessDied;
  const auto code = static_cast<ExitCode>(end.value);
  return ExitCode::kFailure <= code && code <= ExitCode::kRefused ? code : ExitCode::kProcessDied;
}

std::string Meaning(ExitCode code) {
  switch (code) {
    case ExitCode::kOk:
      return "success";
    case ExitCode::kFailure:
      return "a failure with no specific exit code";
    case ExitCode::kUsage:
      return "wrong command line or config";
    case ExitCode::kData:
      return "a data file is missing, truncated or invalid, or no checkpoint is intact";
    case ExitCode::kNonfinite:
      return "a loss, gradient or weight was not finite";
    case ExitCode::kDeadline:
      return "a deadline expired";
    case ExitCode::kProcessDied:
      return "a worker or the server was killed or crashed";
    case ExitCode::kPeerFailed:
      return "another process of the job failed or was lost";
    case ExitCode::kRefused:
      return "a worker did not match the job";
    case ExitCode::kInterrupted:
      return "stopped by SIGINT";
    case ExitCode::kTerminated:
      return "stopped by SIGTERM or SIGHUP";
  }
  return "not an exit code of Muster";
}

bool Observed::IsStopped(int rank) const {
  return std::ranges::any_of(stopped, [&](const Process& p) { return p.rank == rank; });
}

bool Observed::ServerIsStuck() const { return server_silent_s > 0 || IsStopped(-1); }

std::string DescribeSilence(const Observed& observed, const std::string& at) {
  std::vector<uint32_t> ranks;
  const bool server = observed.IsStopped(-1);
  for (const Observed::Process& process : observed.stopped) {
    if (process.rank >= 0) ranks.push_back(static_cast<uint32_t>(process.rank));
  }
  const char* const are = ranks.size() == 1 ? "is" : "are";
  std::string text = Name(-1, observed.server_pid);
  if (observed.server_silent_s > 0) {
    text += " has been silent for " + FormatDuration(observed.server_silent_s) + at;
    if (server) text += "; it is stopped (SIGSTOP?)";
  } else {
    text += " is stopped (SIGSTOP?)" + at;
  }
  if (ranks.empty()) return text;
  return text + (server ? fmt::format(", and so {} {}", are, RankList(ranks))
                        : fmt::format("; {} {} stopped (SIGSTOP?)", RankList(ranks), are));
}

JobFailure FailureOf(const events::Failure& reported) {
  JobFailure failure{.code = CodeOf({.value = std::clamp(reported.exit_code(), 1, 255)}),
                     .what = reported.what()};
  if (reported.has_rank()) failure.rank = reported.rank();
  return failure;
}

FailureCause FindFailureCause(const std::vector<EndedProcess>& ended, const Observed& observed,
                              const std::optional<JobFailure>& reported, const std::string& at,
                              const std::function<std::string(int rank)>& words_of) {
  const int reported_rank = reported && reported->rank ? static_cast<int>(*reported->rank) : -1;
  std::optional<size_t> cause = FindCause(ended, reported_rank);
  if (observed.ServerIsStuck() && (!cause || GaveUp(ended[*cause]))) {
    return {.failure = {.code = ExitCode::kDeadline, .what = DescribeSilence(observed, at)},
            .in_server_words = true,
            .server_is_stuck = true};
  }
  bool server_found_it = !cause || (ended[*cause].rank < 0 && !ended[*cause].end.by_signal);
  if (reported && !reported->what.empty() && server_found_it) {
    JobFailure failure = *reported;
    if (cause) failure.code = CodeOf(ended[*cause].end);
    // A stopped process counts as silent, even if the server noticed it in another way.
    if (observed.IsStopped(reported_rank)) failure.code = ExitCode::kDeadline;
    failure.what += StoppedText(observed);
    return {.failure = std::move(failure), .in_server_words = true};
  }
  if (ended.empty()) return {.failure = {.what = "the server reported a failure and did not exit"}};
  const EndedProcess& process = ended[cause.value_or(0)];
  // Without a cause, every process that ended is a victim. The process that they lost may be
  // stopped or stuck.
  const char* const found = cause ? "" : "no process failed by itself; the first to give up: ";
  JobFailure failure{.code = CodeOf(process.end),
                     .what = found + DescribeEnd(process, at, words_of(process.rank))};
  if (process.rank >= 0) failure.rank = static_cast<uint32_t>(process.rank);
  return {.failure = std::move(failure)};
}

}  // namespace muster
