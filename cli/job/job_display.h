// What a person sees of a running job: the server's reports as lines.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cli/gpu/gpu.h"
#include "cli/text/console.h"
#include "proto/events.pb.h"

namespace muster {

// Used by the launcher's thread. On a terminal: a live line, and permanent lines for what is worth
// keeping; elsewhere only permanent lines, one per logging interval and evaluation.
class JobDisplay {
 public:
  // `log_placement`: say where each rank runs, once all are there. `by_hand`: workers come one by
  // one from elsewhere, and each is worth a line.
  JobDisplay(Console& console, double start_deadline_s, bool log_placement = false,
             bool by_hand = false)
      : console_(console),
        start_deadline_s_(start_deadline_s),
        log_placement_(log_placement),
        by_hand_(by_hand) {}

  // What to print once all workers are there, and the number of training images is known.
  void NoteAtStart(std::function<std::vector<std::string>(const events::Started&)> notes) {
    notes_ = std::move(notes);
  }

  // Where the workers are, for `log_placement`; of a job with cards.
  void UsePlaces(std::span<const WorkerPlace> places) { places_ = places; }

  // No lines that stay, but for warnings: of a job whose result is shown by somebody else.
  void ShowOnlyProgress() { only_progress_ = true; }

  // What is going on when the server has nothing to say: "Starting the server".
  void ShowStage(const std::string& stage);

  void OnEvent(const events::Event& event);

  // Another server goes on with the run: nothing is known of its progress.
  void BeginAgain() { progress_.clear_at(); }
  // Servers that have said that they go on in another one's place.
  int64_t restarts_told() const { return restarts_told_; }

  std::optional<int64_t> step() const;  // that was heard of last
  // " at step 57 of 3,910", or "" before the first step.
  std::string AtStep() const;

 private:
  void OnStarted(const events::Started& started);
  void OnWaiting(const events::Waiting& waiting);
  void OnProgress(const events::Progress& progress);
  void OnEvaluation(const events::Evaluation& evaluation);
  void OnLog(const events::Log& log);

  Console& console_;
  double start_deadline_s_;
  bool log_placement_;
  bool by_hand_;
  bool only_progress_ = false;
  std::function<std::vector<std::string>(const events::Started&)> notes_;
  std::span<const WorkerPlace> places_;
  events::Progress progress_;  // all that is known
  int64_t restarts_told_ = 0;
};

// "rank 1", "ranks 1, 3 and 4"; long lists are cut.
std::string RankList(std::span<const uint32_t> ranks);

}  // namespace muster
