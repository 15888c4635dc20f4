#include "launch/job/job_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <numeric>
#include <utility>

#include "common/base/join.h"
#include "common/config/chunk_bytes.h"
#include "common/config/update_settings.h"
#include "common/config/without_effect.h"
#include "common/plan/chunks.h"
#include "launch/job/bottleneck.h"
#include "launch/job/model_text.h"
#include "launch/text/size_text.h"
#include "launch/text/units.h"
#include "launch/text/wrapped.h"

namespace muster {
namespace {

constexpr int kWidth = 80;  // of any terminal and of most log viewers

// The lines of a job's header or summary, the title aside, which is a path.
void Fit(std::vector<std::string>& lines) {
  std::vector<std::string> fitted;
  for (const std::string& line : lines) {
    const bool title = fitted.empty();
    for (std::string& part :
         WrappedRow(line, title ? std::max<int>(kWidth, std::ssize(line)) : kWidth))
      fitted.push_back(std::move(part));
  }
  lines = std::move(fitted);
}

std::string Row(const std::string& label, const std::string& text) {
  return fmt::format("  {:<14} {}", label, text);
}

std::string LengthText(const config::Config& config) {
  if (config.run().has_steps()) return Plural(config.run().steps(), "step");
  return Plural(config.run().epochs(), "epoch");
}

std::string DataText(const config::Data& data) {
  const std::string& format = config::Data::Format_Name(data.format());
  if (data.dir().empty() && NeedsFiles(data)) return format + ", no directory given";
  if (NeedsFiles(data)) return fmt::format("{} in {}", format, data.dir());
  const config::SyntheticData& made_up = data.synthetic();
  constexpr int64_t kMany = 50'000'000;
  const char* const slow =
      made_up.train_samples() >= kMany
          ? "; each worker puts them in order before the first step, which takes a while"
          : "";
  return fmt::format("{}: {} and {} for testing, {}, {}{}", format,
                     Plural(made_up.train_samples(), "image"), FormatCount(made_up.test_samples()),
                     StoredShape(data).ToString(),
                     FormatCount(int64_t{made_up.classes()}) + " classes", slow);
}

// Whole percents of shares whose sum is at most 1, so that what is shown never adds up to more than
// 100: each is rounded down, and what that leaves goes to those that lost most.
std::vector<int> WholePercents(const std::vector<double>& shares) {
  std::vector<int> percents;
  std::vector<std::pair<double, size_t>> lost;
  double sum = 0;
  for (const double share : shares) {
    percents.push_back(static_cast<int>(100 * share));
    lost.emplace_back(100 * share - percents.back(), percents.size() - 1);
    sum += 100 * share;
  }
  std::ranges::stable_sort(lost, std::greater{}, &std::pair<double, size_t>::first);
  int left =
      static_cast<int>(std::lround(sum)) - std::accumulate(percents.begin(), percents.end(), 0);
  for (const auto& [loss, index] : lost) percents[index] += left-- > 0 ? 1 : 0;
  return percents;
}

// Of which of the steps the times are, if not of most of them.
std::string TimedText(const events::Summary& summary) {
  const int64_t timed = summary.measured().timed_steps(), steps = summary.steps();
  if (!summary.measured().has_timed_steps() || 2 * timed >= steps) return "";
  std::vector<std::string> why;
  if (summary.steps_before() > 0) why.emplace_back("came before the run was resumed");
  if (2 * timed < steps - summary.steps_before()) why.emplace_back("began during an evaluation");
  return fmt::format("; of {} of {}, since the others {}", FormatCount(timed),
                     Plural(steps, "step"), Join(why, " or "));
}

// The parts of a step, each with its share; what they leave of the step is "other".
std::vector<std::string> StepLines(const events::Summary& summary) {
  const events::Measured& measured = summary.measured();
  const double step = measured.step_ms();
  if (step <= 0) return {};
  std::vector<std::string> lines{Row("step", FormatMilliseconds(step) + TimedText(summary))};
  if (measured.has_timed_steps() && measured.timed_steps() == 0) return lines;
  std::vector<std::pair<const char*, double>> parts;
  double sum = 0;
  const auto add = [&](const char* name, bool known, double ms) {
    if (!known) return;
    parts.emplace_back(name, ms);
    sum += ms;
  };
  const events::StepParts& ms = measured.parts();
  add("input", ms.has_input_ms(), ms.input_ms());
  add("compute", ms.has_compute_ms(), ms.compute_ms());
  add("push", ms.has_push_ms(), ms.push_ms());
  add("wait", ms.has_wait_ms(), ms.wait_ms());
  add("pull", ms.has_pull_ms(), ms.pull_ms());
  if (!parts.empty() && step - sum > 0.01 * step) parts.emplace_back("other", step - sum);
  // Two clocks: a worker's and the server's, which may see a step end a little earlier. No more is
  // shown of the parts than the step has.
  std::vector<double> shares;
  for (auto& [name, part_ms] : parts) {
    part_ms *= step / std::max(step, sum);
    shares.push_back(part_ms / step);
  }
  const std::vector<int> percents = WholePercents(shares);
  for (size_t i = 0; i < parts.size(); ++i) {
    lines.push_back(Row("", fmt::format("{:<8} {:>9}  {:>3} %", parts[i].first,
                                        FormatMilliseconds(parts[i].second), percents[i])));
  }
  return lines;
}

// What the parameter server costs, and, apart from it, what ranks of different speed cost.
std::string BalanceText(const events::StepShares& shares, int workers) {
  if (!shares.has_overhead() || !shares.has_imbalance()) return "";
  std::string text = fmt::format("{} of a step beyond the slowest rank's compute",
                                 FormatPercent(std::max(0.0, shares.overhead()), 1));
  if (workers > 1) {
    text += fmt::format("; imbalance between ranks {}", FormatPercent(shares.imbalance(), 1));
  }
  return text;
}

std::string TestText(const events::Summary& summary) {
  const events::TestResult& test = summary.test();
  if (!test.has_accuracy()) return "";
  std::string text = FormatPercent(test.accuracy(), 2);
  if (summary.has_best_test_accuracy()) {
    text += fmt::format(" (best {}", FormatPercent(summary.best_test_accuracy(), 2));
    text += summary.has_best_step() ? fmt::format(" at step {})", FormatCount(summary.best_step()))
                                    : ")";
  }
  if (test.has_top5_accuracy()) text += ", top 5 " + FormatPercent(test.top5_accuracy(), 2);
  if (test.has_loss()) text += fmt::format(", test loss {:.4f}", test.loss());
  return text;
}

std::string SpeedText(double images_per_second, int workers) {
  std::string text = FormatRate(images_per_second) + " images/s";
  if (workers > 1) text += fmt::format(", {} per worker", FormatRate(images_per_second / workers));
  return text;
}

// All processes of a launch are on this host.
std::string TransportText(const config::Cluster& cluster) {
  const bool rounded = cluster.wire_dtype() != config::Cluster::FP32;
  const std::string type =
      rounded ? ", " + config::Cluster::WireDtype_Name(cluster.wire_dtype()) : "";
  switch (cluster.transport()) {
    case config::Cluster::AUTO:
      if (rounded) return "ZeroMQ (IPC" + type + ")";
      [[fallthrough]];
    case config::Cluster::LOCAL:
      return "shared memory";
    case config::Cluster::IPC:
      return "ZeroMQ (IPC" + type + ")";
    case config::Cluster::TCP:
      return "ZeroMQ (TCP" + type + ")";
  }
  return "?";
}

std::string WorkersText(const config::Config& config) {
  return fmt::format("{} x {}, over {}", Plural(config.cluster().workers(), "worker"),
                     Plural(config.worker().threads(), "thread"), TransportText(config.cluster()));
}

}  // namespace

std::string LearningRateText(const config::Config& config) {
  const config::LearningRate& rate = config.learning_rate();
  const uint32_t workers = config.cluster().workers();
  std::string text = fmt::format("{} {:g}", config::LearningRate::Type_Name(rate.type()),
                                 ScaledBase(rate, workers));
  if (rate.scaling() != config::LearningRate::NONE) {
    const std::string ratio = fmt::format("{}/{}", workers, rate.base_workers());
    text += fmt::format(
        " = {:g} (base) x {} ({} scaling of workers / base_workers)", rate.base(),
        rate.scaling() == config::LearningRate::SQRT ? fmt::format("sqrt({})", ratio) : ratio,
        config::LearningRate::Scaling_Name(rate.scaling()));
  }
  return fmt::format("{}, {}", config::Optimizer::Type_Name(config.optimizer().type()), text);
}

std::string UpdateText(const config::Config& config) {
  const config::Optimizer& optimizer = config.optimizer();
  const config::LearningRate& rate = config.learning_rate();
  std::string text = LearningRateText(config);
  if (rate.type() == config::LearningRate::PLATEAU) {
    text += fmt::format(", times {:g} after {} without a better test accuracy", rate.factor(),
                        Plural(rate.plateau_patience(), "evaluation"));
  }
  if (rate.warmup_samples() > 0) {
    text += fmt::format(", after a warm-up of {}", Plural(rate.warmup_samples(), "image"));
  }
  if (optimizer.weight_decay() > 0) {
    const bool beside = DecayTypeOf(optimizer) == config::Optimizer::DECOUPLED;
    text += fmt::format(", weight decay {:g}{}", optimizer.weight_decay(),
                        beside ? " (decoupled)" : "");
  }
  if (optimizer.has_clip_value()) {
    text += fmt::format(", gradients within +-{:g}", optimizer.clip_value());
  }
  if (optimizer.has_clip_norm()) {
    text += fmt::format(", gradient norm at most {:g}", optimizer.clip_norm());
  }
  if (optimizer.has_ema_decay()) {
    text += fmt::format(", moving average {:g} of the weights", optimizer.ema_decay());
  }
  return text;
}

std::string FilesText(int workers) {
  if (workers == 0) return "config.txtpb, metrics.jsonl, server.log";
  std::string logs = "worker-0.log";
  if (workers == 2) logs += ", worker-1.log";
  if (workers > 2) logs += fmt::format(" ... worker-{}.log", workers - 1);
  return "config.txtpb, metrics.jsonl, server.log, " + logs;
}

std::vector<std::string> NoEffectTexts(const config::Config& config,
                                       std::optional<int64_t> train_samples) {
  constexpr size_t kMost = 8;
  std::vector<std::string> texts;
  size_t more = 0;
  for (const NoEffect& setting : WithoutEffect(config, train_samples)) {
    if (!setting.said) continue;
    if (texts.size() == kMost) {
      ++more;
    } else {
      texts.push_back(fmt::format("{}={}: {}", setting.key, setting.value, setting.reason));
    }
  }
  if (more > 0) texts.push_back(fmt::format("and {} more", more));
  return texts;
}

std::vector<std::string> HeaderLines(const std::string& config_path, const config::Config& config,
                                     const Graph& graph, const std::string& shown_dir,
                                     const HeaderOptions& options) {
  size_t chunks = CutChunks(graph.layout(), config.cluster()).size();
  const std::string& model = config.model().name();
  std::vector<std::string> lines{fmt::format("muster {}: {}", MUSTER_VERSION, config_path)};
  const auto row = [&](const char* label, const std::string& text) {
    if (!text.empty()) lines.push_back(Row(label, text));
  };
  row("network", fmt::format("{}{}, {} in {}", model.empty() ? "" : model + ", ",
                             Plural(static_cast<int64_t>(graph.layers().size()), "layer"),
                             Plural(graph.layout().parameter_count(), "parameter"),
                             Plural(static_cast<int64_t>(chunks), "chunk")));
  row("processes", fmt::format("1 server x {}, {}", Plural(config.server().threads(), "thread"),
                               options.by_hand ? Plural(config.cluster().workers(), "worker") +
                                                     " started by hand"
                                               : WorkersText(config)));
  if (!options.by_hand) row("cores", CoresText(config, options.cores));
  const char* label = "devices";
  for (const std::string& text : options.cards) row(std::exchange(label, ""), text);
  row("batch", fmt::format("{}, cut into {}", BatchText(config), SlicesText(config)));
  label = "bits";
  for (const std::string& text : BitsTexts(config, options.by_hand)) {
    row(std::exchange(label, ""), text);
  }
  row("length", LengthText(config));
  row("update", UpdateText(config));
  row("data", DataText(config.data()));
  row("", options.data);
  label = "weights";
  for (const std::string& text : options.initial_weights) row(std::exchange(label, ""), text);
  label = "no effect";
  for (const std::string& text : NoEffectTexts(config)) row(std::exchange(label, ""), text);
  row("memory", options.memory);
  row("run directory", shown_dir);
  row("going on", options.resumed);
  Fit(lines);
  return lines;
}

std::vector<std::string> SummaryLines(const events::Summary& summary, int workers,
                                      const RunDir& dir, const std::string& files) {
  std::vector<std::string> lines;
  auto row = [&](const char* label, const std::string& text) {
    if (!text.empty()) lines.push_back(Row(label, text));
  };
  const events::Measured& measured = summary.measured();
  std::string done = Plural(std::max<int64_t>(0, summary.steps()), "step");
  if (summary.at().has_samples()) done += ", " + Plural(summary.at().samples(), "image");
  const bool completed = summary.end() == events::Summary::COMPLETED;
  lines.push_back(fmt::format("{}: {} in {}", completed ? "Completed" : "Ended early", done,
                              FormatDuration(summary.at().elapsed_s())));

  row("stopped early", summary.stop_reason());
  row("test accuracy", TestText(summary));
  if (measured.has_train_loss()) row("training loss", fmt::format("{:.4f}", measured.train_loss()));
  if (measured.skipped_steps() > 0) {
    row("skipped", Plural(measured.skipped_steps(), "step") + ": a value was not finite");
  }
  if (measured.has_images_per_second())
    row("speed", SpeedText(measured.images_per_second(), workers));
  for (std::string& line : StepLines(summary)) lines.push_back(std::move(line));
  row("overhead", BalanceText(measured.shares(), workers));
  for (const BottleneckRow& line : Bottleneck(summary)) row(line.label.c_str(), line.text);
  row("weights hash", summary.weights_hash());
  for (const std::string& text : ModelTexts(summary, dir)) row("weights", text);
  row("run directory", dir.shown());
  row("run files", files);
  if (completed && summary.has_checkpoint()) {
    row("checkpoint",
        "checkpoints/" + std::filesystem::path(summary.checkpoint()).filename().string());
  }
  Fit(lines);
  return lines;
}

std::string TraceLine(const std::string& path, size_t spans, uint64_t dropped) {
  std::string text = fmt::format("{}, {}", path, Plural(static_cast<int64_t>(spans), "span"));
  if (dropped > 0) {
    text += fmt::format(" ({} more did not fit: trace fewer steps)",
                        FormatCount(static_cast<int64_t>(dropped)));
  }
  return Row("trace", text + "; open it in https://ui.perfetto.dev, or: muster trace FILE");
}

}  // namespace muster
