#include "worker/program/program_trainer.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/trace/trace.h"

namespace muster {
namespace {

using program::Kind;
using program::WorkKind;

// Thrown while the program waits, if the worker was reset: its work is no longer wanted.
struct WasReset {};

// Buffers of slices that were taken over are kept for a few steps after their last use.
constexpr int64_t kKeptSteps = 8;

wire::Scalar ScalarOf(const std::string& body) {
  double sum;
  if (body.size() < sizeof sum) {
    throw Error(ExitCode::kPeerFailed, "the program sent an incomplete scalar");
  }
  std::memcpy(&sum, body.data(), sizeof sum);
  wire::Scalar scalar;
  scalar.set_name(body.substr(sizeof sum));
  scalar.set_sum(sum);
  return scalar;
}

}  // namespace

ProgramTrainer::ProgramTrainer(const VariableLayout& layout, const program::Join& join,
                               uint64_t seed, Client& client, ProgramLink& link)
    : layout_(layout),
      join_(join),
      client_(client),
      link_(link),
      seed_(seed),
      orders_(join.train_samples, seed),
      chunks_of_(layout.variables().size()),
      variables_in_(client.chunks().size(), 0) {
  for (size_t c = 0; c < client.chunks().size(); ++c) {
    for (size_t v = 0; v < layout.variables().size(); ++v) {
      const Variable& variable = layout.variables()[v];
      const ChunkRange& chunk = client.chunks()[c];
      if (variable.offset >= chunk.end || variable.offset + variable.count <= chunk.begin) continue;
      chunks_of_[v].push_back(c);
      ++variables_in_[c];
    }
  }
}

void ProgramTrainer::Run() {
  client_.ReportReady();
  for (;;) {
    const Order order = client_.NextOrder();
    try {
      switch (order.kind) {
        case Order::Kind::kTrain:
          Train(order);
          break;
        case Order::Kind::kEvaluate:
          Evaluate(order);
          break;
        case Order::Kind::kReset:
          throw WasReset();
        case Order::Kind::kStop:
          return End(order);
      }
    } catch (const WasReset&) {
      LogWarning("Fell behind; other workers took over. Resynchronizing.");
      client_.ReportReady();
    }
  }
}

void ProgramTrainer::DoUrgent() {
  while (const std::optional<Order> order = client_.NextUrgentOrder()) {
    if (order->kind == Order::Kind::kReset) throw WasReset();
    Train(*order);
  }
}

void ProgramTrainer::Bring(int64_t version, Client::Of of) {
  const bool average = of == Client::Of::kAverage;
  for (size_t c = 0; c < client_.chunks().size();) {
    if (client_.AwaitChunk(version, c, Client::Wait::kForUrgent, of)) {
      ++c;
    } else {
      DoUrgent();
    }
  }
  if (version_ == version && average_ == average) return;
  const std::span<const float> from = average ? client_.Average() : client_.Weights(version);
  std::ranges::copy(from.first(layout_.arena_floats()), link_.weights().begin());
  version_ = -1;
  // The server overwrites the weights of a worker that it has reset, perhaps while they were
  // copied.
  DoUrgent();
  version_ = version;
  average_ = average;
}

void ProgramTrainer::EnterStep(int64_t step) {
  if (step_ >= 0 && step_ != step) {
    Give({.kind = WorkKind::kStepEnd, .step = step_}, {});
  }
  step_ = step;
}

void ProgramTrainer::Train(const Order& order) {
  trace::AtStep(order.version);
  const trace::Span span("step");
  // Slices that were taken over belong to a step whose weights have all arrived, and the program
  // may have newer ones.
  Bring(order.version);
  EnterStep(order.version);
  const Clock::time_point begin = Clock::now();
  for (const OrderPart& part : order.parts) ComputePart(order, part);
  if (order.taken_over) return;
  wire::StepTimes times;
  times.set_step(order.version);
  times.set_compute_ms(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  client_.ReportTimes(times);
  GiveBackBuffers(order.version);
}

void ProgramTrainer::GiveBackBuffers(int64_t step) {
  std::erase_if(buffer_used_, [&](const auto& buffer) {
    if (step - buffer.second < kKeptSteps) return false;
    client_.GiveBackGradientBuffer(buffer.first);
    return true;
  });
}

void ProgramTrainer::ComputePart(const Order& order, const OrderPart& part) {
  buffer_used_[part.buffer] = order.version;
  while (levels_.size() < part.node.level) levels_.emplace_back(layout_.arena_floats());
  Part state{.order = order, .part = part};
  state.wanted.assign(client_.chunks().size(), order.chunks.empty());
  for (const uint32_t chunk : order.chunks) state.wanted[chunk] = true;
  const bool any = Accumulate(state, part.node, 0, {}, true);
  if (state.pushed) return;
  for (size_t c = 0; c < client_.chunks().size(); ++c) {
    if (!state.wanted[c]) continue;
    if (any) {
      client_.PushChunk(order.version, part, c);
    } else {
      client_.PushEmpty(order.version, part, c);
    }
  }
}

std::span<float> ProgramTrainer::Level(const OrderPart& part, size_t level) {
  return level == 0 ? client_.GradientBuffer(part.buffer) : levels_[level - 1].floats();
}

bool ProgramTrainer::Accumulate(Part& part, const TreeNode& node, size_t level,
                                const std::vector<size_t>& pending, bool last) {
  if (node.level == 0) return ComputeSlice(part, node.index, level, pending, last);
  const TreeNode left{node.level - 1, 2 * node.index}, right{node.level - 1, 2 * node.index + 1};
  if (Covers(right, client_.plan().slices).empty())
    return Accumulate(part, left, level, pending, last);
  if (!Accumulate(part, left, level, {}, false)) {
    return Accumulate(part, right, level, pending, last);
  }
  std::vector<size_t> waiting{level};
  waiting.insert(waiting.end(), pending.begin(), pending.end());
  if (Accumulate(part, right, level + 1, waiting, last)) return true;
  // The right half is empty: the left half is the sum.
  for (const size_t to : pending) {
    float* const sum = Level(part.part, to).data();
    AddOnWire(client_.terms().wire_type, sum, Level(part.part, to + 1).data(), sum,
              layout_.arena_floats());
  }
  return true;
}

bool ProgramTrainer::ComputeSlice(Part& part, int64_t slice, size_t level,
                                  const std::vector<size_t>& pending, bool last) {
  const int64_t step = part.order.version;
  const Slice given = SliceOf(step, slice);
  const int64_t samples = given.work.samples;
  if (samples == 0) {
    client_.ReportLoss(step, part.part, slice, 0, 0, 0);
    return false;
  }
  const trace::Span span("slice", {}, {.slice = static_cast<int32_t>(slice)});
  Give(given.work, given.indices);
  // The program reports the loss between the two.
  std::optional<trace::Span> pass(std::in_place, "forward");
  std::vector<size_t> missing = variables_in_;
  std::vector<bool> written(layout_.variables().size());
  const auto write = [&](size_t variable) {
    if (written[variable]) return;
    written[variable] = true;
    for (const size_t c : chunks_of_[variable]) {
      if (--missing[c] == 0) Fold(part, c, level, pending, last);
    }
  };
  bool has_loss = false;
  google::protobuf::RepeatedPtrField<wire::Scalar> scalars;
  for (;;) {
    const ProgramLink::Received received = Receive();
    if (received.kind == Kind::kScalar && !has_loss) {
      *scalars.Add() = ScalarOf(received.body);
    } else if (received.kind == Kind::kLoss) {
      const auto loss = received.As<program::Loss>();
      std::optional<double> rate;
      if (!std::isnan(loss.learning_rate)) rate = loss.learning_rate;
      client_.ReportLoss(step, part.part, slice, samples, loss.loss, 0, scalars, rate);
      has_loss = true;
      pass.emplace("backward");
    } else if (received.kind == Kind::kPushed && has_loss) {
      for (const uint64_t variable : received.Numbers()) {
        if (variable < layout_.variables().size()) write(variable);
      }
    } else if (received.kind == Kind::kDone && has_loss) {
      for (size_t v = 0; v < layout_.variables().size(); ++v) write(v);
      break;
    } else {
      throw Error(ExitCode::kPeerFailed, "the program sent frame {} within a slice",
                  static_cast<uint32_t>(received.kind));
    }
  }
  for (size_t c = 0; c < missing.size(); ++c) {
    if (variables_in_[c] == 0) Fold(part, c, level, pending, last);  // only padding
  }
  if (last) part.pushed = true;
  return true;
}

void ProgramTrainer::Fold(Part& part, size_t chunk, size_t level,
                          const std::vector<size_t>& pending, bool last) {
  const auto& [begin, end] = client_.chunks()[chunk];
  const std::span<float> slice = link_.gradient().subspan(begin, end - begin);
  const WireType type = client_.terms().wire_type;
  RoundToWire(type, slice);
  if (pending.empty()) {
    std::ranges::copy(slice, Level(part.part, level).begin() + static_cast<std::ptrdiff_t>(begin));
  }
  const float* from = slice.data();
  for (const size_t to : pending) {
    float* const sum = Level(part.part, to).data() + begin;
    AddOnWire(type, sum, from, sum, slice.size());
    from = sum;
  }
  if (last && part.wanted[chunk]) client_.PushChunk(part.order.version, part.part, chunk);
}

void ProgramTrainer::Evaluate(const Order& order) {
  trace::AtStep(order.version);
  const trace::Span span("evaluate");
  if (order.average && order.blocks.empty()) Bring(order.version, Client::Of::kAverage);
  const int64_t size =
      order.set == wire::VALIDATION ? join_.validation_samples : join_.test_samples;
  for (int64_t block = order.blocks.begin; block < order.blocks.end; ++block) {
    EnterStep(-1);
    Bring(order.version, order.average ? Client::Of::kAverage : Client::Of::kWeights);
    const int64_t first = block * order.block_size;
    const int64_t samples = std::min(order.block_size, size - first);
    MUSTER_CHECK(samples > 0);
    std::vector<int64_t> indices(static_cast<size_t>(samples));
    std::iota(indices.begin(), indices.end(), first);
    const bool validates = order.set == wire::VALIDATION;
    const WorkKind kind = validates ? WorkKind::kValidationBlock : WorkKind::kTestBlock;
    Give({.kind = kind,
          .step = order.version,
          .index = block,
          .samples = samples,
          .seed = SeedOf(kind, order.version, block)},
         indices);
    wire::EvaluatedBlock result;
    result.set_version(order.version);
    result.set_set(order.set);
    result.set_block(static_cast<uint32_t>(block));
    result.set_samples(samples);
    for (bool done = false; !done;) {
      const ProgramLink::Received received = Receive();
      if (received.kind == Kind::kScalar) *result.add_scalar() = ScalarOf(received.body);
      if (received.kind == Kind::kLoss) {
        const auto loss = received.As<program::Loss>();
        result.set_loss(loss.loss);
      }
      done = received.kind == Kind::kDone;
    }
    if (!client_.ReportEvaluated(result)) return;
  }
}

// The last weights may not have arrived if this worker had no work on them.
void ProgramTrainer::End(const Order& stop) {
  bool has_last = false;
  if (stop.version >= 0) {
    try {
      Bring(stop.version);
      EnterStep(-1);
      has_last = true;
    } catch (const Error&) {  // they have not arrived
    } catch (const WasReset&) {
    }
  }
  AwaitNext();
  const program::End end{
      .code = static_cast<int32_t>(stop.completed ? ExitCode::kOk : ExitCode::kPeerFailed),
      .has_last_weights = has_last,
      .steps = stop.version};
  link_.StopWatching();
  link_.Send(Kind::kEnd, &end, sizeof end, {}, stop.reason);
}

ProgramTrainer::Slice ProgramTrainer::SliceOf(int64_t step, int64_t index) {
  const StepPlan& plan = client_.plan();
  const Batch batch = plan.At(step);
  const Range range = plan.Slice(batch, index);
  Slice slice{.work = {.kind = WorkKind::kSlice,
                       .step = step,
                       .epoch = batch.epoch,
                       .index = index,
                       .samples = range.size(),
                       .batch = batch.samples},
              .order = orders_.Of(batch.epoch)};
  slice.work.seed = SeedOf(WorkKind::kSlice, step, index);
  slice.indices = std::span(*slice.order)
                      .subspan(static_cast<size_t>(range.begin), static_cast<size_t>(range.size()));
  return slice;
}

uint64_t ProgramTrainer::SeedOf(WorkKind kind, int64_t step, int64_t index) const {
  const uint64_t key[] = {seed_, static_cast<uint64_t>(kind), static_cast<uint64_t>(step),
                          static_cast<uint64_t>(index)};
  return XXH3_64bits(key, sizeof key);
}

void ProgramTrainer::Give(const program::Work& work, std::span<const int64_t> indices) {
  AwaitNext();
  link_.Send(Kind::kWork, &work, sizeof work, indices);
}

void ProgramTrainer::AwaitNext() {
  while (Receive().kind != Kind::kNext) {
  }
}

ProgramLink::Received ProgramTrainer::Receive() {
  for (;;) {
    ProgramLink::Received received = link_.Receive();
    if (received.kind == Kind::kLeave) {
      client_.Leave();
    } else if (received.kind == Kind::kFailed) {
      throw Error(ExitCode::kUsage, received.body);
    } else if (received.kind == Kind::kPlanned) {
      const auto planned = received.As<program::Planned>();
      const Slice slice = SliceOf(planned.step, planned.index);
      link_.Send(Kind::kSamples, &slice.work, sizeof slice.work, slice.indices);
    } else {
      return received;
    }
  }
}

}  // namespace muster
