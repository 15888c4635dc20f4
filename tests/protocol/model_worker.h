// A model's worker. It follows orders like worker/client and worker/trainer, one message at a time,
// when the explorer says so. It uses memory as over the local link, where most can go wrong: it
// reads weights in the server's buffers, and the server reads gradients in the worker's.
//
// Notices are read immediately, because reading one later has the same effect as computing later.
// Messages that change the order of its work (an urgent order, Reset), and all later ones, are read
// when the explorer says so.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/memory.h"
#include "common/link/link.h"
#include "tests/protocol/model_job.h"
#include "worker/client/terms.h"

namespace muster::testing {

// A worker's message and its description.
struct Saying {
  wire::WorkerMessage message;
  Payload payload;
  std::string words;
};

// Work for a worker.
struct ModelOrder {
  struct Part {
    uint64_t order = 0;
    TreeNode node;
    uint32_t buffer = 0;
  };
  bool evaluates = false, urgent = false;
  int64_t version = 0;
  std::vector<Part> parts;       // of a step
  std::vector<uint32_t> chunks;  // of each part
  int64_t block_size = 0;
  Range blocks;
  wire::EvaluationSet set = wire::TEST;
  bool average = false;
};

class ModelWorker {
 public:
  // Returns the server's W(version), or its average, unless it was overwritten.
  using WeightsOf = std::function<std::span<const float>(int64_t version, bool average)>;
  // Returns the name of an order in Text.
  using Names = std::function<std::string(uint64_t order)>;

  // `job` must outlive this. `number` identifies the process.
  ModelWorker(const ModelJob& job, uint32_t number, std::optional<uint32_t> rank, WeightsOf weights)
      : job_(job), number_(number), wanted_(rank), weights_(std::move(weights)) {}

  uint32_t number() const { return number_; }
  bool ended() const { return ended_; }
  void End() { ended_ = true; }
  bool welcomed() const { return welcomed_; }
  bool leaving() const { return leaving_; }
  uint32_t rank() const { return rank_; }
  // The first invalid message of the server, or "".
  const std::string& trouble() const { return trouble_; }

  void Receive(const wire::ServerMessage& message);
  bool HasUnread() const { return !unread_.empty(); }
  // Reads a message that changes its work, and all later ones.
  void Read();

  Saying Hello() const;
  Saying Leave();
  // Whether it can compute and send something without waiting, and what.
  bool CanSay() const;
  Saying Say();

  // Sent, but not yet read by the server.
  std::deque<Saying>& in_flight() { return in_flight_; }
  const std::deque<Saying>& in_flight() const { return in_flight_; }

  // Determines its future together with the messages that it will receive. `incarnation` is the one
  // that the server accepts.
  std::string Text(const Names& names, uint32_t incarnation) const;

 private:
  bool IsUrgent(const wire::ServerMessage& message) const {
    return message.train().urgent() || message.has_reset();
  }
  void Take(const wire::ServerMessage& message);
  void TakeOrder(const wire::ServerMessage& message);
  void TakeTrain(const wire::Train& train);
  void DropEmpty();
  bool HasWeights(const ModelOrder& order) const;
  // Whether the inputs of the order have not been overwritten.
  bool IsIntact(const ModelOrder& order) const;
  size_t SizeOf(const ModelOrder& order) const;
  wire::WorkerMessage NewMessage() const;
  Saying SayOf(const ModelOrder& order, size_t at);
  Saying LossOf(const ModelOrder& order, const ModelOrder::Part& part, int64_t slice) const;
  Saying PartOf(const ModelOrder& order, const ModelOrder::Part& part, uint32_t chunk);
  Saying BlockOf(const ModelOrder& order, int64_t block) const;

  const ModelJob& job_;
  const uint32_t number_;
  const std::optional<uint32_t> wanted_;
  const WeightsOf weights_;
  bool ended_ = false, welcomed_ = false, leaving_ = false, stopped_ = false;
  bool ready_due_ = false;
  uint32_t rank_ = 0, incarnation_ = 0;
  Arrivals arrived_;
  // Without shared memory: the version of each chunk in the two weight buffers and the average.
  std::array<std::vector<int64_t>, 3> copies_;
  std::deque<ModelOrder> orders_;  // the first one may have begun; urgent ones follow it
  size_t said_ = 0;                // the number of messages sent for the first one
  std::vector<std::shared_ptr<Arena>> buffers_;
  std::deque<wire::ServerMessage> unread_;
  std::deque<Saying> in_flight_;
  std::string trouble_;
};

// A description for people: "urgent Train of 1.1 of step 0, chunks 0 1"; "" for weights and
// heartbeats.
std::string WordsOf(const wire::ServerMessage& message);

}  // namespace muster::testing
