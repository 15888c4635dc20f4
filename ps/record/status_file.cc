#include "ps/record/status_file.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "common/base/json.h"
#include "common/base/process.h"
#include "ps/record/metrics_line.h"

namespace muster {
namespace {

using Json = nlohmann::ordered_json;

template <typename Clock>
double Now() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

double SecondsSince(StragglerWatch::Time time) {
  return std::chrono::duration<double>(StragglerWatch::Time::clock::now() - time).count();
}

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

// Regression has no accuracy, so the loss is written instead.
void PutScore(const char* set, const RunStatus::Evaluated& evaluated, Json& json) {
  if (evaluated.accuracy) {
    json[std::string(set) + "_accuracy"] = *evaluated.accuracy;
  } else {
    json[std::string(set) + "_loss"] = evaluated.loss;
  }
}

void PutProgress(const RunStatus& status, Json& json) {
  const events::Progress& progress = status.progress;
  const events::Measured& measured = progress.measured();
  json["step"] = progress.at().step();
  json["total_steps"] = progress.total_steps();
  json["epoch"] = progress.at().epoch();
  json["epochs"] = progress.epochs();
  json["elapsed_s"] = progress.at().elapsed_s();
  if (progress.has_eta_s()) json["eta_s"] = progress.eta_s();
  if (status.learning_rate > 0)
    json["learning_rate"] = status.learning_rate;  // known after the first log line
  if (measured.has_train_loss()) json["train_loss"] = measured.train_loss();
  if (measured.has_train_accuracy()) json["train_accuracy"] = measured.train_accuracy();
  for (const events::Scalar& scalar : measured.scalars()) {
    json["scalars"][scalar.name()] = scalar.value();
  }
  if (measured.has_images_per_second()) json["images_per_second"] = measured.images_per_second();
  if (measured.has_step_ms()) json["step_ms"] = measured.step_ms();
  PutGpus(measured, json);
  if (progress.has_evaluating()) {
    json["evaluating"] = {{"done", progress.evaluating().done()},
                          {"total", progress.evaluating().total()}};
  }
  if (status.validated) {
    PutScore("validation", *status.validated, json);
    json["validated_step"] = status.validated->step;
  }
  if (status.tested) {
    PutScore("test", *status.tested, json);
    json["tested_step"] = status.tested->step;
  }
}

Json RankJson(uint32_t rank, const RankStatus& status) {
  Json json{{"rank", rank},
            {"host", status.host},
            {"pid", status.pid},
            {"slices", status.slices},
            {"images_per_second", status.images_per_second}};
  if (!status.state.empty()) json["state"] = status.state;
  if (status.gpu.has_gpu_bytes()) {
    json["gpu_memory_mb"] = 1e-6 * static_cast<double>(status.gpu.gpu_bytes());
  }
  if (status.gpu.has_gpu_utilization()) {
    json["gpu_utilization"] = 0.01 * status.gpu.gpu_utilization();
  }
  if (status.gpu.has_gpu_temperature()) json["gpu_temperature_c"] = status.gpu.gpu_temperature();
  if (status.gpu.has_gpu_power_w()) json["gpu_power_w"] = status.gpu.gpu_power_w();
  for (size_t part = 0; part < kStepPartCount; ++part) {
    json[kStepPartNames[part]] = {{"p50", status.parts[part].p50}, {"p99", status.parts[part].p99}};
  }
  return json;
}

void Replace(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".partial";
  bool whole = false;
  (void)std::remove(temporary.c_str());  // left by a killed server
  if (std::FILE* const file = std::fopen(temporary.c_str(), "wxe")) {
    whole = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    whole = std::fclose(file) == 0 && whole;
  }
  if (!whole || std::rename(temporary.c_str(), path.c_str()) != 0) {
    (void)std::remove(temporary.c_str());
  }
}

}  // namespace

ServerLoad LoadMeter::Measure() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const double wall = Now<std::chrono::steady_clock>();
  const double cpu = Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
  const int64_t resident = ResidentBytes().value_or(0);
  // The kernel updates its maximum late.
  ServerLoad load{.resident_bytes = resident,
                  .peak_bytes = std::max(resident, int64_t{1024} * usage.ru_maxrss)};
  if (wall_s_ > 0 && wall > wall_s_) load.cores = (cpu - cpu_s_) / (wall - wall_s_);
  wall_s_ = wall;
  cpu_s_ = cpu;
  return load;
}

std::string StatusText(const RunStatus& status, const ServerLoad& load,
                       const ProcessIdentity& server) {
  Json json{
      {"version", 1}, {"unix_time", Now<std::chrono::system_clock>()}, {"state", status.state}};
  json["server"] = {{"host", server.host},          {"pid", server.pid},
                    {"started", server.started},    {"cores", load.cores},
                    {"bytes", load.resident_bytes}, {"peak_bytes", load.peak_bytes}};
  PutProgress(status, json);
  if (!status.waits.empty()) json["waits"] = status.waits;
  if (const auto& checkpoint = status.checkpoint) {
    json["checkpoint"] = Json::object();
    if (checkpoint->newest_step) json["checkpoint"]["newest_step"] = *checkpoint->newest_step;
    if (checkpoint->next_step) json["checkpoint"]["next_step"] = *checkpoint->next_step;
    if (checkpoint->next_s) json["checkpoint"]["next_s"] = *checkpoint->next_s;
  }
  if (const auto& slowest = status.slowest) {
    json["slowest"] = {{"rank", slowest->rank},
                       {"since_step", slowest->since_step},
                       {"since_s", SecondsSince(slowest->since)},
                       {"busy_ms", slowest->busy_ms},
                       {"others_ms", slowest->others_ms},
                       {"straggles", slowest->straggles}};
  }
  json["ranks"] = Json::array();
  for (size_t rank = 0; rank < status.ranks.size(); ++rank) {
    json["ranks"].push_back(RankJson(static_cast<uint32_t>(rank), status.ranks[rank]));
  }
  return JsonText(json, 1) + "\n";
}

void StatusFile::Write(const RunStatus& status) {
  if (wanted()) Replace(path_, StatusText(status, load_.Measure(), self_));
}

}  // namespace muster
