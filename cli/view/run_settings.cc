#include "cli/view/run_settings.h"

#include <fmt/core.h>
#include <strings.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/text.h"
#include "common/checkpoint/resumable_config.h"
#include "common/config/resolved.h"

namespace muster {
namespace {

// What concerns the machine, the speed or the output, or follows from the data.
constexpr std::string_view kNotCompared[] = {
    "checkpoint.", "cluster.",   "data.class_names", "data.prefetch_", "deadlines.",  "run.dir",
    "run.log_",    "run.trace_", "run.max_restarts", "server.",        "tensorboard", "worker."};
constexpr std::string_view kComparedAnyway[] = {"cluster.wire_dtype", "worker.precision"};
// Networks that differ more than this are compared by their names.
constexpr size_t kMostOfModel = 4;

using Settings = std::map<std::string, std::string>;

// The values without quotes, those of a list as "1,2".
Settings SettingsIn(const config::Config& config) {
  Settings settings;
  for (const auto& [path, value] : FlatSettings(config)) {
    const bool is_list = path.ends_with(']');
    if (value == "{}" && (is_list || path.find("].") == std::string::npos)) continue;
    const bool quoted = value.size() >= 2 && value.starts_with('"');
    const std::string text = quoted ? value.substr(1, value.size() - 2) : value;
    std::string& to = settings[is_list ? path.substr(0, path.rfind('[')) : path];
    if (is_list && !to.empty()) {
      to.append(",").append(text);
    } else {
      to = text;
    }
  }
  return settings;
}

struct RunConfig {
  Settings all, written;
};

RunConfig ReadSettings(const RunRecord& run) {
  const std::string path = run.dir + "/config.txtpb";
  try {
    return {SettingsIn(ParseConfigText(ReadFileIfThere(path), path)), SettingsIn(WrittenIn(path))};
  } catch (const Error&) {  // of another version, or damaged: not compared
    return {};
  }
}

bool Names(const std::string& name, const std::string& path) {
  return path == name || path.ends_with("." + name);
}

bool IsCompared(const std::string& path) {
  const auto begins = [&](std::string_view part) { return path.starts_with(part); };
  return std::ranges::any_of(kComparedAnyway, begins) || std::ranges::none_of(kNotCompared, begins);
}

bool SameValue(const std::string& a, const std::string& b) {
  double x = 0, y = 0;
  const auto is_number = [](const std::string& text, double& number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() && end == text.data() + text.size();
  };
  // The names of values, such as ADAM, may be written in lower case, as in --set.
  return strcasecmp(a.c_str(), b.c_str()) == 0 || (is_number(a, x) && is_number(b, y) && x == y);
}

std::optional<std::string> ValueIn(const Settings& settings, const std::string& path) {
  const auto found = settings.find(path);
  return found == settings.end() ? std::nullopt : std::optional(found->second);
}

std::string NetworkText(const Settings& settings) {
  const auto layers = std::ranges::count_if(settings, [](const auto& setting) {
    return setting.first.starts_with("model.layer[") && setting.first.ends_with("].name");
  });
  return ValueIn(settings, "model.name").value_or("network") + fmt::format(" ({} layers)", layers);
}

// The path that a user means by `name`.
std::string PathOf(const std::string& condition, const std::string& name,
                   const std::set<std::string>& paths) {
  std::vector<std::string> found;
  std::ranges::copy_if(paths, std::back_inserter(found),
                       [&](const std::string& path) { return Names(name, path); });
  if (paths.contains(name)) found = {name};
  if (found.size() == 1) return found[0];
  throw Error(ExitCode::kUsage, "--where {}: expected state=NAME or SETTING=VALUE; {}", condition,
              found.empty() ? "no run has this setting" : "several end so: " + Join(found, ", "));
}

}  // namespace

void CompareSettings(const std::vector<std::string>& conditions, std::vector<RunRecord>& runs) {
  if (runs.empty()) return;
  std::vector<RunConfig> configs;
  std::set<std::string> paths;
  for (const RunRecord& run : runs) {
    for (const auto& [path, ignored] : configs.emplace_back(ReadSettings(run)).all)
      paths.insert(path);
  }
  for (const std::string& condition : conditions) {
    const size_t equals = condition.find('=');
    if (equals == std::string::npos) {
      throw Error(ExitCode::kUsage, "--where {}: expected state=NAME or SETTING=VALUE", condition);
    }
    const std::string name = condition.substr(0, equals);
    const std::string path = name == "state" ? name : PathOf(condition, name, paths);
    const std::string value = condition.substr(equals + 1);
    const bool no_state = name == "state" && std::ranges::none_of(kRunStates, [&](RunState state) {
                            return value == StateName(state);
                          });
    if (no_state) {
      throw Error(ExitCode::kUsage,
                  "--where {}: expected a state of `muster runs`, such as completed", condition);
    }
    for (size_t i = runs.size(); i-- > 0;) {
      const std::string is =
          name == "state" ? StateName(runs[i].state) : ValueIn(configs[i].all, path).value_or("");
      if (SameValue(is, value)) continue;
      runs.erase(runs.begin() + static_cast<std::ptrdiff_t>(i));
      configs.erase(configs.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  std::set<std::string> written, differing;
  for (const RunConfig& config : configs) {
    for (const auto& [path, ignored] : config.written) written.insert(path);
  }
  for (const std::string& path : written) {
    std::set<std::optional<std::string>> values;
    for (const RunConfig& config : configs) {
      if (!config.all.empty()) values.insert(ValueIn(config.all, path));
    }
    if (IsCompared(path) && values.size() > 1) differing.insert(path);
  }
  const auto of_model = [](const std::string& path) { return path.starts_with("model."); };
  if (std::ranges::count_if(differing, of_model) > std::ptrdiff_t{kMostOfModel}) {
    std::erase_if(differing, of_model);
    differing.insert("model");
    for (RunConfig& config : configs) {
      if (!config.all.empty()) config.all["model"] = NetworkText(config.all);
    }
  }
  for (const std::string& path : differing) {
    const std::string last = path.substr(path.rfind('.') + 1);
    const bool is_clear =
        std::ranges::count_if(paths, [&](const std::string& one) { return Names(last, one); }) == 1;
    for (size_t i = 0; i < runs.size(); ++i) {
      runs[i].differs.push_back({path, is_clear ? last : path, ValueIn(configs[i].all, path)});
    }
  }
}

}  // namespace muster
