#include "ps/server.h"

#include <fmt/ranges.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "common/atomic_file.h"
#include "common/compute_settings.h"
#include "common/config.h"
#include "common/log.h"
#include "common/protocol.h"
#include "common/trace/trace.h"

namespace muster {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBeatInterval{1000};
constexpr milliseconds kLiveInterval{200};
constexpr milliseconds kGoodbyeWait{3000};
constexpr uint64_t kMostRefusalsReported = 20;  // a flood is not worth more

std::chrono::steady_clock::duration Seconds(double s) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(s));
}

}  // namespace

Server::Server(const config::Config& config, const std::string& token,
               std::unique_ptr<ServerLink> link, Reporter& reporter, int interrupt_fd)
    : config_(config),
      graph_(Graph::Build(config.model(), InputShape(config.data()))),
      reporter_(reporter),
      interrupt_fd_(interrupt_fd),
      roster_(graph_, {token, JobOf(token), config.cluster().workers(), ComputeSettings(config)}),
      aggregator_(graph_, CutChunks(graph_, config.cluster().chunk_bytes()), config.optimizer(),
                  config.run().on_nonfinite(), config.run().seed(), pool_,
                  [this](int64_t version, size_t chunk) { PublishChunk(version, chunk); }),
      pool_(config.server().threads()),
      next_waiting_(began_ + std::chrono::seconds(5)),
      link_(std::move(link)) {
  MUSTER_CHECK(config.run().slices() > 0 && config.server().threads() > 0);
  link_->ShareWeights(aggregator_.planes());
}

Server::~Server() = default;

ServerResult Server::Run() {
  FlushDenormals();  // small chunks are updated in this thread
  reporter_.Event("listening", {{"endpoint", link_->endpoint()}});
  spdlog::info("listening on {}", link_->endpoint());
  try {
    while (!done_) Turn();
  } catch (const Error& error) {
    const bool interrupted = error.code() == ExitCode::kTerminated;
    spdlog::error("{}", error.what());
    if (!interrupted) {
      nlohmann::ordered_json event{{"message", error.what()},
                                   {"exit_code", static_cast<int>(error.code())}};
      if (blamed_) event["rank"] = *blamed_;
      reporter_.Event("failure", event);
    }
    const bool trained = phase_ != Phase::kGathering && phase_ != Phase::kPreparing;
    StopAll(false, error.what());
    // What was reached: the last version whose chunks are all there.
    const auto summary =
        progress_.Summary(interrupted ? "interrupted" : "failed", aggregator_.HashWeights(step_));
    // A run that never began leaves no line: its directory can be used again.
    if (trained) reporter_.Metrics(summary);
    reporter_.Event("summary", summary);
    throw;
  }
  StopAll(true, "the run is complete");
  const auto summary = progress_.Summary("completed", aggregator_.HashWeights(step_));
  reporter_.Metrics(summary);
  reporter_.Event("summary", summary);
  spdlog::info("completed: {}", summary.dump());
  ServerResult result{step_, aggregator_.HashWeights(step_), std::nullopt, dropped_};
  if (summary.contains("test_accuracy")) result.test_accuracy = summary["test_accuracy"];
  return result;
}

void Server::Turn() {
  if (!link_->Pending()) {
    pollfd fds[] = {{link_->fd(), POLLIN, 0}, {pool_.fd(), POLLIN, 0}, {interrupt_fd_, POLLIN, 0}};
    // The link's descriptor tells of new input only; the short wait covers what it cannot tell.
    (void)::poll(fds, 3, link_->Pending() ? 0 : 100);
  }
  CheckInterrupt();
  pool_.Collect();
  CheckFinite();
  // Before any message is read: a fast worker answers the step's last chunk with the next step.
  EndStepIfComplete();
  // A bounded number at a time, so that finished chunks are published in between.
  for (int i = 0; i < 64; ++i) {
    const std::optional<FromWorker> event = link_->Receive();
    if (!event) break;
    Receive(*event);
    CheckFinite();
    EndStepIfComplete();  // small chunks are updated at once
  }
  CheckDeadlines();
  SendBeats();
  link_->Deliver();
}

