// The checkpoints of a model's servers, one for each boundary between steps. The contents are the
// server's own. Only for a restart is a real checkpoint written and read.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ps/record/resume.h"
#include "tests/protocol/model_job.h"
#include "tests/protocol/server_probe.h"

namespace muster::testing {

class ModelCheckpoints {
 public:
  // `job` must outlive this.
  explicit ModelCheckpoints(const ModelJob& job);
  ~ModelCheckpoints();
  ModelCheckpoints(const ModelCheckpoints&) = delete;

  // Saves the server's checkpoint if it is at a boundary without one.
  void Keep(ServerProbe& server);
  size_t size() const { return kept_.size(); }
  // Loses or damages the newest `lost` checkpoints. Returns where the next server resumes, or
  // nothing if it starts from the beginning.
  std::optional<ResumePoint> GoOn(size_t lost);
  // The state-dependent part of the list of checkpoints.
  std::string Text() const;
  // The error in a checkpoint, or "".
  const std::string& wrong() const { return wrong_; }

  // The most checkpoints that the end of a server may lose.
  static constexpr size_t kMostLost = 1;

 private:
  void Check(const checkpoint::State& state);

  const ModelJob& job_;
  const std::string folder_;
  std::vector<ServerProbe::Boundary> kept_;  // oldest first
  std::string wrong_;
};

}  // namespace muster::testing
