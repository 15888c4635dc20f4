// Where the settings of a config were given, for errors about them.
#pragma once

#include <string>
#include <utility>

#include "common/base/error.h"
#include "common/config/text_format.h"

namespace muster {

class ConfigPlaces {
 public:
  // Both outlive it. `file` stands for a setting that was written nowhere.
  ConfigPlaces(const std::string& file, const Locations& locations)
      : file_(file), locations_(locations) {}

  template <typename... Args>
  [[noreturn]] void Fail(const std::string& key, fmt::format_string<Args...> format,
                         Args&&... args) const {
    throw Error(ExitCode::kUsage, "{}: {}: {}", Where(key), key,
                fmt::format(format, std::forward<Args>(args)...));
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
};

}  // namespace muster