void Server::CheckFinite() const {
  if (!aggregator_.nonfinite() || aggregator_.skips()) return;
  const Aggregator::Nonfinite& bad = *aggregator_.nonfinite();
  const char* why = "on_nonfinite is ABORT; nothing of this step is kept";
  if (config_.run().on_nonfinite() == config::Run::SKIP_STEP) {
    // While gradients are still being added, the decision is ahead.
    if (aggregator_.averages()) return;
    why = "a finite gradient that breaks a weight is not skipped";
  }
  throw Error(ExitCode::kNonfinite,
              "{} at step {}{}{}: {}. A smaller learning rate is the usual remedy", bad.what, step_,
              bad.rank ? ", from " : "", bad.rank ? roster_.Name(*bad.rank) : "", why);
}

// SKIP_STEP: the step is complete and has changed nothing.
void Server::CountSkippedStep() {
  const Aggregator::Nonfinite& bad = bad_loss_ ? *bad_loss_ : *aggregator_.nonfinite();
  const std::string from = bad.rank ? ", from " + roster_.Name(*bad.rank) : "";
  ++skipped_in_a_row_;
  spdlog::warn("skipped step {}: {}{} ({} in a row)", step_, bad.what, from, skipped_in_a_row_);
  nlohmann::ordered_json event{
      {"step", step_}, {"reason", bad.what}, {"in_a_row", skipped_in_a_row_}};
  if (bad.rank) event["rank"] = *bad.rank;
  reporter_.Event("skipped_step", event);
  if (skipped_in_a_row_ < config_.run().max_skipped_steps()) return;
  throw Error(ExitCode::kNonfinite,
              "{} at step {}{}: {} skipped in a row, which is run.max_skipped_steps. A smaller "
              "learning rate is the usual remedy",
              bad.what, step_, from,
              skipped_in_a_row_ == 1 ? "1 step" : fmt::format("{} steps", skipped_in_a_row_));
}

void Server::Receive(const FromWorker& event) {
  const std::optional<uint32_t> rank = roster_.RankOf(event.peer);
  const std::string who = rank ? roster_.Name(*rank) : fmt::format("stranger {}", event.peer);
  if (event.kind == FromWorker::Kind::kLost) {
    if (rank) OnLost(*rank);
    return;
  }
  if (event.kind == FromWorker::Kind::kMalformed)
    return Drop(who, "not a message of this protocol");
  if (event.message.has_hello()) return OnHello(event.peer, event.message);
  if (!rank) return Drop(who, "has not joined");
  if (!roster_.Matches(*rank, event.message.address())) {
    return Drop(who, "wrong job, rank or incarnation");
  }
  roster_.at(*rank).last_heard = Clock::now();
  OnMessage(*rank, event.message, event.payload);
}

void Server::Drop(const std::string& who, const std::string& why) {
  ++dropped_;
  // The first few are worth a line each; a flood is not.
  if (dropped_ <= 20 || (dropped_ & (dropped_ - 1)) == 0) {
    spdlog::warn("dropped a message of {}: {} ({} so far)", who, why, dropped_);
  }
}

// a. Who joins, and with what.
void Server::OnHello(PeerId peer, const wire::WorkerMessage& message) {
  std::optional<std::string> reason;
  if (phase_ != Phase::kGathering) {
    reason = "all workers of this job have joined already";
  } else {
    reason = roster_.Join(peer, message.address(), message.hello());
  }
  if (reason) {
    Drop(fmt::format("rank {} (host {}, pid {})", message.address().rank(), message.hello().host(),
                     message.hello().pid()),
         *reason);
    if (dropped_ <= kMostRefusalsReported) {
      reporter_.Event("refused",
                      {{"message", fmt::format("Refused rank {} (host {}, pid {}): {}",
                                               message.address().rank(), message.hello().host(),
                                               message.hello().pid(), *reason)}});
    }
    wire::ServerMessage refusal;
    refusal.mutable_refused()->set_reason(*reason);
    (void)link_->Send(peer, refusal, {});
    return;
  }
  const uint32_t rank = message.address().rank();
  const std::string remark = roster_.Remark(rank);
  const std::string joined =
      fmt::format("{} joined{}{}", roster_.Name(rank), remark.empty() ? "" : "; ", remark);
  spdlog::info("{}", joined);
  reporter_.Event("joined", {{"rank", rank}, {"message", joined}});
  if (roster_.Complete()) WelcomeAll();
}

