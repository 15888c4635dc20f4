#include "cli/job/header.h"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string_view>
#include <utility>

#include "cli/job/job_display.h"
#include "cli/text/size_text.h"
#include "cli/text/text_table.h"
#include "cli/text/units.h"
#include "cli/text/wrapped.h"
#include "common/base/text.h"
#include "common/base/version.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "common/config/limits.h"
#include "common/config/update_settings.h"

namespace muster {
namespace {

std::string LengthText(const config::Config& config) {
  if (config.run().has_steps()) return Plural(config.run().steps(), "step");
  if (config.run().has_epochs()) return Plural(config.run().epochs(), "epoch");
  return "as long as the program says";
}

std::string ArraysText(const config::Data& data) {
  const Shape shape = StoredShape(data);
  const bool are_rows = shape.height == 1 && shape.width == 1;
  const std::string type = data.npz().type() == config::NpzData::UINT8 ? "uint8" : "float32";
  return fmt::format("{} of {}, {}",
                     are_rows ? Plural(shape.channels, "feature") : shape.ToString(), type,
                     HasValues(data) ? "values" : FormatCount(DataClasses(data)) + " classes");
}

std::string DataText(const config::Data& data) {
  const std::string& format = config::Data::Format_Name(data.format());
  if (data.dir().empty() && NeedsFiles(data)) return format + ", no directory given";
  if (data.format() == config::Data::NPZ)
    return fmt::format("{} in {}: {}", format, data.dir(), ArraysText(data));
  if (NeedsFiles(data)) return fmt::format("{} in {}", format, data.dir());
  const config::SyntheticData& made_up = data.synthetic();
  constexpr int64_t kMany = 50'000'000;
  const char* const slow =
      made_up.train_samples() >= kMany
          ? "; each worker shuffles them before the first step, which takes a while"
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
  if (cluster.transport() == config::Cluster::TCP) return "ZeroMQ (TCP" + type + ")";
  const bool ipc = cluster.transport() == config::Cluster::IPC ||
                   (cluster.transport() == config::Cluster::AUTO && rounded);
  return ipc ? "ZeroMQ (IPC" + type + ")" : "shared memory";
}

std::string WorkersText(const config::Config& config) {
  return fmt::format("{} x {}, over {}", Plural(config.cluster().workers(), "worker"),
                     Plural(config.worker().threads(), "thread"), TransportText(config.cluster()));
}

// `arithmetic` is the worker's description of its backend, or "". Its format is defined in
// worker/backend/cpu/cpu_arithmetic.cc, for programs in client/muster.h.
bool IsCpu(const std::string& arithmetic) {
  return arithmetic.starts_with("oneDNN ") || arithmetic.starts_with("CPU");
}
bool IsCard(const std::string& arithmetic) { return !arithmetic.empty() && !IsCpu(arithmetic); }

std::vector<std::string> NoEffectTexts(const config::Config& config) {
  constexpr size_t kMost = 3;
  std::vector<std::string> texts = WithoutEffect(config);
  if (texts.size() <= kMost) return texts;
  const size_t more = texts.size() - kMost;
  texts.resize(kMost);
  texts.push_back(fmt::format("and {} more", more));
  return texts;
}

// What model.freeze leaves to learn, or "".
std::string FrozenText(const config::Config& config, const Graph& graph) {
  int64_t frozen = 0, all = 0, learning = 0;
  for (const Layer& layer : graph.layers()) {
    all += layer.has_variables();
    frozen += layer.frozen;
  }
  if (frozen == 0) return "";
  for (const Variable& variable : graph.variables()) {
    const bool learns = variable.kind != Variable::Kind::kStatistic &&
                        !graph.layers()[static_cast<size_t>(variable.layer)].frozen;
    if (learns) learning += static_cast<int64_t>(variable.count);
  }
  return fmt::format("{} of {} layers{}; {} learn", FormatCount(frozen), FormatCount(all),
                     config.run().initial_weights().empty() ? ", with random weights" : "",
                     Plural(learning, "parameter"));
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
  std::string text = config.has_learning_rate() ? LearningRateText(config)
                                                : "optimizer and learning rate of the program";
  if (rate.type() == config::LearningRate::PLATEAU) {
    text += fmt::format(", times {:g} after {} without a {}", rate.factor(),
                        Plural(rate.plateau_patience(), "evaluation"),
                        HasValues(config.data()) ? "lower loss" : "better accuracy");
  }
  if (rate.warmup_samples() > 0 && rate.type() != config::LearningRate::ONE_CYCLE) {
    text +=
        fmt::format(", after a warm-up of {}", Plural(rate.warmup_samples(), SampleNoun(config)));
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

// Describes what the evaluated set is used for during the run. Accuracy is optimistic on a set that
// was used to choose weights or settings, so the header names the set.
std::string ChoiceText(const config::Config& config) {
  std::string chosen = "the best weights";
  if (config.learning_rate().type() == config::LearningRate::PLATEAU)
    chosen += ", the rate (PLATEAU)";
  if (config.evaluation().patience() > 0) chosen += ", the end (patience)";
  return chosen;
}

// Returns the row that names the set on which these choices are based.
std::string ChoiceRow(const config::Config& config, const DataCount& data) {
  const config::Evaluation& evaluation = config.evaluation();
  if (evaluation.every_epochs() == 0 && evaluation.every_steps() == 0) return "";
  if (HasProgram(config) && data.train < 0) return "";  // it may have no such sets
  const std::string chosen = ChoiceText(config);
  if (data.validation > 0) {
    const bool tests = data.test > 0 && !evaluation.skip_final();
    return Row(
        "validation",
        fmt::format("{} to choose {}; {} to train{}", Plural(data.validation, SampleNoun(config)),
                    chosen, FormatCount(data.train),
                    tests ? ", " + FormatCount(data.test) + " to test at the end" : ""));
  }
  // Workers started by hand may have data that this host lacks.
  const bool unknown = data.train < 0 && (config.data().validation_fraction() > 0 ||
                                          config.data().format() == config::Data::IMAGE_FOLDER);
  return unknown ? Row("evaluations", "used to choose " + chosen)
                 : Row("test set", "also used to choose " + chosen);
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
  if (HasProgram(config)) {
    row("program", Join(config.worker().program(), " "));
  } else {
    row("network", fmt::format("{}{}, {}", model.empty() ? "" : model + ", ",
                               Plural(static_cast<int64_t>(graph.layers().size()), "layer"),
                               Plural(graph.layout().parameter_count(), "parameter")));
  }
  row("processes",
      fmt::format("1 server x {}, {}", Plural(config.server().threads(), "thread"),
                  options.elsewhere.empty()
                      ? WorkersText(config)
                      : Plural(config.cluster().workers(), "worker") + " " + options.elsewhere));
  row("server", options.server);
  if (options.elsewhere.empty()) row("cores", CoresText(config, options.cores));
  if (config.worker().precision() != config::Worker::FP32) {
    row("precision", config::Worker::Precision_Name(config.worker().precision()));
  }
  row("batch", fmt::format("{}, cut into {}", BatchText(config), SlicesText(config)));
  const std::vector<std::string> bits = BitsTexts(config, !options.elsewhere.empty());
  row("bits", bits.front());
  if (options.all_of_bits) row("", bits.back());
  row("training", fmt::format("{}, {}", LengthText(config), UpdateText(config)));
  if (std::string text = ChoiceRow(config, options.data); !text.empty()) {
    lines.push_back(std::move(text));
  }
  if (!HasProgram(config)) row("data", DataText(config.data()));
  row("", options.data.remark);
  label = "weights";
  for (const std::string& text : options.initial_weights) row(std::exchange(label, ""), text);
  row("frozen", FrozenText(config, graph));
  label = "no effect";
  for (const std::string& text : NoEffectTexts(config)) row(std::exchange(label, ""), text);
  row("memory", options.memory);
  row("run directory", shown_dir);
  row("resumes", options.resumed);
  FitRows(lines);
  return lines;
}

std::string CoresOf(pid_t pid) {
  constexpr std::string_view kLabel = "Cpus_allowed_list:\t";
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(kLabel)) return line.substr(kLabel.size());
  }
  return "-";
}

std::vector<std::string> PlacementLines(const events::Started& started,
                                        const std::function<std::string(pid_t)>& cores_of,
                                        std::span<const WorkerPlace> places) {
  std::vector<TextTable::Column> columns{{"rank", true}, {"host"},          {"pid", true},
                                         {"device"},     {"threads", true}, {"cores"}};
  if (!places.empty()) {
    columns.insert(columns.end(), {{"memory", true}, {"name"}, {"UUID"}});
  }
  TextTable table(columns);
  for (const events::Started::Worker& worker : started.workers()) {
    std::vector<std::string> row{
        std::to_string(worker.rank()),    worker.host(),
        std::to_string(worker.pid()),     "cpu",
        std::to_string(worker.threads()), cores_of(static_cast<pid_t>(worker.pid()))};
    if (IsCard(worker.arithmetic())) row[3] = "GPU";
    if (worker.rank() < places.size()) {
      const Gpu& gpu = places[worker.rank()].gpu;
      const bool known = !gpu.index.empty();  // it is on this host
      if (known && !IsCpu(worker.arithmetic())) row[3] = "GPU " + gpu.index;
      row.insert(row.end(), {known ? FormatBytes(static_cast<double>(gpu.total_bytes)) : "-",
                             gpu.name, gpu.uuid});
    }
    table.AddRow(std::move(row));
  }
  return table.Lines();
}

bool AreOnGpus(const events::Started& started) {
  return std::ranges::any_of(started.workers(), IsCard, &events::Started::Worker::arithmetic);
}

// Names the workers that compute in FP32 although the config wants another precision.
std::vector<std::string> PrecisionTexts(const config::Worker& worker,
                                        const events::Started& started) {
  if (worker.precision() == config::Worker::FP32) return {};
  const std::string marked = " in " + config::Worker::Precision_Name(worker.precision());
  std::vector<uint32_t> ranks;
  for (const events::Started::Worker& one : started.workers()) {
    if (IsCpu(one.arithmetic()) && one.arithmetic().find(marked) == std::string::npos) {
      ranks.push_back(one.rank());
    }
  }
  if (ranks.empty()) return {};
  const bool all = std::ssize(ranks) == started.workers_size();
  return {fmt::format("Warning: worker.precision={}, but {} {} in FP32; see {} for the reason{}",
                      config::Worker::Precision_Name(worker.precision()),
                      all ? "all workers" : RankList(ranks),
                      !all && ranks.size() == 1 ? "computes" : "compute",
                      ranks.size() == 1 ? "its log" : "their logs",
                      all ? "" : ". The bits of the result depend on who computes which slice")};
}

std::vector<std::string> DeviceTexts(const config::Config& config, const events::Started& started) {
  if (config.worker().backend() != config::Worker::CUDA) {
    return PrecisionTexts(config.worker(), started);
  }
  std::map<std::string, std::vector<uint32_t>> ranks_of;
  for (const events::Started::Worker& worker : started.workers()) {
    if (!worker.arithmetic().empty()) ranks_of[worker.arithmetic()].push_back(worker.rank());
  }
  std::vector<std::string> lines;
  for (const auto& [arithmetic, ranks] : ranks_of) {
    const std::string who = ranks_of.size() == 1 ? "all workers" : RankList(ranks);
    const bool one = ranks_of.size() > 1 && ranks.size() == 1;
    if (IsCpu(arithmetic)) {
      lines.push_back(fmt::format(
          "Warning: worker.backend=CUDA, but {} {} on the CPU with {} (worker.soft_placement); see "
          "{} for the reason",
          who, one ? "computes" : "compute", arithmetic, one ? "its log" : "their logs"));
    } else {
      lines.push_back(fmt::format("Computing on {}{}", arithmetic,
                                  ranks_of.size() == 1 ? "" : fmt::format(" ({})", who)));
    }
  }
  return lines;
}

}  // namespace muster
