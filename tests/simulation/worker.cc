#include "tests/simulation/worker.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"
#include "tests/job/test_job.h"

namespace muster::testing {

void SimulatedWorker::Run() {
  ClientOptions options;
  options.token = TestToken();
  options.rank = traits_.rank;
  options.hello = job_.hello();
  options.hello.set_pid(traits_.pid);
  options.arena_floats = job_.floats();
  options.start_s = job_.config().deadlines().start_s();
  options.silence_s = job_.config().deadlines().silence_s();
  options.make_channel = [this](Channel::Owner& owner) {
    const SimulatedProcess* relay = nullptr;
    while (traits_.relay && (relay = traits_.relay()) == nullptr) {
      process_.Sleep(std::chrono::milliseconds(50));
    }
    return network_.Connect(process_, traits_.shares_memory, owner, relay);
  };
  Client client(std::move(options));
  struct Forget {
    Client*& client;
    ~Forget() { client = nullptr; }
  } forget{client_};
  client_ = &client;
  OrderFollower follower(client, *this);
  follower_ = &follower;
  client.ReportReady();
  const Order stop = follower.Run();
  if (!stop.completed) {
    throw Error(ExitCode::kPeerFailed, "the server stopped the run: {}", stop.reason);
  }
}

void SimulatedWorker::Compute(const Order& order, const OrderPart& part) {
  const Range slices = Covers(part.node, job_.plan().slices);
  bool intact = true;
  for (int64_t slice = slices.begin; slice < slices.end; ++slice) {
    intact &= Forward(order);
    DieIfDeadly({.step = order.version, .slice = slice}, {});
    client_->ReportLoss(order.version, part, slice, ModelJob::kSamplesPerSlice,
                        job_.Loss(order.version, slice) + (intact ? 0 : 1), 0);
    if (slice + 1 < slices.end) Take(traits_.slice_time);
  }
  const std::span<const float> gradient = job_.Gradient(order.version, part.node);
  for (size_t c = job_.chunks().size(); c-- > 0;) {
    Take(ChunkTime());
    if (!order.chunks.empty() && std::ranges::find(order.chunks, c) == order.chunks.end()) continue;
    for (size_t all = 0; all < job_.chunks().size(); ++all) intact &= IsIntact(order, all);
    const Chunk& chunk = job_.chunks()[c];
    const std::span<float> buffer = client_->GradientBuffer(part.buffer);
    std::ranges::copy(gradient.subspan(chunk.begin, chunk.floats()), buffer.begin() + chunk.begin);
    if (!intact) buffer[chunk.begin] += 0.5F;
    client_->PushChunk(order.version, part, c);
  }
}

bool SimulatedWorker::Forward(const Order& order) {
  return follower_->Repeat([&] { return ForwardOnce(order); }, [] {});
}

bool SimulatedWorker::ForwardOnce(const Order& order) {
  bool intact = true;
  for (size_t c = 0; c < job_.chunks().size(); ++c) {
    follower_->AwaitChunk(order, c);
    intact &= IsIntact(order, c);
    Take(ChunkTime());
    intact &= IsIntact(order, c);
  }
  return intact;
}

bool SimulatedWorker::IsIntact(const Order& order, size_t c) const {
  const Chunk& chunk = job_.chunks()[c];
  const auto all = order.average ? client_->Average() : client_->Weights(order.version);
  const auto must = order.average ? job_.Average(order.version) : job_.Weights(order.version);
  return std::ranges::equal(all.subspan(chunk.begin, chunk.floats()),
                            must.subspan(chunk.begin, chunk.floats()));
}

void SimulatedWorker::DieIfDeadly(const Deadly& work, wire::EvaluationSet set) {
  Deadly& deadly = *traits_.deadly;
  if (work.step != deadly.step || work.slice != deadly.slice || work.block != deadly.block) return;
  if (deadly.losses[set]++ >= deadly.times) return;
  if (deadly.hangs) process_.Sleep(std::chrono::hours(24));  // until it is killed
  network_.Abandon(process_, true);
  throw Killed();
}

void SimulatedWorker::Evaluate(const Order& order) {
  if (order.average && order.blocks.empty()) follower_->AwaitAll(order, Client::Of::kAverage);
  for (int64_t block = order.blocks.begin; block < order.blocks.end; ++block) {
    bool intact = true;
    if (order.average) {
      follower_->AwaitAll(order, Client::Of::kAverage);
      for (size_t c = 0; c < job_.chunks().size(); ++c) {
        Take(ChunkTime());
        intact &= IsIntact(order, c);
      }
    } else {
      intact = Forward(order);
    }
    DieIfDeadly({.step = order.version, .block = block}, order.set);
    wire::EvaluatedBlock result;
    result.set_version(order.version);
    result.set_set(order.set);
    result.set_block(static_cast<uint32_t>(block));
    result.set_samples(order.block_size);
    result.set_loss(ModelJob::BlockLoss(order.version, order.set, block) + (intact ? 0 : 1));
    result.set_correct(0);
    if (!client_->ReportEvaluated(result)) return;
  }
}

}  // namespace muster::testing
