// Where the settings of a config were given, and the errors about them.
#pragma once

#include <fmt/core.h>

#include <string>
#include <utility>

#include "common/config/config_errors.h"
#include "common/config/text_format.h"

namespace muster {

class ConfigPlaces {
 public:
  // All outlive it. `file` stands for a setting that was written nowhere.
  ConfigPlaces(const std::string& file, const Locations& locations, ConfigErrors& errors)
      : file_(file), locations_(locations), errors_(errors) {}

  // Notes the error and goes on.
  template <typename... Args>
  void Fail(const std::string& key, fmt::format_string<Args...> format, Args&&... args) const {
    errors_.Add(key, fmt::format("{}: {}: {}", Where(key), key,
                                 fmt::format(format, std::forward<Args>(args)...)));
  }

  // The place of the key, or of the nearest message around it that was written somewhere.
  std::string Where(std::string key) const {
    while (!key.empty()) {
      const auto found = locations_.find(key);
      if (found != locations_.end()) return found->second;
      const size_t cut = key.find_last_of(".[");
      key.resize(cut == std::string::npos ? 0 : cut);
    }
    return file_;
  }

  const Locations& locations() const { return locations_; }

 private:
  const std::string& file_;
  const Locations& locations_;
  ConfigErrors& errors_;
};

}  // namespace muster
