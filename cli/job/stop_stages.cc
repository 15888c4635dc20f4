#include "cli/job/stop_stages.h"

#include <algorithm>

namespace muster {
namespace {

constexpr double kGraceSeconds = 2.5;       // for the others to notice a failure by themselves
constexpr double kStartGraceSeconds = 0.5;  // the same while they may not know one another yet
constexpr double kServerFirstSeconds = 2;   // for the server to write the last line
constexpr double kLostServerSeconds = 0.4;  // for workers to end without it, and then by SIGTERM
constexpr double kTermSeconds = 1.5;        // from SIGTERM to SIGKILL
constexpr double kGiveUpSeconds = 5;        // from SIGKILL to going without the process
constexpr double kWriteSeconds = 3;         // from one word of a server that writes to the next
constexpr double kMostWriteSeconds = 300;   // for all of it

}  // namespace

void StopStages::Begin(double terminate_server_at, double terminate_all_at) {
  terminate_server_at_ = terminate_server_at;
  terminate_all_at_ = terminate_all_at;
  kill_at_ = terminate_all_at + kTermSeconds;
  give_up_at_ = kill_at_ + kGiveUpSeconds;
  wait_until_ = terminate_all_at + kMostWriteSeconds;
}

void StopStages::BeginAfterFailure(double now, bool joined) {
  Begin(kNever, now + (joined ? kGraceSeconds : kStartGraceSeconds));
}

void StopStages::BeginAtOnce(double now) {
  Begin(kNever, now);
  wait_until_ = now + kWriteSeconds;  // it may be that the server has been writing for too long
}

void StopStages::BeginWithoutServer(double now) {
  Begin(kNever, now + kLostServerSeconds);
  kill_at_ = terminate_all_at_ + kLostServerSeconds;
}

void StopStages::BeginWithServer(double now) {
  server_first_ = true;
  Begin(now, now + kServerFirstSeconds);
}

void StopStages::WaitForServer(double now) {
  const double until = std::min(now + kWriteSeconds, wait_until_);
  if (terminate_all_at_ != kNever) terminate_all_at_ = std::max(terminate_all_at_, until);
  if (kill_at_ == kNever) return;  // it has been done
  kill_at_ = std::max(kill_at_, until + kTermSeconds);
  give_up_at_ = std::max(give_up_at_, kill_at_ + kGiveUpSeconds);
}

void StopStages::Hurry(double now) {
  terminate_all_at_ = std::min(terminate_all_at_, now);
  kill_at_ = std::min(kill_at_, now + kTermSeconds);
}

void StopStages::Kill(double now) {
  kill_at_ = now;
  wait_until_ = -kNever;
}

StopStages::Due StopStages::Take(double now, bool server_gone) {
  Due due;
  if (now >= terminate_server_at_) {
    due.terminate_server = true;
    terminate_server_at_ = kNever;
  }
  const bool follow = server_first_ && server_gone && terminate_all_at_ != kNever;
  if (now >= terminate_all_at_ || follow) {
    due.terminate_all = true;
    terminate_all_at_ = kNever;
  }
  if (now >= kill_at_) {
    due.kill_all = true;
    kill_at_ = kNever;
    give_up_at_ = now + kGiveUpSeconds;
  }
  return due;
}

double StopStages::next() const {
  return std::min({terminate_server_at_, terminate_all_at_, kill_at_, give_up_at_});
}

}  // namespace muster
