#include "launch/job/server_event.h"

#include <nlohmann/json.hpp>

namespace muster {
namespace {

void Take(double& to, const nlohmann::json& event, const char* key) {
  double value = Number(event, key);
  if (!std::isnan(value)) to = value;
}

void Take(int64_t& to, const nlohmann::json& event, const char* key) { to = Whole(event, key, to); }

}  // namespace

std::optional<nlohmann::json> ParseEvent(const std::string& line) {
  nlohmann::json event = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!event.is_object()) return std::nullopt;
  return event;
}

std::string Text(const nlohmann::json& event, const char* key) {
  auto field = event.find(key);
  return field != event.end() && field->is_string() ? field->get<std::string>() : "";
}

double Number(const nlohmann::json& event, const char* key) {
  auto field = event.find(key);
  return field != event.end() && field->is_number() ? field->get<double>() : NAN;
}

int64_t Whole(const nlohmann::json& event, const char* key, int64_t otherwise) {
  double value = Number(event, key);
  return std::abs(value) < 9e18 ? static_cast<int64_t>(value) : otherwise;
}

void Update(Progress& progress, const nlohmann::json& event) {
  Take(progress.step, event, "step");
  Take(progress.total_steps, event, "total_steps");
  Take(progress.epoch, event, "epoch");
  Take(progress.epochs, event, "epochs");
  Take(progress.train_loss, event, "train_loss");
  Take(progress.train_accuracy, event, "train_accuracy");
  Take(progress.test_loss, event, "test_loss");
  Take(progress.test_accuracy, event, "test_accuracy");
  Take(progress.test_top5_accuracy, event, "test_top5_accuracy");
  Take(progress.images_per_second, event, "images_per_second");
  Take(progress.step_ms, event, "step_ms");
  Take(progress.waiting_share, event, "waiting_share");
  Take(progress.elapsed_s, event, "elapsed_s");
  Take(progress.eta_s, event, "eta_s");
  progress.evaluating = Text(event, "phase") == "evaluation";
  progress.blocks_done = Whole(event, "done");
  progress.blocks_total = Whole(event, "total");
}

}  // namespace muster