void Server::WelcomeAll() {
  plan_.train_samples = roster_.train_samples();
  plan_.global_batch = ResolveBatch(config_).global_batch;
  plan_.slices = config_.run().slices();
  plan_.total_steps = config_.run().has_steps() ? config_.run().steps()
                                                : config_.run().epochs() * plan_.StepsPerEpoch();
  schedule_ = LearningRateSchedule(config_.learning_rate(), roster_.size(),
                                   plan_.At(plan_.total_steps).samples_before);
  if (config_.learning_rate().scaling() != config::LearningRate::NONE) {
    spdlog::info("learning rate: base {:g} is scaled to {:g} ({}, {} workers)",
                 config_.learning_rate().base(), schedule_.base(),
                 config::LearningRate::Scaling_Name(config_.learning_rate().scaling()),
                 roster_.size());
  }
  std::vector<ExpectedPart> parts;
  for (uint32_t rank = 0; rank < roster_.size(); ++rank) {
    const Range slices = EvenPart(plan_.slices, roster_.size(), rank);
    for (const TreeNode& node : Decompose(slices, plan_.slices)) parts.push_back({node, rank});
    wire::ServerMessage message = NewMessage();
    wire::Welcome& welcome = *message.mutable_welcome();
    welcome.set_workers(roster_.size());
    for (const Chunk& chunk : aggregator_.chunks()) welcome.add_chunk_end(chunk.end);
    welcome.set_first_step(step_);
    welcome.set_train_samples(plan_.train_samples);
    welcome.set_global_batch(plan_.global_batch);
    welcome.set_total_steps(plan_.total_steps);
    welcome.set_slices(static_cast<uint32_t>(plan_.slices));
    welcome.set_slice_begin(static_cast<uint32_t>(slices.begin));
    welcome.set_slice_end(static_cast<uint32_t>(slices.end));
    SendTo(rank, message);
  }
  aggregator_.Expect(std::move(parts), plan_.slices);
  phase_ = Phase::kPreparing;
  step_deadline_began_ = Clock::now();
  for (size_t c = 0; c < aggregator_.chunks().size(); ++c) PublishChunk(step_, c);

  auto workers = nlohmann::ordered_json::array();
  for (uint32_t rank = 0; rank < roster_.size(); ++rank) {
    const Member& member = roster_.at(rank);
    workers.push_back(
        {{"rank", rank}, {"host", member.host}, {"pid", member.pid}, {"threads", member.threads}});
  }
  reporter_.Event("started", {{"workers", workers},
                              {"train_samples", plan_.train_samples},
                              {"test_samples", roster_.test_samples()},
                              {"total_steps", plan_.total_steps},
                              {"steps_per_epoch", plan_.StepsPerEpoch()},
                              {"global_batch", plan_.global_batch},
                              {"slices", plan_.slices},
                              {"parameters", graph_.parameter_count()},
                              {"chunks", aggregator_.chunks().size()}});
}

void Server::OnMessage(uint32_t rank, const wire::WorkerMessage& message, const Payload& payload) {
  switch (message.body_case()) {
    case wire::WorkerMessage::kReady: {
      roster_.at(rank).ready = true;
      if (phase_ != Phase::kPreparing) return;
      for (uint32_t r = 0; r < roster_.size(); ++r) {
        if (!roster_.at(r).ready) return;
      }
      phase_ = Phase::kTraining;
      spdlog::info("all {} workers are ready: {} steps of {} samples", roster_.size(),
                   plan_.total_steps, plan_.global_batch);
      progress_.Begin(plan_, roster_.size());
      OrderStep(step_);
      return BeginStep(step_);
    }
    case wire::WorkerMessage::kSliceLoss:
      return OnSliceLoss(rank, message.slice_loss());
    case wire::WorkerMessage::kGradientPart:
      return OnGradient(rank, message.gradient_part(), payload);
    case wire::WorkerMessage::kEvaluatedBlock:
      return OnEvaluatedBlock(rank, message.evaluated_block());
    case wire::WorkerMessage::kStepTimes:
      return progress_.AddTimes(rank, message.step_times());
    case wire::WorkerMessage::kFailure:
      blamed_ = rank;
      throw Error(ExitCode::kPeerFailed, "{} failed at step {}: {}", roster_.Name(rank), step_,
                  message.failure().message());
    case wire::WorkerMessage::kBeat:
      return;
    case wire::WorkerMessage::kGoodbye:
      roster_.at(rank).finished = true;
      if (phase_ != Phase::kStopping) {
        throw Error(ExitCode::kPeerFailed, "{} left at step {}, before the end", roster_.Name(rank),
                    step_);
      }
      return;
    default:
      return Drop(roster_.Name(rank), "a message without a known body");
  }
}

