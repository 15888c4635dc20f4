#include "worker/program/program_trainer.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <optional>

#include "common/base/error.h"
#include "common/trace/trace.h"

namespace muster {
namespace {

using program::Kind;
using program::WorkKind;

// The UUID of the program's GPU, or "" if there is none or more than one.
std::string GpuInEnvironment() {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string uuid = visible == nullptr ? "" : visible;
  const bool is_one = uuid.find(',') == std::string::npos;
  return is_one && (uuid.starts_with("GPU-") || uuid.starts_with("MIG-")) ? uuid : "";
}

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
      follower_(client, *this),
      link_(link),
      seed_(seed),
      gpu_(GpuInEnvironment()),
      orders_(join.train_samples, seed, join.in_order != 0),
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
  End(follower_.Run());
}

void ProgramTrainer::Bring(const Order& order, Client::Of of) {
  const bool average = of == Client::Of::kAverage;
  const auto has = [&] { return version_ == order.version && average_ == average; };
  if (has()) {
    follower_.AwaitAll(order, of);
    if (has()) return;
  }
  do {
    AwaitNext();
    version_ = -1;
    // The server overwrites the weights of a worker that it has reset, perhaps while they were
    // copied. Slices that are taken over, also between two chunks, bring weights of their own.
    follower_.AwaitAll(order, of, [&](size_t chunk) {
      const auto [begin, end] = client_.chunks()[chunk];
      const auto from = average ? client_.Average() : client_.Weights(order.version);
      std::ranges::copy(from.subspan(begin, end - begin), link_.weights().subspan(begin).begin());
    });
    follower_.DoUrgent();
  } while (version_ != -1);
  version_ = order.version;
  average_ = average;
}

void ProgramTrainer::EnterStep(int64_t step) {
  if (step_ >= 0 && step_ != step) {
    Give({.kind = WorkKind::kStepEnd, .step = step_}, {});
  }
  step_ = step;
}

void ProgramTrainer::Train(Order order) {
  trace::AtStep(order.version);
  const trace::Span span("step");
  Bring(order);
  EnterStep(order.version);
  const Clock::time_point begin = Clock::now();
  ComputeParts(order);
  wire::StepTimes times;
  times.set_step(order.version);
  times.set_compute_ms(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  gpu_.Put(times);
  if (const auto used = gpu_.latest().used_bytes; used) times.set_gpu_bytes(*used);
  client_.ReportTimes(times);
  follower_.GiveBackBuffers(order.version);
}

// The program may have newer weights, and goes back to these.
void ProgramTrainer::TakeOver(Order order) {
  const trace::Span span("take over", {}, {.step = order.version});
  Bring(order);
  EnterStep(order.version);
  ComputeParts(order);
}

void ProgramTrainer::ComputeParts(const Order& order) {
  const size_t chunks = client_.chunks().size();
  for (const OrderPart& part : order.parts) {
    follower_.UseBuffer(part, order.version);
    while (levels_.size() < part.node.level) levels_.emplace_back(layout_.arena_floats());
    part_ = {.order = &order, .part = &part};
    part_.wanted.assign(chunks, order.chunks.empty());
    for (const uint32_t chunk : order.chunks) part_.wanted[chunk] = true;
    const bool any = AccumulateSlices(part.node, client_.plan().slices, *this);
    for (size_t c = 0; c < chunks && !part_.pushed; ++c) {
      if (!part_.wanted[c]) continue;
      if (any) {
        client_.PushChunk(order.version, part, c);
      } else {
        client_.PushEmpty(order.version, part, c);
      }
    }
  }
}

std::span<float> ProgramTrainer::Level(size_t level) {
  return level == 0 ? client_.GradientBuffer(part_.part->buffer) : levels_[level - 1].floats();
}

void ProgramTrainer::AddUp(const std::vector<size_t>& pending) {
  for (const size_t to : pending) {
    float* const sum = Level(to).data();
    AddOnWire(client_.terms().wire_type, sum, Level(to + 1).data(), sum, layout_.arena_floats());
  }
}

bool ProgramTrainer::ComputeSlice(int64_t slice, const SumPlace& place) {
  const int64_t step = part_.order->version;
  const Slice given = SliceOf(step, slice);
  const int64_t samples = given.work.samples;
  if (samples == 0) {
    client_.ReportLoss(step, *part_.part, slice, 0, 0, 0);
    return false;
  }
  const trace::Span span("slice", {}, {.slice = static_cast<int32_t>(slice)});
  program::Work work = given.work;
  work.loss_scale = part_.order->loss_scale;
  Give(work, given.indices);
  // The program reports the loss between the two.
  std::optional<trace::Span> pass(std::in_place, "forward");
  std::vector<size_t> missing = variables_in_;
  std::vector<bool> written(layout_.variables().size());
  const auto write = [&](size_t variable) {
    if (written[variable]) return;
    written[variable] = true;
    for (const size_t c : chunks_of_[variable]) {
      if (--missing[c] == 0) Fold(c, place);
    }
  };
  bool has_loss = false;
  OfProgram of_program;
  for (;;) {
    const ProgramLink::Received received = Receive();
    if (received.kind == Kind::kScalar && !has_loss) {
      *of_program.scalars.Add() = ScalarOf(received.body);
    } else if (received.kind == Kind::kLoss) {
      const auto loss = received.As<program::Loss>();
      if (!std::isnan(loss.learning_rate)) of_program.learning_rate = loss.learning_rate;
      if (!std::isnan(loss.weight)) of_program.weight = loss.weight;
      client_.ReportLoss(step, *part_.part, slice, samples, loss.loss, 0, of_program);
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
    if (variables_in_[c] == 0) Fold(c, place);  // only padding
  }
  if (place.last) part_.pushed = true;
  return true;
}

void ProgramTrainer::Fold(size_t chunk, const SumPlace& place) {
  const auto& [begin, end] = client_.chunks()[chunk];
  const std::span<float> slice = link_.gradient().subspan(begin, end - begin);
  const WireType type = client_.terms().wire_type;
  RoundToWire(type, slice);
  if (place.pending.empty()) {
    std::ranges::copy(slice, Level(place.level).begin() + static_cast<std::ptrdiff_t>(begin));
  }
  // Skips the place if it would only be added.
  const float* from = slice.data();
  for (const size_t to : place.pending) {
    float* const sum = Level(to).data() + begin;
    AddOnWire(type, sum, from, sum, slice.size());
    from = sum;
  }
  if (place.last && part_.wanted[chunk]) {
    client_.PushChunk(part_.order->version, *part_.part, chunk);
  }
}

void ProgramTrainer::Evaluate(const Order& order) {
  trace::AtStep(order.version);
  const trace::Span span("evaluate");
  if (order.average && order.blocks.empty()) follower_.AwaitAll(order, Client::Of::kAverage);
  if (!order.average && order.blocks.empty()) {  // the last step has ended
    Bring(order);
    if (step_ < order.version) EnterStep(-1);
    AwaitNext();  // meanwhile the program may ask for values
  }
  const int64_t size =
      order.set == wire::VALIDATION ? join_.validation_samples : join_.test_samples;
  for (int64_t block = order.blocks.begin; block < order.blocks.end; ++block) {
    // A step ends with the weights of the next one. That of these weights goes on: the program may
    // get more of its slices.
    if (step_ >= 0 && step_ != order.version) {
      Bring(order);
      EnterStep(-1);
    }
    Bring(order, order.average ? Client::Of::kAverage : Client::Of::kWeights);
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
      follower_.AwaitAll(stop);
      has_last = true;
    } catch (const Error&) {  // they have not arrived
    } catch (const OrderFollower::WasReset&) {
    }
  }
  if (has_last) {
    Bring(stop);
    if (step_ < stop.version) EnterStep(-1);  // else the program has ended the run before this step
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
  program_waits_ = false;
}

void ProgramTrainer::AwaitNext() {
  while (!program_waits_) program_waits_ = Receive().kind == Kind::kNext;
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
    } else if (received.kind == Kind::kAsk) {
      Ask(received);
    } else if (received.kind == Kind::kTell) {
      Tell(received);
    } else {
      return received;
    }
  }
}

void ProgramTrainer::Ask(const ProgramLink::Received& received) {
  constexpr std::chrono::milliseconds kPatience{100};
  std::string key;
  const auto ask = received.Begin<program::Ask>(key);
  client_.Ask(key, ask.step, ask.may_compute != 0);
  std::optional<wire::Answer> answer;
  // While the program waits, it sends only why it fails: it was interrupted.
  while (!(answer = client_.AwaitAnswer(kPatience))) {
    if (link_.HasInput()) (void)Receive();
  }
  const program::Answer kind{.kind = static_cast<uint32_t>(answer->kind())};
  link_.Send(Kind::kAnswer, &kind, sizeof kind, {}, answer->value());
}

void ProgramTrainer::Tell(const ProgramLink::Received& received) {
  std::string text;
  const auto tell = received.Begin<program::Tell>(text);
  const size_t key_bytes = std::min<size_t>(tell.key_bytes, text.size());
  client_.Tell(text.substr(0, key_bytes), tell.step, text.substr(key_bytes));
}

}  // namespace muster
