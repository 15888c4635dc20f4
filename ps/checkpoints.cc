#include "ps/checkpoints.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "common/base/log.h"
#include "common/checkpoint/list_checkpoints.h"
#include "common/checkpoint/resumable_config.h"
#include "common/trace/trace.h"
#include "ps/checkpoint_arenas.h"
#include "ps/utc_now.h"

namespace muster {
namespace {

// Less is copied by the loop itself, faster than threads are woken.
constexpr size_t kAtOnceBytes = 1 << 20;
constexpr std::chrono::seconds kRetryAfter{10};
constexpr double kSlowSeconds = 1;  // of a write: worth a word

}  // namespace

Checkpoints::Checkpoints(const config::Config& config, const std::string& run_id,
                         Variables& variables, ThreadPool& pool, Reporter& reporter,
                         const ResumePoint* resume, Describe describe, AwaitBest await_best)
    : settings_(config.checkpoint()),
      run_id_(run_id),
      run_dir_(config.run().dir()),
      variables_(variables),
      pool_(pool),
      reporter_(reporter),
      describe_(std::move(describe)),
      await_best_(std::move(await_best)) {
  if (resume != nullptr) {
    generation_ = resume->next_generation;
    kept_ = resume->kept;
    newest_ = resume->checkpoint.name;
    newest_in_ = resume->checkpoint.reader->folder();
  }
  if (run_dir_.empty() || settings_.keep_last() == 0) return;
  config_text_ = FrozenConfigText(config);
  const std::vector<std::string> arenas = CheckpointArenaNames(variables);
  tensors_ = CheckpointTensors(variables.layout(), arenas);
  image_ = std::make_shared<TensorImage>(variables.layout(), arenas.size());
  RemoveLeftovers(run_dir_);
  thread_ = std::make_unique<CheckpointThread>(
      [&pool](std::function<void()> task) { pool.Post(std::move(task)); },
      [this](const std::string& trouble) { Written(trouble); });
}

Checkpoints::~Checkpoints() = default;

bool Checkpoints::IsDue(const StepPlan& plan, int64_t step) const {
  if (asked_ || (!trouble_.empty() && Clock::now() >= retry_at_)) return true;
  // The first weights: a disk that takes no checkpoint is known at once.
  if (step == 0) return true;
  switch (settings_.every_case()) {
    case config::Checkpoint::kEverySteps:
      return settings_.every_steps() > 0 && step % settings_.every_steps() == 0;
    case config::Checkpoint::kEveryMinutes:
      return settings_.every_minutes() > 0 &&
             Clock::now() - last_taken_ >=
                 std::chrono::duration<double>(60 * settings_.every_minutes());
    default: {
      const int64_t epochs = settings_.has_every_epochs() ? settings_.every_epochs() : 1;
      return epochs > 0 && step % (epochs * plan.StepsPerEpoch()) == 0;
    }
  }
}

std::optional<RunStatus::Checkpoint> Checkpoints::Status(const StepPlan& plan, int64_t step) const {
  if (!image_) return std::nullopt;
  RunStatus::Checkpoint status;
  if (newest_) status.newest_step = newest_->step;
  // At the run's end there is one in any case.
  const auto after = [&](int64_t steps) {
    status.next_step =
        std::min(steps > 0 ? (step / steps + 1) * steps : plan.total_steps, plan.total_steps);
  };
  switch (settings_.every_case()) {
    case config::Checkpoint::kEverySteps:
      after(settings_.every_steps());
      break;
    case config::Checkpoint::kEveryMinutes:
      if (settings_.every_minutes() > 0) {
        const std::chrono::duration<double> since = Clock::now() - last_taken_;
        status.next_s = std::max(0.0, 60 * settings_.every_minutes() - since.count());
      } else {
        after(0);
      }
      break;
    default:
      after((settings_.has_every_epochs() ? settings_.every_epochs() : 1) * plan.StepsPerEpoch());
  }
  return status;
}

void Checkpoints::AtBoundary(const StepPlan& plan, int64_t step) {
  if (!image_ || !IsDue(plan, step)) return;
  if (copying() || writing_) return LeaveOut(step);
  Take();
}

void Checkpoints::LeaveOut(int64_t step) {
  if (asked_) return;  // it comes later
  ++left_out_;
  // Of epochs that are shorter than a disk's answer nobody wants to hear.
  const double writing_s = std::chrono::duration<double>(Clock::now() - last_taken_).count();
  if (writing_s < kSlowSeconds || slow_said_) return;
  slow_said_ = true;
  const std::string text = fmt::format(
      "the checkpoint of step {} is left out: that of step {} has been written for {:.0f} s, and "
      "is "
      "not on the disk yet; checkpoint.every_minutes may suit this disk",
      step, current_.name.step, writing_s);
  LogWarning("{}", text);
  reporter_.Warning(text);
}

void Checkpoints::TakeLast() {
  if (!image_) return;
  last_is_due_ = true;
  if (copying() || writing_) return;
  last_is_due_ = false;
  Take();
}

void Checkpoints::Take() {
  const trace::Span span("checkpoint", "copy");
  checkpoint::State state = describe_();
  const CheckpointName name{generation_, state.step(), state.evaluated()};
  asked_ = false;
  // What there is already need not be written again. A new server has it under its older name.
  if (trouble_.empty() && newest_ && newest_->step == name.step &&
      newest_->evaluated == name.evaluated) {
    return;
  }
  last_taken_ = Clock::now();
  state.set_run_id(run_id_);
  state.set_config(config_text_);
  state.set_generation(generation_);
  state.set_time(UtcNow());
  for (const KeptCheckpoint& one : kept_) {
    if (!one.accuracy) continue;
    checkpoint::Evaluated& evaluated = *state.add_kept();
    evaluated.set_generation(one.name.generation);
    evaluated.set_step(one.name.step);
    evaluated.set_accuracy(*one.accuracy);
  }
  const int64_t best_step = state.progress().best_step();
  current_ = {.run_dir = run_dir_,
              .name = name,
              .state = std::move(state),
              .tensors = tensors_,
              .prepare = [this, best_step] { await_best_(best_step); },
              .metrics_fd = reporter_.metrics_fd()};
  const std::vector<std::span<float>> arenas = CheckpointArenas(variables_, name.step);
  auto jobs = image_->CopyJobs({arenas.begin(), arenas.end()});
  if (image_->bytes() <= kAtOnceBytes) {
    for (const auto& job : jobs) job();
    return Copied();
  }
  copying_ = jobs.size();
  for (auto& job : jobs) {
    // The memory outlives a job that is still running when everything ends.
    pool_.Submit([this, job = std::move(job), image = image_]() -> ThreadPool::Completion {
      const trace::Span copy("checkpoint", "copy");
      job();
      return [this] {
        if (--copying_ == 0) Copied();
      };
    });
  }
}

void Checkpoints::Copied() {
  std::vector<KeptCheckpoint> after = kept_;
  std::erase_if(after, [&](const auto& one) { return one.name == current_.name; });
  after.push_back({current_.name, std::nullopt});
  current_.expired = TakeExpired(after, settings_.keep_last(), settings_.keep_best());
  writing_ = true;
  thread_->Start(current_, image_);
}

void Checkpoints::Written(const std::string& trouble) {
  writing_ = false;
  if (trouble.empty()) {
    if (!trouble_.empty()) LogInfo("checkpoints can be written again");
    trouble_.clear();
    newest_ = current_.name;
    newest_in_ = CheckpointsFolder(run_dir_) + "/" + current_.name.Text();
    std::erase_if(kept_, [&](const auto& one) {
      return one.name == current_.name ||
             std::ranges::find(current_.expired, one.name) != current_.expired.end();
    });
    kept_.push_back({current_.name, AccuracyOf(current_.name.step)});
    LogInfo("checkpoint {}", newest_in_);
  } else {
    NoteFailure(trouble);
  }
  if (last_is_due_) TakeLast();
}

void Checkpoints::NoteFailure(const std::string& trouble) {
  const bool first = trouble_.empty();
  trouble_ = trouble;
  retry_at_ = Clock::now() + kRetryAfter;
  LogWarning("no checkpoint of step {}: {}", current_.name.step, trouble);
  if (first) {
    reporter_.Warning(
        fmt::format("no checkpoint of step {}: {}; the run goes on, {}, and it will "
                    "be tried again",
                    current_.name.step, trouble,
                    newest_ ? "the one before is kept" : "nothing of it is kept yet"));
  }
}

std::optional<double> Checkpoints::AccuracyOf(int64_t step) const {
  return evaluated_ && evaluated_->first == step ? std::optional(evaluated_->second) : std::nullopt;
}

void Checkpoints::OnEvaluated(int64_t step, double accuracy) {
  evaluated_ = {step, accuracy};
  for (KeptCheckpoint& one : kept_) {
    if (one.name.step == step && one.name.generation == generation_) one.accuracy = accuracy;
  }
}

}  // namespace muster
