// Runs the loop of a server by hand, and looks into it: all of its state that decides what it does
// next, as text in which states that differ in names and numbers alone are the same.
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

  // A round of the loop: takes what its link has.
  void RunOnce() { server_.RunOnce(); }
  bool has_begun() const { return run().parts().state.has_begun(); }
  bool done() const { return run().done(); }
  std::string failure() const;
  // A slice is given to nobody for some time.
  bool HoldsBack() const { return run().dispatcher().pauses(); }
  const Run& run() const { return std::as_const(server_).run(); }
  const Roster& roster() const { return server_.members().roster(); }
  int64_t step() const { return run().parts().state.step; }
  std::span<const float> Weights(int64_t version) const;
  // The average that is being evaluated.
  std::span<const float> EvaluatedAverage() const;
  // For how long a stall must last so that everybody is late who is not done.
  std::chrono::duration<double> Patience() const;

  // Where nothing has been updated since W(step) was complete: which checkpoint could be taken; and
  // that one.
  struct BoundaryName {
    int64_t step;
    bool validated;  // on the set that chooses
    bool evaluated;  // nothing of it is to come
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
  // How Text calls an order; "-": it is closed.
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
