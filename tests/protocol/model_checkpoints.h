// What the servers of a model leave on the disk: a checkpoint of each boundary between steps. The
// contents are the server's own; what is written and read again is a real one, and only where a
// server goes on from it.
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
  // `job` outlives this.
  explicit ModelCheckpoints(const ModelJob& job);
  ~ModelCheckpoints();
  ModelCheckpoints(const ModelCheckpoints&) = delete;

  // Keeps what this server would, if it is at a boundary of which nothing is kept.
  void Keep(ServerProbe& server);
  size_t size() const { return kept_.size(); }
  // The newest `lost` are not on the disk, or damaged. Where the next server goes on from; nothing:
  // it begins anew.
  std::optional<ResumePoint> GoOn(size_t lost);
  // Which ones there are, as far as it matters.
  std::string Text() const;
  // What one of them says that it must not, or "".
  const std::string& wrong() const { return wrong_; }

  // How many a server's end may take with it.
  static constexpr size_t kMostLost = 1;

 private:
  void Check(const checkpoint::State& state);

  const ModelJob& job_;
  const std::string folder_;
  std::vector<ServerProbe::Boundary> kept_;  // oldest first
  std::string wrong_;
};

}  // namespace muster::testing