// b. Losses first: a bad one is caught before anything is updated.
void Server::BeginStep(int64_t step) {
  trace::AtStep(step);
  step_ = step;
  step_deadline_began_ = Clock::now();
  losses_.Begin(plan_, plan_.At(step));
  learning_rate_ = schedule_.At(losses_.batch().samples_before);
  bad_loss_.reset();
  aggregator_.BeginStep(step);
}

void Server::OnSliceLoss(uint32_t rank, const wire::SliceLoss& loss) {
  const trace::Span span("receive", "loss", {.rank = static_cast<int32_t>(rank)});
  const Range mine = EvenPart(plan_.slices, roster_.size(), rank);
  if (phase_ != Phase::kTraining || loss.step() != step_) {
    return Drop(roster_.Name(rank),
                fmt::format("a loss of step {} at step {}", loss.step(), step_));
  }
  if (loss.slice() < mine.begin || loss.slice() >= mine.end ||
      !losses_.Add(loss.slice(), loss.samples(), loss.loss(), loss.correct())) {
    return Drop(roster_.Name(rank), fmt::format("an unexpected loss of slice {}", loss.slice()));
  }
  if (!std::isfinite(loss.loss()) && !bad_loss_) {
    bad_loss_ = {fmt::format("the loss of slice {} is {}", loss.slice(), loss.loss()), rank};
    if (config_.run().on_nonfinite() == config::Run::ABORT) {
      throw Error(ExitCode::kNonfinite,
                  "{} at step {}, from {}: on_nonfinite is ABORT; nothing of this step is kept. A "
                  "smaller learning rate is the usual remedy",
                  bad_loss_->what, step_, roster_.Name(rank));
    }
  }
  if (!losses_.Complete()) return;
  if (bad_loss_) {
    aggregator_.SkipStep();  // the step goes on: its gradients are waited for, and not used
  } else {
    aggregator_.AllowUpdates(learning_rate_);
  }
  OrderNext(step_);
}

// Orders go out ahead of time, so that a worker never waits for one.
void Server::OrderNext(int64_t step) {
  const int64_t next = step + 1;
  if (EvaluationIsDueAfter(step)) {
    evaluation_.emplace(next, roster_.test_samples(), config_.evaluation().batch(), roster_.size(),
                        graph_.classes(), config_.evaluation().confusion_matrix());
    for (uint32_t rank = 0; rank < roster_.size(); ++rank) {
      const Range blocks = evaluation_->BlocksOf(rank);
      wire::ServerMessage message = NewMessage();
      wire::Evaluate& evaluate = *message.mutable_evaluate();
      evaluate.set_version(next);
      evaluate.set_block_size(config_.evaluation().batch());
      evaluate.set_block_begin(static_cast<uint32_t>(blocks.begin));
      evaluate.set_block_end(static_cast<uint32_t>(blocks.end));
      evaluate.set_average(config_.evaluation().use_ema());
      evaluate.set_predictions(config_.evaluation().confusion_matrix());
      SendTo(rank, message);
    }
  }
  // An evaluation that may end the run is waited for.
  if (evaluation_ && config_.evaluation().has_stop_at_accuracy()) return;
  if (next < plan_.total_steps) OrderStep(next);
}

void Server::OrderStep(int64_t step) {
  wire::ServerMessage message = NewMessage();
  message.mutable_train()->set_step(step);
  message.mutable_train()->set_samples(plan_.At(step).samples);
  Broadcast(message);
}

bool Server::EvaluationIsDueAfter(int64_t step) const {
  if (roster_.test_samples() == 0) return false;
  const config::Evaluation& when = config_.evaluation();
  const int64_t done = step + 1;
  if (done == plan_.total_steps) return !when.skip_final();
  const int64_t per_epoch = plan_.StepsPerEpoch();
  if (when.every_steps() > 0 && done % when.every_steps() == 0) return true;
  return when.every_epochs() > 0 && done % (per_epoch * when.every_epochs()) == 0;
}

