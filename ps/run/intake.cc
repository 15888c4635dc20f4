#include "ps/run/intake.h"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <utility>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/signals.h"
#include "common/base/text.h"
#include "common/config/config_check.h"
#include "common/config/job_size.h"
#include "common/config/text_format.h"
#include "common/config/update_settings.h"
#include "common/link/program_variables.h"
#include "common/link/protocol.h"

namespace muster {
namespace {

constexpr std::chrono::milliseconds kPatience{100};
constexpr std::chrono::seconds kBeatInterval{1};
constexpr size_t kPieceFloats = 64 << 10;  // 256 KiB, which every transport carries in one message
constexpr size_t kMostWaiting = 4096;      // workers

wire::ServerMessage NewMessage(const std::string& token) {
  wire::ServerMessage message;
  message.mutable_address()->set_job(JobOf(token));
  return message;
}

}  // namespace

Intake::Intake(const config::Config& config, const std::string& config_path,
               const std::string& token, ServerLink& link, Recorder& recorder, int interrupt_fd,
               const CheckpointReader* resume)
    : config_(config),
      config_path_(config_path),
      token_(token),
      link_(link),
      recorder_(recorder),
      interrupt_fd_(interrupt_fd),
      resume_(resume) {}

Taken Intake::Await() {
  LogInfo("waiting for the variables of the program of rank 0");
  AwaitPrograms();
  CheckValues();
  if (taken_.updater) BeginUpdates();
  LogInfo("{} variables, {} parameters", taken_.layout.variables().size(),
          taken_.layout.parameter_count());
  return std::move(taken_);
}

void Intake::AwaitPrograms() {
  while (!IsComplete()) {
    if (link_.PrepareToSleep()) {
      pollfd fds[] = {{link_.fd(), POLLIN, 0}, {interrupt_fd_, POLLIN, 0}};
      (void)::poll(fds, 2, static_cast<int>(kPatience.count()));
    }
    while (!IsComplete()) {
      std::optional<FromWorker> event = link_.Receive();
      if (!event) break;
      Handle(std::move(*event));
    }
    link_.Deliver();
    CheckTime(Clock::now());
  }
}

void Intake::BeginUpdates() {
  const auto source = std::ranges::find(taken_.waiting, *source_, &FromWorker::peer);
  MUSTER_CHECK(source != taken_.waiting.end());
  const wire::Hello& hello = source->message.hello();
  taken_.updater->Begin(taken_.layout, hello,
                        {.plan = PlanSteps(taken_.config, hello.train_samples()),
                         .first_step = resume_ == nullptr ? 0 : resume_->state().step(),
                         .state = resume_ == nullptr ? "" : resume_->ProgramState()});
}

bool Intake::IsComplete() const {
  const bool has_values = resume_ != nullptr || received_ == taken_.layout.arena_floats();
  return source_ && has_values && (!taken_.updater || taken_.updater->HasJoined());
}

void Intake::Handle(FromWorker event) {
  if (event.kind == FromWorker::Kind::kRefused) {
    LogWarning("refused a connection from {}: {}", event.refused, event.why_refused);
  } else if (event.kind == FromWorker::Kind::kLost) {
    // The launcher or a service replaces the program; the next one of rank 0 is the source.
    std::erase_if(taken_.waiting,
                  [&](const FromWorker& hello) { return hello.peer == event.peer; });
    if (source_ == event.peer) source_.reset();
  } else if (event.message.has_hello()) {
    OnHello(std::move(event));
  } else if (event.message.has_initial_values()) {
    OnValues(event);
  }
}

void Intake::OnHello(FromWorker event) {
  const wire::Hello& hello = event.message.hello();
  if (!SameToken(hello.token(), token_)) return Refuse(event.peer, kWrongToken);
  if (hello.protocol_version() != kProtocolVersion) {
    return Refuse(event.peer,
                  fmt::format("protocol version {}: expected {}; use the same release of Muster "
                              "for server and workers",
                              hello.protocol_version(), kProtocolVersion));
  }
  if (taken_.waiting.size() >= kMostWaiting) return Refuse(event.peer, "the job is starting");
  const bool is_source =
      !source_ && (resume_ != nullptr || (hello.has_rank() && hello.rank() == 0));
  if (is_source) {
    try {
      taken_.config = Complete(hello);
      taken_.layout = LayOutVariables(hello.variable(), hello.optimizer());
    } catch (const Error& error) {
      return Refuse(event.peer, error.what());
    }
    source_ = event.peer;
    received_ = 0;
    taken_.initial.assign(resume_ != nullptr ? 0 : taken_.layout.arena_floats(), 0.0f);
    if (taken_.config.optimizer().type() == config::Optimizer::PROGRAM && !taken_.updater) {
      taken_.updater = std::make_unique<ProgramUpdater>(config_, config_path_, link_.endpoint());
      progress_ = Clock::now();
    }
  }
  taken_.waiting.push_back(std::move(event));
  if (is_source && resume_ == nullptr) Ask();
}

config::Config Intake::Complete(const wire::Hello& hello) const {
  config::Config config = config_;
  config::Run& run = *config.mutable_run();
  const auto open = [](int64_t said, const char* lacks) {
    if (said > 0) return said;
    throw Error(ExitCode::kUsage, "neither the program nor the launch says {}", lacks);
  };
  const auto warn = [&](auto said, auto counts, const char* setting) {
    if (said == counts) return;
    recorder_.Warn(fmt::format(
        "the program says {}={}, but the run has {}, which counts (its config, or an option)",
        setting, said, counts));
  };
  if (run.batch_case() == config::Run::BATCH_NOT_SET) {
    run.set_global_batch(open(hello.global_batch(),
                              "how many samples a batch has: expected Job(batch_size=256) in "
                              "Python, muster_set_run in C, "
                              "or --set run.global_batch=256"));
  } else if (hello.global_batch() > 0) {
    warn(hello.global_batch(), ResolveBatch(config).global_batch, "run.global_batch");
  }
  if (run.length_case() == config::Run::LENGTH_NOT_SET) {
    run.set_epochs(open(
        hello.epochs(),
        "how long to train: expected `for epoch in job.epochs(10)` in Python, before the job "
        "is used otherwise, or Job(epochs=10), muster_set_run in C, --epochs 10 or --steps 1000"));
  } else if (run.has_epochs() && hello.epochs() > 0) {
    warn(hello.epochs(), run.epochs(), "run.epochs");
  }
  if (!run.has_drop_last()) {
    run.set_drop_last(hello.drop_last());
  } else if (hello.has_drop_last()) {
    warn(hello.drop_last(), run.drop_last(), "run.drop_last");
  }
  CompletePrecision(hello, config);
  *config.mutable_optimizer() = CompleteOptimizer(hello.optimizer());
  ConfigErrors errors("the program");
  CheckConfig(config, errors);
  return config;
}

void Intake::CompletePrecision(const wire::Hello& hello, config::Config& config) const {
  // FP32, the default, says nothing: the program computes as it likes.
  if (hello.loss_scaling()) config.mutable_worker()->set_precision(config::Worker::FP16);
  if (!ScalesLoss(config) || hello.has_loss_scaling()) return;
  throw Error(
      ExitCode::kUsage,
      "worker.precision is FP16, so gradients have a loss scale, but the program does not "
      "say that it multiplies by it: expected muster_set_loss_scaling in C, muster.torch in "
      "Python, or no worker.precision");
}

config::Optimizer Intake::CompleteOptimizer(const std::string& optimizer) const {
  config::Optimizer complete = config_.optimizer();
  if (optimizer.empty() && complete.type() == config::Optimizer::PROGRAM) {
    throw Error(
        ExitCode::kUsage,
        "optimizer.type is PROGRAM, but the program does not say so (muster_set_optimizer)");
  }
  if (optimizer.empty() && config_.has_learning_rate()) return complete;
  if (optimizer.empty()) {
    throw Error(ExitCode::kUsage,
                "neither the config (learning_rate) nor the program (muster_set_optimizer) sets "
                "the learning rate");
  }
  if (config_.has_learning_rate()) {
    throw Error(
        ExitCode::kUsage,
        "both the config (learning_rate) and the program (muster_set_optimizer, or prepare in "
        "Python) set the learning rate: remove one of them");
  }
  config::Optimizer own;
  ParseText(optimizer, "the program's optimizer", "optimizer", own);
  complete.MergeFrom(own);
  ResolveOptimizer(complete);
  return complete;
}

void Intake::Ask() {
  wire::ServerMessage message = NewMessage(token_);
  wire::InitialWanted& wanted = *message.mutable_initial_wanted();
  wanted.set_begin(received_);
  wanted.set_floats(std::min(kPieceFloats, taken_.layout.arena_floats() - received_));
  link_.Send(*source_, message, {});
}

void Intake::OnValues(const FromWorker& event) {
  const wire::InitialValues& piece = event.message.initial_values();
  if (source_ != event.peer || piece.begin() != received_) return;  // of an earlier source
  const size_t floats = std::min(kPieceFloats, taken_.layout.arena_floats() - received_);
  if (piece.values().size() != floats * sizeof(float)) {
    throw Error(ExitCode::kPeerFailed,
                "the program of rank 0 sent {} bytes of initial values, expected {}",
                piece.values().size(), floats * sizeof(float));
  }
  std::memcpy(taken_.initial.data() + received_, piece.values().data(), piece.values().size());
  received_ += floats;
  progress_ = Clock::now();
  if (received_ < taken_.layout.arena_floats()) Ask();
}

void Intake::Refuse(PeerId peer, const std::string& why) {
  LogWarning("refused a worker: {}", why);
  wire::ServerMessage message = NewMessage(token_);
  message.mutable_refused()->set_reason(why);
  link_.Send(peer, message, {});
}

void Intake::CheckTime(Clock::time_point now) {
  while (const std::optional<signalfd_siginfo> received = NextSignal(interrupt_fd_)) {
    const int signal = static_cast<int>(received->ssi_signo);
    if (signal == SIGUSR1 || signal == SIGUSR2) continue;  // there is nothing to save
    throw Error(StopCode(signal), "stopped by {} before the start", SignalName(signal));
  }
  if (now >= next_beat_) {
    next_beat_ = now + kBeatInterval;
    Beat();
  }
  const double limit_s = config_.deadlines().start_s();
  if (now < progress_ + std::chrono::duration<double>(limit_s)) return;
  if (source_ && taken_.updater && received_ == taken_.initial.size()) {
    throw Error(ExitCode::kDeadline,
                "the program's copy that updates the weights did not join within {:g} s "
                "(deadlines.start_s)",
                limit_s);
  }
  if (source_) {
    throw Error(
        ExitCode::kDeadline,
        "the program of rank 0 did not send its initial weights within {:g} s (deadlines.start_s)",
        limit_s);
  }
  throw Error(ExitCode::kDeadline,
              "the program of rank 0 did not join within {:g} s (deadlines.start_s); does it call "
              "muster_join?",
              limit_s);
}

void Intake::Beat() {
  events::Event event;
  event.mutable_beat();
  recorder_.Record(event);
  wire::ServerMessage message = NewMessage(token_);
  message.mutable_heartbeat();
  for (const FromWorker& hello : taken_.waiting) link_.Send(hello.peer, message, {});
}

void Intake::CheckValues() const {
  for (const Variable& variable : taken_.layout.variables()) {
    if (taken_.initial.empty()) return;
    const auto begin = taken_.initial.begin() + static_cast<std::ptrdiff_t>(variable.offset);
    const auto end = begin + static_cast<std::ptrdiff_t>(variable.count);
    const auto found = std::find_if(begin, end, [](float value) { return !std::isfinite(value); });
    if (found == end) continue;
    throw Error(ExitCode::kNonfinite,
                "the initial value of variable \"{}\" is not finite: {} at {}", variable.name,
                *found, found - begin);
  }
}

}  // namespace muster
