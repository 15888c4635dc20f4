#include "common/events/metrics_line.h"

#include <nlohmann/json.hpp>
#include <string>

#include "common/base/json.h"
#include "common/base/utc_time.h"
#include "common/plan/metrics.h"

namespace muster {
namespace {

using Json = nlohmann::ordered_json;

void Put(Json& json, const events::Position& at) {
  json["elapsed_s"] = at.elapsed_s();
  json["step"] = at.step();
  json["samples"] = at.samples();
  json["epoch"] = at.epoch();
}

void Put(Json& json, const events::StepParts& parts) {
  json["compute_ms"] = parts.compute_ms();
  json["input_ms"] = parts.input_ms();
  json["push_ms"] = parts.push_ms();
  json["wait_ms"] = parts.wait_ms();
  json["pull_ms"] = parts.pull_ms();
}

void Put(Json& json, const std::string& set,
         const google::protobuf::RepeatedPtrField<events::Scalar>& scalars) {
  for (const events::Scalar& scalar : scalars) {
    const Metric* const metric = MetricNamed(scalar.name());
    (metric == nullptr ? json[set + "scalars"][scalar.name()] : json[set + metric->Key()]) =
        scalar.value();
  }
}

void PutGpus(const events::Measured& measured, Json& json) {
  if (measured.has_gpu_memory_mb()) json["gpu_memory_mb"] = measured.gpu_memory_mb();
  if (measured.has_gpu_utilization()) json["gpu_utilization"] = measured.gpu_utilization();
  if (measured.has_gpu_temperature_c()) json["gpu_temperature_c"] = measured.gpu_temperature_c();
  if (measured.has_gpu_power_w()) json["gpu_power_w"] = measured.gpu_power_w();
}

void Put(Json& json, const events::Measured& measured) {
  json["train_loss"] = nullptr;  // null if all steps were skipped
  json["train_accuracy"] = nullptr;
  if (measured.has_train_loss()) json["train_loss"] = measured.train_loss();
  if (measured.has_train_accuracy()) json["train_accuracy"] = measured.train_accuracy();
  if (measured.has_loss_steps()) json["loss_steps"] = measured.loss_steps();
  json["images_per_second"] = measured.images_per_second();
  json["step_ms"] = measured.step_ms();
  json["timed_steps"] = measured.timed_steps();
  Put(json, measured.parts());
  json["waiting_share"] = measured.waiting_share();
  if (measured.has_shares()) {
    json["overhead_share"] = measured.shares().overhead();
    json["input_share"] = measured.shares().input();
    json["imbalance_share"] = measured.shares().imbalance();
  }
  json["skipped_steps"] = measured.skipped_steps();
  if (measured.has_loss_scale()) json["loss_scale"] = measured.loss_scale();
  PutGpus(measured, json);
  Put(json, "", measured.scalars());
}

void Put(Json& json, const std::string& set, const events::Scores& scores) {
  json[set + "_accuracy"] = nullptr;  // null for regression
  if (scores.has_accuracy()) json[set + "_accuracy"] = scores.accuracy();
  if (scores.has_top5_accuracy()) json[set + "_top5_accuracy"] = scores.top5_accuracy();
  json[set + "_loss"] = scores.loss();
  Put(json, set + "_", scores.scalars());
}

const char* Name(events::MemberChange::Kind kind) {
  switch (kind) {
    case events::MemberChange::LOST:
      return "worker_lost";
    case events::MemberChange::LEFT:
      return "worker_left";
    case events::MemberChange::JOINED:
      return "worker_joined";
    default:
      return "worker_fenced";
  }
}

Json MemberChangeLine(const events::MemberChange& change) {
  Json json;
  Put(json, change.at());
  json["event"] = Name(change.kind());
  json["rank"] = change.rank();
  json["host"] = change.host();
  json["pid"] = change.pid();
  if (!change.why().empty()) json["why"] = change.why();
  json["slices"] = change.slices();
  if (change.blocks() > 0) json["blocks"] = change.blocks();
  json["workers"] = change.workers();
  return json;
}

Json SharesChangedLine(const events::SharesChanged& change) {
  Json json;
  Put(json, change.at());
  json["event"] = "shares_changed";
  json["from_step"] = change.from_step();
  if (!change.why().empty()) json["why"] = change.why();
  json["shares"] = Json::array();
  for (const events::SharesChanged::Share& share : change.shares()) {
    Json one{{"rank", share.rank()}, {"slices", share.slices()}};
    if (share.has_before()) one["before"] = share.before();
    if (share.has_slice_ms()) one["slice_ms"] = share.slice_ms();
    json["shares"].push_back(std::move(one));
  }
  if (change.has_busy_ms()) json["busy_ms"] = change.busy_ms();
  if (change.has_expected_ms()) json["expected_ms"] = change.expected_ms();
  return json;
}

Json RestartedLine(const events::Restarted& restarted) {
  Json json;
  json["event"] = kServerRestarted;
  json["lost_at_step"] = nullptr;
  if (restarted.has_lost_at_step()) json["lost_at_step"] = restarted.lost_at_step();
  json["cause"] = restarted.cause();
  json["from_step"] = restarted.from_step();
  json["seconds"] = restarted.seconds();
  return json;
}

}  // namespace

const char* NameOf(events::Summary::End end) {
  switch (end) {
    case events::Summary::COMPLETED:
      return "completed";
    case events::Summary::INTERRUPTED:
      return "interrupted";
    default:
      return "failed";
  }
}

Json MetricsLine(const events::Log& line) {
  Json json;
  Put(json, line.at());
  json["learning_rate"] = line.learning_rate();
  Put(json, line.measured());
  return json;
}

Json MetricsLine(const events::Evaluation& line) {
  Json json;
  Put(json, line.at());
  json["learning_rate"] = line.learning_rate();
  Put(json, line.measured());
  if (line.has_validation()) Put(json, "validation", line.validation());
  if (line.has_test()) Put(json, "test", line.test());
  if (!line.decision().empty()) json["decision"] = line.decision();
  return json;
}

Json MetricsLine(const events::Summary& summary) {
  Json json;
  Put(json, summary.at());
  json["steps"] = summary.steps();
  json["total_steps"] = summary.total_steps();
  json["learning_rate"] = summary.learning_rate();
  Put(json, summary.measured());
  if (summary.has_validation()) Put(json, "validation", summary.validation());
  if (summary.has_test()) Put(json, "test", summary.test());
  if (summary.has_best_accuracy()) {
    json[summary.has_validation() ? "best_validation_accuracy" : "best_test_accuracy"] =
        summary.best_accuracy();
  }
  if (summary.has_best_step()) json["best_step"] = summary.best_step();
  for (const events::Summary::Rank& rank : summary.ranks()) {
    Json one;
    one["rank"] = rank.rank();
    Put(one, rank.parts());
    json["ranks"].push_back(std::move(one));
  }
  json["final"] = true;
  json["reason"] = NameOf(summary.end());
  json["stopped_early"] = !summary.stop_reason().empty();
  if (!summary.stop_reason().empty()) json["stop_reason"] = summary.stop_reason();
  if (summary.restarts_size() > 0) json["server_restarts"] = summary.restarts_size();
  json["weights_hash"] = summary.weights_hash();
  for (const std::string& name : summary.other_bits()) json["other_bits"].push_back(name);
  if (summary.shares_changed() > 0) json["shares_changed"] = summary.shares_changed();
  if (summary.changes_size() > 0) {
    json["workers_lost"] = summary.workers_lost();
    json["workers_joined"] = summary.workers_joined();
    json["workers_fenced"] = summary.workers_fenced();
    json["workers_left"] = summary.workers_left();
  }
  for (const events::Summary::Model& model : summary.models()) {
    Json one;
    one["file"] = model.file();
    one["step"] = model.step();
    one["average"] = model.average();
    if (model.has_validation_accuracy()) one["validation_accuracy"] = model.validation_accuracy();
    if (model.has_test_accuracy()) one["test_accuracy"] = model.test_accuracy();
    json["models"].push_back(std::move(one));
  }
  return json;
}

Json MetricsLine(const events::Event& event) {
  switch (event.kind_case()) {
    case events::Event::kLog:
      return MetricsLine(event.log());
    case events::Event::kEvaluation:
      return MetricsLine(event.evaluation());
    case events::Event::kSummary:
      return MetricsLine(event.summary());
    case events::Event::kRestarted:
      return RestartedLine(event.restarted());
    case events::Event::kMemberChange:
      return MemberChangeLine(event.member_change());
    case events::Event::kSharesChanged:
      return SharesChangedLine(event.shares_changed());
    default:
      return nullptr;
  }
}

std::string MetricsText(const events::Event& event) {
  if (event.has_earlier()) return event.earlier().lines();
  const Json line = MetricsLine(event);
  if (line.is_null()) return "";
  Json stamped;
  stamped["time"] = UtcText(event.unix_ms());
  stamped.update(line);
  return JsonText(stamped) + "\n";
}

}  // namespace muster