// c. Parts of gradients, chunk by chunk.
void Server::OnGradient(uint32_t rank, const wire::GradientPart& part, const Payload& payload) {
  const trace::Span span(
      "receive", {},
      {.chunk = static_cast<int32_t>(part.chunk()), .rank = static_cast<int32_t>(rank)});
  if (phase_ != Phase::kTraining || part.step() != step_) {
    return Drop(roster_.Name(rank),
                fmt::format("a gradient of step {} at step {}", part.step(), step_));
  }
  const TreeNode node{part.subtree().level(), part.subtree().index()};
  switch (aggregator_.Add(rank, part.chunk(), node, part.empty(), payload)) {
    case Aggregator::Verdict::kAccepted:
      return;
    case Aggregator::Verdict::kRepeated:
      return Drop(roster_.Name(rank), fmt::format("chunk {} again", part.chunk()));
    case Aggregator::Verdict::kUnknownChunk:
      return Drop(roster_.Name(rank),
                  fmt::format("chunk {} of {}", part.chunk(), aggregator_.chunks().size()));
    case Aggregator::Verdict::kUnknownSubtree:
      return Drop(roster_.Name(rank),
                  fmt::format("subtree {}.{}, which is not its own", node.level, node.index));
    case Aggregator::Verdict::kWrongSize:
      return Drop(roster_.Name(rank),
                  fmt::format("{} bytes for chunk {}, which has {}", payload.bytes, part.chunk(),
                              aggregator_.chunks()[part.chunk()].floats() * sizeof(float)));
  }
}

// d. A chunk of W(v + 1) goes out as soon as it is written, and so does that of its average where
// an evaluation wants it.
void Server::PublishChunk(int64_t version, size_t chunk) {
  const trace::Span span("publish", {}, {.step = version, .chunk = static_cast<int32_t>(chunk)});
  wire::ServerMessage message = NewMessage();
  message.mutable_weights_chunk()->set_version(version);
  message.mutable_weights_chunk()->set_chunk(static_cast<uint32_t>(chunk));
  Broadcast(message, aggregator_.WeightsOf(version, chunk));
  if (!AverageIsDue(version)) return;
  message.mutable_weights_chunk()->set_average(true);
  Broadcast(message, aggregator_.AverageOf(chunk));
}

bool Server::AverageIsDue(int64_t version) const {
  return config_.evaluation().use_ema() && phase_ == Phase::kTraining &&
         EvaluationIsDueAfter(version - 1);
}

void Server::EndStepIfComplete() {
  if (phase_ != Phase::kTraining || !aggregator_.StepIsComplete()) return;
  const trace::Span span("end step");
  progress_.EndStep(losses_, learning_rate_, aggregator_.skips());
  if (aggregator_.skips()) {
    CountSkippedStep();
  } else {
    skipped_in_a_row_ = 0;
  }
  const int64_t next = step_ + 1;
  const bool last = next == plan_.total_steps;
  if (next % config_.run().log_every_steps() == 0 || last) {
    auto line = progress_.LogLine();
    reporter_.Metrics(line);
    line["eta_s"] = progress_.RemainingSeconds();
    reporter_.Event("log", line);
  }
  if (Clock::now() >= next_live_) {
    next_live_ = Clock::now() + kLiveInterval;
    reporter_.Event("progress", progress_.LiveLine(), Reporter::Priority::kProgress);
  }
  if (evaluation_) progress_.BeginEvaluation();
  if (last) {
    step_ = next;
    trace::AtStep(next);
    phase_ = Phase::kStopping;
    done_ = !evaluation_;
  } else {
    BeginStep(next);
  }
}

void Server::OnEvaluatedBlock(uint32_t rank, const wire::EvaluatedBlock& block) {
  if (!evaluation_ || !evaluation_->Add(rank, block)) {
    return Drop(roster_.Name(rank), fmt::format("an unexpected block {}", block.block()));
  }
  if (evaluation_->Complete()) return EndEvaluation();
  if (Clock::now() >= next_live_) {
    next_live_ = Clock::now() + kLiveInterval;
    reporter_.Event("progress",
                    {{"phase", "evaluation"},
                     {"done", evaluation_->done()},
                     {"total", evaluation_->blocks()},
                     {"step", progress_.steps()},
                     {"total_steps", plan_.total_steps}},
                    Reporter::Priority::kProgress);
  }
}

