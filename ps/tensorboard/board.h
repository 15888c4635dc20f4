// What TensorBoard is told of a run (config.proto, Tensorboard): scalars at each logging interval
// and evaluation, and more on request.
//
// Owner: the recorder. Used in the loop's thread; the recorder's thread alone uses the file.
#pragma once

#include <atomic>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/base/background_thread.h"
#include "common/graph/graph.h"
#include "proto/config.pb.h"
#include "proto/events.pb.h"
#include "proto/wire.pb.h"
#include "ps/tensorboard/event_file.h"
#include "ps/tensorboard/line_scalars.h"
#include "ps/tensorboard/observation.h"
#include "ps/tensorboard/sample_image.h"

namespace muster {

class Board {
 public:
  // `config` is resolved. Without a run directory there is no file. Config and graph outlive this;
  // the thread is joined before this goes. `warn`: takes what a person should know, in any thread.
  Board(const config::Config& config, const Graph& graph, BackgroundThread& thread,
        EventFile::Warn warn);

  // Training begins after so many steps. Takes later ones out of the files of an earlier server,
  // makes one, and writes what is known by now.
  void Begin(int64_t steps_done);

  // A run that goes on, once its metrics.jsonl is as it was: writes what the files of earlier
  // servers lack of the end of it, which no disk took.
  void WriteAgain(const std::string& metrics);

  // What it wants to know of the step after which `steps_done` are done.
  Observe Wants(int64_t steps_done) const;
  // An observation of that step.
  void Observed(int64_t steps_done, const Observation& observation);

  void AddTimes(uint32_t rank, const wire::StepTimes& times);
  // Lines of metrics.jsonl.
  void Log(const nlohmann::ordered_json& line);
  void Evaluation(const nlohmann::ordered_json& line, const std::vector<SampleImage>& images);
  void End(const events::Summary& summary);

  // The thread's file; null before Begin, and where nothing is wanted.
  EventFile* file() { return file_ ? &*file_ : nullptr; }

 private:
  // The sums of the reports of a rank since the last line.
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
  std::optional<EventFile> file_;     // used by the thread
  std::atomic<size_t> in_flight_{0};  // bytes of large events that the thread has not come to
  std::vector<RankTimes> ranks_;
  // The last steps that earlier servers have written.
  LastSteps written_;
  int64_t begun_at_ = 0;
};

}  // namespace muster
