#include "ps/run/weights_feed.h"

#include "common/trace/trace.h"

namespace muster {

void WeightsFeed::BeginStep(int64_t step) {
  step_ = step;
  published_.assign(published_.size(), false);
}

wire::ServerMessage WeightsFeed::MessageOf(int64_t version, size_t chunk, bool average) {
  wire::ServerMessage message;
  message.mutable_weights_chunk()->set_version(version);
  message.mutable_weights_chunk()->set_chunk(static_cast<uint32_t>(chunk));
  if (average) message.mutable_weights_chunk()->set_average(true);
  return message;
}

void WeightsFeed::Publish(int64_t version, size_t chunk) {
  const trace::Span span("publish", {}, {.step = version, .chunk = static_cast<int32_t>(chunk)});
  if (version == step_ + 1) published_[chunk] = true;
  members_.Broadcast(MessageOf(version, chunk, false),
                     engine_.variables.WireWeights(version, engine_.chunks()[chunk]));
}

void WeightsFeed::PublishAverage(int64_t version, size_t chunk) {
  members_.Broadcast(MessageOf(version, chunk, true),
                     engine_.variables.WireAverage(engine_.chunks()[chunk]));
}

void WeightsFeed::Activate(uint32_t rank, std::optional<int64_t> average_of) {
  members_.Activate(rank, step_);
  for (size_t c = 0; c < engine_.chunks().size(); ++c) {
    const Chunk& chunk = engine_.chunks()[c];
    for (const int64_t version : {step_, step_ + 1}) {
      if (version > step_ && !published_[c]) break;
      members_.Send(rank, MessageOf(version, c, false),
                    engine_.variables.WireWeights(version, chunk));
      if (average_of == version) {
        members_.Send(rank, MessageOf(version, c, true), engine_.variables.WireAverage(chunk));
      }
    }
  }
}

}  // namespace muster