void Server::EndEvaluation() {
  const EvaluationResult result = evaluation_->Result();
  progress_.EndEvaluation(result);
  const auto line = progress_.EvaluationLine();
  reporter_.Metrics(line);
  reporter_.Event("evaluation", line);
  spdlog::info("step {}: test accuracy {:.4f}, test loss {:.4f}", result.version, result.accuracy,
               result.loss);
  // Written anew at each one, so that it is the last one's however the run ends.
  if (evaluation_->confusion_matrix() != nullptr && !config_.run().dir().empty()) {
    WriteFileAtomically(config_.run().dir() + "/confusion_matrix.csv",
                        evaluation_->confusion_matrix()->Csv());
  }
  evaluation_.reset();
  step_deadline_began_ = Clock::now();
  if (phase_ == Phase::kStopping) {
    done_ = true;
  } else if (config_.evaluation().has_stop_at_accuracy()) {
    if (result.accuracy >= config_.evaluation().stop_at_accuracy()) return StopEarly(result);
    OrderStep(step_);  // it was held back
  }
}

// The run has reached what it was for. No worker has been told of a step after this evaluation.
void Server::StopEarly(const EvaluationResult& result) {
  const std::string reason =
      fmt::format("reached the test accuracy {:g} at step {}: evaluation.stop_at_accuracy is {:g}",
                  result.accuracy, result.version, config_.evaluation().stop_at_accuracy());
  spdlog::info("{}", reason);
  progress_.StopEarly(reason);
  phase_ = Phase::kStopping;
  done_ = true;
}

// f. Nobody waits for ever.
void Server::OnLost(uint32_t rank) {
  if (roster_.at(rank).finished) return;
  blamed_ = rank;
  throw Error(ExitCode::kPeerFailed, "{} was lost at step {}: its connection ended",
              roster_.Name(rank), step_);
}

void Server::CheckDeadlines() {
  const Clock::time_point now = Clock::now();
  const config::Deadlines& deadlines = config_.deadlines();
  const auto missed = [&](const std::vector<uint32_t>& ranks, const std::string& what,
                          double limit) {
    throw Error(ExitCode::kDeadline, "{} from {} within {:g} s (step {})", what, Names(ranks),
                limit, step_);
  };
  if (phase_ == Phase::kGathering) {
    const double waited = std::chrono::duration<double>(now - began_).count();
    if (waited > deadlines.start_s()) {
      throw Error(ExitCode::kDeadline,
                  "{} of {} workers did not join within {:g} s: rank {} missing",
                  roster_.MissingRanks().size(), roster_.size(), deadlines.start_s(),
                  fmt::join(roster_.MissingRanks(), ", "));
    }
    if (now >= next_waiting_) {
      next_waiting_ = now + std::chrono::seconds(5);
      spdlog::info("waiting for rank {} ({:.0f} s)", fmt::join(roster_.MissingRanks(), ", "),
                   waited);
      reporter_.Event("waiting", {{"missing", roster_.MissingRanks()}, {"elapsed_s", waited}});
    }
  } else if (phase_ == Phase::kPreparing) {
    std::vector<uint32_t> late;
    for (uint32_t rank = 0; rank < roster_.size(); ++rank) {
      if (!roster_.at(rank).ready) late.push_back(rank);
    }
    if (now - step_deadline_began_ > Seconds(deadlines.first_step_s()))
      missed(late, "no Ready", deadlines.first_step_s());
  } else if (evaluation_ && (phase_ == Phase::kStopping || evaluation_->version() == step_)) {
    const auto since = std::max(evaluation_->last_progress(), step_deadline_began_);
    if (now - since > Seconds(deadlines.progress_s()))
      missed(evaluation_->MissingRanks(), "no evaluation", deadlines.progress_s());
  } else if (phase_ == Phase::kTraining) {
    const double limit =
        progress_.steps() == 0
            ? deadlines.first_step_s()
            : std::max(deadlines.step_s(), deadlines.step_median_factor() * progress_.MedianStep());
    if (now - step_deadline_began_ > Seconds(limit)) {
      std::vector<uint32_t> late;
      for (uint32_t rank = 0; rank < roster_.size(); ++rank) {
        const Range mine = EvenPart(plan_.slices, roster_.size(), rank);
        for (int64_t s = mine.begin; s < mine.end; ++s) {
          if (losses_.Has(s)) continue;
          late.push_back(rank);
          break;
        }
      }
      if (!late.empty()) missed(late, "no loss", limit);
      missed(aggregator_.MissingRanks(), "no complete gradient", limit);
    }
  }
  for (uint32_t rank = 0; rank < roster_.size(); ++rank) {
    const Member& member = roster_.at(rank);
    if (member.peer && now - member.last_heard > Seconds(deadlines.silence_s())) {
      blamed_ = rank;
      throw Error(ExitCode::kDeadline, "{} was lost at step {}: silent for {:g} s",
                  roster_.Name(rank), step_, deadlines.silence_s());
    }
  }
}

