// What TensorBoard is told of a run (config.proto, Tensorboard): scalars at each logging interval
// and evaluation, and more on request.
//
// Owner: the coordinator. Used in the loop's thread; files are written by a thread of their own.
#pragma once

#include <cstdint>
#include <memory>
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
  // Of a resolved config. Without a run directory there is no file. All outlive this.
  Board(const config::Config& config, const Graph& graph, BackgroundThread& thread);
  ~Board();

  // Training begins after so many steps. Takes later ones out of the files of an earlier server,
  // makes one, and writes what is known by now.
  void Begin(int64_t steps_done);
  // Since then, where anything is wanted.
  bool writes() const { return file_ != nullptr; }

  // A run that goes on, once its metrics.jsonl is as it was: writes what the files of earlier
  // servers lack of the end of it, which no disk took.
  void WriteAgain(const std::string& metrics);

  // What it wants to know of the step after which `steps_done` are done.
  Observe Wants(int64_t steps_done) const;
  // Of that step.
  void Observed(int64_t steps_done, const Observation& observation);

  void AddTimes(uint32_t rank, const wire::StepTimes& times);
  void Log(const events::Log& line);
  void Evaluation(const events::Evaluation& line, const std::vector<SampleImage>& images);
  void End(const events::Summary& summary);

  // Until what it was told so far is on the disk, or cannot be. Any thread may wait.
  void AwaitWritten();

  // What a person should know, each once.
  std::optional<std::string> TakeTrouble();
  // After End: what is not in the file, and why; "" if all is.
  std::string Missing();

 private:
  // The sums of the reports of a rank since the last line.
  struct RankTimes {
    int64_t reports = 0;
    wire::StepTimes sum;
  };
  void AddRanks(tensorboard::Summary& summary);
  void Write(int64_t step, tensorboard::Summary summary);

  const config::Config& config_;
  const Graph& graph_;
  BackgroundThread& thread_;
  std::unique_ptr<EventFile> file_;    // none before Begin, or where nothing is wanted
  std::vector<std::string> troubles_;  // with the files that were there
  std::vector<RankTimes> ranks_;
  // The last steps that earlier servers have written.
  LastSteps written_;
  int64_t begun_at_ = 0;
};

}  // namespace muster
