#include "ps/tensorboard/board.h"

#include <fmt/core.h>
#include <google/protobuf/text_format.h>

#include <filesystem>
#include <utility>

#include "common/base/text.h"
#include "ps/tensorboard/event_records.h"
#include "ps/tensorboard/event_scalars.h"
#include "ps/tensorboard/summaries.h"

namespace muster {
namespace {

// A chart with more curves would be unreadable.
constexpr uint32_t kMostRanks = 64;
constexpr size_t kSmallEvent = 32 << 10, kMostInFlight = 64 << 20;

std::string ConfigText(const config::Config& config) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(config, &text);
  return AsCode(text);
}

// The name of the group in TensorBoard's hparams table.
std::string GroupName(const config::Config& config) {
  return ValidUtf8(std::filesystem::path(config.run().dir()).filename().native());
}

struct Part {
  const char* name;
  double (wire::StepTimes::*value)() const;
  void (wire::StepTimes::*set)(double);
};
constexpr Part kParts[] = {
    {"compute_ms", &wire::StepTimes::compute_ms, &wire::StepTimes::set_compute_ms},
    {"input_ms", &wire::StepTimes::input_ms, &wire::StepTimes::set_input_ms},
    {"push_ms", &wire::StepTimes::push_ms, &wire::StepTimes::set_push_ms},
    {"wait_ms", &wire::StepTimes::wait_ms, &wire::StepTimes::set_wait_ms},
    {"pull_ms", &wire::StepTimes::pull_ms, &wire::StepTimes::set_pull_ms},
};

// One chart for each part of a step, with one curve per rank.
tensorboard::Layout RankCharts() {
  tensorboard::Layout layout;
  tensorboard::Layout::Category& ranks = *layout.add_category();
  ranks.set_title("ranks");
  for (const Part& part : kParts) {
    tensorboard::Layout::Chart& chart = *ranks.add_chart();
    chart.set_title(part.name);
    chart.mutable_multiline()->add_tag(fmt::format("^{}/rank_", part.name));
  }
  return layout;
}

}  // namespace

Board::Board(const config::Config& config, const Graph& graph, BackgroundThread& thread,
             EventFile::Warn warn)
    : config_(config),
      graph_(graph),
      thread_(thread),
      warn_(std::move(warn)),
      ranks_(std::min(config.cluster().workers(), kMostRanks)) {}

void Board::Begin(int64_t steps_done) {
  const config::Tensorboard& wanted = config_.tensorboard();
  if (config_.run().dir().empty() || !wanted.enabled()) return;
  for (const std::string& trouble : CutEvents(config_.run().dir(), steps_done)) warn_(trouble);
  begun_at_ = steps_done;
  const EarlierEvents earlier = ReadEarlierEvents(
      config_.run().dir(), {kIntervalTag, kValidationLossTag, kTestLossTag}, steps_done);
  written_ = earlier.last_steps;
  writes_ = true;
  thread_.Submit([this, steps_done] { file_.emplace(config_.run().dir(), steps_done, warn_); });
  if (wanted.graph() && !earlier.has_graph &&
      !graph_.layers().empty()) {  // TensorBoard expects it only once
    tensorboard::Event event;
    event.set_graph_def(GraphDefOf(graph_).SerializeAsString());
    Append(std::move(event));
  }
  tensorboard::Summary summary;
  if (wanted.config_text()) AddText(summary, "config", ConfigText(config_));
  if (wanted.hparams()) {
    AddPluginData(summary, kHparamsStartTag, kHparamsPlugin,
                  HparamsOf(config_, GroupName(config_), UnixTime()).SerializeAsString());
    // The hparams table keeps the settings at the start of the run. A scalar shows the latest
    // value.
    AddScalar(summary, "run/workers", config_.cluster().workers());
  }
  if (ranks_.size() > 1) AddLayout(summary, RankCharts());
  Write(steps_done, std::move(summary));
}

bool Board::Lacks(const events::Event& event) const {
  if (!writes_ || (!event.has_log() && !event.has_evaluation())) return false;
  return StepOf(event) <= begun_at_ && StepOf(event) > written_.at(TagOf(event));
}

void Board::WriteAgain(const std::vector<events::Event>& lacking) {
  if (lacking.empty()) return;
  warn_(fmt::format(
      "the TensorBoard files of this run lacked steps {} to {}: restored loss, accuracy, learning "
      "rate and speed from run.events; norms, rank times, histograms and images are lost",
      StepOf(lacking.front()), StepOf(lacking.back())));
  for (const events::Event& one : lacking) {
    tensorboard::Event event;
    event.set_step(StepOf(one));
    event.set_wall_time(1e-3 * static_cast<double>(one.unix_ms()));
    AddScalars(*event.mutable_summary(), one);
    Append(std::move(event));
  }
}