void Server::CheckInterrupt() {
  if (interrupt_fd_ < 0) return;
  signalfd_siginfo info;
  if (::read(interrupt_fd_, &info, sizeof info) <= 0) return;
  throw Error(ExitCode::kTerminated, "stopped by signal {} at step {}", info.ssi_signo, step_);
}

void Server::SendBeats() {
  if (Clock::now() < next_beat_) return;
  next_beat_ = Clock::now() + kBeatInterval;
  wire::ServerMessage message = NewMessage();
  message.mutable_beat();
  for (uint32_t rank = 0; rank < roster_.size(); ++rank) {
    if (roster_.at(rank).peer) SendTo(rank, message);
  }
}

// Tells everyone to stop and waits, for a while, until they have said Goodbye or are gone.
void Server::StopAll(bool completed, const std::string& reason) {
  phase_ = Phase::kStopping;
  wire::ServerMessage message = NewMessage();
  message.mutable_stop()->set_completed(completed);
  message.mutable_stop()->set_reason(reason);
  for (uint32_t rank = 0; rank < roster_.size(); ++rank) {
    if (!roster_.at(rank).peer) continue;
    message.mutable_address()->set_rank(rank);
    message.mutable_address()->set_incarnation(roster_.at(rank).incarnation);
    if (!link_->Send(*roster_.at(rank).peer, message, {})) roster_.at(rank).finished = true;
  }
  link_->Deliver();
  const Clock::time_point deadline = Clock::now() + (completed ? kGoodbyeWait : kGoodbyeWait / 3);
  const auto everybody_left = [&] {
    for (uint32_t rank = 0; rank < roster_.size(); ++rank) {
      if (roster_.at(rank).peer && !roster_.at(rank).finished) return false;
    }
    return true;
  };
  while (!everybody_left() && Clock::now() < deadline) {
    const std::optional<FromWorker> event = link_->Receive();
    if (!event) {
      pollfd fd{link_->fd(), POLLIN, 0};
      if (!link_->Pending()) (void)::poll(&fd, 1, 20);
      continue;
    }
    const std::optional<uint32_t> rank = roster_.RankOf(event->peer);
    if (rank && (event->kind == FromWorker::Kind::kLost || event->message.has_goodbye())) {
      roster_.at(*rank).finished = true;
    }
  }
}

wire::ServerMessage Server::NewMessage() const {
  wire::ServerMessage message;
  message.mutable_address()->set_job(roster_.job());
  return message;
}

void Server::SendTo(uint32_t rank, wire::ServerMessage& message, std::span<const float> tensor) {
  const Member& member = roster_.at(rank);
  message.mutable_address()->set_rank(rank);
  message.mutable_address()->set_incarnation(member.incarnation);
  if (!member.peer || link_->Send(*member.peer, message, tensor)) return;
  throw Error(ExitCode::kPeerFailed, "{} was lost at step {}: it cannot be reached any more",
              roster_.Name(rank), step_);
}

void Server::Broadcast(wire::ServerMessage& message, std::span<const float> tensor) {
  for (uint32_t rank = 0; rank < roster_.size(); ++rank) SendTo(rank, message, tensor);
}

std::string Server::Names(const std::vector<uint32_t>& ranks) const {
  std::vector<std::string> names;
  for (const uint32_t rank : ranks) names.push_back(roster_.Name(rank));
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace muster
