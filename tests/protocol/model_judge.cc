// The conditions that hold in every state (docs/MODEL.md).
#include <fmt/core.h>

#include <algorithm>

#include "common/base/error.h"
#include "tests/protocol/model_world.h"

namespace muster::testing {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// A server that waits for workers gives up after deadlines.start_s.
constexpr std::chrono::seconds kPatience{210};
// The longest wait for a Goodbye.
constexpr std::chrono::seconds kGoodbyes{1};

// A poison slice ends the run, which is not an error of the server.
bool IsKiller(const std::string& failure) {
  return failure.find("killed 3 workers") != std::string::npos;
}

}  // namespace

ModelWorker::Names ModelWorld::Names() const {
  return [this](uint64_t order) { return probe_->NameOf(order); };
}

std::string ModelWorld::Text() const {
  std::string text = probe_->Text();
  std::vector<std::string> workers;
  for (const auto& worker : workers_) {
    if (worker->ended()) continue;
    const auto rank = probe_->roster().RankOf(PeerOf(*worker));
    const uint32_t incarnation = rank ? probe_->roster().at(*rank).incarnation : 0;
    workers.push_back(worker->Text(Names(), incarnation));
  }
  std::ranges::sort(workers);
  for (const std::string& worker : workers) text += worker;
  for (const uint32_t rank : to_start_) text += fmt::format("to start {}\n", rank);
  if (left_.restarts > 0)
    text += fmt::format("{} restarts, ", left_.restarts) + checkpoints_.Text();
  return text + fmt::format("left {} {} {} {} {} {} {}", left_.crashes, left_.silences,
                            left_.replacements, left_.newcomers, left_.stalls, left_.leaves,
                            probe_->failure());
}

std::string ModelWorld::Wrong() const {
  if (!wrong_.empty()) return wrong_;
  if (!checkpoints_.wrong().empty()) return checkpoints_.wrong();
  const std::string failure = probe_->failure();
  if (!failure.empty() && !IsKiller(failure)) return "the run has failed: " + failure;
  return probe_->Wrong(job_);
}

std::string ModelWorld::WrongIfRepeated() {
  const std::string text = probe_->Text();
  for (const auto& [peer, saying] : before_) {
    if (probe_->done() || !probe_->failure().empty()) break;
    Hand({FromWorker::Kind::kMessage, peer, saying.message, saying.payload});
    if (probe_->Text() == text && wrong_.empty()) continue;
    return fmt::format("process {} {} again, which changed the state:\n{}instead of\n{}", peer - 1,
                       saying.words, probe_->Text(), text);
  }
  return Wrong();
}

std::string ModelWorld::WrongAtEnd() {
  const bool alive =
      std::ranges::any_of(workers_, [](const auto& worker) { return !worker->ended(); });
  if (!probe_->done() && probe_->failure().empty()) {
    // Before the start all wait for missing workers until a deadline.
    if (alive && probe_->has_begun())
      return "no action is possible before the end of the run: a deadlock\n" + Text();
    const auto until = Clock::now() + kPatience;
    while (Clock::now() < until && probe_->failure().empty()) Pass(milliseconds(1));
    if (probe_->failure().find("missing") == std::string::npos) {
      return "workers are missing, and the server waits forever\n" + Text();
    }
  }
  const bool completes = probe_->done();
  over_ = true;
  const auto begin = Clock::now();
  try {
    const ServerResult result = server_->Serve();
    if (!completes) return "the run reports completion although it was not completed";
    if (result.weights_hash != job_.weights_hash()) {
      return "the final weights differ from those of the undisturbed run";
    }
  } catch (const Error& error) {
    if (completes) return fmt::format("the run has failed at its end: {}", error.what());
  }
  if (completes && Clock::now() - begin >= kGoodbyes) return "a worker did not send Goodbye";
  return "";
}

}  // namespace muster::testing
