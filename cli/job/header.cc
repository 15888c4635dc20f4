#include "cli/job/header.h"

#include <fmt/core.h>

#include <utility>

#include "cli/text/size_text.h"
#include "cli/text/units.h"
#include "cli/text/wrapped.h"
#include "common/base/version.h"
#include "common/config/data_format.h"
#include "common/config/limits.h"
#include "common/config/update_settings.h"

namespace muster {
namespace {

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

std::vector<std::string> NoEffectTexts(const config::Config& config) {
  constexpr size_t kMost = 3;
  std::vector<std::string> texts = WithoutEffect(config);
  if (texts.size() <= kMost) return texts;
  const size_t more = texts.size() - kMost;
  texts.resize(kMost);
  texts.push_back(fmt::format("and {} more", more));
  return texts;
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
  if (rate.warmup_samples() > 0 && rate.type() != config::LearningRate::ONE_CYCLE) {
    text += fmt::format(", after a warm-up of {}", Plural(rate.warmup_samples(), "image"));
  }
  if (optimizer.weight_decay() > 0) {
    const bool beside = TraitsOf(optimizer).decay_type == config::Optimizer::DECOUPLED;
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

// There is no third set: accuracy on images that have chosen is flattering.
std::string TestSetText(const config::Config& config) {
  const config::Evaluation& evaluation = config.evaluation();
  if (evaluation.every_epochs() == 0 && evaluation.every_steps() == 0) return "";
  std::string chosen = "the best weights";
  if (config.learning_rate().type() == config::LearningRate::PLATEAU)
    chosen += ", the rate (PLATEAU)";
  if (evaluation.patience() > 0) chosen += ", the end (patience)";
  return "also chooses " + chosen;
}

std::vector<std::string> HeaderLines(const std::string& config_path, const config::Config& config,
                                     const Graph& graph, const std::string& shown_dir,
                                     const HeaderOptions& options) {
  const std::string& model = config.model().name();
  std::vector<std::string> lines{fmt::format("muster {}: {}", kVersion, config_path)};
  const auto row = [&](const char* label, const std::string& text) {
    if (!text.empty()) lines.push_back(Row(label, text));
  };
  const char* label = "devices";
  for (const std::string& text : options.cards) row(std::exchange(label, ""), text);
  row("network", fmt::format("{}{}, {}", model.empty() ? "" : model + ", ",
                             Plural(static_cast<int64_t>(graph.layers().size()), "layer"),
                             Plural(graph.layout().parameter_count(), "parameter")));
  row("processes", fmt::format("1 server x {}, {}", Plural(config.server().threads(), "thread"),
                               options.by_hand ? Plural(config.cluster().workers(), "worker") +
                                                     " started by hand"
                                               : WorkersText(config)));
  if (!options.by_hand) row("cores", CoresText(config, options.cores));
  row("batch", fmt::format("{}, cut into {}", BatchText(config), SlicesText(config)));
  const std::vector<std::string> bits = BitsTexts(config, options.by_hand);
  row("bits", bits.front());
  if (options.all_of_bits) row("", bits.back());
  row("training", fmt::format("{}, {}", LengthText(config), UpdateText(config)));
  row("test set", TestSetText(config));
  row("data", DataText(config.data()));
  row("", options.data);
  label = "weights";
  for (const std::string& text : options.initial_weights) row(std::exchange(label, ""), text);
  label = "no effect";
  for (const std::string& text : NoEffectTexts(config)) row(std::exchange(label, ""), text);
  row("memory", options.memory);
  row("run directory", shown_dir);
  row("resumes", options.resumed);
  FitRows(lines);
  return lines;
}

}  // namespace muster