Observe Board::Wants(int64_t steps_done) const {
  if (!writes_) return Observe::kNothing;
  const int64_t histograms = config_.tensorboard().histograms_every_steps();
  if (histograms > 0 && steps_done % histograms == 0) return Observe::kHistograms;
  const bool logs = steps_done % config_.run().log_every_steps() == 0;
  return logs ? Observe::kNorms : Observe::kNothing;
}

void Board::Observed(int64_t steps_done, const Observation& observation) {
  tensorboard::Summary summary;
  AddScalar(summary, "norm/gradient", observation.gradient_norm);
  AddScalar(summary, "norm/weights", observation.weight_norm);
  for (const Observation::OfVariable& one : observation.variables) {
    for (const auto& [kind, histogram] :
         {std::pair{"weights", &one.weights}, {"gradients", &one.gradient}}) {
      tensorboard::Summary::Value& value = *summary.add_value();
      value.set_tag(fmt::format("{}/{}", kind, one.name));
      *value.mutable_histo() = histogram->ToProto();
    }
  }
  Write(steps_done, std::move(summary));
}

void Board::AddTimes(uint32_t rank, const wire::StepTimes& times) {
  if (rank >= ranks_.size()) return;
  RankTimes& sums = ranks_[rank];
  ++sums.reports;
  for (const Part& part : kParts) {
    (sums.sum.*part.set)((sums.sum.*part.value)() + (times.*part.value)());
  }
}

void Board::AddRanks(tensorboard::Summary& summary) {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const RankTimes& sums = ranks_[rank];
    if (sums.reports == 0) continue;
    for (const Part& part : kParts) {
      // One group per part, so that the ranks can be compared.
      AddScalar(summary, fmt::format("{}/rank_{}", part.name, rank),
                (sums.sum.*part.value)() / static_cast<double>(sums.reports));
    }
  }
  ranks_.assign(ranks_.size(), {});
}

void Board::Log(const events::Event& event) {
  if (!writes_) return;
  tensorboard::Summary summary;
  AddScalars(summary, event);
  AddRanks(summary);
  Write(StepOf(event), std::move(summary));
}

void Board::Evaluation(const events::Event& event, const std::vector<SampleImage>& images) {
  // The files may already contain this evaluation, if the run resumed from a checkpoint before it.
  const std::string tag = TagOf(event);
  if (!writes_ || StepOf(event) <= written_.at(tag)) return;
  const std::string set = tag == kTestLossTag ? "test" : "validation";
  tensorboard::Summary summary;
  AddScalars(summary, event);
  for (const SampleImage& image : images)
    AddImage(summary, set, image, config_.data().class_names());
  if (!images.empty()) {
    AddText(summary, set + "_images", PredictionTable(images, config_.data().class_names()));
  }
  Write(StepOf(event), std::move(summary));
}

void Board::End(const events::Summary& last) {
  if (!writes_ || !config_.tensorboard().hparams()) return;
  tensorboard::Summary summary;
  AddPluginData(
      summary, kHparamsEndTag, kHparamsPlugin,
      HparamsEnd(last.end() == events::Summary::COMPLETED, UnixTime()).SerializeAsString());
  Write(last.at().step(), std::move(summary));
}

void Board::Write(int64_t step, tensorboard::Summary summary) {
  if (!writes_ || summary.value_size() == 0) return;
  tensorboard::Event event;
  event.set_step(step);
  *event.mutable_summary() = std::move(summary);
  Append(std::move(event));
}

// While the disk is slow, all small events are queued, and large ones up to a limit.
void Board::Append(tensorboard::Event event) {
  if (event.wall_time() == 0) event.set_wall_time(UnixTime());
  const size_t size = event.ByteSizeLong(), large = size > kSmallEvent ? size : 0;
  if (large > 0 && in_flight_ > 0 && in_flight_ + large > kMostInFlight) {
    if (!std::exchange(slow_said_, true)) {
      warn_("the disk is too slow: some TensorBoard data of this run will be missing");
    }
    thread_.Submit([this, step = event.step()] { file_->Lose(step); });
    return;
  }
  in_flight_ += large;
  thread_.Submit([this, event = std::move(event), large] {
    file_->Append(event);
    in_flight_ -= large;
  });
}

}  // namespace muster
