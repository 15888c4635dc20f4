#include "ps/record/checkpoints.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/log.h"
#include "common/base/utc_time.h"
#include "common/checkpoint/list_checkpoints.h"
#include "common/checkpoint/resumable_config.h"
#include "common/events/event_log.h"
#include "common/trace/trace.h"
#include "ps/record/checkpoint_arenas.h"

namespace muster {
namespace {

// The loop thread copies fewer bytes than this itself, which is faster than waking threads.
constexpr size_t kAtOnceBytes = 1 << 20;
constexpr double kSlowSeconds = 1;               // a longer write is reported
constexpr std::chrono::minutes kLongestWait{1};  // for events to be written

// Runs on the writer thread. Waits until the events that the checkpoint counts are on disk or
// have failed. Returns why the checkpoint could not be written, or "".
std::string Write(CheckpointToWrite what, const TensorImage& image,
                  const std::shared_future<RunLog::Kept>& kept) {
  if (kept.wait_for(kLongestWait) != std::future_status::ready) {
    return fmt::format("{}/{}: events could not be written within {} s", what.run_dir, kEventLog,
                       std::chrono::seconds(kLongestWait).count());
  }
  try {
    *what.state.mutable_metrics() = kept.get().metrics;
    *what.state.mutable_events() = kept.get().events;
    const trace::Span span("checkpoint", {}, {.step = what.name.step});
    WriteCheckpoint(what, image);
    return "";
  } catch (const std::exception& error) {  // including bad_alloc
    return error.what();
  }
}

// Whether both states have the same weights and evaluations.
bool AreSame(const checkpoint::State& a, const checkpoint::State& b) {
  return a.step() == b.step() && a.evaluated() == b.evaluated() &&
         a.progress().last_evaluation().step() == b.progress().last_evaluation().step() &&
         a.progress().test().step() == b.progress().test().step();
}

}  // namespace

Checkpoints::Checkpoints(const config::Config& config, const std::string& run_id,
                         Variables& variables, ThreadPool& pool, BackgroundThread& files,
                         Recorder& recorder, Describe describe)
    : settings_(config.checkpoint()),
      run_id_(run_id),
      run_dir_(config.run().dir()),
      variables_(variables),
      pool_(pool),
      files_(files),
      recorder_(recorder),
      describe_(std::move(describe)) {
  if (run_dir_.empty() || settings_.keep_last() == 0) return;
  config_text_ = FrozenConfigText(config);
  const std::vector<std::string> arenas = CheckpointArenaNames(variables);
  tensors_ = CheckpointTensors(variables.layout(), arenas);
  image_ = std::make_shared<TensorImage>(variables.layout(), arenas.size());
  RemoveLeftovers(run_dir_);
}

void Checkpoints::Restore(const ResumePoint& resume) {
  kept_.Restore(resume);
  current_.state = resume.state();
}

bool Checkpoints::IsDue(const StepPlan& plan, int64_t step) {
  if (asked_ || retry_.IsDue()) return true;
  // Saving the initial weights reveals a failing disk immediately.
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

std::optional<events::Status::Checkpoint> Checkpoints::Status(const StepPlan& plan,
                                                              int64_t step) const {
  if (!image_) return std::nullopt;
  events::Status::Checkpoint status;
  if (kept_.newest()) status.set_newest_step(kept_.newest()->step);
  // A checkpoint is always taken at the end of the run.
  const auto after = [&](int64_t steps) {
    status.set_next_step(
        std::min(steps > 0 ? (step / steps + 1) * steps : plan.total_steps, plan.total_steps));
  };
  switch (settings_.every_case()) {
    case config::Checkpoint::kEverySteps:
      after(settings_.every_steps());
      break;
    case config::Checkpoint::kEveryMinutes:
      if (settings_.every_minutes() > 0) {
        const std::chrono::duration<double> since = Clock::now() - last_taken_;
        status.set_next_s(std::max(0.0, 60 * settings_.every_minutes() - since.count()));
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
  if (asked_) return;  // the requested checkpoint is taken at a later boundary
  // Epochs shorter than a disk write are not worth a warning.
  const double writing_s = std::chrono::duration<double>(Clock::now() - last_taken_).count();
  if (writing_s < kSlowSeconds || slow_said_) return;
  slow_said_ = true;
  const std::string text = fmt::format(
      "skipping the checkpoint of step {}: writing that of step {} has taken {:.0f} s so far; "
      "consider checkpoint.every_minutes for this disk",
      step, current_.name.step, writing_s);
  recorder_.Warn(text);
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
  const CheckpointName name = kept_.NameOf(state.step(), state.evaluated());
  asked_ = false;
  // Do not rewrite an existing checkpoint, possibly of an older generation.
  if (trouble().empty() && kept_.newest() && AreSame(current_.state, state)) return;
  last_taken_ = Clock::now();
  state.set_run_id(run_id_);
  state.set_config(config_text_);
  state.set_generation(name.generation);
  state.set_time(UtcText(UnixMilliseconds()));
  kept_.PutAccuracies(state);
  current_ = {.run_dir = run_dir_,
              .name = name,
              .state = std::move(state),
              .tensors = tensors_,
              .log_fd = recorder_.log_fd()};
  files_kept_ = recorder_.Keep();
  const std::vector<std::span<float>> arenas = CheckpointArenas(variables_, name.step);
  auto jobs = image_->CopyJobs({arenas.begin(), arenas.end()});
  copying_ = 1 + (fetch_program_ ? 1 : 0);
  if (fetch_program_) {
    fetch_program_(name.step, [this](ProgramState state) {
      current_.program = std::move(state);
      PartCopied();
    });
  }
  if (image_->bytes() <= kAtOnceBytes) {
    for (const auto& job : jobs) job();
    return PartCopied();
  }
  copying_ += jobs.size() - 1;
  for (auto& job : jobs) {
    // The image outlives jobs that are still running at shutdown.
    pool_.Submit([this, job = std::move(job), image = image_]() -> ThreadPool::Completion {
      const trace::Span copy("checkpoint", "copy");
      job();
      return [this] { PartCopied(); };
    });
  }
}

void Checkpoints::PartCopied() {
  if (--copying_ == 0) Copied();
}

void Checkpoints::Copied() {
  if (fetch_program_ && !current_.program) {
    last_is_due_ = false;  // the program has failed, which ends the run
    return NoteFailure(
        "the process of the program that updates the weights has ended or waits for another one, "
        "and has not given its state");
  }
  current_.expired = kept_.ExpiredBy(current_.name, settings_);
  writing_ = true;
  files_.Submit([this, what = current_, image = image_, kept = files_kept_] {
    const std::string trouble = Write(what, *image, kept);
    pool_.Post([this, trouble] { Written(trouble); });
  });
}

void Checkpoints::Written(const std::string& trouble) {
  writing_ = false;
  if (trouble.empty()) {
    if (!retry_.trouble().empty()) LogInfo("checkpoints are written again");
    (void)retry_.Note("");
    kept_.Add(current_.name, current_.expired,
              CheckpointsFolder(run_dir_) + "/" + current_.name.Text());
    LogInfo("saved checkpoint {}", kept_.newest_in());
  } else {
    NoteFailure(trouble);
  }
  if (last_is_due_) TakeLast();
}

void Checkpoints::NoteFailure(const std::string& trouble) {
  const std::string text =
      fmt::format("could not save the checkpoint of step {}: {}", current_.name.step, trouble);
  if (!retry_.Note(trouble)) return LogWarning("{}", text);
  recorder_.Warn(
      fmt::format("{}. Continuing {}; retrying later", text,
                  kept_.newest() ? "with the previous checkpoint" : "without a checkpoint"));
}

}  // namespace muster
