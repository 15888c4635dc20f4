// A supervisor that gets its events from the test, with fake members and a fake clock.
#pragma once

#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <optional>
#include <utility>

#include "cli/job/supervisor.h"
#include "common/base/fd.h"

namespace muster {

class FakeMembers : public Members {
 public:
  explicit FakeMembers(int workers) : workers_(workers) { Add(); }

  // Restores the initial state.
  void Reset() {
    states_.assign(1, {});
    replaced_.clear();
    sent_.clear();
  }
  void StartWorkers(const std::string& endpoint) override {
    endpoint_ = endpoint;
    if (by_srun_) return Add();
    for (int i = 0; i < workers_ && i != cannot_start_; ++i) Add();
    if (cannot_start_ >= 0) throw Error(ExitCode::kFailure, "no such program");
  }
  void Replace(int rank) override {
    if (not_for_now_) throw StartError(ExitCode::kFailure, "no such program");
    states_[MemberOf(rank)] = {};
    replaced_.push_back(rank);
  }
  size_t size() const override { return states_.size(); }
  int rank(size_t member) const override {
    return by_srun_ && member == 1 ? kSrunRank : static_cast<int>(member) - 1;
  }
  pid_t pid(size_t member) const override {
    return same_pid_ && member > 0 ? 101 : 100 + static_cast<pid_t>(member);
  }
  bool CanReplace(int rank) const override { return rank != on_lost_host_; }
  bool running(size_t member) const override { return states_[member].running; }
  bool stopped(size_t member) const override {
    return states_[member].running && states_[member].stopped;
  }
  void Signal(size_t member, int signal) override {
    if (states_[member].running) sent_.emplace_back(rank(member), signal);
  }
  void TellServerOfFailure() override { ++failures_told_; }
  std::string LastWords(int rank) const override { return "words of " + std::to_string(rank); }
  std::string LogPath(int rank) const override { return "log of " + std::to_string(rank); }

  void Stop(int rank) { states_[MemberOf(rank)].stopped = true; }
  void Gone(int rank) { states_[MemberOf(rank)].running = false; }

  const int workers_;
  int cannot_start_ = -1;
  bool not_for_now_ = false;  // a replacement
  int on_lost_host_ = -1;     // a rank
  bool same_pid_ = false;     // all workers, each on a host of its own
  bool by_srun_ = false;      // one member carries all workers
  std::string endpoint_;
  std::vector<int> replaced_;
  int failures_told_ = 0;
  std::vector<std::pair<int, int>> sent_;  // rank, signal

 private:
  struct State {
    bool running = true, stopped = false;
  };
  static size_t MemberOf(int rank) { return rank == kSrunRank ? 1 : static_cast<size_t>(rank + 1); }
  void Add() { states_.emplace_back(); }
  std::vector<State> states_;
};

// Two workers. The clock starts at 1,000 s. Each verb advances it and informs the supervisor.
class SupervisorTest : public ::testing::Test {
 protected:
  static constexpr int kServer = -1;

  SupervisorTest() {
    plan_.endpoint = "planned";
    cluster_.set_workers(2);
    cluster_.set_on_lost_worker(config::Cluster::ABORT);  // the default for tests
    config_.mutable_deadlines()->set_start_s(60);
    config_.mutable_deadlines()->set_silence_s(20);
  }

  // Starts another job at the same time.
  void Anew() {
    members_.Reset();
    supervisor_.emplace(plan_, members_, display_, now_);
  }
  void Tell(const events::Event& event) { supervisor_->OnEvent(event, now_); }
  void Listening(const std::string& endpoint = "here") {
    events::Event event;
    event.mutable_listening()->set_endpoint(endpoint);
    Tell(event);
  }
  void Started() {
    events::Event event;
    event.mutable_started()->set_total_steps(10);
    Tell(event);
  }
  void AtStep(int64_t step) {
    events::Event event;
    event.mutable_progress()->mutable_at()->set_step(step);
    Tell(event);
  }
  void Beat() {
    events::Event event;
    event.mutable_beat();
    Tell(event);
  }
  void Saving() {
    events::Event event;
    event.mutable_saving();
    Tell(event);
  }
  void Changed(events::MemberChange::Kind kind, uint32_t rank) {
    events::Event event;
    event.mutable_member_change()->set_kind(kind);
    event.mutable_member_change()->set_rank(rank);
    event.mutable_member_change()->set_pid(101 + rank);
    Tell(event);
  }
  void Completed() {
    events::Event event;
    event.mutable_summary()->set_end(events::Summary::COMPLETED);
    event.mutable_summary()->set_steps(10);
    Tell(event);
  }
  void ServerFails(const std::string& what, int exit_code, std::optional<uint32_t> rank = {}) {
    events::Event event;
    event.mutable_failure()->set_what(what);
    event.mutable_failure()->set_exit_code(exit_code);
    if (rank) event.mutable_failure()->set_rank(*rank);
    Tell(event);
  }
  void Running() {
    Listening();
    Started();
    AtStep(5);
  }

  void Ends(int rank, ChildEnd end) {
    members_.Gone(rank);
    supervisor_->OnEnds({{rank, 101 + rank, end, ends_with_host_}}, now_);
  }
  void Exits(int rank, int code) { Ends(rank, {.value = code}); }
  void Exits(int rank, ExitCode code) { Exits(rank, static_cast<int>(code)); }
  void Signalled(int number, bool from_terminal = false) {
    supervisor_->OnSignal({number, from_terminal}, now_);
    supervisor_->Check(now_);
  }
  // Lets time pass without events, with a check every 0.1 s.
  void Pass(double seconds) {
    for (const double end = now_ + seconds; now_ < end - 1e-9;) {
      now_ = std::min(end, now_ + 0.1);
      supervisor_->Check(now_);
    }
  }
  // The signals sent since the last call.
  std::vector<std::pair<int, int>> Sent() { return std::exchange(members_.sent_, {}); }
  bool Over() const { return supervisor_->Over(now_); }
  JobOutcome Outcome() const { return supervisor_->Outcome(); }

  std::string Said() const {
    std::string text(4096, '\0');
    text.resize(static_cast<size_t>(::pread(said_.get(), text.data(), text.size(), 0)));
    return text;
  }

  static std::vector<std::pair<int, int>> ToAll(int signal) {
    return {{kServer, signal}, {0, signal}, {1, signal}};
  }

  double now_ = 1000;
  std::string ends_with_host_;  // the lost host of workers that end, or ""
  config::Config config_;
  config::Cluster& cluster_ = *config_.mutable_cluster();
  JobPlan plan_{.dir = nullptr, .config = &config_};
  FakeMembers members_{2};
  UniqueFd said_{::memfd_create("said", MFD_CLOEXEC)};
  Console console_{said_.get()};
  JobDisplay display_{console_, plan_};
  std::optional<Supervisor> supervisor_{std::in_place, plan_, members_, display_, now_};
};

}  // namespace muster
