// Runs a server's loop by hand and inspects it: describes all state that decides its future as
// text. States that differ only in names and numbers have the same text.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "proto/checkpoint.pb.h"
#include "ps/record/tensor_image.h"
#include "ps/run/server.h"
#include "tests/protocol/model_job.h"

namespace muster {

class ServerProbe {
 public:
  explicit ServerProbe(Server& server) : server_(server) {}

  // Runs one round of the loop, which handles the link's messages.
  void RunOnce() { server_.RunOnce(); }
  bool has_begun() const { return run().parts().state.has_begun(); }
  bool done() const { return run().done(); }
  std::string failure() const;
  // Whether some work is paused.
  bool HoldsBack() const;
  const Run& run() const { return std::as_const(server_).run(); }
  const Roster& roster() const { return server_.members().roster(); }
  int64_t step() const { return run().parts().state.step; }
  std::span<const float> Weights(int64_t version) const;
  // The average that is being evaluated.
  std::span<const float> EvaluatedAverage() const;
  // How long a stall must last to make all unfinished workers slow.
  std::chrono::duration<double> Patience() const;

  // If nothing has been updated since W(step) was complete, the name of the possible checkpoint,
  // and the checkpoint.
  struct BoundaryName {
    int64_t step;
    bool validated;  // on the set that decides
    bool evaluated;  // all sets are complete
    bool operator==(const BoundaryName&) const = default;
  };
  struct Boundary {
    checkpoint::State state;
    std::vector<StoredTensor> tensors;
    std::shared_ptr<const TensorImage> image;
  };
  std::optional<BoundaryName> AtBoundary() const;
  Boundary Keep();

  // Describes the first wrong tensor or loss; "" if all are right.
  std::string Wrong(const testing::ModelJob& job) const;

  std::string Text() const;
  // The name of an order in Text, or "-" if it is closed.
  std::string NameOf(uint64_t order) const;

 private:
  bool Counts(const StepOrder& order) const;
  std::string WrongChunk(const testing::ModelJob& job, size_t chunk) const;
  std::string WrongCounts(const testing::ModelJob& job) const;
  std::string WrongParts(const testing::ModelJob& job) const;
  void PutMembers(std::string& text) const;
  void PutWork(std::string& text) const;
  void PutGradients(std::string& text) const;
  void PutEvaluation(std::string& text) const;

  Server& server_;
};

}  // namespace muster
