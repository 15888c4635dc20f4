#include "ps/model_writer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/resource_limits.h"
#include "common/model/write_model.h"
#include "ps/variables.h"

namespace muster {
namespace {

constexpr std::chrono::seconds kRetryAfter{10};
constexpr std::chrono::minutes kLongestWait{1};  // of a checkpoint, for a disk that takes very long
constexpr const char* kBest = "best.safetensors";
constexpr std::array<const char*, 4> kOrder = {"model.safetensors", "model-raw.safetensors",
                                               "model-ema.safetensors", kBest};

size_t Rank(const events::Summary::Model& model) {
  return static_cast<size_t>(std::ranges::find(kOrder, model.file()) - kOrder.begin());
}

}  // namespace

ModelWriter::ModelWriter(const config::Config& config, const Graph& graph)
    : config_(config), graph_(graph) {}

Arena ModelWriter::TakeArena() {
  const std::lock_guard lock(mutex_);
  if (unsaved_) {  // older weights than those that come now
    free_.push_back(std::move(unsaved_->copy));
    unsaved_.reset();
  }
  const auto waiting = std::ranges::find(jobs_, kBest, &Job::name);
  if (waiting != jobs_.end()) {
    free_.push_back(std::move(waiting->copy));
    jobs_.erase(waiting);
  }
  if (free_.empty()) return Arena(graph_.arena_floats());
  Arena arena = std::move(free_.back());
  free_.pop_back();
  return arena;
}

void ModelWriter::WriteBest(std::span<const float> weights, const ModelInfo& info) {
  if (!writes()) return;
  Arena copy;
  try {
    copy = TakeArena();
  } catch (const std::bad_alloc&) {  // the training is worth more than its best weights
    return Fail(kBest, fmt::format("{}/{}: no memory for a copy of the weights of step {}",
                                   config_.run().dir(), kBest, info.step));
  }
  std::memcpy(copy.floats().data(), weights.data(), weights.size_bytes());
  const std::span<const float> copied = copy.floats();
  Add({.name = kBest, .weights = copied, .info = info, .copy = std::move(copy)});
}

void ModelWriter::KeepBest(const ModelInfo& info) {
  const std::lock_guard lock(mutex_);
  Note({.name = kBest, .weights = {}, .info = info, .copy = {}}, "");
}

void ModelWriter::WriteLast(const std::string& file, std::span<const float> weights,
                            const ModelInfo& info) {
  if (!writes()) return;
  std::optional<Job> again;
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
    again = std::exchange(unsaved_, std::nullopt);
  }
  if (again) Add(std::move(*again));
  Add({.name = file, .weights = weights, .info = info});
}

void ModelWriter::Add(Job job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  wake_.notify_one();
  if (thread_.joinable()) return;
  try {
    thread_ = std::jthread([this](std::stop_token stop) { Work(stop); });
  } catch (const std::system_error& error) {
    const std::string why = ErrorText(error.code().value());
    std::unique_lock lock(mutex_);
    const std::string file = jobs_.back().name;
    jobs_.pop_back();
    lock.unlock();
    Fail(file, fmt::format("{}/{}: no thread to write it: {}", config_.run().dir(), file, why));
  }
}

void ModelWriter::Fail(const std::string& file, const std::string& what) {
  const std::lock_guard lock(mutex_);
  failures_[file] = what;
}

// With the mutex locked.
void ModelWriter::TryUnsavedAgain() {
  if (!unsaved_) return;
  unsaved_->again = true;
  jobs_.push_back(*std::exchange(unsaved_, std::nullopt));
}

// With the mutex locked: best weights that could not be written are kept, unless newer ones are
// here.
void ModelWriter::Settle(Job job, bool written) {
  if (unsaved_ && unsaved_->info.step <= job.info.step) {
    free_.push_back(std::move(unsaved_->copy));
    unsaved_.reset();
  }
  const bool newest = !unsaved_ && std::ranges::find(jobs_, kBest, &Job::name) == jobs_.end();
  if (!written && newest) {
    unsaved_ = std::move(job);
  } else {
    free_.push_back(std::move(job.copy));
  }
}

// The best weights that the disk did not take come again after a while.
bool ModelWriter::AwaitJob(std::unique_lock<std::mutex>& lock, const std::stop_token& stop) {
  const auto some = [this] { return !jobs_.empty(); };
  while (unsaved_) {
    if (wake_.wait_for(lock, stop, kRetryAfter, some)) return true;
    if (stop.stop_requested()) return false;
    TryUnsavedAgain();
  }
  return wake_.wait(lock, stop, some);
}

void ModelWriter::Work(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  while (AwaitJob(lock, stop)) {
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    writing_ = &job;
    lock.unlock();
    const std::string trouble = Write(job);
    lock.lock();
    writing_ = nullptr;
    Note(job, trouble);
    if (job.name == kBest) Settle(std::move(job), trouble.empty());
    idle_.notify_all();
  }
}

std::string ModelWriter::Write(Job& job) const {
  const std::string path = config_.run().dir() + "/" + job.name;
  try {
    job.info.weights_hash = HashVariables(graph_.layout(), job.weights);
    WriteModel(path, graph_, job.weights, job.info.updates,
               ModelMetadata(config_, graph_, job.info));
    LogInfo("{}: the weights of step {}{}", path, job.info.step,
            job.info.average ? ", averaged" : "");
    return "";
  } catch (const std::exception& error) {  // bad_alloc, too
    return error.what();
  }
}

void ModelWriter::Note(const Job& job, const std::string& trouble) {
  if (!trouble.empty()) {
    if (over_ || !job.again) failures_[job.name] = trouble;
    return;
  }
  failures_.erase(job.name);
  std::erase_if(saved_, [&](const auto& one) { return one.file() == job.name; });
  events::Summary::Model& model = saved_.emplace_back();
  model.set_file(job.name);
  model.set_step(job.info.step);
  model.set_average(job.info.average);
  if (const auto& accuracy = job.info.validation_accuracy) model.set_validation_accuracy(*accuracy);
  if (const auto& accuracy = job.info.test_accuracy) model.set_test_accuracy(*accuracy);
}

bool ModelWriter::Await(std::chrono::milliseconds at_most) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, at_most, [this] { return jobs_.empty() && writing_ == nullptr; });
}

void ModelWriter::AwaitBest(int64_t step) {
  const auto is_due = [step](const Job& job) { return job.name == kBest && job.info.step <= step; };
  std::unique_lock lock(mutex_);
  TryUnsavedAgain();
  wake_.notify_one();
  (void)idle_.wait_for(lock, kLongestWait, [&] {
    return (writing_ == nullptr || !is_due(*writing_)) && std::ranges::none_of(jobs_, is_due);
  });
}

std::vector<std::string> ModelWriter::TakeFailures() {
  std::vector<std::string> lines;
  const std::lock_guard lock(mutex_);
  for (auto& [file, why] : std::exchange(failures_, {})) lines.push_back(why);
  return lines;
}

std::vector<events::Summary::Model> ModelWriter::saved() const {
  const std::lock_guard lock(mutex_);
  std::vector<events::Summary::Model> models = saved_;
  std::ranges::sort(models, {}, Rank);
  return models;
}

}  // namespace muster
