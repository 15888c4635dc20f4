// Writes a run's TensorBoard data (config.proto, Tensorboard): scalars at each logging interval and
// evaluation, and more on request.
//
// Owner: the recorder. Used on the loop thread; only the recorder's writer thread uses the file.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/background_thread.h"
#include "common/graph/graph.h"
#include "proto/config.pb.h"
#include "proto/events.pb.h"
#include "proto/wire.pb.h"
#include "ps/tensorboard/event_file.h"
#include "ps/tensorboard/observation.h"
#include "ps/tensorboard/sample_image.h"

namespace muster {

class Board {
 public:
  // `config` is resolved. Without a run directory there is no file. `config` and `graph` must
  // outlive this object. Join `thread` before destroying this object. `warn` receives warnings on
  // any thread.
  Board(const config::Config& config, const Graph& graph, BackgroundThread& thread,
        EventFile::Warn warn);

  // Called when training begins, after `steps_done` steps. Removes later steps from the files of
  // earlier servers, creates a file, and writes the initial data.
  void Begin(int64_t steps_done);

  // Whether the event is an interval or evaluation of an earlier server whose files lack it because
  // of write errors.
  bool Lacks(const events::Event& event) const;
  // Call for a resumed run, with all that it lacks.
  void WriteAgain(const std::vector<events::Event>& lacking);

  // What to observe in the step after which `steps_done` steps are done.
  Observe Wants(int64_t steps_done) const;
  void Observed(int64_t steps_done, const Observation& observation);

  void AddTimes(uint32_t rank, const wire::StepTimes& times);
  // These functions take an interval or an evaluation.
  void Log(const events::Event& event);
  void Evaluation(const events::Event& event, const std::vector<SampleImage>& images);
  void End(const events::Summary& summary);

  // The file of the writer thread; null before Begin or if disabled.
  EventFile* file() { return file_ ? &*file_ : nullptr; }

 private:
  // The sums of a rank's reports since the last line.
  struct RankTimes {
    int64_t reports = 0;
    wire::StepTimes sum;
  };
  void AddRanks(tensorboard::Summary& summary);
  void Write(int64_t step, tensorboard::Summary summary);
  void Append(tensorboard::Event event);

  const config::Config& config_;
  const Graph& graph_;
  BackgroundThread& thread_;
  const EventFile::Warn warn_;
  bool writes_ = false;
  bool slow_said_ = false;
  std::optional<EventFile> file_;     // used by the writer thread
  std::atomic<size_t> in_flight_{0};  // bytes of queued large events
  std::vector<RankTimes> ranks_;
  // The last steps that earlier servers wrote; -1: none.
  std::map<std::string, int64_t> written_;  // by tag
  int64_t begun_at_ = 0;
};

}  // namespace muster
